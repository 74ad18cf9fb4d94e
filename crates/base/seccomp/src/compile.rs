//! Rules by system call to a program.
//!
//! The program finds the outcome by a binary search over the numbers, in which neighbours with the same outcome are
//! one leaf; a leaf is a return value or the conditions of one call. So a profile with hundreds of calls costs about
//! ten steps.

use crate::{ARCH, MAX_INSTRUCTIONS, RET_ERRNO, RET_KILL_PROCESS, SockFilter};
use std::collections::BTreeMap;

/// Numbers from here on are those of the x32 ABI, which is not there.
const X32: u32 = 0x4000_0000;
const ENOSYS: u32 = 38;

/// Most instructions of one rule's conditions: a conditional jump reaches over them.
const MAX_RULE: usize = 240;

/// How an argument is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Not equal.
    Ne,
    /// Less, unsigned.
    Lt,
    /// Less or equal.
    Le,
    /// Equal.
    Eq,
    /// Greater or equal.
    Ge,
    /// Greater.
    Gt,
    /// Equal in the bits of this mask.
    MaskedEq(u64),
    /// The lower half, in the bits of this mask, is one of these; the condition's own value counts for nothing.
    LowIn(u32, &'static [u32]),
}

/// A condition on one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which one, from 0; above 5 there is none, and the condition never holds.
    pub argument: usize,
    /// How.
    pub operator: Operator,
    /// With what.
    pub value: u64,
}

/// What happens to a call when all conditions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of the call.
    pub nr: u32,
    /// All must hold; none always do.
    pub conditions: Vec<Condition>,
    /// SECCOMP_RET_* with its data.
    pub value: u32,
}

/// Addresses of code, which share their upper 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    high: u32,
    low: std::ops::Range<u32>,
}

impl Text {
    /// From `start` on, `len` bytes; `None` when the upper 32 bits of the addresses differ.
    pub fn new(start: u64, len: u32) -> Option<Self> {
        let low = start as u32;
        Some(Self { high: (start >> 32) as u32, low: low..low.checked_add(len)? })
    }

    /// Whether an address is there.
    pub fn contains(&self, address: u64) -> bool {
        (address >> 32) as u32 == self.high && self.low.contains(&(address as u32))
    }
}

/// A set of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// For a call that no rule matches.
    pub default: u32,
    /// For a call with a number above all that the rules' author knew of (see `newest`), if that differs.
    pub unknown: Option<u32>,
    /// The highest number that the author knew of.
    pub newest: u32,
    /// If given, the rules judge calls from there only. All others get the default, and so do calls of another
    /// architecture and of x32, which otherwise kill the process and do not exist.
    pub text: Option<Text>,
    /// The rules. Of those for one call the first that matches decides, save that one without conditions counts
    /// for the call as a whole, as in libseccomp.
    pub rules: Vec<Rule>,
}

/// The program is longer than Linux takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// What a number leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Return(u32),
    Conditions(Vec<(Vec<Condition>, u32)>, u32),
}

impl Rules {
    /// Translates the rules.
    pub fn compile(&self) -> Result<Vec<SockFilter>, TooLong> {
        if self.rules.iter().any(|rule| rule.conditions.iter().map(instructions).sum::<usize>() > MAX_RULE) {
            return Err(TooLong);
        }
        let stranger = if self.text.is_some() { self.default } else { RET_KILL_PROCESS };
        let mut code = vec![load(4), jump(JEQ, ARCH, 1, 0), ret(stranger)];
        if let Some(Text { high, low }) = &self.text {
            code.extend([load(12), jump(JEQ, *high, 1, 0), ret(stranger), load(8)]);
            if low.start > 0 {
                code.extend([jump(JGE, low.start, 1, 0), ret(stranger)]);
            }
            code.extend([jump(JGE, low.end, 0, 1), ret(stranger)]);
        }
        code.push(load(0));
        code.extend(search(&self.leaves()));
        if code.len() > MAX_INSTRUCTIONS { Err(TooLong) } else { Ok(code) }
    }

