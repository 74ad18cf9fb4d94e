//! Interfaces of the host in a stack: those that it begins with, and what changes about them later.

use crate::device::HostLink;
use crate::inward::Inward;
use crate::names::{self, Names};
use crate::pump::{Pump, REST};
use crate::watch::Watch;
use abi::{Errno, Result};
use host_interfaces::{Handles, Rtnetlink};
use hostsys::fs::Readiness;
use ktime::Clock;
use netstack::Stack;
use netstack::addr::Prefix;
use netstack::conf::{Which, Whose};
use netstack::iface::{Address, Config, Kind};
use netstack::route::{Route, TABLE_MAIN};
use netstack::wire::eth::Mac;
use spec::{Interface, Interfaces, LinkHeader};
use std::collections::BTreeMap;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// IFF_UP.
const UP: u32 = libc::IFF_UP as u32;
const NOARP: u32 = libc::IFF_NOARP as u32;

/// A stack that uses interfaces of the host, and its clock.
type To<'a> = (&'a Arc<Stack>, Clock);

/// The interfaces of a network namespace of the host under a stack. The threads that serve them end when this is dropped.
pub struct Links {
    questions: Rtnetlink,
    /// Marks the host's network namespace as taken for as long as it is open.
    _mark: OwnedFd,
    /// Those in use, by index.
    ports: BTreeMap<u32, Port>,
    /// Packet sockets that no interface uses.
    spares: Vec<Arc<OwnedFd>>,
    names: NameServer,
    /// The way for processes of the host in the namespace.
    inward: Option<Inward>,
    /// What the namespace had when it was read last.
    known: Interfaces,
    _watch: Watch,
}

/// An interface in use.
struct Port {
    socket: Arc<OwnedFd>,
    _pump: Pump,
}

/// The namespace's own name server.
enum NameServer {
    /// There was none yet. The socket leads to where it would be.
    Absent(OwnedFd),
    /// It is reached from inside for as long as this is kept.
    Used { _names: Names },
    /// It cannot be reached.
    Unreachable,
}

impl Links {
    /// Gives a stack the interfaces beside loopback of a namespace that was taken over. `changed` is called in a thread of its own
    /// when something about the namespace has changed; it is to call [`follow`](Self::follow). EINVAL when handles are missing.
    pub fn attach(
        to: To<'_>,
        interfaces: Interfaces,
        fds: Vec<OwnedFd>,
        changed: impl Fn() + Send + 'static,
    ) -> Result<Links> {
        let handles = Handles::from_fds(fds).ok_or(Errno::EINVAL)?;
        let mut links = Links {
            questions: handles.questions,
            _mark: handles.mark,
            ports: BTreeMap::new(),
            spares: handles.packet_sockets.into_iter().map(Arc::new).collect(),
            names: NameServer::Absent(handles.name_server),
            inward: handles.inward.map(|handles| Inward::start(to.0, to.1, handles)).transpose()?,
            known: Interfaces::loopback(),
            _watch: Watch::start(handles.events, changed)?,
        };
        links.look_for_names(&to);
        links.change(&to, interfaces);
        Ok(links)
    }

    /// Reads the namespace, and changes the stack where the namespace has changed since it was read last. What programs inside
    /// have changed stays. Gives what the namespace has now, or `None` if that is the same.
    pub fn follow(&mut self, to: To<'_>) -> Option<Interfaces> {
        let now = match self.questions.interfaces() {
            Ok(now) => now,
            Err(error) => {
                log::warn!("the interfaces of the container's network namespace cannot be read: {error}");
                return None;
            }
        };
        if now == self.known {
            return None;
        }
        self.look_for_names(&to);
        self.change(&to, now.clone());
        Some(now)
    }

    /// Takes the stack's side of all interfaces down, so that no more packets pass. The host's side stays as it is.
    pub fn silence(&self, stack: &Stack) {
        for index in self.ports.keys() {
            // A program may have removed it.
            let _ = stack.set_up(*index, false);
        }
    }

    /// Ends the use of all interfaces. Packet sockets are closed beside each other: each takes a grace period of the host's kernel.
    pub fn close(self) {
        let Links { ports, spares, .. } = self;
        drop(ports);
        for socket in spares {
            let thread = std::thread::Builder::new().name("close".into()).stack_size(64 << 10);
            // It is closed in any case.
            let _ = thread.spawn(move || drop(socket));
        }
    }

