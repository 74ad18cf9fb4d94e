//! `nat`, `masq` and `redir`: a connection gets other addresses or ports.

use crate::attr::{Attrs, Result, Writer};
use crate::data::{Reg, Verdict};
use crate::expression::{Expr, Flow, Place, Run};
use crate::family;
use crate::model::{Kind, Table};
use crate::scope::Scope;
use abi::Errno;
use netfilter::nat::{self, Manip, Range};
use std::net::IpAddr;

/// Flags of ranges (`NF_NAT_RANGE_*`): those that a program may set.
mod flag {
    pub const RANDOM: u32 = 4;
    pub const PERSISTENT: u32 = 8;
    pub const RANDOM_FULLY: u32 = 16;
    pub const NETMAP: u32 = 64;
    pub const ALL: u32 = 0x7f;
}

/// Bits of hooks.
const PRE: u8 = 1;
const INPUT: u8 = 2;
const OUTPUT: u8 = 8;
const POST: u8 = 16;

fn in_nat_chain(place: Place, hooks: u8) -> Result<(), Errno> {
    match place.kind == Kind::Nat && place.bit() & hooks != 0 {
        true => Ok(()),
        false => Err(Errno::EOPNOTSUPP),
    }
}

fn flags(attrs: Attrs<'_>, kind: u16) -> Result<Option<u32>> {
    let flags = attrs.be32(kind)?;
    if flags.is_some_and(|flags| flags & !flag::ALL != 0) {
        return Err(Errno::EINVAL.into());
    }
    Ok(flags)
}

/// Two registers, the first of which is there if the second is. Without the second it is the first.
#[derive(Clone, Copy)]
struct Pair(Reg, Reg);

impl Pair {
    fn parse(attrs: Attrs<'_>, min: u16, max: u16, len: usize, scope: &Scope<'_>) -> Result<Option<Pair>> {
        let Some(first) = attrs.get(min) else { return Ok(None) };
        let first = Reg::load(first, len, &scope.inited)?;
        let last = attrs.get(max).map(|last| Reg::load(last, len, &scope.inited)).transpose()?;
        Ok(Some(Pair(first, last.unwrap_or(first))))
    }
    fn ports(self, run: &Run<'_, '_>) -> (u16, u16) {
        (run.regs.port(self.0), run.regs.port(self.1))
    }
    fn dump(self, min: u16, max: u16, out: &mut Writer) {
        out.be32(min, self.0.number());
        out.be32(max, self.1.number());
    }
}

fn range(flags: Option<u32>, ports: Option<(u16, u16)>) -> Range {
    let has = |flag: u32| flags.unwrap_or(0) & flag != 0;
    Range {
        ports,
        random: has(flag::RANDOM) || has(flag::RANDOM_FULLY),
        persistent: has(flag::PERSISTENT),
        ..Range::default()
    }
}

/// A chain that translates has decided once it has translated.
fn decided(verdict: netfilter::Verdict) -> Flow {
    Flow::Verdict(if verdict == netfilter::Verdict::Accept { Verdict::Accept } else { Verdict::Drop })
}

struct Nat {
    manip: Manip,
    family: u8,
    addresses: Option<Pair>,
    ports: Option<Pair>,
    flags: Option<u32>,
}

const TYPE: u16 = 1;
const FAMILY: u16 = 2;
const ADDR_MIN: u16 = 3;
const ADDR_MAX: u16 = 4;
const PROTO_MIN: u16 = 5;
const PROTO_MAX: u16 = 6;
const FLAGS: u16 = 7;

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    if !attrs.has(TYPE) || (!attrs.has(ADDR_MIN) && !attrs.has(PROTO_MIN)) {
        return Err(Errno::EINVAL.into());
    }
    let manip = match attrs.need(TYPE)?.be32()? {
        0 => Manip::Src,
        1 => Manip::Dst,
        _ => return Err(Errno::EINVAL.into()),
    };
    let of = attrs.need(FAMILY)?.be32()?;
    let of = u8::try_from(of).map_err(|_| Errno::EAFNOSUPPORT)?;
    if scope.table.family != family::INET && scope.table.family != of {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let len = match of {
        family::IPV4 => 4,
        family::IPV6 => 16,
        _ => return Err(Errno::EAFNOSUPPORT.into()),
    };
    let addresses = Pair::parse(attrs, ADDR_MIN, ADDR_MAX, len, scope)?;
    let ports = Pair::parse(attrs, PROTO_MIN, PROTO_MAX, 2, scope)?;
    Ok(Box::new(Nat { manip, family: of, addresses, ports, flags: flags(attrs, FLAGS)? }))
}

