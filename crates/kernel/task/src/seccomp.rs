//! seccomp(2) as a thread is under it: mode and filters, and what they do to a call.
//!
//! Filters are installed by the thread itself, or by another one of its process (SECCOMP_FILTER_FLAG_TSYNC) under the
//! group's signal lock. They are checked before a call is looked up, so that they see numbers nobody implements too.

use crate::current::Current;
use crate::result::{Restart, SysErr, SysResult};
use crate::supervisor::Answer;
use crate::task::Task;
use abi::{Errno, SigInfo, Signal};
use ranked::RwLock;
use seccomp::{ARCH, Action, Chain, Data, Program, RET_ALLOW};
use signal::TrapInfo;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// SECCOMP_MODE_DISABLED.
pub const DISABLED: u8 = 0;
/// SECCOMP_MODE_STRICT.
pub const STRICT: u8 = 1;
/// SECCOMP_MODE_FILTER.
pub const FILTER: u8 = 2;
/// si_code of SIGSYS (SYS_SECCOMP).
const SYS_SECCOMP: i32 = 1;
/// Calls of strict mode: read, write, exit, rt_sigreturn.
const STRICT_CALLS: [i64; 4] = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];

/// Mode and filters of a thread.
#[derive(Default)]
pub struct Seccomp {
    mode: AtomicU8,
    chain: RwLock<Option<Arc<Chain>>>,
}

impl Seccomp {
    /// SECCOMP_MODE_*.
    pub fn mode(&self) -> u8 {
        self.mode.load(Ordering::Acquire)
    }

    /// Number of filters.
    pub fn filters(&self) -> u32 {
        self.chain.read().as_ref().map_or(0, |c| c.count())
    }

    /// The instructions of filter `number`, from the first installed on, and whether it wants actions logged. EINVAL without
    /// filters, ENOENT when there are fewer.
    pub fn filter(&self, number: u64) -> abi::Result<(Vec<seccomp::SockFilter>, bool)> {
        if self.mode() != FILTER {
            return Err(Errno::EINVAL);
        }
        let chain = self.chain().ok_or(Errno::EINVAL)?;
        let (code, log) = chain.filter(number).ok_or(Errno::ENOENT)?;
        Ok((code.to_vec(), log))
    }

    fn chain(&self) -> Option<Arc<Chain>> {
        self.chain.read().clone()
    }

    fn set_chain(&self, c: Arc<Chain>) {
        *self.chain.write() = Some(c);
        self.mode.store(FILTER, Ordering::Release);
    }

    /// A new thread starts with its creator's.
    pub(crate) fn inherit(&self, from: &Seccomp) {
        *self.chain.write() = from.chain();
        self.mode.store(from.mode(), Ordering::Release);
    }

    /// The platform must report the calls that it could answer by itself: the filters have a say in them.
    pub(crate) fn wants_all(&self) -> bool {
        match self.mode() {
            DISABLED => false,
            FILTER => self
                .chain
                .read()
                .as_ref()
                .is_some_and(|c| platform::NATIVE_CALLS.iter().any(|&nr| !c.always_allows(nr.into()))),
            _ => true,
        }
    }

    fn always_allows(&self, nr: u64) -> bool {
        self.chain.read().as_ref().is_some_and(|c| c.always_allows(nr))
    }
}

/// What may go wrong when a filter is installed.
#[derive(Debug, PartialEq, Eq)]
pub enum InstallError {
    /// An error number.
    Errno(Errno),
    /// TSYNC: this thread has filters of its own.
    Diverged(i32),
}

impl Current {
    /// SECCOMP_SET_MODE_STRICT.
    pub fn seccomp_strict(&mut self) -> Result<(), Errno> {
        if self.task.seccomp.mode() == FILTER {
            return Err(Errno::EINVAL);
        }
        self.task.seccomp.mode.store(STRICT, Ordering::Release);
        self.sync_report_all();
        Ok(())
    }

