//! rt_sigaction(2), rt_sigprocmask(2), kill(2) and relatives.

use crate::arg::{Fd, Ptr};
use abi::{Errno, SigInfo, SigSet, Signal};
use caller::{HasCredentials, Identity};
use policy::Kind;
use rights::Cap;
use signal::{AltStack, SIG_DFL, SIG_IGN, SS_AUTODISARM, SigAction, StackT};
use std::sync::Arc;
use std::time::Instant;
use task::policing::Subject;
use task::{Current, Holder, Node, Restart, SysErr, SysResult, Task, ThreadGroup};

const SIGSET_SIZE: u64 = 8;
/// SA_NOCLDSTOP, NOCLDWAIT, SIGINFO, EXPOSE_TAGBITS, RESTORER, ONSTACK, RESTART, NODEFER, RESETHAND.
const KNOWN_FLAGS: u64 = 0xdc00_0807;

pub fn rt_sigaction(c: &mut Current, sig: i32, act: Ptr, old: Ptr, size: u64) -> SysResult {
    if size != SIGSET_SIZE {
        return Err(Errno::EINVAL.into());
    }
    let new: Option<SigAction> = if act.is_null() { None } else { Some(c.read_value(act.0)?) };
    let sig = Signal::new(sig).ok_or(Errno::EINVAL)?;
    if new.is_some() && SigSet::UNBLOCKABLE.has(sig) {
        return Err(Errno::EINVAL.into());
    }
    let handlers = c.task.group.handlers();
    let before = handlers.lock().get(sig);
    if let Some(mut a) = new {
        a.mask = a.mask.minus(SigSet::UNBLOCKABLE);
        a.flags &= KNOWN_FLAGS;
        handlers.lock().set(sig, a);
        let ignored = a.handler == SIG_IGN || a.handler == SIG_DFL && handlers.lock().ignores(sig);
        if ignored {
            c.task.group.discard_signals(SigSet::of(sig));
        } else {
            c.task.group.timers.posix.unignore(sig);
        }
    }
    if !old.is_null() {
        c.write_value(old.0, &before)?;
    }
    Ok(0)
}

pub fn rt_sigprocmask(c: &mut Current, how: i32, set: Ptr, old: Ptr, size: u64) -> SysResult {
    if size != SIGSET_SIZE {
        return Err(Errno::EINVAL.into());
    }
    let before = c.task.blocked();
    if !set.is_null() {
        let s: SigSet = c.read_value(set.0)?;
        let new = match how {
            libc::SIG_BLOCK => before.union(s),
            libc::SIG_UNBLOCK => before.minus(s),
            libc::SIG_SETMASK => s,
            _ => return Err(Errno::EINVAL.into()),
        };
        c.task.set_blocked(new);
    }
    if !old.is_null() {
        c.write_value(old.0, &before)?;
    }
    Ok(0)
}

pub fn rt_sigreturn(c: &mut Current) -> SysResult {
    if c.sigreturn().is_err() {
        c.force_signal(Signal::SIGSEGV, libc::SI_KERNEL);
    }
    Err(SysErr::NoReturn)
}

pub fn rt_sigpending(c: &mut Current, set: Ptr, size: u64) -> SysResult {
    if size > SIGSET_SIZE {
        return Err(Errno::EINVAL.into());
    }
    let blocked = c.task.blocked();
    let shared = c.task.group.signals.lock().shared.set();
    let pending = c.task.pending.lock().set().union(shared).intersect(blocked);
    let bytes = pending.0.to_le_bytes();
    c.write_bytes(set.0, &bytes[..size as usize])?;
    Ok(0)
}

pub fn pause(c: &mut Current) -> SysResult {
    wait_for_signal(c)
}

fn wait_for_signal(c: &mut Current) -> SysResult {
    loop {
        if c.sleep(None).is_err() {
            return Err(SysErr::Restart(Restart::NoHand));
        }
    }
}

pub fn rt_sigsuspend(c: &mut Current, mask: Ptr, size: u64) -> SysResult {
    let m = c.read_sigset(mask.0, size)?;
    c.set_temporary_mask(m);
    wait_for_signal(c)
}