impl Expr for Nat {
    fn name(&self) -> &'static str {
        "nat"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        if run.is_v6() != (self.family == family::IPV6) {
            return Flow::Break;
        }
        let address = |reg: Reg| -> Option<IpAddr> {
            let bytes = run.regs.get(reg);
            match bytes.len() {
                4 => bytes.first_chunk::<4>().map(|b| IpAddr::from(*b)),
                _ => bytes.first_chunk::<16>().map(|b| IpAddr::from(*b)),
            }
        };
        let addresses = self.addresses.and_then(|Pair(first, last)| address(first).zip(address(last)));
        let ports = self.ports.map(|pair| pair.ports(run));
        let addresses = match addresses {
            Some((first, last)) if self.flags.unwrap_or(0) & flag::NETMAP != 0 => {
                let info = &run.packet.info;
                let old = if self.manip == Manip::Src { info.src } else { info.dst };
                Some(mapped(old, first, last)).map(|ip| (ip, ip))
            }
            other => other,
        };
        let range = Range { addresses, ..range(self.flags, ports) };
        decided(nat::setup(run.packet, self.manip, &range))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(TYPE, (self.manip == Manip::Dst).into());
        out.be32(FAMILY, self.family.into());
        if let Some(pair) = self.addresses {
            pair.dump(ADDR_MIN, ADDR_MAX, out);
        }
        if let Some(pair) = self.ports {
            pair.dump(PROTO_MIN, PROTO_MAX, out);
        }
        if let Some(flags) = self.flags {
            out.be32(FLAGS, flags);
        }
    }
    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        in_nat_chain(place, if self.manip == Manip::Src { POST | INPUT } else { PRE | OUTPUT })
    }
}

/// The address at the same place of another network, which goes from `first` to `last`.
fn mapped(old: IpAddr, first: IpAddr, last: IpAddr) -> IpAddr {
    match (old, first, last) {
        (IpAddr::V4(old), IpAddr::V4(first), IpAddr::V4(last)) => {
            let host = first.to_bits() ^ last.to_bits();
            IpAddr::V4((old.to_bits() & host | first.to_bits() & !host).into())
        }
        (IpAddr::V6(old), IpAddr::V6(first), IpAddr::V6(last)) => {
            let host = first.to_bits() ^ last.to_bits();
            IpAddr::V6((old.to_bits() & host | first.to_bits() & !host).into())
        }
        _ => first,
    }
}

struct Masquerade {
    ports: Option<Pair>,
    flags: Option<u32>,
}

const MASQ_FLAGS: u16 = 1;
const MASQ_MIN: u16 = 2;
const MASQ_MAX: u16 = 3;

pub(super) fn masquerade(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let ports = Pair::parse(attrs, MASQ_MIN, MASQ_MAX, 2, scope)?;
    Ok(Box::new(Masquerade { ports, flags: flags(attrs, MASQ_FLAGS)? }))
}

impl Expr for Masquerade {
    fn name(&self) -> &'static str {
        "masq"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let ports = self.ports.map(|pair| pair.ports(run));
        decided(nat::masquerade(run.packet, &range(self.flags, ports)))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        if let Some(flags) = self.flags {
            out.be32(MASQ_FLAGS, flags);
        }
        if let Some(pair) = self.ports {
            pair.dump(MASQ_MIN, MASQ_MAX, out);
        }
    }
    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        in_nat_chain(place, POST)
    }
}

struct Redirect {
    ports: Option<Pair>,
    flags: Option<u32>,
}

const REDIR_MIN: u16 = 1;
const REDIR_MAX: u16 = 2;
const REDIR_FLAGS: u16 = 3;

pub(super) fn redirect(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let ports = Pair::parse(attrs, REDIR_MIN, REDIR_MAX, 2, scope)?;
    Ok(Box::new(Redirect { ports, flags: flags(attrs, REDIR_FLAGS)? }))
}

impl Expr for Redirect {
    fn name(&self) -> &'static str {
        "redir"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let ports = self.ports.map(|pair| pair.ports(run));
        decided(nat::redirect(run.packet, &range(self.flags, ports)))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        if let Some(pair) = self.ports {
            pair.dump(REDIR_MIN, REDIR_MAX, out);
        }
        if let Some(flags) = self.flags {
            out.be32(REDIR_FLAGS, flags);
        }
    }
    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        in_nat_chain(place, PRE | OUTPUT)
    }
}
