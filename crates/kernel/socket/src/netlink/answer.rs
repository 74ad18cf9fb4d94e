//! The answers of netlink(7), and those of rtnetlink(7).

use super::error::{Refusal, Result};
use super::sockets::Cause;
use super::uevent::NETLINK_KOBJECT_UEVENT;
use super::wire::{self, HEADER, Header, Message};
use super::{NETLINK_GENERIC, NETLINK_SOCK_DIAG, address_list, change, link, neigh, nsid, routes, rules};
use crate::net_ns::NetNamespace;
use abi::Errno;
use rights::Cap;
use vfs::Caller;

const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
pub(super) const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
pub(super) const MULTI: u16 = libc::NLM_F_MULTI as u16;
/// NLM_F_DUMP_FILTERED: the dump shows what the request's filter lets through.
pub(super) const FILTERED: u16 = 0x20;
/// Flags of an acknowledgement: NLM_F_CAPPED (the request is not repeated), NLM_F_ACK_TLVS (attributes follow).
const CAPPED: u16 = 0x100;
const ACK_TLVS: u16 = 0x200;
/// NLMSGERR_ATTR_MSG.
const TEXT: u16 = 1;
/// NLMSG_MIN_TYPE: smaller numbers are control messages.
pub(super) const MIN_TYPE: u16 = 16;
/// Answers of a dump are put together up to this size: what readers with a buffer of a page, as libc's if_nameindex(3), have room
/// for (`NLMSG_GOODSIZE`).
const DATAGRAM: usize = 3776;

/// What a socket is set to.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// NETLINK_CAP_ACK: errors do not repeat the request.
    pub(super) cap_ack: bool,
    /// NETLINK_EXT_ACK: errors have a text.
    pub(super) ext_ack: bool,
    /// NETLINK_GET_STRICT_CHK: dumps are filtered.
    pub(super) strict: bool,
}

/// One request, and its sender.
pub(super) struct Asker<'a> {
    pub(super) net: &'a NetNamespace,
    pub(super) cx: &'a dyn Caller,
    /// The socket's address.
    pub(super) port: u32,
    pub(super) strict: bool,
    pub(super) header: Header,
    /// The whole message.
    pub(super) message: &'a [u8],
}

impl<'a> Asker<'a> {
    /// All of a dump is asked for.
    pub(super) fn dumps(&self) -> bool {
        wire::dumps(&self.header)
    }

    /// The bytes after the header.
    pub(super) fn body(&self) -> &'a [u8] {
        self.message.get(HEADER..).unwrap_or_default()
    }

    /// A byte of the fixed part, 0 beyond its end.
    pub(super) fn byte(&self, at: usize) -> u8 {
        self.body().get(at).copied().unwrap_or(0)
    }

    /// A number of the fixed part.
    pub(super) fn word(&self, at: usize) -> u32 {
        let word = self.body().get(at..).and_then(<[u8]>::first_chunk);
        word.copied().map_or(0, u32::from_ne_bytes)
    }

    /// AF_* in the first byte.
    pub(super) fn family(&self) -> i32 {
        self.byte(0).into()
    }

    /// An answer in the making.
    pub(super) fn reply(&self, kind: u16, flags: u16) -> Message {
        let multi = if self.dumps() { MULTI } else { 0 };
        Message::new(kind, flags | multi, self.header.seq, self.port)
    }

    /// The caller may change the namespace.
    pub(super) fn is_admin(&self) -> bool {
        self.cx.creds().ns_capable(self.net.user_ns(), Cap::NET_ADMIN)
    }

    /// The datagrams of a dump.
    pub(super) fn dump(&self, items: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        self.dump_ending(items, 0)
    }

    /// The same with what ends it: 0 or a negative error number.
    pub(super) fn dump_ending(&self, items: Vec<Vec<u8>>, code: i32) -> Vec<Vec<u8>> {
        let done = Message::new(NLMSG_DONE, MULTI, self.header.seq, self.port);
        joined(items, done.fixed(&code.to_ne_bytes()).done())
    }
}

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
            // The kernel does only what it is requested to do, and acknowledges the rest.
            _ if header.flags & libc::NLM_F_REQUEST as u16 == 0 || header.kind < MIN_TYPE => Ok(None),
            NETLINK_SOCK_DIAG => super::diag::answer(&asker),
            NETLINK_GENERIC => super::generic::answer(&asker),
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
            change::apply(asker)?;
            return Ok(None);
        }
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    Ok(Some(asker.dump(items)))
}

/// Puts messages together into datagrams; the last message stands alone.
fn joined(items: Vec<Vec<u8>>, done: Vec<u8>) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for item in items {
        match out.last_mut().filter(|last| last.len() + item.len() <= DATAGRAM) {
            Some(last) => last.extend(item),
            None => out.push(item),
        }
    }
    out.push(done);
    out
}
