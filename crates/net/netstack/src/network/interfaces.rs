//! Changes of interfaces that have effects on addresses, routes and neighbours: making and removing, up and down, moves from one stack
//! to another, and IPv6 on and off. Each is told to the monitor.
//!
//! No lock of one stack is held while another's is taken. The caller lets one change of interfaces happen at a time (the kernel's
//! `rtnl`); packets go on meanwhile, and those under way to an interface that moves are lost.

use super::change::How;
use super::layer::Network;
use super::monitor::What;
use super::route::{Route, TABLE_LOCAL};
use crate::addr::{Prefix, Scope};
use crate::conf::{Which, Whose};
use crate::device::bridge::{BridgeSettings, PortSettings};
use crate::device::driver::{Device, Driver, Features};
use crate::device::iface::{Config, Iface, Kind, LOOPBACK};
use crate::device::links::{moved, partner, removed, vlans_above};
use crate::ifaddr::Address;
use abi::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

impl Network {
    /// An interface has a name that it did not have.
    fn named(&self, link: &Arc<Iface>) {
        self.tables.routes.write().attach_rules(&link.name(), link.index);
        self.tell_link(link);
    }

    fn tell_link(&self, link: &Arc<Iface>) {
        self.tell(How::Set, What::Link(link.clone()));
    }

    /// The carrier of the other end of a veth pair has changed with this end.
    fn tell_partner(&self, link: &Iface) {
        let peer = partner(link).filter(|peer| peer.is_up());
        if let Some((peer, upper)) = peer.and_then(|peer| Some((peer.clone(), peer.inbox.upper()?))) {
            upper.carrier_changed(&peer);
        }
    }

    /// The other end of a veth pair was set up or down.
    pub(crate) fn carrier_changed(&self, link: &Arc<Iface>) {
        self.tell_link(link);
        self.detect_again(link);
    }

    /// Adds an interface that is down.
    pub fn add_link(&self, config: Config, device: Arc<dyn Device>) -> Result<Arc<Iface>, Errno> {
        self.announced(self.links.add(config, Driver::Device(device)))
    }

    /// The same with an index that is not in use.
    pub fn add_link_at(
        &self,
        index: u32,
        config: Config,
        device: Arc<dyn Device>,
    ) -> Result<Arc<Iface>, Errno> {
        self.announced(self.links.add_at(index, config, device))
    }

    /// Makes an interface that loses what is sent by it.
    pub fn add_dummy(&self, config: Config) -> Result<Arc<Iface>, Errno> {
        self.announced(self.links.add(Config { kind: Kind::Ethernet, ..config }, Driver::Dummy))
    }

    /// Makes a bridge without ports. It is an interface that is down.
    pub fn add_bridge(&self, config: Config) -> Result<Arc<Iface>, Errno> {
        self.announced(self.links.add_bridge(config))
    }

    /// Makes an interface for one VLAN of an interface, which may be another stack's. `EEXIST` when there is one, `EMLINK`
    /// when too many interfaces stand upon each other.
    pub fn add_vlan(&self, config: Config, lower: &Arc<Iface>, id: u16) -> Result<Arc<Iface>, Errno> {
        self.announced(self.links.add_vlan(config, lower, id))
    }

    fn announced(&self, link: Result<Arc<Iface>, Errno>) -> Result<Arc<Iface>, Errno> {
        link.inspect(|link| self.named(link))
    }

    /// Makes a pair of interfaces that are down: one in this stack, one in `other`, which may be the same.
    pub fn add_veth(
        &self,
        own: Config,
        other: (&Network, Config),
    ) -> Result<(Arc<Iface>, Arc<Iface>), Errno> {
        let (own, peer) = self.links.add_pair(own, (&other.0.links, other.1))?;
        other.0.named(&peer);
        self.named(&own);
        Ok((own, peer))
    }

    /// Whether an interface is a bridge.
    pub fn is_bridge(&self, index: u32) -> bool {
        self.links.is_bridge(index)
    }

    /// Changes the settings of a bridge.
    pub fn set_bridge(&self, index: u32, settings: BridgeSettings) -> Result<(), Errno> {
        self.links.set_bridge(index, settings)
    }

    /// Changes the settings of a port of a bridge. `EOPNOTSUPP` for an interface that is none.
    pub fn set_port(&self, index: u32, change: impl FnOnce(&mut PortSettings)) -> Result<(), Errno> {
        self.links.set_port(index, change)?;
        self.configure_link(index, |_| {})
    }

