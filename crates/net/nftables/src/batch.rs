//! Batches: messages between `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END` that succeed or fail as one.

use crate::api::{Change, WORK, get};
use crate::attr::{Failure, Result};
use crate::message::{NFTABLES, Reply, Request, acknowledge, flag};
use crate::scope::Ids;
use crate::{Asker, Event, Nftables, Outcome, following, validate};
use abi::Errno;
use std::collections::BTreeSet;

/// `NFNL_MSG_BATCH_BEGIN`.
pub const BEGIN: u16 = 16;
/// `NFNL_MSG_BATCH_END`.
const END: u16 = 17;
/// `NFNL_BATCH_GENID`.
const GENID: u16 = 1;
/// Shortest message with a family.
const SHORTEST: usize = 20;
/// Bytes that an answer counts for at least.
const ANSWER: usize = 36;
/// Batches of more messages are not searched for the message that breaks the table.
const SEARCHED: usize = 4096;

/// One attempt at a batch.
#[derive(Default)]
struct Attempt {
    answers: Vec<Vec<u8>>,
    /// Bytes of the answers.
    bytes: usize,
    /// Answers are missing.
    full: bool,
    failed: bool,
    ended: bool,
    messages: usize,
}

impl Nftables {
    /// Carries a batch out.
    pub fn batch(&self, bytes: &[u8], asker: &Asker<'_>) -> Outcome {
        let Some((begin, rest)) = Request::next(bytes) else { return Outcome::default() };
        let refuse = |errno: Errno| Outcome {
            answers: vec![acknowledge(Err(errno.into()), &begin, asker.port, asker.options)],
            ..Outcome::default()
        };
        if begin.bytes.len() < SHORTEST {
            return Outcome::default();
        }
        // Old programs give the number in the host's order.
        let subsystem = begin.resource();
        if subsystem != u16::from(NFTABLES) && subsystem.swap_bytes() != u16::from(NFTABLES) {
            return refuse(Errno::EOPNOTSUPP);
        }
        let mut control = self.control.lock();
        let live = self.live.load_full();
        match begin.attrs().be32(GENID) {
            Ok(Some(generation)) if generation != 0 && generation != live.generation => {
                return refuse(Errno::ERESTART);
            }
            Ok(_) => {}
            Err(failure) => return refuse(failure.errno),
        }
        // Whether the rules may stand where they stand is asked at the end, and after each message only if they may not.
        for each in [false, true] {
            control.batches += 1;
            let mut change = self.change(control.batches, (*live).clone(), asker);
            let mut attempt = attempt(&mut change, begin, rest, each);
            if !attempt.failed && validate_all(&change).is_err() && attempt.messages <= SEARCHED && !each {
                continue;
            }
            if attempt.ended && !attempt.failed {
                let first = Request::next(rest).map_or(begin, |(first, _)| first);
                let (lost, full) = (change.lost, attempt.full || change.lost_echo);
                match self.commit(&mut control.hooks, change, &first) {
                    Ok(events) => return Outcome { answers: attempt.answers, events, full, lost },
                    Err(failure) => {
                        attempt.answers = vec![acknowledge(Err(failure), &begin, asker.port, asker.options)];
                    }
                }
            }
            return Outcome { answers: attempt.answers, full: attempt.full, ..Outcome::default() };
        }
        Outcome::default()
    }

    fn change<'a>(&'a self, batch: u64, rules: crate::model::Ruleset, asker: &'a Asker<'a>) -> Change<'a> {
        Change {
            rules,
            ids: Ids::default(),
            batch,
            now: asker.now,
            budget: &self.budget,
            netfilter: &self.netfilter,
            asker,
            events: Vec::new(),
            event_bytes: 0,
            work: std::cell::Cell::new(WORK),
            lost: false,
            lost_echo: false,
            touched: BTreeSet::new(),
        }
    }

    /// Puts the changed rules in the place of the old ones.
    pub(crate) fn commit(
        &self,
        hooks: &mut crate::hooks::Hooks,
        mut change: Change<'_>,
        first: &Request<'_>,
    ) -> Result<Vec<Event>> {
        validate_all(&change)?;
        if change.touched.is_empty() {
            return Ok(Vec::new());
        }
        let fresh = hooks.add(&change.rules, &self.live, &self.netfilter)?;
        change.rules.generation = following(change.rules.generation);
        let generation = change.rules.generation;
        self.live.store(std::sync::Arc::new(change.rules));
        hooks.settle(fresh, &self.live.load());
        let mut events = change.events;
        // A sender that wants an echo of the first message gets one of the generation.
        let echo = first.has(flag::ECHO);
        if change.asker.listeners || echo {
            let reply = Reply { flags: 0, seq: first.seq, port: change.asker.port, generation };
            let message = get::generation(reply, generation, change.asker);
            events.push(Event { message, echo });
        }
        Ok(events)
    }
}

fn validate_all(change: &Change<'_>) -> Result<()> {
    for table in &change.touched {
        if let Some(table) = change.rules.tables.get(table) {
            change.spend(validate::cost(table))?;
            validate::table(table)?;
        }
    }
    Ok(())
}

/// Applies the messages one by one. A failure spoils the batch, but the messages after it are looked at as well.
fn attempt(change: &mut Change<'_>, begin: Request<'_>, mut rest: &[u8], validate: bool) -> Attempt {
    let (port, options, room) = (change.asker.port, change.asker.options, change.asker.room);
    let mut attempt = Attempt::default();
    let answer = |attempt: &mut Attempt, request: &Request<'_>, outcome: std::result::Result<(), Failure>| {
        attempt.failed |= outcome.is_err();
        if outcome.is_err() || request.has(flag::ACK) {
            // The queue has no room for more, and the asker is told so.
            if attempt.bytes > room {
                attempt.full = true;
                return;
            }
            attempt.bytes += request.bytes.len().max(ANSWER);
            attempt.answers.push(acknowledge(outcome, request, port, options));
        }
    };
    if begin.has(flag::ACK) {
        answer(&mut attempt, &begin, Ok(()));
    }
    while !rest.is_empty() {
        let next = Request::next(rest).filter(|(request, _)| request.bytes.len() >= SHORTEST);
        let Some((request, after)) = next.filter(|(request, _)| request.kind != BEGIN) else {
            // What follows makes no sense, so all that was said of the batch does not count either.
            return Attempt { failed: true, ..Attempt::default() };
        };
        rest = after;
        if request.kind == END {
            attempt.ended = true;
            if request.has(flag::ACK) {
                answer(&mut attempt, &request, Ok(()));
            }
            break;
        }
        attempt.messages += 1;
        let outcome = match request.has(flag::REQUEST) && request.subsystem() == NFTABLES {
            true => change.apply(&request),
            false => Err(Errno::EINVAL.into()),
        };
        let outcome = match validate {
            true => outcome.and_then(|()| validate_all(change)),
            false => outcome,
        };
        let lasting = outcome.is_err();
        answer(&mut attempt, &request, outcome);
        if validate && lasting {
            break;
        }
    }
    attempt
}
