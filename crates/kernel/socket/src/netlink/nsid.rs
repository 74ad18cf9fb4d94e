//! The numbers by which a network namespace names others (`ip netns set`, `ip netns list-id`): RTM_NEWNSID,
//! RTM_GETNSID, RTM_DELNSID. Also the namespaces that other requests name, by number, process or descriptor.
//!
//! A number is given on request, or when an interface is described that leads to another namespace. It ends with its
//! namespace, and does not keep it alive.

use super::asker::Asker;
use super::error::{Refusal, Result};
use super::ifla::IFINFO;
use super::request::Request;
use super::sockets::Sockets;
use super::wire::Message;
use crate::net_ns::NetNamespace;
use abi::Errno;
use rights::Cap;
use std::sync::Arc;

pub(super) const RTM_NEWNSID: u16 = 88;
pub(super) const RTM_DELNSID: u16 = 89;
pub(super) const RTM_GETNSID: u16 = 90;
/// RTNLGRP_NSID.
const GROUP: u32 = 28;
/// NETNSA_*.
const NSID: u16 = 1;
const PID: u16 = 2;
const FD: u16 = 3;
const TARGET_NSID: u16 = 4;
const CURRENT_NSID: u16 = 5;
/// NETNSA_NSID_NOT_ASSIGNED.
pub(super) const NONE: i32 = -1;
/// Length of `struct rtgenmsg`.
const RTGEN: usize = 1;

const IFLA_NET_NS_PID: u16 = 19;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_LINK_NETNSID: u16 = 37;
pub(super) const IFLA_TARGET_NETNSID: u16 = 46;
/// Attributes that name the namespace that an interface is to be in.
pub(super) const OF_TARGET: [u16; 3] = [IFLA_NET_NS_PID, IFLA_NET_NS_FD, IFLA_TARGET_NETNSID];
/// These and that of the interface below.
pub(super) const OF_NET: [u16; 4] = [IFLA_NET_NS_PID, IFLA_NET_NS_FD, IFLA_TARGET_NETNSID, IFLA_LINK_NETNSID];

impl Sockets {
    /// What the namespace calls the one with inode number `inum`, [`NONE`] when it calls it nothing.
    pub(super) fn nsid(&self, inum: u64) -> i32 {
        let ids = self.ids.lock();
        ids.iter().find(|(_, known)| **known == inum).map_or(NONE, |(id, _)| *id)
    }

    /// The same; it gets a number when it has none, unless it has ended.
    pub(super) fn nsid_or_new(&self, inum: u64) -> i32 {
        match self.nsid(inum) {
            NONE => self.give_nsid(inum, None, (0, 0)).unwrap_or(NONE),
            id => id,
        }
    }

    /// Gives a namespace this number or the first free one. `EEXIST` when it has one or the number is taken.
    fn give_nsid(&self, inum: u64, wanted: Option<i32>, (seq, port): (u32, u32)) -> Result<i32> {
        let mut ids = self.ids.lock();
        if ids.values().any(|known| *known == inum) {
            return Err(Refusal::with(Errno::EEXIST, "Peer netns already has a nsid assigned"));
        }
        let free = (0..i32::MAX).find(|id| !ids.contains_key(id));
        let id = wanted.or(free).ok_or(Errno::ENOSPC)?;
        if ids.contains_key(&id) {
            return Err(Refusal::with(Errno::EEXIST, "The specified nsid is already used"));
        }
        ids.insert(id, inum);
        drop(ids);
        // It may have ended meanwhile, and been forgotten before.
        if self.nets.find(inum).is_none() {
            self.ids.lock().remove(&id);
            return Ok(NONE);
        }
        self.tell_nsid(Message::new(RTM_NEWNSID, 0, seq, port), id);
        Ok(id)
    }

    /// What it calls others, for a checkpoint: the numbers of namespaces by its own.
    pub(crate) fn nsids(&self) -> Vec<(i32, u64)> {
        self.ids.lock().iter().map(|(id, inum)| (*id, *inum)).collect()
    }

