//! Which rule of a profile decides where several match a call.
//!
//! runc and crun give profiles to libseccomp, which does not go by their order: it keeps the rules of a call as a tree of
//! conditions, sorted so that narrower conditions come first. Measured with libseccomp 2.5.4 (see the tests):
//!
//! - Conditions of a rule are asked by argument, the lowest first. Rules that begin with the same condition share it.
//! - A rule with conditions that are the beginning of another one's decides alone, if it comes first; if it comes second, both must
//!   want the same.
//! - Beside each other the condition on the higher argument is asked first; on one argument `==`, `!=` and masked ones before
//!   `<` and `<=`, and these before `>=` and `>`. Equal ones among each other: the greater value first, save that of `<` and `<=`
//!   the smaller one is first. Then the order of the profile counts.
//! - When the further conditions of a rule do not hold, the next one is asked.
//!
//! In one thing this is stricter than libseccomp. It compares the upper and the lower half of an argument one by one, and that can
//! hide a rule from values beyond 32 bits: here each condition is one comparison of 64 bits.

use crate::compile::{Condition, Operator, Rule};
use std::collections::BTreeMap;

/// Two rules for this call contradict each other: libseccomp says EEXIST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction(pub u32);

/// The same rules so that the first one that matches decides as libseccomp has it.
pub fn sorted(rules: &[Rule]) -> Result<Vec<Rule>, Contradiction> {
    let mut calls: BTreeMap<u32, Call> = BTreeMap::new();
    for rule in rules {
        let call = calls.entry(rule.nr).or_default();
        call.add(rule).map_err(|Differs| Contradiction(rule.nr))?;
    }
    let mut all = Vec::new();
    for (nr, call) in calls {
        if let Some(value) = call.whole {
            all.push(Rule { nr, conditions: Vec::new(), value });
            continue;
        }
        list(&call.level, nr, &mut Vec::new(), &mut all);
    }
    Ok(all)
}

/// The rules of one call. One without conditions counts for the call as a whole.
#[derive(Default)]
struct Call {
    whole: Option<u32>,
    level: Vec<Node>,
}

struct Node {
    condition: Condition,
    then: Then,
}

enum Then {
    Return(u32),
    Ask(Vec<Node>),
}

/// The rule that is there already wants something else.
struct Differs;

impl Call {
    fn add(&mut self, rule: &Rule) -> Result<(), Differs> {
        if self.whole.is_some() {
            return Ok(());
        }
        let mut conditions: Vec<Condition> = rule.conditions.iter().map(plain).collect();
        conditions.sort_by_key(|condition| condition.argument);
        match conditions.split_first() {
            None => {
                self.whole = Some(rule.value);
                Ok(())
            }
            Some((first, rest)) => add(&mut self.level, first, rest, rule.value),
        }
    }
}

/// Bits that a mask hides do not count.
fn plain(condition: &Condition) -> Condition {
    match condition.operator {
        Operator::MaskedEq(mask) => Condition { value: condition.value & mask, ..*condition },
        _ => *condition,
    }
}

fn add(level: &mut Vec<Node>, first: &Condition, rest: &[Condition], value: u32) -> Result<(), Differs> {
    if let Some(node) = level.iter_mut().find(|node| node.condition == *first) {
        return match (rest.split_first(), &mut node.then) {
            (None, Then::Return(other)) if *other == value => Ok(()),
            (None, Then::Ask(below)) if all_return(below, value) => {
                node.then = Then::Return(value);
                Ok(())
            }
            (None, _) => Err(Differs),
            (Some(_), Then::Return(_)) => Ok(()),
            (Some((next, rest)), Then::Ask(below)) => add(below, next, rest, value),
        };
    }
    let then = match rest.split_first() {
        None => Then::Return(value),
        Some((next, rest)) => {
            let mut below = Vec::new();
            add(&mut below, next, rest, value)?;
            Then::Ask(below)
        }
    };
    level.insert(place(level, first), Node { condition: *first, then });
    Ok(())
}

fn all_return(level: &[Node], value: u32) -> bool {
    level.iter().all(|node| match &node.then {
        Then::Return(other) => *other == value,
        Then::Ask(below) => all_return(below, value),
    })
}

/// Kinds of conditions on one argument in the order in which they are asked.
fn class(operator: Operator) -> u8 {
    match operator {
        Operator::Eq | Operator::Ne | Operator::MaskedEq(_) | Operator::LowIn(..) => 0,
        Operator::Lt | Operator::Le => 1,
        Operator::Ge | Operator::Gt => 2,
    }
}

