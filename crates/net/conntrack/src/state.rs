//! Connections as plain data. Moments are those of the kernel's clock.

use crate::tcp::State;
use crate::tuple::Tuple;
use serde::{Deserialize, Serialize};

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryState {
    /// Its number.
    pub id: u32,
    /// Addresses of its first packet, and of the answers.
    pub tuples: [Tuple; 2],
    /// Its mark.
    pub mark: u32,
    /// Its status.
    pub status: u32,
    /// When it ends, in milliseconds.
    pub deadline: u64,
    /// When it is a stream, in milliseconds.
    pub stream_from: u64,
    /// The state of a TCP connection.
    pub tcp: State,
}

/// The connections of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionsState {
    /// Oldest first.
    pub entries: Vec<EntryState>,
    /// Most of them.
    pub max: u32,
    /// The next number.
    pub next: u32,
    /// Seconds that connections live without packets, in the order of [`Timeout::ALL`](crate::timeouts::Timeout::ALL).
    pub timeouts: Vec<u32>,
    /// Packets that were dropped, and entries that were given up.
    pub counters: [u64; 2],
}
