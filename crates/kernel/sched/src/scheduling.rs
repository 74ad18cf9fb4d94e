//! Scheduling parameters of a thread: recorded and reported; the host schedules. See sched(7), ioprio_set(2).

use abi::{CpuMask, libc};
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// SCHED_RESET_ON_FORK.
pub const RESET_ON_FORK: i32 = 0x4000_0000;
/// SCHED_DEADLINE.
pub const SCHED_DEADLINE: i32 = 6;

/// The parameters of one thread. They outlive it in a zombie.
#[derive(Debug)]
pub struct Scheduling {
    /// Nice value.
    pub nice: AtomicI32,
    /// Policy and priority of sched_setscheduler(2).
    pub policy: Mutex<(i32, i32)>,
    /// I/O priority.
    pub ioprio: AtomicI32,
    /// sched_setaffinity(2) mask.
    pub affinity: Mutex<CpuMask>,
    /// Time slice of sched_setattr(2) in nanoseconds, 0 for the default.
    pub slice: AtomicU64,
    /// Of SCHED_DEADLINE.
    pub deadline: Mutex<Deadline>,
}

/// What sched_setattr(2) takes for SCHED_DEADLINE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Deadline {
    /// Nanoseconds of each period that the thread runs.
    pub runtime: u64,
    /// Nanoseconds from a period's start until it has run.
    pub deadline: u64,
    /// Nanoseconds; 0 for the same as `deadline`.
    pub period: u64,
    /// SCHED_FLAG_RECLAIM and SCHED_FLAG_DL_OVERRUN.
    pub flags: u64,
}

impl Deadline {
    /// Shortest runtime.
    const RUNTIME: u64 = 1 << 10;
    /// Shortest and longest period (kernel.sched_deadline_period_min_us and period_max_us).
    const PERIODS: std::ops::RangeInclusive<u64> = 100_000..=(1 << 22) * 1000;

    /// The period, which is the deadline where none is given.
    fn period(&self) -> u64 {
        if self.period == 0 { self.deadline } else { self.period }
    }

    /// Whether Linux takes the parameters.
    pub fn is_valid(&self) -> bool {
        let period = self.period();
        self.runtime >= Deadline::RUNTIME
            && self.runtime <= self.deadline
            && self.deadline <= period
            && Deadline::PERIODS.contains(&period)
    }

    /// The part of a processor that it asks for, in millionths, whatever an image says.
    pub fn bandwidth(&self) -> u64 {
        let part = u128::from(self.runtime) * 1_000_000 / u128::from(self.period().max(1));
        part.min(1_000_000) as u64
    }
}

impl Default for Scheduling {
    fn default() -> Self {
        let policy = (libc::SCHED_OTHER, 0);
        Scheduling::from(SchedulingState {
            nice: 0,
            policy,
            ioprio: 0,
            affinity: CpuMask::ALL,
            slice: 0,
            deadline: Deadline::default(),
        })
    }
}

impl Scheduling {
    /// What a new thread starts with. With SCHED_RESET_ON_FORK real-time policies and negative nice values are not handed on.
    pub fn inherited(&self) -> Arc<Scheduling> {
        let all = self.state();
        let (policy, priority) = all.policy;
        let (policy, nice) = match policy & RESET_ON_FORK {
            0 => (all.policy, all.nice),
            _ if priority > 0 || policy & !RESET_ON_FORK == SCHED_DEADLINE => {
                ((libc::SCHED_OTHER, 0), all.nice.max(0))
            }
            _ => ((policy & !RESET_ON_FORK, 0), all.nice.max(0)),
        };
        Arc::new(Scheduling::from(SchedulingState { nice, policy, ..all }))
    }

    /// Linux's own number for the priority: below 0 for SCHED_DEADLINE, below 100 for real-time policies, 120 for nice 0.
    pub fn kernel_priority(&self) -> i32 {
        let (policy, priority) = *self.policy.lock();
        match policy & !RESET_ON_FORK {
            SCHED_DEADLINE => -1,
            _ if priority > 0 => 99 - priority,
            _ => 120 + self.nice.load(Relaxed),
        }
    }

    /// True for a thread that makes no others: one of SCHED_DEADLINE that does not reset it for them.
    pub fn stays_alone(&self) -> bool {
        self.policy.lock().0 == SCHED_DEADLINE
    }

    /// As plain data.
    pub fn state(&self) -> SchedulingState {
        // One lock after the other.
        let policy = *self.policy.lock();
        let affinity = *self.affinity.lock();
        SchedulingState {
            nice: self.nice.load(Relaxed),
            policy,
            ioprio: self.ioprio.load(Relaxed),
            affinity,
            slice: self.slice.load(Relaxed),
            deadline: *self.deadline.lock(),
        }
    }
}

/// [`Scheduling`] as plain data, for a checkpoint. Fields have the same names there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[expect(missing_docs, reason = "the fields of Scheduling")]
pub struct SchedulingState {
    pub nice: i32,
    pub policy: (i32, i32),
    pub ioprio: i32,
    pub affinity: CpuMask,
    pub slice: u64,
    #[serde(default)]
    pub deadline: Deadline,
}

impl From<SchedulingState> for Scheduling {
    fn from(s: SchedulingState) -> Scheduling {
        Scheduling {
            nice: AtomicI32::new(s.nice),
            policy: Mutex::new(s.policy),
            ioprio: AtomicI32::new(s.ioprio),
            affinity: Mutex::new(s.affinity),
            slice: AtomicU64::new(s.slice),
            deadline: Mutex::new(s.deadline),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_back() {
        let state = SchedulingState {
            nice: 3,
            policy: (libc::SCHED_RR, 5),
            ioprio: 7,
            affinity: CpuMask::first(6),
            slice: 9,
            deadline: Deadline { runtime: 1, deadline: 2, period: 3, flags: 4 },
        };
        assert_eq!(Scheduling::from(state).state(), state);
    }

    #[test]
    fn deadlines() {
        let of = |runtime, deadline, period| Deadline { runtime, deadline, period, flags: 0 };
        assert!(of(10_000_000, 30_000_000, 30_000_000).is_valid() && of(1024, 100_000, 0).is_valid());
        for bad in
            [of(1023, 100_000, 0), of(5000, 4000, 200_000), of(5000, 300_000, 200_000), of(5000, 99_999, 0)]
        {
            assert!(!bad.is_valid(), "{bad:?}");
        }
        assert!(!of(u64::MAX, u64::MAX, 0).is_valid() && !Deadline::default().is_valid());
        assert_eq!(of(500_000, 1_000_000, 0).bandwidth(), 500_000);
        assert_eq!(of(u64::MAX, 0, 0).bandwidth(), 1_000_000);
    }

    #[test]
    fn reset_on_fork() {
        let of = |policy, nice| {
            Scheduling::from(SchedulingState { nice, policy, ..Scheduling::default().state() })
        };
        let child = |policy, nice| of(policy, nice).inherited().state();
        let real_time = child((libc::SCHED_FIFO | RESET_ON_FORK, 5), -3);
        assert_eq!((real_time.policy, real_time.nice), ((libc::SCHED_OTHER, 0), 0));
        let kept = child((libc::SCHED_FIFO, 5), -3);
        assert_eq!((kept.policy, kept.nice), ((libc::SCHED_FIFO, 5), -3));
    }
}
