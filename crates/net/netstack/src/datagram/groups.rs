//! Multicast memberships of sockets (ip(7), ipv6(7)).

use super::DatagramSocket;
use crate::device::iface::Iface;
use crate::network::multicast::MAX_SOURCES;
use crate::network::route::Key;
use abi::Errno;
use ktime::Ktime;
use std::net::IpAddr;
use std::sync::Arc;

/// A group that a socket joined.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Membership {
    pub(super) group: IpAddr,
    pub(super) iface: u32,
    /// Sources that are received, or left out; see [`Membership::hears`].
    pub(super) sources: Vec<IpAddr>,
    pub(super) exclude: bool,
}

impl Membership {
    /// True when datagrams of a source are wanted.
    pub(super) fn hears(&self, source: IpAddr) -> bool {
        self.sources.contains(&source) != self.exclude
    }
}

impl DatagramSocket {
    /// Sources of one membership; see [`Network::max_sources`](crate::network::layer::Network::max_sources).
    pub fn max_sources(&self, group: IpAddr) -> usize {
        self.net.max_sources(group)
    }

    /// Joins a group on an interface, 0 for the one that routes to it (`IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP`).
    pub fn join(&self, now: Ktime, group: IpAddr, iface: u32) -> Result<(), Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let link = self.group_link(now, group, iface)?;
        let mut inner = self.inner.lock();
        if inner.memberships.iter().any(|m| m.group == group && m.iface == link.index) {
            return Err(Errno::EADDRINUSE);
        }
        if inner.memberships.len() >= self.net.sysctls.igmp_max_memberships.size() {
            return Err(Errno::ENOBUFS);
        }
        if link.join(group)? {
            self.net.report(now, &link, group, true);
        }
        inner.memberships.push(Membership { group, iface: link.index, sources: Vec::new(), exclude: true });
        drop(inner);
        self.finish(now);
        Ok(())
    }

    /// Leaves a group (`IP_DROP_MEMBERSHIP`, `IPV6_DROP_MEMBERSHIP`).
    pub fn leave(&self, now: Ktime, group: IpAddr, iface: u32) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let named = |m: &Membership| m.group == group && (iface == 0 || m.iface == iface);
        let place = inner.memberships.iter().position(named).ok_or(Errno::EADDRNOTAVAIL)?;
        let membership = inner.memberships.remove(place);
        drop(inner);
        if let Some(link) = self.net.link(membership.iface)
            && link.leave(group)
        {
            self.net.report(now, &link, group, false);
        }
        self.finish(now);
        Ok(())
    }

    /// Adds or removes a source of a group: `IP_ADD_SOURCE_MEMBERSHIP`, `IP_DROP_SOURCE_MEMBERSHIP` (without `block`),
    /// `IP_BLOCK_SOURCE` and `IP_UNBLOCK_SOURCE` (with it).
    pub fn change_source(
        &self,
        now: Ktime,
        (group, iface): (IpAddr, u32),
        source: IpAddr,
        add: bool,
        block: bool,
    ) -> Result<(), Errno> {
        let index = self.group_link(now, group, iface)?.index;
        let find = |m: &Membership| m.group == group && m.iface == index;
        if add && !block && !self.inner.lock().memberships.iter().any(find) {
            self.join(now, group, index)?;
            if let Some(fresh) = self.inner.lock().memberships.iter_mut().find(|m| find(m)) {
                (fresh.sources, fresh.exclude) = (vec![source], false);
            }
            return Ok(());
        }
        let mut inner = self.inner.lock();
        let all: usize = inner.memberships.iter().map(|m| m.sources.len()).sum();
        let membership = inner.memberships.iter_mut().find(|m| find(m)).ok_or(Errno::EADDRNOTAVAIL)?;
        if membership.exclude != block {
            return Err(Errno::EINVAL);
        }
        let place = membership.sources.iter().position(|known| *known == source);
        match (place, add) {
            (Some(_), true) | (None, false) => return Err(Errno::EADDRNOTAVAIL),
            (Some(place), false) => {
                membership.sources.remove(place);
            }
            (None, true) if membership.sources.len() >= self.net.max_sources(group) || all >= MAX_SOURCES => {
                return Err(Errno::ENOBUFS);
            }
            (None, true) => membership.sources.push(source),
        }
        let empty = membership.sources.is_empty() && !membership.exclude;
        drop(inner);
        if empty { self.leave(now, group, index) } else { Ok(()) }
    }

    /// Sets all sources of a group (`IP_MSFILTER`, `MCAST_MSFILTER`): those that are heard, or with `exclude` those that are not.
    pub fn set_sources(
        &self,
        now: Ktime,
        (group, iface): (IpAddr, u32),
        exclude: bool,
        sources: Vec<IpAddr>,
    ) -> Result<(), Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        if sources.len() > self.net.max_sources(group) {
            return Err(Errno::ENOBUFS);
        }
        let index = self.group_link(now, group, iface)?.index;
        if sources.is_empty() && !exclude {
            return self.leave(now, group, index);
        }
        let mut inner = self.inner.lock();
        let own = |m: &Membership| m.group == group && m.iface == index;
        let others: usize = inner.memberships.iter().filter(|m| !own(m)).map(|m| m.sources.len()).sum();
        let membership = inner.memberships.iter_mut().find(|m| own(m)).ok_or(Errno::EINVAL)?;
        if others + sources.len() > MAX_SOURCES {
            return Err(Errno::ENOBUFS);
        }
        (membership.exclude, membership.sources) = (exclude, sources);
        Ok(())
    }

    /// The sources of a group, and whether they are left out.
    pub fn sources(&self, now: Ktime, group: IpAddr, iface: u32) -> Result<(bool, Vec<IpAddr>), Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let index = if iface == 0 { self.group_link(now, group, iface)?.index } else { iface };
        let inner = self.inner.lock();
        let found = inner.memberships.iter().find(|m| m.group == group && m.iface == index);
        let membership = found.ok_or(Errno::EADDRNOTAVAIL)?;
        Ok((membership.exclude, membership.sources.clone()))
    }

    fn group_link(&self, now: Ktime, group: IpAddr, iface: u32) -> Result<Arc<Iface>, Errno> {
        if iface != 0 {
            return self.net.link(iface).ok_or(Errno::ENODEV);
        }
        self.net.route(&Key::to(group), now).map(|path| path.iface).map_err(|_| Errno::ENODEV)
    }

    /// Gives a membership back when the socket ends.
    pub(super) fn leave_link(&self, membership: &Membership) {
        if let Some(link) = self.net.link(membership.iface) {
            link.leave(membership.group);
        }
    }
}
