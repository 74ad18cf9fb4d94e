//! The life of a guest thread: run, serve, deliver signals, run again.

use crate::container_tasks::park_while_frozen;
use crate::current::Current;
use crate::deliver::{Flow, force, handle_pending};
use crate::exit::{Stage, end};
use crate::group_exit::kill_group;
use abi::{Errno, SigInfo, Signal};
use caller::Membership;
use lock_order::Mutex;
use platform::{Exit, Fault};
use signal::TrapInfo;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SendError, sync_channel};
use sysresult::{Restart, SysErr};

/// si_code of a fault at an address where nothing is mapped.
const SEGV_MAPERR: i32 = 1;

/// Starts the sentry thread of a guest thread. EAGAIN when there are too many, or the host has no thread left: it is then as if
/// the guest thread had never been.
pub fn start(mut c: Current) -> abi::Result<()> {
    let kernel = c.kernel().clone();
    if !kernel.thread_starts() {
        end(c, Stage::Entered);
        return Err(Errno::EAGAIN);
    }
    let idle = kernel.idle.lock().pop();
    let c = match idle {
        Some(worker) => {
            begin(&mut c);
            match worker.send(c) {
                Ok(()) => return Ok(()),
                Err(SendError(c)) => c,
            }
        }
        None => c,
    };
    // A thread that cannot be made drops what it was to run, and the task must outlive that.
    let handed = Arc::new(<Mutex<_>>::new(Some(c)));
    let taken = handed.clone();
    let body = move || {
        let c = taken.lock().take();
        drop(taken);
        if let Some(c) = c {
            work(c);
        }
    };
    let spawned = std::thread::Builder::new().name("task".into()).stack_size(512 << 10).spawn(body);
    if let Err(e) = spawned {
        log::warn!("no thread for a guest thread: {e}");
        let c = handed.lock().take();
        if let Some(c) = c {
            end(c, Stage::Entered);
        }
        kernel.thread_ended();
        return Err(Errno::EAGAIN);
    }
    Ok(())
}

/// Lets the guest thread run before its sentry thread does, if nothing speaks against it: it will have made its first call by
/// the time that its sentry thread is awake.
fn begin(c: &mut Current) {
    let resumes = c.kernel_thread.is_none() && c.stopped.is_none() && c.vfork_gate.is_none();
    if !resumes || c.has_business() || c.group_is_held() {
        return;
    }
    introduce(c);
    c.begun = !c.report_all && c.ctx.begin();
}

/// Tells the platform of the thread before it runs for the first time.
fn introduce(c: &mut Current) {
    c.task.set_interrupter(Some(c.ctx.interrupter()));
    // A new context does not inherit it in full.
    c.report_all = false;
    c.ctx.set_report_all(false);
    c.sync_report_all();
    c.tell_platform();
}

impl Current {
    /// Something is to be done before the guest thread resumes.
    fn has_business(&self) -> bool {
        self.exit_code.is_some()
            || self.task.waiter.interrupted()
            || self.restart.is_some()
            || self.saved_mask.is_some()
    }

    /// It may not run now.
    fn group_is_held(&self) -> bool {
        self.task.group.container.is_frozen()
            || self.kernel().bandwidth.any.load(Ordering::Relaxed) && self.task.cgroup.is_throttled()
    }
}

/// How many threads without a task are kept.
const MAX_IDLE: usize = 16;

/// A thread's life: one task after another.
fn work(mut c: Current) {
    hostsys::cpu::roam();
    loop {
        let kernel = c.kernel().clone();
        c.task.host_tid.store(hostsys::clock::gettid(), Ordering::Relaxed);
        run(c);
        let (tx, rx) = sync_channel(1);
        let stay = {
            let mut idle = kernel.idle.lock();
            let room = idle.len() < MAX_IDLE;
            if room {
                idle.push(tx);
            }
            room
        };
        kernel.thread_ended();
        drop(kernel);
        if !stay {
            // Our own end of the channel would keep the wait below from ever ending.
            return;
        }
        match rx.recv() {
            Ok(next) => c = next,
            Err(_) => return,
        }
        let used = hostsys::clock::gettime_ns(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0) as u64;
        c.task.cpu_base.store(used, Ordering::Relaxed);
    }
}

