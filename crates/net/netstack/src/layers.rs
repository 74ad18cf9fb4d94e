//! The network layers of a kernel's stacks as plain data, and back: settings, interfaces, addresses, routes, rules, neighbours.
//!
//! A restored stack is not empty: it has the interfaces, addresses and routes that its specification gives it. So a state is saved
//! with what the stack began with, and what differs between the two is done again. An interface of the host comes from the
//! specification, and so do its addresses unless a program changed them; all others are made anew, with their indices.

use crate::addr::Prefix;
use crate::bridge::{BridgeSettings, PortSettings};
use crate::conf::{Conf, Which, Whose};
use crate::device::driver::Driver;
use crate::device::iface::{Address, Config, Fifo, Iface, Kind};
use crate::device::links::partner;
use crate::ifaddr::Dad;
use crate::network::layer::Network;
use crate::network::neigh::State;
use crate::network::route::{Route, Rule};
use crate::wire::eth::Mac;
use abi::Errno;
use ktime::Ktime;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The network layer of one stack as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LayerState {
    /// The stack's number.
    pub number: u64,
    settings: Vec<(String, i64)>,
    conf_of_all: Vec<(Which, i32)>,
    conf_of_new: Vec<(Which, i32)>,
    links: Vec<LinkState>,
    next_index: u32,
    routes: Vec<Route>,
    rules: Vec<Rule>,
    /// Those that an administrator set; others are learnt again.
    neighbours: Vec<(u32, IpAddr, Mac)>,
    /// By the name of the protocol, then by their own names.
    counters: Vec<(String, Vec<(String, u64)>)>,
}

/// An interface as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LinkState {
    index: u32,
    name: String,
    other_names: Vec<String>,
    alias: String,
    kind: Kind,
    driver: DriverState,
    mac: Mac,
    mtu: u32,
    up: bool,
    addresses: Vec<Address>,
    conf: Vec<(Which, i32)>,
    queue_len: u32,
    group: u32,
    flags: u32,
    fifo: Option<Fifo>,
    master: Option<u32>,
    port: PortSettings,
    counters: Vec<(String, u64)>,
}

/// Where an interface leads: another one is named by the number of its stack and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DriverState {
    Loopback,
    /// A device of the host.
    Device,
    /// A program, by a file of /dev/net/tun. Its driver makes it again before.
    Program,
    Dummy,
    Veth(u64, u32),
    Vlan(u16, u64, u32),
    Bridge(BridgeSettings),
}

/// A stack that is restored.
pub struct Layer<'a> {
    /// The stack, as its specification makes it.
    pub net: &'a Network,
    /// What was saved.
    pub saved: &'a LayerState,
    /// What the saved one began with; nothing for a stack that a program made, all of which is saved.
    pub base: &'a LayerState,
}