    /// Calls others so again. The namespaces are there.
    pub(crate) fn restore_nsids(&self, ids: impl Iterator<Item = (i32, u64)>) {
        *self.ids.lock() = ids.filter(|(id, _)| *id >= 0).collect();
    }

    /// A namespace has ended.
    pub(crate) fn forget_net(&self, inum: u64) {
        let mut ids = self.ids.lock();
        let gone: Vec<i32> = ids.iter().filter(|(_, known)| **known == inum).map(|(id, _)| *id).collect();
        ids.retain(|_, known| *known != inum);
        drop(ids);
        gone.into_iter().for_each(|id| self.tell_nsid(Message::new(RTM_DELNSID, 0, 0, 0), id));
    }

    fn tell_nsid(&self, message: Message, id: i32) {
        if self.is_followed(GROUP) {
            self.multicast(libc::NETLINK_ROUTE, GROUP, 0, &describe(message, id, None));
        }
    }

    /// The namespace that this one calls `id`.
    fn net_of(&self, id: i32) -> Option<Arc<NetNamespace>> {
        let inum = self.ids.lock().get(&id).copied();
        self.nets.find(inum?)
    }
}

fn describe(message: Message, id: i32, current: Option<i32>) -> Vec<u8> {
    let message = message.fixed(&[libc::AF_UNSPEC as u8; 1]).attribute(NSID, &id.to_ne_bytes());
    match current {
        Some(current) => message.attribute(CURRENT_NSID, &current.to_ne_bytes()).done(),
        None => message.done(),
    }
}

/// A signed number.
fn number(request: &Request<'_>, kind: u16) -> Result<Option<i32>> {
    Ok(request.number(kind)?.map(u32::cast_signed))
}

/// The namespace that one of two attributes names, by a process or a descriptor.
fn named(asker: &Asker<'_>, request: &Request<'_>, pid: u16, fd: u16) -> Result<Option<Arc<NetNamespace>>> {
    let (cx, nets) = (asker.cx, asker.net.nets());
    // Something that is named keeps its namespace, so one that is not found has gone since.
    if let Some(pid) = number(request, pid)? {
        let nr = if pid > 0 { cx.find_vpid(pid) } else { caller::NO_ID };
        let inum = cx.net_ns_of_process(nr)?;
        return Ok(Some(nets.find(inum).ok_or(Errno::ESRCH)?));
    }
    let Some(fd) = number(request, fd)? else { return Ok(None) };
    Ok(Some(nets.find(cx.net_ns_of_descriptor(fd)?).ok_or(Errno::EINVAL)?))
}

fn with_text(text: &'static str) -> impl Fn(Refusal) -> Refusal {
    move |refusal| Refusal::with(refusal.errno, text)
}

const MISSING: Refusal = Refusal { errno: Errno::EINVAL, text: Some("Peer netns reference is missing") };
const INVALID: &str = "Peer netns reference is invalid";

/// RTM_NEWNSID.
pub(super) fn set(asker: &Asker<'_>) -> Result<()> {
    let request = Request::new(asker.message, RTGEN, &[NSID, PID, FD])?;
    let wanted = number(&request, NSID)?.ok_or(Refusal::with(Errno::EINVAL, "nsid is missing"))?;
    let peer = named(asker, &request, PID, FD).map_err(with_text(INVALID))?.ok_or(MISSING)?;
    let wanted = Some(wanted).filter(|id| *id >= 0);
    asker.net.netlink.give_nsid(peer.inum, wanted, (asker.header.seq, asker.port))?;
    Ok(())
}

/// RTM_GETNSID for one namespace.
pub(super) fn get(asker: &Asker<'_>) -> Result<Vec<u8>> {
    let request = Request::new(asker.message, RTGEN, &[NSID, PID, FD, TARGET_NSID])?;
    let own = &asker.net.netlink;
    let by_number = |id| own.net_of(id).ok_or(Refusal::from(Errno::ENOENT));
    let peer = match named(asker, &request, PID, FD) {
        Ok(None) => number(&request, NSID)?.map(by_number).transpose(),
        named => named,
    };
    let peer = peer.map_err(with_text(INVALID))?.ok_or(MISSING)?;
    let message = asker.reply(RTM_NEWNSID, 0);
    match number(&request, TARGET_NSID)? {
        Some(id) => {
            let target = target(asker, id).map_err(with_text("Target netns reference is invalid"))?;
            Ok(describe(message, target.netlink.nsid(peer.inum), Some(own.nsid(peer.inum))))
        }
        None => Ok(describe(message, own.nsid(peer.inum), None)),
    }
}

