//! What a bridge and its ports are set to, and the addresses that it remembers (IEEE 802.1D without spanning tree: a loop of bridges
//! sends a broadcast round until queues are full).
//!
//! Plain data: [`ForwardingTable`] says which port an address is behind. The lock around it is the driver's.

use crate::wire::eth::Mac;
use ktime::Ktime;
use std::collections::HashMap;
use std::time::Duration;

/// Addresses that a bridge remembers.
const MAX_ADDRESSES: usize = 4096;

/// What a bridge is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct BridgeSettings {
    /// How long it remembers an address.
    pub ageing: Duration,
    /// Counts with a spanning tree only, which is not there.
    pub forward_delay: Duration,
}

impl Default for BridgeSettings {
    fn default() -> BridgeSettings {
        BridgeSettings { ageing: Duration::from_secs(300), forward_delay: Duration::from_secs(15) }
    }
}

/// What a port of a bridge is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct PortSettings {
    /// Frames may leave by the port that they came from.
    pub hairpin: bool,
    /// Frames do not go from one such port to another.
    pub isolated: bool,
    /// Senders of its frames are remembered.
    pub learning: bool,
    /// Frames for an address that is not known leave by it.
    pub flood: bool,
    /// Frames for groups leave by it.
    pub multicast_flood: bool,
    /// Frames for all leave by it.
    pub broadcast_flood: bool,
}

impl Default for PortSettings {
    fn default() -> PortSettings {
        PortSettings {
            hairpin: false,
            isolated: false,
            learning: true,
            flood: true,
            multicast_flood: true,
            broadcast_flood: true,
        }
    }
}

impl PortSettings {
    /// Whether a frame leaves by this port when the port of its destination is not known.
    pub(crate) fn floods(&self, dst: Mac) -> bool {
        match dst {
            Mac::BROADCAST => self.broadcast_flood,
            _ if dst.is_multicast() => self.multicast_flood,
            _ => self.flood,
        }
    }
}

/// Addresses with the ports that their frames came from, and when (`bridge fdb`).
#[derive(Debug, Default)]
pub(crate) struct ForwardingTable(HashMap<Mac, (u32, Ktime)>);

impl ForwardingTable {
    /// A frame of an address came from a port.
    pub(crate) fn learn(&mut self, mac: Mac, port: u32, now: Ktime, ageing: Duration) {
        if self.0.len() >= MAX_ADDRESSES && !self.0.contains_key(&mac) {
            self.0.retain(|_, (_, at)| now.since(*at) < ageing);
            if self.0.len() >= MAX_ADDRESSES {
                return;
            }
        }
        self.0.insert(mac, (port, now));
    }

    /// The port that an address is behind.
    pub(crate) fn port_of(&self, mac: Mac, now: Ktime, ageing: Duration) -> Option<u32> {
        self.0.get(&mac).filter(|(_, at)| now.since(*at) < ageing).map(|(port, _)| *port)
    }

    /// A port is none any more.
    pub(crate) fn forget(&mut self, port: u32) {
        self.0.retain(|_, (index, _)| *index != port);
    }
}
