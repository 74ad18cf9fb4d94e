//! The kernel's log: what syslog(2) and /dev/kmsg read and write.
//!
//! [`Log`] belongs to a kernel and holds the last records, [`SIZE`] bytes of them. Its lock is a leaf. Texts come
//! from the
//! kernel and from programs that may write /dev/kmsg; none of the host's messages ever gets there.

#![forbid(unsafe_code)]

mod device;
mod ring;
#[cfg(test)]
mod tests;

pub use device::opener;
pub use ring::{Log, SIZE};
