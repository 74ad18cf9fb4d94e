//! The files of the `cpu` controller, and the look at how much the groups have used.

use crate::controllers::Controllers;
use crate::cpu::{Cpu, CpuMax, CpuStat, SHARES};
use crate::group::Cgroup;
use abi::{Errno, Result};
use ktime::Ktime;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The shares of nice values from -20 on, as the host's scheduler has them. See sched(7).
const NICE_WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, 9548, 7620, 6100, 4904, 3906, 3121,
    2501, 1991, 1586, 1277, 1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, 110, 87, 70, 56, 45, 36, 29,
    23, 18, 15,
];

impl Cgroup {
    /// cpu.max and cpu.max.burst.
    pub fn cpu_max(&self) -> CpuMax {
        self.state().cpu.max
    }

    /// Sets them. A check is needed at once ([`Cgroup::look_at_cpu`]). EINVAL for values out of range.
    pub fn set_cpu_max(&self, max: CpuMax) -> Result<()> {
        max.check()?;
        let _tree = self.tree().lock();
        self.check_alive()?;
        let mut s = self.state();
        if s.cpu.max != max {
            s.cpu.max = max;
            let now = self.tree().clock.now();
            s.cpu.settle(now);
        }
        Ok(())
    }

    /// cpu.weight: 0 for an idle group.
    pub fn cpu_weight(&self) -> u32 {
        let s = self.state();
        if s.cpu.idle { 0 } else { (s.cpu.shares * 100 + SHARES / 2) / SHARES }
    }

    /// Sets it. ERANGE; EINVAL for an idle group.
    pub fn set_cpu_weight(&self, weight: u32) -> Result<()> {
        if !(1..=10_000).contains(&weight) {
            return Err(Errno::ERANGE);
        }
        self.set_shares((weight * SHARES + 50) / 100)
    }

    fn set_shares(&self, shares: u32) -> Result<()> {
        let mut s = self.state();
        if s.cpu.idle {
            return Err(Errno::EINVAL);
        }
        s.cpu.shares = shares;
        Ok(())
    }

    /// cpu.weight.nice: the nice value with the weight next to the group's.
    pub fn cpu_nice(&self) -> i32 {
        let shares = {
            let s = self.state();
            if s.cpu.idle { 0 } else { s.cpu.shares }
        };
        let distances = NICE_WEIGHTS.iter().map(|nice| nice.abs_diff(shares));
        let (at, _) = distances.enumerate().min_by_key(|(_, distance)| *distance).unwrap_or((20, 0));
        at as i32 - 20
    }

    /// Sets the weight to that of a nice value. ERANGE; EINVAL for an idle group.
    pub fn set_cpu_nice(&self, nice: i32) -> Result<()> {
        let at = nice.checked_add(20).and_then(|at| usize::try_from(at).ok());
        self.set_shares(*NICE_WEIGHTS.get(at.ok_or(Errno::ERANGE)?).ok_or(Errno::ERANGE)?)
    }

    /// cpu.idle.
    pub fn is_cpu_idle(&self) -> bool {
        self.state().cpu.idle
    }

    /// Sets it.
    pub fn set_cpu_idle(&self, idle: bool) {
        let mut s = self.state();
        if std::mem::replace(&mut s.cpu.idle, idle) {
            s.cpu.shares = SHARES;
        }
    }

    /// What cpu.stat says besides use.
    pub fn cpu_stat(&self) -> CpuStat {
        let s = self.state();
        let since = s.cpu.account.and_then(|account| account.throttled_since);
        let now_on = since.map_or(Duration::ZERO, |since| self.tree().clock.now().since(since));
        CpuStat { throttled_time: s.cpu.stat.throttled_time + now_on, ..s.cpu.stat }
    }

    /// Whether it has a quota that holds.
    pub fn has_cpu_quota(&self) -> bool {
        self.controllers().contains(Controllers::CPU) && self.state().cpu.max.quota.is_some()
    }

    /// The controller has been disabled.
    pub(crate) fn reset_cpu(&self) {
        self.state().cpu = Cpu::default();
    }

    /// Looks at how much processor time the groups of the whole tree have used. `used` is what is in each group itself
    /// now, in nanoseconds, by the number of the group; what has ended or moved on is known here. `processors` can be
    /// used at the same time. Of the topmost group.
    pub fn look_at_cpu(self: &Arc<Self>, now: Ktime, used: impl Fn(u64) -> u64, processors: u32) -> Look {
        let _tree = self.tree().lock();
        let all = self.subtree();
        // Each group comes after the one around it.
        let mut sums: Vec<u64> =
            all.iter().map(|group| group.state().time.iter().sum::<u64>() + used(group.id())).collect();
        let places: std::collections::HashMap<u64, usize> = all.iter().map(|g| g.id()).zip(0..).collect();
        let around = |group: &Cgroup| group.parent().and_then(|parent| places.get(&parent.id()).copied());
        for i in (0..all.len()).rev() {
            if let Some(parent) = around(&all[i]) {
                sums[parent] = sums[parent].saturating_add(sums[i]);
            }
        }
        let mut look = Look::default();
        for (group, sum) in all.iter().zip(sums) {
            let has = group.controllers().contains(Controllers::CPU);
            let own = {
                let mut s = group.state();
                let next = if has { s.cpu.look(now, sum, processors) } else { None };
                look.next = [look.next, next].into_iter().flatten().min();
                s.cpu.is_throttled()
            };
            let throttled = own || group.parent().is_some_and(|parent| parent.is_throttled());
            let was = group.throttled.swap(throttled, Ordering::SeqCst);
            look.any |= throttled;
            look.released |= was && !throttled;
        }
        look
    }
}

/// What [`Cgroup::look_at_cpu`] has found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// When to look again.
    pub next: Option<Ktime>,
    /// Some group is throttled.
    pub any: bool,
    /// Some group is not throttled any more.
    pub released: bool,
}
