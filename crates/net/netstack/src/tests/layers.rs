//! What programs have done to interfaces, addresses, routes and settings, through a checkpoint.

use super::hosts::{Host, T0, Wire, host};
use crate::addr::Prefix;
use crate::conf::{Which, Whose};
use crate::iface::{Address, Config, Kind, LOOPBACK};
use crate::layers::{Layer, LayerState, restore};
use crate::memory::Memory;
use crate::neigh::State;
use crate::route::{Action, Route, Rule};
use crate::testing::Random;
use crate::wire::eth::Mac;
use crate::{NoAlarm, Stack};
use ciborium::Value;
use std::net::IpAddr;
use std::sync::Arc;

fn through(state: &LayerState) -> LayerState {
    let mut bytes = Vec::new();
    ciborium::into_writer(state, &mut bytes).unwrap();
    ciborium::from_reader(&bytes[..]).unwrap()
}

fn config(name: &str, n: u8) -> Config {
    Config { name: name.into(), kind: Kind::Ethernet, mac: Mac([2, 0, 0, 0, 2, n]), mtu: 1400 }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> Prefix {
    let (ip, len) = text.split_once('/').unwrap();
    Prefix::new(ip.parse().unwrap(), len.parse().unwrap())
}

/// A namespace that a program made, with loopback down.
fn made(beside: &Host) -> Arc<Stack> {
    Stack::sharing([9; 16], |_| Arc::new(NoAlarm), beside.stack.memory.clone(), 7)
}

/// Does what programs do.
fn work(host: &Host, other: &Arc<Stack>) {
    let stack = &host.stack;
    let eth = host.eth.index;
    stack.sysctls.somaxconn.set(77).unwrap();
    stack.set_conf(Whose::All, Which::Forwarding, 1).unwrap();
    stack.set_conf(Whose::Link(eth), Which::RpFilter, 2).unwrap();
    stack.add_address(LOOPBACK, Address::new(prefix("127.0.0.9/32"))).unwrap();
    stack.remove_address(eth, prefix("2001:db8::1/64")).unwrap();
    stack.add_address(eth, Address::new(prefix("10.8.0.1/24"))).unwrap();
    stack.set_mtu(eth, 1280).unwrap();
    stack.rename(eth, "wan").unwrap();
    let gone = stack.add_dummy(config("gone", 9)).unwrap();
    let vlan = stack.add_vlan(config("v5", 1), &host.eth, 5).unwrap();
    let bridge = stack.add_bridge(config("br0", 2)).unwrap();
    let dummy = stack.add_dummy(config("d0", 3)).unwrap();
    // The lower index is the second end.
    stack.remove_link(gone.index).unwrap();
    let (near, far) = stack.add_veth(config("p0", 4), (stack, config("p1", 5))).unwrap();
    let (door, inside) = stack.add_veth(config("door", 6), (other, config("eth0", 7))).unwrap();
    stack.set_master(near.index, Some(bridge.index)).unwrap();
    stack.set_port(near.index, |port| port.hairpin = true).unwrap();
    stack.add_name(dummy.index, "another").unwrap();
    stack.configure_link(dummy.index, |link| *link.shown.alias.write() = "mine".into()).unwrap();
    for link in [&vlan, &bridge, &dummy, &near, &far, &door] {
        stack.set_up(link.index, true).unwrap();
    }
    other.set_up(inside.index, true).unwrap();
    stack.add_address(bridge.index, Address::new(prefix("10.7.0.1/24"))).unwrap();
    other.add_address(inside.index, Address::new(prefix("10.6.0.2/24"))).unwrap();
    stack.with_routes(|routes| {
        routes.add(Route::new(prefix("10.99.0.0/16"), bridge.index, Some(ip("10.7.0.9")))).unwrap();
        let first = routes.rules()[0].clone();
        let rule =
            Rule { priority: 100, from: Some(prefix("10.7.0.0/24")), action: Action::Table(9), ..first };
        routes.add_rule(rule).unwrap();
    });
    other.with_neighbours(|all| all.set((inside.index, ip("10.6.0.1")), Mac([2; 6]), State::Permanent));
    host.eth.counters.rx_bytes.add(1234);
    stack.counters.ip.in_receives.add(55);
}

#[test]
fn what_programs_did_is_done_again() {
    let a = host(1);
    let inner = made(&a);
    let bases = [a.stack.layer(), inner.layer()];
    work(&a, &inner);
    let saved = [a.stack.layer(), inner.layer()].map(|state| through(&state));
    let b = host(1);
    let other = made(&b);
    let layers = [(&b.stack, 0), (&other, 1)];
    let layers = layers.map(|(net, n)| Layer { net, saved: &saved[n], base: &bases[n] });
    restore(&layers).unwrap();
    for (net, saved) in [(&b.stack, &saved[0]), (&other, &saved[1])] {
        let [now, then] = [&net.layer(), saved].map(|state| format!("{state:#?}"));
        let differ = now.lines().zip(then.lines()).find(|(now, then)| now != then);
        assert_eq!((differ, now.len()), (None, then.len()));
    }
    assert_eq!(b.stack.link_by_name("another").unwrap().name(), "d0");
    // The next interface gets the index that it would have got.
    let next = [&a, &b].map(|host| host.stack.add_dummy(config("next", 8)).unwrap().index);
    assert_eq!(next[0], next[1]);
}

#[test]
fn addresses_of_another_host_stay() {
    let a = host(1);
    let base = a.stack.layer();
    a.stack.add_address(a.eth.index, Address::new(prefix("10.8.0.1/24"))).unwrap();
    a.stack.remove_address(a.eth.index, prefix("fe80::1/64")).unwrap();
    let saved = through(&a.stack.layer());
    let b = host(2);
    restore(&[Layer { net: &b.stack, saved: &saved, base: &base }]).unwrap();
    let local =
        ["10.8.0.1", "10.0.0.2", "2001:db8::2", "10.0.0.1", "fe80::1"].map(|own| b.stack.is_local(ip(own)));
    assert_eq!(local, [true, true, true, false, false]);
    assert_eq!(b.eth.mac(), Mac([2, 0, 0, 0, 0, 2]));
    // An interface that is not there is named.
    let bare = Stack::new([1; 16], Arc::new(NoAlarm));
    let refused = restore(&[Layer { net: &bare, saved: &saved, base: &base }]).unwrap_err();
    assert_eq!(refused, "there is no interface eth0 with the index 2");
}

#[test]
fn interfaces_of_the_host_may_have_other_indices() {
    let a = host(1);
    let mut base = a.stack.layer();
    a.stack.with_routes(|routes| {
        routes.add(Route::new(prefix("10.99.0.0/16"), a.eth.index, Some(ip("10.0.0.9")))).unwrap();
    });
    let mut saved = through(&a.stack.layer());
    // There the interface has index 3.
    let b = Stack::new([2; 16], Arc::new(NoAlarm));
    let other = b.add_dummy(config("other", 3)).unwrap();
    let eth = b.add_link(config("eth0", 1), Arc::new(Wire::default())).unwrap();
    b.remove_link(other.index).unwrap();
    b.set_up(eth.index, true).unwrap();
    b.add_address(eth.index, Address::new(prefix("10.0.0.1/24"))).unwrap();
    assert_eq!((a.eth.index, eth.index), (2, 3));
    let indices = base.renumbered(&b.layer());
    assert_eq!(indices, [(2, 3)].into());
    for layer in [&mut base, &mut saved] {
        layer.renumber(&indices);
    }
    restore(&[Layer { net: &b, saved: &saved, base: &base }]).unwrap();
    assert!(b.read_routes(|all| {
        all.routes().iter().any(|route| route.dst == prefix("10.99.0.0/16") && route.iface == 3)
    }));
}

/// Changes a number or a text somewhere.
fn spoil(value: &mut Value, random: &mut Random) {
    match value {
        Value::Map(entries) if !entries.is_empty() => {
            let n = random.below(entries.len() as u64) as usize;
            spoil(&mut entries[n].1, random);
        }
        Value::Array(list) if !list.is_empty() && random.chance(90) => {
            let n = random.below(list.len() as u64) as usize;
            spoil(&mut list[n], random);
        }
        Value::Array(list) => list.extend(list.clone()),
        Value::Integer(n) => {
            let old: i128 = (*n).into();
            let choices = [0, 1, 2, old + 1, old - 1, 255, i128::from(u32::MAX)];
            *n = choices[random.below(choices.len() as u64) as usize].try_into().unwrap_or(*n);
        }
        Value::Bool(on) => *on = !*on,
        Value::Text(text) => *text = "eth0".repeat(random.below(9) as usize),
        _ => {}
    }
}

#[test]
fn any_state_is_refused_or_harmless() {
    let a = host(1);
    let inner = made(&a);
    let bases = [a.stack.layer(), inner.layer()];
    work(&a, &inner);
    let whole = [a.stack.layer(), inner.layer()].map(|state| Value::serialized(&state).unwrap());
    let mut random = Random::new(3);
    let (mut done, mut refused) = (0, 0);
    for _ in 0..1000 * crate::testing::effort() {
        let mut values = whole.clone();
        (0..=random.below(3)).for_each(|_| spoil(&mut values[random.below(2) as usize], &mut random));
        let states = values.map(|value| value.deserialized::<LayerState>());
        let [Ok(first), Ok(second)] = states else { continue };
        let b = host(1);
        let other = made(&b);
        let layers = [
            Layer { net: &b.stack, saved: &first, base: &bases[0] },
            Layer { net: &other, saved: &second, base: &bases[1] },
        ];
        match restore(&layers) {
            Ok(()) => done += 1,
            Err(_) => refused += 1,
        }
        let now = T0;
        b.stack.run_timers(now);
        other.run_timers(now);
        let socket = b.stack.tcp_socket(false, Arc::new(crate::notify::Silent));
        let _ = socket.connect(now, "10.99.0.1:80".parse().unwrap());
        b.stack.remove_links();
        other.remove_links();
    }
    assert!(done > 100 && refused > 50, "{done} done, {refused} refused");
    let memory: &Arc<Memory> = &a.stack.memory;
    assert!(memory.links() > 0);
}
