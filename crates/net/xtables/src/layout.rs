//! The binary structures of iptables-legacy: `struct ipt_entry`, `struct ip6t_entry`, `struct ipt_replace` and their parts, on 64-bit
//! machines.

use crate::xt::data::{Data, in_network};
use abi::Errno;
use netfilter::{Family, Packet};
use std::net::IpAddr;

/// Bytes of `struct xt_entry_match` and `struct xt_entry_target` without what follows.
pub(crate) const PART: usize = 32;

/// Bytes of `struct xt_standard_target`, and of `struct xt_error_target`.
pub(crate) const STANDARD: usize = 40;
pub(crate) const ERROR: usize = 64;

/// Bytes of `struct ipt_replace` (and `ip6t_replace`) before the entries.
pub const REPLACE: usize = 96;

/// Bytes of `struct ipt_getinfo`.
pub const INFO: usize = 84;

/// Bytes of `struct ipt_get_entries` and of `struct xt_counters_info` before what follows.
pub const HEAD: usize = 40;

/// Bytes of a table's name, and of an extension's.
pub const NAME: usize = 32;
const EXTENSION: usize = 29;

/// Where the fields of an entry are.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) family: Family,
    /// Bytes of the entry's head.
    pub(crate) entry: usize,
    target_offset: usize,
    next_offset: usize,
    pub(crate) counters: usize,
    interfaces: usize,
    protocol: usize,
    flags: usize,
}

pub(crate) const fn layout(family: Family) -> Layout {
    match family {
        Family::V4 => Layout {
            family,
            entry: 112,
            target_offset: 88,
            next_offset: 90,
            counters: 96,
            interfaces: 16,
            protocol: 80,
            flags: 82,
        },
        Family::V6 => Layout {
            family,
            entry: 168,
            target_offset: 140,
            next_offset: 142,
            counters: 152,
            interfaces: 64,
            protocol: 128,
            flags: 131,
        },
    }
}

impl Layout {
    pub(crate) fn target_offset(&self, entry: &[u8]) -> usize {
        Data(entry).u16(self.target_offset).into()
    }

    pub(crate) fn next_offset(&self, entry: &[u8]) -> usize {
        Data(entry).u16(self.next_offset).into()
    }

    /// Writes where the target starts, after the head, and where the entry ends.
    pub(crate) fn set_offsets(&self, entry: &mut [u8], len: usize) {
        entry[self.target_offset..self.target_offset + 2].copy_from_slice(&(self.entry as u16).to_ne_bytes());
        entry[self.next_offset..self.next_offset + 2].copy_from_slice(&(len as u16).to_ne_bytes());
    }

    /// The conditions of an entry's head; `EINVAL` for unknown flags.
    pub(crate) fn head(&self, entry: &[u8]) -> Result<Head, Errno> {
        let data = Data(entry);
        let (flags, inverted) = (data.u8(self.flags), data.u8(self.flags + 1));
        let known = if self.family == Family::V4 { 0x3 } else { 0x7 };
        if flags & !known != 0 || inverted & !0x7f != 0 {
            return Err(Errno::EINVAL);
        }
        let size = if self.family == Family::V4 { 4 } else { 16 };
        let ip = |n: usize| data.ip(n * size, self.family);
        let name = |n: usize| {
            let at = self.interfaces + 16 * n;
            entry.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; 16])
        };
        let v6 = self.family == Family::V6;
        let protocol = data.u16(self.protocol);
        let goto = flags & if v6 { 4 } else { 2 } != 0;
        let head = Head {
            src: (ip(0), ip(2)),
            dst: (ip(1), ip(3)),
            input: (name(0), name(2)),
            output: (name(1), name(3)),
            // The IPv6 flag says whether the field counts.
            protocol: if v6 && flags & 1 == 0 { 0 } else { protocol },
            tos: (v6 && flags & 2 != 0).then(|| data.u8(130)),
            fragment: !v6 && flags & 1 != 0,
            goto,
            inverted,
        };
        Ok(head)
    }
}

/// What an entry asks of a packet before its matches.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Addresses with masks.
    src: (IpAddr, IpAddr),
    dst: (IpAddr, IpAddr),
    /// Interface names with masks.
    input: ([u8; 16], [u8; 16]),
    output: ([u8; 16], [u8; 16]),
    pub(crate) protocol: u16,
    tos: Option<u8>,
    /// Fragments but the first alone.
    fragment: bool,
    pub(crate) goto: bool,
    inverted: u8,
}

/// Bits of `invflags`.
const INV_INPUT: u8 = 0x01;
const INV_OUTPUT: u8 = 0x02;
const INV_TOS: u8 = 0x04;
const INV_SRC: u8 = 0x08;
const INV_DST: u8 = 0x10;
const INV_FRAGMENT: u8 = 0x20;
const INV_PROTOCOL: u8 = 0x40;