    /// Serves the namespace's name server inside once there is one.
    fn look_for_names(&mut self, (stack, clock): &To<'_>) {
        let server = match mem::replace(&mut self.names, NameServer::Unreachable) {
            NameServer::Absent(server) if names::answers(&server) => server,
            names => {
                self.names = names;
                return;
            }
        };
        match Names::start(stack, *clock, server) {
            Ok(names) => {
                self.names = NameServer::Used { _names: names };
                self.inward.iter().for_each(Inward::serve_names);
            }
            Err(error) => log::warn!("the container's name server {} is not reached: {error}", names::SERVER),
        }
    }

    /// Makes the stack's share of the host's interfaces what the namespace has now. A part that cannot be done is logged.
    fn change(&mut self, to: &To<'_>, now: Interfaces) {
        let before = mem::replace(&mut self.known, now.clone());
        self.remove(to, &before, &now);
        self.add(to, &before, &now);
    }

    /// Takes out of the stack what is gone.
    fn remove(&mut self, (stack, _): &To<'_>, before: &Interfaces, now: &Interfaces) {
        for route in before.routes.iter().filter(|route| !now.routes.contains(route)) {
            let Some(gone) = self.route(route) else { continue };
            let same = |one: &Route| {
                let told = |r: &Route| (r.table, r.dst, r.iface, r.gateway, r.metric);
                told(one) == told(&gone)
            };
            // It may have gone with its address or interface.
            let _ = stack.with_routes(|routes| routes.remove(same));
        }
        for neighbour in before.neighbours.iter().filter(|one| !now.neighbours.contains(one)) {
            stack.with_neighbours(|all| all.remove(&(neighbour.interface, neighbour.ip)));
        }
        for (link, old) in pairs(&before.links, &now.links) {
            let Some(new) = old else {
                if let Some(port) = self.ports.remove(&link.index) {
                    log::info!("interface {} of the container's network namespace is gone", link.name);
                    report("remove", &link.name, stack.remove_link(link.index));
                    self.spares.push(port.socket);
                }
                continue;
            };
            if self.ports.contains_key(&link.index) {
                for (ip, bits) in link.addresses.iter().filter(|address| !new.addresses.contains(address)) {
                    // A program may have removed it.
                    let _ = stack.remove_address(link.index, Prefix::new(*ip, *bits));
                }
            }
        }
    }

    /// Puts into the stack what is new.
    fn add(&mut self, to: &To<'_>, before: &Interfaces, now: &Interfaces) {
        let (stack, clock) = to;
        for (link, old) in pairs(&now.links, &before.links) {
            if self.ports.contains_key(&link.index) {
                let changed = old.map_or(Ok(()), |old| change_link(stack, old, link));
                report("change", &link.name, changed);
            } else if let Some(header) = link.link_header() {
                report("use", &link.name, self.use_link(to, link, header));
            }
            if !self.ports.contains_key(&link.index) {
                continue;
            }
            let known = old.map(|old| &old.addresses[..]).unwrap_or_default();
            for (ip, bits) in link.addresses.iter().filter(|address| !known.contains(address)) {
                let prefix = Prefix::new(*ip, *bits);
                // The namespace's own is not asked for; it is the usual one.
                let address = Address { broadcast: prefix.broadcast(), ..Address::new(prefix) };
                report(
                    "give an address to",
                    &link.name,
                    known_already(stack.add_address(link.index, address)),
                );
            }
        }
        for route in now.routes.iter().filter(|route| !before.routes.contains(route)) {
            if let Some(route) = self.route(route) {
                let to = route.dst;
                let added = known_already(stack.with_routes(|routes| routes.add(route)));
                report("add a route to", &to.addr.to_string(), added);
            }
        }
        for neighbour in now.neighbours.iter().filter(|one| !before.neighbours.contains(one)) {
            if self.ports.contains_key(&neighbour.interface) {
                let key = (neighbour.interface, neighbour.ip);
                let state = netstack::neigh::State::Permanent;
                let mac = Mac(neighbour.mac);
                let waiting = stack.with_neighbours(|all| all.set(key, mac, state));
                if let Some(link) = stack.link(neighbour.interface) {
                    stack.send_waiting(clock.now(), &link, mac, waiting);
                }
            }
        }
    }

    /// Has the stack use an interface by one of the packet sockets.
    fn use_link(&mut self, (stack, clock): &To<'_>, interface: &Interface, header: LinkHeader) -> Result<()> {
        // Too many have come since the start.
        let socket = self.spares.pop().ok_or(Errno::EMFILE)?;
        let used = start((stack, *clock), interface, header, socket.clone());
        match used {
            Ok(pump) => {
                self.ports.insert(interface.index, Port { socket, _pump: pump });
                Ok(())
            }
            Err(error) => {
                let _ = stack.remove_link(interface.index);
                self.spares.push(socket);
                Err(error)
            }
        }
    }

