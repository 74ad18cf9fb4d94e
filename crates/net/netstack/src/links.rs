//! Devices inside: queues for TUN and TAP, veth pairs, bridges.

use crate::backlog::{Arrival, Way};
use crate::buf::Buf;
use crate::device::{About, Device, Features};
use crate::frame::{Frame, Offload};
use crate::iface::{Config, Iface, Kind};
use crate::memory::Memory;
use crate::nest::Upon;
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

/// Where an interface is. Weak: interfaces of two stacks that know each other keep neither stack.
pub(crate) type Place = (Weak<Stack>, Weak<Iface>);

/// A pair: where its two ends are.
#[derive(Default)]
struct Pair([RwLock<Option<Place>>; 2]);

/// One end of a pair: what it sends arrives at the other.
struct Veth {
    pair: Arc<Pair>,
    /// 0 or 1.
    end: usize,
}

impl Veth {
    fn peer(&self) -> Option<(Arc<Stack>, Arc<Iface>)> {
        let place = self.pair.0[1 - self.end].read();
        let (stack, iface) = place.as_ref()?;
        Some((stack.upgrade()?, iface.upgrade()?))
    }
}

impl Device for Veth {
    fn features(&self) -> Features {
        // Frames stay in memory, so nobody needs checksums or segments.
        Features { checksum: true, tso4: true, tso6: true }
    }

    fn transmit(&self, frame: Frame) {
        if let Some((stack, iface)) = self.peer() {
            let flow = flow_of(&frame.buf);
            if !stack.backlog.push(flow, Arrival { iface: iface.clone(), frame, way: Way::In }) {
                iface.counters.rx_dropped.bump();
            }
        }
    }

    fn about(&self) -> About {
        let peer = self.peer();
        let no_carrier = !peer.as_ref().is_some_and(|(_, peer)| peer.is_up());
        let lower = peer.as_ref().map_or(0, |(_, peer)| peer.index);
        About {
            kind: "veth",
            lower,
            lower_stack: peer.map(|peer| peer.0.number),
            no_carrier,
            ..About::default()
        }
    }

    fn other_end(&self) -> Option<Arc<Stack>> {
        self.peer().map(|(stack, _)| stack)
    }

    fn partner(&self) -> Option<(Arc<Stack>, Arc<Iface>)> {
        self.peer()
    }

    fn is_movable(&self) -> bool {
        true
    }

    fn moved(&self, to: &Arc<Stack>, link: &Arc<Iface>) {
        *self.pair.0[self.end].write() = Some((Arc::downgrade(to), Arc::downgrade(link)));
    }
}

