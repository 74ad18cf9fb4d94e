//! The receive queue and the error queue of a datagram socket.

use crate::buf::Buf;
use crate::memory::{Charge, Memory};
use crate::time::Instant;
use abi::Errno;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A datagram that waits to be read, with what ancillary data tells of it.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// What the receiver reads.
    pub data: Buf,
    /// Sender.
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
    /// Arrival.
    pub at: Instant,
}

/// Where an error came from (`ee_origin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This host.
    Local = 1,
    /// ICMP.
    Icmp = 2,
    /// ICMPv6.
    Icmp6 = 3,
}

/// An entry of the error queue (`struct sock_extended_err`, ip(7)).
#[derive(Clone, Debug)]
pub struct QueuedError {
    /// Error number.
    pub errno: Errno,
    /// Origin.
    pub origin: Origin,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// The MTU, for `EMSGSIZE`.
    pub info: u32,
    /// Who told it.
    pub offender: Option<IpAddr>,
    /// Where the packet was sent.
    pub to: SocketAddr,
    /// The packet's payload, as far as it is known.
    pub data: Buf,
}

/// Errors that one socket keeps.
const MAX_ERRORS: usize = 128;

/// Both queues. Checkpoint: plain data.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    datagrams: VecDeque<Datagram>,
    bytes: usize,
    charge: Charge,
    pub(crate) limit: usize,
    errors: VecDeque<QueuedError>,
    /// The pending error (`SO_ERROR`).
    pub(crate) error: Option<Errno>,
    /// Datagrams dropped because the queue was full (`SO_RXQ_OVFL`).
    pub(crate) dropped: u32,
    pub(crate) closed: bool,
}

impl Queue {
    pub(crate) fn new(limit: usize, memory: &Arc<Memory>) -> Queue {
        Queue { limit, charge: Charge::of(memory), ..Queue::default() }
    }

    /// Appends a datagram; false when the buffer is full.
    pub(crate) fn push(&mut self, datagram: Datagram) -> bool {
        let size = datagram.data.truesize();
        // As Linux does, one datagram may exceed the limit.
        let full = self.bytes >= self.limit || self.bytes > 0 && self.charge.is_scarce();
        if self.closed || full {
            self.dropped = self.dropped.wrapping_add(1);
            return false;
        }
        self.bytes += size;
        self.charge.set(self.bytes);
        self.datagrams.push_back(datagram);
        true
    }

    pub(crate) fn push_error(&mut self, error: QueuedError) {
        self.error = Some(error.errno);
        if self.errors.len() < MAX_ERRORS {
            self.errors.push_back(error);
        }
    }

    pub(crate) fn first(&self) -> Option<&Datagram> {
        self.datagrams.front()
    }

    pub(crate) fn nth(&self, n: usize) -> Option<&Datagram> {
        self.datagrams.get(n)
    }

    pub(crate) fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.datagrams.pop_front()?;
        self.bytes = self.bytes.saturating_sub(datagram.data.truesize());
        self.charge.set(self.bytes);
        Some(datagram)
    }

    pub(crate) fn pop_error(&mut self) -> Option<QueuedError> {
        let error = self.errors.pop_front()?;
        self.error = self.errors.front().map(|next| next.errno);
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
