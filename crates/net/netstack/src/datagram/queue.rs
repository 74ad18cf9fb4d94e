//! The receive queue and the error queue of a datagram socket.

use super::Protocol;
use crate::buf::Buf;
use crate::memory::{Charge, Memory};
use crate::truesize;
use crate::wire::udp::Udp;
use abi::Errno;
use ktime::Ktime;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// A datagram that waits to be read, with what ancillary data tells of it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Datagram {
    /// What the receiver reads.
    pub data: Buf,
    /// Sender.
    #[serde(with = "crate::plain::address")]
    pub from: SocketAddr,
    /// Destination address.
    pub to: IpAddr,
    /// Destination port (the header's, for `IP_RECVORIGDSTADDR`).
    pub port: u16,
    /// Receiving interface.
    pub iface: u32,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// `SO_MARK` of its packet (`SO_RCVMARK`).
    pub mark: u32,
    /// Arrival.
    pub at: Ktime,
    /// It was looked at already (`MSG_PEEK`).
    pub seen: bool,
    /// Datagrams that the socket had dropped when this one was queued (`SO_RXQ_OVFL`).
    pub dropped: u32,
    /// Extension headers of IPv6 before the payload, with the number of the first one.
    pub extensions: Option<(u8, Buf)>,
    /// Bytes of each datagram but the last, when several were joined (`UDP_GRO`).
    #[serde(default)]
    pub segment: u16,
}

/// A datagram that was too large for its path and must not be cut (`IPV6_PATHMTU`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TooLarge {
    /// The largest packet.
    pub mtu: u32,
    /// Where the packet was sent.
    pub to: Ipv6Addr,
    /// The interface that the sender named, 0 for none.
    pub iface: u32,
}

/// Where an error came from (`ee_origin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Origin {
    /// This host.
    Local = 1,
    /// ICMP.
    Icmp = 2,
    /// ICMPv6.
    Icmp6 = 3,
    /// `SO_TIMESTAMPING`: no error, but the time when a datagram was sent.
    Timestamping = 4,
}

/// An entry of the error queue (`struct sock_extended_err`, ip(7)).
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct QueuedError {
    /// Error number.
    pub errno: Errno,
    /// Origin.
    pub origin: Origin,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// The MTU, for `EMSGSIZE`; what was recorded, for a timestamp.
    pub info: u32,
    /// The number of a timestamp.
    pub id: u32,
    /// The time, for a timestamp.
    pub at: Option<Ktime>,
    /// The host that reported it.
    pub offender: Option<IpAddr>,
    /// Where the packet was sent.
    #[serde(with = "crate::plain::address")]
    pub to: SocketAddr,
    /// The packet's payload, as far as it is known.
    pub data: Buf,
}

impl QueuedError {
    /// Memory that it holds.
    fn truesize(&self) -> usize {
        size_of::<QueuedError>() + self.data.truesize()
    }
}

/// Bytes and number of datagrams that are joined at most.
const LONGEST: usize = 65_507;
const MOST: usize = 128;
/// Errors that one socket keeps.
const MAX_ERRORS: usize = 128;

/// Both queues. Checkpoint: plain data.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    datagrams: VecDeque<Datagram>,
    /// What Linux would count.
    bytes: usize,
    /// What the datagrams and errors hold.
    charge: Charge,
    /// Bytes of headers that a datagram of IPv4 comes without.
    header: usize,
    /// One datagram may exceed the limit.
    exceeds: bool,
    pub(crate) limit: usize,
    errors: VecDeque<QueuedError>,
    /// The pending error (`SO_ERROR`).
    pub(crate) error: Option<Errno>,
    /// Datagrams dropped because the queue was full (`SO_RXQ_OVFL`).
    pub(crate) dropped: u32,
    /// The last datagram that was too large, until a reader hears of it (`IPV6_RECVPATHMTU`).
    pub(crate) too_large: Option<TooLarge>,
    pub(crate) closed: bool,
}

impl Queue {
    pub(crate) fn new(limit: usize, memory: &Arc<Memory>, protocol: Protocol) -> Queue {
        let header = match protocol {
            Protocol::Raw(_) => 0,
            _ => Udp::LEN + 20,
        };
        let exceeds = !protocol.is_udp();
        Queue { limit, charge: Charge::of(memory), header, exceeds, ..Queue::default() }
    }

    fn count(&self, datagram: &Datagram) -> usize {
        let v6 = datagram.to.is_ipv6();
        let header = self.header
            + if !v6 {
                0
            } else if self.header == 0 {
                40
            } else {
                20
            };
        truesize::packet(datagram.data.len() + header, v6)
    }

    /// Both queues, for a checkpoint.
    pub(super) fn lists(&self) -> (Vec<Datagram>, Vec<QueuedError>) {
        (self.datagrams.iter().cloned().collect(), self.errors.iter().cloned().collect())
    }

