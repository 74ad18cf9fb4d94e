//! An init of the kernel's own in front of a container's first program, as a shell would be: process 1 of the PID namespace.
//!
//! It runs no program. Its thread makes the program's process as a child that has everything that was set up for the
//! first process: memory, descriptors, credentials, working directory. Then it passes on to it every signal that it
//! gets itself, reaps what others leave to it, and ends with the program's wait status, which ends the container. The
//! program is not the init of its namespace, so its signals have their usual effect on it, and leads a process group,
//! which is the terminal's foreground group, but no session. After a stop from the keyboard no other process would
//! continue it, so init does.

use crate::container_tasks::park_while_frozen;
use crate::current::Current;
use crate::deliver::{Flow, handle_pending};
use crate::waitpid::WaitTarget;
use abi::{Errno, SigInfo, SigSet, Signal};
use files::FdTable;
use std::sync::atomic::Ordering;

/// Wait status when the program's process cannot be made.
const NOT_STARTED: i32 = 128 << 8;

impl Current {
    /// Has this task, a container's first that has not run yet, become an init that starts what was set up as its child.
    pub fn become_init(&mut self) {
        self.kernel_thread = Some(Box::new(run));
        self.task.kernel_thread.store(true, Ordering::Relaxed);
    }

    /// Has this task, which comes from a checkpoint, be the init of a program that runs as this process.
    pub(crate) fn go_on_as_init(&mut self, program: i32) {
        self.kernel_thread = Some(Box::new(move |c| serve(c, program)));
        self.own_init = Some(program);
        self.task.kernel_thread.store(true, Ordering::Relaxed);
    }
}

/// Runs init until the program has ended.
fn run(c: &mut Current) {
    let program = match start_program(c) {
        Ok(program) => program,
        Err(error) => {
            log::error!("cannot start the first program's process: {error}");
            c.exit_group(NOT_STARTED);
            return;
        }
    };
    c.task.set_comm(b"init");
    // It shows none of the program's, as a kernel thread has none.
    c.mm.set_image(|image| (image.exe, image.args, image.env) = (None, (0, 0), (0, 0)));
    c.set_fds(FdTable::new(c.kernel().vfs.resources.quotas.files.clone()));
    c.task.set_blocked(SigSet::ALL);
    serve(c, program);
}

/// Serves the process of the program until that has ended.
fn serve(c: &mut Current, program: i32) {
    c.own_init = Some(program);
    loop {
        park_while_frozen(c);
        if let Some(status) = reap(c, program) {
            c.exit_group(status);
            return;
        }
        match c.wait_signal(SigSet::ALL, None) {
            Ok(info) => pass_on(c, program, info),
            Err(_) if matches!(handle_pending(c), Flow::Resume) => {}
            Err(_) => return,
        }
    }
}

/// Makes the program's process; its number.
fn start_program(c: &mut Current) -> abi::Result<i32> {
    // What was set up takes effect before it is copied.
    c.ctx.flush()?;
    c.mm.settle();
    let program = c.spawn_first_child()?;
    program.group.has_execed.store(true, Ordering::Relaxed);
    Ok(program.tgid())
}

/// Reaps every child that has ended; the wait status of the program if it is among them.
fn reap(c: &mut Current, program: i32) -> Option<i32> {
    let number = c.find_number(program);
    loop {
        let options = libc::WNOHANG | libc::WEXITED | libc::WUNTRACED | libc::__WALL;
        let change = match c.wait_child(WaitTarget::Any, options) {
            Ok(Some(change)) => change,
            _ => return None,
        };
        let ended = [libc::CLD_EXITED, libc::CLD_KILLED, libc::CLD_DUMPED].contains(&change.code);
        let ours = Some(change.pid) == number;
        if ours && ended {
            return Some(change.status);
        }
        let keyboard = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        if ours && keyboard.contains(&change.si_status) {
            c.kernel().signal_pgrp(program, SigInfo::new(Signal::SIGCONT, libc::SI_KERNEL));
        }
    }
}

/// Passes a signal on to the program, as from the one that sent it.
fn pass_on(c: &Current, program: i32, info: SigInfo) {
    if info.signo == Signal::SIGCHLD.raw() {
        return;
    }
    if let Some(group) = c.kernel().group(program)
        && let Err(error) = group.send(info)
        && error != Errno::ESRCH
    {
        log::debug!("init: signal {} is lost: {error}", info.signo);
    }
}

impl Current {
    /// A process's number in this one's namespace.
    fn find_number(&self, tgid: i32) -> Option<i32> {
        let group = self.kernel().group(tgid)?;
        Some(group.pid_for(&self.task.group))
    }
}
