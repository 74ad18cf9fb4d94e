//! `ct`: the connection of a packet. `notrack`: the packet gets none.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Place, Run, octets};
use crate::family;
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use netfilter::conntrack::{Direction, Entry, Flow as Connection};
use netfilter::{CtState, TrackingUse};
use std::sync::atomic::Ordering;

const DREG: u16 = 1;
const KEY: u16 = 2;
const DIRECTION: u16 = 3;
const SREG: u16 = 4;

mod key {
    pub const STATE: u32 = 0;
    pub const DIRECTION: u32 = 1;
    pub const STATUS: u32 = 2;
    pub const MARK: u32 = 3;
    pub const EXPIRATION: u32 = 5;
    pub const L3PROTOCOL: u32 = 7;
    pub const SRC: u32 = 8;
    pub const DST: u32 = 9;
    pub const PROTOCOL: u32 = 10;
    pub const PROTO_SRC: u32 = 11;
    pub const PROTO_DST: u32 = 12;
    pub const ZONE: u32 = 17;
    pub const SRC_IP: u32 = 19;
    pub const DST_IP: u32 = 20;
    pub const SRC_IP6: u32 = 21;
    pub const DST_IP6: u32 = 22;
    pub const ID: u32 = 23;
}

struct Get {
    key: u32,
    direction: Option<u8>,
    target: Reg,
    _tracking: TrackingUse,
}

struct SetMark {
    source: Reg,
    _tracking: TrackingUse,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let key = attrs.need(KEY)?.be32()?;
    let tracking = || scope.netfilter.need_conntrack();
    match (attrs.get(DREG), attrs.get(SREG)) {
        (Some(_), Some(_)) | (None, None) => Err(Errno::EINVAL.into()),
        (None, Some(source)) if key == key::MARK => {
            if attrs.has(DIRECTION) {
                return Err(Errno::EINVAL.into());
            }
            Ok(Box::new(SetMark { source: Reg::load(source, 4, &scope.inited)?, _tracking: tracking()? }))
        }
        (None, Some(_)) => Err(Errno::EOPNOTSUPP.into()),
        (Some(target), None) => {
            let direction = attrs.get(DIRECTION).map(|attr| attr.byte()).transpose()?;
            let len = length(key, direction, scope.table.family)?;
            if direction.is_some_and(|direction| direction > 1) {
                return Err(Errno::EINVAL.into());
            }
            let target = Reg::store(target, len, &scope.inited)?;
            Ok(Box::new(Get { key, direction, target, _tracking: tracking()? }))
        }
    }
}

/// The length of a key's value. Some keys need a direction, others have none.
fn length(key: u32, direction: Option<u8>, of: u8) -> Result<usize, Errno> {
    let without = |len| if direction.is_some() { Err(Errno::EINVAL) } else { Ok(len) };
    let with = |len| if direction.is_none() { Err(Errno::EINVAL) } else { Ok(len) };
    match key {
        key::DIRECTION => without(1),
        key::STATE | key::STATUS | key::MARK | key::EXPIRATION => without(4),
        key::L3PROTOCOL | key::PROTOCOL => Ok(1),
        key::SRC | key::DST => match of {
            family::IPV4 => with(4),
            family::IPV6 | family::INET => with(16),
            _ => Err(Errno::EAFNOSUPPORT),
        },
        key::SRC_IP | key::DST_IP => with(4),
        key::SRC_IP6 | key::DST_IP6 => with(16),
        key::PROTO_SRC | key::PROTO_DST => with(2),
        key::ZONE => Ok(2),
        key::ID => without(4),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

impl Get {
    /// Stores what is asked of a connection; false when it has no such thing.
    fn load(&self, run: &mut Run<'_, '_>, entry: &Entry, direction: Direction) -> bool {
        let of = match self.direction {
            Some(0) => Direction::Original,
            Some(_) => Direction::Reply,
            None => direction,
        };
        let tuple = entry.tuple(of);
        let now = run.now();
        let regs = &mut run.regs;
        let mut address = |ip| {
            let (bytes, len) = octets(ip);
            let fits = len <= self.target.len();
            if fits {
                regs.set(self.target, &bytes[..len]);
            }
            fits
        };
        match self.key {
            key::SRC | key::SRC_IP | key::SRC_IP6 => return address(tuple.src),
            key::DST | key::DST_IP | key::DST_IP6 => return address(tuple.dst),
            key::DIRECTION => regs.set(self.target, &[direction as u8]),
            key::STATUS => regs.set(self.target, &entry.status().to_ne_bytes()),
            key::MARK => regs.set(self.target, &entry.mark().to_ne_bytes()),
            key::EXPIRATION => {
                let left = entry.seconds_left(now).saturating_mul(1000).min(u32::MAX.into()) as u32;
                regs.set(self.target, &left.to_ne_bytes());
            }
            key::L3PROTOCOL => {
                let v4 = tuple.src.is_ipv4();
                regs.set(self.target, &[if v4 { family::IPV4 } else { family::IPV6 }]);
            }
            key::PROTOCOL => regs.set(self.target, &[tuple.protocol]),
            key::PROTO_SRC => regs.set(self.target, &tuple.src_port.to_be_bytes()),
            key::PROTO_DST => regs.set(self.target, &tuple.dst_port.to_be_bytes()),
            key::ID => regs.set(self.target, &entry.id.to_be_bytes()),
            // No connection is in a zone.
            _ => regs.set(self.target, &0u16.to_ne_bytes()),
        }
        true
    }
}

impl Expr for Get {
    fn name(&self) -> &'static str {
        "ct"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        if self.key == key::STATE {
            let state = run.state() as u32;
            run.regs.set(self.target, &state.to_ne_bytes());
            return Flow::Next;
        }
        let connection = run.packet.connection();
        let Some((entry, direction)) = connection.map(|(entry, way, _)| (entry.clone(), way)) else {
            return Flow::Break;
        };
        Flow::when(self.load(run, &entry, direction))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(DREG, self.target.number());
        out.be32(KEY, self.key);
        let both_ways = [key::L3PROTOCOL, key::PROTOCOL].contains(&self.key);
        if let Some(direction) = self.direction.filter(|_| !both_ways) {
            out.byte(DIRECTION, direction);
        }
    }
}

impl Expr for SetMark {
    fn name(&self) -> &'static str {
        "ct"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let mark = run.regs.word(self.source);
        if let Some((entry, _, _)) = run.packet.connection() {
            entry.mark.store(mark, Ordering::Relaxed);
        }
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(KEY, key::MARK);
        out.be32(SREG, self.source.number());
    }
}

struct Notrack;

pub(super) fn notrack(_attrs: Attrs<'_>, _scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    Ok(Box::new(Notrack))
}

impl Expr for Notrack {
    fn name(&self) -> &'static str {
        "notrack"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        // Too late for a packet with a known connection.
        if run.state() == CtState::Invalid {
            run.packet.tags.flow = Connection::Untracked;
        }
        Flow::Next
    }
    fn dump(&self, _out: &mut Writer, _table: &Table) {}
    fn validate(&self, _place: Place, _table: &Table) -> Result<(), Errno> {
        Ok(())
    }
}