    /// Makes an interface a port of a bridge, or takes it out. `ELOOP` for a bridge, `EBUSY` for an interface that the bridge's frames
    /// leave by already or that stands upon the bridge, `EMLINK` when too many interfaces stand upon each other.
    pub fn set_master(&self, port: u32, bridge: Option<u32>) -> Result<(), Errno> {
        let (changed, result) = self.links.set_master(port, bridge);
        if changed {
            self.configure_link(port, |_| {})?;
        }
        result
    }

    /// Removes an interface with its addresses, routes and neighbours. The other end of a veth pair goes with it, and the ports of
    /// a bridge are free.
    pub fn remove_link(&self, index: u32) -> Result<(), Errno> {
        if index == LOOPBACK {
            return Err(Errno::EOPNOTSUPP);
        }
        // An interface goes after those above it and before the other end of its pair.
        let mut left = vec![(self.link(index).ok_or(Errno::ENODEV)?, false)];
        while let Some((link, is_free)) = left.pop() {
            if !is_free {
                let above = vlans_above(&link);
                left.push((link, true));
                left.extend(above.into_iter().map(|vlan| (vlan, false)));
                continue;
            }
            // Another request may have removed it already.
            let gone = match Arc::ptr_eq(&link.inbox, &self.links.inbox) {
                true => self.take_out(link.index, How::Gone).unwrap_or_default(),
                false => link.inbox.upper().and_then(|upper| upper.remove(link.index)),
            };
            let Some(link) = gone else { continue };
            removed(&link);
            left.extend(partner(&link).map(|peer| (peer, false)));
        }
        Ok(())
    }

    /// Takes an interface down and out, with its addresses, routes and neighbours.
    pub(crate) fn take_out(&self, index: u32, how: How) -> Result<Option<Arc<Iface>>, Errno> {
        self.set_up(index, false)?;
        let Some(link) = self.links.remove(index) else { return Ok(None) };
        for address in link.with_addresses(std::mem::take) {
            self.tell(How::Gone, What::Address(link.clone(), address));
        }
        self.change_routes(|routes| routes.forget_link(index));
        self.tables.routes.write().attach_rules(&link.name(), 0);
        self.tell(how, What::Link(link.clone()));
        self.changed();
        Ok(Some(link))
    }

    /// Gives an interface another name beside its own: `EEXIST` when an interface has it, `EINVAL` when it has too many.
    pub fn add_name(&self, index: u32, name: &str) -> Result<(), Errno> {
        self.links.add_name(index, name)
    }

    /// Takes a further name away: `ENOENT` when nothing has it, `EINVAL` when it is not one of this interface's.
    pub fn remove_name(&self, index: u32, name: &str) -> Result<(), Errno> {
        self.links.remove_name(index, name)
    }

    /// Renames an interface.
    pub fn rename(&self, index: u32, name: &str) -> Result<(), Errno> {
        if self.link_by_name(name).is_some() {
            return Err(Errno::EEXIST);
        }
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        self.tables.routes.write().attach_rules(&link.name(), 0);
        link.rename(name);
        self.named(&link);
        Ok(())
    }

