//! Multicast memberships of sockets (ip(7), ipv6(7)), and the reports that tell routers of them: IGMPv2 (RFC 2236) and MLDv1
//! (RFC 2710).

use super::DatagramSocket;
use crate::checksum::Sum;
use crate::frame::Offload;
use crate::iface::Iface;
use crate::iface::LOOPBACK;
use crate::path::{Cast, Header, Path};
use crate::route::Key;
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::icmp::Icmp;
use crate::wire::proto;
use abi::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A group that a socket joined.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// Sources of all memberships of a socket.
const MAX_OF_SOCKET: usize = 1024;

impl Stack {
    /// Sources of one membership (`igmp_max_msf`, `mld_max_msf`).
    pub fn max_sources(&self, group: IpAddr) -> usize {
        if group.is_ipv4() { self.sysctls.igmp_max_msf.size().min(MAX_OF_SOCKET) } else { 64 }
    }
}

impl DatagramSocket {
    /// Sources of one membership; see [`Stack::max_sources`].
    pub fn max_sources(&self, group: IpAddr) -> usize {
        self.stack.max_sources(group)
    }

    /// Joins a group on an interface, 0 for the one that routes to it (`IP_ADD_MEMBERSHIP`, `IPV6_ADD_MEMBERSHIP`).
    pub fn join(&self, now: Instant, group: IpAddr, iface: u32) -> Result<(), Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let link = self.group_link(now, group, iface)?;
        let mut inner = self.inner.lock();
        if inner.memberships.iter().any(|m| m.group == group && m.iface == link.index) {
            return Err(Errno::EADDRINUSE);
        }
        if inner.memberships.len() >= self.stack.sysctls.igmp_max_memberships.size() {
            return Err(Errno::ENOBUFS);
        }
        if link.join(group)? {
            self.stack.report(now, &link, group, true);
        }
        inner.memberships.push(Membership { group, iface: link.index, sources: Vec::new(), exclude: true });
        drop(inner);
        self.stack.finish(now);
        Ok(())
    }

    /// Leaves a group (`IP_DROP_MEMBERSHIP`, `IPV6_DROP_MEMBERSHIP`).
    pub fn leave(&self, now: Instant, group: IpAddr, iface: u32) -> Result<(), Errno> {
        let mut inner = self.inner.lock();
        let named = |m: &Membership| m.group == group && (iface == 0 || m.iface == iface);
        let place = inner.memberships.iter().position(named).ok_or(Errno::EADDRNOTAVAIL)?;
        let membership = inner.memberships.remove(place);
        drop(inner);
        if let Some(link) = self.stack.link(membership.iface)
            && link.leave(group)
        {
            self.stack.report(now, &link, group, false);
        }
        self.stack.finish(now);
        Ok(())
    }

    /// Adds or removes a source of a group: `IP_ADD_SOURCE_MEMBERSHIP`, `IP_DROP_SOURCE_MEMBERSHIP` (without `block`),
    /// `IP_BLOCK_SOURCE` and `IP_UNBLOCK_SOURCE` (with it).
    pub fn change_source(
        &self,
        now: Instant,
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
            (None, true)
                if membership.sources.len() >= self.stack.max_sources(group) || all >= MAX_OF_SOCKET =>
            {
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
        now: Instant,
        (group, iface): (IpAddr, u32),
        exclude: bool,
        sources: Vec<IpAddr>,
    ) -> Result<(), Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        if sources.len() > self.stack.max_sources(group) {
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
        if others + sources.len() > MAX_OF_SOCKET {
            return Err(Errno::ENOBUFS);
        }
        (membership.exclude, membership.sources) = (exclude, sources);
        Ok(())
    }

    /// The sources of a group, and whether they are left out.
    pub fn sources(&self, now: Instant, group: IpAddr, iface: u32) -> Result<(bool, Vec<IpAddr>), Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        let index = if iface == 0 { self.group_link(now, group, iface)?.index } else { iface };
        let inner = self.inner.lock();
        let found = inner.memberships.iter().find(|m| m.group == group && m.iface == index);
        let membership = found.ok_or(Errno::EADDRNOTAVAIL)?;
        Ok((membership.exclude, membership.sources.clone()))
    }

    fn group_link(&self, now: Instant, group: IpAddr, iface: u32) -> Result<Arc<Iface>, Errno> {
        if iface != 0 {
            return self.stack.link(iface).ok_or(Errno::ENODEV);
        }
        self.stack.route(&Key::to(group), now).map(|path| path.iface).map_err(|_| Errno::ENODEV)
    }

    /// Gives a membership back when the socket ends.
    pub(super) fn leave_link(&self, membership: &Membership) {
        if let Some(link) = self.stack.link(membership.iface) {
            link.leave(membership.group);
        }
    }
}

impl Stack {
    /// A router asks for groups (RFC 2236 section 3, RFC 2710 section 4): each is reported at once.
    pub(crate) fn answer_query(
        self: &Arc<Self>,
        now: Instant,
        link: &Arc<Iface>,
        v6: bool,
        asked: Option<IpAddr>,
    ) {
        let groups = link.groups().into_iter().map(|group| group.ip).filter(|ip| ip.is_ipv6() == v6);
        for group in groups.filter(|ip| asked.is_none_or(|asked| asked == *ip)) {
            self.report(now, link, group, true);
        }
    }

    /// IGMP messages: only queries matter to a host.
    pub(crate) fn igmp_input(self: &Arc<Self>, packet: &crate::received::Packet<'_>) {
        let Some(&[0x11, _, _, _, a, b, c, d]) = packet.payload().first_chunk() else { return };
        let group = Ipv4Addr::new(a, b, c, d);
        let asked = (!group.is_unspecified()).then_some(IpAddr::V4(group));
        if Sum::new().with(packet.payload()).is_valid() {
            self.answer_query(packet.now, packet.iface, false, asked);
        }
    }

    /// Tells routers of a group that was joined or left.
    fn report(self: &Arc<Self>, now: Instant, link: &Arc<Iface>, group: IpAddr, joined: bool) {
        if link.index == LOOPBACK || !link.is_up() {
            return;
        }
        let Some(src) = link.source_for(group, group) else { return };
        let (dst, protocol, message): (IpAddr, u8, Vec<u8>) = match (group, src) {
            (IpAddr::V4(v4), _) => {
                let dst = if joined { v4 } else { Ipv4Addr::new(224, 0, 0, 2) };
                (dst.into(), proto::IGMP, igmp(if joined { 0x16 } else { 0x17 }, v4))
            }
            (IpAddr::V6(v6), IpAddr::V6(src)) => {
                let dst = if joined { v6 } else { Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2) };
                let icmp = Icmp::new(if joined { 131 } else { 132 }, 0, [0; 4])
                    .sealed(Some((src, dst)), &v6.octets());
                (dst.into(), proto::ICMPV6, [icmp.as_bytes(), &v6.octets()].concat())
            }
            _ => return,
        };
        let path = Path {
            iface: link.clone(),
            src,
            dst,
            next_hop: dst,
            cast: Cast::Multicast,
            mtu: link.mtu(),
            generation: self.generation(),
        };
        let header = Header { protocol, ttl: Some(1), ..Header::default() };
        let _ = self.send_ip(now, &path, &header, self.pool.copy(&message), Offload::default());
    }
}

fn igmp(kind: u8, group: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(group.octets());
    let sum = Sum::new().with(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}
