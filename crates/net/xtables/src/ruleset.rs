//! The rules of one table: checked, as Linux checks them, then run.
//!
//! A program passes the entries as one block in which offsets name entries. After [`Ruleset::parse`] indices name rules, and there are
//! no loops.

use crate::layout::{ERROR, Head, Layout, PART, Part, Replace, STANDARD, layout, part};
use crate::xt::{Context, Decision, Match, Target};
use abi::Errno;
use account::Charge;
use netfilter::{Family, Netfilter, Packet, Point, Verdict};
use std::sync::atomic::{AtomicU64, Ordering};

/// The points, as bits of masks number them.
pub(crate) const POINTS: [Point; 5] =
    [Point::PreRouting, Point::Input, Point::Forward, Point::Output, Point::PostRouting];

/// Rules and matches that one packet may meet: chains that call each other twice at every level double the number with each.
const MAX_STEPS: usize = 1 << 18;

/// Jumps that one packet may be inside of.
const MAX_DEPTH: usize = 1024;

/// `XT_RETURN`
const RETURN: i32 = -5;

enum Goal {
    Verdict(Verdict),
    Return,
    Jump { to: usize, goto: bool },
    Error,
    Extension(Box<dyn Target>),
}

struct Rule {
    head: Head,
    matches: Box<[Box<dyn Match>]>,
    goal: Goal,
    counters: [AtomicU64; 2],
}

/// The rules of a table.
pub(crate) struct Ruleset {
    pub(crate) replace: Replace,
    family: Family,
    blob: Vec<u8>,
    rules: Vec<Rule>,
    offsets: Vec<usize>,
    /// First rule and policy by point.
    starts: [Option<(usize, usize)>; 5],
    _charge: Charge,
}

impl Ruleset {
    /// Checks the entries of a program and makes rules of them: once the bytes, once what was made of them.
    pub(crate) fn parse(
        netfilter: &Netfilter,
        family: Family,
        replace: Replace,
        blob: Vec<u8>,
    ) -> Result<Ruleset, Errno> {
        let parsed = replace.entries.saturating_mul(size_of::<Rule>() + size_of::<usize>());
        let bytes = parsed.saturating_add(2 * blob.len());
        let charge = netfilter.account.take(bytes).map_err(|_| Errno::ENOMEM)?;
        let layout = layout(family);
        let offsets = offsets(&layout, &replace, &blob)?;
        let starts = starts(&layout, &replace, &blob, &offsets)?;
        let links = links(&layout, &blob, &offsets)?;
        let reached = reach(&links, &starts)?;
        let mut rules = Vec::with_capacity(offsets.len());
        for (n, link) in links.into_iter().enumerate() {
            let entry = entry_at(&layout, &blob, offsets[n]).ok_or(Errno::EINVAL)?;
            let points: Vec<Point> =
                (0..5).filter(|bit| reached[n] >> bit & 1 == 1).map(|bit| POINTS[bit]).collect();
            let head = layout.head(entry)?;
            let cx = Context {
                netfilter,
                family,
                table: &replace.name,
                points: &points,
                protocol: head.protocol,
                protocol_inverted: head.protocol_inverted(),
            };
            rules.push(rule(&layout, &cx, entry, head, link)?);
        }
        Ok(Ruleset { replace, family, blob, rules, offsets, starts, _charge: charge })
    }

    /// The entries with the counters as they are now.
    pub(crate) fn entries(&self) -> Vec<u8> {
        let (layout, mut blob) = (layout(self.family), self.blob.clone());
        for (rule, offset) in self.rules.iter().zip(&self.offsets) {
            let at = offset + layout.counters;
            for (n, counter) in rule.counters.iter().enumerate() {
                let value = counter.load(Ordering::Relaxed).to_ne_bytes();
                if let Some(place) = blob.get_mut(at + 8 * n..at + 8 * n + 8) {
                    place.copy_from_slice(&value);
                }
            }
        }
        blob
    }

    /// Packets and bytes of each rule.
    pub(crate) fn counters(&self) -> Vec<[u64; 2]> {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.rules.iter().map(|rule| [value(&rule.counters[0]), value(&rule.counters[1])]).collect()
    }

    /// Adds to the counters; `EINVAL` when there are not as many.
    pub(crate) fn add_counters(&self, more: &[[u64; 2]]) -> Result<(), Errno> {
        if more.len() != self.rules.len() {
            return Err(Errno::EINVAL);
        }
        for (rule, more) in self.rules.iter().zip(more) {
            rule.counters.iter().zip(more).for_each(|(counter, n)| {
                counter.fetch_add(*n, Ordering::Relaxed);
            });
        }
        Ok(())
    }

