//! The life of addresses: duplicate address detection (RFC 4862 section 5.4, RFC 4429), lifetimes, and link-local addresses that an
//! interface gets when it goes up. See ip-address(8).
//!
//! One timer of the stack serves the addresses of all interfaces: it looks at each of them when the earliest is due. Checkpoint: what
//! an address waits for is in [`Address`], as plain data.

use super::layer::Network;
use super::monitor::{How, What};
use crate::addr::{Prefix, is_link_local, solicited_node};
use crate::conf::Which;
use crate::device::iface::{Iface, Kind};
use crate::ifaddr::{Address, Dad, Probes};
use crate::wire::eth::Mac;
use crate::wire::icmp::Neighbour;
use abi::Errno;
use ktime::Ktime;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// The longest time before the first probe (`router_solicitation_delay`).
const MAX_DELAY_MS: u64 = 1000;

/// What the timer found.
#[derive(Default)]
pub(crate) struct Due {
    /// Addresses whose time is over.
    pub(crate) expired: Vec<Prefix>,
    /// Addresses that are deprecated now.
    pub(crate) changed: Vec<Address>,
    /// Addresses that no other host has.
    pub(crate) confirmed: Vec<Address>,
    /// Addresses to ask for.
    pub(crate) probes: Vec<Ipv6Addr>,
    /// When to look again.
    pub(crate) next: Option<Ktime>,
}

impl Network {
    pub(crate) fn due_addresses(&self, link: &Iface, ready: bool, now: Ktime) -> Due {
        let mut due = Due::default();
        let retransmit = Duration::from_millis(self.sysctls.neigh_retrans_ms.size() as u64);
        let delay = || Duration::from_millis(self.keys.random() % MAX_DELAY_MS);
        link.with_addresses(|all| {
            for address in all {
                if address.created == Ktime::ZERO {
                    (address.created, address.updated) = (now, now);
                }
                if address.valid_until.is_some_and(|at| at <= now) {
                    due.expired.push(address.prefix);
                    continue;
                }
                if !address.deprecated && address.preferred_until.is_some_and(|at| at <= now) {
                    address.deprecated = true;
                    due.changed.push(*address);
                }
                if let (Dad::Tentative(probes), IpAddr::V6(ip), true) =
                    (&mut address.dad, address.prefix.addr, ready)
                {
                    let at = *probes.at.get_or_insert_with(|| now.plus(delay()));
                    if at <= now && probes.left == 0 {
                        address.dad = Dad::Done;
                        due.confirmed.push(*address);
                    } else if at <= now {
                        *probes = Probes { at: Some(now.plus(retransmit)), left: probes.left - 1, ..*probes };
                        due.probes.push(ip);
                    }
                }
                // Detection waits for the link without a time.
                if let (Dad::Tentative(probes), false) = (&mut address.dad, ready) {
                    probes.at = None;
                }
                due.next = due.next.into_iter().chain(address.deadline()).min();
            }
        });
        due
    }

    /// Asks whether another host has an address already.
    pub(crate) fn probe_address(&self, now: Ktime, link: &Iface, target: Ipv6Addr) {
        let group = solicited_node(target);
        let message = Neighbour { target, mac: None, flags: 0 }.emit(true, Ipv6Addr::UNSPECIFIED, group);
        self.send_discovery(now, link, Mac::of_group(group.into()), Ipv6Addr::UNSPECIFIED, group, &message);
    }

    /// Another host has an address, or wants it, too: one that is not confirmed here is given up. True when there is such a one.
    pub(crate) fn duplicate_found(&self, link: &Arc<Iface>, target: Ipv6Addr) -> bool {
        let found = link.with_addresses(|all| {
            let own = all.iter_mut().find(|own| own.ip() == IpAddr::V6(target))?;
            if !matches!(own.dad, Dad::Tentative(_)) {
                return None;
            }
            own.dad = Dad::Failed;
            Some(*own)
        });
        let Some(address) = found else { return false };
        self.tell(How::Set, What::Address(link.clone(), address));
        if !address.is_permanent() {
            let _ = self.remove_address(link.index, address.prefix);
        }
        self.changed();
        true
    }

