//! Expressions, of which rules consist, and the packet that they run on.

use crate::attr::{NFTA_LIST_ELEM, Result, Writer};
use crate::data::{Reg, Registers, Verdict};
use crate::model::{Kind, Ref, Table};
use crate::points::POINTS;
use crate::set::Set;
use crate::set::element::Element;
use abi::Errno;
use netfilter::{CtState, Family, Packet};
use std::net::IpAddr;
use std::sync::Arc;

/// What an expression comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next expression.
    Next,
    /// The rule does not match.
    Break,
    /// The rule decides.
    Verdict(Verdict),
}

impl Flow {
    /// Goes on when it matches.
    pub fn when(matches: bool) -> Flow {
        if matches { Flow::Next } else { Flow::Break }
    }
}

/// Where a rule is reached from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub kind: Kind,
    pub hook: u8,
}

impl Place {
    /// The bit of the hook.
    pub fn bit(self) -> u8 {
        1 << self.hook
    }
    /// The hook as netfilter's point.
    pub fn point(self) -> netfilter::Point {
        POINTS[usize::from(self.hook) % POINTS.len()]
    }
}

/// An expression. Packets of several threads meet it at once; state is atomic or behind a leaf lock.
pub(crate) trait Expr: Send + Sync {
    fn name(&self) -> &'static str;
    fn run(&self, run: &mut Run<'_, '_>) -> Flow;
    /// Writes the attributes that it was made from, and what it counted.
    fn dump(&self, out: &mut Writer, table: &Table);
    /// What it keeps in use.
    fn refs(&self) -> Vec<Ref> {
        Vec::new()
    }
    /// Whether it may stand in a chain that such a base chain leads to.
    fn validate(&self, _place: Place, _table: &Table) -> Result<(), Errno> {
        Ok(())
    }
    /// One like it for a new element of a set; `None` when elements cannot have it.
    fn fresh(&self) -> Option<Box<dyn Expr>> {
        None
    }
    /// Forgets what it counted.
    fn reset(&self) {}
    /// Protocol and its sense, as iptables gave them with the rule.
    fn compat(&self) -> Option<(u16, bool)> {
        None
    }
    /// Bytes that it takes beside itself.
    fn weight(&self) -> usize {
        0
    }
}

/// A packet in a chain.
pub(crate) struct Run<'a, 'p> {
    pub regs: Registers,
    pub packet: &'a mut Packet<'p>,
    pub table: &'a Table,
    /// Monotonic time.
    pub nanos: u64,
    /// What is left of the work that a packet may make.
    pub work: usize,
}

impl Run<'_, '_> {
    /// Takes of what a packet may spend; false when nothing is left, and the packet is dropped then.
    pub fn spend(&mut self, work: usize) -> bool {
        self.work = self.work.saturating_sub(work);
        self.work > 0
    }

    /// The element of a set that a register's value belongs to.
    pub fn find(&mut self, set: &Set, key: Reg) -> Option<Arc<Element>> {
        self.spend(set.contents.walked() / 16 + 1).then_some(())?;
        set.contents.find(self.regs.get(key), self.now())
    }

    /// Milliseconds.
    pub fn now(&self) -> u64 {
        self.nanos / 1_000_000
    }
    /// Bytes of the packet.
    pub fn len(&self) -> usize {
        self.packet.total_len()
    }
    /// A number that cannot be guessed from outside.
    pub fn random(&self) -> u32 {
        self.packet.netfilter.random() as u32
    }
    /// A number that stays the same and is not known outside.
    pub fn seed(&self) -> u32 {
        self.packet.netfilter.hash("nf_tables") as u32
    }
    /// The transport protocol.
    pub fn l4proto(&self) -> Option<u8> {
        Some(self.packet.info.protocol)
    }
    pub fn is_v6(&self) -> bool {
        self.packet.family == Family::V6
    }
    /// Offset of the transport header, unless the packet is a later fragment.
    pub fn transport(&self) -> Option<usize> {
        (self.packet.fragment == 0).then_some(self.packet.info.header_len)
    }
    /// Source and destination with their ports.
    pub fn ends(&self) -> (([u8; 16], u16), ([u8; 16], u16)) {
        let (src, dst) = self.packet.ports().unwrap_or_default();
        let info = &self.packet.info;
        ((octets(info.src).0, src), (octets(info.dst).0, dst))
    }
    /// The state of the packet's connection, as a bit.
    pub fn state(&self) -> CtState {
        self.packet.ct_state()
    }
}

/// The bytes of an address, and how many they are.
pub(crate) fn octets(ip: IpAddr) -> ([u8; 16], usize) {
    match ip {
        IpAddr::V6(v6) => (v6.octets(), 16),
        IpAddr::V4(v4) => {
            let mut out = [0; 16];
            out[..4].copy_from_slice(&v4.octets());
            (out, 4)
        }
    }
}

pub(crate) const NAME: u16 = 1;
pub(crate) const DATA: u16 = 2;

/// An expression as an attribute.
pub(crate) fn dump(expr: &dyn Expr, kind: u16, out: &mut Writer, table: &Table) {
    out.nest(kind, |out| {
        out.text(NAME, expr.name().as_bytes());
        out.nest(DATA, |out| expr.dump(out, table));
    });
}

/// Stateful expressions as attributes: one, or a list.
pub(crate) fn dump_list(exprs: &[Box<dyn Expr>], one: u16, many: u16, out: &mut Writer, table: &Table) {
    match exprs {
        [] => {}
        [only] => dump(&**only, one, out, table),
        all => out.nest(many, |out| {
            for expr in all {
                dump(&**expr, NFTA_LIST_ELEM, out, table);
            }
        }),
    }
}
