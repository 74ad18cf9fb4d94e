//! Evaluation of rules: a packet goes through a base chain and the chains that it jumps to. Nothing is allocated on the
//! way, unless a rule adds an element to a set.

use crate::data::{Registers, Verdict};
use crate::expression::{Flow, Run};
use crate::model::{Chain, Rule, Ruleset};
use netfilter::Packet;

/// Chains that may wait for others to return (`NFT_JUMP_STACK_SIZE`).
pub(crate) const JUMPS: usize = 16;
/// Work that one packet may make in a base chain: rules, expressions, and elements that are walked, sixteen at a time.
/// More would only waste time on purpose.
const WORK: usize = 1 << 18;

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
    let nanos = packet.now.nanos();
    let mut run = Run { regs: Registers::default(), packet, table, nanos, work: WORK };
    if let Some(decision) = self::chain(&mut run, chain) {
        return decision;
    }
    if let Some(counter) = &base.counter {
        counter.count(run.len());
    }
    if base.accepts { Decision::Accept } else { Decision::Drop }
}

/// What the chain's rules decide; `None` when they leave it to the policy.
fn chain<'a>(run: &mut Run<'a, '_>, first: &'a Chain) -> Option<Decision> {
    let mut waiting: [(&Chain, usize); JUMPS] = [(first, 0); JUMPS];
    let mut depth = 0;
    let (mut chain, mut next) = (first, 0);
    while run.spend(1) {
        let verdict = match chain.rules.get(next) {
            Some(rule) => self::rule(run, rule),
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
                let Some(target) = run.table.chains.get(&target) else { return Some(Decision::Drop) };
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

fn rule(run: &mut Run<'_, '_>, rule: &Rule) -> Verdict {
    for expr in &rule.exprs {
        if !run.spend(1) {
            return Verdict::Drop;
        }
        match expr.run(run) {
            Flow::Next => {}
            Flow::Break => return Verdict::Break,
            Flow::Verdict(Verdict::Continue) => {}
            Flow::Verdict(verdict) => return verdict,
        }
    }
    Verdict::Continue
}
