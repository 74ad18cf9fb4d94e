//! Scheduling parameters of a thread: recorded and reported; the host schedules. See sched(7), ioprio_set(2).

use abi::{CpuMask, libc};
use lock_order::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

/// SCHED_RESET_ON_FORK.
pub const RESET_ON_FORK: i32 = 0x4000_0000;

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
}

impl Default for Scheduling {
    fn default() -> Self {
        let policy = (libc::SCHED_OTHER, 0);
        Scheduling::from(SchedulingState { nice: 0, policy, ioprio: 0, affinity: CpuMask::ALL, slice: 0 })
    }
}

impl Scheduling {
    /// What a new thread starts with. With SCHED_RESET_ON_FORK real-time policies and negative nice values are not handed on.
    pub fn inherited(&self) -> Arc<Scheduling> {
        let all = self.state();
        let (policy, priority) = all.policy;
        let (policy, nice) = match policy & RESET_ON_FORK {
            0 => (all.policy, all.nice),
            _ if priority > 0 => ((libc::SCHED_OTHER, 0), all.nice.max(0)),
            _ => ((policy & !RESET_ON_FORK, 0), all.nice.max(0)),
        };
        Arc::new(Scheduling::from(SchedulingState { nice, policy, ..all }))
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
}

impl From<SchedulingState> for Scheduling {
    fn from(s: SchedulingState) -> Scheduling {
        Scheduling {
            nice: AtomicI32::new(s.nice),
            policy: Mutex::new(s.policy),
            ioprio: AtomicI32::new(s.ioprio),
            affinity: Mutex::new(s.affinity),
            slice: AtomicU64::new(s.slice),
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
        };
        assert_eq!(Scheduling::from(state).state(), state);
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
