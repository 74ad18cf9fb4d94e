//! Counts of packets and bytes: of the expression `counter`, of objects and of base chains.

use crate::attr::{Attrs, Result, Writer};
use std::sync::atomic::{AtomicU64, Ordering};

const BYTES: u16 = 1;
const PACKETS: u16 = 2;

/// Counts packets and bytes.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// From the attributes of a counter; what is missing is zero.
    pub fn new(attrs: Attrs<'_>) -> Result<Counter> {
        let (packets, bytes) = (attrs.be64(PACKETS)?, attrs.be64(BYTES)?);
        Ok(Counter { packets: packets.unwrap_or(0).into(), bytes: bytes.unwrap_or(0).into() })
    }
    pub fn count(&self, len: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    pub fn reset(&self) {
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
    pub fn write(&self, out: &mut Writer) {
        out.be64(BYTES, self.bytes.load(Ordering::Relaxed));
        out.be64(PACKETS, self.packets.load(Ordering::Relaxed));
    }
}