/// All numbers that a namespace has given.
pub(super) fn dump(asker: &Asker<'_>) -> Result<Vec<Vec<u8>>> {
    let request = Request::new(asker.message, RTGEN, &[TARGET_NSID])?;
    let own = &asker.net.netlink;
    let target = number(&request, TARGET_NSID)?.map(|id| target(asker, id));
    let target = target.transpose().map_err(with_text("Invalid target network namespace id"))?;
    let of = target.as_ref().map_or(own, |target| &target.netlink);
    let ids = of.ids.lock().clone();
    let one = |(id, inum): (i32, u64)| {
        let current = target.as_ref().map(|_| own.nsid(inum));
        describe(asker.reply(RTM_NEWNSID, 0), id, current)
    };
    Ok(ids.into_iter().map(one).collect())
}

/// The namespace that the asker's calls `id`, to look at. EINVAL, EACCES.
fn target(asker: &Asker<'_>, id: i32) -> Result<Arc<NetNamespace>> {
    let net = asker.net.netlink.net_of(id).ok_or(Errno::EINVAL)?;
    match asker.cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN) {
        true => Ok(net),
        false => Err(Errno::EACCES.into()),
    }
}

/// The namespace that a request asks about, when IFLA_TARGET_NETNSID names one, and its number in the sender's
/// namespace.
pub(super) fn looked_at(asker: &Asker<'_>) -> Result<Option<(i32, Arc<NetNamespace>)>> {
    let value = super::wire::attribute(asker.message, IFINFO, IFLA_TARGET_NETNSID);
    let id = value.and_then(<[u8]>::first_chunk).copied().map(i32::from_ne_bytes);
    let found = |id| target(asker, id).map_err(with_text("Invalid target network namespace id"));
    id.map(|id| Ok((id, found(id)?))).transpose()
}

/// The caller may change a namespace, which has interfaces of its own.
fn changeable(asker: &Asker<'_>, net: Arc<NetNamespace>) -> Result<Arc<NetNamespace>> {
    if !asker.cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN) {
        return Err(Errno::EPERM.into());
    }
    if net.shows_stack() { Ok(net) } else { Err(Errno::EOPNOTSUPP.into()) }
}

/// The namespace that an interface is to be in, when a request names one.
pub(super) fn wanted(asker: &Asker<'_>, request: &Request<'_>) -> Result<Option<Arc<NetNamespace>>> {
    if OF_TARGET.iter().filter(|kind| request.attribute(**kind).is_some()).count() > 1 {
        let text = "multiple netns identifying attributes specified";
        return Err(Refusal::with(Errno::EOPNOTSUPP, text));
    }
    let by_number = |id| asker.net.netlink.net_of(id).ok_or(Refusal::from(Errno::EINVAL));
    let net = match number(request, IFLA_TARGET_NETNSID)? {
        Some(id) => Some(by_number(id)?),
        None if OF_TARGET.iter().all(|kind| request.attribute(*kind).is_none()) => None,
        None => named(asker, request, IFLA_NET_NS_PID, IFLA_NET_NS_FD)?,
    };
    net.map(|net| changeable(asker, net)).transpose()
}

/// The namespace that the interface below is in, when IFLA_LINK_NETNSID names one.
pub(super) fn of_lower(asker: &Asker<'_>, request: &Request<'_>) -> Result<Option<Arc<NetNamespace>>> {
    let unknown = Refusal::with(Errno::EINVAL, "Unknown network namespace id");
    let id = number(request, IFLA_LINK_NETNSID)?;
    let net = id.map(|id| asker.net.netlink.net_of(id).ok_or(unknown));
    net.transpose()?.map(|net| changeable(asker, net)).transpose()
}