    /// SECCOMP_SET_MODE_FILTER. Permission was checked.
    pub fn seccomp_filter(&mut self, program: Program, log: bool, tsync: bool) -> Result<(), InstallError> {
        self.seccomp_supervised(program, log, tsync, None)
    }

    /// The same with a supervisor.
    pub fn seccomp_supervised(
        &mut self,
        program: Program,
        log: bool,
        tsync: bool,
        supervisor: Option<Arc<dyn seccomp::Supervisor>>,
    ) -> Result<(), InstallError> {
        let group = self.task.group.clone();
        let me = self.task.clone();
        // Another thread may be executing a program that its filters and no_new_privs decide about.
        let _guard = if tsync { Some(self.hold_own_creds().map_err(InstallError::Errno)?) } else { None };
        {
            let s = group.signals.lock();
            if me.seccomp.mode() == STRICT {
                return Err(InstallError::Errno(Errno::EINVAL));
            }
            let old = me.seccomp.chain();
            let chain = Chain::supervised(&group.kernel.filters, program, old.clone(), log, supervisor)
                .map_err(InstallError::Errno)?;
            let others = || s.threads.iter().filter(|t| tsync && !Arc::ptr_eq(t, &me));
            for t in others() {
                let part = match (t.seccomp.mode(), t.seccomp.chain()) {
                    (DISABLED, _) => true,
                    (FILTER, Some(theirs)) => old.as_ref().is_some_and(|o| o.contains(&theirs)),
                    _ => false,
                };
                if !part {
                    return Err(InstallError::Diverged(t.own_tid()));
                }
            }
            me.seccomp.set_chain(chain.clone());
            for t in others() {
                if me.no_new_privs.load(Ordering::Relaxed) {
                    t.no_new_privs.store(true, Ordering::Relaxed);
                }
                t.seccomp.set_chain(chain.clone());
                if t.seccomp.wants_all() {
                    t.interrupt_guest();
                }
            }
        }
        self.sync_report_all();
        Ok(())
    }

    /// Tells the platform which calls it may answer by itself.
    pub(crate) fn sync_report_all(&mut self) {
        let want = self.kernel().strace.load(Ordering::Relaxed)
            || self.task.seccomp.wants_all()
            || self.task.trace.is_traced()
            // Time-outs of futexes are those of the host's clock.
            || self.task.nsproxy().time.is_shifted();
        if want != self.report_all {
            self.report_all = want;
            self.ctx.set_report_all(want);
        }
    }

    /// Asks the thread's filters about a call. `Err` with what the call ends with when it must not be made.
    pub fn seccomp_check(&mut self, nr: u64) -> Result<(), SysResult> {
        match self.task.seccomp.mode() {
            DISABLED => Ok(()),
            _ if self.task.trace.suspends_seccomp() => Ok(()),
            STRICT if STRICT_CALLS.iter().any(|&n| n as u64 == nr) => Ok(()),
            STRICT => {
                self.seccomp_kill(Signal::SIGKILL, false);
                Err(Err(SysErr::NoReturn))
            }
            _ if self.task.seccomp.always_allows(nr) => Ok(()),
            _ => self.run_filters(nr, false),
        }
    }

