//! The kernel's log, which syslog(2) and /dev/kmsg read and write.
//!
//! [`Log`] belongs to a kernel and holds the last records, [`SIZE`] bytes of them. Its lock is a leaf. Texts come from
//! the kernel and from programs that may write /dev/kmsg. It never contains messages of the host.

#![forbid(unsafe_code)]

mod device;
mod ring;
#[cfg(test)]
mod tests;

pub use device::opener;
pub use ring::{Log, SIZE};
