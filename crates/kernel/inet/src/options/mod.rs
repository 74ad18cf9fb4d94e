//! Socket options: those of SOL_SOCKET that the stack obeys. The levels of the protocols are in the modules; [`level`] says which
//! module has an option.

pub(crate) mod extension;
mod groups;
mod icmp;
mod ip;
mod level;
mod netfilter;
mod socket;
pub(crate) mod tcp;
mod udp;

pub(crate) use level::{get, get_at, set, set_at};
pub(crate) use socket::Socket;

use crate::control::Wants;
use crate::value::{int, read_int};
use ::socket::{NetNamespace, Options};
use abi::{Errno, Result};
use lock_order::Mutex;
use netstack::options::IpOptions;
use rights::Cap;
use std::collections::BTreeMap;
use vfs::Caller;

/// IFNAMSIZ.
const IFNAMSIZ: usize = 16;

const SO_BINDTOIFINDEX: i32 = 62;
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_BUF_LOCK: i32 = 72;
const SO_PASSRIGHTS: i32 = 83;

/// The most bytes that setsockopt(2) takes for an option.
pub(crate) fn longest(level: i32, name: i32) -> usize {
    /// Bytes of `struct group_source_req`.
    const USUAL: usize = 264;
    let more = if level == libc::IPPROTO_IPV6 { extension::longest(name) } else { None };
    more.or_else(|| groups::longest(name)).unwrap_or(USUAL)
}

/// The directions that shutdown(2) closes: reading, writing.
pub(crate) fn directions(how: i32) -> Result<(bool, bool)> {
    match how {
        libc::SHUT_RD => Ok((true, false)),
        libc::SHUT_WR => Ok((false, true)),
        libc::SHUT_RDWR => Ok((true, true)),
        _ => Err(Errno::EINVAL),
    }
}

/// Options of a socket that only the shell around the stack's socket knows.
#[derive(Default)]
pub(crate) struct Common {
    /// What readers are told of datagrams.
    pub(crate) wants: Wants,
    /// Values that are handed back, by level and name.
    kept: Mutex<BTreeMap<(i32, i32), i32>>,
}

impl Clone for Common {
    fn clone(&self) -> Common {
        Common { wants: self.wants.clone(), kept: Mutex::new(self.kept.lock().clone()) }
    }
}

impl Common {
    /// As plain data: what readers are told, and the kept values.
    pub(crate) fn state(&self) -> (u32, Vec<(i32, i32, i32)>) {
        let kept = self.kept.lock();
        (self.wants.bits(), kept.iter().map(|(&(level, name), &value)| (level, name, value)).collect())
    }

    /// Those of plain data.
    pub(crate) fn restore(wants: u32, kept: &[(i32, i32, i32)]) -> Common {
        let kept = kept.iter().map(|&(level, name, value)| ((level, name), value)).collect();
        Common { wants: Wants::of_bits(wants), kept: Mutex::new(kept) }
    }

    /// A value that was set, 0 if none was.
    pub(crate) fn kept(&self, level: i32, name: i32) -> i32 {
        self.kept.lock().get(&(level, name)).copied().unwrap_or(0)
    }

    /// Remembers a value.
    pub(crate) fn keep(&self, level: i32, name: i32, value: i32) {
        self.kept.lock().insert((level, name), value);
    }

    /// A SOL_SOCKET option that the stack or this crate knows better than the family-independent part.
    pub(crate) fn get(&self, net: &NetNamespace, o: &IpOptions, name: i32) -> Option<Result<Vec<u8>>> {
        let value = match name {
            libc::SO_REUSEPORT => o.reuse_port as i32,
            libc::SO_BINDTODEVICE => return Some(Ok(device_name(net, o.device))),
            SO_BINDTOIFINDEX => o.device as i32,
            SO_INCOMING_NAPI_ID | SO_BUF_LOCK => 0,
            libc::SO_PASSCRED | libc::SO_PASSSEC | SO_PASSRIGHTS => return Some(Err(Errno::EOPNOTSUPP)),
            _ => return None,
        };
        Some(Ok(int(value)))
    }

    /// Sets one.
    pub(crate) fn set(
        &self,
        cx: &dyn Caller,
        net: &NetNamespace,
        o: &mut IpOptions,
        name: i32,
        value: &[u8],
    ) -> Option<Result<()>> {
        match name {
            libc::SO_REUSEPORT => Some(read_int(value).map(|v| o.reuse_port = v != 0)),
            libc::SO_BINDTODEVICE => Some(named_device(net, value).and_then(|d| bind_device(cx, net, o, d))),
            SO_BINDTOIFINDEX => Some(indexed_device(value).and_then(|d| bind_device(cx, net, o, d))),
            libc::SO_PASSCRED | libc::SO_PASSSEC | SO_PASSRIGHTS => {
                Some(read_int(value).and(Err(Errno::EOPNOTSUPP)))
            }
            _ => None,
        }
    }
}

fn device_name(net: &NetNamespace, index: u32) -> Vec<u8> {
    let link = if index == 0 { None } else { net.stack().link(index) };
    link.map_or_else(Vec::new, |link| {
        let mut name = link.name().into_bytes();
        name.push(0);
        name
    })
}

/// The interface that SO_BINDTODEVICE names, 0 for none.
fn named_device(net: &NetNamespace, value: &[u8]) -> Result<u32> {
    let value = value.get(..IFNAMSIZ - 1).unwrap_or(value);
    let name = value.split(|&b| b == 0).next().unwrap_or_default();
    if name.is_empty() {
        return Ok(0);
    }
    let name = std::str::from_utf8(name).map_err(|_| Errno::ENODEV)?;
    net.stack().link_by_name(name).map(|link| link.index).ok_or(Errno::ENODEV)
}

/// The interface that SO_BINDTOIFINDEX names; it may come later.
fn indexed_device(value: &[u8]) -> Result<u32> {
    u32::try_from(read_int(value)?).map_err(|_| Errno::EINVAL)
}

/// A socket that is bound to a device already needs a privilege to change that.
fn bind_device(cx: &dyn Caller, net: &NetNamespace, o: &mut IpOptions, device: u32) -> Result<()> {
    if o.device != 0 && !cx.creds().ns_capable(net.user_ns(), Cap::NET_RAW) {
        return Err(Errno::EPERM);
    }
    o.device = device;
    Ok(())
}

/// SO_TIMESTAMP and its like: of the two units of time only one is told.
pub(crate) fn apply_wants(from: &Options, common: &Common, name: i32) {
    if !Wants::knows(libc::SOL_SOCKET, name) {
        return;
    }
    let other = match name {
        libc::SO_TIMESTAMP => Some(libc::SO_TIMESTAMPNS),
        libc::SO_TIMESTAMPNS => Some(libc::SO_TIMESTAMP),
        _ => None,
    };
    common.wants.set(libc::SOL_SOCKET, name, from.kept(name) != 0);
    if let Some(other) = other {
        from.keep(other, 0);
        common.wants.set(libc::SOL_SOCKET, other, false);
    }
}

/// Tells the stack of a SOL_SOCKET option that has another value.
pub(crate) fn apply(from: &Options, o: &mut IpOptions, name: i32) {
    let on = || from.kept(name) != 0;
    match name {
        libc::SO_REUSEADDR => o.reuse_addr = on(),
        libc::SO_BROADCAST => o.broadcast = on(),
        libc::SO_NO_CHECK => o.no_checksum = on(),
        libc::SO_MARK => o.mark = from.kept(name) as u32,
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => o.receive_buffer = from.rcvbuf(),
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => o.send_buffer = from.sndbuf(),
        _ => {}
    }
}
