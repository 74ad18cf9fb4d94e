//! Receiving frames: up the graph of interfaces, to the interface whose network layer takes the packet.

use super::driver::{Bridge, Driver};
use super::iface::{Iface, Kind};
use super::inbox::{Arrival, Way, flow_of};
use super::packet::Taps;
use super::transmit::{arrive, by_bridge, send_cut};
use super::vlan;
use crate::frame::Frame;
use crate::wire::eth::{self, Ethernet};
use ktime::Ktime;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Takes a frame from the inbox on: one that leaves is sent, one that arrives is received, see [`receive`].
pub(crate) fn take(taps: &Taps, now: Ktime, arrival: Arrival<Iface>) -> Option<(Arc<Iface>, Frame)> {
    match arrival.way {
        Way::In => receive(taps, now, arrival.iface, arrival.frame),
        Way::Out => {
            send_cut(&arrival.iface, arrival.frame);
            None
        }
    }
}

/// Takes a frame from an interface. Returns it, without tags, with the interface that receives it; `None` when it went elsewhere.
/// Each tag of a VLAN and each bridge is one more step, never one more level of calls.
pub(crate) fn receive(
    taps: &Taps,
    now: Ktime,
    mut iface: Arc<Iface>,
    mut frame: Frame,
) -> Option<(Arc<Iface>, Frame)> {
    loop {
        if iface.is_up() {
            taps.show(now, &iface, &frame, false);
            if let Some(master) = iface.master() {
                count(&iface, &frame);
                frame = to_bridge(&master, now, &iface, frame)?;
                iface = master;
                taps.show(now, &iface, &frame, false);
            }
        }
        count(&iface, &frame);
        if !iface.is_up() {
            iface.counters.rx_dropped.bump();
            return None;
        }
        let tagged = iface.kind == Kind::Ethernet
            && Ethernet::parse(&frame.buf).is_some_and(|header| header.kind.get() == eth::VLAN);
        if !tagged {
            return Some((iface, frame));
        }
        let above = vlan::tag_of(&frame.buf).and_then(|id| iface.vlans.read().get(&id).cloned());
        let Some(above) = above else {
            iface.counters.rx_dropped.bump();
            return None;
        };
        vlan::remove_tag(&mut frame.buf);
        if !Arc::ptr_eq(&above.inbox, &iface.inbox) {
            iface.inbox.hand_over(above.inbox.clone());
            arrive(flow_of(&frame.buf), &above, frame);
            return None;
        }
        iface = above;
    }
}

fn count(iface: &Iface, frame: &Frame) {
    iface.counters.rx_packets.bump();
    iface.counters.rx_bytes.add(frame.buf.len() as u64);
}

/// Takes a frame that a port of a bridge received. Returns it when it is for the bridge's own interface.
fn to_bridge(own: &Iface, now: Ktime, port: &Arc<Iface>, frame: Frame) -> Option<Frame> {
    let Driver::Bridge(bridge) = &own.driver else { return None };
    let header = Ethernet::parse(&frame.buf)?;
    learn(bridge, &header, port, now);
    // Link-local groups (spanning tree and the like) are never sent on (IEEE 802.1D section 7.12.6).
    if header.dst.0[..5] == [1, 0x80, 0xc2, 0, 0] {
        return None;
    }
    if header.dst == own.mac() {
        return Some(frame);
    }
    if header.dst.is_multicast() {
        by_bridge(bridge, header.dst, Some(port), frame.clone());
        return Some(frame);
    }
    by_bridge(bridge, header.dst, Some(port), frame);
    None
}

fn learn(bridge: &Bridge<Iface>, header: &Ethernet, port: &Iface, now: Ktime) {
    bridge.now.fetch_max(now.nanos(), Ordering::Relaxed);
    if header.src.is_multicast() || !port.port_settings().learning {
        return;
    }
    let ageing = bridge.settings.read().ageing;
    bridge.table.lock().learn(header.src, port.index, now, ageing);
}
