//! Sending frames: down the graph of interfaces.
//!
//! A frame that leaves by an interface which stands upon others waits in that interface's inbox, so calls do not nest, and what one
//! frame becomes on its way through bridges has a bound.

use super::bridge::PortSettings;
use super::driver::{Bridge, Driver, Vlan};
use super::iface::{Iface, Inbox, Kind};
use super::inbox::{Way, flow_of};
use super::vlan;
use crate::buf::Buf;
use crate::frame::{Checksum, Frame, Offload, Tags, finish_checksum};
use crate::wire::eth::{Ethernet, Mac};
use ktime::Ktime;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sends a frame as the driver takes it.
pub(crate) fn transmit(iface: &Iface, mut frame: Frame) {
    // Another interface tracks the packet anew.
    frame.tags = Tags { mark: frame.tags.mark, part: frame.tags.part, ..Tags::default() };
    iface.counters.tx_packets.bump();
    iface.counters.tx_bytes.add(frame.buf.len() as u64);
    match &iface.driver {
        Driver::Loopback => return iface.counters.tx_dropped.bump(),
        Driver::Device(device) => device.transmit(frame),
        Driver::Dummy => {}
        Driver::Veth(pair, end) => {
            if let Some(peer) = pair.other(*end) {
                arrive(flow_of(&frame.buf), &peer, frame);
            }
        }
        Driver::Vlan(vlan) => by_vlan(vlan, frame),
        Driver::Bridge(bridge) => {
            if let Some(header) = Ethernet::parse(&frame.buf) {
                by_bridge(bridge, header.dst, None, frame);
            }
        }
    }
    iface.unflushed.store(true, Ordering::Release);
}

/// Ends the batch that was sent since the last flush. Returns the inbox of another namespace that it may wait in.
pub(crate) fn flush(iface: &Iface) -> Option<Arc<Inbox>> {
    if !iface.unflushed.load(Ordering::Acquire) || !iface.unflushed.swap(false, Ordering::AcqRel) {
        return None;
    }
    match &iface.driver {
        Driver::Device(device) => {
            device.flush();
            None
        }
        Driver::Veth(pair, end) => pair.other(*end).map(|peer| peer.inbox.clone()),
        // The device below ends its batch with an operation of its own namespace.
        Driver::Vlan(vlan) => {
            let lower = vlan.lower.read().upgrade()?;
            (!Arc::ptr_eq(&lower.inbox, &iface.inbox)).then(|| lower.inbox.clone())
        }
        Driver::Loopback | Driver::Dummy | Driver::Bridge(_) => None,
    }
}

/// A frame arrives on an interface: it waits in the interface's inbox.
pub(crate) fn arrive(flow: u32, iface: &Arc<Iface>, frame: Frame) {
    if !iface.inbox.push(flow, iface.clone(), frame, Way::In) {
        iface.counters.rx_dropped.bump();
    }
}

/// A packet that an interface sends to its own host arrives there.
pub(crate) fn loop_back(flow: u32, iface: &Arc<Iface>, mut frame: Frame) {
    if frame.offload.checksum == Checksum::Unknown {
        frame.offload.checksum = Checksum::Valid;
    }
    // The packet leaves its socket here; mark and connection stay.
    frame.tags.owner = None;
    iface.counters.tx_packets.bump();
    iface.counters.tx_bytes.add(frame.buf.len() as u64);
    arrive(flow, iface, frame);
}

/// Sends a frame as the driver can take it: with complete checksum, cut into segments.
pub(crate) fn send_cut(iface: &Iface, mut frame: Frame) {
    let features = iface.features();
    let link = if iface.kind == Kind::Tunnel { 0 } else { Ethernet::LEN };
    let v6 = frame.buf.get(link..).and_then(<[u8]>::first).is_some_and(|first| first >> 4 == 6);
    let cut = frame.offload.gso.is_some() && !(if v6 { features.tso6 } else { features.tso4 });
    if !cut && (features.checksum || frame.offload == Offload::default()) {
        return transmit(iface, frame);
    }
    let ethernet: Buf = frame.buf.slice(0, link);
    frame.buf.trim_front(link);
    if !cut {
        finish_checksum(&mut frame);
        frame.buf.push_front(&ethernet);
        return transmit(iface, frame);
    }
    for mut part in crate::gso::cut(&frame) {
        part.buf.push_front(&ethernet);
        transmit(iface, part);
    }
}

/// Sends a frame of a VLAN interface or a bridge by an interface below. One that stands upon others again has its turn later.
fn pass_down(iface: &Arc<Iface>, frame: Frame) {
    if !iface.is_above() {
        return send_cut(iface, frame);
    }
    if !iface.inbox.push(flow_of(&frame.buf), iface.clone(), frame, Way::Out) {
        iface.counters.tx_dropped.bump();
    }
}

/// Sends a frame of a VLAN interface by the interface below, with its tag.
fn by_vlan(vlan: &Vlan<Iface>, mut frame: Frame) {
    let Some(lower) = vlan.lower.read().upgrade().filter(|lower| lower.is_up()) else { return };
    if vlan::add_tag(&mut frame.buf, vlan.id) {
        pass_down(&lower, frame);
    }
}

/// Sends a frame of a bridge to the port that leads to `dst`, or to all but the one that it came from.
pub(crate) fn by_bridge(bridge: &Bridge<Iface>, dst: Mac, from: Option<&Iface>, frame: Frame) {
    let port_of = |dst| {
        let now = Ktime::from_nanos(bridge.now.load(Ordering::Relaxed));
        let ageing = bridge.settings.read().ageing;
        bridge.table.lock().port_of(dst, now, ageing)
    };
    let known = if dst.is_multicast() { None } else { port_of(dst) };
    let isolated = from.is_some_and(|from| from.port_settings().isolated);
    let takes = |port: &&Arc<Iface>| {
        let to: PortSettings = port.port_settings();
        let back = from.is_some_and(|from| from.index == port.index);
        let meant = known.map_or_else(|| to.floods(dst), |known| known == port.index);
        meant && port.is_up() && (!back || to.hairpin) && !(isolated && to.isolated)
    };
    let ports = bridge.ports.read();
    ports.iter().filter(takes).for_each(|port| pass_down(port, frame.clone()));
}
