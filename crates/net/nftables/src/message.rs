//! Messages of nfnetlink: a netlink header, the family with the generation, and attributes.

use crate::attr::{Attrs, Failure, Writer};

/// Length of `struct nlmsghdr`.
pub(crate) const HEADER: usize = 16;
/// Length of `struct nfgenmsg`.
pub(crate) const GENERIC: usize = 4;
/// `NFNL_SUBSYS_NFTABLES`, in the upper byte of a message's type.
pub const NFTABLES: u8 = 10;
/// `NFNL_SUBSYS_NFT_COMPAT`.
pub const COMPAT: u8 = 11;

/// Flags of netlink messages.
pub(crate) mod flag {
    pub const REQUEST: u16 = 1;
    pub const MULTI: u16 = 2;
    pub const ACK: u16 = 4;
    pub const ECHO: u16 = 8;
    pub const DUMP_INTERRUPTED: u16 = 0x10;
    pub const DUMP: u16 = 0x300;
    pub const NON_RECURSIVE: u16 = 0x100;
    pub const REPLACE: u16 = 0x100;
    pub const EXCL: u16 = 0x200;
    pub const CREATE: u16 = 0x400;
    pub const APPEND: u16 = 0x800;
    pub const CAPPED: u16 = 0x100;
    pub const ACK_TLVS: u16 = 0x200;
}

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGERR_ATTR_OFFS: u16 = 2;
/// Dumps are put together up to this size.
const DATAGRAM: usize = 8 << 10;

/// A message of a program.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Type: the subsystem and the subsystem's own number.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Sequence number.
    pub seq: u32,
    /// All of the message.
    pub bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// The next message in `bytes`, and what follows; `None` where no whole one is left.
    pub fn next(bytes: &'a [u8]) -> Option<(Request<'a>, &'a [u8])> {
        let header: &[u8; HEADER] = bytes.first_chunk()?;
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let len = word(0) as usize;
        if len < HEADER || len > bytes.len() {
            return None;
        }
        let request = Request { kind: half(4), flags: half(6), seq: word(8), bytes: &bytes[..len] };
        Some((request, bytes.get((len + 3) & !3..).unwrap_or_default()))
    }

    /// The subsystem.
    pub fn subsystem(&self) -> u8 {
        (self.kind >> 8) as u8
    }
    /// The subsystem's own number of the message.
    pub fn number(&self) -> u8 {
        self.kind as u8
    }
    /// Whether all objects are asked for.
    pub fn dumps(&self) -> bool {
        self.has(flag::DUMP)
    }
    pub(crate) fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
    /// The family (`nfgen_family`).
    pub(crate) fn family(&self) -> u8 {
        self.bytes.get(HEADER).copied().unwrap_or(0)
    }
    /// `res_id`: in `NFNL_MSG_BATCH_BEGIN` the subsystem.
    pub(crate) fn resource(&self) -> u16 {
        self.bytes.get(HEADER + 2..).and_then(|b| b.first_chunk()).copied().map_or(0, u16::from_be_bytes)
    }
    pub(crate) fn attrs(&self) -> Attrs<'a> {
        const BODY: usize = HEADER + GENERIC;
        Attrs::new(self.bytes.get(BODY..).unwrap_or_default(), BODY as u32)
    }
}

/// What a socket wants to be told with an error (`NETLINK_CAP_ACK`, `NETLINK_EXT_ACK`).
#[derive(Clone, Copy, Debug, Default)]
pub struct AckOptions {
    /// The request is not repeated.
    pub capped: bool,
    /// Details are welcome.
    pub extended: bool,
}

/// `NLMSG_ERROR`: how a request came out.
pub fn acknowledge(
    outcome: Result<(), Failure>,
    request: &Request<'_>,
    port: u32,
    options: AckOptions,
) -> Vec<u8> {
    let repeat = outcome.is_err() && !options.capped;
    let detail = outcome.err().and_then(|failure| failure.at).filter(|_| options.extended);
    let mut flags = if repeat { 0 } else { flag::CAPPED };
    if detail.is_some() {
        flags |= flag::ACK_TLVS;
    }
    let mut out = start(NLMSG_ERROR, flags, request.seq, port);
    let code = outcome.err().map_or(0, |failure| -failure.errno.raw());
    out.0.extend(code.to_ne_bytes());
    out.0.extend(if repeat { request.bytes } else { &request.bytes[..HEADER] });
    out.0.resize((out.0.len() + 3) & !3, 0);
    if let Some(at) = detail {
        out.put(NLMSGERR_ATTR_OFFS, &at.to_ne_bytes());
    }
    finish(out)
}

fn start(kind: u16, flags: u16, seq: u32, port: u32) -> Writer {
    let mut out = Vec::with_capacity(256);
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(seq.to_ne_bytes());
    out.extend(port.to_ne_bytes());
    Writer(out)
}

fn finish(out: Writer) -> Vec<u8> {
    let mut bytes = out.0;
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// Where messages go: the numbers that their headers repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub flags: u16,
    pub seq: u32,
    pub port: u32,
    pub generation: u32,
}

impl Reply {
    /// Answers of a dump, or the one answer.
    pub fn to(request: &Request<'_>, port: u32, generation: u32) -> Reply {
        let flags = if request.dumps() { flag::MULTI } else { 0 };
        Reply { flags, seq: request.seq, port, generation }
    }

    /// A message of nf_tables.
    pub fn message(self, number: u8, family: u8, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
        self.of(NFTABLES, number, family, fill)
    }

    /// A message of a subsystem.
    pub fn of(self, subsystem: u8, number: u8, family: u8, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let kind = u16::from(subsystem) << 8 | u16::from(number);
        let mut out = start(kind, self.flags, self.seq, self.port);
        out.0.extend([family, 0]);
        out.0.extend((self.generation as u16).to_be_bytes());
        fill(&mut out);
        finish(out)
    }

    /// Messages of a dump as datagrams, with `NLMSG_DONE` behind them.
    pub fn dump(self, items: Vec<Vec<u8>>, interrupted: bool) -> Vec<Vec<u8>> {
        let mut out: Vec<Vec<u8>> = Vec::new();
        for item in items {
            match out.last_mut().filter(|last| last.len() + item.len() <= DATAGRAM) {
                Some(last) => last.extend(item),
                None => out.push(item),
            }
        }
        let interrupted = if interrupted { flag::DUMP_INTERRUPTED } else { 0 };
        let mut done = start(NLMSG_DONE, flag::MULTI | interrupted, self.seq, self.port);
        done.0.extend(0i32.to_ne_bytes());
        out.push(finish(done));
        out
    }
}
