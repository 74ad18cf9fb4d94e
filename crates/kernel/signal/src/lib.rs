//! Signals as data: actions, pending queues, the users that are charged for them, and the frames that handlers run on.
//! See signal(7).
//!
//! Nothing here knows tasks. Which thread a signal goes to, and when it is delivered, is decided in the crate `task`.
//!
//! A checkpoint keeps [`Handlers`] and [`AltStack`], which are plain data, and of [`Pending`] what [`Pending::state`] says.

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
