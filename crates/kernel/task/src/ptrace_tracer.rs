//! The tracer's side: attaching, and what may be done with a thread that is stopped. See ptrace(2).

use crate::cred_guard::Purpose;
use crate::current::Current;
use crate::exit_report::Notices;
use crate::ptrace_access::{Mode, may_access, may_be_traced_by};
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::{Errno, Result, SigInfo, SigSet, Signal};
use caller::HasCredentials;
use rights::{Cap, Creds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use syscall_filter::DISABLED;
use sysresult::SysErr;
use tracee::{O_MASK, O_SUSPEND_SECCOMP, SEIZED, STEP, SYSCALL, SYSEMU, Stopped, Tracer, event};
use wait::Events;

/// How a stopped thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// PTRACE_CONT.
    Cont,
    /// PTRACE_SYSCALL.
    Syscall,
    /// PTRACE_SINGLESTEP.
    Step,
    /// PTRACE_SYSEMU.
    Sysemu,
    /// PTRACE_SYSEMU_SINGLESTEP.
    SysemuStep,
}

/// EIO unless this is 0 or a signal number.
fn valid_signal(data: u64) -> Result<i32> {
    i32::try_from(data).ok().filter(|n| (0..=64).contains(n)).ok_or(Errno::EIO)
}

impl Task {
    /// Runs `f` on the thread's stop. ESRCH when it is not stopped.
    pub fn with_stopped<T>(&self, f: impl FnOnce(&mut Stopped<Current>) -> T) -> Result<T> {
        let mut state = self.trace.state.lock();
        // After PTRACE_LISTEN it counts as running.
        let at_hand = |s: &&mut Stopped<Current>| s.resumed.is_none() && !s.listening;
        let stop = state.stop.as_mut().filter(at_hand).ok_or(Errno::ESRCH)?;
        Ok(f(stop))
    }

    /// Has the thread, which is stopped, run `f` itself, and waits. ESRCH when it is not stopped or ends meanwhile, or
    /// `given_up` says that the result is not needed any more.
    pub fn run_stopped<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Current) -> T + Send + 'static,
        given_up: impl Fn() -> bool,
    ) -> Result<T> {
        let (tx, rx) = sync_channel(1);
        self.with_stopped(|s| {
            s.jobs.push(Box::new(move |c: &mut Current| {
                // The receiver is gone when the tracer was killed.
                let _ = tx.send(f(c));
            }));
        })?;
        wait::Wake::wake(&*self.waiter, Events::ERR);
        loop {
            match rx.recv_timeout(Duration::from_millis(200)) {
                Ok(v) => return Ok(v),
                Err(RecvTimeoutError::Timeout) if !given_up() => {}
                Err(_) => return Err(Errno::ESRCH),
            }
        }
    }
}

impl Current {
    /// PTRACE_TRACEME. EPERM when it is traced already, and when it has rights that its parent has not.
    pub fn ptrace_traceme(&self) -> Result<()> {
        let mut t = self.kernel().tree.lock();
        if self.task.trace.is_traced() {
            return Err(Errno::EPERM);
        }
        let (parent, thread) =
            t.node(self.task.tgid()).map(|n| (n.parent(), n.parent_tid())).ok_or(Errno::EPERM)?;
        let own = t.task(thread).filter(|p| p.tgid() == parent).cloned();
        let tracer = own.or_else(|| t.node(parent)?.group.any_thread()).ok_or(Errno::EPERM)?;
        if !may_be_traced_by(&self.creds(), &tracer.creds()) {
            return Err(Errno::EPERM);
        }
        // A parent outside the PID namespace could not name the thread any better than the thread could name it.
        if self.task.nr_in(tracer.pids()) > 0 {
            t.trace(&self.task, self.as_tracer(&tracer), 0, 0);
        }
        Ok(())
    }

    /// A tracer that attaches with the caller's credentials.
    fn as_tracer(&self, tracer: &Task) -> Tracer<ThreadGroup> {
        Tracer { tid: tracer.tid(), group: tracer.group.clone(), creds: Creds::into_inner(self.creds()) }
    }

    fn check_options(&self, data: u64) -> Result<u32> {
        let options = u32::try_from(data).ok().filter(|o| o & !O_MASK == 0).ok_or(Errno::EINVAL)?;
        if options & O_SUSPEND_SECCOMP != 0 {
            let suspended = self.task.trace.suspends_seccomp();
            if !self.creds().capable(Cap::SYS_ADMIN) || self.task.seccomp.mode() != DISABLED || suspended {
                return Err(Errno::EPERM);
            }
        }
        Ok(options)
    }

    /// PTRACE_ATTACH, and with `seize` PTRACE_SEIZE with its address and options.
    pub fn ptrace_attach(&self, pid: i32, seize: Option<(u64, u64)>) -> Result<(), SysErr> {
        let Some(task) = self.find_task(pid) else {
            // What is left of a first thread.
            return Err(if self.find_group(pid).is_some() { Errno::EPERM } else { Errno::ESRCH }.into());
        };
        let options = match seize {
            Some((addr, _)) if addr != 0 => return Err(Errno::EIO.into()),
            Some((_, data)) if data & !u64::from(O_MASK) != 0 => return Err(Errno::EIO.into()),
            Some((_, data)) => self.check_options(data)?,
            None => 0,
        };
        if task.tgid() == self.task.tgid() || task.kernel_thread.load(Ordering::Relaxed) {
            return Err(Errno::EPERM.into());
        }
        // Not in the middle of an execve(2) that may give the process more rights.
        let guard = self.hold_creds(&task.group, Purpose::Other)?;
        if !may_access(&self.creds(), self.task.tgid(), &task, Mode::Real) {
            return Err(Errno::EPERM.into());
        }
        let was_stopped = {
            let mut t = self.kernel().tree.lock();
            let alive = t.task(task.tid()).is_some_and(|x| Arc::ptr_eq(x, &task)) && !task.is_leaving();
            if !alive || task.trace.is_traced() {
                return Err(Errno::EPERM.into());
            }
            let s = task.group.signals.lock();
            let was_stopped = s.stop.is_on() && s.is_parked(&task);
            drop(s);
            t.trace(&task, self.as_tracer(&self.task), if seize.is_some() { SEIZED } else { 0 }, options);
            if was_stopped {
                task.trace.ask_to_stop();
            }
            was_stopped
        };
        drop(guard);
        if seize.is_none() {
            let _ = task.send(SigInfo::new(Signal::SIGSTOP, libc::SI_KERNEL));
        }
        // The calls that a platform answers by itself are reported from now on.
        task.kick_fatal();
        if was_stopped {
            self.await_trap(&task);
        }
        Ok(())
    }

