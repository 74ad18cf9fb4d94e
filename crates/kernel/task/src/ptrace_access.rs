//! The right of a process to look into another; see ptrace(2), "Ptrace access mode checking".

use crate::task::Task;
use mm::Mm;
use rights::{Cap, Credentials};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use user_ns::UserNamespace;

/// The IDs of the caller that count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// PTRACE_MODE_FSCREDS: files of /proc.
    Fs,
    /// PTRACE_MODE_REALCREDS: system calls.
    Real,
}

/// Whether a thread of the process `tgid` with these credentials may look into `t`.
pub fn may_access(me: &Credentials, tgid: i32, t: &Task, mode: Mode) -> bool {
    mm_access(me, tgid, t, mode).is_some()
}

/// The memory of `t` for a thread that may look into it (mm_access). It is the memory that was judged, even if `t`
/// executes a program meanwhile.
pub fn mm_access(me: &Credentials, tgid: i32, t: &Task, mode: Mode) -> Option<Arc<Mm>> {
    loop {
        let mm = t.mm();
        let allowed = tgid == t.tgid() || judge(me, t, &mm, mode);
        // execve(2) changes the memory first, then the credentials: these were the memory's.
        if Arc::ptr_eq(&mm, &t.mm()) {
            return Some(mm).filter(|_| allowed);
        }
    }
}

fn judge(me: &Credentials, t: &Task, mm: &Mm, mode: Mode) -> bool {
    let other = t.creds();
    if me.landlock.as_ref().is_some_and(|d| !d.contains(other.landlock.as_deref())) {
        return false;
    }
    let capable = |ns: &UserNamespace| me.ns_capable(ns, Cap::SYS_PTRACE);
    let (uid, gid, caps) = match mode {
        Mode::Fs => (me.fsuid, me.fsgid, me.effective),
        Mode::Real => (me.uid, me.gid, me.permitted),
    };
    let same = [other.uid, other.euid, other.suid].iter().all(|&u| u == uid)
        && [other.gid, other.egid, other.sgid].iter().all(|&g| g == gid);
    let dumpable = || mm.dumpable.load(Ordering::SeqCst) == 1 || capable(&mm.user_ns);
    let no_more = || me.user_ns == other.user_ns && other.permitted & !caps == 0;
    let powerful = capable(&other.user_ns);
    (same || powerful) && dumpable() && (no_more() || powerful)
}

/// Whether `parent` may trace its child `me`, which asks for that with PTRACE_TRACEME (security_ptrace_traceme).
pub(crate) fn may_be_traced_by(me: &Credentials, parent: &Credentials) -> bool {
    if parent.landlock.as_ref().is_some_and(|d| !d.contains(me.landlock.as_deref())) {
        return false;
    }
    let no_more = me.user_ns == parent.user_ns && me.permitted & !parent.permitted == 0;
    no_more || parent.ns_capable(&me.user_ns, Cap::SYS_PTRACE)
}
