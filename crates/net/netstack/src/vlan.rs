//! VLAN interfaces (IEEE 802.1Q), and dummy interfaces, which lose what they are given.

use crate::device::{About, Device, Frame};
use crate::iface::{Config, Iface, Kind};
use crate::stack::Stack;
use crate::time::Instant;
use crate::wire::eth;
use abi::Errno;
use std::sync::{Arc, Weak};

/// Where the tag is in a frame: behind both addresses.
const TAG_AT: usize = 12;
const TAG: usize = 4;
/// The bits of a tag that name the VLAN.
const ID: u16 = 0x0fff;

/// The device of a VLAN interface: frames get a tag and leave by the interface below.
struct Vlan {
    lower: Weak<Iface>,
    index: u32,
    id: u16,
}

impl Device for Vlan {
    fn transmit(&self, mut frame: Frame) {
        let Some(lower) = self.lower.upgrade().filter(|lower| lower.is_up()) else { return };
        let Some(addresses) = frame.buf.first_chunk::<TAG_AT>().copied() else { return };
        frame.buf.trim_front(TAG_AT);
        frame.buf.push_front(&self.id.to_be_bytes());
        frame.buf.push_front(&eth::VLAN.to_be_bytes());
        frame.buf.push_front(&addresses);
        lower.transmit(frame);
    }

    fn about(&self) -> About {
        let no_carrier = !self.lower.upgrade().is_some_and(|lower| lower.is_up());
        About { kind: "vlan", lower: self.index, vlan: Some(self.id), no_carrier }
    }
}

/// A device that loses all frames.
struct Dummy;

impl Device for Dummy {
    fn transmit(&self, _frame: Frame) {}

    fn about(&self) -> About {
        About { kind: "dummy", ..About::default() }
    }
}

impl Stack {
    /// Makes an interface that loses what is sent by it.
    pub fn add_dummy(&self, config: Config) -> Result<Arc<Iface>, Errno> {
        self.add_link(Config { kind: Kind::Ethernet, ..config }, Arc::new(Dummy))
    }

    /// Makes an interface for one VLAN of another interface. `EEXIST` when there is one.
    pub fn add_vlan(&self, config: Config, lower: &Arc<Iface>, id: u16) -> Result<Arc<Iface>, Errno> {
        let mut vlans = self.vlans.write();
        if vlans.contains_key(&(lower.index, id)) {
            return Err(Errno::EEXIST);
        }
        let device = Arc::new(Vlan { lower: Arc::downgrade(lower), index: lower.index, id });
        let link = self.add_link(Config { kind: Kind::Ethernet, ..config }, device)?;
        vlans.insert((lower.index, id), link.clone());
        Ok(link)
    }

    /// The VLAN interfaces of an interface.
    pub(crate) fn vlans_above(&self, index: u32) -> Vec<u32> {
        let vlans = self.vlans.read();
        vlans.iter().filter(|((lower, _), _)| *lower == index).map(|(_, vlan)| vlan.index).collect()
    }

    /// Takes a frame with a tag. One of a VLAN that has no interface is dropped.
    pub(crate) fn vlan_input(self: &Arc<Self>, now: Instant, lower: &Arc<Iface>, mut frame: Frame) {
        let tag = frame.buf.get(TAG_AT + 2..TAG_AT + TAG).and_then(|tag| tag.try_into().ok());
        let id = tag.map(|tag| u16::from_be_bytes(tag) & ID);
        let vlan = id.and_then(|id| self.vlans.read().get(&(lower.index, id)).cloned());
        let (Some(vlan), Some(addresses)) = (vlan, frame.buf.first_chunk::<TAG_AT>().copied()) else {
            return lower.counters.rx_dropped.bump();
        };
        frame.buf.trim_front(TAG_AT + TAG);
        frame.buf.push_front(&addresses);
        // A second tag would be one more level: an interface above this one takes it.
        self.frame_input(now, &vlan, frame);
    }
}