    /// Changes an interface's MTU.
    pub fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        if !(68..=65536).contains(&mtu) {
            return Err(Errno::EINVAL);
        }
        link.set_mtu(mtu);
        self.changed();
        self.tell_link(&link);
        Ok(())
    }

    /// Changes what only lists show of an interface, and its hardware address.
    pub fn configure_link(&self, index: u32, change: impl FnOnce(&Iface)) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        change(&link);
        self.tell_link(&link);
        Ok(())
    }

    /// Changes what the device of an interface does for the stack (`TUNSETOFFLOAD`).
    pub fn set_features(&self, link: &Iface, features: Features) {
        link.set_features(features);
        self.changed();
    }

    /// Takes an interface up or down. Routes come and go with it, and the loopback interface gets its addresses.
    pub fn set_up(&self, index: u32, up: bool) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        if link.is_up() == up {
            return Ok(());
        }
        link.set_up(up);
        self.tell_link(&link);
        if up {
            self.raise(&link);
        } else {
            self.change_routes(|routes| routes.forget_link_but(index, super::address::stays));
            self.change_neighbours(|neighbours| neighbours.purge(|key| key.0 == index));
            self.drop_v6_addresses(&link);
        }
        self.changed();
        self.tell_partner(&link);
        Ok(())
    }

    fn raise(&self, link: &Arc<Iface>) {
        if link.index == LOOPBACK {
            let own: [(IpAddr, u8); 2] = [(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
            let wanted = |ip: &IpAddr| !link.has_address(*ip) && (ip.is_ipv4() || !link.disables_v6());
            let missing = own.into_iter().filter(|(ip, _)| wanted(ip));
            let missing: Vec<_> = missing
                .map(|(ip, len)| Address { scope: Scope::Host, ..Address::new(Prefix::new(ip, len)) })
                .collect();
            link.with_addresses(|all| all.extend(missing.iter().copied()));
            for address in missing {
                self.tell(How::Set, What::Address(link.clone(), address));
            }
        }
        self.generate_link_local(link);
        self.detect_again(link);
        self.change_routes(|routes| {
            if link.kind != Kind::Loopback && !link.disables_v6() {
                let multicast = Prefix::new(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8);
                let route = Route::new(multicast, link.index, None);
                let _ = routes.add(Route { table: TABLE_LOCAL, metric: 256, protocol: 2, ..route });
            }
            for address in link.addresses() {
                super::address::add_routes(routes, link, &address);
            }
        });
    }

    /// Takes addresses, routes and neighbours of IPv6 away from an interface.
    fn end_v6(&self, link: &Arc<Iface>) {
        let index = link.index;
        self.change_routes(|routes| {
            routes.purge(|r| r.dst.addr.is_ipv6() && r.hops().all(|hop| hop.iface == index));
        });
        self.change_neighbours(|neighbours| neighbours.purge(|key| key.0 == index && key.1.is_ipv6()));
        self.drop_v6_addresses(link);
    }

    /// Sets it. `EINVAL` for a number that has no meaning, `ENOENT` likewise.
    pub fn set_conf(&self, whose: Whose, which: Which, value: i64) -> Result<(), Errno> {
        let most = which.bounds().1;
        let least = if which == Which::Tag { i32::MIN } else { 0 };
        let value =
            i32::try_from(value).ok().filter(|value| (least..=most).contains(value)).ok_or(Errno::EINVAL)?;
        if (whose, which) == (Whose::All, Which::Forwarding) {
            return self.set_forwarding(value);
        }
        if which == Which::DisableIpv6 {
            return self.disable_v6(whose, value);
        }
        match self.conf_of(whose)? {
            Ok(conf) => conf.set(which, value),
            Err(link) => link.conf.set(which, value),
        }
        Ok(())
    }

    /// Takes IPv6 away from interfaces, or gives it back. What is set for all is set for each interface and for new ones.
    fn disable_v6(&self, whose: Whose, value: i32) -> Result<(), Errno> {
        let links = match whose {
            Whose::All => {
                self.conf_of_all.set(Which::DisableIpv6, value);
                self.links.defaults.set(Which::DisableIpv6, value);
                self.links()
            }
            Whose::Default => {
                self.links.defaults.set(Which::DisableIpv6, value);
                Vec::new()
            }
            Whose::Link(index) => vec![self.link(index).ok_or(Errno::ENOENT)?],
        };
        for link in links {
            let before = link.disables_v6();
            link.conf.set(Which::DisableIpv6, value);
            match (before, link.disables_v6()) {
                (false, true) => self.end_v6(&link),
                (true, false) if link.is_up() => self.raise(&link),
                _ => {}
            }
            self.changed();
        }
        Ok(())
    }

    /// Moves an interface to another stack, where it has the name `name`. It keeps its hardware address, MTU, counters and further
    /// names, and its index if that is free; it loses its addresses, routes and bridge, and is down. `EINVAL` for an interface
    /// that cannot move, `EEXIST` when one of its names is taken there.
    pub fn move_link(&self, index: u32, to: &Network, name: &str) -> Result<Arc<Iface>, Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        if !link.driver.is_movable() {
            return Err(Errno::EINVAL);
        }
        if std::ptr::eq(self, to) {
            return Ok(link);
        }
        // All that can fail comes first.
        let new = to.links.take_in(&link, name.to_owned())?;
        let gone = self.take_out(index, How::Moved { stack: to.number, index: new.index });
        if !matches!(gone, Ok(Some(_))) {
            to.take_out(new.index, How::Gone)?;
            return Err(Errno::ENODEV);
        }
        moved(&link, &new);
        to.changed();
        to.named(&new);
        Ok(new)
    }

    /// Removes every interface but the loopback interface: the stack's namespace ends.
    pub fn remove_links(&self) {
        for link in self.links().iter().filter(|link| link.index != LOOPBACK) {
            // It may have gone with another one.
            let _ = self.remove_link(link.index);
        }
    }
}
