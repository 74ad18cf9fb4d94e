//! seccomp(2): installing filters, and what their verdict does to a call. Mode and filters are in the crate `syscall_filter`.
//!
//! A thread's filters are checked before a call is looked up, so that they see numbers without a call, too.

use crate::current::Current;
use crate::deliver::force;
use abi::{Errno, SigInfo, Signal};
use seccomp::{ARCH, Action, Chain, Data, Program, RET_ALLOW};
use signal::TrapInfo;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use syscall_filter::{Answer, DISABLED, FILTER, STRICT};
use sysresult::{Restart, SysErr, SysResult};
use tracee::event;

/// si_code of SIGSYS (SYS_SECCOMP).
const SYS_SECCOMP: i32 = 1;
/// Calls of strict mode: read, write, exit, rt_sigreturn.
const STRICT_CALLS: [i64; 4] = [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];

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
        self.task.seccomp.set_strict();
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

    /// Asks the thread's filters about a call. `Err` with what the call ends with when it must not be made.
    pub fn seccomp_check(&mut self, nr: u64) -> Result<(), SysResult> {
        let again = std::mem::take(&mut self.filtered);
        match self.task.seccomp.mode() {
            DISABLED => Ok(()),
            _ if self.task.trace.suspends_seccomp() => Ok(()),
            STRICT if STRICT_CALLS.iter().any(|&n| n as u64 == nr) => Ok(()),
            STRICT => {
                self.seccomp_kill(Signal::SIGKILL, false);
                Err(Err(SysErr::NoReturn))
            }
            _ if self.task.seccomp.always_allows(nr) => Ok(()),
            _ => self.run_filters(nr, again),
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
            Action::Trace if self.task.trace.wants(event::SECCOMP) => match self.ptrace_seccomp(low) {
                Some(nr) => self.run_filters(nr, true),
                None => Err(Ok(self.ctx.regs().rax)),
            },
            // Without a tracer.
            Action::Trace => Err(Err(SysErr::Errno(Errno::ENOSYS))),
            Action::UserNotif => self.ask_supervisor(&chain, data, verdict.value),
            Action::Trap => {
                let info = sigsys(&data, low);
                let r = self.ctx.regs_mut();
                r.rax = r.orig_rax;
                r.orig_rax = u64::MAX;
                force(self, info, TrapInfo::default());
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
        match listener.ask(&self.task.waiter, self.task.tid(), data, || self.dying()) {
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
