//! The ioctls of brctl(8): SIOCBRADDBR, SIOCBRDELBR, SIOCBRADDIF and SIOCBRDELIF. What it shows is in /sys/class/net.

use super::change::free_name;
use super::create::random_mac;
use crate::net_ns::NetNamespace;
use abi::{Errno, Result};
use netstack::iface::{Config, Kind};
use vfs::{Caller, Cap, UserMemory};

pub(super) const SIOCBRADDBR: u32 = 0x89a0;
const SIOCBRDELBR: u32 = 0x89a1;
const SIOCBRADDIF: u32 = 0x89a2;
pub(super) const SIOCBRDELIF: u32 = 0x89a3;
/// IFNAMSIZ, which is also where the number of a port is in a `struct ifreq`.
const NAME: usize = 16;
/// MTU of Ethernet.
const MTU: u32 = 1500;

/// Answers one of them.
pub(super) fn ioctl(
    cx: &dyn Caller,
    net: &NetNamespace,
    mem: &mut dyn UserMemory,
    (cmd, arg): (u32, u64),
) -> Result<u64> {
    if !cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN) {
        return Err(Errno::EPERM);
    }
    if !net.shows_stack() {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut request = [0; NAME + 4];
    let of_port = matches!(cmd, SIOCBRADDIF | SIOCBRDELIF);
    mem.copy_in(arg, if of_port { &mut request } else { &mut request[..NAME] })?;
    let name = request[..NAME - 1].split(|&b| b == 0).next().unwrap_or_default();
    let (stack, _rtnl) = (net.stack(), net.rtnl());
    if cmd == SIOCBRADDBR {
        let name = free_name(stack, name).map_err(|refusal| refusal.errno)?;
        stack.add_bridge(Config { name, kind: Kind::Ethernet, mac: random_mac(), mtu: MTU })?;
        return Ok(0);
    }
    let bridge = std::str::from_utf8(name).ok().and_then(|name| stack.link_by_name(name));
    if cmd == SIOCBRDELBR {
        let bridge = bridge.ok_or(Errno::ENXIO)?;
        return match (stack.is_bridge(bridge.index), bridge.is_up()) {
            (false, _) => Err(Errno::EPERM),
            (true, true) => Err(Errno::EBUSY),
            (true, false) => stack.remove_link(bridge.index).map(|()| 0),
        };
    }
    let bridge = bridge.ok_or(Errno::ENODEV)?;
    if !stack.is_bridge(bridge.index) {
        return Err(Errno::EOPNOTSUPP);
    }
    let port = u32::from_ne_bytes([request[NAME], request[NAME + 1], request[NAME + 2], request[NAME + 3]]);
    let port = stack.link(port).ok_or(Errno::EINVAL)?;
    match (cmd, port.master_index()) {
        (SIOCBRADDIF, Some(_)) => return Err(Errno::EBUSY),
        (SIOCBRADDIF, None) => stack.set_master(port.index, Some(bridge.index))?,
        (_, master) if master != Some(bridge.index) => return Err(Errno::EINVAL),
        _ => stack.set_master(port.index, None)?,
    }
    Ok(0)
}
