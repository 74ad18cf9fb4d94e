//! The calling task as the kernel's subsystems see it, in narrow traits: one that needs credentials asks for
//! [`HasCredentials`], one that sleeps for [`Blocking`], and so on. `task` implements them all.
//!
//! [`Resources`] is the state that the subsystems of one kernel share below the file layer: limits, numbers, deadlines.
//! Neighbours: `rights` below; `vfs` above: its `Caller` is the bundle of these traits and those for files. Locks: the
//! timer service's has a rank, the others are leaves. A checkpoint keeps limits and settings.

#![forbid(unsafe_code)]

mod blocking;
mod credentials;
mod device;
mod identity;
mod limits;
pub mod lock_waits;
mod membership;
mod memory;
mod numbers;
pub mod pace;
pub mod quota;
mod resources;
pub mod retry;
pub mod timer;

pub use blocking::{Blocking, SignalSource};
pub use credentials::HasCredentials;
pub use device::{DeviceRules, DeviceUse};
pub use identity::{Identity, NO_ID};
pub use limits::Limits;
pub use membership::Membership;
pub use memory::UserMemory;
pub use numbers::DeviceNumbers;
pub use quota::Quotas;
pub use resources::{ANONYMOUS_INODE, MAX_STACK_DEPTH, Resources};
pub use retry::{Failure, Outcome, Patience};