    /// True when all it has are policies that accept.
    pub(crate) fn is_trivial(&self) -> bool {
        let chains = self.starts.iter().flatten().count();
        let accepts = |(start, policy): &(usize, usize)| {
            start == policy && matches!(self.rules[*start].goal, Goal::Verdict(Verdict::Accept))
        };
        self.rules.len() == chains + 1 && self.starts.iter().flatten().all(accepts)
    }

    /// Decides on a packet.
    pub(crate) fn run(&self, packet: &mut Packet<'_>) -> Verdict {
        let Some((mut at, policy)) = self.starts[packet.point as usize] else { return Verdict::Accept };
        let mut callers = Vec::new();
        let mut steps = 0;
        while steps < MAX_STEPS {
            let Some(rule) = self.rules.get(at) else { return Verdict::Drop };
            steps += 1 + rule.matches.len();
            if !rule.head.matches(packet) || !rule.matches.iter().all(|m| m.matches(packet)) {
                at += 1;
                continue;
            }
            rule.counters[0].fetch_add(1, Ordering::Relaxed);
            rule.counters[1].fetch_add(packet.total_len() as u64, Ordering::Relaxed);
            let decision = match &rule.goal {
                Goal::Verdict(verdict) => return *verdict,
                Goal::Error => return Verdict::Drop,
                Goal::Return => Decision::Return,
                Goal::Jump { to, goto } => {
                    if !goto && *to != at + 1 {
                        if callers.len() >= MAX_DEPTH {
                            return Verdict::Drop;
                        }
                        callers.push(at + 1);
                    }
                    at = *to;
                    continue;
                }
                Goal::Extension(target) => target.run(packet),
            };
            at = match decision {
                Decision::Accept => return Verdict::Accept,
                Decision::Drop => return Verdict::Drop,
                Decision::Continue => at + 1,
                Decision::Return => callers.pop().unwrap_or(policy),
            };
        }
        Verdict::Drop
    }
}

/// The bytes of an entry.
fn entry_at<'a>(layout: &Layout, blob: &'a [u8], at: usize) -> Option<&'a [u8]> {
    let rest = blob.get(at..)?;
    let head = rest.get(..layout.entry)?;
    rest.get(..layout.next_offset(head))
}

/// Where each entry starts.
fn offsets(layout: &Layout, replace: &Replace, blob: &[u8]) -> Result<Vec<usize>, Errno> {
    let mut offsets = Vec::new();
    let mut at = 0;
    while at < blob.len() {
        let entry = entry_at(layout, blob, at).ok_or(Errno::EINVAL)?;
        if entry.len() < layout.entry + PART || entry.len() % 8 != 0 {
            return Err(Errno::EINVAL);
        }
        layout.head(entry)?;
        check_parts(layout, entry)?;
        offsets.push(at);
        at += entry.len();
    }
    if offsets.len() == replace.entries { Ok(offsets) } else { Err(Errno::EINVAL) }
}

/// The target starts after the head and ends with the entry; so do the matches before it.
fn check_parts(layout: &Layout, entry: &[u8]) -> Result<(), Errno> {
    let target = layout.target_offset(entry);
    if target < layout.entry {
        return Err(Errno::EINVAL);
    }
    let last = part(entry.get(target..).ok_or(Errno::EINVAL)?)?;
    let exact = match last.name {
        "" => last.size == STANDARD,
        "ERROR" => last.size == ERROR,
        _ => true,
    };
    let whole = (target + last.size).next_multiple_of(8) <= entry.len();
    let closed = !last.name.is_empty() || (target + last.size).next_multiple_of(8) == entry.len();
    if !exact || !whole || !closed {
        return Err(Errno::EINVAL);
    }
    matches(layout, entry).try_for_each(|part| part.map(drop))
}

/// The matches of an entry.
fn matches<'a>(layout: &Layout, entry: &'a [u8]) -> impl Iterator<Item = Result<Part<'a>, Errno>> {
    let (mut at, end) = (layout.entry, layout.target_offset(entry));
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let found = entry.get(at..end).ok_or(Errno::EINVAL).and_then(part);
        match &found {
            Ok(part) if part.size % 8 == 0 => at += part.size,
            _ => {
                at = end;
                return Some(Err(Errno::EINVAL));
            }
        }
        Some(found)
    })
}

fn target<'a>(layout: &Layout, entry: &'a [u8]) -> Result<Part<'a>, Errno> {
    part(entry.get(layout.target_offset(entry)..).ok_or(Errno::EINVAL)?)
}

fn standard_verdict(part: &Part<'_>) -> Option<i32> {
    let bytes = part.data.first_chunk::<4>().filter(|_| part.name.is_empty())?;
    Some(i32::from_ne_bytes(*bytes))
}