fn run(mut c: Current) {
    let mut begun = std::mem::take(&mut c.begun);
    if !begun {
        introduce(&mut c);
    }
    let calls = c.kernel().calls.clone();
    if let Some(function) = c.kernel_thread.take() {
        function(&mut c);
        c.ptrace_exit();
        end(c, Stage::Ran);
        return;
    }
    if let Some(after) = c.stopped.take()
        && let Flow::Leave = c.go_on_in_stop(after)
    {
        end(c, Stage::Ran);
        return;
    }
    if let Some((gate, child)) = c.vfork_gate.take().zip(c.vforking) {
        c.go_on_in_vfork(&gate, child);
    }
    loop {
        if !std::mem::take(&mut begun) {
            if c.exit_code.is_some() {
                break;
            }
            park_while_frozen(&mut c);
            if c.has_business()
                && let Flow::Leave = handle_pending(&mut c)
            {
                break;
            }
            if c.wait_for_processor_time() {
                continue;
            }
            c.begin_step();
        }
        let exit = c.ctx.run();
        let stepped = c.end_step();
        if !matches!(exit, Exit::ActionFailed { .. } | Exit::FrameFailed) {
            c.mm.settle();
            c.settle_transfer();
        }
        improve_text(&mut c);
        if c.report_all && matches!(exit, Exit::Interrupted | Exit::Fault(_)) {
            // A futex call that was passed on has not been made: it is reported again.
            c.ctx.set_report_all(true);
        }
        if matches!(exit, Exit::Fault(_)) {
            c.task.counts.fault();
        }
        match exit {
            Exit::Syscall => calls.dispatch(&mut c),
            Exit::Fault(f) if stepped && c.stepped_for_watch(f.signo, f.code) => {}
            Exit::Fault(f) if f.signo == libc::SIGSEGV && f.code == SEGV_MAPERR && grows(&mut c, f.addr) => {}
            Exit::Fault(f) => fault(&mut c, &f),
            Exit::Interrupted => {
                c.kernel().interrupts.fetch_add(1, Ordering::Relaxed);
                c.task.waiter.set_interrupted(true);
                c.futex_passed(true);
            }
            Exit::FutexInterrupted => {
                c.set_result(Err(SysErr::Restart(Restart::Sys)));
                c.task.waiter.set_interrupted(true);
                c.futex_passed(false);
            }
            Exit::FutexDone => c.futex_passed(false),
            Exit::FrameFailed => c.force_signal(Signal::SIGSEGV, libc::SI_KERNEL),
            Exit::ActionFailed { errno, .. } => {
                // A transfer, a copy, or a change of mappings that no other thread could have seen.
                if !c.take_back_transfer() {
                    c.ctx.set_rax(c.mm.refused(errno));
                }
            }
            Exit::Dead => {
                let mut s = c.task.group.signals.lock();
                kill_group(&c.task.group, &mut s, Signal::SIGKILL.raw());
                break;
            }
        }
    }
    c.ptrace_exit();
    end(c, Stage::Ran);
}

/// Has the platform change the program's text where calls came from that cost more than they need.
fn improve_text(c: &mut Current) {
    let Some(rewriter) = c.ctx.rewriter() else { return };
    let (sites, hot) = (rewriter.new_sites(), rewriter.hot_site());
    if !sites.is_empty() {
        let first = c.sees_first_root();
        c.mm.note_sites(c.ctx.as_mut(), &sites, first);
    }
    if let Some(site) = hot {
        c.mm.rewrite(c.ctx.as_mut(), site);
    }
}

/// Grows a stack down to an address that is not mapped; the instruction is then tried again.
fn grows(c: &mut Current, addr: u64) -> bool {
    let mm = c.mm.clone();
    c.with_context(|cx, ctx| mm.grow_down(cx, ctx, addr))
}

fn fault(c: &mut Current, f: &Fault) {
    let Some(sig) = Signal::new(f.signo) else { return };
    let info = SigInfo::fault(sig, f.code, f.addr);
    let (rip, rsp) = {
        let r = c.ctx.regs();
        (r.rip, r.rsp)
    };
    log::debug!("[{}] {f:x?} at {rip:#x}, sp {rsp:#x}", c.task.tid());
    force(c, info, TrapInfo { trapno: f.trapno, err: f.err, cr2: f.addr });
}
