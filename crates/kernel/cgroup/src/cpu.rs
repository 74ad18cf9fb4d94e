//! The `cpu` controller: how much processor time a group and those below it may use (cpu.max), and their weights.
//!
//! A group with a limit has a balance of processor time. Each period adds the quota to it, up to the quota and the
//! burst together; what the group uses is taken off, and while nothing is left the group is throttled. The balance may
//! become negative, as use is only looked at now and then: what was used too much is paid off in the next periods. So
//! the limit holds on average, however late the check is.
//!
//! Weights are kept and shown. The host shares its time among the threads of the sandbox, as with nice values.

use abi::{Errno, Result};
use ktime::Ktime;
use std::time::Duration;

/// The share of a group with weight 100, which is the default.
pub(crate) const SHARES: u32 = 1024;
/// Shortest period and quota, longest period.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(1);
/// Largest quota and burst (max_bw_runtime): 2^44 ns.
const MOST: Duration = Duration::from_nanos(1 << 44);
/// How soon at the earliest, and how late at the latest, use is looked at again.
const SOONEST: Duration = Duration::from_millis(2);

/// cpu.max and cpu.max.burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuMax {
    /// Processor time in each period; `None` for as much as there is.
    pub quota: Option<Duration>,
    /// The period.
    pub period: Duration,
    /// Unused time of earlier periods that may be used on top.
    pub burst: Duration,
}

impl Default for CpuMax {
    fn default() -> CpuMax {
        CpuMax { quota: None, period: Duration::from_millis(100), burst: Duration::ZERO }
    }
}

impl CpuMax {
    /// EINVAL for values out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let quota = self.quota.unwrap_or(SHORTEST);
        let fits = quota >= SHORTEST
            && (SHORTEST..=LONGEST).contains(&self.period)
            && quota <= MOST
            && self.burst <= MOST
            && self.quota.is_none_or(|quota| self.burst <= quota && self.burst + quota <= MOST);
        if fits { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// What cpu.stat says besides use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStat {
    /// Periods with something to run.
    pub periods: u64,
    /// Periods in which the group was throttled.
    pub throttled: u64,
    /// How long it was, in all.
    pub throttled_time: Duration,
    /// Periods in which it used more than its quota, and how much more in all.
    pub bursts: u64,
    /// See `bursts`.
    pub burst_time: Duration,
}

/// The balance of a group with a quota. Nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    balance: i128,
    /// The group's use at the last check, and at the beginning of the period.
    used: u64,
    used_before: u64,
    /// When the period began.
    began: Ktime,
    pub(crate) throttled_since: Option<Ktime>,
}

/// Settings and state of a group.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub(crate) shares: u32,
    pub(crate) idle: bool,
    pub(crate) max: CpuMax,
    pub(crate) stat: CpuStat,
    pub(crate) account: Option<Account>,
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu { shares: SHARES, idle: false, max: CpuMax::default(), stat: CpuStat::default(), account: None }
    }
}

impl Cpu {
    pub(crate) fn is_throttled(&self) -> bool {
        self.account.is_some_and(|account| account.throttled_since.is_some())
    }