/// Keeps the packets of a flow together: addresses and ports, wherever they are.
pub(crate) fn flow_of(bytes: &[u8]) -> u32 {
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
        let pair = Arc::<Pair>::default();
        let end = |end| Arc::new(Veth { pair: pair.clone(), end });
        let (near, far) = (end(0), end(1));
        let peer = other.0.insert_link(Config { kind: Kind::Ethernet, ..other.1 }, far.clone())?;
        let own = match self.insert_link(Config { kind: Kind::Ethernet, ..own }, near.clone()) {
            Ok(own) => own,
            Err(errno) => {
                other.0.remove_link(peer.index)?;
                return Err(errno);
            }
        };
        near.moved(self, &own);
        far.moved(other.0, &peer);
        other.0.named(&peer);
        self.named(&own);
        Ok((own, peer))
    }

    /// Makes a bridge without ports. It is an interface that is down.
    pub fn add_bridge(self: &Arc<Self>, config: Config) -> Result<Arc<Iface>, Errno> {
        let bridge = Arc::new(Bridge::default());
        let link = self.add_link(Config { kind: Kind::Ethernet, ..config }, bridge.clone())?;
        let _ = bridge.own.set((Arc::downgrade(self), Arc::downgrade(&link)));
        self.bridges.write().insert(link.index, bridge);
        Ok(link)
    }

    /// Whether an interface is a bridge.
    pub fn is_bridge(&self, index: u32) -> bool {
        self.bridges.read().contains_key(&index)
    }

    /// Changes the settings of a bridge.
    pub fn set_bridge(&self, index: u32, settings: BridgeSettings) -> Result<(), Errno> {
        let bridge = self.bridges.read().get(&index).cloned().ok_or(Errno::ENODEV)?;
        *bridge.settings.write() = settings;
        Ok(())
    }

    /// Changes the settings of a port of a bridge. `EOPNOTSUPP` for an interface that is none.
    pub fn set_port(&self, index: u32, change: impl FnOnce(&mut PortSettings)) -> Result<(), Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        let Some(_) = link.master() else { return Err(Errno::EOPNOTSUPP) };
        let mut settings = link.port_settings();
        change(&mut settings);
        link.set_port_settings(settings);
        self.configure_link(index, |_| {})
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

    /// Makes an interface a port of a bridge, or takes it out. `ELOOP` for a bridge, `EBUSY` for an interface that the bridge's frames
    /// leave by already or that stands upon the bridge, `EMLINK` when too many interfaces stand upon each other.
    pub fn set_master(&self, port: u32, bridge: Option<u32>) -> Result<(), Errno> {
        let port = self.link(port).filter(|link| link.kind == Kind::Ethernet).ok_or(Errno::EINVAL)?;
        let wanted = match bridge {
            Some(index) => Some(self.bridges.read().get(&index).cloned().ok_or(Errno::ENODEV)?),
            None => None,
        };
        let index = port.index;
        if wanted.is_some() && self.is_bridge(index) {
            return Err(Errno::ELOOP);
        }
        if let (Some(wanted), Some(own)) = (&wanted, port.master())
            && Arc::ptr_eq(wanted, &own)
        {
            return Ok(());
        }
        let old = port.set_master(None);
        if let Some(old) = &old {
            old.remove(&port);
        }
        let taken = wanted.map_or(Ok(()), |bridge| bridge.take(&self.memory, port));
        if taken.is_ok() || old.is_some() {
            self.configure_link(index, |_| {})?;
        }
        taken
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
        let own = bridge.own()?;
        bridge.learn(header.src, port, now);
        // Link-local groups (spanning tree and the like) are never sent on (IEEE 802.1D section 7.12.6).
        if header.dst.0[..5] == [1, 0x80, 0xc2, 0, 0] {
            return None;
        }
        if header.dst == own.mac() {
            return Some((own, frame));
        }
        if header.dst.is_multicast() {
            bridge.send(header.dst, Some(port), frame.clone());
            return Some((own, frame));
        }
        bridge.send(header.dst, Some(port), frame);
        None
    }
}

/// Addresses that a bridge remembers.
const MAX_LEARNT: usize = 4096;

/// What a bridge is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// How long it remembers an address.
    pub ageing: Duration,
    /// Counts with a spanning tree only, which is not there.
    pub forward_delay: Duration,
}

impl Default for BridgeSettings {
    fn default() -> BridgeSettings {
        BridgeSettings { ageing: Duration::from_secs(300), forward_delay: Duration::from_secs(15) }
    }
}

/// What a port of a bridge is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSettings {
    /// Frames may leave by the port that they came from.
    pub hairpin: bool,
    /// Frames do not go from one such port to another.
    pub isolated: bool,
    /// Senders of its frames are remembered.
    pub learning: bool,
    /// Frames for an address that is not known leave by it.
    pub flood: bool,
    /// Frames for groups leave by it.
    pub multicast_flood: bool,
    /// Frames for all leave by it.
    pub broadcast_flood: bool,
}

impl Default for PortSettings {
    fn default() -> PortSettings {
        PortSettings {
            hairpin: false,
            isolated: false,
            learning: true,
            flood: true,
            multicast_flood: true,
            broadcast_flood: true,
        }
    }
}

impl PortSettings {
    /// Whether a frame that nobody knows the port for leaves by this one.
    fn floods(&self, dst: Mac) -> bool {
        match dst {
            Mac::BROADCAST => self.broadcast_flood,
            _ if dst.is_multicast() => self.multicast_flood,
            _ => self.flood,
        }
    }
}

