//! Interfaces that stand upon each other, as deep and as crossed as they may: on the smallest stack of a thread that runs this.

use super::hosts::T0;
use crate::addr::Prefix;
use crate::capture::ALL;
use crate::datagram::Protocol;
use crate::frame::{Frame, Offload};
use crate::iface::{Address, Config, Iface, Kind, LOOPBACK};
use crate::memory::Memory;
use crate::notify::Silent;
use crate::wire::eth::Mac;
use crate::{NoAlarm, Stack};
use abi::Errno;
use std::sync::Arc;

/// The smallest stack of a thread that serves system calls or runs timers.
const THREAD: usize = 256 << 10;

fn on_a_small_stack(test: fn()) {
    std::thread::Builder::new().stack_size(THREAD).spawn(test).unwrap().join().unwrap();
}

fn config(name: &str, n: u8) -> Config {
    Config { name: name.into(), kind: Kind::Ethernet, mac: Mac([2, 0, 0, 0, 3, n]), mtu: 1500 }
}

fn stack(number: u64, memory: &Arc<Memory>) -> Arc<Stack> {
    let stack = Stack::sharing([number as u8; 16], |_| Arc::new(NoAlarm), memory.clone(), number);
    stack.set_up(LOOPBACK, true).unwrap();
    stack
}

fn raise(stack: &Arc<Stack>, link: &Iface, ip: &str) {
    stack.set_up(link.index, true).unwrap();
    stack.add_address(link.index, Address::new(Prefix::new(ip.parse().unwrap(), 24))).unwrap();
}

/// Sends a datagram to an address of the network, which asks all for the neighbour.
fn send(stack: &Arc<Stack>, to: &str) {
    let socket = stack.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
    let _ = socket.send(T0, b"x", Some(to.parse().unwrap()), &Default::default());
    socket.close();
}

/// VLAN interfaces upon a link, up to the last one that is allowed; in turn they are in two stacks.
fn tower(stacks: [&Arc<Stack>; 2], bottom: &Arc<Iface>) -> Vec<Arc<Iface>> {
    let mut all = vec![bottom.clone()];
    for n in 0.. {
        let (_below, own) = (stacks[n % 2], stacks[(n + 1) % 2]);
        let lower = all[n].clone();
        match own.add_vlan(config(&format!("v{n}"), 9), &lower, 5) {
            Ok(vlan) => {
                own.set_up(vlan.index, true).unwrap();
                all.push(vlan);
            }
            Err(errno) => {
                assert_eq!(errno, Errno::EMLINK);
                break;
            }
        }
    }
    assert_eq!(all.len(), 8);
    all
}

#[test]
fn towers_of_vlans() {
    on_a_small_stack(|| {
        let memory = Arc::default();
        for crossed in [false, true] {
            let (a, b) = (stack(1, &memory), stack(2, &memory));
            let (near, far) = a.add_veth(config("p0", 1), (&b, config("p1", 2))).unwrap();
            a.set_up(near.index, true).unwrap();
            b.set_up(far.index, true).unwrap();
            let here = tower([&a, if crossed { &b } else { &a }], &near);
            let there = tower([&b, if crossed { &a } else { &b }], &far);
            let (top, end) = if crossed { (&b, &a) } else { (&a, &b) };
            raise(top, here.last().unwrap(), "10.0.0.1");
            raise(end, there.last().unwrap(), "10.0.0.2");
            let receiver = end.datagram_socket(false, Protocol::Udp, Arc::new(Silent));
            receiver.bind("0.0.0.0:7".parse().unwrap(), true).unwrap();
            send(top, "10.0.0.2:7");
            assert!(receiver.receive(&mut [0; 9], false).is_ok(), "crossed: {crossed}");
            receiver.close();
            a.remove_link(near.index).unwrap();
            assert_eq!((a.links().len(), b.links().len()), (1, 1));
        }
        assert_eq!(memory.links(), 0);
    });
}

