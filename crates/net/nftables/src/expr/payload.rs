//! `payload`: bytes of a packet's headers, read or changed.

use super::bits::small;
use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;

const DREG: u16 = 1;
const BASE: u16 = 2;
const OFFSET: u16 = 3;
const LEN: u16 = 4;
const SREG: u16 = 5;
const CSUM_TYPE: u16 = 6;
const CSUM_OFFSET: u16 = 7;
const CSUM_FLAGS: u16 = 8;

/// What offsets count from.
#[derive(Clone, Copy)]
enum From {
    Link = 0,
    Network = 1,
    Transport = 2,
    Inner = 3,
}

#[derive(Clone, Copy)]
struct Place {
    from: From,
    offset: u32,
    len: usize,
}

impl Place {
    /// Offset from the IP header on. Link headers are not kept.
    fn start(self, run: &Run<'_, '_>) -> Option<usize> {
        let from = match self.from {
            From::Link => return None,
            From::Network => 0,
            From::Transport => run.transport()?,
            From::Inner => inner(run)?,
        };
        from.checked_add(self.offset as usize)
    }
}

/// Offset of what follows the transport header.
fn inner(run: &Run<'_, '_>) -> Option<usize> {
    let at = run.transport()?;
    let len = match i32::from(run.l4proto()?) {
        TCP => usize::from(*run.packet.bytes().get(at + 12)? >> 4) * 4,
        UDP => 8,
        _ => return None,
    };
    Some(at + len)
}

const TCP: i32 = 6;
const UDP: i32 = 17;

struct Load {
    place: Place,
    target: Reg,
}

struct Store {
    place: Place,
    source: Reg,
    checksum: (u32, u32, u32),
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let from = match attrs.need(BASE)?.be32()? {
        0 => From::Link,
        1 => From::Network,
        2 => From::Transport,
        3 => From::Inner,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let offset = attrs.need(OFFSET)?.be32()?;
    let place = Place { from, offset, len: small(attrs.be32(LEN)?)? };
    match (attrs.get(DREG), attrs.get(SREG)) {
        (Some(_), Some(_)) | (None, None) => Err(Errno::EINVAL.into()),
        (Some(target), None) if offset > u16::MAX.into() => {
            Reg::store(target, place.len, &scope.inited)?;
            Err(Errno::ERANGE.into())
        }
        (Some(target), None) => {
            Ok(Box::new(Load { place, target: Reg::store(target, place.len, &scope.inited)? }))
        }
        (None, Some(source)) => {
            let kind = attrs.be32(CSUM_TYPE)?.unwrap_or(0);
            let flags = attrs.be32(CSUM_FLAGS)?.unwrap_or(0);
            // A changed link header would go nowhere; sums of SCTP are not kept.
            if matches!(place.from, From::Link) || kind > 1 {
                return Err(Errno::EOPNOTSUPP.into());
            }
            if flags & !1 != 0 {
                return Err(Errno::EINVAL.into());
            }
            let checksum = (kind, attrs.be32(CSUM_OFFSET)?.unwrap_or(0), flags);
            Ok(Box::new(Store { place, source: Reg::load(source, place.len, &scope.inited)?, checksum }))
        }
    }
}

fn dump(place: Place, out: &mut Writer) {
    out.be32(BASE, place.from as u32);
    out.be32(OFFSET, place.offset);
    out.be32(LEN, place.len as u32);
}

impl Expr for Load {
    fn name(&self) -> &'static str {
        "payload"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let Some(start) = self.place.start(run) else { return Flow::Break };
        let Some(bytes) = run.packet.bytes().get(start..start.saturating_add(self.place.len)) else {
            return Flow::Break;
        };
        run.regs.set(self.target, bytes);
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(DREG, self.target.number());
        dump(self.place, out);
    }
}

impl Expr for Store {
    fn name(&self) -> &'static str {
        "payload"
    }
    /// The checksums follow whatever a rule says of them.
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let Some(start) = self.place.start(run) else { return Flow::Break };
        Flow::when(run.packet.write(start, run.regs.get(self.source)))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(SREG, self.source.number());
        dump(self.place, out);
        let (kind, offset, flags) = self.checksum;
        out.be32(CSUM_TYPE, kind);
        out.be32(CSUM_OFFSET, offset);
        out.be32(CSUM_FLAGS, flags);
    }
}
