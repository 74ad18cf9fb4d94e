//! Keyed hashes and random numbers of a stack, from one seed that the kernel gives.

use ktime::Ktime;
use siphasher::sip::SipHasher24;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The secrets of a stack. The seed comes from the kernel's random source; a checkpoint keeps it, so that sequence numbers
/// keep their order.
#[derive(Debug)]
pub struct Keys {
    seed: [u8; 16],
    drawn: AtomicU64,
}

impl Keys {
    /// Keys from a seed.
    pub fn new(seed: [u8; 16]) -> Keys {
        Keys { seed, drawn: AtomicU64::new(0) }
    }

    /// A keyed hash of a value; `purpose` separates uses.
    pub fn hash(&self, purpose: &str, value: impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.seed);
        purpose.hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    }

    /// A number that cannot be guessed from outside.
    pub fn random(&self) -> u64 {
        self.hash("random", self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// An initial sequence number: a clock of 64 ns and a hash of the connection (RFC 6528).
    pub fn initial_sequence(&self, local: SocketAddr, remote: SocketAddr, now: Ktime) -> u32 {
        let offset = self.hash("isn", (local, remote)) as u32;
        offset.wrapping_add((now.nanos() >> 6) as u32)
    }

    /// The key of Fast Open cookies until one is set.
    pub fn fast_open(&self) -> [u8; 16] {
        let halves = [self.hash("fast open", 0u8), self.hash("fast open", 1u8)];
        (u128::from(halves[0]) << 64 | u128::from(halves[1])).to_ne_bytes()
    }

    /// The offset of a connection's timestamps (RFC 7323 section 5.4).
    pub fn timestamp_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.hash("ts", (local.ip(), remote.ip())) as u32
    }
}
