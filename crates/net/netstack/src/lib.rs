//! A TCP/IP stack without input and output: bytes and time go in, frames and deadlines come out.
//!
//! No threads, no clock, no host calls, no unsafe code. Every operation takes `now`; a test that repeats its calls sees the same packets.
//!
//! # Layers
//!
//! | layer | what | owner |
//! |---|---|---|
//! | `device` | interfaces, VLANs, bridges, veth pairs, packet sockets, the queue that frames are forwarded by | `Links`, `Inbox`, `Taps` |
//! | `network` | IP, ICMP, routes, neighbours, fragments, addresses, the packet filter's points | [`Network`] |
//! | [`datagram`], [`tcp`] | sockets: UDP, ping, raw; TCP | `Datagrams`, `Tcp` |
//! | `stack` | [`Stack`]: one network namespace, which hands packets from the network layer to sockets | |
//!
//! A layer names those below it only. Plain data that all layers share ([`frame`], [`wire`], [`buf`], [`time`]) is below them. The
//! device layer calls upwards by one narrow trait, `UpperLayer`, once for each turn of a namespace; the network layer returns packets
//! for this host and errors for sockets to its caller.
//!
//! A socket is an `Arc` that the kernel holds; a table of its protocol holds it too while it is bound or connected, so a TCP connection
//! outlives its descriptor. A socket holds its stack, as a Linux socket holds its network namespace. The kernel gives each socket a
//! [`notify::Notify`], each link a [`driver::Device`], each stack an [`Alarm`] and a [`monitor::Monitor`]. All four only queue or wake;
//! none calls back into the stack.
//!
//! # Operations
//!
//! Operations never block: `EAGAIN` says that one would. The kernel blocks on its own wait queues. An operation locks what it needs, puts
//! frames into device queues or the inbox of a namespace, unlocks, and ends with `finish` ([`Stack`], `TcpSocket`, `DatagramSocket`),
//! which processes the inbox with nothing locked (`device::inbox`). Input ([`Stack::receive`]) and timers ([`Stack::run_timers`]) end
//! the same way.
//!
//! # Locks
//!
//! Their order is that of `lock_order::rank`, from `RAW_SOCKETS` on: sockets, receive queues, packet sockets, the tables of the network
//! layer, interfaces. Leaves are the tables of sockets and the shards of timers, in shards, and the pools of buffers. Unrelated
//! connections share only read locks and sharded leaves on send, receive and poll.
//!
//! # Bounds
//!
//! Each queue has one: socket buffers by their limits, backlog, fragments and neighbour queues by bytes, tables by counts.
//! Sequence numbers wrap explicitly ([`tcp::seq::Seq`]); times saturate.
//!
//! # Checkpoint
//!
//! Connections, routes, rules, addresses, settings and queues are plain data. Devices, notifiers, timers and pools are made anew.
//!
//! # Wire formats
//!
//! Headers are `zerocopy` structures ([`wire`]). The workspace has that crate already, its reads cannot panic, and one structure serves
//! reading and writing in place. smoltcp's wire module panics in accessors that are used before a length check, and its TCP options drop
//! what packet tests look at; etherparse allocates for options. TCP options and extension headers need our own walk in any case.
//! `siphasher` keys sequence numbers and tables: the standard library has no stable SipHash with a key.

#![forbid(unsafe_code)]

pub mod addr;
pub mod buf;
mod cast;
pub mod chain;
pub mod checksum;
pub mod conf;
pub mod counters;
pub mod datagram;
mod device;
pub mod frame;
mod gso;
mod ifaddr;
mod keys;
pub mod layers;
pub mod memory;
mod nest;
mod network;
pub mod notify;
pub mod options;
mod plain;
mod ports;
mod protocols;
mod ring;
pub mod rows;
mod saved;
mod spare;
mod stack;
pub mod stamps;
pub mod sysctl;
pub mod tcp;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timer;
pub mod train;
pub mod truesize;
pub mod vnet;
pub mod wire;

pub use device::iface::LOOPBACK;
pub use device::{bridge, capture, driver, fanout, iface, packet, queue};
pub use network::layer::Network;
pub use network::path::{Cast, Path};
pub use network::schedule::{Alarm, NoAlarm};
pub use network::{headers, hooks, monitor, neigh, route, router, tables};
pub use stack::Stack;
