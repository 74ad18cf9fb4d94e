//! Processes: fork, clone, exec, credentials, limits.

use super::{Entry, schemas, written};
use crate::arg::Ptr;
use task::Current;
use task::trace_points::texts;
use trace_wire::messages::syscall::{Prlimit, StructRlimit};
use trace_wire::points::OptionalFields;

/// The strings of argv or envp; those after one that cannot be read are left out.
fn strings(e: &Entry<'_>, i: usize) -> Vec<String> {
    texts(crate::processes::exec::read_strings(e.c, Ptr(e.arg(i))).unwrap_or_default())
}

/// The environment, if it is asked for.
fn environment(e: &Entry<'_>, i: usize) -> Vec<String> {
    if e.optional.contains(OptionalFields::ENVV) { strings(e, i) } else { Vec::new() }
}

fn limit(c: &Current, at: u64) -> Option<StructRlimit> {
    let [cur, max] = c.read_value::<[u64; 2]>(at).ok().filter(|_| at != 0)?;
    let mut limit = StructRlimit::new();
    (limit.cur, limit.max) = (cur, max);
    Some(limit)
}

fn old_limit(c: &mut Current, args: &[u64; 6], _result: u64, m: &mut Prlimit) {
    written(c);
    m.old_limit = limit(c, args[3]).into();
}

schemas! {
    /// execve(2).
    EXECVE: Execve MESSAGE_SYSCALL_EXECVE [ENVV]
        |e| { fd: libc::AT_FDCWD.into(), pathname: e.path(0), argv: strings(e, 1), envv: environment(e, 2) };
    /// execveat(2).
    EXECVEAT: Execve MESSAGE_SYSCALL_EXECVE [FD_PATH ENVV] |e| {
        fd: e.fd(0), fd_path: e.dir_path(0), pathname: e.path(1), argv: strings(e, 2), envv: environment(e, 3),
        flags: e.arg(4) as u32
    };
    /// clone(2).
    CLONE: Clone MESSAGE_SYSCALL_CLONE []
        |e| { flags: e.arg(0), stack: e.arg(1), new_tid: e.arg(2), tls: e.arg(4) };
    /// fork(2), vfork(2).
    FORK: Fork MESSAGE_SYSCALL_FORK [] |_e| {};
    /// setuid(2), setgid(2).
    SETID: Setid MESSAGE_SYSCALL_SETID [] |e| { id: e.arg(0) as u32 };
    /// setsid(2), which takes no argument.
    SETSID: Setid MESSAGE_SYSCALL_SETID [] |_e| {};
    /// setresuid(2), setresgid(2).
    SETRESID: Setresid MESSAGE_SYSCALL_SETRESID []
        |e| { rid: e.arg(0) as u32, eid: e.arg(1) as u32, sid: e.arg(2) as u32 };
    /// prlimit64(2). The old limit is known at the return.
    PRLIMIT64: Prlimit MESSAGE_SYSCALL_PRLIMIT64 []
        |e| { pid: e.int(0), resource: e.int(1).into(), new_limit: limit(e.c, e.arg(2)).into() } => old_limit;
    /// ptrace(2).
    PTRACE: Ptrace MESSAGE_SYSCALL_PTRACE [] |e| { request: e.arg(0) as i64, pid: e.int(1) };
}