fn is_masked(operator: Operator) -> bool {
    matches!(operator, Operator::MaskedEq(_) | Operator::LowIn(..))
}

/// The condition that is the opposite of another one shares its place.
fn opposite(operator: Operator) -> Option<Operator> {
    match operator {
        Operator::Lt => Some(Operator::Ge),
        Operator::Ge => Some(Operator::Lt),
        Operator::Le => Some(Operator::Gt),
        Operator::Gt => Some(Operator::Le),
        _ => None,
    }
}

/// Where a new condition goes.
fn place(level: &[Node], new: &Condition) -> usize {
    let kind = class(new.operator);
    let alike = |node: &Node| {
        let other = &node.condition;
        other.argument == new.argument
            && class(other.operator) == kind
            && is_masked(other.operator) == is_masked(new.operator)
    };
    // Conditions with a mask stay together, and so do those without; which of both kinds is first, the profile says.
    if kind == 0
        && let Some(last) = level.iter().rposition(alike)
    {
        let smaller = |node: &Node| alike(node) && node.condition.value < new.value;
        return level.iter().position(smaller).unwrap_or(last + 1);
    }
    if let Some(opposite) = opposite(new.operator) {
        let its = Condition { operator: opposite, ..*new };
        if let Some(there) = level.iter().position(|node| node.condition == its) {
            return there + 1;
        }
    }
    let later = |node: &Node| {
        let other = &node.condition;
        let (mine, theirs) = (kind, class(other.operator));
        match (new.argument.cmp(&other.argument), mine.cmp(&theirs)) {
            (std::cmp::Ordering::Equal, std::cmp::Ordering::Equal) => match kind {
                1 => new.value < other.value,
                2 => new.value > other.value,
                _ => false,
            },
            (std::cmp::Ordering::Equal, order) => order.is_lt(),
            (order, _) => order.is_gt(),
        }
    };
    level.iter().position(later).unwrap_or(level.len())
}

