//! The network layer: IP, ICMP, routes, neighbours, fragments, addresses of interfaces, and where packet filters look.
//!
//! [`layer::Network`] owns the tables; a module reads or changes them for one task. [`output`] sends what the transport layer or this
//! host itself has to send, by the device layer below. [`input`] takes a frame and returns the packet, if it is for this host: the
//! layer does not know the transport layer.

pub(crate) mod address;
pub(crate) mod change;
pub(crate) mod control;
pub(crate) mod discovery;
pub(crate) mod expire;
pub(crate) mod filter;
pub(crate) mod fragment;
pub mod headers;
pub mod hooks;
pub(crate) mod icmp;
pub(crate) mod input;
pub(crate) mod interfaces;
pub(crate) mod layer;
pub(crate) mod life;
pub(crate) mod limiter;
pub mod monitor;
pub(crate) mod multicast;
pub mod neigh;
pub(crate) mod output;
pub(crate) mod path;
pub(crate) mod pmtu;
pub(crate) mod received;
pub mod route;
pub mod router;
pub(crate) mod schedule;
pub(crate) mod settings;
pub mod tables;
