//! Datagram sockets as plain data: what a checkpoint keeps of a socket, and the way back.

use super::groups::Membership;
use super::queue::{Datagram, QueuedError, TooLarge};
use super::{DatagramSocket, Datagrams, Protocol, SendControl};
use crate::buf::Buf;
use crate::device::iface::Upper;
use crate::network::multicast::MAX_SOURCES;
use crate::notify::Notifier;
use crate::options::IpOptions;
use crate::plain;
use crate::ports::{Binding, plain as without_scope};
use abi::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The largest datagram with its headers, and some more.
const MOST_BYTES: usize = 1 << 17;
/// Groups of one socket.
const MOST_GROUPS: usize = 1 << 16;

/// A socket without its stack, path, filter and notifier.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatagramState {
    v6: bool,
    protocol: Protocol,
    options: IpOptions,
    binding: Option<Binding>,
    bound_ip: IpAddr,
    remote: Option<SocketAddr>,
    memberships: Vec<Membership>,
    corked: Option<Corked>,
    read_shut: bool,
    write_shut: bool,
    port_named: bool,
    datagrams: Vec<Datagram>,
    errors: Vec<QueuedError>,
    error: Option<Errno>,
    dropped: u32,
    too_large: Option<TooLarge>,
}

/// Data that waits for the end of a cork.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Corked {
    data: Buf,
    #[serde(with = "plain::address")]
    to: SocketAddr,
    control: SendControl,
}

impl DatagramSocket {
    /// The socket as plain data.
    pub fn save(&self) -> DatagramState {
        let inner = self.inner.lock();
        let queue = self.queue.lock();
        let (datagrams, errors) = queue.lists();
        let corked = inner.corked.clone();
        DatagramState {
            v6: self.is_v6(),
            protocol: self.protocol,
            options: inner.options.clone(),
            binding: inner.binding,
            bound_ip: inner.bound_ip,
            remote: inner.remote,
            memberships: inner.memberships.clone(),
            corked: corked.map(|(data, to, control)| Corked { data, to, control }),
            read_shut: inner.read_shut,
            write_shut: inner.write_shut,
            port_named: inner.port_named,
            datagrams,
            errors,
            error: queue.error,
            dropped: queue.dropped,
            too_large: queue.too_large,
        }
    }

    /// The instructions of its filter; empty without one, `None` for a filter that has none.
    pub fn filter(&self) -> Option<Vec<u8>> {
        match &*self.filter.read() {
            Some(filter) => filter.instructions().map(<[u8]>::to_vec),
            None => Some(Vec::new()),
        }
    }

    pub(crate) fn place(
        all: &Arc<Datagrams>,
        upper: Arc<Upper>,
        saved: DatagramState,
        notify: Notifier,
    ) -> Result<Arc<DatagramSocket>, Errno> {
        saved.check().ok_or(Errno::EINVAL)?;
        let socket = DatagramSocket::new(all, upper, saved.v6, saved.protocol, notify);
        let mut inner = socket.inner.lock();
        for membership in saved.memberships {
            // An interface that is gone took its groups along.
            if let Some(link) = socket.net.link(membership.iface) {
                link.join(membership.group)?;
                inner.memberships.push(membership);
            }
        }
        let limit = saved.options.receive_buffer;
        inner.options = saved.options;
        (inner.binding, inner.bound_ip, inner.remote) = (saved.binding, saved.bound_ip, saved.remote);
        inner.corked = saved.corked.map(|corked| (corked.data, corked.to, corked.control));
        (inner.read_shut, inner.write_shut) = (saved.read_shut, saved.write_shut);
        inner.port_named = saved.port_named;
        if let (Some(binding), Some(table)) = (saved.binding, socket.table()) {
            table.place(binding, saved.remote.map(without_scope), &socket);
        }
        drop(inner);
        let mut queue = socket.queue.lock();
        queue.limit = limit;
        queue.fill(saved.datagrams, saved.errors);
        (queue.error, queue.dropped, queue.too_large) = (saved.error, saved.dropped, saved.too_large);
        drop(queue);
        Ok(socket)
    }
}

impl DatagramState {
    /// Interfaces have other indices in a restored stack.
    pub fn renumber(&mut self, indices: &HashMap<u32, u32>) {
        self.options.renumber(indices);
        let devices = self.binding.iter_mut().map(|binding| &mut binding.device);
        let groups = self.memberships.iter_mut().map(|membership| &mut membership.iface);
        let waiting = self.datagrams.iter_mut().map(|datagram| &mut datagram.iface);
        for index in devices.chain(groups).chain(waiting) {
            *index = indices.get(index).copied().unwrap_or(*index);
        }
    }

    /// Whether a socket can be in this state.
    fn check(&self) -> Option<()> {
        let fits = |data: &Buf| data.len() <= MOST_BYTES;
        let sources: usize = self.memberships.iter().map(|membership| membership.sources.len()).sum();
        let headers = self.datagrams.iter().flat_map(|datagram| &datagram.extensions);
        let extensions = self.corked.iter().flat_map(|corked| &corked.control.extensions);
        let fine = self.options.check()
            && self.memberships.len() <= MOST_GROUPS
            && sources <= MAX_SOURCES.saturating_mul(2)
            && self.memberships.iter().all(|membership| membership.group.is_multicast())
            && self.datagrams.iter().all(|datagram| fits(&datagram.data))
            && headers.into_iter().all(|(_, headers)| fits(headers))
            && self.errors.iter().all(|error| fits(&error.data))
            && self.corked.iter().all(|corked| fits(&corked.data))
            && extensions.into_iter().all(|extensions| extensions.check());
        fine.then_some(())
    }
}
