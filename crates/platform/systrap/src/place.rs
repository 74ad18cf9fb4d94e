//! Where a sentry thread runs, seen from its stub thread.
//!
//! Two threads that wait for each other in turn stay on one CPU as far as the host's scheduler is concerned, and each
//! hand-off then costs two switches. While calls come thick and fast the sentry's thread therefore tries every other CPU
//! than the stub's, where both can spin. If that does not pay, because the other CPUs have work of their own, it goes back
//! to any CPU, and tries again later and later.

use hostsys::cpu;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Hand-offs on one CPU before the thread moves away.
const STREAK: u32 = 64;
/// They must come at least this often, in microseconds each.
const DENSE: u64 = 16;
/// Hand-offs after which the new place is judged.
const TRIAL: u32 = 64;
/// Hand-offs after a move in which both sides spin longer, to find each other.
const EAGER: u32 = 16;
/// First and longest pause between trials, in microseconds.
const PAUSE: (u64, u64) = (20_000, 1_000_000);

/// The CPUs that the sentry may use.
pub(crate) struct Cpus {
    all: CpuSet,
    count: u32,
    /// Time stamp counter cycles.
    per_microsecond: u64,
}

impl Cpus {
    /// With 0 cycles per microsecond threads stay where the host puts them.
    pub(crate) fn new(per_microsecond: u64) -> Cpus {
        let all = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        Cpus { count: if per_microsecond == 0 { 0 } else { all.count() }, all, per_microsecond }
    }
}

/// What a context knows about the place of its thread.
#[derive(Default)]
pub(crate) struct Place {
    /// Hand-offs on the stub's CPU in a row, and when the first was.
    streak: u32,
    since: u64,
    /// The stub's CPU when the thread moved away from it.
    left: Option<u32>,
    /// Hand-offs in the present trial, and how often the thread slept in them.
    calls: u32,
    sleeps: u32,
    /// No trial before that time.
    not_before: u64,
    pause: u64,
}

impl Place {
    /// A request has come. True while both sides should spin longer.
    pub(crate) fn step(&mut self, cpus: &Cpus, (me, stub): (u32, u32), slept: bool) -> bool {
        let Some(left) = self.left else {
            self.together(cpus, me == stub, stub);
            return self.left.is_some();
        };
        self.calls += 1;
        self.sleeps += u32::from(slept);
        let followed = stub != left && stub == me;
        if self.calls >= TRIAL || followed {
            if followed || self.sleeps * 4 > self.calls {
                self.stay_anywhere(cpus);
                let (first, longest) = PAUSE;
                self.pause = (self.pause * 2).clamp(first, longest);
                self.not_before = cpu::tsc().wrapping_add(self.pause * cpus.per_microsecond);
            } else {
                self.pause = 0;
            }
            (self.calls, self.sleeps) = (EAGER, 0);
        }
        self.calls < EAGER
    }

    fn together(&mut self, cpus: &Cpus, same: bool, stub: u32) {
        if !same || cpus.count < 2 {
            self.streak = 0;
            return;
        }
        if self.streak == 0 {
            self.since = cpu::tsc();
        }
        self.streak += 1;
        if self.streak < STREAK {
            return;
        }
        self.streak = 0;
        let now = cpu::tsc();
        let took = now.wrapping_sub(self.since);
        let early = (self.not_before.wrapping_sub(now) as i64) > 0;
        if early || took > u64::from(STREAK) * DENSE * cpus.per_microsecond {
            return;
        }
        let mut others = cpus.all;
        if (stub as usize) < CpuSet::MAX_CPU {
            others.unset(stub as usize);
        }
        if others.count() > 0 && sched_setaffinity(None, &others).is_ok() {
            self.left = Some(stub);
            (self.calls, self.sleeps) = (0, 0);
        }
    }

    /// Any CPU will do. The thread itself must call it.
    pub(crate) fn stay_anywhere(&mut self, cpus: &Cpus) {
        if self.left.take().is_some() {
            let _ = sched_setaffinity(None, &cpus.all);
        }
    }
}