    /// Puts saved entries back; their bound was that of the time when they came.
    pub(super) fn fill(&mut self, datagrams: Vec<Datagram>, errors: Vec<QueuedError>) {
        let sizes: usize = datagrams.iter().map(|datagram| self.count(datagram)).sum();
        let held: usize = datagrams.iter().map(|datagram| datagram.data.truesize()).sum();
        let told: usize = errors.iter().take(MAX_ERRORS).map(QueuedError::truesize).sum();
        self.bytes = sizes;
        self.charge.set(held + told);
        (self.datagrams, self.errors) = (datagrams.into(), errors.into());
        self.errors.truncate(MAX_ERRORS);
    }

    /// Appends a datagram that follows another of its piece to that one, if it is the last (`UDP_GRO`).
    pub(crate) fn join(&mut self, datagram: &Datagram) -> bool {
        let Some(last) = self.datagrams.back() else { return false };
        let (before, held) = (self.count(last), last.data.truesize());
        let size = if last.segment > 0 { usize::from(last.segment) } else { last.data.len() };
        let (len, more) = (last.data.len(), datagram.data.len());
        let whole = size > 0 && len % size == 0 && (1..=size).contains(&more) && len + more <= LONGEST;
        let told = |d: &Datagram| (d.from, d.to, d.port, d.iface, d.ttl, d.tos, d.mark);
        let same = told(last) == told(datagram) && last.extensions.is_none() && datagram.extensions.is_none();
        let full = self.bytes + more > self.limit || self.charge.is_scarce();
        if !whole || !same || last.seen || full || len / size >= MOST {
            return false;
        }
        let Some(last) = self.datagrams.back_mut() else { return false };
        last.segment = size as u16;
        last.data.extend(&datagram.data);
        let after = self.datagrams.back().map_or((0, 0), |last| (self.count(last), last.data.truesize()));
        self.bytes = (self.bytes + after.0).saturating_sub(before);
        self.charge.set((self.charge.bytes() + after.1).saturating_sub(held));
        true
    }

    /// Appends a datagram; false when the buffer is full.
    pub(crate) fn push(&mut self, mut datagram: Datagram) -> bool {
        let size = self.count(&datagram);
        let after = if self.exceeds { self.bytes + 1 } else { self.bytes + size };
        let full = self.bytes > 0 && (after > self.limit || self.charge.is_scarce());
        if self.closed || full {
            self.dropped = self.dropped.wrapping_add(1);
            return false;
        }
        self.bytes += size;
        self.charge.set(self.charge.bytes() + datagram.data.truesize());
        datagram.dropped = self.dropped;
        self.datagrams.push_back(datagram);
        true
    }

    pub(crate) fn push_error(&mut self, error: QueuedError) {
        if error.origin != Origin::Timestamping {
            self.error = Some(error.errno);
        }
        if self.errors.len() < MAX_ERRORS && !self.charge.is_scarce() {
            self.charge.set(self.charge.bytes() + error.truesize());
            self.errors.push_back(error);
        }
    }

    pub(crate) fn first(&self) -> Option<&Datagram> {
        self.datagrams.front()
    }

    /// What a peek sees that begins `offset` bytes into the queue, and how much of that datagram to skip. Without an offset it is
    /// the first one. An empty datagram is seen once.
    pub(crate) fn peek(&mut self, offset: Option<usize>) -> Option<(Datagram, usize)> {
        let mut skip = offset.unwrap_or(0);
        for datagram in &mut self.datagrams {
            let len = datagram.data.len();
            if offset.is_none() || skip < len || skip == 0 && !datagram.seen {
                datagram.seen = true;
                return Some((datagram.clone(), skip));
            }
            skip -= len;
        }
        None
    }

    pub(crate) fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.datagrams.pop_front()?;
        self.bytes = self.bytes.saturating_sub(self.count(&datagram));
        self.charge.set(self.charge.bytes().saturating_sub(datagram.data.truesize()));
        Some(datagram)
    }

    pub(crate) fn pop_error(&mut self) -> Option<QueuedError> {
        let error = self.errors.pop_front()?;
        self.charge.set(self.charge.bytes().saturating_sub(error.truesize()));
        let next = self.errors.front().filter(|next| next.origin != Origin::Timestamping);
        self.error = next.map(|next| next.errno);
        Some(error)
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Bytes in use, overhead included.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn close(&mut self) {
        *self = Queue { closed: true, ..Queue::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;

    #[test]
    fn errors_count_as_memory() {
        let (memory, pool) = (Arc::new(Memory::default()), Pool::default());
        memory.set_limit(20_000);
        let mut queue = Queue::new(1 << 20, &memory, Protocol::Udp);
        let error = || QueuedError {
            errno: Errno::EMSGSIZE,
            origin: Origin::Timestamping,
            kind: 0,
            code: 0,
            info: 0,
            id: 0,
            at: None,
            offender: None,
            to: SocketAddr::from(([127, 0, 0, 1], 9)),
            data: pool.copy(&[1; 2000]),
        };
        (0..MAX_ERRORS).for_each(|_| queue.push_error(error()));
        let kept = std::iter::from_fn(|| queue.pop_error()).count();
        assert!((1..20).contains(&kept), "{kept} errors were kept");
        assert_eq!(memory.used(), 0);
    }
}
