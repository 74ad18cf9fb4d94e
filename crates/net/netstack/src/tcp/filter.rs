//! Programs of a socket: the filter of what arrives (`SO_ATTACH_FILTER`), and the choice of a listener
//! (`SO_ATTACH_REUSEPORT_CBPF`). A checkpoint keeps their instructions.

use super::conn::State;
use super::socket::{Inner, TcpSocket};
use super::table::Program;
use crate::device::capture::Filter;
use abi::Errno;
use ktime::Ktime;
use std::sync::Arc;

impl TcpSocket {
    /// Sets or removes the filter, which sees segments from the TCP header on. Returns whether there was one. Connections of a
    /// listener begin with its filter.
    pub fn set_filter(&self, now: Ktime, filter: Option<Arc<dyn Filter>>) -> bool {
        let mut inner = self.inner.lock();
        let before = std::mem::replace(&mut inner.filter, filter);
        let packets = TcpSocket::needs_packets(&inner);
        self.rx.queue.lock().packets_only = packets;
        drop(inner);
        // The last user of the sender ends it, which must not be under this lock.
        let sender = self.rx.sender.lock().upgrade();
        if let Some(sender) = sender.filter(|_| packets) {
            sender.use_packets(now);
        }
        before.is_some()
    }

    /// The instructions of the filter; empty without one, `None` for one that has none.
    pub fn filter(&self) -> Option<Vec<u8>> {
        instructions(self.inner.lock().filter.as_ref())
    }

    /// Gives the group of listeners that share the port a program that chooses one of them by the payload of a SYN, or takes it
    /// away (`ENOENT` without one). `EINVAL` without a group.
    pub fn set_group_program(&self, program: Option<Program>) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let detaches = program.is_none();
        let before = match (inner.listener.is_some(), inner.binding) {
            (true, Some(binding)) => {
                self.stack.tcp.table.set_program(binding.port, self, program).ok_or(Errno::EINVAL)?
            }
            (false, _) if inner.conn.state == State::Closed && inner.conn.options.ip.reuse_port => {
                std::mem::replace(&mut inner.program, program)
            }
            _ => return Err(Errno::EINVAL),
        };
        if detaches && before.is_none() { Err(Errno::ENOENT) } else { Ok(()) }
    }

    /// The instructions of the group's program, as [`TcpSocket::filter`].
    pub(super) fn group_program(&self, inner: &Inner) -> Option<Vec<u8>> {
        let program = match inner.binding.filter(|_| inner.listener.is_some()) {
            Some(binding) => self.stack.tcp.table.program(binding.port, self),
            None => inner.program.clone(),
        };
        instructions(program.as_ref())
    }

    /// True when all bytes for the socket have to come in packets: a filter, or a bound of their way.
    pub(super) fn needs_packets(inner: &Inner) -> bool {
        let options = &inner.conn.options.ip;
        inner.filter.is_some() || options.min_ttl > 0 || options.min_hops > 0
    }
}

/// The instructions of a program; empty without one, `None` for one that has none.
pub(super) fn instructions(program: Option<&Program>) -> Option<Vec<u8>> {
    program.map_or_else(|| Some(Vec::new()), |program| program.instructions().map(<[u8]>::to_vec))
}