    /// `again`: a tracer has seen the call and may have changed it.
    fn run_filters(&mut self, nr: u64, again: bool) -> Result<(), SysResult> {
        let Some(chain) = self.task.seccomp.chain() else { return Ok(()) };
        let r = self.ctx.regs();
        let data = Data { nr: nr as i32, arch: ARCH, ip: r.rip, args: r.args() };
        let verdict = chain.run(&data);
        let (action, low) = (Action::of(verdict.value), verdict.value & 0xffff);
        if verdict.value & seccomp::ACTION_FULL != RET_ALLOW && (verdict.log || action <= Action::KillThread)
        {
            log::info!("[{}] seccomp: call {nr}: {action:?}", self.task.tid());
        }
        match action {
            Action::Allow | Action::Log => Ok(()),
            Action::Errno if low == 0 => Err(Ok(0)),
            Action::Errno => Err(Err(SysErr::Errno(Errno::from_raw(low.min(4095) as i32)))),
            Action::Trace if again => Ok(()),
            Action::Trace if self.task.trace.wants(crate::trace::event::SECCOMP) => {
                match self.ptrace_seccomp(low) {
                    Some(nr) => self.run_filters(nr, true),
                    None => Err(Ok(self.ctx.regs().rax)),
                }
            }
            // Without a tracer.
            Action::Trace => Err(Err(SysErr::Errno(Errno::ENOSYS))),
            Action::UserNotif => self.ask_supervisor(&chain, data, verdict.value),
            Action::Trap => {
                let info = sigsys(&data, low);
                let r = self.ctx.regs_mut();
                r.rax = r.orig_rax;
                r.orig_rax = u64::MAX;
                crate::run::force(self, info, TrapInfo::default());
                Err(Err(SysErr::NoReturn))
            }
            Action::KillThread => {
                self.seccomp_kill(Signal::SIGSYS, false);
                Err(Err(SysErr::NoReturn))
            }
            Action::KillProcess => {
                self.seccomp_kill(Signal::SIGSYS, true);
                Err(Err(SysErr::NoReturn))
            }
        }
    }

    /// SECCOMP_RET_USER_NOTIF: ENOSYS without a supervisor.
    fn ask_supervisor(&self, chain: &Chain, data: Data, value: u32) -> Result<(), SysResult> {
        let number = chain.supervisor(&data, value);
        let listener = number.and_then(|n| self.kernel().listeners.find(n));
        let Some(listener) = listener else { return Err(Err(SysErr::Errno(Errno::ENOSYS))) };
        match listener.ask(&self.task, data, || self.dying()) {
            Ok(Answer::Continue) => Ok(()),
            Ok(Answer::Value(v)) => Err(Ok(v as u64)),
            Err(Some(e)) => Err(Err(SysErr::Errno(e))),
            Err(None) => Err(Err(SysErr::Restart(Restart::Sys))),
        }
    }

    /// Ends the thread, or the process when it was the last one or `all` is set.
    fn seccomp_kill(&mut self, sig: Signal, all: bool) {
        if all || self.task.group.threads().len() == 1 {
            self.kill_by(sig);
        } else {
            self.exit_code = Some(sig.raw());
        }
    }

    /// What the filters say of execve(2) when the first process begins; the sandbox's owner installed them.
    pub fn seccomp_start(&mut self, program: Program, log: bool) -> Result<(), Errno> {
        self.seccomp_filter(program, log, false).map_err(|e| match e {
            InstallError::Errno(e) => e,
            InstallError::Diverged(_) => Errno::EINVAL,
        })?;
        let exec = libc::SYS_execve as u64;
        match self.task.seccomp.chain() {
            Some(c) if !c.always_allows(exec) => {
                let v = c.run(&Data { nr: exec as i32, arch: ARCH, ..Data::default() });
                match Action::of(v.value) {
                    Action::Allow | Action::Log => Ok(()),
                    Action::Errno => Err(Errno::from_raw((v.value & 0xffff).clamp(1, 4095) as i32)),
                    _ => Err(Errno::EPERM),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The SIGSYS of SECCOMP_RET_TRAP.
fn sigsys(d: &Data, errno: u32) -> SigInfo {
    let mut i = SigInfo::new(Signal::SIGSYS, SYS_SECCOMP);
    i.errno = errno as i32;
    i.fields[0] = d.ip;
    i.fields[1] = u64::from(d.nr as u32) | u64::from(d.arch) << 32;
    i
}

impl Task {
    /// Makes a thread in guest code look at its state again, without ending a sleep in the kernel.
    pub(crate) fn interrupt_guest(&self) {
        self.with_interrupter(|i| i.interrupt());
    }
}
