//! Settings of bridges in IFLA_INFO_DATA. There is no spanning tree, no filtering of VLANs and no snooping of
//! multicast: switching them on is EOPNOTSUPP, and they are shown as off.

use super::error::Result;
use super::wire::{self, Attribute};
use abi::Errno;
use netstack::bridge::BridgeSettings;
use std::time::Duration;

/// IFLA_BR_*.
const FORWARD_DELAY: u16 = 1;
const HELLO_TIME: u16 = 2;
const MAX_AGE: u16 = 3;
const AGEING_TIME: u16 = 4;
const STP_STATE: u16 = 5;
const PRIORITY: u16 = 6;
const VLAN_FILTERING: u16 = 7;
const MCAST_SNOOPING: u16 = 23;
/// USER_HZ.
const TICKS: u64 = 100;

fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() * u128::from(TICKS) / 1000).unwrap_or(u32::MAX)
}

/// The settings that attributes name; the others are as they were, or as of a new bridge.
pub(super) fn settings(data: &[u8], old: Option<BridgeSettings>) -> Result<BridgeSettings> {
    let mut settings = old.unwrap_or_default();
    for Attribute { kind, value, .. } in wire::list(data) {
        let number = || value.first_chunk().copied().map(u32::from_ne_bytes).ok_or(Errno::ERANGE);
        let byte = || value.first().copied().ok_or(Errno::ERANGE);
        let time = || number().map(|n| Duration::from_millis(u64::from(n) * 1000 / TICKS));
        match kind {
            AGEING_TIME => settings.ageing = time()?,
            FORWARD_DELAY => settings.forward_delay = time()?,
            STP_STATE if number()? == 0 => {}
            VLAN_FILTERING | MCAST_SNOOPING if byte()? == 0 => {}
            _ => return Err(Errno::EOPNOTSUPP.into()),
        }
    }
    Ok(settings)
}

/// Settings as a list shows them. Times and priority of the spanning tree are Linux's own at first.
pub(super) fn describe(settings: &BridgeSettings) -> Vec<u8> {
    let numbers = [
        (FORWARD_DELAY, ticks(settings.forward_delay)),
        (HELLO_TIME, 2 * TICKS as u32),
        (MAX_AGE, 20 * TICKS as u32),
        (AGEING_TIME, ticks(settings.ageing)),
        (STP_STATE, 0),
    ];
    let mut out: Vec<u8> =
        numbers.iter().flat_map(|(kind, value)| wire::nested(*kind, &value.to_ne_bytes())).collect();
    out.extend(wire::nested(PRIORITY, &0x8000u16.to_ne_bytes()));
    out.extend(wire::nested(VLAN_FILTERING, &[0]));
    out.extend(wire::nested(MCAST_SNOOPING, &[0]));
    out
}