    /// Outcomes with the number from which each is in force, in order; the first begins at 0.
    fn leaves(&self) -> Vec<(u32, Outcome)> {
        let mut calls: BTreeMap<u32, Outcome> = BTreeMap::new();
        for rule in &self.rules {
            let whole = rule.conditions.is_empty();
            match calls.get_mut(&rule.nr) {
                Some(Outcome::Return(_)) => {}
                Some(Outcome::Conditions(list, _)) if !whole => {
                    list.push((rule.conditions.clone(), rule.value))
                }
                _ if whole => drop(calls.insert(rule.nr, Outcome::Return(rule.value))),
                _ => {
                    let list = vec![(rule.conditions.clone(), rule.value)];
                    calls.insert(rule.nr, Outcome::Conditions(list, self.default));
                }
            }
        }
        let mut leaves: Vec<(u32, Outcome)> = Vec::new();
        let mut add = |from: u32, outcome: Outcome| match leaves.last_mut() {
            Some((_, last)) if *last == outcome => {}
            Some((at, last)) if *at == from => *last = outcome,
            _ => leaves.push((from, outcome)),
        };
        let mut next = 0;
        for (nr, outcome) in calls {
            if nr > next || next == 0 {
                add(next, Outcome::Return(self.default));
            }
            add(nr, outcome);
            next = nr + 1;
        }
        add(next, Outcome::Return(self.default));
        if let Some(value) = self.unknown {
            add(next.max(self.newest + 1), Outcome::Return(value));
        }
        add(X32, Outcome::Return(if self.text.is_some() { self.default } else { RET_ERRNO | ENOSYS }));
        leaves
    }
}

const LD: u16 = 0x20;
const JA: u16 = 0x05;
const JEQ: u16 = 0x15;
const JGT: u16 = 0x25;
const JGE: u16 = 0x35;
const AND: u16 = 0x54;
const RET: u16 = 0x06;