/// The rules below a level, with the conditions that lead there.
fn list(level: &[Node], nr: u32, way: &mut Vec<Condition>, all: &mut Vec<Rule>) {
    for node in level {
        way.push(node.condition);
        match &node.then {
            Then::Return(value) => all.push(Rule { nr, conditions: way.clone(), value: *value }),
            Then::Ask(below) => list(below, nr, way, all),
        }
        way.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::Rules;
    use crate::{ARCH, Data, Program, RET_ALLOW, RET_ERRNO, RET_LOG};
    use Operator::{Eq, Ge, Gt, Le, Lt, MaskedEq, Ne};

    const CALL: u32 = 37;

    type Conditions<'a> = &'a [(usize, Operator, u64)];

    fn rules(list: &[(u32, Conditions<'_>)]) -> Vec<Rule> {
        let condition =
            |&(argument, operator, value): &(usize, Operator, u64)| Condition { argument, operator, value };
        let of = |&(value, conditions): &(u32, Conditions<'_>)| Rule {
            nr: CALL,
            conditions: conditions.iter().map(condition).collect(),
            value,
        };
        list.iter().map(of).collect()
    }

    /// What a profile answers to a call with these arguments; 0 where no rule matches.
    fn decide(list: &[(u32, Conditions<'_>)], args: &[u64]) -> u32 {
        let numbered: Vec<_> =
            list.iter().map(|&(errno, conditions)| (RET_ERRNO | errno, conditions)).collect();
        let rules = sorted(&rules(&numbered)).unwrap();
        let code = Rules { default: RET_ALLOW, rules, ..Rules::default() }.compile().unwrap();
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let data = Data { nr: CALL as i32, arch: ARCH, ip: 0, args: all };
        match Program::new(&code).unwrap().run(&data) {
            RET_ALLOW => 0,
            value => value & 0xffff,
        }
    }

    /// Profiles of two rules on one argument, which answer 1 and 2: answers to the arguments, in both orders of the rules. All
    /// are what libseccomp 2.5.4 answers.
    #[test]
    fn two_rules_on_one_argument() {
        const ARGS: [u64; 6] = [4, 5, 6, 8, 9, 10];
        let masked = MaskedEq(0xff);
        type Case = ((Operator, u64), (Operator, u64), [u32; 6]);
        let table: &[Case] = &[
            ((Eq, 5), (Eq, 9), [0, 1, 0, 0, 2, 0]),
            ((Eq, 9), (Ge, 5), [0, 2, 2, 2, 1, 2]),
            ((Eq, 5), (Ge, 5), [0, 1, 2, 2, 2, 2]),
            ((Eq, 9), (Gt, 5), [0, 0, 2, 2, 1, 2]),
            ((Eq, 5), (Lt, 9), [2, 1, 2, 2, 0, 0]),
            ((Eq, 5), (Le, 9), [2, 1, 2, 2, 2, 0]),
            ((Eq, 5), (Le, 5), [2, 1, 0, 0, 0, 0]),
            ((Eq, 9), (Ne, 5), [2, 0, 2, 2, 1, 2]),
            ((Eq, 5), (Ne, 5), [2, 1, 2, 2, 2, 2]),
            ((Eq, 5), (Ne, 9), [2, 2, 2, 2, 0, 2]),
            ((Ne, 5), (Ne, 9), [2, 2, 2, 2, 1, 2]),
            ((Ne, 5), (Ge, 5), [1, 2, 1, 1, 1, 1]),
            ((Ne, 9), (Gt, 5), [1, 1, 1, 1, 2, 1]),
            ((Ne, 5), (Lt, 9), [1, 2, 1, 1, 1, 1]),
            ((Ne, 9), (Le, 5), [1, 1, 1, 1, 0, 1]),
            ((Ge, 5), (Ge, 9), [0, 1, 1, 1, 2, 2]),
            ((Ge, 5), (Gt, 9), [0, 1, 1, 1, 1, 2]),
            ((Gt, 5), (Ge, 9), [0, 0, 1, 1, 2, 2]),
            ((Gt, 5), (Gt, 9), [0, 0, 1, 1, 1, 2]),
            ((Lt, 9), (Ge, 5), [1, 1, 1, 1, 2, 2]),
            ((Lt, 9), (Gt, 5), [1, 1, 1, 1, 2, 2]),
            ((Le, 9), (Ge, 5), [1, 1, 1, 1, 1, 2]),
            ((Le, 5), (Gt, 9), [1, 1, 0, 0, 0, 2]),
            ((Lt, 5), (Lt, 9), [1, 2, 2, 2, 0, 0]),
            ((Lt, 5), (Le, 9), [1, 2, 2, 2, 2, 0]),
            ((Le, 5), (Lt, 9), [1, 1, 2, 2, 0, 0]),
            ((Le, 5), (Le, 9), [1, 1, 2, 2, 2, 0]),
            ((masked, 9), (Ge, 5), [0, 2, 2, 2, 1, 2]),
            ((masked, 5), (Le, 9), [2, 1, 2, 2, 2, 0]),
            ((masked, 5), (masked, 9), [0, 1, 0, 0, 2, 0]),
        ];
        for &((first, a), (second, b), answers) in table {
            for (arg, answer) in ARGS.into_iter().zip(answers) {
                let (one, two) = ([(0, first, a)], [(0, second, b)]);
                let what = format!("{first:?} {a} and {second:?} {b}: {arg}");
                assert_eq!(decide(&[(1, &one), (2, &two)], &[arg]), answer, "{what}");
                assert_eq!(decide(&[(2, &two), (1, &one)], &[arg]), answer, "{what}, the other way round");
            }
        }
    }

    /// Where the order of the profile decides: the first one does.
    #[test]
    fn the_order_counts_between_masks_and_values() {
        let masked = MaskedEq(0xff);
        for (first, second, arg) in [
            ((Eq, 5), (masked, 5), 5),
            ((masked, 5), (Eq, 5), 5),
            ((MaskedEq(1), 1), (Eq, 3), 3),
            ((masked, 5), (Ne, 9), 5),
            ((Ne, 9), (masked, 5), 5),
            ((Ge, 5), (Gt, 5), 6),
            ((Gt, 5), (Ge, 5), 6),
            ((Lt, 5), (Le, 5), 4),
            ((Le, 5), (Lt, 5), 4),
        ] {
            let answer = decide(&[(1, &[(0, first.0, first.1)]), (2, &[(0, second.0, second.1)])], &[arg]);
            assert_eq!(answer, 1, "{first:?} {second:?}");
        }
        // Of two masks the greater value is first.
        for order in [[(1, MaskedEq(1), 1), (2, MaskedEq(3), 3)], [(2, MaskedEq(3), 3), (1, MaskedEq(1), 1)]]
        {
            let [(a, x, v), (b, y, w)] = order;
            let profile: [(u32, Conditions<'_>); 2] = [(a, &[(0, x, v)]), (b, &[(0, y, w)])];
            assert_eq!([1, 2, 3].map(|arg| decide(&profile, &[arg])), [1, 0, 2]);
        }
    }

    #[test]
    fn three_rules_on_one_argument() {
        let answers =
            |profile: &[(u32, Conditions<'_>)], args: [u64; 3]| args.map(|arg| decide(profile, &[arg]));
        // A masked rule after others joins those with masks.
        let profile: [(u32, Conditions<'_>); 3] =
            [(2, &[(0, MaskedEq(1), 1)]), (3, &[(0, Eq, 5)]), (1, &[(0, MaskedEq(0xff), 5)])];
        assert_eq!(answers(&profile, [1, 5, 6]), [2, 1, 0]);
        // The opposite of a condition is asked at its place.
        let profile: [(u32, Conditions<'_>); 3] =
            [(1, &[(0, Le, 5)]), (3, &[(0, Ge, 5)]), (2, &[(0, Gt, 5)])];
        assert_eq!(answers(&profile, [4, 5, 6]), [1, 1, 2]);
        let profile: [(u32, Conditions<'_>); 3] =
            [(3, &[(0, Lt, 5)]), (2, &[(0, Gt, 5)]), (1, &[(0, Ge, 5)])];
        assert_eq!(answers(&profile, [4, 5, 6]), [3, 1, 1]);
    }

    #[test]
    fn several_arguments() {
        let one: Conditions<'_> = &[(0, Eq, 1)];
        let both: Conditions<'_> = &[(0, Eq, 1), (1, Eq, 2)];
        let second: Conditions<'_> = &[(1, Eq, 2)];
        let answers = |profile: &[(u32, Conditions<'_>)]| {
            [[1, 2], [1, 1], [0, 2], [0, 0]].map(|args| decide(profile, &args))
        };
        // What is more special comes too late.
        assert_eq!(answers(&[(1, one), (2, both)]), [1, 1, 0, 0]);
        // The higher argument is asked first, whatever the order.
        assert_eq!(answers(&[(2, both), (1, second)]), [1, 0, 1, 0]);
        assert_eq!(answers(&[(1, second), (2, one)]), [1, 2, 1, 0]);
        assert_eq!(answers(&[(2, one), (1, second)]), [1, 2, 1, 0]);
        // Where the rest of a rule does not hold, the next one is asked.
        let profile: [(u32, Conditions<'_>); 2] = [(1, both), (2, &[(0, Ge, 1)])];
        assert_eq!(answers(&profile), [1, 2, 0, 0]);
        // The order within a rule does not count.
        let turned: Conditions<'_> = &[(1, Eq, 2), (0, Eq, 1)];
        assert_eq!(sorted(&rules(&[(1, both), (1, turned)])).unwrap().len(), 1);
    }

    #[test]
    fn the_whole_call() {
        let one: Conditions<'_> = &[(0, Eq, 1)];
        assert_eq!([0, 1].map(|arg| decide(&[(1, &[]), (2, one)], &[arg])), [1, 1]);
        assert_eq!([0, 1].map(|arg| decide(&[(2, one), (1, &[])], &[arg])), [1, 1]);
        assert_eq!(decide(&[(2, &[]), (1, &[])], &[0]), 2);
    }

    #[test]
    fn contradictions() {
        let one: Conditions<'_> = &[(0, Eq, 1)];
        let both: Conditions<'_> = &[(0, Eq, 1), (1, Eq, 2)];
        let refused = |list: &[(u32, Conditions<'_>)]| sorted(&rules(list)).is_err();
        assert!(refused(&[(1, one), (2, one)]));
        assert!(refused(&[(1, both), (2, both)]));
        assert!(refused(&[(2, both), (1, one)]));
        assert!(refused(&[(1, &[(0, MaskedEq(1), 3)]), (2, &[(0, MaskedEq(1), 1)])]));
        assert!(!refused(&[(1, one), (1, one)]) && !refused(&[(2, both), (2, one)]));
        assert!(!refused(&[(RET_LOG, &[(0, Ge, 1)]), (1, one)]));
        assert_eq!(sorted(&rules(&[(1, one), (2, one)])), Err(Contradiction(CALL)));
    }

    #[test]
    fn all_bits_are_compared() {
        let far = (1 << 32) + 5;
        let profile: [(u32, Conditions<'_>); 2] = [(1, &[(0, Lt, far)]), (2, &[(0, Lt, 3)])];
        assert_eq!([2, 3, 1 << 32, far].map(|arg| decide(&profile, &[arg])), [2, 1, 1, 0]);
    }
}