    /// What an address that is added goes through before it is used.
    pub fn detection(&self, link: &Iface, optimistic: bool) -> Dad {
        let about = link.about();
        let asks = [crate::conf::Whose::All, crate::conf::Whose::Link(link.index)];
        let asks = asks.into_iter().any(|whose| self.conf(whose, Which::AcceptDad).unwrap_or(0) > 0);
        let left = self.conf(crate::conf::Whose::Link(link.index), Which::DadTransmits).unwrap_or(0);
        if link.kind != Kind::Ethernet || about.kind == "dummy" || !link.resolves() || !asks || left == 0 {
            return Dad::Done;
        }
        Dad::Tentative(Probes { at: None, left: u8::try_from(left).unwrap_or(u8::MAX), optimistic })
    }

    /// An interface that goes up gets a link-local address of its hardware address, unless it has one (`addr_gen_mode`).
    pub(crate) fn generate_link_local(&self, link: &Arc<Iface>) {
        let mode = link.conf.get(Which::AddrGenMode);
        let has = |a: &Address| matches!(a.ip(), IpAddr::V6(ip) if is_link_local(ip));
        if link.kind != Kind::Ethernet || mode != 0 || link.disables_v6() || link.addresses().iter().any(has)
        {
            return;
        }
        let ip = interface_address([0xfe80, 0, 0, 0], link.mac());
        let address = Address {
            dad: self.detection(link, false),
            protocol: LINK_LOCAL,
            ..Address::new(Prefix::new(ip.into(), 64))
        };
        // Without room for one more there is none.
        let _ = self.insert_address(link, address);
    }

    /// Begins the detection of addresses that wait for it anew: the interface may be ready now.
    pub(crate) fn detect_again(&self, link: &Iface) {
        let waits = link.with_addresses(|all| {
            let mut waits = false;
            for address in all {
                if let Dad::Tentative(probes) = &mut address.dad {
                    (probes.at, waits) = (None, true);
                }
            }
            waits
        });
        if waits {
            self.wake_addresses(Ktime::ZERO);
        }
    }

    /// Changes lifetimes and flags of an address (RTM_NEWADDR with NLM_F_REPLACE): `EADDRNOTAVAIL` when there is none.
    pub fn change_address(
        &self,
        index: u32,
        prefix: Prefix,
        f: impl FnOnce(&mut Address),
    ) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        let (old, address) = link.with_addresses(|all| {
            let own = all.iter_mut().find(|own| own.prefix == prefix).ok_or(Errno::EADDRNOTAVAIL)?;
            let old = *own;
            f(own);
            Ok::<_, Errno>((old, *own))
        })?;
        if old.metric != address.metric {
            self.renew_prefix_route(&link, &old, &address);
        }
        self.watch_address(&address);
        self.tell(How::Set, What::Address(link, address));
        self.changed();
        Ok(())
    }
}

/// `IFAPROT_KERNEL_LL`
const LINK_LOCAL: u8 = 3;

