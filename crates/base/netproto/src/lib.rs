//! The messages between the kernel inside and the network gofer, as bytes.
//!
//! The network gofer makes the host's sockets for a sandbox in host mode, because the sentry may not. Each message is
//! one packet of a SOCK_SEQPACKET pair: a header of fixed length, followed by the data for [`Request::Send`]. Both
//! sides refuse a message of another length, with an unknown number or with a byte set in an unused place.
//!
//! [`address`] has socket addresses in both forms, [`options`] the socket options that a sentry may use on such a socket.
//! [`unix`] is for Unix sockets of the host, which a container's gofer connects to. Pure: no host calls.

#![forbid(unsafe_code)]

pub mod address;
mod message;
pub mod options;
pub mod unix;

pub use message::{Domain, Kind, MAX_DATA, MAX_REQUEST, REPLY, Reply, Request};
