//! Sockets.

pub(crate) mod sendrecv;
pub(crate) mod socket;
