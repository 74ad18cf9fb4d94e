//! From a trapped system call to its handler and back.

use crate::table::{MAX_NR, Row};
use abi::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use task::{Current, SysErr, SysResult, SystemCalls};

/// Every system call that is implemented.
pub fn all_rows() -> impl Iterator<Item = &'static Row> {
    [crate::families::ROWS, crate::families_fs::ROWS, crate::families_ipc::ROWS].into_iter().flatten()
}

static TABLE: LazyLock<Box<[Option<&'static Row>]>> = LazyLock::new(|| {
    let mut t = vec![None; MAX_NR];
    for r in all_rows() {
        t[r.nr as usize] = Some(r);
    }
    t.into()
});

/// The system calls of a kernel.
pub struct Calls {
    /// Unimplemented ones, counted by number.
    missing: Vec<(AtomicU64, AtomicBool)>,
    /// The only ones that strace shows, by number, if it does not show all.
    traced: OnceLock<Box<[bool]>>,
}

/// The row of a system call number.
pub fn row(nr: u64) -> Option<&'static Row> {
    TABLE.get(nr as usize).copied().flatten()
}

impl Calls {
    /// None made yet.
    pub fn new() -> Arc<Calls> {
        let missing = (0..MAX_NR).map(|_| Default::default()).collect();
        Arc::new(Calls { missing, traced: OnceLock::new() })
    }

    /// Has strace show only the calls of these names, or all for none. `Err` with one that is no call. To be called once.
    pub fn trace_only(&self, names: &[String]) -> Result<(), String> {
        if names.is_empty() {
            return Ok(());
        }
        let mut shown = vec![false; MAX_NR];
        for name in names {
            let row = all_rows().find(|row| row.name == name).ok_or_else(|| name.clone())?;
            shown[row.nr as usize] = true;
        }
        self.traced.get_or_init(|| shown.into());
        Ok(())
    }

    fn is_traced(&self, nr: u64) -> bool {
        self.traced.get().is_none_or(|shown| shown.get(nr as usize).copied().unwrap_or(false))
    }

    /// How often each unimplemented call was made.
    pub fn missing(&self) -> Vec<(usize, u64)> {
        let counts = self.missing.iter().map(|m| m.0.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, n)| *n > 0).collect()
    }

    fn unimplemented(&self, c: &mut Current, nr: u64, args: [u64; 6], strace: bool) {
        if let Some((count, seen)) = self.missing.get(nr as usize) {
            count.fetch_add(1, Ordering::Relaxed);
            if !seen.swap(true, Ordering::Relaxed) {
                log::debug!("[{}] system call {nr} is not implemented", c.task.tid());
            }
        }
        if strace {
            log::info!(target: "strace", "[{}] syscall_{nr}({args:#x?}) = -1 ENOSYS", c.task.tid());
        }
        c.set_result(Err(SysErr::Errno(Errno::ENOSYS)));
    }
}

impl SystemCalls for Calls {
    fn dispatch(&self, c: &mut Current) {
        if c.task.trace.is_traced() {
            if c.trace_entry() {
                self.perform(c);
            }
            c.trace_exit();
        } else {
            self.perform(c);
        }
    }

    fn dump_core(&self, c: &mut Current, info: &abi::SigInfo) -> bool {
        crate::processes::coredump::dump(c, info)
    }
}

impl Calls {
    fn perform(&self, c: &mut Current) {
        let (nr, args) = c.ctx.call();
        c.task.in_syscall.store((nr as u32).wrapping_add(1), Ordering::Relaxed);
        let strace = c.kernel().strace.load(Ordering::Relaxed) && self.is_traced(nr);
        if let Err(r) = c.seccomp_check(nr) {
            if strace {
                log::info!(target: "strace", "[{}] call {nr} stopped by seccomp: {r:?}", c.task.tid());
            }
            c.set_result(r);
            c.task.in_syscall.store(0, Ordering::Relaxed);
            return;
        }
        // A tracer may have changed it.
        let (nr, args) = if c.task.trace.is_traced() { c.ctx.call() } else { (nr, args) };
        let Some(row) = row(nr) else {
            self.unimplemented(c, nr, args, strace);
            c.task.in_syscall.store(0, Ordering::Relaxed);
            return;
        };
        let result = if strace { traced(c, row, args) } else { (row.call)(c, args) };
        c.set_result(result);
        c.task.in_syscall.store(0, Ordering::Relaxed);
    }
}

fn traced(c: &mut Current, row: &Row, args: [u64; 6]) -> SysResult {
    let task = Arc::clone(&c.task);
    let shown = (row.show)(c, args);
    log::info!(target: "strace", "[{}] {}({}) ...", task.tid(), row.name, shown);
    let start = std::time::Instant::now();
    let r = (row.call)(c, args);
    let us = start.elapsed().as_micros();
    let tid = task.tid();
    match r {
        Ok(v) => log::info!(target: "strace", "[{tid}] {}({shown}) = {:#x} ({us}us)", row.name, v),
        Err(SysErr::Errno(e)) => {
            log::info!(target: "strace", "[{tid}] {}({shown}) = -1 {e} ({us}us)", row.name)
        }
        Err(e) => log::info!(target: "strace", "[{tid}] {}({shown}) = ? {e:?} ({us}us)", row.name),
    }
    r
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_calls_are_traced() {
        let calls = Calls::new();
        assert!(calls.is_traced(libc_number("read")) && calls.trace_only(&[]).is_ok());
        assert_eq!(calls.trace_only(&["read".into(), "nosuch".into()]), Err("nosuch".into()));
        calls.trace_only(&["read".into()]).unwrap();
        assert!(calls.is_traced(libc_number("read")) && !calls.is_traced(libc_number("write")));
        assert!(!calls.is_traced(u64::MAX));
    }

    fn libc_number(name: &str) -> u64 {
        all_rows().find(|row| row.name == name).unwrap().nr.into()
    }

    #[test]
    fn numbers_are_unique() {
        let mut seen = std::collections::HashMap::new();
        for r in all_rows() {
            assert!((r.nr as usize) < MAX_NR, "{} is beyond the table", r.name);
            if let Some(old) = seen.insert(r.nr, r.name) {
                panic!("{} and {old} share number {}", r.name, r.nr);
            }
        }
    }
}
