//! Interfaces, addresses and routes from a specification to a stack.

use crate::device::HostLink;
use crate::names::Names;
use crate::pump::{Pump, REST};
use abi::{Errno, Result};
use hostsys::fs::Readiness;
use ktime::Clock;
use netstack::Stack;
use netstack::addr::Prefix;
use netstack::conf::{Which, Whose};
use netstack::iface::{Address, Config, Kind};
use netstack::route::{Route, TABLE_MAIN};
use netstack::wire::eth::Mac;
use spec::{Interface, Interfaces};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// IFF_UP.
const UP: u32 = libc::IFF_UP as u32;

/// The threads of a stack's interfaces; they end when this is dropped.
#[derive(Default)]
pub struct Links {
    pumps: Vec<Pump>,
    names: Option<Names>,
    /// Marks the host's network namespace as taken for as long as it is open.
    mark: Option<OwnedFd>,
}

/// Gives a stack the interfaces beside loopback, each with its packet socket, in the order of `interfaces`; those that it
/// has already get new addresses only. The socket after those marks the namespace as this sandbox's; one socket more is connected to
/// the namespace's own name server.
pub fn attach(
    (stack, clock): (&Arc<Stack>, Clock),
    links: &mut Links,
    interfaces: &Interfaces,
    sockets: Vec<OwnedFd>,
) -> Result<()> {
    let ours = interfaces.links.iter().filter(|link| link.is_ethernet());
    let mut sockets = sockets.into_iter();
    for interface in ours {
        let socket = sockets.next().ok_or(Errno::EINVAL)?;
        if stack.link(interface.index).is_none() {
            links.pumps.push(add(stack, clock, interface, socket)?);
        }
        stack.set_up(interface.index, interface.flags & UP != 0)?;
        for (ip, bits) in &interface.addresses {
            let prefix = Prefix::new(*ip, *bits);
            // The namespace's own is not asked for; it is the usual one.
            let address = Address { broadcast: prefix.broadcast(), ..Address::new(prefix) };
            known(stack.add_address(interface.index, address))?;
        }
    }
    if let Some(mark) = sockets.next() {
        // One that comes later has no name: the sandbox has its mark.
        links.mark.get_or_insert(mark);
    }
    if let Some(server) = sockets.next()
        && links.names.is_none()
    {
        links.names = Some(Names::start(stack, clock, server)?);
    }
    for route in &interfaces.routes {
        let main = u32::from(route.table) == TABLE_MAIN && route.kind == libc::RTN_UNICAST;
        if main && stack.link(route.interface).is_some() {
            let (ip, bits) = route.to;
            let route = Route::new(Prefix::new(ip, bits), route.interface, route.via);
            known(stack.with_routes(|routes| routes.add(route)))?;
        }
    }
    Ok(())
}

fn add(stack: &Arc<Stack>, clock: Clock, interface: &Interface, socket: OwnedFd) -> Result<Pump> {
    let readiness = Readiness::new()?;
    let link = Arc::new(HostLink::new(Arc::new(socket), readiness.pulse(REST)?));
    let mac = <[u8; 6]>::try_from(interface.address.as_slice()).map_err(|_| Errno::EINVAL)?;
    let config = Config {
        name: interface.name.clone(),
        kind: Kind::Ethernet,
        mac: Mac(mac),
        mtu: interface.mtu.clamp(68, 65536),
    };
    stack.add_link_at(interface.index, config, link.clone())?;
    // It has the addresses and routes that the host gave it, and no others.
    stack.set_conf(Whose::Link(interface.index), Which::AddrGenMode, 1)?;
    stack.set_conf(Whose::Link(interface.index), Which::AcceptRa, 0)?;
    Pump::start(readiness, link, (stack, clock), interface.index)
}

/// What is there already is no error.
fn known(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::EEXIST) => Ok(()),
        result => result,
    }
}
