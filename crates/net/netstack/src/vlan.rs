//! VLAN interfaces (IEEE 802.1Q), and dummy interfaces, which lose what they are given.

use crate::backlog::{Arrival, Way};
use crate::device::{About, Device};
use crate::frame::Frame;
use crate::iface::{Config, Iface, Kind};
use crate::links::{Place, flow_of};
use crate::nest::Upon;
use crate::stack::Stack;
use crate::wire::eth;
use abi::Errno;
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, Weak};

/// Where the tag is in a frame: behind both addresses.
const TAG_AT: usize = 12;
const TAG: usize = 4;
/// The bits of a tag that name the VLAN.
const ID: u16 = 0x0fff;

/// A VLAN interface as the stack of the interface below knows it.
pub(crate) struct Above {
    stack: Weak<Stack>,
    link: Arc<Iface>,
}

/// The device of a VLAN interface: frames get a tag and leave by the interface below, which may be in another stack.
struct Vlan {
    lower: RwLock<Place>,
    own: RwLock<Weak<Stack>>,
    upon: Mutex<Option<Upon>>,
    id: u16,
}

impl Vlan {
    fn lower(&self) -> Option<(Arc<Stack>, Arc<Iface>)> {
        let lower = self.lower.read();
        Some((lower.0.upgrade()?, lower.1.upgrade()?))
    }
}

impl Device for Vlan {
    fn transmit(&self, mut frame: Frame) {
        let Some((stack, lower)) = self.lower().filter(|(_, lower)| lower.is_up()) else { return };
        let Some(addresses) = frame.buf.first_chunk::<TAG_AT>().copied() else { return };
        frame.buf.trim_front(TAG_AT);
        frame.buf.push_front(&self.id.to_be_bytes());
        frame.buf.push_front(&eth::VLAN.to_be_bytes());
        frame.buf.push_front(&addresses);
        stack.pass_down(&lower, frame);
    }

    fn is_above(&self) -> bool {
        true
    }

    fn about(&self) -> About {
        let lower = self.lower();
        let no_carrier = !lower.as_ref().is_some_and(|(_, lower)| lower.is_up());
        let index = lower.as_ref().map_or(0, |(_, lower)| lower.index);
        let lower_stack = lower.map(|(stack, _)| stack.number);
        About { kind: "vlan", lower: index, lower_stack, vlan: Some(self.id), no_carrier, ..About::default() }
    }

    fn other_end(&self) -> Option<Arc<Stack>> {
        // The device below ends its batch with an operation of its own stack.
        let (stack, own) = (self.lower()?.0, self.own.read());
        (!std::ptr::eq(Arc::as_ptr(&stack), own.as_ptr())).then_some(stack)
    }

    fn is_movable(&self) -> bool {
        true
    }

    fn moved(&self, to: &Arc<Stack>, link: &Arc<Iface>) {
        *self.own.write() = Arc::downgrade(to);
        if let Some((stack, lower)) = self.lower() {
            let above = Above { stack: Arc::downgrade(to), link: link.clone() };
            stack.vlans.write().insert((lower.index, self.id), above);
        }
    }

    fn removed(&self) {
        if let Some((stack, lower)) = self.lower() {
            stack.vlans.write().remove(&(lower.index, self.id));
        }
        *self.upon.lock() = None;
    }

    fn lower_moved(&self, to: &Arc<Stack>, lower: &Arc<Iface>) {
        *self.lower.write() = (Arc::downgrade(to), Arc::downgrade(lower));
    }
}

/// A device that loses all frames.
struct Dummy;

impl Device for Dummy {
    fn transmit(&self, _frame: Frame) {}

    fn about(&self) -> About {
        About { kind: "dummy", ..About::default() }
    }

    fn is_movable(&self) -> bool {
        true
    }
}

impl Stack {
    /// Makes an interface that loses what is sent by it.
    pub fn add_dummy(&self, config: Config) -> Result<Arc<Iface>, Errno> {
        self.add_link(Config { kind: Kind::Ethernet, ..config }, Arc::new(Dummy))
    }

    /// Makes an interface for one VLAN of an interface, which may be another stack's. `EEXIST` when there is one, `EMLINK`
    /// when too many interfaces stand upon each other.
    pub fn add_vlan(
        self: &Arc<Self>,
        config: Config,
        (below, lower): (&Arc<Stack>, &Arc<Iface>),
        id: u16,
    ) -> Result<Arc<Iface>, Errno> {
        if below.vlans.read().contains_key(&(lower.index, id)) {
            return Err(Errno::EEXIST);
        }
        self.memory.nest.check_on_top(lower.id)?;
        let place = (Arc::downgrade(below), Arc::downgrade(lower));
        let (lower_place, own) = (RwLock::new(place), RwLock::default());
        let device = Arc::new(Vlan { lower: lower_place, own, upon: Mutex::default(), id });
        let link = self.insert_link(Config { kind: Kind::Ethernet, ..config }, device.clone())?;
        match Upon::new(&self.memory.nest, lower.id, link.id) {
            Ok(upon) => *device.upon.lock() = Some(upon),
            Err(errno) => {
                self.remove_link(link.index)?;
                return Err(errno);
            }
        }
        device.moved(self, &link);
        self.named(&link);
        Ok(link)
    }

    /// The VLAN interfaces of an interface, and the stacks that they are in.
    pub(crate) fn vlans_above(&self, index: u32) -> Vec<(Arc<Stack>, Arc<Iface>)> {
        let vlans = self.vlans.read();
        let above = vlans.iter().filter(|((lower, _), _)| *lower == index);
        above.filter_map(|(_, above)| Some((above.stack.upgrade()?, above.link.clone()))).collect()
    }

    /// An interface of this stack has moved to another one; this VLAN interface above it stays where it is.
    pub(crate) fn vlan_follows(
        &self,
        (index, vlan): (u32, &Arc<Iface>),
        to: &Arc<Stack>,
        (stack, lower): (&Arc<Stack>, &Arc<Iface>),
    ) {
        self.vlans.write().retain(|(below, _), above| *below != index || !Arc::ptr_eq(&above.link, vlan));
        if let Some(device) = vlan.device() {
            device.lower_moved(to, lower);
            device.moved(stack, vlan);
        }
    }

    /// Takes a frame with a tag. Returns it without the tag when a VLAN interface of this stack receives it; one of a VLAN that has
    /// no interface is dropped.
    pub(crate) fn vlan_input(&self, lower: &Iface, mut frame: Frame) -> Option<(Arc<Iface>, Frame)> {
        let tag = frame.buf.get(TAG_AT + 2..TAG_AT + TAG).and_then(|tag| tag.try_into().ok());
        let id = tag.map(|tag| u16::from_be_bytes(tag) & ID);
        let above = id.and_then(|id| {
            let vlans = self.vlans.read();
            let above = vlans.get(&(lower.index, id))?;
            Some((above.stack.upgrade()?, above.link.clone()))
        });
        let (Some((stack, vlan)), Some(addresses)) = (above, frame.buf.first_chunk::<TAG_AT>().copied())
        else {
            lower.counters.rx_dropped.bump();
            return None;
        };
        frame.buf.trim_front(TAG_AT + TAG);
        frame.buf.push_front(&addresses);
        if std::ptr::eq(self, Arc::as_ptr(&stack)) {
            return Some((vlan, frame));
        }
        let arrival = Arrival { iface: vlan.clone(), frame, way: Way::In };
        if !stack.backlog.push(flow_of(&arrival.frame.buf), arrival) {
            vlan.counters.rx_dropped.bump();
        }
        self.hand_over(stack);
        None
    }
}
