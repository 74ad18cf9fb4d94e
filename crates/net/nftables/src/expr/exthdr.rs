//! `exthdr`: options of TCP and IPv4, extension headers of IPv6.

use super::bits::small;
use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;

const DREG: u16 = 1;
const TYPE: u16 = 2;
const OFFSET: u16 = 3;
const LEN: u16 = 4;
const FLAGS: u16 = 5;
const OP: u16 = 6;
const SREG: u16 = 7;
const PRESENT: u32 = 1;

const IPV6: u32 = 0;
const TCP: u32 = 1;
const IPV4: u32 = 2;

const IPPROTO_TCP: u8 = 6;
const TCPOPT_MSS: u8 = 2;

#[derive(Clone, Copy)]
struct Place {
    kind: u8,
    offset: usize,
    len: usize,
    op: u32,
}

struct Load {
    place: Place,
    present: bool,
    target: Reg,
}

struct Store {
    place: Place,
    source: Reg,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let op = attrs.be32(OP)?.unwrap_or(IPV6);
    if op == TCP && !attrs.has(DREG) && !attrs.has(SREG) {
        return parse_strip(attrs);
    }
    let kind = attrs.need(TYPE)?.byte()?;
    let place = Place { kind, offset: small(attrs.be32(OFFSET)?)?, len: small(attrs.be32(LEN)?)?, op };
    let flags = attrs.be32(FLAGS)?;
    match (attrs.get(DREG), attrs.get(SREG)) {
        (Some(_), Some(_)) => Err(Errno::EOPNOTSUPP.into()),
        (Some(_), None) if ![IPV6, TCP, IPV4].contains(&op) => Err(Errno::EOPNOTSUPP.into()),
        (Some(_), None) if flags.unwrap_or(0) & !PRESENT != 0 => Err(Errno::EINVAL.into()),
        (Some(target), None) => {
            // The options of IPv4 that can be told apart.
            if op == IPV4 && ![130, 131, 137, 148, 7].contains(&kind) && kind != 0 {
                return Err(Errno::EOPNOTSUPP.into());
            }
            let present = flags.unwrap_or(0) & PRESENT != 0;
            Ok(Box::new(Load { place, present, target: Reg::store(target, place.len, &scope.inited)? }))
        }
        (None, Some(source)) if op == TCP => match place.len {
            _ if flags.is_some() || place.offset < 2 => Err(Errno::EINVAL.into()),
            2 | 4 => Ok(Box::new(Store { place, source: Reg::load(source, place.len, &scope.inited)? })),
            _ => Err(Errno::EOPNOTSUPP.into()),
        },
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Takes an option of TCP out.
fn parse_strip(attrs: Attrs<'_>) -> Result<Box<dyn Expr>> {
    match [OFFSET, LEN, FLAGS].into_iter().any(|kind| attrs.has(kind)) {
        true => Err(Errno::EINVAL.into()),
        false => {
            let kind = attrs.need(TYPE)?.byte()?;
            Ok(Box::new(Strip(Place { kind, offset: 0, len: 0, op: TCP })))
        }
    }
}

/// Where an option with that number is among options of the form of TCP's and IPv4's.
fn option(bytes: &[u8], wanted: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        match *bytes.get(at)? {
            0 => return None,
            kind @ 1 if kind != wanted => at += 1,
            kind => {
                let len = usize::from(*bytes.get(at + 1)?);
                if kind == wanted {
                    return (len >= 2 && at + len <= bytes.len()).then_some(at);
                }
                at += len.max(2);
            }
        }
    }
}

/// Where an extension header with that number is in an IPv6 packet.
fn extension(bytes: &[u8], wanted: u8) -> Option<usize> {
    const BY_EIGHTS: [u8; 4] = [0, 43, 60, 135];
    const FRAGMENT: u8 = 44;
    let (mut next, mut at) = (*bytes.get(6)?, 40);
    loop {
        if next == wanted {
            return Some(at);
        }
        let len = match next {
            FRAGMENT => 8,
            _ if BY_EIGHTS.contains(&next) => (usize::from(*bytes.get(at + 1)?) + 1) * 8,
            _ => return None,
        };
        next = *bytes.get(at)?;
        at += len;
    }
}

impl Place {
    /// Offset of the header or option in the packet.
    fn find(self, run: &Run<'_, '_>) -> Option<usize> {
        let bytes = run.packet.bytes();
        match self.op {
            IPV6 if run.is_v6() => extension(bytes, self.kind),
            IPV4 if !run.is_v6() => Some(20 + option(bytes.get(20..run.packet.info.header_len)?, self.kind)?),
            TCP if run.l4proto()? == IPPROTO_TCP => {
                let start = run.transport()?;
                let len = usize::from(*bytes.get(start + 12)? >> 4) * 4;
                Some(start + 20 + option(bytes.get(start + 20..start + len)?, self.kind)?)
            }
            _ => None,
        }
    }

