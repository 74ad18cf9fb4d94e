//! The answers of netlink(7), and those of rtnetlink(7).

use super::asker::{Asker, MIN_TYPE, MULTI, Manner, NLMSG_DONE};
use super::error::{Refusal, Result};
use super::ifla::{RTM_DELLINKPROP, RTM_NEWLINKPROP};
use super::sockets::Cause;
use super::uevent::NETLINK_KOBJECT_UEVENT;
use super::wire::{self, HEADER, Message};
use super::xfrm::NETLINK_XFRM;
use super::{
    NETLINK_AUDIT, NETLINK_GENERIC, NETLINK_SOCK_DIAG, address_list, change, link, neigh, nsid, port, routes,
    rules,
};
use crate::net_ns::NetNamespace;
use abi::Errno;
use vfs::Caller;

const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
/// Flags of an acknowledgement: NLM_F_CAPPED (the request is not repeated), NLM_F_ACK_TLVS (attributes follow).
const CAPPED: u16 = 0x100;
const ACK_TLVS: u16 = 0x200;
/// NLMSGERR_ATTR_MSG.
const TEXT: u16 = 1;
/// The datagrams that answer one datagram of requests; no more than one request's beyond `room` bytes.
pub(super) fn to(
    net: &NetNamespace,
    protocol: i32,
    mut bytes: &[u8],
    (port, manner): (u32, Manner),
    cx: &dyn Caller,
    room: usize,
) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    while out.iter().map(Vec::len).sum::<usize>() <= room
        && let Some((header, message, rest)) = wire::next(bytes)
    {
        bytes = rest;
        let asker = Asker { net, cx, port, strict: manner.strict, header, message };
        let answered = match protocol {
            // As to programs of other user namespaces than the first: no daemon of theirs can audit.
            NETLINK_AUDIT => Err(Errno::ECONNREFUSED.into()),
            // The kernel does only what it is requested to do, and acknowledges the rest.
            _ if header.flags & libc::NLM_F_REQUEST as u16 == 0 || header.kind < MIN_TYPE => Ok(None),
            NETLINK_SOCK_DIAG => super::diag::answer(&asker),
            NETLINK_GENERIC => super::generic::answer(&asker),
            NETLINK_XFRM => super::xfrm::answer(&asker),
            NETLINK_KOBJECT_UEVENT => super::uevent::answer(&asker),
            _ => answer(&asker),
        };
        match answered {
            Ok(Some(mut answers)) => out.append(&mut answers),
            Ok(None) if i32::from(header.flags) & libc::NLM_F_ACK == 0 => {}
            Ok(None) => out.push(acknowledge(None, &asker, manner)),
            // What a dump of routes is refused for ends it.
            Err(refusal) if asker.dumps() && header.kind == libc::RTM_GETROUTE => {
                let text = refusal.text.filter(|_| manner.ext_ack);
                let flags = MULTI | text.map_or(0, |_| ACK_TLVS);
                let code = (-refusal.errno.raw()).to_ne_bytes();
                let done = Message::new(NLMSG_DONE, flags, header.seq, port).fixed(&code);
                out.push(text.map_or_else(|| done.clone(), |text| done.clone().text(TEXT, text)).done());
            }
            Err(refusal) => out.push(acknowledge(Some(refusal), &asker, manner)),
        }
    }
    out
}

/// NLMSG_ERROR: 0 is an acknowledgement and repeats the header only.
fn acknowledge(refusal: Option<Refusal>, asker: &Asker<'_>, manner: Manner) -> Vec<u8> {
    let whole = refusal.is_some() && !manner.cap_ack;
    let repeated = if whole { asker.message } else { &asker.message[..HEADER] };
    let text = refusal.and_then(|refusal| refusal.text).filter(|_| manner.ext_ack);
    let flags = if whole { 0 } else { CAPPED } | text.map_or(0, |_| ACK_TLVS);
    let code = refusal.map_or(0, |refusal| -refusal.errno.raw());
    let message = Message::new(NLMSG_ERROR, flags, asker.header.seq, asker.port);
    let message = message.fixed(&code.to_ne_bytes()).fixed(repeated);
    match text {
        Some(text) => message.text(TEXT, text).done(),
        None => message.done(),
    }
}

/// `None` asks for a mere acknowledgement.
fn answer(asker: &Asker<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    let dump = asker.dumps();
    let one = |message: Vec<u8>| Ok(Some(vec![message]));
    let items = match asker.header.kind {
        libc::RTM_GETLINK if dump => link::dump(asker)?,
        libc::RTM_GETLINK => return one(link::get(asker)?),
        libc::RTM_GETADDR => address_list::dump(asker),
        libc::RTM_GETROUTE if dump => routes::dump(asker)?,
        libc::RTM_GETROUTE => return one(routes::get(asker)?),
        libc::RTM_GETRULE if dump => rules::dump(asker)?,
        libc::RTM_GETNEIGH if dump => neigh::dump(asker),
        libc::RTM_GETNEIGH => return one(neigh::get(asker)?),
        nsid::RTM_GETNSID if dump => nsid::dump(asker)?,
        nsid::RTM_GETNSID => return one(nsid::get(asker)?),
        libc::RTM_GETQDISC if dump => super::qdisc::describe(asker),
        // Nothing of these exists here, which a dump can say.
        libc::RTM_GETTCLASS | libc::RTM_GETTFILTER if dump => Vec::new(),
        // Of each four numbers the third asks; the others change something.
        kind if kind % 4 != 2 => {
            if !asker.is_admin() {
                return Err(Errno::EPERM.into());
            }
            let echo = i32::from(asker.header.flags) & libc::NLM_F_ECHO != 0;
            let seq = asker.header.seq;
            let _rtnl = asker.net.netlink.rtnl_for(Cause { kind, port: asker.port, seq, echo });
            apply(asker)?;
            return Ok(None);
        }
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    Ok(Some(asker.dump(items)))
}

/// Makes the change that a request asks for.
fn apply(asker: &Asker<'_>) -> Result<()> {
    if asker.header.kind == nsid::RTM_NEWNSID {
        return nsid::set(asker);
    }
    if !asker.net.shows_stack() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    match asker.header.kind {
        libc::RTM_NEWADDR => change::new_address(asker),
        libc::RTM_DELADDR => change::delete_address(asker),
        libc::RTM_NEWROUTE => super::routes::add(asker),
        libc::RTM_DELROUTE => super::routes::delete(asker),
        libc::RTM_NEWRULE => super::rules::add(asker),
        libc::RTM_DELRULE => super::rules::delete(asker),
        libc::RTM_NEWNEIGH => super::neigh::add(asker),
        libc::RTM_DELNEIGH => super::neigh::delete(asker),
        libc::RTM_NEWLINK => change::new_link(asker),
        libc::RTM_SETLINK if asker.family() == port::AF_BRIDGE => port::set(asker),
        libc::RTM_SETLINK => change::change_link(asker),
        libc::RTM_DELLINK => change::delete_link(asker),
        RTM_NEWLINKPROP | RTM_DELLINKPROP => change::change_names(asker),
        libc::RTM_NEWQDISC => super::qdisc::set(asker),
        libc::RTM_DELQDISC => super::qdisc::delete(asker),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}
