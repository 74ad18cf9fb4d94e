//! The filters of a thread, as a list: a new filter goes in front, and threads share the rest.

use crate::{ACTION_FULL, Data, MAX_PER_PATH, Program, RET_ALLOW, SockFilter};
use abi::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// System calls for which the answer "always allowed" is remembered.
const REMEMBERED: usize = 512;

/// Most instructions of all filters of a kernel: they live in the sentry. 64 MiB.
const MAX_LIVE: usize = 8 << 20;
/// What a filter takes besides its instructions, counted in them.
const OVERHEAD: usize = 32;

/// What the filters of one kernel take together.
#[derive(Debug, Default)]
pub struct Filters(AtomicUsize);

/// The share of one filter.
#[derive(Debug)]
struct Share {
    filters: Arc<Filters>,
    instructions: usize,
}

impl Share {
    /// ENOMEM when there are too many.
    fn new(filters: &Arc<Filters>, instructions: usize) -> Result<Share> {
        let add = |n: usize| n.checked_add(instructions).filter(|n| *n <= MAX_LIVE);
        filters.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| Errno::ENOMEM)?;
        Ok(Share { filters: filters.clone(), instructions })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.filters.0.fetch_sub(self.instructions, Ordering::Relaxed);
    }
}

/// A supervisor that decides about calls in place of a filter (SECCOMP_RET_USER_NOTIF); it ends with the filter.
pub trait Supervisor: std::fmt::Debug + Send + Sync {
    /// The number that its maker gave it.
    fn number(&self) -> u64;
}

/// A filter and those installed before it.
#[derive(Debug)]
pub struct Chain {
    program: Program,
    before: Option<Arc<Chain>>,
    /// Filters, this one included.
    count: u32,
    /// Weights of all, with four more for each.
    weight: usize,
    /// Numbers that every filter allows whatever the arguments are.
    allowed: [u64; REMEMBERED / 64],
    log: bool,
    supervisor: Option<Arc<dyn Supervisor>>,
    _share: Share,
}

/// What the filters say of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The strictest return value, that of the latest filter among equals.
    pub value: u32,
    /// The filter it comes from wants actions logged.
    pub log: bool,
}

impl Chain {
    /// Puts a program in front of others. ENOMEM when they are too long together, or the kernel has too many.
    pub fn new(
        filters: &Arc<Filters>,
        program: Program,
        before: Option<Arc<Chain>>,
        log: bool,
    ) -> Result<Arc<Chain>> {
        Chain::supervised(filters, program, before, log, None)
    }

    /// As [`Chain::new`], with a supervisor for what the filter leaves to it. EBUSY when there is one already.
    pub fn supervised(
        filters: &Arc<Filters>,
        program: Program,
        before: Option<Arc<Chain>>,
        log: bool,
        supervisor: Option<Arc<dyn Supervisor>>,
    ) -> Result<Arc<Chain>> {
        if supervisor.is_some() && before.as_ref().is_some_and(|b| b.is_supervised()) {
            return Err(Errno::EBUSY);
        }
        let weight = program.weight() + 4 + before.as_ref().map_or(0, |b| b.weight);
        if weight - 4 > MAX_PER_PATH {
            return Err(Errno::ENOMEM);
        }
        let share = Share::new(filters, program.len() + OVERHEAD)?;
        let count = 1 + before.as_ref().map_or(0, |b| b.count);
        let mut allowed = before.as_ref().map_or([u64::MAX; REMEMBERED / 64], |b| b.allowed);
        for nr in 0..REMEMBERED {
            let bit = 1 << (nr % 64);
            if let Some(word) = allowed.get_mut(nr / 64)
                && *word & bit != 0
                && !program.always_allows(nr as i32)
            {
                *word &= !bit;
            }
        }
        Ok(Arc::new(Chain { program, before, count, weight, allowed, log, supervisor, _share: share }))
    }

    /// True when every filter allows this call whatever its arguments are. May say no all the same.
    pub fn always_allows(&self, nr: u64) -> bool {
        let word = usize::try_from(nr / 64).ok().and_then(|w| self.allowed.get(w));
        word.is_some_and(|w| w >> (nr % 64) & 1 != 0)
    }

    /// Runs every filter.
    pub fn run(&self, data: &Data) -> Verdict {
        let mut verdict = Verdict { value: RET_ALLOW, log: false };
        let rank = |v: u32| (v & ACTION_FULL) as i32;
        let mut next = Some(self);
        while let Some(c) = next {
            let value = c.program.run(data);
            if rank(value) < rank(verdict.value) {
                verdict = Verdict { value, log: c.log };
            }
            next = c.before.as_deref();
        }
        verdict
    }

    /// Whether one of the filters has a supervisor.
    pub fn is_supervised(&self) -> bool {
        let mut next = Some(self);
        while let Some(c) = next {
            if c.supervisor.is_some() {
                return true;
            }
            next = c.before.as_deref();
        }
        false
    }

    /// The number of the supervisor of the latest filter that gives a call this value.
    pub fn supervisor(&self, data: &Data, value: u32) -> Option<u64> {
        let mut next = Some(self);
        while let Some(c) = next {
            if c.program.run(data) == value {
                return c.supervisor.as_ref().map(|s| s.number());
            }
            next = c.before.as_deref();
        }
        None
    }

    /// The instructions of a filter, the first installed being number 0, and whether it wants actions logged.
    pub fn filter(&self, number: u64) -> Option<(&[SockFilter], bool)> {
        let mut steps = u64::from(self.count).checked_sub(number)?.checked_sub(1)?;
        let mut at = self;
        while steps > 0 {
            at = at.before.as_deref()?;
            steps -= 1;
        }
        Some((at.program.code(), at.log))
    }

    /// Number of filters.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// True when `other` is this chain or a part of it: its filters are all in force here.
    pub fn contains(self: &Arc<Chain>, other: &Arc<Chain>) -> bool {
        let mut next = Some(self);
        while let Some(c) = next {
            if Arc::ptr_eq(c, other) {
                return true;
            }
            next = c.before.as_ref();
        }
        false
    }
}

impl Drop for Chain {
    // A long chain must not end in as many nested calls.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(c) = next {
            next = Arc::into_inner(c).and_then(|mut c| c.before.take());
        }
    }
}