/// First rule and policy of each point; policies are unconditional and accept or drop.
fn starts(
    layout: &Layout,
    replace: &Replace,
    blob: &[u8],
    offsets: &[usize],
) -> Result<[Option<(usize, usize)>; 5], Errno> {
    let find = |offset: u32| offsets.binary_search(&(offset as usize)).map_err(|_| Errno::EINVAL);
    let mut starts = [None; 5];
    for (n, start) in starts.iter_mut().enumerate() {
        if replace.valid_hooks >> n & 1 == 0 {
            continue;
        }
        let (first, policy) = (find(replace.hook_entry[n])?, find(replace.underflow[n])?);
        let entry = entry_at(layout, blob, offsets[policy]).ok_or(Errno::EINVAL)?;
        let plain = layout.head(entry)?.is_unconditional() && layout.target_offset(entry) == layout.entry;
        let verdict = standard_verdict(&target(layout, entry)?);
        if !plain || !matches!(verdict, Some(-1 | -2)) {
            return Err(Errno::EINVAL);
        }
        *start = Some((first, policy));
    }
    Ok(starts)
}

/// The verdicts that a rule may have: DROP, ACCEPT, QUEUE and RETURN.
const VERDICTS: [i32; 4] = [-1, -2, -4, -5];

/// Where a packet goes after a rule.
struct Link {
    /// To the next rule, or back.
    falls: bool,
    jump: Option<usize>,
}

fn links(layout: &Layout, blob: &[u8], offsets: &[usize]) -> Result<Vec<Link>, Errno> {
    let link = |offset: &usize| {
        let entry = entry_at(layout, blob, *offset).ok_or(Errno::EINVAL)?;
        let part = target(layout, entry)?;
        let Some(verdict) = standard_verdict(&part) else { return Ok(Link { falls: true, jump: None }) };
        let head = layout.head(entry)?;
        if verdict == 0 || verdict < 0 && !VERDICTS.contains(&verdict) {
            return Err(Errno::EINVAL);
        }
        if verdict > 0 {
            let to = offsets.binary_search(&(verdict as usize)).map_err(|_| Errno::EINVAL)?;
            return Ok(Link { falls: true, jump: Some(to) });
        }
        let unconditional = head.is_unconditional() && layout.target_offset(entry) == layout.entry;
        Ok(Link { falls: !unconditional, jump: None })
    };
    offsets.iter().map(link).collect()
}

/// The points from which each rule is reached, as bits. `ELOOP` for loops, and for chains without an end.
fn reach(links: &[Link], starts: &[Option<(usize, usize)>; 5]) -> Result<Vec<u8>, Errno> {
    let mut reached = vec![0u8; links.len()];
    for (n, start) in starts.iter().enumerate() {
        let Some((first, _)) = start else { continue };
        let bit = 1 << n;
        // A rule is on the way from its first visit until both of its ways are done.
        let mut on_way = vec![false; links.len()];
        let mut stack = vec![(*first, 0)];
        while let Some((at, step)) = stack.pop() {
            let link = links.get(at).ok_or(Errno::ELOOP)?;
            if step == 0 {
                if on_way[at] {
                    return Err(Errno::ELOOP);
                }
                if reached[at] & bit != 0 {
                    continue;
                }
                reached[at] |= bit;
                on_way[at] = true;
            }
            match (step, link.jump) {
                (0, Some(to)) => stack.extend([(at, 1), (to, 0)]),
                (0 | 1, _) if link.falls => stack.extend([(at, 2), (at + 1, 0)]),
                _ => on_way[at] = false,
            }
        }
    }
    Ok(reached)
}

fn rule(layout: &Layout, cx: &Context<'_>, entry: &[u8], head: Head, link: Link) -> Result<Rule, Errno> {
    let matches = matches(layout, entry).map(|part| {
        let part = part?;
        <dyn Match>::parse(cx, part.name, part.revision, part.data)
    });
    let matches = matches.collect::<Result<Box<[_]>, Errno>>()?;
    let part = target(layout, entry)?;
    let goal = match (standard_verdict(&part), link.jump) {
        (_, Some(to)) => Goal::Jump { to, goto: head.goto },
        (Some(-1), _) => Goal::Verdict(Verdict::Drop),
        (Some(-2), _) => Goal::Verdict(Verdict::Accept),
        // A queue of packets has no reader.
        (Some(-3 | -4), _) => Goal::Verdict(Verdict::Drop),
        (Some(RETURN), _) => Goal::Return,
        (Some(_), _) => return Err(Errno::ELOOP),
        (None, _) if part.name == "ERROR" => Goal::Error,
        (None, _) => Goal::Extension(<dyn Target>::parse(cx, part.name, part.revision, part.data)?),
    };
    Ok(Rule { head, matches, goal, counters: Default::default() })
}
