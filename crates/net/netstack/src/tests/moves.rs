//! Interfaces of one stack that lead to another, or move there.

use super::hosts::T0;
use crate::addr::Prefix;
use crate::bridge::PortSettings;
use crate::conf::{Which, Whose};
use crate::datagram::Protocol;
use crate::device::inbox::TURN;
use crate::iface::{Address, Config, Iface, Kind, LOOPBACK};
use crate::memory::{MAX_LINKS, Memory};
use crate::monitor::{Change, How, Monitor, What};
use crate::notify::Silent;
use crate::route::Route;
use crate::wire::eth::Mac;
use crate::{NoAlarm, Stack};
use abi::Errno;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Keeps what happens to interfaces.
#[derive(Default)]
struct Seen(Mutex<Vec<(String, How)>>);

impl Monitor for Seen {
    fn changed(&self, change: &Change) {
        if let What::Link(link) = &change.what {
            self.0.lock().push((link.name(), change.how));
        }
    }
}

fn stack(number: u64, memory: &Arc<Memory>) -> Arc<Stack> {
    let stack = Stack::sharing([number as u8; 16], |_| Arc::new(NoAlarm), memory.clone(), number);
    stack.set_up(LOOPBACK, true).unwrap();
    stack
}

fn config(name: &str, n: u8) -> Config {
    Config { name: name.into(), kind: Kind::Ethernet, mac: Mac([2, 0, 0, 0, 2, n]), mtu: 1500 }
}

fn raise(stack: &Arc<Stack>, link: &Iface, ip: &str) {
    stack.set_up(link.index, true).unwrap();
    let (ip, len) = ip.split_once('/').unwrap();
    let prefix = Prefix::new(ip.parse().unwrap(), len.parse().unwrap());
    stack.add_address(link.index, Address::new(prefix)).unwrap();
}

/// Sends a datagram from one stack to an address of another, and says whether it came.
fn reaches(from: &Arc<Stack>, to: &Arc<Stack>, at: &str) -> bool {
    let socket = |stack: &Arc<Stack>| stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    let (sender, receiver) = (socket(from), socket(to));
    receiver.bind("0.0.0.0:7".parse().unwrap(), true).unwrap();
    let sent = sender.send(T0, b"x", Some(at.parse().unwrap()), &Default::default());
    let came = receiver.receive(&mut [0; 9], false).is_ok();
    sender.close();
    receiver.close();
    sent.is_ok() && came
}

#[test]
fn ends_of_pairs_move() {
    let memory = Arc::default();
    let (a, b, c) = (stack(1, &memory), stack(2, &memory), stack(3, &memory));
    let seen = Arc::new(Seen::default());
    a.set_monitor(seen.clone());
    let (near, far) = a.add_veth(config("veth0", 1), (&a, config("veth1", 2))).unwrap();
    raise(&a, &near, "10.1.0.1/24");
    raise(&a, &far, "10.9.0.1/24");
    a.configure_link(far.index, |link| *link.shown.alias.write() = "mine".into()).unwrap();
    seen.0.lock().clear();
    let moved = a.move_link(far.index, &b, "eth0").unwrap();
    assert_eq!((moved.name(), moved.index, moved.is_up()), ("eth0".into(), far.index, false));
    assert_eq!((moved.addresses().len(), moved.mac(), moved.mtu()), (0, Mac([2, 0, 0, 0, 2, 2]), 1500));
    assert_eq!(*moved.shown.alias.read(), "mine");
    let gone = How::Moved { stack: 2, index: moved.index };
    assert_eq!(seen.0.lock().last(), Some(&("veth1".into(), gone)));
    assert_eq!((near.about().lower_stack, near.about().lower), (Some(2), moved.index));
    assert!(near.about().no_carrier && a.link(far.index).is_none());
    raise(&b, &moved, "10.1.0.2/24");
    assert_eq!(seen.0.lock().last(), Some(&("veth0".into(), How::Set)));
    assert!(reaches(&a, &b, "10.1.0.2:7") && reaches(&b, &a, "10.1.0.1:7"));
    // On to a third one, where the index and the name are taken.
    let (other, _) = c.add_veth(config("eth0", 3), (&c, config("x", 4))).unwrap();
    c.add_dummy(config("y", 5)).unwrap();
    assert_eq!(b.move_link(moved.index, &c, "eth0").err(), Some(Errno::EEXIST));
    assert!(reaches(&a, &b, "10.1.0.2:7"));
    let onward = b.move_link(moved.index, &c, "eth1").unwrap();
    assert!(other.index == 3 && onward.index > 4);
    raise(&c, &onward, "10.1.0.3/24");
    assert!(reaches(&a, &c, "10.1.0.3:7") && !reaches(&a, &b, "10.1.0.2:7"));
    // A stack that ends takes the other end along, and no stack is held by another.
    c.remove_links();
    assert!(a.link(near.index).is_none() && a.link_by_name("veth0").is_none());
    assert_eq!(Arc::strong_count(&c), 1);
    drop((near, far, moved, onward, other, c));
    assert_eq!(memory.links(), 0);
}

