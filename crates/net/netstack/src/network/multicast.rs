//! Multicast groups of interfaces, and the reports that tell routers of them: IGMPv2 (RFC 2236) and MLDv1 (RFC 2710).

use super::layer::Network;
use super::path::{Cast, Header, Path};
use crate::checksum::Sum;
use crate::device::iface::{Iface, LOOPBACK};
use crate::frame::Offload;
use crate::wire::icmp::Icmp;
use crate::wire::proto;
use ktime::Ktime;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Sources of all memberships of a socket.
pub(crate) const MAX_SOURCES: usize = 1024;

impl Network {
    /// Sources of one membership (`igmp_max_msf`, `mld_max_msf`).
    pub fn max_sources(&self, group: IpAddr) -> usize {
        if group.is_ipv4() { self.sysctls.igmp_max_msf.size().min(MAX_SOURCES) } else { 64 }
    }

    /// A router asks for groups (RFC 2236 section 3, RFC 2710 section 4): each is reported at once.
    pub(crate) fn answer_query(&self, now: Ktime, link: &Arc<Iface>, v6: bool, asked: Option<IpAddr>) {
        let groups = link.groups().into_iter().map(|group| group.ip).filter(|ip| ip.is_ipv6() == v6);
        for group in groups.filter(|ip| asked.is_none_or(|asked| asked == *ip)) {
            self.report(now, link, group, true);
        }
    }

    /// Tells routers of a group that was joined or left.
    pub(crate) fn report(&self, now: Ktime, link: &Arc<Iface>, group: IpAddr, joined: bool) {
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
        if group.is_ipv6() {
            self.counters.icmp_sent(true, message.first().copied().unwrap_or(0));
        }
        let header = Header { protocol, ttl: Some(1), ..Header::default() };
        let _ = self.send_ip(now, &path, &header, self.links.pool.copy(&message), Offload::default());
    }
}

fn igmp(kind: u8, group: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(group.octets());
    let sum = Sum::new().with(&message).finish();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}
