//! AF_INET, AF_INET6 and AF_PACKET: the sockets of a namespace's TCP/IP stack. See ip(7), ipv6(7), tcp(7), udp(7).
//!
//! The stack (`netstack`) holds protocol state, queues and addresses; a socket here is the shell around one of its
//! sockets: addresses as bytes, privileges, Linux's order of errors, options and ancillary data. Each is a
//! [`socket::SocketOps`] with operations that never block; [`notify`] turns the stack's events into wake-ups. Lock
//! rank: none of its own but leaves. A checkpoint keeps options here ([`saved`]), and the rest with the stack.

#![forbid(unsafe_code)]

mod addr;
mod control;
mod datagram;
mod family;
mod fanout;
mod headers;
mod names;
mod notices;
mod notify;
mod options;
mod packet;
mod ring;
pub mod saved;
mod stamps;
mod stream;
mod value;

pub use family::InetFamily;
pub use packet::PacketFamily;