pub fn rt_sigtimedwait(c: &mut Current, set: Ptr, info: Ptr, timeout: Ptr, size: u64) -> SysResult {
    let set = c.read_sigset(set.0, size)?;
    let deadline = match timeout.is_null() {
        true => None,
        false => {
            let t: abi::time::Timespec = c.read_value(timeout.0)?;
            Some(c.deadline_before().unwrap_or(ipc::clock::after(Instant::now(), t.to_duration()?)))
        }
    };
    let got = c.wait_signal(set, deadline)?;
    if !info.is_null() {
        c.write_value(info.0, &got)?;
    }
    Ok(got.signo as u64)
}

pub fn sigaltstack(c: &mut Current, new: Ptr, old: Ptr) -> SysResult {
    let sp = c.ctx.regs().rsp;
    let before = c.altstack.report(sp);
    if !new.is_null() {
        let s: StackT = c.read_value(new.0)?;
        if c.altstack.holds(sp) {
            return Err(Errno::EPERM.into());
        }
        let mode = s.flags & !SS_AUTODISARM;
        if !matches!(mode, 0 | libc::SS_ONSTACK | libc::SS_DISABLE) {
            return Err(Errno::EINVAL.into());
        }
        c.altstack = if mode == libc::SS_DISABLE {
            AltStack::default()
        } else {
            let least = hostsys::clock::auxval(libc::AT_MINSIGSTKSZ).max(2048);
            if s.size < least.min(2048) {
                return Err(Errno::ENOMEM.into());
            }
            AltStack { sp: s.sp, flags: s.flags & SS_AUTODISARM, size: s.size }
        };
    }
    if !old.is_null() {
        c.write_value(old.0, &before)?;
    }
    Ok(0)
}

/// kill(2)'s permission rule.
fn may_signal(c: &Current, target: &Holder, sig: i32) -> bool {
    let (me, them) = (c.creds(), &target.creds);
    if let Some(domain) = &me.landlock
        && domain.check_scope(landlock::scope::SIGNAL, them.landlock.as_deref()).is_err()
    {
        return false;
    }
    if me.euid == them.suid || me.euid == them.uid || me.uid == them.suid || me.uid == them.uid {
        return true;
    }
    if sig == libc::SIGCONT && same_session(c, target) {
        return true;
    }
    me.ns_capable(&them.user_ns, Cap::KILL)
}

fn same_session(c: &Current, target: &Holder) -> bool {
    let t = c.kernel().tree.lock();
    let sid = |p| t.node(p).map(|n| n.sid());
    sid(c.task.tgid()) == sid(target.group.tgid)
}

/// Signals one process; 0 only checks.
fn signal_group(c: &Current, g: &Arc<ThreadGroup>, sig: i32, info: Option<SigInfo>) -> Result<(), Errno> {
    let Some(t) = g.any_thread() else { return Ok(()) };
    if t.tgid() != c.task.tgid() && !may_signal(c, &Holder::from(&t), sig) {
        return Err(Errno::EPERM);
    }
    match info {
        Some(i) => from_here(c, g, i).map_or(Ok(()), |i| g.send(i)),
        None => Ok(()),
    }
}

/// The signal as the receiver sees its sender: with the sender's number there, 0 from a namespace around. `None` for one that has no
/// effect, as it is from inside a namespace to its init.
fn from_here(c: &Current, g: &ThreadGroup, info: SigInfo) -> Option<SigInfo> {
    let number = c.task.group.pid_for(g);
    if number == 0 {
        return Some(info.with_sender(0, info.uid()));
    }
    // Whatever number of the sender's the caller made up.
    let immune = Signal::new(info.signo).is_some_and(|sig| g.is_immune(sig, task::Sender::Inside));
    if immune && info.pid() == 0 {
        return None;
    }
    let own = matches!(info.code, libc::SI_USER | libc::SI_TKILL);
    Some(if own { info.with_sender(number, info.uid()) } else { info })
}

/// The error of a policy that refuses to signal others.
pub(super) fn police(c: &Current) -> Result<(), Errno> {
    c.police(Kind::ProcessSignal, Subject::default)
}

fn user_info(c: &Current, sig: i32, code: i32) -> Result<Option<SigInfo>, Errno> {
    police(c)?;
    if sig == 0 {
        return Ok(None);
    }
    let s = Signal::new(sig).ok_or(Errno::EINVAL)?;
    Ok(Some(SigInfo::user(s, code, c.task.group.pid.own_nr(), c.creds().uid)))
}

