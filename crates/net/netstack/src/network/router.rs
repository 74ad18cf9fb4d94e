//! Router advertisements (RFC 4861 section 6.3, RFC 4862 section 5.5): default routers with a lifetime, prefixes on the link, addresses
//! below them, the link's MTU. `accept_ra` and `autoconf` of /proc/sys/net/ipv6/conf decide.
//!
//! Routers of a link may be hostile to this host: what they bring is bounded for each interface. Checkpoint: the times of
//! solicitations are plain data.

use super::layer::Network;
use super::life::interface_address;
use super::neigh::Learnt;
use super::received::Packet;
use super::route::Route;
use crate::addr::{Prefix, is_link_local};
use crate::conf::Which;
use crate::device::iface::{Iface, Kind};
use crate::ifaddr::{Address, Dad};
use crate::wire::eth::Mac;
use crate::wire::icmp::{Icmp, ROUTER_SOLICIT};
use ktime::Ktime;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// `IFAPROT_KERNEL_RA`: the source of an address from a router's prefix.
pub const BY_ROUTER: u8 = 2;
/// `RTPROT_RA` and `RTPROT_KERNEL`.
const RA: u8 = 9;
const KERNEL: u8 = 2;
/// Metrics of default routes and of routes to prefixes.
const DEFAULT_METRIC: u32 = 1024;
const PREFIX_METRIC: u32 = 256;
/// Addresses that routers bring an interface (`max_addresses`), default routers, and prefixes on the link.
const MAX_ADDRESSES: usize = 16;
const MAX_ROUTERS: usize = 8;
const MAX_PREFIXES: usize = 32;
/// A remaining lifetime of two hours is not shortened (RFC 4862 section 5.5.3).
const TWO_HOURS: Duration = Duration::from_secs(7200);
/// `router_solicitation_interval` and `router_solicitation_max_interval`.
const FIRST_INTERVAL: Duration = Duration::from_secs(4);
const LAST_INTERVAL: Duration = Duration::from_secs(3600);

/// A prefix as a router describes it.
struct PrefixInfo {
    prefix: Prefix,
    on_link: bool,
    autonomous: bool,
    valid: u32,
    preferred: u32,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

impl PrefixInfo {
    /// Reads the option; `None` for one that says nothing.
    fn parse(option: &[u8]) -> Option<PrefixInfo> {
        let (len, flags) = (*option.get(2)?, *option.get(3)?);
        let network = Ipv6Addr::from(*option.get(16..)?.first_chunk::<16>()?);
        let info = PrefixInfo {
            prefix: Prefix { addr: Prefix::new(network.into(), len).network(), len },
            on_link: flags & 0x80 != 0,
            autonomous: flags & 0x40 != 0,
            valid: word(option, 4)?,
            preferred: word(option, 8)?,
        };
        let useless =
            len > 128 || network.is_multicast() || is_link_local(network) || info.preferred > info.valid;
        (!useless).then_some(info)
    }
}

/// The moment that a lifetime in seconds ends; none for all ones.
fn until(now: Ktime, seconds: u32) -> Option<Ktime> {
    (seconds != u32::MAX).then(|| now.plus(Duration::from_secs(seconds.into())))
}

impl Network {
    /// Whether routers of an interface are listened to.
    fn hears_routers(&self, link: &Iface) -> bool {
        let accept = link.conf.get(Which::AcceptRa);
        link.kind == Kind::Ethernet && (accept == 2 || accept == 1 && !self.sysctls.ip6_forward.on())
    }

    /// A router tells of itself.
    pub(crate) fn router_input(&self, packet: &Packet, header: &Icmp) {
        let (now, link) = (packet.now, &packet.iface);
        let IpAddr::V6(router) = packet.info.src else { return };
        if packet.info.ttl != 255 || header.code != 0 || !is_link_local(router) || !self.hears_routers(link) {
            return;
        }
        let Some(mut rest) = packet.payload().get(Icmp::LEN + 8..) else { return };
        let mut options = Vec::new();
        while let (Some(&kind), Some(&units)) = (rest.first(), rest.get(1)) {
            // An option without a length makes all of it invalid.
            let Some((option, after)) = rest.split_at_checked(usize::from(units) * 8).filter(|_| units > 0)
            else {
                return;
            };
            options.push((kind, option));
            rest = after;
        }
        link.with_solicit(|solicit| solicit.next = None);
        let lifetime = u16::from_be_bytes([header.rest[2], header.rest[3]]);
        self.default_router(now, link, router, lifetime);
        for (kind, option) in options {
            match kind {
                1 => {
                    if let Some(mac) = option.get(2..8).and_then(|mac| mac.try_into().ok()).map(Mac) {
                        let how = Learnt { solicited: false, replace: true, create: true };
                        self.learn(now, link, router.into(), mac, how);
                    }
                }
                3 => {
                    if let Some(info) = PrefixInfo::parse(option) {
                        self.prefix_on_link(now, link, &info);
                        self.address_below(now, link, &info);
                    }
                }
                5 => {
                    if let Some(mtu) = word(option, 4).filter(|mtu| (1280..=link.mtu()).contains(mtu)) {
                        link.set_mtu6(mtu);
                        self.changed();
                    }
                }
                _ => {}
            }
        }
    }

