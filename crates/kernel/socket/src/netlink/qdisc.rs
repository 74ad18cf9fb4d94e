//! Queueing disciplines of interfaces: RTM_NEWQDISC and its relatives. Only `pfifo` is known, as an interface's root.
//!
//! Devices of the stack take every packet at once, so a queue is always empty. Its limit matters only if it is 0: then
//! every packet is dropped.

use super::asker::Asker;
use super::error::Result;
use super::request::{self, Request};
use abi::Errno;
use netstack::iface::Fifo;

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

/// Makes, replaces or changes the root discipline of an interface.
pub(super) fn set(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, TCMSG, &[TCA_KIND, TCA_OPTIONS])?;
    let link = request::link(asker.net, request.word(INDEX))?;
    let kind = request.attribute(TCA_KIND).ok_or(Errno::EINVAL)?;
    if request.word(PARENT) != ROOT {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if kind.strip_suffix(&[0]).unwrap_or(kind) != b"pfifo" {
        return Err(Errno::ENOENT.into());
    }
    let limit = request.number(TCA_OPTIONS)?.unwrap_or(LENGTH);
    let (flags, known) = (i32::from(asker.header.flags), link.fifo());
    let handle = match (request.word(HANDLE), known) {
        (0, Some(known)) => known.handle,
        (0, None) => FIRST_HANDLE,
        (handle, _) if handle & 0xffff != 0 => return Err(Errno::EINVAL.into()),
        (handle, _) => handle,
    };
    match known {
        Some(_) if flags & libc::NLM_F_EXCL != 0 => return Err(Errno::EEXIST.into()),
        None if flags & libc::NLM_F_CREATE == 0 => return Err(Errno::ENOENT.into()),
        _ => link.set_fifo(Some(Fifo { handle, limit })),
    }
    Ok(())
}

/// Removes the root discipline; `ENOENT` when there is none but the one that every interface has.
pub(super) fn delete(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, TCMSG, &[TCA_KIND, TCA_OPTIONS])?;
    let link = request::link(asker.net, request.word(INDEX))?;
    let known = link.fifo().ok_or(Errno::ENOENT)?;
    let (handle, parent) = (request.word(HANDLE), request.word(PARENT));
    if parent != ROOT && parent != 0 || handle != 0 && handle != known.handle {
        return Err(Errno::ENOENT.into());
    }
    link.set_fifo(None);
    Ok(())
}

/// The disciplines: those that were set, and `noqueue` for each other interface that is up.
pub(super) fn describe(asker: &Asker<'_>) -> Vec<Vec<u8>> {
    let wanted = asker.word(INDEX);
    let describe = |link: &spec::Interface| {
        let known = asker.net.stack().link(link.index).filter(|_| asker.net.shows_stack());
        let fifo = known.and_then(|link| link.fifo());
        let up = link.flags & libc::IFF_UP as u32 != 0;
        if fifo.is_none() && !up {
            return None;
        }
        let handle = fifo.map_or(0, |fifo| fifo.handle);
        let fixed = [0, link.index, handle, ROOT, 2].map(u32::to_ne_bytes).concat();
        let message = asker.reply(libc::RTM_NEWQDISC, 0).fixed(&fixed);
        Some(match fifo {
            Some(fifo) => message.text(TCA_KIND, "pfifo").number(TCA_OPTIONS, fifo.limit).done(),
            None => message.text(TCA_KIND, "noqueue").done(),
        })
    };
    let shown = asker.net.interfaces();
    let links = shown.links.iter().filter(|link| wanted == 0 || wanted == link.index);
    links.filter_map(describe).collect()
}