#[test]
fn loops_of_bridges_and_vlans_are_refused() {
    let memory = Arc::default();
    let a = stack(1, &memory);
    let [br0, br1] = ["br0", "br1"].map(|name| a.add_bridge(config(name, 1)).unwrap());
    let on = |bridge: &Arc<Iface>, name: &str| a.add_vlan(config(name, 2), bridge, 10).unwrap();
    let (v0, v1) = (on(&br0, "br0.10"), on(&br1, "br1.10"));
    assert_eq!(a.set_master(v0.index, Some(br0.index)), Err(Errno::EBUSY));
    a.set_master(v1.index, Some(br0.index)).unwrap();
    assert_eq!(a.set_master(v0.index, Some(br1.index)), Err(Errno::EBUSY));
    assert_eq!(a.set_master(br1.index, Some(br0.index)), Err(Errno::ELOOP));
    // A port that cannot go where it is to go has left where it was.
    let (v2, v3) = (a.add_vlan(config("v2", 2), &v0, 1).unwrap(), a.add_dummy(config("d", 3)).unwrap());
    a.set_master(v3.index, Some(br1.index)).unwrap();
    assert_eq!(v3.master_index(), Some(br1.index));
    assert_eq!(a.set_master(v2.index, Some(br1.index)), Err(Errno::EBUSY));
    a.set_master(v1.index, None).unwrap();
    a.set_master(v2.index, Some(br1.index)).unwrap();
    assert_eq!(a.set_master(v1.index, Some(br0.index)), Err(Errno::EBUSY));
    // What is gone is not in the way.
    a.remove_link(v2.index).unwrap();
    a.set_master(v1.index, Some(br0.index)).unwrap();
}

/// Each of three bridges has as ports VLAN interfaces of the next: each frame becomes fifty, those become 2,500 and so on.
#[test]
fn bridges_that_multiply_frames() {
    on_a_small_stack(|| {
        let memory = Arc::<Memory>::default();
        memory.set_limit(8 << 20);
        let a = stack(1, &memory);
        let bridges: Vec<_> =
            (0..4).map(|n| a.add_bridge(config(&format!("br{n}"), 10 + n)).unwrap()).collect();
        for (n, pair) in bridges.windows(2).enumerate() {
            for id in 1..=50 {
                let name = format!("v{n}.{id}");
                let vlan = a.add_vlan(config(&name, 20), &pair[1], id).unwrap();
                a.set_up(vlan.index, true).unwrap();
                a.set_master(vlan.index, Some(pair[0].index)).unwrap();
            }
        }
        let (near, far) = a.add_veth(config("p0", 1), (&a, config("p1", 2))).unwrap();
        for port in [&near, &far] {
            a.set_up(port.index, true).unwrap();
            a.set_master(port.index, Some(bridges[3].index)).unwrap();
        }
        bridges.iter().skip(1).for_each(|bridge| a.set_up(bridge.index, true).unwrap());
        raise(&a, &bridges[0], "10.0.0.1");
        let start = std::time::Instant::now();
        send(&a, "10.0.0.7:7");
        assert!(memory.used() <= 12 << 20, "{} bytes", memory.used());
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
        a.remove_links();
        assert_eq!(a.links().len(), 1);
    });
}

/// Frames with as many tags as fit, to interfaces that all have them, from a packet socket and from a device.
#[test]
fn frames_with_many_tags() {
    on_a_small_stack(|| {
        let memory = Arc::default();
        let a = stack(1, &memory);
        let bottom = a.add_dummy(config("d0", 1)).unwrap();
        a.set_up(bottom.index, true).unwrap();
        let tower = tower([&a, &a], &bottom);
        let mut frame = [[0xff; 6], [2, 0, 0, 0, 9, 9]].concat();
        (0..370).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        a.receive(T0, bottom.index, Frame::new(a.pool().copy(&frame)));
        assert!(tower.iter().all(|link| link.counters.rx_packets.get() == 1));
        let socket = a.packet_socket(false, ALL, Arc::new(Silent));
        socket.send(T0, &frame, Offload::default(), Some((tower[7].index, 0, Mac::default()))).unwrap();
        assert!(tower.iter().all(|link| link.counters.tx_packets.get() == 1));
        socket.close();
    });
}
