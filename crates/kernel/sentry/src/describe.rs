//! What reports say of the sandbox: that of a crash its threads, where the thread that has died may hold any lock, and that of
//! `debug --coverage` what was refused.

use spec::Refusal;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use task::{Kernel, Task};

/// Most threads that are listed.
const MOST: usize = 1000;

/// System calls without a handler, and all else that was noted.
pub(crate) fn refusals(kernel: &Kernel) -> Vec<Refusal> {
    let name = |nr: usize| seccomp::name(nr as u32).unwrap_or("no call of Linux");
    let missing = kernel.calls.missing().into_iter().map(|(nr, count)| Refusal {
        kind: "system calls".into(),
        what: nr.map_or_else(|| "no call of Linux".into(), |nr| format!("{} ({nr})", name(nr))),
        count,
    });
    let (noted, others) = kernel.coverage.list();
    let noted =
        noted.into_iter().map(|(asked, what, count)| Refusal { kind: asked.name().into(), what, count });
    let others = Refusal { kind: "others".into(), what: "not listed".into(), count: others };
    missing.chain(noted).chain((others.count > 0).then_some(others)).collect()
}

/// A line for each thread: its numbers, the thread of the sentry that serves it, its name and the system call that it is in.
pub(crate) fn threads(kernel: &Kernel) -> String {
    let Some(tree) = kernel.tree.try_lock() else {
        return "\nthreads: the lock of the table of processes was held\n".into();
    };
    let mut text = format!("\nthreads: {}\n  thread process served-by name call\n", tree.tasks().len());
    for task in tree.tasks().take(MOST) {
        let _ = writeln!(text, "{}", line(task));
    }
    text
}

fn line(task: &Task) -> String {
    let name = task.comm();
    let name: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
    let name = String::from_utf8_lossy(&name).escape_debug().to_string();
    let call = match task.in_syscall.load(Ordering::Relaxed) {
        0 => "none".into(),
        call => {
            let nr = u64::from(call - 1);
            syscalls::row(nr).map_or_else(|| format!("call {nr}"), |row| row.name.into())
        }
    };
    let host = task.host_tid.load(Ordering::Relaxed);
    format!("  {:6} {:7} {host:9} {name} {call}", task.tid(), task.tgid())
}