#[test]
fn what_cannot_move() {
    let memory = Arc::default();
    let (a, b) = (stack(1, &memory), stack(2, &memory));
    let bridge = a.add_bridge(config("br0", 1)).unwrap();
    assert_eq!(a.move_link(LOOPBACK, &b, "lo").err(), Some(Errno::EINVAL));
    assert_eq!(a.move_link(bridge.index, &b, "br0").err(), Some(Errno::EINVAL));
    assert_eq!(a.move_link(77, &b, "x").err(), Some(Errno::ENODEV));
    let dummy = a.add_dummy(config("d0", 2)).unwrap();
    a.set_master(dummy.index, Some(bridge.index)).unwrap();
    a.add_name(dummy.index, "other").unwrap();
    b.add_dummy(config("other", 3)).unwrap();
    assert_eq!(a.move_link(dummy.index, &b, "d0").err(), Some(Errno::EEXIST));
    a.remove_name(dummy.index, "other").unwrap();
    let moved = a.move_link(dummy.index, &b, "d0").unwrap();
    assert_eq!((moved.master_index(), bridge.about().no_carrier), (None, true));
}

#[test]
fn vlans_lead_to_other_stacks() {
    let memory = Arc::default();
    let (a, b, c) = (stack(1, &memory), stack(2, &memory), stack(3, &memory));
    let (near, far) = a.add_veth(config("veth0", 1), (&b, config("veth0", 2))).unwrap();
    a.set_up(near.index, true).unwrap();
    b.set_up(far.index, true).unwrap();
    let own = a.add_vlan(config("v5", 1), &near, 5).unwrap();
    raise(&a, &own, "10.5.0.1/24");
    let other = b.add_vlan(config("v5", 2), &far, 5).unwrap();
    assert_eq!(c.add_vlan(config("v6", 2), &far, 5).err(), Some(Errno::EEXIST));
    let other = b.move_link(other.index, &c, "v5").unwrap();
    raise(&c, &other, "10.5.0.2/24");
    assert!(reaches(&a, &c, "10.5.0.2:7") && reaches(&c, &a, "10.5.0.1:7"));
    // The interface below moves and leaves the one above where it is.
    let far = b.move_link(far.index, &a, "veth1").unwrap();
    assert!(!reaches(&a, &c, "10.5.0.2:7"));
    a.set_up(far.index, true).unwrap();
    assert!(reaches(&a, &c, "10.5.0.2:7"));
    assert_eq!((other.about().lower, other.about().lower_stack), (far.index, Some(1)));
    // The one above goes with the one below.
    a.remove_link(far.index).unwrap();
    assert!(c.link(other.index).is_none() && a.link(own.index).is_none());
}