    /// Looks at use, in nanoseconds since the group was made. Gives when to look again; `None` for a group without a
    /// quota. `processors` can be used at the same time.
    pub(crate) fn look(&mut self, now: Ktime, used: u64, processors: u32) -> Option<Ktime> {
        let CpuMax { quota: Some(quota), period, burst } = self.max else {
            self.settle(now);
            return None;
        };
        let (full, most) = (quota.as_nanos() as i128, (quota + burst).as_nanos() as i128);
        let account = self.account.get_or_insert(Account {
            balance: full,
            used,
            used_before: used,
            began: now,
            throttled_since: None,
        });
        account.balance -= i128::from(used.saturating_sub(account.used));
        account.used = used.max(account.used);
        let ended = now.since(account.began).as_nanos() / period.as_nanos();
        if ended > 0 {
            let in_period = u128::from(account.used - account.used_before);
            if in_period > 0 || account.throttled_since.is_some() {
                self.stat.periods += u64::try_from(ended).unwrap_or(u64::MAX);
                self.stat.throttled += u64::from(account.throttled_since.is_some());
            }
            let beyond = in_period.saturating_sub(ended.saturating_mul(quota.as_nanos()));
            if beyond > 0 && !burst.is_zero() {
                self.stat.bursts += 1;
                self.stat.burst_time +=
                    Duration::from_nanos(u64::try_from(beyond).unwrap_or(u64::MAX)).min(burst);
            }
            let more = i128::try_from(ended).unwrap_or(i128::MAX).saturating_mul(full);
            account.balance = account.balance.saturating_add(more).min(most);
            account.used_before = account.used;
            let into_period = now.since(account.began).as_nanos() % period.as_nanos();
            account.began = now.minus(Duration::from_nanos(into_period as u64));
        }
        let next_period = account.began.plus(period);
        if account.balance <= 0 {
            account.throttled_since.get_or_insert(now);
            return Some(next_period);
        }
        if let Some(since) = account.throttled_since.take() {
            self.stat.throttled_time += now.since(since);
        }
        // As fast as it can, with all processors.
        let soonest = account.balance / i128::from(processors.max(1));
        let soonest = Duration::from_nanos(u64::try_from(soonest).unwrap_or(u64::MAX))
            .clamp(SOONEST, period.max(SOONEST));
        Some(now.plus(soonest).min(next_period.max(now.plus(SOONEST))))
    }