/// A learning bridge (IEEE 802.1D without spanning tree: a loop of bridges sends a broadcast round until queues are full).
#[derive(Default)]
pub(crate) struct Bridge {
    own: OnceLock<Place>,
    ports: RwLock<Vec<Arc<Iface>>>,
    settings: RwLock<BridgeSettings>,
    learnt: Mutex<HashMap<Mac, (u32, Instant)>>,
    /// The time of the latest input, in nanoseconds; sending knows no time.
    now: AtomicU64,
}

impl Bridge {
    fn learn(&self, mac: Mac, port: &Iface, now: Instant) {
        self.now.fetch_max(now.nanos(), Ordering::Relaxed);
        let ageing = self.settings.read().ageing;
        let mut learnt = self.learnt.lock();
        if mac.is_multicast() || !port.port_settings().learning {
            return;
        }
        if learnt.len() >= MAX_LEARNT && !learnt.contains_key(&mac) {
            learnt.retain(|_, (_, at)| now.since(*at) < ageing);
            if learnt.len() >= MAX_LEARNT {
                return;
            }
        }
        learnt.insert(mac, (port.index, now));
    }

    fn port_of(&self, mac: Mac) -> Option<u32> {
        let now = Instant::from_nanos(self.now.load(Ordering::Relaxed));
        let ageing = self.settings.read().ageing;
        let learnt = self.learnt.lock();
        learnt.get(&mac).filter(|(_, at)| now.since(*at) < ageing).map(|(port, _)| *port)
    }

    /// Sends a frame to the port that leads to `dst`, or to all but the one that it came from.
    fn send(&self, dst: Mac, from: Option<&Iface>, frame: Frame) {
        let known = if dst.is_multicast() { None } else { self.port_of(dst) };
        let isolated = from.is_some_and(|from| from.port_settings().isolated);
        let wanted = |port: &&Arc<Iface>| {
            let to = port.port_settings();
            let back = from.is_some_and(|from| from.index == port.index);
            let meant = known.map_or_else(|| to.floods(dst), |known| known == port.index);
            meant && port.is_up() && (!back || to.hairpin) && !(isolated && to.isolated)
        };
        let Some(stack) = self.own.get().and_then(|(stack, _)| stack.upgrade()) else { return };
        let ports = self.ports.read();
        ports.iter().filter(wanted).for_each(|port| stack.pass_down(port, frame.clone()));
    }

    /// Its interface.
    fn own(&self) -> Option<Arc<Iface>> {
        self.own.get()?.1.upgrade()
    }

    /// Makes an interface a port.
    fn take(self: Arc<Self>, shared: &Arc<Memory>, port: Arc<Iface>) -> Result<(), Errno> {
        let own = self.own().ok_or(Errno::ENODEV)?;
        let upon = Upon::new(&shared.nest, port.id, own.id)?;
        port.set_master(Some((self.clone(), upon)));
        self.ports.write().push(port);
        Ok(())
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
        About { kind: "bridge", no_carrier, bridge: Some(*self.settings.read()), ..About::default() }
    }

    fn transmit(&self, frame: Frame) {
        if let Some(header) = Ethernet::parse(&frame.buf) {
            self.send(header.dst, None, frame);
        }
    }

    fn is_above(&self) -> bool {
        true
    }
}

impl Iface {
    /// Index of the bridge that the interface is a port of.
    pub fn master_index(&self) -> Option<u32> {
        Some(self.master()?.own()?.index)
    }

    /// What it is set to as a port of a bridge, and whether it passes frames on.
    pub fn as_port(&self) -> Option<(PortSettings, bool)> {
        let bridge = self.master()?.own()?;
        Some((self.port_settings(), bridge.is_up() && self.is_up() && !self.about().no_carrier))
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
            crate::frame::finish_checksum(&mut frame);
            frame.buf.push_front(&ethernet);
            return self.transmit(frame);
        }
        for mut part in crate::gso::cut(&frame) {
            part.buf.push_front(&ethernet);
            self.transmit(part);
        }
    }
}