pub fn kill(c: &mut Current, pid: i32, sig: i32) -> SysResult {
    let info = user_info(c, sig, libc::SI_USER)?;
    if pid > 0 {
        let g = c.find_group(pid);
        let g = match g {
            Some(g) => g,
            None => c.find_task(pid).map(|t| t.group.clone()).ok_or(Errno::ESRCH)?,
        };
        signal_group(c, &g, sig, info)?;
        return Ok(0);
    }
    if pid == i32::MIN {
        return Err(Errno::ESRCH.into());
    }
    let me = c.task.tgid();
    let pgid = if pid == 0 { c.pgid() } else { c.find_vpid(-pid) };
    let others = |id: i32| c.pid_vnr(id) > 1 && id != me;
    signal_members(c, sig, info, |n| if pid == -1 { others(n.group.tgid) } else { n.pgid() == pgid })?;
    Ok(0)
}

/// Signals every process that `which` picks: ESRCH when there is none, an error when none could be signalled.
fn signal_members(
    c: &Current,
    sig: i32,
    info: Option<SigInfo>,
    which: impl Fn(&Node) -> bool,
) -> Result<(), Errno> {
    let targets: Vec<Arc<ThreadGroup>> = {
        let t = c.kernel().tree.lock();
        t.nodes().filter(|n| which(n)).map(|n| n.group.clone()).collect()
    };
    if targets.is_empty() {
        return Err(Errno::ESRCH);
    }
    let mut result = Err(Errno::EPERM);
    for g in targets {
        match signal_group(c, &g, sig, info) {
            Ok(()) => result = Ok(()),
            Err(e) if result.is_err() => result = Err(e),
            Err(_) => {}
        }
    }
    result
}

/// Signals one thread; 0 only checks.
fn signal_thread(c: &Current, t: &Arc<Task>, sig: i32, info: Option<SigInfo>) -> Result<(), Errno> {
    if t.tgid() != c.task.tgid() && !may_signal(c, &Holder::from(t), sig) {
        return Err(Errno::EPERM);
    }
    match info {
        Some(i) => from_here(c, &t.group, i).map_or(Ok(()), |i| t.send(i)),
        None => Ok(()),
    }
}

fn send_thread(c: &Current, tgid: Option<i32>, tid: i32, sig: i32, info: Option<SigInfo>) -> SysResult {
    if tid <= 0 || tgid.is_some_and(|g| g <= 0) {
        return Err(Errno::EINVAL.into());
    }
    let h = c.holder(tid).ok_or(Errno::ESRCH)?;
    if tgid.is_some_and(|g| g != c.pid_vnr(h.group.tgid)) {
        return Err(Errno::ESRCH.into());
    }
    if h.group.tgid != c.task.tgid() && !may_signal(c, &h, sig) {
        return Err(Errno::EPERM.into());
    }
    // A thread group leader that has left takes signals and does nothing with them.
    if let (Some(i), Some(t)) = (info, c.find_task(tid)) {
        from_here(c, &t.group, i).map_or(Ok(()), |i| t.send(i))?;
    }
    Ok(0)
}

pub fn tkill(c: &mut Current, tid: i32, sig: i32) -> SysResult {
    let info = user_info(c, sig, libc::SI_TKILL)?;
    send_thread(c, None, tid, sig, info)
}

pub fn tgkill(c: &mut Current, tgid: i32, tid: i32, sig: i32) -> SysResult {
    let info = user_info(c, sig, libc::SI_TKILL)?;
    send_thread(c, Some(tgid), tid, sig, info)
}

/// A siginfo from user space: only codes that cannot be mistaken for the kernel's own.
fn given_info(c: &Current, target: i32, sig: i32, ptr: Ptr) -> Result<Option<SigInfo>, Errno> {
    police(c)?;
    let mut i: SigInfo = c.read_value(ptr.0)?;
    if (i.code >= 0 || i.code == libc::SI_TKILL) && target != c.task.group.pid.own_nr() {
        return Err(Errno::EPERM);
    }
    if sig == 0 {
        return Ok(None);
    }
    i.signo = Signal::new(sig).ok_or(Errno::EINVAL)?.raw();
    let sender = c.creds().user_ns.user(i.uid()).unwrap_or(u32::MAX);
    Ok(Some(if c.creds().user_ns.is_initial() { i } else { i.with_sender(i.pid(), sender) }))
}

pub fn rt_sigqueueinfo(c: &mut Current, pid: i32, sig: i32, info: Ptr) -> SysResult {
    let i = given_info(c, pid, sig, info)?;
    let by_thread = || c.find_task(pid).map(|t| t.group.clone());
    let g = c.find_group(pid).or_else(by_thread).ok_or(Errno::ESRCH)?;
    signal_group(c, &g, sig, i)?;
    Ok(0)
}