    /// A router is a way to everywhere for a while, or no longer.
    fn default_router(&self, now: Ktime, link: &Iface, router: Ipv6Addr, lifetime: u16) {
        let all = Prefix::all(Ipv6Addr::UNSPECIFIED.into());
        let fresh = Route {
            metric: DEFAULT_METRIC,
            protocol: RA,
            expires: until(now, lifetime.into()),
            ..Route::new(all, link.index, Some(router.into()))
        };
        let own = |old: &Route| old.protocol == RA && old.dst == all && old.iface == link.index;
        let same = |old: &Route| own(old) && old.gateway == fresh.gateway;
        self.with_routes(|routes| {
            if lifetime == 0 {
                let _ = routes.remove(same);
            } else if !routes.prolong(same, fresh.expires)
                && routes.routes().iter().filter(|old| own(old)).count() < MAX_ROUTERS
            {
                let _ = routes.add(fresh.clone());
            }
        });
        self.watch_route(fresh.expires.filter(|_| lifetime > 0));
    }

    /// A prefix is on the link for a while, or no longer.
    fn prefix_on_link(&self, now: Ktime, link: &Iface, info: &PrefixInfo) {
        if !info.on_link {
            return;
        }
        let expires = until(now, info.valid);
        let fresh = Route {
            metric: PREFIX_METRIC,
            protocol: KERNEL,
            expires,
            by_router: true,
            ..Route::new(info.prefix, link.index, None)
        };
        let own = |old: &Route| old.by_router && old.iface == link.index;
        let same = |old: &Route| own(old) && old.dst == info.prefix;
        self.with_routes(|routes| {
            if info.valid == 0 {
                let _ = routes.remove(same);
            } else if !routes.prolong(same, expires)
                && routes.routes().iter().filter(|old| own(old)).count() < MAX_PREFIXES
            {
                // An address of the interface may have brought the route already.
                let _ = routes.add(fresh.clone());
            }
        });
        self.watch_route(expires.filter(|_| info.valid > 0));
    }

    /// An address below a prefix, made of the hardware address.
    fn address_below(&self, now: Ktime, link: &Arc<Iface>, info: &PrefixInfo) {
        let (IpAddr::V6(network), 64) = (info.prefix.addr, info.prefix.len) else { return };
        if !info.autonomous || link.conf.get(Which::Autoconf) == 0 {
            return;
        }
        let [a, b, c, d, ..] = network.segments();
        let prefix = Prefix::new(interface_address([a, b, c, d], link.mac()).into(), 64);
        let (valid_until, preferred_until) = (until(now, info.valid), until(now, info.preferred));
        let all = link.addresses();
        let deprecated = info.preferred == 0;
        let Some(old) = all.iter().find(|old| old.prefix == prefix) else {
            if info.valid > 0 && all.iter().filter(|old| old.protocol == BY_ROUTER).count() < MAX_ADDRESSES {
                let address = Address {
                    valid_until,
                    preferred_until,
                    deprecated,
                    created: now,
                    updated: now,
                    dad: self.detection(link, false),
                    // The prefix says itself whether it is on the link.
                    no_prefix_route: true,
                    protocol: BY_ROUTER,
                    ..Address::new(prefix)
                };
                // Without room for one more there is none.
                let _ = self.add_address(link.index, address);
            }
            return;
        };
        if old.protocol != BY_ROUTER {
            return;
        }
        let left = old.valid_until.map_or(Duration::MAX, |at| at.since(now));
        let offered = Duration::from_secs(info.valid.into());
        let valid_until = match offered > TWO_HOURS || offered > left {
            true => valid_until,
            false if left <= TWO_HOURS => old.valid_until,
            false => Some(now.plus(TWO_HOURS)),
        };
        let _ = self.change_address(link.index, prefix, |own| {
            (own.valid_until, own.preferred_until) = (valid_until, preferred_until);
            (own.deprecated, own.updated) = (deprecated, now);
        });
    }

    /// A route ends by itself: the timer has to know.
    pub fn watch_route(&self, expires: Option<Ktime>) {
        let Some(at) = expires else { return };
        let mut next = self.next_route.lock();
        *next = Some(next.map_or(at, |next| next.min(at)));
        drop(next);
        self.wake_addresses(at);
    }

