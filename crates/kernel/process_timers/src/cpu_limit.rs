//! RLIMIT_CPU of a process. See setrlimit(2). A checkpoint keeps nothing: the limit is watched again after a restore.

use crate::process::Process;
use crate::sample::sampled;
use abi::{SigInfo, Signal};
use caller::timer::TimerHandle;
use std::sync::Arc;

/// Watches RLIMIT_CPU of a process: SIGXCPU at the soft limit and every second after it, SIGKILL at the hard one.
pub fn watch_cpu_limit(g: &Arc<impl Process>) {
    let next = cpu_limit(&**g).map(|limits| check_cpu_limit(g, limits));
    let old = std::mem::replace(&mut *g.cpu_limit_timer().0.lock(), next);
    drop(old);
}

/// Soft and hard limit, if there is any.
fn cpu_limit(g: &impl Process) -> Option<(u64, u64)> {
    let (soft, hard) = g.rlimits().lock().get(libc::RLIMIT_CPU as i32)?;
    (soft != u64::MAX || hard != u64::MAX).then_some((soft, hard))
}

fn check_cpu_limit(g: &Arc<impl Process>, (mut soft, hard): (u64, u64)) -> TimerHandle {
    const SECOND: u64 = 1_000_000_000;
    let (u, s) = g.cpu_times();
    let used = u + s;
    if used / SECOND >= hard {
        g.send(SigInfo::new(Signal::SIGKILL, libc::SI_KERNEL));
    } else if used / SECOND >= soft {
        g.send(SigInfo::new(Signal::SIGXCPU, libc::SI_KERNEL));
        // As Linux does, in the limit itself; unless it has been changed meanwhile.
        let mut limits = g.rlimits().lock();
        if let Some((now, hard)) = limits.get(libc::RLIMIT_CPU as i32)
            && now == soft
        {
            limits.set(libc::RLIMIT_CPU as i32, (soft + 1, hard));
        }
        soft += 1;
    }
    let left = soft.min(hard).saturating_mul(SECOND).saturating_sub(used);
    let weak = Arc::downgrade(g);
    let timers = g.timer_service();
    timers.schedule_after(sampled(timers, left), move || {
        let Some(g) = weak.upgrade() else { return };
        if g.is_over() {
            return;
        }
        let next = cpu_limit(&*g).map(|limits| check_cpu_limit(&g, limits));
        drop(std::mem::replace(&mut *g.cpu_limit_timer().0.lock(), next));
    })
}
