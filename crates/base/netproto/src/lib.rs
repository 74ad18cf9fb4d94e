//! What the kernel inside and the network gofer say to each other, as bytes.
//!
//! The network gofer makes the host's sockets for a sandbox in host mode, since the sentry may not. Each message is one packet
//! of a SOCK_SEQPACKET pair: a header of fixed length, for [`Request::Send`] followed by the data. Both sides decode with
//! care: a message of another length, an unknown number or a byte that is set where nothing belongs is no message.
//!
//! [`address`] has socket addresses in both forms, [`options`] the socket options that a sentry may use on such a socket.
//! [`unix`] is for Unix sockets of the host, which a container's gofer connects to. Pure: no host calls.

#![forbid(unsafe_code)]

pub mod address;
mod message;
pub mod options;
pub mod unix;

pub use message::{Domain, Kind, MAX_DATA, MAX_REQUEST, REPLY, Reply, Request};