    /// There is no quota any more.
    pub(crate) fn settle(&mut self, now: Ktime) {
        if let Some(since) = self.account.take().and_then(|account| account.throttled_since) {
            self.stat.throttled_time += now.since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cgroup, Controllers};

    const MS: u64 = 1_000_000;

    fn limited(quota: u64, burst: u64) -> Cpu {
        let max = CpuMax {
            quota: Some(Duration::from_millis(quota)),
            period: Duration::from_millis(100),
            burst: Duration::from_millis(burst),
        };
        Cpu { max, ..Cpu::default() }
    }

    #[test]
    fn what_was_used_too_much_is_paid_off() {
        let mut cpu = limited(20, 0);
        let t = Ktime::from_nanos(1_000_000_000);
        let at = |ms| t.plus(Duration::from_millis(ms));
        // Two processors use 20 ms in 10 ms.
        assert_eq!(cpu.look(t, 0, 2), Some(at(10)));
        assert_eq!(cpu.look(at(5), 5 * MS, 2), Some(t.plus(Duration::from_micros(12_500))));
        assert!(!cpu.is_throttled());
        // The check comes late: two periods' worth more than there was.
        assert_eq!(cpu.look(at(60), 65 * MS, 2), Some(at(100)));
        assert!(cpu.is_throttled());
        for (ms, throttled) in [(100, true), (200, true), (300, false)] {
            cpu.look(at(ms), 65 * MS, 2);
            assert_eq!(cpu.is_throttled(), throttled, "after {ms} ms");
        }
        assert_eq!((cpu.stat.periods, cpu.stat.throttled), (3, 3));
        assert_eq!(cpu.stat.throttled_time, Duration::from_millis(240));
        // Nothing is saved up beyond the quota.
        cpu.look(at(5_000), 65 * MS, 2);
        cpu.look(at(5_001), 85 * MS, 2);
        assert!(cpu.is_throttled());
    }

    #[test]
    fn periods_may_be_shorter_than_looks() {
        let mut cpu = limited(20, 0);
        (cpu.max.quota, cpu.max.period) = (Some(SHORTEST), SHORTEST);
        let t = Ktime::from_nanos(1_000_000_000);
        let at = |us| t.plus(Duration::from_micros(us));
        assert_eq!(cpu.look(t, 0, 2), Some(t.plus(SOONEST)));
        assert_eq!(cpu.look(at(2_500), 4_500_000, 2), Some(at(3_000)));
        assert!(cpu.is_throttled());
        cpu.look(at(10_000), 4_500_000, 64);
        assert!(!cpu.is_throttled());
        // The longest of everything.
        (cpu.max.quota, cpu.max.period, cpu.max.burst) = (Some(MOST / 2), LONGEST, MOST / 2);
        let now = t.plus(Duration::from_secs(1 << 32));
        assert!(cpu.look(now, u64::MAX, 1).is_some());
        assert!(cpu.look(now.plus(Duration::from_secs(1 << 32)), u64::MAX, u32::MAX).is_some());
    }

    #[test]
    fn a_burst_saves_what_was_not_used() {
        let mut cpu = limited(20, 10);
        let t = Ktime::from_nanos(1_000_000_000);
        let at = |ms| t.plus(Duration::from_millis(ms));
        cpu.look(t, 0, 1);
        cpu.look(at(300), 0, 1);
        assert_eq!(cpu.look(at(329), 29 * MS, 1), Some(at(331)));
        assert!(!cpu.is_throttled());
        cpu.look(at(331), 31 * MS, 1);
        assert!(cpu.is_throttled());
        cpu.look(at(400), 31 * MS, 1);
        assert_eq!((cpu.stat.bursts, cpu.stat.burst_time), (1, Duration::from_millis(10)));
    }

    #[test]
    fn without_a_quota_nothing_is_throttled() {
        let mut cpu = limited(20, 0);
        let t = Ktime::from_nanos(1_000_000_000);
        cpu.look(t, 0, 1);
        cpu.look(t.plus(Duration::from_millis(30)), 30 * MS, 1);
        assert!(cpu.is_throttled());
        cpu.max.quota = None;
        assert_eq!(cpu.look(t.plus(Duration::from_millis(40)), 30 * MS, 1), None);
        assert!(!cpu.is_throttled() && cpu.stat.throttled_time == Duration::from_millis(10));
    }

    #[test]
    fn settings_are_checked() {
        let root = Cgroup::topmost(ktime::Clock::default()).of_container();
        let ms = Duration::from_millis;
        let max = |quota: Option<u64>, period, burst| CpuMax {
            quota: quota.map(ms),
            period: ms(period),
            burst: ms(burst),
        };
        for (max, fits) in [
            (max(Some(1), 1, 0), true),
            (max(None, 1000, 0), true),
            (max(Some(20), 100, 20), true),
            (max(Some(0), 100, 0), false),
            (max(Some(20), 0, 0), false),
            (max(None, 1001, 0), false),
            (max(Some(20), 100, 21), false),
        ] {
            assert_eq!(root.set_cpu_max(max).is_ok(), fits, "{max:?}");
        }
        assert_eq!(
            (root.set_cpu_weight(0), root.set_cpu_weight(10_001)),
            (Err(Errno::ERANGE), Err(Errno::ERANGE))
        );
        for nice in -20..20 {
            root.set_cpu_nice(nice).unwrap();
            assert_eq!(root.cpu_nice(), nice);
        }
        root.set_cpu_idle(true);
        assert_eq!((root.cpu_weight(), root.set_cpu_weight(5)), (0, Err(Errno::EINVAL)));
        root.set_cpu_idle(false);
        assert_eq!(root.cpu_weight(), 100);
    }

    #[test]
    fn groups_below_stand_still_with_those_around() {
        let top = Cgroup::topmost(ktime::Clock::default());
        let root = top.of_container();
        root.set_subtree_control(Controllers::CPU, Controllers::empty()).unwrap();
        let a = root.mkdir(b"a", (0, 0), 0o755).unwrap();
        let b = a.mkdir(b"b", (0, 0), 0o755).unwrap();
        a.set_cpu_max(CpuMax { quota: Some(Duration::from_millis(10)), ..CpuMax::default() }).unwrap();
        let t = Ktime::from_nanos(1_000_000_000);
        let used = |ns: u64| move |id: u64| if id == b.id() { ns } else { 0 };
        assert!(top.look_at_cpu(t, used.clone()(0), 1).next.is_some());
        let look = top.look_at_cpu(t.plus(Duration::from_millis(20)), used.clone()(20 * MS), 1);
        assert!(look.any && a.is_throttled() && !root.is_throttled());
        let look = top.look_at_cpu(t.plus(Duration::from_millis(300)), used(20 * MS), 1);
        assert!(!look.any && look.released && !a.is_throttled());
    }
}
