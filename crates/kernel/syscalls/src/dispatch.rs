//! From a trapped system call to its handler and back.

use crate::points::Watched;
use crate::table::{MAX_NR, Row};
use abi::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use task::{Current, SysErr, SysResult, SystemCalls};
use trace::call;
use trace_wire::points::{Call, Points};

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
    /// Unimplemented ones, counted by number; the last one has those beyond the table.
    missing: Vec<(AtomicU64, AtomicBool)>,
}

/// The trace points that there are.
pub fn trace_points() -> Points {
    Points::new(all_rows().map(|row| Call {
        nr: row.nr,
        name: row.name,
        schema: row.points.map(|schema| (schema.message, schema.optional)),
    }))
}

/// The numbers of system calls by name. `Err` with a name that is no call.
pub fn numbers(names: &[String]) -> Result<Vec<u32>, String> {
    let number =
        |name: &String| all_rows().find(|row| row.name == name).map(|row| row.nr).ok_or_else(|| name.clone());
    names.iter().map(number).collect()
}

/// The row of a system call number.
pub fn row(nr: u64) -> Option<&'static Row> {
    TABLE.get(nr as usize).copied().flatten()
}

impl Calls {
    /// None made yet.
    pub fn new() -> Arc<Calls> {
        let missing = (0..=MAX_NR).map(|_| Default::default()).collect();
        Arc::new(Calls { missing })
    }

    /// A call that trace sessions, a policy or strace look at. `watch`: bits of [`call`].
    #[cold]
    fn watched_call(&self, c: &mut Current, nr: u64, args: [u64; 6], watch: u8) -> SysResult {
        let schema = row(nr).and_then(|row| row.points);
        let watched = (watch & call::TRACED != 0).then(|| Watched::enter(c, nr, schema, args, watch));
        let refused = if watch & call::POLICED != 0 { c.police_call(nr, &args).err() } else { None };
        let result = match refused {
            Some(errno) => Err(errno.into()),
            None => self.call(c, nr, args, watch & call::LOGGED != 0),
        };
        if let Some(watched) = watched {
            watched.exit(c, &result);
        }
        if watch & call::POLICED != 0 {
            c.task.serve_sentence();
        }
        result
    }

    fn call(&self, c: &mut Current, nr: u64, args: [u64; 6], strace: bool) -> SysResult {
        match row(nr) {
            Some(row) => {
                let result = if strace { logged(c, row, args) } else { (row.call)(c, args) };
                if !row.parts.is_empty() {
                    crate::parts::note(c, (row.nr, row.name, row.parts), &args, &result);
                }
                result
            }
            None => self.unimplemented(c, nr, args, strace),
        }
    }

    fn unimplemented(&self, c: &Current, nr: u64, args: [u64; 6], strace: bool) -> SysResult {
        if let Some((count, seen)) = self.missing.get((nr as usize).min(MAX_NR)) {
            count.fetch_add(1, Ordering::Relaxed);
            if !seen.swap(true, Ordering::Relaxed) {
                log::debug!("[{}] system call {nr} is not implemented", c.task.tid());
            }
        }
        if strace {
            log::info!(target: "strace", "[{}] syscall_{nr}({args:#x?}) = -1 ENOSYS", c.task.tid());
        }
        Err(SysErr::Errno(Errno::ENOSYS))
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

    fn perform(&self, c: &mut Current) {
        let (nr, args) = c.ctx.call();
        c.task.in_syscall.store((nr as u32).wrapping_add(1), Ordering::Relaxed);
        let n = c.task.counts.call();
        c.task.last_calls.begin(n, nr, &args);
        let watch = c.kernel().trace.of_call(nr);
        let strace = watch & call::LOGGED != 0;
        if let Err(r) = c.seccomp_check(nr) {
            if strace {
                log::info!(target: "strace", "[{}] call {nr} stopped by seccomp: {r:?}", c.task.tid());
            }
            note_end(c, n, &r);
            c.set_result(r);
            c.task.in_syscall.store(0, Ordering::Relaxed);
            return;
        }
        // A tracer may have changed it.
        let (nr, args) = if c.task.trace.is_traced() { c.ctx.call() } else { (nr, args) };
        let result = match watch {
            0 => self.call(c, nr, args, false),
            _ => self.watched_call(c, nr, args, watch),
        };
        note_end(c, n, &result);
        c.set_result(result);
        c.task.in_syscall.store(0, Ordering::Relaxed);
    }

    fn missing(&self) -> Vec<(Option<usize>, u64)> {
        let counts = self.missing.iter().map(|m| m.0.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, n)| *n > 0).map(|(nr, n)| ((nr < MAX_NR).then_some(nr), n)).collect()
    }

    fn dump_core(&self, c: &mut Current, info: &abi::SigInfo) -> bool {
        crate::processes::coredump::dump(c, info)
    }
}

/// For the report of a crash. An interrupted call has no result yet.
#[inline]
fn note_end(c: &Current, n: u64, result: &SysResult) {
    match result {
        Ok(value) => c.task.last_calls.end(n, *value),
        Err(SysErr::Errno(errno)) => c.task.last_calls.end(n, errno.to_ret()),
        Err(_) => {}
    }
}

fn logged(c: &mut Current, row: &Row, args: [u64; 6]) -> SysResult {
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
    use crate::parts::{PARTS, Part};
    use crate::table::Support;

    #[test]
    fn calls_have_numbers() {
        assert_eq!(numbers(&["read".into(), "write".into()]), Ok(vec![0, 1]));
        assert_eq!(numbers(&["read".into(), "nosuch".into()]), Err("nosuch".into()));
    }

    #[test]
    fn parts_are_of_calls_that_are_there_in_part() {
        for (nr, parts) in PARTS {
            let row = row(*nr as u64).unwrap();
            assert!(matches!(row.support, Support::Partial(_)), "{}", row.name);
            for part in *parts {
                if let Part::Bits(i, _) | Part::Values(i, _) | Part::Refused(i, _) = part {
                    assert!(*i < row.arguments, "{}", row.name);
                }
            }
        }
        let absent: Vec<_> =
            all_rows().filter(|row| matches!(row.support, Support::Absent(_))).map(|row| row.parts).collect();
        assert!(!absent.is_empty() && absent.iter().all(|parts| matches!(parts, [Part::Whole])));
        assert!(row(libc::SYS_read as u64).unwrap().parts.is_empty());
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