fn load(offset: u32) -> SockFilter {
    SockFilter { code: LD, jt: 0, jf: 0, k: offset }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> SockFilter {
    SockFilter { code, jt, jf, k }
}

fn ret(value: u32) -> SockFilter {
    SockFilter { code: RET, jt: 0, jf: 0, k: value }
}

/// The number is in the accumulator. Distances that a conditional jump cannot span take an unconditional one.
fn search(leaves: &[(u32, Outcome)]) -> Vec<SockFilter> {
    match leaves {
        [] => Vec::new(),
        [(_, Outcome::Return(value))] => vec![ret(*value)],
        [(_, Outcome::Conditions(list, otherwise))] => {
            let mut code: Vec<SockFilter> =
                list.iter().flat_map(|(conditions, value)| all(conditions, *value)).collect();
            code.push(ret(*otherwise));
            code
        }
        _ => {
            let (low, high) = leaves.split_at(leaves.len() / 2);
            let (below, above) = (search(low), search(high));
            let mut code = match u8::try_from(below.len()) {
                Ok(distance) => vec![jump(JGE, high[0].0, distance, 0)],
                Err(_) => vec![jump(JGE, high[0].0, 0, 1), jump(JA, below.len() as u32, 0, 0)],
            };
            code.extend(below);
            code.extend(above);
            code
        }
    }
}

/// Returns `value` if all conditions hold, and goes on behind itself otherwise.
fn all(conditions: &[Condition], value: u32) -> Vec<SockFilter> {
    let mut code = vec![ret(value)];
    // From the end, so that the distance to what follows is known.
    for condition in conditions.iter().rev() {
        let mut with = test(condition, code.len());
        with.append(&mut code);
        code = with;
    }
    code
}

/// How many instructions [`test`] makes of a condition.
fn instructions(condition: &Condition) -> usize {
    test(condition, 0).len()
}

/// Goes on behind itself if the condition holds, and else skips `skip` instructions more.
fn test(condition: &Condition, skip: usize) -> Vec<SockFilter> {
    let Condition { argument, operator, value } = *condition;
    let fail = |behind: usize| (skip + behind) as u8;
    if argument > 5 {
        return vec![jump(JA, skip as u32, 0, 0)];
    }
    let low = 16 + 8 * argument as u32;
    let (low, high) = (load(low), load(low + 4));
    let (l, h) = (value as u32, (value >> 32) as u32);
    match operator {
        Operator::Eq => vec![high, jump(JEQ, h, 0, fail(2)), low, jump(JEQ, l, 0, fail(0))],
        Operator::Ne => vec![high, jump(JEQ, h, 0, 2), low, jump(JEQ, l, fail(0), 0)],
        Operator::Gt => {
            vec![high, jump(JGT, h, 3, 0), jump(JEQ, h, 0, fail(2)), low, jump(JGT, l, 0, fail(0))]
        }
        Operator::Ge => {
            vec![high, jump(JGT, h, 3, 0), jump(JEQ, h, 0, fail(2)), low, jump(JGE, l, 0, fail(0))]
        }
        Operator::Lt => {
            vec![high, jump(JGT, h, fail(3), 0), jump(JEQ, h, 0, 2), low, jump(JGE, l, fail(0), 0)]
        }
        Operator::Le => {
            vec![high, jump(JGT, h, fail(3), 0), jump(JEQ, h, 0, 2), low, jump(JGT, l, fail(0), 0)]
        }
        Operator::MaskedEq(mask) => {
            let (ml, mh) = (mask as u32, (mask >> 32) as u32);
            let below = if ml == 0 { Vec::new() } else { masked(low, ml, &[l & ml], skip) };
            let mut code = if mh == 0 { Vec::new() } else { masked(high, mh, &[h & mh], skip + below.len()) };
            code.extend(below);
            code
        }
        Operator::LowIn(mask, values) => masked(low, mask, values, skip),
    }
}

/// The same for a word that is to be one of some values in the bits of a mask.
fn masked(load: SockFilter, mask: u32, values: &[u32], skip: usize) -> Vec<SockFilter> {
    let mut code = vec![load];
    if mask != u32::MAX {
        code.push(SockFilter { code: AND, jt: 0, jf: 0, k: mask });
    }
    let Some((last, others)) = values.split_last() else { return vec![jump(JA, skip as u32, 0, 0)] };
    // A match skips the values that are left.
    code.extend(others.iter().zip(1..).map(|(value, at)| jump(JEQ, *value, (values.len() - at) as u8, 0)));
    code.push(jump(JEQ, *last, 0, skip as u8));
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, Program, RET_ALLOW, RET_TRAP};

    const DENY: u32 = RET_ERRNO | 1;

    fn run(rules: &Rules, nr: i32, args: [u64; 6]) -> u32 {
        let program = Program::new(&rules.compile().unwrap()).expect("Linux takes it");
        program.run(&Data { nr, arch: ARCH, ip: 0, args })
    }

    fn rule(nr: u32, conditions: &[(usize, Operator, u64)], value: u32) -> Rule {
        let conditions = conditions.iter();
        let one =
            |&(argument, operator, value): &(usize, Operator, u64)| Condition { argument, operator, value };
        Rule { nr, conditions: conditions.map(one).collect(), value }
    }

    #[test]
    fn no_rules() {
        let rules = Rules { default: DENY, ..Rules::default() };
        assert_eq!(run(&rules, 0, [0; 6]), DENY);
        assert_eq!(run(&rules, X32 as i32, [0; 6]), RET_ERRNO | ENOSYS);
        assert_eq!(run(&rules, -1, [0; 6]), RET_ERRNO | ENOSYS);
        let program = Program::new(&rules.compile().unwrap()).unwrap();
        assert_eq!(program.run(&Data { arch: 0x4000_0003, ..Data::default() }), RET_KILL_PROCESS);
    }

    #[test]
    fn every_number_finds_its_outcome() {
        // Odd numbers are allowed, and every seventh one trapped when its argument is 5.
        let mut list: Vec<Rule> =
            (0..450).filter(|nr| nr % 2 == 1).map(|nr| rule(nr, &[], RET_ALLOW)).collect();
        list.extend((0..450).step_by(14).map(|nr| rule(nr, &[(0, Operator::Eq, 5)], RET_TRAP)));
        let rules =
            Rules { default: DENY, unknown: Some(RET_ERRNO | ENOSYS), newest: 460, text: None, rules: list };
        for nr in 0..500 {
            let expected = |arg| match nr {
                461.. => RET_ERRNO | ENOSYS,
                450.. => DENY,
                _ if nr % 2 == 1 => RET_ALLOW,
                _ if nr % 14 == 0 && arg == 5 => RET_TRAP,
                _ => DENY,
            };
            for arg in [4, 5] {
                assert_eq!(run(&rules, nr, [arg, 0, 0, 0, 0, 0]), expected(arg), "{nr} {arg}");
            }
        }
    }

    #[test]
    fn comparisons_are_of_64_bits() {
        let values = [0, 1, 5, 6, 7, (1 << 32) | 5, (1 << 32) | 6, (2 << 32) | 1, u64::MAX, 0xffff_ffff];
        for value in values {
            for arg in values {
                let mask = 0x1_0000_0006;
                let operators = [
                    (Operator::Eq, arg == value),
                    (Operator::Ne, arg != value),
                    (Operator::Lt, arg < value),
                    (Operator::Le, arg <= value),
                    (Operator::Gt, arg > value),
                    (Operator::Ge, arg >= value),
                    (Operator::MaskedEq(mask), arg & mask == value & mask),
                ];
                for (operator, holds) in operators {
                    let rules = Rules {
                        default: DENY,
                        rules: vec![rule(1, &[(2, operator, value)], RET_ALLOW)],
                        ..Rules::default()
                    };
                    let expected = if holds { RET_ALLOW } else { DENY };
                    assert_eq!(
                        run(&rules, 1, [9, 9, arg, 9, 9, 9]),
                        expected,
                        "{arg:#x} {operator:?} {value:#x}"
                    );
                }
            }
        }
    }

    #[test]
    fn one_of_several_values() {
        for mask in [u32::MAX, !0x80] {
            let conditions = [(1, Operator::LowIn(mask, &[3, 1, 9]), 0), (0, Operator::Ne, 7)];
            let rules =
                Rules { default: DENY, rules: vec![rule(4, &conditions, RET_ALLOW)], ..Rules::default() };
            for arg in [0, 1, 2, 3, 9, 10, 0x81, 1 << 32 | 9] {
                let among = [1, 3, 9].contains(&(arg as u32 & mask));
                let expected = if among { RET_ALLOW } else { DENY };
                assert_eq!(run(&rules, 4, [0, arg, 0, 0, 0, 0]), expected, "{arg:#x}");
                assert_eq!(run(&rules, 4, [7, arg, 0, 0, 0, 0]), DENY);
            }
        }
        let none = rule(4, &[(1, Operator::LowIn(1, &[]), 0)], RET_ALLOW);
        assert_eq!(run(&Rules { default: DENY, rules: vec![none], ..Rules::default() }, 4, [0; 6]), DENY);
    }

    #[test]
    fn only_calls_from_the_text_are_judged() {
        for start in [0x7_0000_0000, 0x7_0000_1000u64] {
            let text = Text::new(start, 0x2000);
            let rules =
                Rules { default: RET_TRAP, text, rules: vec![rule(4, &[], RET_ALLOW)], ..Rules::default() };
            let program = Program::new(&rules.compile().unwrap()).unwrap();
            let call = |ip, nr, arch| program.run(&Data { nr, arch, ip, args: [0; 6] });
            for ip in [start, start + 0x1fff] {
                assert_eq!(call(ip, 4, ARCH), RET_ALLOW);
                assert_eq!(call(ip, 5, ARCH), RET_TRAP);
                assert_eq!(call(ip, 4 | X32 as i32, ARCH), RET_TRAP);
                assert_eq!(call(ip, 4, 0x4000_0003), RET_TRAP);
            }
            for ip in [0, start - 1, start + 0x2000, start + (1 << 32), start as u32 as u64] {
                assert_eq!(call(ip, 4, ARCH), RET_TRAP, "{ip:#x}");
            }
        }
        assert_eq!(Text::new(0xffff_f000, 0x2000), None);
    }

    #[test]
    fn conditions_are_all_wanted_and_rules_are_alternatives() {
        let both = [(0, Operator::Ge, 2), (5, Operator::Ne, 7)];
        let rules = Rules {
            default: DENY,
            rules: vec![rule(9, &both, RET_ALLOW), rule(9, &[(1, Operator::Eq, 1)], RET_TRAP)],
            ..Rules::default()
        };
        assert_eq!(run(&rules, 9, [2, 0, 0, 0, 0, 0]), RET_ALLOW);
        assert_eq!(run(&rules, 9, [2, 0, 0, 0, 0, 7]), DENY);
        assert_eq!(run(&rules, 9, [1, 0, 0, 0, 0, 0]), DENY);
        assert_eq!(run(&rules, 9, [1, 1, 0, 0, 0, 7]), RET_TRAP);
        // One without conditions counts for the call as a whole, wherever it stands.
        let mut whole = rules.clone();
        whole.rules.push(rule(9, &[], RET_TRAP));
        assert_eq!(run(&whole, 9, [2, 0, 0, 0, 0, 0]), RET_TRAP);
        whole.rules.insert(0, rule(9, &[], RET_ALLOW));
        assert_eq!(run(&whole, 9, [1, 1, 0, 0, 0, 7]), RET_ALLOW);
        // An argument that is not there.
        let none = Rules {
            default: DENY,
            rules: vec![rule(9, &[(6, Operator::Eq, 0)], RET_ALLOW)],
            ..Rules::default()
        };
        assert_eq!(run(&none, 9, [0; 6]), DENY);
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let six: Vec<_> = (0..6).map(|n| (n, Operator::Eq, 1)).collect();
        let rules =
            Rules { rules: (0..300).map(|nr| rule(nr, &six, RET_ERRNO | nr)).collect(), ..Rules::default() };
        assert_eq!(rules.compile(), Err(TooLong));
        let many = vec![(0, Operator::Eq, 1); MAX_RULE / 4 + 1];
        assert_eq!(
            Rules { rules: vec![rule(0, &many, RET_ALLOW)], ..Rules::default() }.compile(),
            Err(TooLong)
        );
    }
}
