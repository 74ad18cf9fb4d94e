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

/// Most conditions of one rule: a conditional jump reaches over them.
const MAX_CONDITIONS: usize = 40;

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

/// A set of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// For a call that no rule matches.
    pub default: u32,
    /// For a call with a number above all that the rules' author knew of (see `newest`), if that differs.
    pub unknown: Option<u32>,
    /// The highest number that the author knew of.
    pub newest: u32,
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
        if self.rules.iter().any(|rule| rule.conditions.len() > MAX_CONDITIONS) {
            return Err(TooLong);
        }
        let mut code = vec![load(4), jump(JEQ, ARCH, 1, 0), ret(RET_KILL_PROCESS), load(0)];
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
        add(X32, Outcome::Return(RET_ERRNO | ENOSYS));
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
            let and = |k| SockFilter { code: AND, jt: 0, jf: 0, k };
            vec![high, and(mh), jump(JEQ, h & mh, 0, fail(3)), low, and(ml), jump(JEQ, l & ml, 0, fail(0))]
        }
    }
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
        let rules = Rules { default: DENY, unknown: Some(RET_ERRNO | ENOSYS), newest: 460, rules: list };
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
        let many = vec![(0, Operator::Eq, 1); MAX_CONDITIONS + 1];
        assert_eq!(
            Rules { rules: vec![rule(0, &many, RET_ALLOW)], ..Rules::default() }.compile(),
            Err(TooLong)
        );
    }
}