/// Three stacks with one port each of a bridge of a fourth one, and addresses 10.7.0.1 to 10.7.0.3.
fn bridged(memory: &Arc<Memory>) -> (Arc<Stack>, Vec<Arc<Iface>>, [Arc<Stack>; 3]) {
    let middle = stack(9, memory);
    let bridge = middle.add_bridge(config("br0", 9)).unwrap();
    middle.set_up(bridge.index, true).unwrap();
    let mut ports = Vec::new();
    let stacks = [1, 2, 3].map(|n| {
        let stack = stack(n.into(), memory);
        let (port, end) =
            middle.add_veth(config(&format!("p{n}"), 10 + n), (&stack, config("eth0", n))).unwrap();
        middle.set_up(port.index, true).unwrap();
        middle.set_master(port.index, Some(bridge.index)).unwrap();
        raise(&stack, &end, &format!("10.7.0.{n}/24"));
        ports.push(port);
        stack
    });
    (middle, ports, stacks)
}

#[test]
fn ports_have_settings() {
    let memory = Arc::default();
    let (middle, ports, [a, b, c]) = bridged(&memory);
    let set = |n: usize, change: fn(&mut PortSettings)| middle.set_port(ports[n].index, change).unwrap();
    // Isolated ports reach the others only.
    set(0, |port| port.isolated = true);
    set(1, |port| port.isolated = true);
    assert!(!reaches(&a, &b, "10.7.0.2:7") && reaches(&a, &c, "10.7.0.3:7") && reaches(&c, &b, "10.7.0.2:7"));
    set(1, |port| port.isolated = false);
    a.with_neighbours(|all| all.purge(|_| true));
    assert!(reaches(&a, &b, "10.7.0.2:7"));
    // What is sent to all comes back by the port that it came from only when that is a hairpin.
    let back = |n: usize| ports[n].counters.tx_packets.get();
    let before = back(0);
    a.with_neighbours(|all| all.purge(|_| true));
    assert!(!reaches(&a, &b, "10.7.0.77:7") && back(0) == before);
    set(0, |port| (port.hairpin, port.isolated) = (true, false));
    assert!(!reaches(&a, &b, "10.7.0.78:7"));
    assert_eq!(back(0), before + 1);
    // Questions do not get out by a port that floods nothing.
    set(2, |port| port.broadcast_flood = false);
    a.with_neighbours(|all| all.purge(|_| true));
    assert!(!reaches(&a, &c, "10.7.0.3:7"));
    middle.set_master(ports[2].index, None).unwrap();
    assert_eq!(middle.set_port(ports[2].index, |_| {}), Err(Errno::EOPNOTSUPP));
    assert_eq!(ports[2].port_settings(), PortSettings::default());
}

#[test]
fn interfaces_have_settings_for_ipv4() {
    let memory = Arc::default();
    let (a, router, b) = (stack(1, &memory), stack(2, &memory), stack(3, &memory));
    let (a0, r0) = a.add_veth(config("eth0", 1), (&router, config("r0", 2))).unwrap();
    let (b0, r1) = b.add_veth(config("eth0", 3), (&router, config("r1", 4))).unwrap();
    let ends = [(&a, &a0, "10.1.0.1/24"), (&router, &r0, "10.1.0.2/24"), (&router, &r1, "10.2.0.2/24")];
    ends.into_iter().for_each(|(stack, link, ip)| raise(stack, link, ip));
    raise(&b, &b0, "10.2.0.1/24");
    let all = Prefix::new("0.0.0.0".parse().unwrap(), 0);
    for (stack, link, via) in [(&a, &a0, "10.1.0.2"), (&b, &b0, "10.2.0.2")] {
        let route = Route::new(all, link.index, Some(via.parse().unwrap()));
        stack.with_routes(|routes| routes.add(route)).unwrap();
    }
    let (own, everywhere) = (Whose::Link(r0.index), Whose::All);
    assert!(!reaches(&a, &b, "10.2.0.1:7"));
    router.set_conf(own, Which::Forwarding, 1).unwrap();
    assert!(reaches(&a, &b, "10.2.0.1:7") && !reaches(&b, &a, "10.1.0.1:7"));
    router.set_conf(everywhere, Which::Forwarding, 1).unwrap();
    assert!(reaches(&b, &a, "10.1.0.1:7"));
    // The way back to a foreign source leads elsewhere, or nowhere.
    a.add_address(a0.index, Address::new(Prefix::new("10.2.0.9".parse().unwrap(), 32))).unwrap();
    let from = |ip: &str| {
        let sender = a.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
        let receiver = b.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
        receiver.bind("0.0.0.0:7".parse().unwrap(), true).unwrap();
        sender.bind(format!("{ip}:0").parse().unwrap(), true).unwrap();
        sender.send(T0, b"x", Some("10.2.0.1:7".parse().unwrap()), &Default::default()).unwrap();
        let came = receiver.receive(&mut [0; 9], false).is_ok();
        sender.close();
        receiver.close();
        came
    };
    assert!(from("10.2.0.9"));
    router.set_conf(own, Which::RpFilter, 1).unwrap();
    assert!(!from("10.2.0.9") && from("10.1.0.1"));
    router.set_conf(everywhere, Which::RpFilter, 2).unwrap();
    assert!(from("10.2.0.9"));
    assert_eq!(router.set_conf(own, Which::RpFilter, 3), Err(Errno::EINVAL));
    assert_eq!(router.conf(Whose::Link(77), Which::RpFilter), Err(Errno::ENOENT));
}

