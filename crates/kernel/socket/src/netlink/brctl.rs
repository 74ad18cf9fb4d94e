//! The ioctls of brctl(8): SIOCBRADDBR, SIOCBRDELBR, SIOCBRADDIF and SIOCBRDELIF, and the older SIOCSIFBR and
//! SIOCDEVPRIVATE. brctl tries the latter after the former and shows their errors. What it shows of bridges is in
//! /sys/class/net.

use super::create::random_mac;
use super::request::free_name;
use crate::net_ns::NetNamespace;
use abi::{Errno, Result};
use caller::UserMemory;
use netstack::iface::{Config, Iface, Kind};
use rights::Cap;
use std::sync::Arc;
use vfs::Caller;

pub(super) const SIOCBRADDBR: u32 = 0x89a0;
const SIOCBRDELBR: u32 = 0x89a1;
const SIOCBRADDIF: u32 = 0x89a2;
pub(super) const SIOCBRDELIF: u32 = 0x89a3;
/// IFNAMSIZ, which is also where the number of a port is in a `struct ifreq`.
const NAME: usize = 16;
/// The older ones, for all bridges and for one.
pub(super) const SIOCSIFBR: u32 = 0x8941;
pub(super) const SIOCDEVPRIVATE: u32 = 0x89f0;
/// BRCTL_*: what the older ones are to do.
const OLD: [(u64, u32); 4] = [(2, SIOCBRADDBR), (3, SIOCBRDELBR), (4, SIOCBRADDIF), (5, SIOCBRDELIF)];
/// MTU of Ethernet.
const MTU: u32 = 1500;

/// Answers one of them.
pub(super) fn ioctl(
    cx: &dyn Caller,
    net: &NetNamespace,
    mem: &mut dyn UserMemory,
    (cmd, arg): (u32, u64),
) -> Result<u64> {
    if !net.shows_stack() {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut request = [0; NAME + 4];
    let cmd = match cmd {
        SIOCSIFBR => {
            let (cmd, name) = old(mem, arg)?;
            mem.copy_in(name, &mut request[..NAME])?;
            Some(cmd).filter(|cmd| !of_port(*cmd)).ok_or(Errno::EOPNOTSUPP)?
        }
        SIOCDEVPRIVATE => {
            let mut device = [0; NAME + 8];
            mem.copy_in(arg, &mut device)?;
            let words = device[NAME..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
            request[..NAME].copy_from_slice(&device[..NAME]);
            let bridge = named(net, &request).ok_or(Errno::ENODEV)?;
            if !net.stack().is_bridge(bridge.index) {
                return Err(Errno::EOPNOTSUPP);
            }
            let (cmd, port) = old(mem, words)?;
            request[NAME..].copy_from_slice(&(port as u32).to_ne_bytes());
            Some(cmd).filter(|cmd| of_port(*cmd)).ok_or(Errno::EOPNOTSUPP)?
        }
        cmd => {
            mem.copy_in(arg, if of_port(cmd) { &mut request } else { &mut request[..NAME] })?;
            cmd
        }
    };
    if !cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN) {
        return Err(Errno::EPERM);
    }
    let name = name_in(&request);
    let (stack, _rtnl) = (net.stack(), net.rtnl());
    if cmd == SIOCBRADDBR {
        let name = free_name(stack, name).map_err(|refusal| refusal.errno)?;
        stack.add_bridge(Config { name, kind: Kind::Ethernet, mac: random_mac(), mtu: MTU })?;
        return Ok(0);
    }
    let bridge = named(net, &request);
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

fn of_port(cmd: u32) -> bool {
    matches!(cmd, SIOCBRADDIF | SIOCBRDELIF)
}

/// What an older ioctl is to do, and with what: two numbers in memory.
fn old(mem: &mut dyn UserMemory, at: u64) -> Result<(u32, u64)> {
    let mut words = [[0; 8]; 2];
    for (n, word) in words.iter_mut().enumerate() {
        mem.copy_in(at.wrapping_add(8 * n as u64), word)?;
    }
    let [what, with] = words.map(u64::from_ne_bytes);
    let known = OLD.iter().find(|(number, _)| *number == what).ok_or(Errno::EOPNOTSUPP)?;
    Ok((known.1, with))
}

fn name_in(request: &[u8; NAME + 4]) -> &[u8] {
    request[..NAME - 1].split(|&b| b == 0).next().unwrap_or_default()
}

fn named(net: &NetNamespace, request: &[u8; NAME + 4]) -> Option<Arc<Iface>> {
    std::str::from_utf8(name_in(request)).ok().and_then(|name| net.stack().link_by_name(name))
}
