//! AF_INET and AF_INET6 on the host's own sockets: host mode.
//!
//! The kernel inside makes no socket. It asks the network gofer ([`NetGofer`]) to make, bind and connect one, and gets
//! the descriptor. Data then move between the program and that descriptor directly. With a policy, the seccomp filter
//! lets a descriptor send to its peer only. So a datagram with a destination goes through the gofer, which checks the
//! destination.
//!
//! Neighbours: `socket` for the family-independent part, `hostfs` for the thread that watches descriptors. A checkpoint keeps
//! nothing of this: the connections are the host's. Lock rank: leaves.

#![forbid(unsafe_code)]

mod control;
mod family;
mod gofer;
mod names;
mod options;
mod recv;
mod send;
mod shared;
mod sock;
mod socket_ops;

pub use family::HostFamily;
pub use gofer::NetGofer;