impl Head {
    fn inverts(&self, bit: u8) -> bool {
        self.inverted & bit != 0
    }

    /// True when the rule's protocol is what it must not be.
    pub(crate) fn protocol_inverted(&self) -> bool {
        self.inverts(INV_PROTOCOL)
    }

    /// True when the head says nothing of packets.
    pub(crate) fn is_unconditional(&self) -> bool {
        let none = |(name, mask): &([u8; 16], [u8; 16])| *name == [0; 16] && *mask == [0; 16];
        let any = |(ip, mask): &(IpAddr, IpAddr)| ip.is_unspecified() && mask.is_unspecified();
        any(&self.src)
            && any(&self.dst)
            && none(&self.input)
            && none(&self.output)
            && self.protocol == 0
            && self.tos.is_none()
            && !self.fragment
            && self.inverted == 0
    }

    /// True when a packet fulfils it.
    pub(crate) fn matches(&self, packet: &Packet<'_>) -> bool {
        let info = &packet.info;
        let protocol =
            self.protocol == 0 || (self.protocol == u16::from(info.protocol)) != self.inverts(INV_PROTOCOL);
        protocol
            && in_network(info.src, self.src.0, self.src.1) != self.inverts(INV_SRC)
            && in_network(info.dst, self.dst.0, self.dst.1) != self.inverts(INV_DST)
            && has_name(|| packet.input_name(), &self.input) != self.inverts(INV_INPUT)
            && has_name(|| packet.output_name(), &self.output) != self.inverts(INV_OUTPUT)
            && (!self.fragment || (packet.fragment != 0) != self.inverts(INV_FRAGMENT))
            && self.tos.is_none_or(|tos| (tos == info.tos) != self.inverts(INV_TOS))
    }
}

fn has_name<'a>(name: impl FnOnce() -> &'a str, (wanted, mask): &([u8; 16], [u8; 16])) -> bool {
    if *mask == [0; 16] {
        return true;
    }
    let name = name().as_bytes();
    (0..16).all(|n| (name.get(n).copied().unwrap_or(0) ^ wanted[n]) & mask[n] == 0)
}

/// A match or target inside an entry.
pub(crate) struct Part<'a> {
    pub(crate) name: &'a str,
    pub(crate) revision: u8,
    pub(crate) data: &'a [u8],
    /// Bytes with the header.
    pub(crate) size: usize,
}

/// Reads the part that starts at `bytes`; `EINVAL` when it does not end within them.
pub(crate) fn part(bytes: &[u8]) -> Result<Part<'_>, Errno> {
    let size = usize::from(Data(bytes).u16(0));
    let all = bytes.get(..size).filter(|_| size >= PART).ok_or(Errno::EINVAL)?;
    let name = &all[2..2 + EXTENSION];
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
    Ok(Part { name, revision: all[PART - 1], data: &all[PART..], size })
}

/// A table's name from the start of a structure: up to its zero.
pub fn name(bytes: &[u8]) -> &str {
    let name = bytes.get(..NAME).unwrap_or_default().split(|b| *b == 0).next().unwrap_or_default();
    std::str::from_utf8(name).unwrap_or("")
}

/// `struct ipt_replace` without its entries.
#[derive(Clone, Debug)]
pub struct Replace {
    /// The table.
    pub name: String,
    pub(crate) valid_hooks: u32,
    pub(crate) entries: usize,
    /// Bytes of the entries, which follow the structure.
    pub size: usize,
    pub(crate) hook_entry: [u32; 5],
    pub(crate) underflow: [u32; 5],
    /// Counters of the old rules that the program has room for, and where.
    pub counters: (usize, u64),
}

impl Replace {
    /// Reads it; `EINVAL` when it is cut off or has room for no counter, `ENOMEM` when it has room for more than memory has.
    pub fn parse(bytes: &[u8]) -> Result<Replace, Errno> {
        let bytes = bytes.get(..REPLACE).ok_or(Errno::EINVAL)?;
        let data = Data(bytes);
        let five = |at: usize| [0, 1, 2, 3, 4].map(|n| data.u32(at + 4 * n));
        let counters = data.u32(84) as usize;
        if counters >= i32::MAX as usize / 16 {
            return Err(Errno::ENOMEM);
        }
        if counters == 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Replace {
            name: name(bytes).to_owned(),
            valid_hooks: data.u32(32),
            entries: data.u32(36) as usize,
            size: data.u32(40) as usize,
            hook_entry: five(44),
            underflow: five(64),
            counters: (counters, data.u64(88)),
        })
    }
}