/// The address of an interface below a prefix of 64 bits (RFC 4291 appendix A).
pub(crate) fn interface_address(prefix: [u16; 4], mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    let [p, q, r, s] = prefix;
    Ipv6Addr::new(p, q, r, s, word(a ^ 2, b), word(c, 0xff), word(0xfe, d), word(e, f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::Whose;
    use crate::tests::hosts::{Host, T0, exchange, host};

    fn after(seconds: u64) -> Ktime {
        T0.plus(Duration::from_secs(seconds))
    }

    fn tentative(host: &Host, ip: &str) -> Address {
        let prefix = Prefix::new(ip.parse().unwrap(), 64);
        let address = Address { dad: host.stack.detection(&host.eth, false), ..Address::new(prefix) };
        assert!(!address.is_usable());
        host.stack.add_address(host.eth.index, address).unwrap();
        address
    }

    fn state(host: &Host, ip: &str) -> Option<Dad> {
        let ip: IpAddr = ip.parse().unwrap();
        host.eth.addresses().iter().find(|a| a.ip() == ip).map(|a| a.dad)
    }

    #[test]
    fn an_address_is_used_when_nobody_has_it() {
        let (a, b) = (host(1), host(2));
        tentative(&a, "2001:db8::77");
        assert!(!a.stack.is_local("2001:db8::77".parse().unwrap()));
        assert!(a.stack.next_deadline().is_some());
        for second in 0..4 {
            a.stack.run_timers(after(second));
            exchange(after(second), &a, &b);
        }
        assert_eq!(state(&a, "2001:db8::77"), Some(Dad::Done));
        assert!(a.stack.is_local("2001:db8::77".parse().unwrap()));
    }

    #[test]
    fn an_address_of_another_host_is_not_used() {
        let (a, b) = (host(1), host(2));
        tentative(&a, "2001:db8::2");
        for second in 0..4 {
            a.stack.run_timers(after(second));
            exchange(after(second), &a, &b);
        }
        assert_eq!(state(&a, "2001:db8::2"), Some(Dad::Failed));
        assert!(!a.stack.is_local("2001:db8::2".parse().unwrap()));
        // Two that ask at the same time both give up.
        let (a, b) = (host(1), host(2));
        tentative(&a, "2001:db8::77");
        tentative(&b, "2001:db8::77");
        for second in 0..4 {
            a.stack.run_timers(after(second));
            b.stack.run_timers(after(second));
            exchange(after(second), &a, &b);
        }
        assert!([&a, &b].iter().any(|host| state(host, "2001:db8::77") == Some(Dad::Failed)));
    }

    #[test]
    fn addresses_end_with_their_lifetimes() {
        let a = host(1);
        let ip: IpAddr = "2001:db8::88".parse().unwrap();
        let times = (Some(after(10)), Some(after(20)));
        for prefix in [Prefix::new(ip, 64), Prefix::new("10.0.0.88".parse().unwrap(), 24)] {
            let address = Address { preferred_until: times.0, valid_until: times.1, ..Address::new(prefix) };
            a.stack.add_address(a.eth.index, address).unwrap();
        }
        let far: IpAddr = "2001:db8::89".parse().unwrap();
        assert_eq!(a.eth.source_for(far, far), Some(ip));
        a.stack.run_timers(after(9));
        assert_eq!(a.stack.next_deadline(), Some(after(10)));
        a.stack.run_timers(after(10));
        // Another one is chosen, but this one still works.
        assert_eq!(a.eth.source_for(far, far), Some("2001:db8::1".parse().unwrap()));
        assert!(a.stack.is_local(ip));
        a.stack.run_timers(after(20));
        assert!(!a.stack.is_local(ip) && !a.stack.is_local("10.0.0.88".parse().unwrap()));
        assert_eq!(a.stack.next_deadline(), None);
    }

    #[test]
    fn interfaces_get_link_local_addresses() {
        let a = host(9);
        a.stack.remove_address(a.eth.index, Prefix::new("fe80::9".parse().unwrap(), 64)).unwrap();
        a.stack.set_conf(Whose::Link(a.eth.index), Which::AddrGenMode, 0).unwrap();
        a.stack.set_up(a.eth.index, false).unwrap();
        a.stack.set_up(a.eth.index, true).unwrap();
        let own = "fe80::ff:fe00:9";
        assert!(matches!(state(&a, own), Some(Dad::Tentative(_))));
        for second in 0..4 {
            a.stack.run_timers(after(second));
        }
        assert_eq!(state(&a, own), Some(Dad::Done));
    }
}
