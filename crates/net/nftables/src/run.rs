//! Evaluation of rules: a packet goes through a base chain and the chains that it jumps to. Nothing is allocated on the
//! way, unless a rule adds an element to a set.

use crate::data::{Reg, Registers, Verdict};
use crate::expr::Flow;
use crate::model::{Chain, Ruleset, Table};
use crate::set::Set;
use crate::set::element::Element;
use netfilter::{CtState, Family, Packet};
use std::net::IpAddr;
use std::sync::Arc;

/// Chains that may wait for others to return (`NFT_JUMP_STACK_SIZE`).
pub(crate) const JUMPS: usize = 16;
/// Work that one packet may make in a base chain: rules, expressions, and elements that are walked, sixteen at a time.
/// More would only waste time on purpose.
const WORK: usize = 1 << 18;

/// A packet in a chain.
pub(crate) struct Run<'a, 'p> {
    pub regs: Registers,
    pub packet: &'a mut Packet<'p>,
    pub table: &'a Table,
    /// Monotonic time.
    pub nanos: u64,
    /// What is left of [`WORK`].
    work: usize,
}

/// What a base chain decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Accept,
    Drop,
}

/// Runs a base chain of a table.
pub(crate) fn base(rules: &Ruleset, table: u64, chain: u64, packet: &mut Packet<'_>) -> Decision {
    let table = rules.tables.get(&table);
    let Some(table) = table else { return Decision::Accept };
    let Some(chain) = table.chains.get(&chain) else { return Decision::Accept };
    let Some(base) = &chain.base else { return Decision::Accept };
    let nanos = packet.now.since(netstack::time::Instant::from_nanos(0)).as_nanos() as u64;
    let mut run = Run { regs: Registers::default(), packet, table, nanos, work: WORK };
    if let Some(decision) = run.chain(chain) {
        return decision;
    }
    if let Some(counter) = &base.counter {
        counter.count(run.len());
    }
    if base.accepts { Decision::Accept } else { Decision::Drop }
}

impl<'a> Run<'a, '_> {
    /// What the chain's rules decide; `None` when they leave it to the policy.
    fn chain(&mut self, first: &'a Chain) -> Option<Decision> {
        let mut waiting: [(&Chain, usize); JUMPS] = [(first, 0); JUMPS];
        let mut depth = 0;
        let (mut chain, mut next) = (first, 0);
        while self.spend(1) {
            let verdict = match chain.rules.get(next) {
                Some(rule) => self.rule(rule),
                None => Verdict::Return,
            };
            next += 1;
            match verdict {
                Verdict::Accept => return Some(Decision::Accept),
                Verdict::Drop => return Some(Decision::Drop),
                Verdict::Continue | Verdict::Break => {}
                Verdict::Return => {
                    depth = usize::checked_sub(depth, 1)?;
                    (chain, next) = waiting[depth];
                }
                Verdict::Jump(target) | Verdict::Goto(target) => {
                    let Some(target) = self.table.chains.get(&target) else { return Some(Decision::Drop) };
                    if matches!(verdict, Verdict::Jump(_)) {
                        let Some(place) = waiting.get_mut(depth) else { return Some(Decision::Drop) };
                        *place = (chain, next);
                        depth += 1;
                    }
                    (chain, next) = (target, 0);
                }
            }
        }
        Some(Decision::Drop)
    }

    fn rule(&mut self, rule: &crate::model::Rule) -> Verdict {
        for expr in &rule.exprs {
            if !self.spend(1) {
                return Verdict::Drop;
            }
            match expr.run(self) {
                Flow::Next => {}
                Flow::Break => return Verdict::Break,
                Flow::Verdict(Verdict::Continue) => {}
                Flow::Verdict(verdict) => return verdict,
            }
        }
        Verdict::Continue
    }

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
