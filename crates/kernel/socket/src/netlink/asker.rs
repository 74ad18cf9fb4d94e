//! One request of netlink(7): its sender, its message, and how its answers are put together.

use super::wire::{self, HEADER, Header, Message};
use crate::net_ns::NetNamespace;
use rights::Cap;
use vfs::Caller;

pub(super) const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
pub(super) const MULTI: u16 = libc::NLM_F_MULTI as u16;
/// NLM_F_DUMP_FILTERED: the dump shows what the request's filter lets through.
pub(super) const FILTERED: u16 = 0x20;
/// NLMSG_MIN_TYPE: smaller numbers are control messages.
pub(super) const MIN_TYPE: u16 = 16;
/// Answers of a dump are put together up to this size: what readers with a buffer of a page, as libc's if_nameindex(3), have room
/// for (`NLMSG_GOODSIZE`).
const DATAGRAM: usize = 3776;

/// Options of a socket that shape its answers.
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
