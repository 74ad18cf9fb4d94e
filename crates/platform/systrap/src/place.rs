//! Chooses the CPU of a sentry thread, relative to its stub thread.
//!
//! A hand-off between two CPUs costs very little while both sides poll the slot, and tens of microseconds when one
//! sleeps, because its CPU must be woken. On one CPU it costs two switches in both cases. So a sentry thread polls the
//! slot from another CPU while calls follow each other quickly. It sleeps on the CPU of its stub when they do not. When
//! the other CPUs have work of their own, polling there does not pay, and the thread moves there less and less often.

use hostsys::cpu;
use rustix::thread::CpuSet;

/// Calls in a row on the stub's CPU after which the thread moves away from it: at first, and at most.
const CALLS: (u32, u32) = (12, 1024);
/// The most where others were found to have work for the other CPUs: a visit there costs as much as hundreds of calls.
const CROWDED: u32 = 8192;
/// They must come at least this often, in microseconds each.
const DENSE: u64 = 40;
/// A thread that does not look for so many microseconds did not run.
const KEPT: u64 = 25;
/// Calls on another CPU that make going there worth it.
const WORTH: u32 = 64;
/// Share of late calls, in 256ths, above which the thread sleeps on the stub's CPU, and below which it may leave that.
const LATE: (u32, u32) = (100, 60);

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
        let all = cpu::all();
        Cpus { count: if per_microsecond == 0 { 0 } else { all.count() }, all, per_microsecond }
    }

    /// How many there are to choose from; 0 where threads stay where the host puts them.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

/// Where the thread may run.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Anywhere,
    /// On the stub's CPU.
    Near(u32),
    /// Anywhere but on the CPU that was the stub's.
    Away(u32),
}

/// What a context knows about the place of its thread.
#[derive(Default)]
pub(crate) struct Place {
    mode: Mode,
    /// Calls on the stub's CPU in a row, and when the first was.
    streak: u32,
    since: u64,
    /// How many it takes to go away; 0 stands for the least.
    need: u32,
    /// Calls since the thread went away.
    calls: u32,
    /// How many of the last calls came later than a spin lasts, in 256ths.
    late: u32,
}

impl Place {
    /// A request has come, `late` or while a spin would have lasted.
    pub(crate) fn arrived(&mut self, me: u32, stub: u32, late: bool) {
        self.calls = self.calls.saturating_add(1);
        self.late -= self.late / 16;
        if late {
            self.late += 16;
        }
        if me != stub {
            self.streak = 0;
            return;
        }
        if self.streak == 0 {
            self.since = cpu::tsc();
        }
        self.streak = self.streak.saturating_add(1);
    }

    /// It has been answered. True when the thread has moved.
    pub(crate) fn answered(&mut self, cpus: &Cpus, me: u32, stub: u32) -> bool {
        if me != stub {
            let left = matches!(self.mode, Mode::Near(at) if at != stub);
            return left && !cpu::stays() && self.near(cpus, stub);
        }
        let need = self.need.max(CALLS.0);
        if self.streak < need || cpus.count < 2 {
            return false;
        }
        let took = cpu::tsc().wrapping_sub(self.since);
        let dense = took <= u64::from(self.streak) * DENSE * cpus.per_microsecond;
        if !dense || self.late > LATE.1 {
            self.streak = 0;
            return false;
        }
        if matches!(self.mode, Mode::Away(_)) {
            self.judge();
        }
        self.away(cpus, stub)
    }

    /// The thread is about to sleep. True when it has moved.
    pub(crate) fn sleeps(&mut self, cpus: &Cpus, me: u32, stub: u32) -> bool {
        self.late > LATE.0 && me != stub && !cpu::stays() && self.near(cpus, stub)
    }

    /// The thread looked at the slot at these two times, and would have all the while but for the host. When the host
    /// kept it from that for long, another thread has work for this CPU: the sentry's thread may then run on any CPU
    /// again.
    pub(crate) fn looked(&mut self, cpus: &Cpus, before: u64, now: u64) {
        let kept = now.wrapping_sub(before) > KEPT * cpus.per_microsecond;
        if kept && matches!(self.mode, Mode::Away(_)) {
            self.need = (self.need.max(CALLS.0) * 4).min(CROWDED);
            self.stay_anywhere(cpus);
        }
    }

    fn judge(&mut self) {
        let least = CALLS.0;
        self.need =
            if self.calls >= WORTH { least } else { (self.need.max(least) * 2).min(self.need.max(CALLS.1)) };
    }

    fn near(&mut self, cpus: &Cpus, stub: u32) -> bool {
        self.streak = 0;
        if cpus.count < 2 || stub as usize >= CpuSet::MAX_CPU || !cpus.all.is_set(stub as usize) {
            return false;
        }
        let mut one = CpuSet::new();
        one.set(stub as usize);
        self.go(Mode::Near(stub), &one)
    }

    fn away(&mut self, cpus: &Cpus, stub: u32) -> bool {
        (self.streak, self.calls) = (0, 0);
        let mut others = cpus.all;
        if (stub as usize) < CpuSet::MAX_CPU {
            others.unset(stub as usize);
        }
        let gone = others.count() > 0 && self.go(Mode::Away(stub), &others);
        if !gone {
            self.judge();
        }
        gone
    }

    fn go(&mut self, mode: Mode, to: &CpuSet) -> bool {
        if self.mode == mode {
            return false;
        }
        let gone = cpu::keep_to(to);
        if gone {
            self.mode = mode;
        }
        gone
    }

    /// Any CPU will do. The thread itself must call it.
    pub(crate) fn stay_anywhere(&mut self, cpus: &Cpus) {
        if self.mode != Mode::Anywhere {
            self.mode = Mode::Anywhere;
            cpu::keep_to(&cpus.all);
        }
    }
}
