//! Priority-inheritance futexes: the owner of a word is in guest memory, its waiters are here.
//!
//! The word changes by compare-and-exchange only, carried out by the calling thread itself, so that a lock or unlock
//! without contention needs no help from here. What Linux guarantees on top of a plain lock is kept: the owner is
//! known, a lock is handed over to the next waiter rather than released, a dead owner's lock goes on with
//! FUTEX_OWNER_DIED, and waiting in a circle is refused. Scheduling priorities are recorded only, so they order the
//! waiters but are not lent.
//!
//! [`PiTable`] has the contended words, [`PiTask`] is a thread's part; both are over a [`PiOwner`]. The functions that make
//! the calls take a [`PiLocker`], the calling thread. The crate knows no tasks.

#![forbid(unsafe_code)]

mod key;
mod lock;
mod requeue;
mod table;

pub use key::{Key, futex_key};
pub use lock::{PiLocker, pi_hand_over, pi_lock, pi_unlock};
pub use requeue::{pi_requeue, pi_wait_requeue};
pub use table::{PiOwner, PiTable, PiTask};
