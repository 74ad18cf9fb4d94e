//! Devices inside: queues for TUN and TAP, veth pairs, bridges.

use crate::backlog::Arrival;
use crate::buf::Buf;
use crate::device::{About, Device, Features, Frame, Offload};
use crate::iface::{Config, Iface, Kind};
use crate::notify::{Events, Notifier};
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::eth::{Ethernet, Mac};
use abi::Errno;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Frames that wait for the reader of a TUN or TAP device (`tx_queue_len`).
const QUEUE_FRAMES: usize = 500;

/// The device behind a TUN or TAP file: what the stack sends waits for a reader. What a writer writes goes to
/// [`Stack::receive`].
pub struct QueueDevice {
    queue: Mutex<VecDeque<Frame>>,
    features: Features,
    notify: Notifier,
}

impl QueueDevice {
    /// An empty queue. Features are what the reader takes (`TUNSETOFFLOAD`).
    pub fn new(features: Features, notify: Notifier) -> Arc<QueueDevice> {
        Arc::new(QueueDevice { queue: Mutex::default(), features, notify })
    }

    /// Takes the oldest frame.
    pub fn pop(&self) -> Option<Frame> {
        self.queue.lock().pop_front()
    }

    /// True when a frame waits.
    pub fn is_ready(&self) -> bool {
        !self.queue.lock().is_empty()
    }
}

impl Device for QueueDevice {
    fn features(&self) -> Features {
        self.features
    }

    fn about(&self) -> About {
        About { kind: "tun", ..About::default() }
    }

    fn transmit(&self, frame: Frame) {
        let mut queue = self.queue.lock();
        if queue.len() < QUEUE_FRAMES {
            queue.push_back(frame);
            drop(queue);
            self.notify.changed(Events::IN);
        }
    }
}

impl fmt::Debug for QueueDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueDevice({} frames)", self.queue.lock().len())
    }
}

/// One end of a pair: what it sends arrives at the other.
#[derive(Default)]
struct Veth {
    peer: OnceLock<(Weak<Stack>, Weak<Iface>)>,
}

impl Device for Veth {
    fn features(&self) -> Features {
        // Frames stay in memory, so nobody needs checksums or segments.
        Features { checksum: true, tso4: true, tso6: true }
    }

    fn transmit(&self, frame: Frame) {
        let Some((stack, iface)) = self.peer.get() else { return };
        if let (Some(stack), Some(iface)) = (stack.upgrade(), iface.upgrade()) {
            let flow = flow_of(&frame.buf);
            if !stack.backlog.push(flow, Arrival { iface: iface.clone(), frame }) {
                iface.counters.rx_dropped.bump();
            }
        }
    }

    fn about(&self) -> About {
        let peer = self.peer.get().and_then(|(_, iface)| iface.upgrade());
        let no_carrier = !peer.as_ref().is_some_and(|peer| peer.is_up());
        About { kind: "veth", lower: peer.map_or(0, |peer| peer.index), vlan: None, no_carrier }
    }

    fn other_end(&self) -> Option<Arc<Stack>> {
        self.peer.get().and_then(|(stack, _)| stack.upgrade())
    }

    fn partner(&self) -> Option<(Arc<Stack>, u32)> {
        let (stack, iface) = self.peer.get()?;
        Some((stack.upgrade()?, iface.upgrade()?.index))
    }
}

/// Keeps the packets of a flow together: addresses and ports, wherever they are.
fn flow_of(bytes: &[u8]) -> u32 {
    let part = bytes.get(26..58.min(bytes.len())).unwrap_or_default();
    part.iter().fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte))
}

impl Stack {
    /// Makes a pair of interfaces that are down: one in this stack, one in `other`, which may be the same.
    pub fn add_veth(
        self: &Arc<Self>,
        own: Config,
        other: (&Arc<Stack>, Config),
    ) -> Result<(Arc<Iface>, Arc<Iface>), Errno> {
        let (near, far) = (Arc::new(Veth::default()), Arc::new(Veth::default()));
        let peer = other.0.insert_link(Config { kind: Kind::Ethernet, ..other.1 }, far.clone())?;
        let own = match self.insert_link(Config { kind: Kind::Ethernet, ..own }, near.clone()) {
            Ok(own) => own,
            Err(errno) => {
                other.0.remove_link(peer.index)?;
                return Err(errno);
            }
        };
        let _ = near.peer.set((Arc::downgrade(other.0), Arc::downgrade(&peer)));
        let _ = far.peer.set((Arc::downgrade(self), Arc::downgrade(&own)));
        other.0.named(&peer);
        self.named(&own);
        Ok((own, peer))
    }

    /// Makes a bridge without ports. It is an interface that is down.
    pub fn add_bridge(self: &Arc<Self>, config: Config) -> Result<Arc<Iface>, Errno> {
        let bridge = Arc::new(Bridge::default());
        let link = self.add_link(Config { kind: Kind::Ethernet, ..config }, bridge.clone())?;
        let _ = bridge.own.set(Arc::downgrade(&link));
        self.bridges.write().insert(link.index, bridge);
        Ok(link)
    }

    /// Whether an interface is a bridge.
    pub fn is_bridge(&self, index: u32) -> bool {
        self.bridges.read().contains_key(&index)
    }

    /// For an interface that goes: no bridge has it as a port, and it has no ports itself.
    pub(crate) fn leave_bridges(&self, link: &Iface) {
        if let Some(bridge) = link.set_master(None) {
            bridge.remove(link);
        }
        let bridge = self.bridges.write().remove(&link.index);
        let ports = bridge.map(|bridge| std::mem::take(&mut *bridge.ports.write()));
        for port in ports.into_iter().flatten() {
            port.set_master(None);
        }
    }