    /// Removes expired routes.
    pub(crate) fn expire_routes(&self, now: Ktime) {
        let mut next = self.next_route.lock();
        match *next {
            Some(at) if at <= now => *next = None,
            Some(at) => return self.wake_addresses(at),
            None => return,
        }
        drop(next);
        let earliest = self.with_routes(|routes| {
            routes.purge(|route| route.expires.is_some_and(|at| at <= now));
            routes.routes().iter().filter_map(|route| route.expires).min()
        });
        self.watch_route(earliest);
    }

    /// Asks for routers when it is time to: after the interface has a link-local address, until one tells of itself.
    pub(crate) fn solicit_routers(&self, now: Ktime, link: &Iface, begin: bool) {
        if !link.is_up() || !self.hears_routers(link) {
            return link.with_solicit(|solicit| solicit.next = None);
        }
        let asks = link.with_solicit(|solicit| {
            if begin {
                solicit.next = Some((now, FIRST_INTERVAL));
            }
            let (at, wait) = solicit.next?;
            let asks = at <= now;
            let next = if asks { (now.plus(wait), (wait * 2).min(LAST_INTERVAL)) } else { (at, wait) };
            solicit.next = Some(next);
            Some((asks, next.0))
        });
        let Some((asks, next)) = asks else { return };
        self.wake_addresses(next);
        let usable = |a: &Address| a.dad == Dad::Done;
        let own = link.addresses().into_iter().filter(usable).find_map(|address| match address.ip() {
            IpAddr::V6(ip) if is_link_local(ip) => Some(ip),
            _ => None,
        });
        let Some(src) = own.filter(|_| asks) else { return };
        let routers = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
        let mut option = vec![1, 1];
        option.extend(link.mac().0);
        let icmp = Icmp::new(ROUTER_SOLICIT, 0, [0; 4]).sealed(Some((src, routers)), &option);
        let message = [icmp.as_bytes(), &option].concat();
        self.send_discovery(now, link, Mac::of_group(routers.into()), src, routers, &message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::Whose;
    use crate::frame::Frame;
    use crate::tests::hosts::{Host, T0, host};
    use crate::wire::eth::{self, Ethernet};
    use crate::wire::ipv6::Ipv6;
    use crate::wire::proto;
    use zerocopy::network_endian::U16;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x99);
    const ALL: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

    fn after(seconds: u64) -> Ktime {
        T0.plus(Duration::from_secs(seconds))
    }

    fn prefix(network: &str, flags: u8, valid: u32, preferred: u32) -> Vec<u8> {
        let mut option = vec![3, 4, 64, flags];
        option.extend([valid.to_be_bytes(), preferred.to_be_bytes(), [0; 4]].concat());
        option.extend(network.parse::<Ipv6Addr>().unwrap().octets());
        option
    }

    fn advertise(host: &Host, now: Ktime, lifetime: u16, options: &[Vec<u8>], hops: u8) {
        let [high, low] = lifetime.to_be_bytes();
        let body = [vec![0; 8], options.concat()].concat();
        let icmp = Icmp::new(crate::wire::icmp::ROUTER_ADVERT, 0, [64, 0, high, low]);
        let icmp = icmp.sealed(Some((ROUTER, ALL)), &body);
        let mut ip = Ipv6::new(ROUTER, ALL, proto::ICMPV6, 8 + body.len());
        ip.hop_limit = hops;
        let (dst, src) = (Mac::of_group(ALL.into()), Mac([2, 0, 0, 0, 0, 0x99]));
        let header = Ethernet { dst, src, kind: U16::new(eth::IPV6) };
        let bytes = [header.as_bytes(), ip.as_bytes(), icmp.as_bytes(), &body].concat();
        host.receive(now, &Frame::new(host.stack.pool().copy(&bytes)));
    }

    fn default_route(host: &Host) -> Option<IpAddr> {
        let path = host.stack.route(&crate::route::Key::to("2001:4860::1".parse().unwrap()), T0).ok()?;
        (path.next_hop != path.dst).then_some(path.next_hop)
    }

    fn listener() -> Host {
        let a = host(1);
        a.stack.set_conf(Whose::Link(a.eth.index), Which::AcceptRa, 1).unwrap();
        a
    }

    #[test]
    fn routers_bring_routes_and_addresses() {
        let a = listener();
        let mtu = vec![5, 1, 0, 0, 0, 0, 5, 0xdc - 0x64];
        let options = [prefix("2001:db8:77::", 0xc0, 100, 50), mtu];
        advertise(&a, T0, 30, &options, 64);
        assert_eq!(default_route(&a), None, "it came from beyond the link");
        advertise(&a, T0, 30, &options, 255);
        assert_eq!(default_route(&a), Some(ROUTER.into()));
        let own: IpAddr = "2001:db8:77::ff:fe00:1".parse().unwrap();
        let found = || a.eth.addresses().into_iter().find(|address| address.ip() == own);
        assert!(matches!(found().unwrap().dad, Dad::Tentative(_)));
        for second in 0..4 {
            a.stack.run_timers(after(second));
        }
        assert!(a.stack.is_local(own));
        let near: IpAddr = "2001:db8:77::5".parse().unwrap();
        let path = a.stack.route(&crate::route::Key::to(near), after(4)).unwrap();
        assert_eq!((path.next_hop, path.src, path.mtu), (near, own, 1400));
        // All of it ends.
        a.stack.run_timers(after(29));
        assert!(default_route(&a).is_some());
        a.stack.run_timers(after(30));
        assert_eq!(default_route(&a), None);
        a.stack.run_timers(after(50));
        assert!(found().unwrap().deprecated);
        a.stack.run_timers(after(100));
        assert!(found().is_none() && a.stack.route(&crate::route::Key::to(near), after(100)).is_err());
    }

    #[test]
    fn a_router_cannot_shorten_lifetimes_much() {
        let a = listener();
        let own: IpAddr = "2001:db8:77::ff:fe00:1".parse().unwrap();
        let until = || a.eth.addresses().into_iter().find(|address| address.ip() == own).unwrap().valid_until;
        advertise(&a, T0, 30, &[prefix("2001:db8:77::", 0x40, 100_000, 50_000)], 255);
        assert_eq!(until(), Some(after(100_000)));
        advertise(&a, T0, 30, &[prefix("2001:db8:77::", 0x40, 10, 5)], 255);
        assert_eq!(until(), Some(after(7200)));
        advertise(&a, after(100), 30, &[prefix("2001:db8:77::", 0x40, 10, 5)], 255);
        assert_eq!(until(), Some(after(7200)));
        advertise(&a, after(100), 0, &[prefix("2001:db8:77::", 0x40, u32::MAX, u32::MAX)], 255);
        assert_eq!((until(), default_route(&a)), (None, None));
    }

    #[test]
    fn what_routers_bring_is_bounded() {
        let a = listener();
        for n in 0..200u16 {
            let options = [prefix(&format!("2001:db8:{n:x}::"), 0xc0, 1000, 1000)];
            advertise(&a, T0, 30, &options, 255);
        }
        let addresses = a.eth.addresses().iter().filter(|address| address.protocol == BY_ROUTER).count();
        let routes =
            a.stack.read_routes(|routes| routes.routes().iter().filter(|route| route.by_router).count());
        assert_eq!((addresses, routes), (MAX_ADDRESSES, MAX_PREFIXES));
    }

    #[test]
    fn any_bytes_are_options_of_a_router() {
        let (a, mut random) = (listener(), crate::testing::Random::new(3));
        for n in 0..5_000 {
            let mut options = Vec::new();
            for _ in 0..random.below(4) {
                let len = random.below(40) as usize;
                let mut option: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
                if let [kind, units, ..] = &mut option[..] {
                    (*kind, *units) = (random.below(7) as u8, random.below(6) as u8);
                }
                options.push(option);
            }
            let now = T0.plus(Duration::from_millis(n * 10));
            advertise(&a, now, random.below(70) as u16, &options, 255);
            a.stack.run_timers(now);
        }
        let all = a.eth.addresses().len();
        assert!(all <= 3 + MAX_ADDRESSES, "{all} addresses");
    }

    #[test]
    fn hosts_ask_for_routers_and_routers_do_not_listen() {
        let a = listener();
        a.stack.set_up(a.eth.index, false).unwrap();
        a.stack.set_conf(Whose::Link(a.eth.index), Which::AddrGenMode, 0).unwrap();
        a.stack.set_up(a.eth.index, true).unwrap();
        let mut asked = Vec::new();
        for second in 0..20 {
            a.stack.run_timers(after(second));
            let sent = a.sent();
            let asks = |frame: &&Frame| frame.buf.get(54) == Some(&ROUTER_SOLICIT);
            asked.extend(sent.iter().filter(asks).map(|_| second));
        }
        assert!((2..=4).contains(&asked.len()), "{asked:?}");
        a.stack.sysctls.ip6_forward.set(1).unwrap();
        advertise(&a, after(20), 30, &[], 255);
        assert_eq!(default_route(&a), None);
        a.stack.set_conf(Whose::Link(a.eth.index), Which::AcceptRa, 2).unwrap();
        advertise(&a, after(20), 30, &[], 255);
        assert!(default_route(&a).is_some());
    }
}
