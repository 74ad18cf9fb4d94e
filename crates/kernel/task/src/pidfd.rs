//! Process descriptors. See pidfd_open(2), pidfd_send_signal(2).

use crate::current::Current;
use crate::pidfd_target::State;
pub use crate::pidfd_target::{PidFd, PidFdState};
use crate::pidfs;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::{Errno, Result};
use caller::UserMemory;
use pid::PidNamespace;
use std::any::Any;
use std::sync::Arc;
use vfs::file::Process;
use vfs::{Caller, FileOps, InodeRef, OpenFile};
use wait::{Events, WaitQueue};

/// PIDFD_THREAD: the descriptor is for one thread. F_GETFL shows it.
pub const PIDFD_THREAD: i32 = libc::O_EXCL;

impl FileOps for PidFd {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        match self.state() {
            State::Alive => Events::NONE,
            State::Zombie => Events::READABLE,
            State::Reaped => Events::READABLE | Events::HUP,
        }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(if self.leads() { &self.group.exit_wait } else { &self.group.thread_exit }.clone())
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        match cmd {
            _ if crate::pidfd_info::is_get_info(cmd) => crate::pidfd_info::get_info(self, cx, mem, cmd, arg),
            _ => Err(Errno::ENOTTY),
        }
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[pidfd]".into())
    }
    fn fdinfo_in(&self, ns: &PidNamespace) -> String {
        let pid = self.group.kernel.pids.find(self.id()).filter(|_| self.state() != State::Reaped);
        let Some(pid) = pid else { return "Pid:\t-1\nNSpid:\t-1\n".into() };
        let mut text = format!("Pid:\t{}\nNSpid:", pid.nr_in(ns));
        let mut numbers = pid.numbers_from(&pid, ns);
        if numbers.is_empty() {
            // It cannot be seen from there.
            numbers.push(0);
        }
        numbers.iter().for_each(|nr| text.push_str(&format!("\t{nr}")));
        text.push('\n');
        text
    }
}

/// Opens a descriptor for a process, or for one thread of it; `flags` may hold O_NONBLOCK.
pub fn install(c: &Current, group: &Arc<ThreadGroup>, thread: Option<&Arc<Task>>, flags: i32) -> Result<i32> {
    c.install(open(group, thread, flags), true)
}

/// The open file of such a descriptor.
pub(crate) fn open(group: &Arc<ThreadGroup>, thread: Option<&Arc<Task>>, flags: i32) -> Arc<OpenFile> {
    let shown = if thread.is_some() { PIDFD_THREAD } else { 0 };
    let thread = thread.map(|t| (t.tid(), Arc::downgrade(t)));
    let fd = PidFd { group: group.clone(), thread };
    let inode = pidfs::inode(&fd);
    let f = OpenFile::new(None, Some(inode), Arc::new(fd), libc::O_RDWR | flags & libc::O_NONBLOCK);
    f.show_flags(shown);
    f
}

impl Process for ThreadGroup {
    fn open_pidfd(self: Arc<Self>) -> Arc<OpenFile> {
        open(&self, None, 0)
    }
}

impl PidFd {
    /// As plain data; `None` for a process or thread that has gone.
    pub fn saved(&self, cx: &dyn Caller) -> Option<PidFdState> {
        let thread = self.thread.as_ref().map(|(tid, _)| *tid);
        (!self.is_reaped()).then(|| PidFdState {
            process: self.group.tgid,
            thread,
            inode: pidfs::saved(cx, &pidfs::inode(self)),
        })
    }

    /// Back from plain data, of the process that was found for it, with its inode.
    pub fn restore(cx: &dyn Caller, saved: &PidFdState, group: Arc<ThreadGroup>) -> (InodeRef, PidFd) {
        let fd = PidFd::found(group, saved.thread);
        (pidfs::restored(cx, &fd, &saved.inode), fd)
    }
}

/// The number that the inode of a pidfd has as a file handle; `None` for other inodes.
pub fn handle_of(inode: &InodeRef) -> Option<u64> {
    pidfs::number(inode)
}

/// A descriptor for the process or thread with that number. ESTALE when it has been waited for, or the caller's PID
/// namespace does not have it. `flags` may hold O_NONBLOCK.
pub fn open_by_handle(c: &Current, number: u64, flags: i32) -> Result<Arc<OpenFile>> {
    let (group, thread) = pidfs::find(c.kernel(), number).ok_or(Errno::ESTALE)?;
    let seen = thread.as_ref().map_or(group.tgid, |thread| thread.tid());
    let pid = c.kernel().pids.find(seen).ok_or(Errno::ESTALE)?;
    if pid.nr_in(c.task.pids()) == 0 {
        return Err(Errno::ESTALE);
    }
    Ok(open(&group, thread.as_ref(), flags))
}

/// The pidfd behind an open file; EBADF for other files.
pub fn of(f: &OpenFile) -> Result<&PidFd> {
    f.ops.as_any().downcast_ref().ok_or(Errno::EBADF)
}
