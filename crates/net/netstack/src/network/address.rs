//! Adding and removing addresses, with the routes that Linux adds for each (ip-address(8)).

use super::layer::Network;
use super::monitor::{How, What};
use super::route::{Route, RouteKind, Routes, TABLE_LOCAL};
use crate::addr::{Prefix, Scope, solicited_node};
use crate::device::iface::{Iface, Kind, MAX_ADDRESSES};
use crate::ifaddr::Address;
use abi::Errno;
use std::net::IpAddr;
use std::sync::Arc;

impl Network {
    /// Adds an address to an interface. It is usable at once, unless its [`Dad`](crate::ifaddr::Dad) says otherwise; see
    /// `Network::detection`. `EACCES` for one of IPv6 on an interface without that,
    /// `EADDRNOTAVAIL` for one that no interface, or not this one, can have.
    pub fn add_address(&self, index: u32, address: Address) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        if address.ip().is_ipv6() && link.disables_v6() {
            return Err(Errno::EACCES);
        }
        // An interface has no IPv6 address that is unspecified, a group's, or another host's loopback.
        if let IpAddr::V6(v6) = address.ip()
            && (v6.is_unspecified() || v6.is_multicast() || v6.is_loopback() && link.kind != Kind::Loopback)
        {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let address = self.insert_address(&link, address)?;
        self.change_routes(|routes| match link.is_up() {
            true => add_routes(routes, &link, &address),
            false => add_local_routes(routes, &link, &address),
        });
        self.changed();
        Ok(())
    }

    /// Puts an address into an interface's list, and tells of it. Returns what became of it.
    pub(crate) fn insert_address(&self, link: &Arc<Iface>, address: Address) -> Result<Address, Errno> {
        let address = link.with_addresses(|all| {
            // IPv6 knows an address by itself, IPv4 with its prefix.
            let same = |old: &Address| match address.ip() {
                IpAddr::V6(_) => old.ip() == address.ip(),
                IpAddr::V4(_) => old.prefix == address.prefix,
            };
            if all.iter().any(same) {
                return Err(Errno::EEXIST);
            }
            if all.len() >= MAX_ADDRESSES {
                return Err(Errno::ENOBUFS);
            }
            if address.ip().is_ipv4() {
                return address.place(all);
            }
            all.push(address);
            Ok(address)
        })?;
        if let IpAddr::V6(v6) = address.ip() {
            link.join(solicited_node(v6).into())?;
        }
        self.tell(How::Set, What::Address(link.clone(), address));
        self.watch_address(&address);
        Ok(address)
    }

    /// Removes an address, with the secondary ones of its network if it is their primary one; `EADDRNOTAVAIL` when the
    /// interface does not have it.
    pub fn remove_address(&self, index: u32, prefix: Prefix) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        let mut gone: Vec<Address> = link.with_addresses(|all| {
            let named = *all.iter().find(|old| old.prefix == prefix).ok_or(Errno::EADDRNOTAVAIL)?;
            let leads = named.ip().is_ipv4() && !named.secondary;
            let goes = |old: &Address| {
                old.prefix == prefix || leads && old.secondary && old.network() == named.network()
            };
            let (gone, rest) = std::mem::take(all).into_iter().partition(goes);
            *all = rest;
            Ok::<_, Errno>(gone)
        })?;
        gone.sort_by_key(|address| !address.secondary);
        for address in &gone {
            if let IpAddr::V6(v6) = address.ip() {
                link.leave(solicited_node(v6).into());
            }
            self.tell(How::Gone, What::Address(link.clone(), *address));
        }
        self.change_routes(|routes| {
            routes.purge(|route| {
                let of = |address: &Address| route.source == Some(address.ip()) || is_own(route, address);
                route.iface == index && gone.iter().any(of)
            });
            // Prefix routes that another address of the interface wants, too.
            if link.is_up() {
                link.addresses().iter().for_each(|other| add_routes(routes, &link, other));
            }
        });
        self.changed();
        Ok(())
    }

    /// The interface has gone down: its IPv6 addresses go (`keep_addr_on_down` 0).
    pub(crate) fn drop_v6_addresses(&self, link: &Arc<Iface>) {
        let gone = link.with_addresses(|all| {
            let (v6, rest) = std::mem::take(all).into_iter().partition(|address| address.ip().is_ipv6());
            *all = rest;
            v6
        });
        let gone: Vec<Address> = gone;
        for address in gone {
            if let IpAddr::V6(v6) = address.ip() {
                link.leave(solicited_node(v6).into());
            }
            self.tell(How::Gone, What::Address(link.clone(), address));
        }
    }
}