pub fn rt_tgsigqueueinfo(c: &mut Current, tgid: i32, tid: i32, sig: i32, info: Ptr) -> SysResult {
    let i = given_info(c, tgid, sig, info)?;
    send_thread(c, Some(tgid), tid, sig, i)
}

/// PIDFD_SIGNAL_THREAD, PIDFD_SIGNAL_THREAD_GROUP and PIDFD_SIGNAL_PROCESS_GROUP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Thread,
    Process,
    ProcessGroup,
}

/// The target of pidfd_send_signal(2), according to its flags; EINVAL for more than one.
fn pidfd_scope(flags: u32, of_thread: bool) -> Result<Scope, Errno> {
    match flags {
        0 if of_thread => Ok(Scope::Thread),
        0 | 2 => Ok(Scope::Process),
        1 => Ok(Scope::Thread),
        4 => Ok(Scope::ProcessGroup),
        _ => Err(Errno::EINVAL),
    }
}

/// What pidfd_send_signal(2) sends to.
struct PidfdTarget {
    group: Arc<ThreadGroup>,
    /// The thread that a descriptor with PIDFD_THREAD is for.
    thread: Option<Arc<Task>>,
    /// It is for a leader that has ended: what is sent to that one is lost.
    dead: bool,
}

impl PidfdTarget {
    fn new(group: Arc<ThreadGroup>, thread: Option<Arc<Task>>) -> PidfdTarget {
        PidfdTarget { group, thread, dead: false }
    }
}

/// The target of a pidfd. A directory of /proc will do, too.
fn pidfd_target(c: &Current, fd: Fd) -> Result<PidfdTarget, Errno> {
    const SELF_THREAD: i32 = -10_000;
    const SELF_GROUP: i32 = -10_001;
    match fd.0 {
        SELF_THREAD => return Ok(PidfdTarget::new(c.task.group.clone(), Some(c.task.clone()))),
        SELF_GROUP => return Ok(PidfdTarget::new(c.task.group.clone(), None)),
        _ => {}
    }
    let f = c.file(fd.0)?;
    if let Some(pid) = f.ops.as_directory().and_then(|d| d.process()) {
        let group = c.kernel().group(pid.nr()).filter(|g| Arc::ptr_eq(&g.pid, &pid));
        return group.map(|g| PidfdTarget::new(g, None)).ok_or(Errno::ESRCH);
    }
    let p = task::pidfd::of(&f)?;
    if p.is_dead_leader() {
        return Ok(PidfdTarget { group: p.group.clone(), thread: None, dead: true });
    }
    let (g, thread) = (p.group.clone(), p.thread().transpose()?);
    let alive = c.kernel().tree.lock().node(g.tgid).is_some_and(|n| Arc::ptr_eq(&n.group, &g));
    if alive { Ok(PidfdTarget::new(g, thread)) } else { Err(Errno::ESRCH) }
}

pub fn pidfd_send_signal(c: &mut Current, fd: Fd, sig: i32, info: Ptr, flags: u32) -> SysResult {
    pidfd_scope(flags, false)?;
    let PidfdTarget { group: g, thread, dead } = pidfd_target(c, fd)?;
    // A descriptor may come from outside the caller's PID namespace, by SO_PEERPIDFD or in a message.
    if g.pid.nr_in(c.task.pids()) == 0 {
        return Err(Errno::EINVAL.into());
    }
    let scope = pidfd_scope(flags, thread.is_some() || dead)?;
    let i = if info.is_null() {
        let code = if scope == Scope::Thread { libc::SI_TKILL } else { libc::SI_USER };
        user_info(c, sig, code)?
    } else {
        let given: SigInfo = c.read_value(info.0)?;
        if given.signo != sig {
            return Err(Errno::EINVAL.into());
        }
        given_info(c, c.pid_vnr(g.tgid), sig, info)?
    };
    match scope {
        // It is checked, and gone.
        Scope::Thread if dead => signal_group(c, &g, sig, None)?,
        Scope::Process => signal_group(c, &g, sig, i)?,
        Scope::Thread => {
            let t = thread.or_else(|| c.kernel().task(g.tgid)).ok_or(Errno::ESRCH)?;
            signal_thread(c, &t, sig, i)?;
        }
        Scope::ProcessGroup => signal_members(c, sig, i, |n| n.pgid() == g.tgid)?,
    }
    Ok(0)
}
