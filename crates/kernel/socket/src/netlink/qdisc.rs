//! Queueing disciplines of interfaces: RTM_NEWQDISC and its relatives. Only `pfifo` is known, as an interface's root.
//!
//! Devices of the stack take every packet at once, so a queue never holds one, and its limit matters only if it is 0: then every
//! packet is dropped.

use super::answer::MULTI;
use super::change::{Request, Result};
use super::wire::Message;
use crate::net_ns::NetNamespace;
use abi::Errno;
use netstack::iface::{Fifo, Iface};
use std::sync::Arc;

/// Bytes of `struct tcmsg`, and where its fields are.
const TCMSG: usize = 20;
const INDEX: usize = 4;
const HANDLE: usize = 8;
const PARENT: usize = 12;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
/// TC_H_ROOT.
const ROOT: u32 = u32::MAX;
/// The first number that the kernel gives to a discipline, and the distance to the next.
const FIRST_HANDLE: u32 = 0x8001_0000;
/// Packets, unless told otherwise: the queue's length of an interface.
const LENGTH: u32 = 1000;

fn interface(net: &NetNamespace, request: &Request<'_>) -> Result<Arc<Iface>> {
    net.stack().link(request.word(INDEX)).ok_or(Errno::ENODEV)
}

/// Makes, replaces or changes the root discipline of an interface.
pub(super) fn set(net: &NetNamespace, flags: u16, bytes: &[u8]) -> Result<()> {
    let request = Request::new(bytes, TCMSG, &[TCA_KIND, TCA_OPTIONS])?;
    let link = interface(net, &request)?;
    let kind = request.attribute(TCA_KIND).ok_or(Errno::EINVAL)?;
    if request.word(PARENT) != ROOT {
        return Err(Errno::EOPNOTSUPP);
    }
    if kind.strip_suffix(&[0]).unwrap_or(kind) != b"pfifo" {
        return Err(Errno::ENOENT);
    }
    let limit = request.number(TCA_OPTIONS)?.unwrap_or(LENGTH);
    let (flags, known) = (i32::from(flags), link.fifo());
    let handle = match (request.word(HANDLE), known) {
        (0, Some(known)) => known.handle,
        (0, None) => FIRST_HANDLE,
        (handle, _) if handle & 0xffff != 0 => return Err(Errno::EINVAL),
        (handle, _) => handle,
    };
    match known {
        Some(_) if flags & libc::NLM_F_EXCL != 0 => return Err(Errno::EEXIST),
        None if flags & libc::NLM_F_CREATE == 0 => return Err(Errno::ENOENT),
        _ => link.set_fifo(Some(Fifo { handle, limit })),
    }
    Ok(())
}

/// Removes the root discipline; `ENOENT` when there is none but the one that every interface has.
pub(super) fn delete(net: &NetNamespace, bytes: &[u8]) -> Result<()> {
    let request = Request::new(bytes, TCMSG, &[TCA_KIND, TCA_OPTIONS])?;
    let link = interface(net, &request)?;
    let known = link.fifo().ok_or(Errno::ENOENT)?;
    let (handle, parent) = (request.word(HANDLE), request.word(PARENT));
    if parent != ROOT && parent != 0 || handle != 0 && handle != known.handle {
        return Err(Errno::ENOENT);
    }
    link.set_fifo(None);
    Ok(())
}

/// The disciplines that were set.
pub(super) fn describe(net: &NetNamespace, kind: u16, seq: u32, port: u32) -> Vec<Vec<u8>> {
    let describe = |link: &Arc<Iface>| {
        let fifo = link.fifo()?;
        let fixed = [0, link.index, fifo.handle, ROOT, 2].map(u32::to_ne_bytes).concat();
        let message = Message::new(kind, MULTI, seq, port).fixed(&fixed);
        Some(message.text(TCA_KIND, "pfifo").number(TCA_OPTIONS, fifo.limit).done())
    };
    if !net.shows_stack() {
        return Vec::new();
    }
    net.stack().links().iter().filter_map(describe).collect()
}