    /// The route as the stack has it, if it is one of the main table by an interface in use.
    fn route(&self, route: &spec::Route) -> Option<Route> {
        let main = u32::from(route.table) == TABLE_MAIN && route.kind == libc::RTN_UNICAST;
        if !main || !self.ports.contains_key(&route.interface) {
            return None;
        }
        let (ip, bits) = route.to;
        let made = Route::new(Prefix::new(ip, bits), route.interface, route.via);
        Some(Route { metric: route.metric, source: route.source, ..made })
    }
}

/// Each interface of a list, with the one of another list that has its index.
fn pairs<'a>(
    list: &'a [Interface],
    other: &'a [Interface],
) -> impl Iterator<Item = (&'a Interface, Option<&'a Interface>)> {
    let others: BTreeMap<u32, &Interface> = other.iter().map(|link| (link.index, link)).collect();
    list.iter().map(move |link| (link, others.get(&link.index).copied()))
}

/// Adds an interface to a stack, by a packet socket that is bound to it now.
fn start(
    (stack, clock): To<'_>,
    interface: &Interface,
    header: LinkHeader,
    socket: Arc<OwnedFd>,
) -> Result<Pump> {
    hostsys::packet::bind(&*socket, interface.index)?;
    let readiness = Readiness::new()?;
    let link = Arc::new(HostLink::new(socket, header, readiness.pulse(REST)?));
    let (kind, mac) = match header {
        LinkHeader::Ethernet => (Kind::Ethernet, mac(interface)?),
        LinkHeader::Nothing => (Kind::Tunnel, Mac::default()),
    };
    let config = Config { name: interface.name.clone(), kind, mac, mtu: mtu(interface) };
    stack.add_link_at(interface.index, config, link.clone())?;
    set_arp(stack, interface)?;
    // It has the addresses and routes that the host gave it, and no others.
    stack.set_conf(Whose::Link(interface.index), Which::AddrGenMode, 1)?;
    stack.set_conf(Whose::Link(interface.index), Which::AcceptRa, 0)?;
    stack.set_up(interface.index, interface.flags & UP != 0)?;
    Pump::start(readiness, link, (stack, clock), interface.index)
}

/// Does to an interface of the stack what was done to that of the host.
fn change_link(stack: &Arc<Stack>, old: &Interface, new: &Interface) -> Result<()> {
    let index = new.index;
    if old.name != new.name {
        known_already(stack.rename(index, &new.name))?;
    }
    if old.address != new.address && new.link_header() == Some(LinkHeader::Ethernet) {
        let mac = mac(new)?;
        stack.configure_link(index, |link| link.set_mac(mac))?;
    }
    if old.mtu != new.mtu {
        stack.set_mtu(index, mtu(new))?;
    }
    if (old.flags ^ new.flags) & NOARP != 0 {
        set_arp(stack, new)?;
    }
    if (old.flags ^ new.flags) & UP != 0 {
        stack.set_up(index, new.flags & UP != 0)?;
    }
    Ok(())
}

/// Has the stack ask for hardware addresses on an interface, or not, as the host does (IPVLAN's layer 3 does not).
fn set_arp(stack: &Arc<Stack>, interface: &Interface) -> Result<()> {
    stack.configure_link(interface.index, |link| {
        let flags = &link.shown.flags;
        flags.fetch_and(!NOARP, Ordering::Relaxed);
        flags.fetch_or(interface.flags & NOARP, Ordering::Relaxed);
    })
}

fn mac(interface: &Interface) -> Result<Mac> {
    interface.address.as_slice().try_into().map(Mac).map_err(|_| Errno::EINVAL)
}

fn mtu(interface: &Interface) -> u32 {
    interface.mtu.clamp(68, 65536)
}

/// What is there already is no error.
fn known_already(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::EEXIST) => Ok(()),
        result => result,
    }
}

/// Logs what could not be done.
fn report(what: &str, which: &str, result: Result<()>) {
    match result {
        Ok(()) => {}
        Err(Errno::EMFILE) => log::warn!(
            "cannot {what} {which} of the container's network namespace: no more than {} interfaces can come after the start",
            host_interfaces::SPARES
        ),
        Err(error) => log::warn!("cannot {what} {which} of the container's network namespace: {error}"),
    }
}