fn named(values: Vec<(&'static str, u64)>) -> Vec<(String, u64)> {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn link_state(link: &Arc<Iface>) -> LinkState {
    let place = |other: Option<Arc<Iface>>| other.map_or((0, 0), |other| (other.inbox.number, other.index));
    let driver = match &link.driver {
        Driver::Loopback => DriverState::Loopback,
        Driver::Device(device) if device.about().kind == "tun" => DriverState::Program,
        Driver::Device(_) => DriverState::Device,
        Driver::Dummy => DriverState::Dummy,
        Driver::Veth(..) => {
            let (stack, index) = place(partner(link));
            DriverState::Veth(stack, index)
        }
        Driver::Vlan(vlan) => {
            let (stack, index) = place(vlan.lower.read().upgrade());
            DriverState::Vlan(vlan.id, stack, index)
        }
        Driver::Bridge(bridge) => DriverState::Bridge(*bridge.settings.read()),
    };
    let shown = &link.shown;
    let other_names = shown.other_names.read().clone();
    let alias = shown.alias.read().clone();
    LinkState {
        index: link.index,
        name: link.name(),
        other_names,
        alias,
        kind: link.kind,
        driver,
        mac: link.mac(),
        mtu: link.mtu(),
        up: link.is_up(),
        addresses: link.addresses(),
        conf: link.conf.values(),
        queue_len: shown.queue_len.load(Ordering::Relaxed),
        group: shown.group.load(Ordering::Relaxed),
        flags: shown.flags.load(Ordering::Relaxed),
        fifo: link.fifo(),
        master: link.master_index(),
        port: link.port_settings(),
        counters: named(link.counters.values()),
    }
}

impl Network {
    /// The layer as plain data.
    pub fn layer(&self) -> LayerState {
        let settings = crate::sysctl::Sysctls::NAMES.iter().filter_map(|name| {
            self.sysctls.by_name(name).map(|setting| (String::from(*name), setting.get()))
        });
        let permanent = |(key, mac, state): ((u32, IpAddr), Mac, State)| {
            (state == State::Permanent).then_some((key.0, key.1, mac))
        };
        let all = &self.counters;
        let counters = [
            ("ip", all.ip.values()),
            ("ip6", all.ip6.values()),
            ("icmp", all.icmp.values()),
            ("icmp6", all.icmp6.values()),
            ("udp", all.udp.values()),
            ("udp6", all.udp6.values()),
            ("udp_lite", all.udp_lite.values()),
            ("udp_lite6", all.udp_lite6.values()),
            ("traffic", all.traffic.values()),
            ("traffic6", all.traffic6.values()),
            ("tcp", all.tcp.values()),
        ];
        let kinds = [("icmp_kinds", all.icmp_kinds.saved()), ("icmp6_kinds", all.icmp6_kinds.saved())];
        let shown = self.neighbours.read().shown(Ktime::ZERO, &self.sysctls);
        let mut neighbours: Vec<_> = shown.into_iter().filter_map(permanent).collect();
        neighbours.sort_by_key(|(index, ip, _)| (*index, *ip));
        let (routes, rules) = self.read_routes(|all| (all.routes().to_vec(), all.rules().to_vec()));
        LayerState {
            number: self.number,
            settings: settings.collect(),
            conf_of_all: self.conf_of_all.values(),
            conf_of_new: self.links.defaults.values(),
            links: self.links().iter().map(link_state).collect(),
            next_index: self.links.next_index(),
            routes,
            rules,
            neighbours,
            counters: counters
                .map(|(name, values)| (name.to_owned(), named(values)))
                .into_iter()
                .chain(kinds.map(|(name, values)| (name.to_owned(), values)))
                .collect(),
        }
    }
}

impl LayerState {
    /// The names of the interfaces, by index.
    pub fn link_names(&self) -> Vec<&str> {
        self.links.iter().map(|link| link.name.as_str()).collect()
    }

    /// The indices that interfaces of the host have in `here`, by those that they had when this state was the beginning, as far as
    /// they differ: interfaces of a new specification may be numbered otherwise.
    pub fn renumbered(&self, here: &LayerState) -> HashMap<u32, u32> {
        let devices = self.links.iter().filter(|link| matches!(link.driver, DriverState::Device));
        let pair = |old: &LinkState| {
            let new = here.links.iter().find(|new| new.name == old.name && new.driver == old.driver)?;
            (new.index != old.index).then_some((old.index, new.index))
        };
        devices.filter_map(pair).collect()
    }

    /// Whether an interface of the host is in it.
    pub fn has_device(&self) -> bool {
        self.links.iter().any(|link| link.driver == DriverState::Device)
    }

    /// Interfaces of the stack `number`, another one than this, have other indices.
    pub fn renumber_others(&mut self, number: u64, indices: &HashMap<u32, u32>) {
        for link in &mut self.links {
            match &mut link.driver {
                DriverState::Veth(stack, index) | DriverState::Vlan(_, stack, index) if *stack == number => {
                    *index = indices.get(index).copied().unwrap_or(*index);
                }
                _ => {}
            }
        }
    }

    /// Gives interfaces other indices.
    pub fn renumber(&mut self, indices: &HashMap<u32, u32>) {
        let change = |index: &mut u32| *index = indices.get(index).copied().unwrap_or(*index);
        for link in &mut self.links {
            change(&mut link.index);
            link.master.iter_mut().for_each(change);
            match &mut link.driver {
                DriverState::Veth(stack, index) | DriverState::Vlan(_, stack, index)
                    if *stack == self.number =>
                {
                    change(index);
                }
                _ => {}
            }
        }
        for route in &mut self.routes {
            change(&mut route.iface);
            route.others.iter_mut().for_each(|hop| change(&mut hop.iface));
        }
        for rule in &mut self.rules {
            change(&mut rule.iif);
            change(&mut rule.oif);
        }
        self.neighbours.iter_mut().for_each(|(index, ..)| change(index));
        self.next_index =
            self.next_index.max(indices.values().max().map_or(0, |most| most.saturating_add(1)));
    }

    fn link(&self, index: u32) -> Option<&LinkState> {
        self.links.iter().find(|link| link.index == index)
    }
}

impl LayerState {
    /// Makes the changes that lie between two states of a stack: of interfaces, addresses, routes and neighbours.
    pub fn follow(&mut self, before: &LayerState, after: &LayerState) {
        apply(&mut self.routes, &before.routes, &after.routes);
        apply(&mut self.neighbours, &before.neighbours, &after.neighbours);
        self.links.retain(|link| before.link(link.index).is_none() || after.link(link.index).is_some());
        for now in &after.links {
            let (Some(then), Some(link)) =
                (before.link(now.index), self.links.iter_mut().find(|link| link.index == now.index))
            else {
                // One that a program has made is in both states.
                if before.link(now.index).is_none() {
                    self.links.push(now.clone());
                }
                continue;
            };
            if then.name != now.name {
                link.name.clone_from(&now.name);
            }
            if then.mac != now.mac {
                link.mac = now.mac;
            }
            if then.mtu != now.mtu {
                link.mtu = now.mtu;
            }
            if then.up != now.up {
                link.up = now.up;
            }
            apply(&mut link.addresses, &then.addresses, &now.addresses);
        }
        self.next_index = self.next_index.max(after.next_index);
    }
}

/// Takes out of a list what is gone between two others, and adds what is new.
fn apply<T: Clone + PartialEq>(list: &mut Vec<T>, before: &[T], after: &[T]) {
    list.retain(|one| !before.contains(one) || after.contains(one));
    let new: Vec<T> =
        after.iter().filter(|one| !before.contains(one) && !list.contains(one)).cloned().collect();
    list.extend(new);
}

/// Does again what programs have done since the stacks began. The error is a sentence for the user.
pub fn restore(all: &[Layer<'_>]) -> Result<(), String> {
    let fresh: Vec<LayerState> = all.iter().map(|layer| layer.net.layer()).collect();
    for layer in all {
        layer.settings()?;
        layer.check_links()?;
    }
    make_links(all)?;
    for layer in all {
        layer.saved.links.iter().try_for_each(|link| layer.configure(link))?;
    }
    for layer in all {
        layer.saved.links.iter().try_for_each(|link| layer.join(link))?;
        layer.net.links.set_next_index(layer.saved.next_index);
    }
    for layer in all {
        for link in &layer.saved.links {
            layer.net.set_up(link.index, link.up).map_err(|error| link.failed(error))?;
        }
    }
    for (layer, fresh) in all.iter().zip(&fresh) {
        layer.addresses(fresh)?;
        layer.routes(fresh)?;
        layer.counters();
    }
    Ok(())
}

/// What a restored list has: what the fresh one has beside what it began with, less what the saved one lost, and what that won.
fn merged<T: Clone>(fresh: &[T], base: &[T], saved: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let has = |list: &[T], one: &T| list.iter().any(|other| same(other, one));
    let won = saved.iter().filter(|one| !has(base, one) || has(fresh, one)).cloned();
    let own = fresh.iter().filter(|one| !has(base, one) && !has(saved, one)).cloned();
    won.chain(own).collect()
}

/// Makes the interfaces that are none of the host, each after those that it stands upon.
fn make_links(all: &[Layer<'_>]) -> Result<(), String> {
    let stack = |number| all.iter().find(|layer| layer.saved.number == number);
    loop {
        let (mut made, mut missing) = (0, None);
        for layer in all {
            let absent = layer.saved.links.iter().filter(|link| layer.net.link(link.index).is_none());
            for link in absent {
                // It may have been made with another one.
                if layer.net.link(link.index).is_some() {
                    continue;
                }
                match layer.make(link, &stack).map_err(|error| link.failed(error))? {
                    true => made += 1,
                    false => missing = Some(link),
                }
            }
        }
        match missing {
            None => return Ok(()),
            Some(link) if made == 0 => return Err(format!("interface {} stands upon nothing", link.name)),
            Some(_) => {}
        }
    }
}

impl LinkState {
    fn failed(&self, error: Errno) -> String {
        format!("interface {}: {error:?}", self.name)
    }

    fn config(&self) -> Config {
        Config { name: self.name.clone(), kind: self.kind, mac: self.mac, mtu: self.mtu.clamp(68, 65_536) }
    }
}

fn set_conf(conf: &Conf, values: &[(Which, i32)]) -> Result<(), String> {
    for (which, value) in values {
        let (_, most) = which.bounds();
        if *which != Which::Tag && !(-1..=most).contains(value) {
            return Err(format!("the setting {which:?} of interfaces is {value}"));
        }
        conf.set(*which, *value);
    }
    Ok(())
}

impl<'a> Layer<'a> {
    fn settings(&self) -> Result<(), String> {
        let changed = self.saved.settings.iter().filter(|setting| !self.base.settings.contains(setting));
        for (name, value) in changed {
            let setting = self.net.sysctls.by_name(name);
            let set = setting.ok_or(Errno::ENOENT).and_then(|setting| setting.set(*value));
            set.map_err(|error| format!("net.{}: {error:?}", name.replace('/', ".")))?;
        }
        set_conf(&self.net.conf_of_all, &self.saved.conf_of_all)?;
        set_conf(&self.net.links.defaults, &self.saved.conf_of_new)
    }

    /// Interfaces of the host are the same ones; those that a program removed go.
    fn check_links(&self) -> Result<(), String> {
        let mut indices: Vec<_> = self.saved.links.iter().map(|link| link.index).collect();
        indices.sort_unstable();
        if indices.windows(2).any(|pair| pair[0] == pair[1]) || indices.first() == Some(&0) {
            return Err("two interfaces have one index".into());
        }
        for link in &self.saved.links {
            let here = self.net.link(link.index);
            let began = self.base.link(link.index).map_or(&link.name, |began| &began.name);
            let fits = here.as_ref().is_some_and(|here| here.name() == *began && here.kind == link.kind);
            match link.driver {
                DriverState::Loopback | DriverState::Device | DriverState::Program if fits => {}
                DriverState::Loopback | DriverState::Device | DriverState::Program => {
                    return Err(format!("there is no interface {began} with the index {}", link.index));
                }
                _ if here.is_some() => {
                    return Err(format!("interface {} has an index that is in use", link.name));
                }
                _ => {}
            }
        }
        let lost = self.base.links.iter().filter(|link| self.saved.link(link.index).is_none());
        for link in lost {
            if self.net.link(link.index).is_some() {
                self.net.remove_link(link.index).map_err(|error| link.failed(error))?;
            }
        }
        Ok(())
    }

    /// Makes an interface; false while what it stands upon is not there.
    fn make<'b>(&self, link: &LinkState, stack: &impl Fn(u64) -> Option<&'b Layer<'b>>) -> Result<bool, Errno>
    where
        'a: 'b,
    {
        let want = || self.net.links.want_index(link.index);
        let made = match link.driver {
            DriverState::Loopback | DriverState::Device | DriverState::Program => return Err(Errno::ENODEV),
            DriverState::Dummy => {
                want();
                self.net.add_dummy(link.config())?
            }
            DriverState::Bridge(settings) => {
                want();
                let made = self.net.add_bridge(link.config())?;
                self.net.set_bridge(made.index, settings)?;
                made
            }
            DriverState::Vlan(id, number, index) => {
                let lower = stack(number).ok_or(Errno::ENODEV)?.net.link(index);
                let Some(lower) = lower else { return Ok(false) };
                if !(1..4095).contains(&id) || lower.kind != Kind::Ethernet {
                    return Err(Errno::EINVAL);
                }
                if lower.vlans.read().contains_key(&id) {
                    return Err(Errno::EEXIST);
                }
                want();
                self.net.add_vlan(link.config(), &lower, id)?
            }
            DriverState::Veth(number, index) => {
                let other = stack(number).ok_or(Errno::ENODEV)?;
                let peer = other.saved.link(index).ok_or(Errno::ENODEV)?;
                let leads_back = peer.driver == DriverState::Veth(self.saved.number, link.index);
                if !leads_back || std::ptr::eq(peer, link) {
                    return Err(Errno::EINVAL);
                }
                // The peer is made first.
                other.net.links.want_index(index);
                want();
                let (own, far) = self.net.add_veth(link.config(), (other.net, peer.config()))?;
                if far.index != index {
                    return Err(Errno::EINVAL);
                }
                own
            }
        };
        if made.index == link.index { Ok(true) } else { Err(Errno::EEXIST) }
    }

    /// Names and numbers of an interface, as far as a program has changed them.
    fn configure(&self, saved: &LinkState) -> Result<(), String> {
        let failed = |error| saved.failed(error);
        let link = self.net.link(saved.index).ok_or_else(|| failed(Errno::ENODEV))?;
        let base = self.base.link(saved.index);
        if link.name() != saved.name && base.is_some_and(|base| base.name != saved.name) {
            self.net.rename(saved.index, &saved.name).map_err(failed)?;
        }
        if saved.name.is_empty() || saved.name.len() > 15 || saved.alias.len() > 255 {
            return Err(failed(Errno::EINVAL));
        }
        for name in &saved.other_names {
            if !link.is_named(name) {
                self.net.add_name(saved.index, name).map_err(failed)?;
            }
        }
        if base.is_some_and(|base| base.mac != saved.mac) {
            link.set_mac(saved.mac);
        }
        if link.mtu() != saved.mtu && base.is_none_or(|base| base.mtu != saved.mtu) {
            self.net.set_mtu(saved.index, saved.mtu).map_err(failed)?;
        }
        let off = |(which, _): &&(Which, i32)| *which == Which::DisableIpv6;
        if let Some((which, value)) = saved.conf.iter().find(off) {
            self.net.set_conf(Whose::Link(saved.index), *which, (*value).into()).map_err(failed)?;
        }
        set_conf(&link.conf, &saved.conf)?;
        let shown = &link.shown;
        *shown.alias.write() = saved.alias.clone();
        shown.queue_len.store(saved.queue_len, Ordering::Relaxed);
        shown.group.store(saved.group, Ordering::Relaxed);
        shown.flags.store(saved.flags, Ordering::Relaxed);
        link.set_fifo(saved.fifo);
        link.counters.restore(&saved.counters);
        Ok(())
    }

    /// Makes an interface the port of a bridge.
    fn join(&self, saved: &LinkState) -> Result<(), String> {
        let Some(bridge) = saved.master else { return Ok(()) };
        let joined = self.net.set_master(saved.index, Some(bridge));
        let set = joined.and_then(|()| self.net.set_port(saved.index, |port| *port = saved.port));
        set.map_err(|error| saved.failed(error))
    }

    fn addresses(&self, fresh: &LayerState) -> Result<(), String> {
        let none = Vec::new();
        for saved in &self.saved.links {
            let failed = |error| saved.failed(error);
            let link = self.net.link(saved.index).ok_or_else(|| failed(Errno::ENODEV))?;
            let of = |state: &'_ LayerState| state.link(saved.index).map(|link| link.addresses.clone());
            let (began, fresh) = (of(self.base).unwrap_or(none.clone()), of(fresh).unwrap_or(none.clone()));
            let same = |one: &Address, other: &Address| one.prefix == other.prefix;
            let mut wanted = merged(&fresh, &began, &saved.addresses, same);
            for address in &mut wanted {
                address.prefix = Prefix::new(address.prefix.addr, address.prefix.len);
            }
            let has = |list: &[Address], one: &Address| list.iter().any(|other| same(other, one));
            for gone in link.addresses().iter().filter(|one| !has(&wanted, one)) {
                self.net.remove_address(saved.index, gone.prefix).map_err(failed)?;
            }
            for new in wanted.iter().filter(|one| !has(&link.addresses(), one)) {
                self.net.add_address(saved.index, *new).map_err(failed)?;
            }
            // Their order and the rest of what is known of them.
            link.with_addresses(|all| all.clone_from(&wanted));
            wanted.iter().for_each(|address| self.net.watch_address(address));
            if wanted.iter().any(|address| matches!(address.dad, Dad::Tentative(_))) {
                self.net.detect_again(&link);
            }
        }
        Ok(())
    }

    fn routes(&self, fresh: &LayerState) -> Result<(), String> {
        /// Each of the saved ones is looked for among these.
        const MOST: usize = 4096;
        if self.base.routes.len().max(self.base.rules.len()) > MOST {
            return Err(format!("the image's stack began with more than {MOST} routes"));
        }
        let mut routes = merged(&fresh.routes, &self.base.routes, &self.saved.routes, PartialEq::eq);
        let mut rules = merged(&fresh.rules, &self.base.rules, &self.saved.rules, PartialEq::eq);
        let tidy = |prefix: &mut Prefix| *prefix = Prefix::new(prefix.addr, prefix.len);
        let exists = |index: u32| index == 0 || self.net.link(index).is_some();
        for route in &mut routes {
            tidy(&mut route.dst);
            let v4 = route.dst.addr.is_ipv4();
            let fits = route.source.is_none_or(|source| source.is_ipv4() == v4);
            if !fits || route.weight == 0 || !route.hops().all(|hop| exists(hop.iface) && hop.weight > 0) {
                return Err(format!("the route to {}/{} cannot be", route.dst.addr, route.dst.len));
            }
        }
        for rule in &mut rules {
            rule.from.iter_mut().chain(&mut rule.to).for_each(tidy);
        }
        let done = self.net.change_routes(|all| {
            all.purge(|_| true);
            routes.iter().try_for_each(|route| match all.add_beside(route.clone(), false) {
                Err(Errno::EEXIST) => Ok(()),
                done => done,
            })?;
            all.set_rules(rules)
        });
        done.map_err(|error| format!("routes: {error:?}"))?;
        routes.iter().for_each(|route| self.net.watch_route(route.expires));
        self.net.with_neighbours(|all| {
            for (index, ip, mac) in self.saved.neighbours.iter().filter(|(index, ..)| exists(*index)) {
                all.set((*index, *ip), *mac, State::Permanent);
            }
        });
        self.net.changed();
        Ok(())
    }

    /// Counters go on; the sockets count themselves.
    fn counters(&self) {
        let all = &self.net.counters;
        for (name, values) in &self.saved.counters {
            match name.as_str() {
                "ip" => all.ip.restore(values),
                "ip6" => all.ip6.restore(values),
                "icmp" => all.icmp.restore(values),
                "icmp6" => all.icmp6.restore(values),
                "udp" => all.udp.restore(values),
                "udp6" => all.udp6.restore(values),
                "udp_lite" => all.udp_lite.restore(values),
                "udp_lite6" => all.udp_lite6.restore(values),
                "traffic" => all.traffic.restore(values),
                "traffic6" => all.traffic6.restore(values),
                "icmp_kinds" => all.icmp_kinds.restore(values),
                "icmp6_kinds" => all.icmp6_kinds.restore(values),
                "tcp" => all.tcp.restore(values),
                _ => {}
            }
        }
        all.tcp.curr_estab.copy(&Default::default());
    }
}
