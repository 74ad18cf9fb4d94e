//! What lists show of an interface's driver.

use super::bridge::PortSettings;
use super::driver::{About, Driver};
use super::iface::Iface;

impl Iface {
    /// What the interface's driver is; nothing for the loopback interface.
    pub fn about(&self) -> About {
        match &self.driver {
            Driver::Loopback => About::default(),
            Driver::Device(device) => device.about(),
            Driver::Dummy => About { kind: "dummy", ..About::default() },
            Driver::Veth(pair, end) => beside("veth", pair.other(*end).as_deref()),
            Driver::Vlan(vlan) => {
                let about = beside("vlan", vlan.lower.read().upgrade().as_deref());
                About { vlan: Some(vlan.id), ..about }
            }
            Driver::Bridge(bridge) => {
                let no_carrier = !bridge.ports.read().iter().any(|port| port.is_up());
                About {
                    kind: "bridge",
                    no_carrier,
                    bridge: Some(*bridge.settings.read()),
                    ..About::default()
                }
            }
        }
    }

    /// What it is set to as a port of a bridge, and whether it passes frames on.
    pub fn as_port(&self) -> Option<(PortSettings, bool)> {
        let bridge = self.master()?;
        Some((self.port_settings(), bridge.is_up() && self.is_up() && !self.about().no_carrier))
    }
}

/// What a driver of the kind is whose frames go to one other interface.
fn beside(kind: &'static str, other: Option<&Iface>) -> About {
    About {
        kind,
        lower: other.map_or(0, |other| other.index),
        lower_stack: other.map(|other| other.inbox.number),
        no_carrier: !other.is_some_and(|other| other.is_up()),
        ..About::default()
    }
}