impl Network {
    /// An address has another metric: so has the route to its network.
    pub(crate) fn renew_prefix_route(&self, link: &Arc<Iface>, old: &Address, new: &Address) {
        self.change_routes(|routes| {
            routes.purge(|route| {
                route.iface == link.index
                    && route.protocol == KERNEL
                    && route.kind == RouteKind::Unicast
                    && route.dst == old.network()
                    && route.source == source_of(link, old)
            });
            if link.is_up() {
                add_routes(routes, link, new);
            }
        });
    }
}

/// True for the local, broadcast and prefix routes of an address.
fn is_own(route: &Route, address: &Address) -> bool {
    let prefix = Prefix { addr: address.prefix.network(), len: address.prefix.len };
    let network = !address.secondary && route.dst == prefix;
    route.protocol == KERNEL && (route.dst == Prefix::host(address.ip()) || network)
}

/// The source address that the routes of an address name: of IPv4, the primary one of its network.
fn source_of(link: &Iface, address: &Address) -> Option<IpAddr> {
    let primary = || {
        let all = link.addresses();
        let mut same =
            all.iter().filter(|other| other.ip().is_ipv4() && other.network() == address.network());
        same.find(|other| !other.secondary).map(Address::ip)
    };
    let v4 = address.ip().is_ipv4();
    v4.then(|| if address.secondary { primary().unwrap_or(address.ip()) } else { address.ip() })
}

/// `RTPROT_KERNEL`
const KERNEL: u8 = 2;

/// Adds the routes by which an address is the stack's own. Those of IPv4 are there also while the interface is down; for an
/// IPv6 address of such an interface there are none.
fn add_local_routes(routes: &mut Routes, link: &Iface, address: &Address) {
    let ip = address.ip();
    let v4 = ip.is_ipv4();
    if !v4 && !link.is_up() {
        return;
    }
    let local = Route {
        table: TABLE_LOCAL,
        kind: RouteKind::Local,
        scope: Scope::Host,
        protocol: KERNEL,
        source: source_of(link, address),
        ..Route::new(Prefix::host(ip), link.index, None)
    };
    if address.is_usable() {
        let _ = routes.add(local.clone());
    }
    let network = Prefix { addr: address.prefix.network(), len: address.prefix.len };
    if v4 && link.kind == Kind::Loopback && address.peer.is_none() && network.len < crate::addr::bits(ip) {
        let _ = routes.add(Route { dst: network, ..local });
    }
}

/// A route that stays when its interface goes down: that of an IPv4 address of the stack's own.
pub(crate) fn stays(route: &Route) -> bool {
    route.dst.addr.is_ipv4() && route.kind == RouteKind::Local && route.protocol == KERNEL
}

/// Adds the routes of an address. Those that are there already stay.
pub(crate) fn add_routes(routes: &mut Routes, link: &Iface, address: &Address) {
    add_local_routes(routes, link, address);
    let ip = address.ip();
    let v4 = ip.is_ipv4();
    let base = Route { protocol: KERNEL, ..Route::new(Prefix::host(ip), link.index, None) };
    let target = address.peer.map_or(address.prefix, |peer| Prefix::new(peer, address.prefix.len));
    let network = address.network();
    let reaches_others = network.len < crate::addr::bits(ip) || address.peer.is_some();
    let source = source_of(link, address);
    let looped = v4 && link.kind == Kind::Loopback;
    if !looped && reaches_others && !address.no_prefix_route && !address.secondary {
        let metric = match address.metric {
            0 if v4 => 0,
            0 => 256,
            metric => metric,
        };
        let route = Route { dst: network, source, metric, ..base.clone() };
        let is_there = |old: &Route| {
            (old.table, old.dst, old.metric, old.kind) == (route.table, route.dst, route.metric, route.kind)
                && (old.iface, old.gateway, old.source) == (route.iface, route.gateway, route.source)
        };
        // Another interface may have the same network: the route that was first is used.
        if !routes.routes().iter().any(is_there) {
            let _ = routes.add_beside(route, false);
        }
    }
    if let Some(broadcast) = address.broadcast.or_else(|| target.broadcast()) {
        let dst = Prefix::host(broadcast.into());
        let route = Route { dst, kind: RouteKind::Broadcast, table: TABLE_LOCAL, source, ..base };
        let _ = routes.add(route);
    }
}
