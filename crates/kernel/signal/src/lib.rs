//! Signals as data: actions, pending queues, the users that are charged for them, and the frames that handlers run on.
//! See signal(7).
//!
//! This crate knows no tasks. The crate `task` decides which thread a signal goes to and when it is delivered.
//!
//! A checkpoint keeps [`Handlers`] and [`AltStack`], which are plain data, and the result of [`Pending::state`].

#![forbid(unsafe_code)]

pub mod action;
pub mod frame;
pub mod pending;
pub mod queues;

pub use action::{
    DefaultAction, Handlers, SIG_DFL, SIG_IGN, STOP_SIGNALS, SYNCHRONOUS, SigAction, default_action,
};
pub use frame::{AltStack, SS_AUTODISARM, StackT, TrapInfo};
pub use pending::{Expiry, Origin, Pending, PendingState, Timer};
pub use queues::{Charge, Queues};
