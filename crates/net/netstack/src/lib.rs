//! A TCP/IP stack without input and output: bytes and time go in, frames and deadlines come out.
//!
//! No threads, no clock, no host calls, no unsafe code. Every operation takes `now`; a test that repeats its calls sees the same packets.
//!
//! # Owners
//!
//! [`Stack`] is one network namespace. It owns interfaces ([`iface`]), routes and rules ([`route`]), neighbours ([`neigh`]), path MTUs,
//! fragments, the tables of bound and connected sockets, [`sysctl`] settings and [`counters`]. A socket is an `Arc` that the kernel
//! holds; a table of the stack holds it too while it is bound or connected, so a TCP connection outlives its descriptor. A socket
//! holds its stack, as a Linux socket holds its network namespace. The kernel gives each socket a [`notify::Notify`], each
//! link a [`device::Device`], each stack an [`Alarm`] and a [`monitor::Monitor`]. All four only queue or wake; none calls back into
//! the stack.
//!
//! # Operations
//!
//! Operations never block: `EAGAIN` says that one would. The kernel blocks on its own wait queues. An operation locks what it needs, puts
//! frames into device queues or the loopback backlog, unlocks, and ends with `Stack::finish`, which processes the backlog with
//! nothing locked. Input (`Stack::receive`) and timers (`Stack::run_timers`) end the same way.
//!
//! # Locks, outermost first
//!
//! 1. a listener, then the connection that it makes; or one connection
//! 2. a receive queue, then the name of its sender
//! 3. ports and socket tables, in shards
//! 4. interfaces, routes, neighbours, path MTUs: read-write locks, written by changes only
//! 5. leaves: backlog shard, timer shard, buffer pool, fragments, limiter, device queue
//!
//! Unrelated connections share only read locks and sharded leaves on send, receive and poll. A datagram socket's configuration is
//! taken at 1, its queue at 2, never both at once.
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
mod address;
mod backlog;
pub mod buf;
pub mod capture;
mod change;
pub mod checksum;
pub mod conf;
pub mod counters;
pub mod datagram;
pub mod device;
pub mod fanout;
mod fragment;
pub mod frame;
mod gso;
pub mod hooks;
mod icmp;
pub mod iface;
mod ifaddr;
mod input;
mod keys;
pub mod life;
pub mod links;
pub mod memory;
pub mod monitor;
mod moves;
pub mod neigh;
mod nest;
pub mod notify;
pub mod options;
mod output;
pub mod packet;
mod path;
mod pmtu;
mod ports;
mod received;
mod ring;
pub mod route;
pub mod router;
pub mod rows;
mod spare;
mod stack;
pub mod stamps;
pub mod sysctl;
pub mod tcp;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod time;
mod timer;
pub mod truesize;
mod vlan;
pub mod vnet;
pub mod wire;

pub use iface::LOOPBACK;
pub use path::{Cast, Path};
pub use stack::{Alarm, NoAlarm, Stack, Watch};