    fn dump(self, flags: u32, out: &mut Writer) {
        out.byte(TYPE, self.kind);
        out.be32(OFFSET, self.offset as u32);
        out.be32(LEN, self.len as u32);
        out.be32(FLAGS, flags);
        out.be32(OP, self.op);
    }
}

impl Expr for Load {
    fn name(&self) -> &'static str {
        "exthdr"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let found = self.place.find(run);
        if self.present {
            run.regs.set(self.target, &[u8::from(found.is_some())]);
            return Flow::Next;
        }
        let Some(start) = found.map(|at| at + self.place.offset) else { return Flow::Break };
        let Some(bytes) = run.packet.bytes().get(start..start + self.place.len) else { return Flow::Break };
        run.regs.set(self.target, bytes);
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(DREG, self.target.number());
        self.place.dump(self.present.into(), out);
    }
}

impl Expr for Store {
    fn name(&self) -> &'static str {
        "exthdr"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        // A packet without the option stays as it is.
        let Some(at) = self.place.find(run) else { return Flow::Next };
        let start = at + self.place.offset;
        let bytes = run.packet.bytes();
        let end = at + usize::from(bytes.get(at + 1).copied().unwrap_or(0));
        if start + self.place.len > end {
            return Flow::Next;
        }
        let new = run.regs.get(self.source);
        // The size of segments is never made larger.
        if self.place.kind == TCPOPT_MSS
            && self.place.len == 2
            && bytes.get(start..start + 2).is_some_and(|old| old <= new)
        {
            return Flow::Next;
        }
        let mut value = [0; 4];
        value[..new.len()].copy_from_slice(new);
        let len = new.len();
        Flow::when(run.packet.write(start, &value[..len]))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(SREG, self.source.number());
        let Place { kind, offset, len, op } = self.place;
        out.byte(TYPE, kind);
        out.be32(OFFSET, offset as u32);
        out.be32(LEN, len as u32);
        out.be32(OP, op);
    }
}

struct Strip(Place);

impl Expr for Strip {
    fn name(&self) -> &'static str {
        "exthdr"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        const NOTHING: [u8; 40] = [1; 40];
        let Some(at) = self.0.find(run) else { return Flow::Break };
        let len = run.packet.bytes().get(at + 1).map_or(0, |len| usize::from(*len)).min(NOTHING.len());
        Flow::when(run.packet.write(at, &NOTHING[..len]))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.byte(TYPE, self.0.kind);
        out.be32(OP, self.0.op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_or_not() {
        let options = [1, 1, 3, 3, 7, 2, 4, 5, 0xb4, 0, 2, 4];
        assert_eq!(option(&options, 2), Some(5));
        assert_eq!(option(&options, 3), Some(2));
        assert_eq!(option(&options, 8), None);
        for hostile in [&[][..], &[2], &[2, 0], &[2, 1], &[3, 0, 3, 0], &[2, 9, 1], &[8, 255]] {
            assert_eq!(option(hostile, 2), None, "{hostile:?}");
        }
    }
}