    /// The change from a group stop to a stop for the tracer is not to be seen.
    fn await_trap(&self, task: &Task) {
        let _sub = self.task.group.child_wait.subscribe(Events::ALL, self.task.waiter.clone());
        while task.trace.is_traced() && !task.trace.is_stopped() && !task.is_leaving() && !self.dying() {
            // The tracee comes to a stand first.
            let stands = self.task.asked_to_stand.load(Ordering::SeqCst);
            if stands || task.group.signals.lock().life.ends(task.tid()) {
                return;
            }
            let soon = std::time::Instant::now() + Duration::from_millis(50);
            let _ = self.task.waiter.sleep_uninterruptible(Some(soon));
        }
    }

    /// The thread that this one traces by this number; ESRCH otherwise.
    pub fn tracee(&self, pid: i32) -> Result<Arc<Task>> {
        let task = self.find_task(pid).ok_or(Errno::ESRCH)?;
        if task.trace.tracer() == Some(self.task.tid()) { Ok(task) } else { Err(Errno::ESRCH) }
    }

    /// Runs `f` on the stop of a tracee. ESRCH when it is not stopped.
    pub fn with_stopped<T>(&self, task: &Task, f: impl FnOnce(&mut Stopped<Current>) -> T) -> Result<T> {
        task.with_stopped(f)
    }

    /// Has a stopped tracee itself run `f`, and waits. ESRCH when it is not stopped, or ends meanwhile.
    pub fn in_tracee<T: Send + 'static>(
        &self,
        task: &Task,
        f: impl FnOnce(&mut Current) -> T + Send + 'static,
    ) -> Result<T> {
        task.run_stopped(f, || self.dying())
    }

    /// PTRACE_CONT and its relatives. EIO when `signal` is none.
    pub fn ptrace_resume(&self, task: &Task, how: Resume, signal: u64) -> Result<()> {
        self.with_stopped(task, |_| ())?;
        let signal = valid_signal(signal)?;
        {
            let mut state = task.trace.state.lock();
            let stop = state.stop.as_mut().ok_or(Errno::ESRCH)?;
            task.trace.set(SYSCALL | SYSEMU | STEP, false);
            let bits = match how {
                Resume::Cont => 0,
                Resume::Syscall => SYSCALL,
                Resume::Step => STEP,
                Resume::Sysemu => SYSEMU,
                Resume::SysemuStep => SYSEMU | STEP,
            };
            task.trace.set(bits, true);
            stop.resumed = Some(signal);
        }
        wait::Wake::wake(&*task.waiter, Events::ERR);
        Ok(())
    }

    /// PTRACE_DETACH.
    pub fn ptrace_detach(&self, task: &Task, signal: u64) -> Result<()> {
        self.with_stopped(task, |_| ())?;
        let signal = valid_signal(signal)?;
        let mut notices = Notices::default();
        let gone = {
            let mut t = self.kernel().tree.lock();
            let gone = t.untrace(task.tid(), Some(signal));
            t.detached_zombie(task.tid(), &mut notices);
            gone
        };
        drop(gone);
        notices.send();
        Ok(())
    }

    /// PTRACE_SETOPTIONS.
    pub fn ptrace_set_options(&self, task: &Task, data: u64) -> Result<()> {
        self.with_stopped(task, |_| ())?;
        let options = self.check_options(data)?;
        task.trace.state.lock().options = options;
        Ok(())
    }

    /// PTRACE_INTERRUPT. EIO unless it was seized.
    pub fn ptrace_interrupt(&self, task: &Task) -> Result<()> {
        if !task.trace.is_seized() {
            return Err(Errno::EIO);
        }
        task.trace.ask_to_stop();
        task.kick_fatal();
        Ok(())
    }

    /// PTRACE_LISTEN. EIO unless it is seized and in a group stop or its like.
    pub fn ptrace_listen(&self, task: &Task) -> Result<()> {
        if !task.trace.is_seized() {
            return Err(Errno::EIO);
        }
        self.with_stopped(task, |s| {
            if s.info.is_none_or(|i| i.code >> 8 != event::STOP as i32) {
                return Err(Errno::EIO);
            }
            s.listening = true;
            Ok(())
        })??;
        wait::Wake::wake(&*task.waiter, Events::ERR);
        Ok(())
    }

    /// PTRACE_KILL.
    pub fn ptrace_kill(&self, task: &Task) {
        let _ = task.send(SigInfo::user(Signal::SIGKILL, libc::SI_USER, self.task.own_tid(), 0));
    }

    /// PTRACE_SETSIGMASK.
    pub fn ptrace_set_mask(&self, task: &Task, mask: SigSet) -> Result<()> {
        self.with_stopped(task, |_| ())?;
        task.set_blocked(mask.minus(SigSet::UNBLOCKABLE));
        Ok(())
    }
}
