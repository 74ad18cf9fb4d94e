//! `reject`: drops a packet and tells the sender.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Verdict;
use crate::expression::{Expr, Flow, Place, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;

const TYPE: u16 = 1;
const CODE: u16 = 2;

#[derive(Clone, Copy)]
enum How {
    /// An ICMP or ICMPv6 error of the packet's family.
    Icmp(u8),
    Reset,
    /// One that exists in both families.
    Common(u8),
}

struct Reject(How);

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let code = || attrs.need(CODE)?.byte();
    let inet = scope.table.family == crate::family::INET;
    Ok(Box::new(Reject(match attrs.need(TYPE)?.be32()? {
        0 => How::Icmp(code()?),
        1 => How::Reset,
        2 if inet => match code()? {
            code if code > 3 => return Err(Errno::EINVAL.into()),
            code => How::Common(code),
        },
        _ => return Err(Errno::EINVAL.into()),
    })))
}

/// ICMP's destination unreachable, and ICMPv6's.
const UNREACHABLE: [u8; 2] = [3, 1];
/// The codes for no route, port, host and administratively prohibited, in ICMP and in ICMPv6.
const COMMON: [[u8; 2]; 4] = [[0, 0], [3, 4], [1, 3], [13, 1]];

impl Expr for Reject {
    fn name(&self) -> &'static str {
        "reject"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let family = usize::from(run.is_v6());
        match self.0 {
            How::Icmp(code) => run.packet.reject_with_icmp(UNREACHABLE[family], code),
            How::Common(code) => {
                let code = COMMON[usize::from(code) % COMMON.len()][family];
                run.packet.reject_with_icmp(UNREACHABLE[family], code);
            }
            How::Reset => run.packet.reject_with_reset(),
        }
        Flow::Verdict(Verdict::Drop)
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        let (kind, code) = match self.0 {
            How::Icmp(code) => (0, Some(code)),
            How::Reset => (1, None),
            How::Common(code) => (2, Some(code)),
        };
        out.be32(TYPE, kind);
        if let Some(code) = code {
            out.byte(CODE, code);
        }
    }
    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        // Everywhere but behind routing.
        if place.bit() & 0b01111 != 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }
}
