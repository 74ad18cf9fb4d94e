//! Connection tracking without packets: tuples, entries, states and the table that holds them.
//!
//! The crate takes addresses, ports and flags. Its moments are milliseconds of the kernel's clock (`ktime::Ktime::millis`), which
//! `netfilter` reads off packets. `netstack` carries a [`Flow`] with each frame, so that the points of one packet's way see one entry.
//!
//! # Owners
//!
//! [`Table`] belongs to one network namespace. An [`Entry`] is an `Arc`: the table holds it from [`Table::confirm`] on, a frame while
//! it is under way. Before that only the packet that made it has it, so rules may change its reply tuple (NAT).
//!
//! # Bounds
//!
//! The table holds at most [`Table::max`] entries. A full table first drops expired entries, then entries that are not
//! assured by a reply; then packets of new connections are dropped. Tuples are hashed with a secret.
//!
//! # Locks
//!
//! The table's map, then its queue; an entry's reply tuple and its TCP state are leaves. A checkpoint keeps the entries with the time
//! that each has left.

#![forbid(unsafe_code)]

mod entry;
mod saved;
mod state;
mod table;
pub mod tcp;
mod timeouts;
mod track;
mod tuple;

pub use entry::{Entry, Flow, State, Status};
pub use state::{ConnectionsState, EntryState};
pub use table::{MAX_ENTRIES, Table};
pub use timeouts::{Timeout, Timeouts};
pub use track::{Outcome, Transport};
pub use tuple::{Direction, Tuple};