/// Two bridges joined by two pairs: what is sent to all goes round for ever.
#[test]
fn a_loop_of_bridges_leaves_room_for_others() {
    let memory = Arc::<Memory>::default();
    memory.set_limit(8 << 20);
    let (a, b) = (stack(1, &memory), stack(2, &memory));
    let bridges = [(&a, "br0", 1), (&b, "br1", 2)].map(|(stack, name, n)| {
        let bridge = stack.add_bridge(config(name, n)).unwrap();
        stack.set_up(bridge.index, true).unwrap();
        bridge
    });
    let mut ports = Vec::new();
    for n in 0..3 {
        let name = format!("p{n}");
        let (near, far) = a.add_veth(config(&name, 10 + n), (&b, config(&name, 20 + n))).unwrap();
        for (stack, link, bridge) in [(&a, &near, &bridges[0]), (&b, &far, &bridges[1])] {
            stack.set_up(link.index, true).unwrap();
            stack.set_master(link.index, Some(bridge.index)).unwrap();
        }
        ports.push(near);
    }
    raise(&a, &bridges[0], "10.6.0.1/24");
    let received = || ports.iter().map(|port| port.counters.rx_packets.get()).sum::<u64>();
    let socket = a.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    // A question for an address that nobody has is sent to all.
    socket.send(T0, b"x", Some("10.6.0.9:7".parse().unwrap()), &Default::default()).unwrap();
    assert!((10..=2 * TURN as u64).contains(&received()), "{} frames in one operation", received());
    assert!(memory.used() <= 10 << 20, "{} bytes", memory.used());
    // It goes on by the timer, a part at a time, and other things have their turn.
    let before = received();
    let mut now = T0;
    for _ in 0..3 {
        let due = [&a, &b].map(|stack| stack.next_deadline()).into_iter().flatten().min().unwrap();
        assert!(due > now, "the timer's thread would do nothing else");
        now = due;
        a.run_timers(now);
        b.run_timers(now);
    }
    assert!(received() > before && received() - before <= 12 * TURN as u64);
    assert!(reaches(&a, &a, "127.0.0.1:7"));
    // Without the loop it ends, and gives back what it took.
    ports.iter().for_each(|port| a.remove_link(port.index).unwrap());
    for _ in 0..10 {
        now = now.plus(Duration::from_millis(2));
        a.run_timers(now);
        b.run_timers(now);
    }
    assert_eq!(memory.used(), 0);
}

#[test]
fn links_of_all_stacks_have_a_bound() {
    let memory = Arc::default();
    let mut stacks = Vec::new();
    for number in 0.. {
        let stack = stack(number, &memory);
        let made = (0..4000).map(|n| stack.add_dummy(config(&format!("d{n}"), 1))).find(Result::is_err);
        stacks.push(stack);
        if let Some(refused) = made {
            assert_eq!(refused.err(), Some(Errno::ENFILE));
            break;
        }
    }
    assert_eq!(memory.links(), MAX_LINKS);
    stacks.clear();
    assert_eq!(memory.links(), 0);
}