    /// Makes an interface a port of a bridge, or takes it out.
    pub fn set_master(&self, port: u32, bridge: Option<u32>) -> Result<(), Errno> {
        let port = self.link(port).filter(|link| link.kind == Kind::Ethernet).ok_or(Errno::EINVAL)?;
        if bridge == Some(port.index) {
            return Err(Errno::ELOOP);
        }
        let wanted = match bridge {
            Some(index) => Some(self.bridges.read().get(&index).cloned().ok_or(Errno::ENODEV)?),
            None => None,
        };
        let index = port.index;
        if let Some(old) = port.set_master(wanted.clone()) {
            old.remove(&port);
        }
        if let Some(bridge) = wanted {
            bridge.ports.write().push(port);
        }
        self.configure_link(index, |_| {})
    }

    /// Takes a frame that a port of a bridge received. Returns it when it is for the bridge's own interface.
    pub(crate) fn bridge_input(
        &self,
        bridge: &Bridge,
        now: Instant,
        port: &Arc<Iface>,
        frame: Frame,
    ) -> Option<(Arc<Iface>, Frame)> {
        let header = Ethernet::parse(&frame.buf)?;
        let own = bridge.own.get().and_then(Weak::upgrade)?;
        bridge.learn(header.src, port.index, now);
        // Link-local groups (spanning tree and the like) are never sent on (IEEE 802.1D section 7.12.6).
        if header.dst.0[..5] == [1, 0x80, 0xc2, 0, 0] {
            return None;
        }
        if header.dst == own.mac() {
            return Some((own, frame));
        }
        if header.dst.is_multicast() {
            bridge.send(header.dst, Some(port.index), frame.clone());
            return Some((own, frame));
        }
        bridge.send(header.dst, Some(port.index), frame);
        None
    }
}

/// Addresses that a bridge remembers.
const MAX_LEARNT: usize = 4096;

/// How long it remembers them.
const AGEING: Duration = Duration::from_secs(300);

/// A learning bridge (IEEE 802.1D without spanning tree: a loop of bridges sends a broadcast round until queues are full).
#[derive(Default)]
pub(crate) struct Bridge {
    own: OnceLock<Weak<Iface>>,
    ports: RwLock<Vec<Arc<Iface>>>,
    learnt: Mutex<HashMap<Mac, (u32, Instant)>>,
    /// The time of the latest input, in nanoseconds; sending knows no time.
    now: AtomicU64,
}

impl Bridge {
    fn learn(&self, mac: Mac, port: u32, now: Instant) {
        self.now.fetch_max(now.nanos(), Ordering::Relaxed);
        let mut learnt = self.learnt.lock();
        if mac.is_multicast() {
            return;
        }
        if learnt.len() >= MAX_LEARNT && !learnt.contains_key(&mac) {
            learnt.retain(|_, (_, at)| now.since(*at) < AGEING);
            if learnt.len() >= MAX_LEARNT {
                return;
            }
        }
        learnt.insert(mac, (port, now));
    }

    fn port_of(&self, mac: Mac) -> Option<u32> {
        let now = Instant::from_nanos(self.now.load(Ordering::Relaxed));
        let learnt = self.learnt.lock();
        learnt.get(&mac).filter(|(_, at)| now.since(*at) < AGEING).map(|(port, _)| *port)
    }

    /// Sends a frame to the port that leads to `dst`, or to all but the one that it came from.
    fn send(&self, dst: Mac, from: Option<u32>, frame: Frame) {
        let known = if dst.is_multicast() { None } else { self.port_of(dst) };
        let ports = self.ports.read();
        let others = ports.iter().filter(|port| Some(port.index) != from && port.is_up());
        for port in others.filter(|port| known.is_none_or(|known| known == port.index)) {
            port.send_cut(frame.clone());
        }
    }

    fn remove(&self, port: &Iface) {
        self.ports.write().retain(|other| other.index != port.index);
        self.learnt.lock().retain(|_, (index, _)| *index != port.index);
    }
}

impl Device for Bridge {
    fn features(&self) -> Features {
        Features { checksum: true, tso4: true, tso6: true }
    }

    fn about(&self) -> About {
        let no_carrier = !self.ports.read().iter().any(|port| port.is_up());
        About { kind: "bridge", no_carrier, ..About::default() }
    }

    fn transmit(&self, frame: Frame) {
        if let Some(header) = Ethernet::parse(&frame.buf) {
            self.send(header.dst, None, frame);
        }
    }
}

impl Iface {
    /// Index of the bridge that the interface is a port of.
    pub fn master_index(&self) -> Option<u32> {
        Some(self.master()?.own.get()?.upgrade()?.index)
    }

    /// Sends a frame with its Ethernet header as the device can take it: with complete checksum, cut into segments.
    pub(crate) fn send_cut(&self, mut frame: Frame) {
        let features = self.features();
        let v6 = frame.buf.get(12..14) == Some(&[0x86, 0xdd]);
        let cut = frame.offload.gso.is_some() && !(if v6 { features.tso6 } else { features.tso4 });
        if !cut && (features.checksum || frame.offload == Offload::default()) {
            return self.transmit(frame);
        }
        let ethernet: Buf = frame.buf.slice(0, Ethernet::LEN);
        frame.buf.trim_front(Ethernet::LEN);
        if !cut {
            crate::output::finish_checksum(&mut frame);
            frame.buf.push_front(&ethernet);
            return self.transmit(frame);
        }
        for mut part in crate::gso::cut(&frame) {
            part.buf.push_front(&ethernet);
            self.transmit(part);
        }
    }
}
