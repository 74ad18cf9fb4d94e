//! What reports say of the sandbox: that of a crash its threads, where the thread that has died may hold any lock, and that of
//! `debug --coverage` what was refused.

use abi::Errno;
use spec::Refusal;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use task::{Kernel, LastCall, Task};

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

/// For each thread its numbers, the thread of the sentry that serves it, its name, and its last system calls.
pub(crate) fn threads(kernel: &Kernel) -> String {
    let Some(tree) = kernel.tree.try_lock() else {
        return "\nthreads: the lock of the table of processes was held\n".into();
    };
    let mut text = format!(
        "\nthreads: {}, each with its last system calls, the last one first\n  thread process served-by name\n",
        tree.tasks().len()
    );
    for task in tree.tasks().take(MOST) {
        thread(&mut text, task);
    }
    text
}

fn thread(text: &mut String, task: &Task) {
    let name = task.comm();
    let name: Vec<u8> = name.iter().copied().take_while(|byte| *byte != 0).collect();
    let name = String::from_utf8_lossy(&name).escape_debug().to_string();
    let host = task.host_tid.load(Ordering::Relaxed);
    let _ = writeln!(text, "  {:6} {:7} {host:9} {name}", task.tid(), task.tgid());
    let mut is_in_call = task.in_syscall.load(Ordering::Relaxed) != 0;
    for call in task.last_calls.list(task.counts.calls()) {
        let _ = writeln!(text, "      {}", shown(&call, std::mem::take(&mut is_in_call)));
    }
}

/// A call as strace shows one, with numbers only: the report holds no memory of programs.
fn shown(call: &LastCall, runs: bool) -> String {
    let row = syscalls::row(call.nr);
    let name = row.map_or_else(|| format!("call_{}", call.nr), |row| row.name.into());
    let count = row.map_or(call.args.len(), |row| row.arguments);
    let args: Vec<String> = call.args.iter().take(count).map(|arg| format!("{arg:#x}")).collect();
    let result = match call.result {
        _ if runs => "not finished".into(),
        None => "interrupted, or without a result".into(),
        Some(error @ -4095..=-1) => format!("-1 {}", Errno::from_raw(-error as i32)),
        Some(value) => format!("{value:#x}"),
    };
    format!("{name}({}) = {result}", args.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shown_with_as_many_arguments_as_they_take() {
        let call = |nr: i64, result| LastCall { nr: nr as u64, args: [3, 0x7f00, 16, 9, 9, 9], result };
        assert_eq!(shown(&call(libc::SYS_read, Some(16)), false), "read(0x3, 0x7f00, 0x10) = 0x10");
        assert_eq!(shown(&call(libc::SYS_close, Some(-9)), false), "close(0x3) = -1 EBADF");
        assert_eq!(shown(&call(libc::SYS_getpid, None), true), "getpid() = not finished");
        let unknown = shown(&call(999, None), false);
        assert_eq!(unknown, "call_999(0x3, 0x7f00, 0x10, 0x9, 0x9, 0x9) = interrupted, or without a result");
    }
}
