//! Sockets.

mod policing;
pub(crate) mod sendrecv;
pub(crate) mod socket;
