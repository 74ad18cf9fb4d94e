//! Process descriptors. See pidfd_open(2), pidfd_send_signal(2).

use crate::current::Current;
use crate::pidfd_target::State;
pub use crate::pidfd_target::{PidFd, PidFdState};
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use abi::{Errno, Result};
use caller::UserMemory;
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, FileLayer, FileOps, OpenFile};
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
        Some(if self.thread.is_some() { &self.group.thread_exit } else { &self.group.exit_wait }.clone())
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
    fn fdinfo(&self) -> String {
        let nr = || self.group.kernel.pids.find(self.id()).map_or(-1, |pid| pid.own_nr());
        let shown = if self.state() == State::Reaped { -1 } else { nr() };
        format!("Pid:\t{shown}\nNSpid:\t{shown}\n")
    }
}

/// Opens a descriptor for a process, or for one thread of it; `flags` may hold O_NONBLOCK.
pub fn install(c: &Current, group: &Arc<ThreadGroup>, thread: Option<&Arc<Task>>, flags: i32) -> Result<i32> {
    c.install(open(c, group, thread, flags), true)
}

/// The open file of such a descriptor.
pub(crate) fn open(
    c: &Current,
    group: &Arc<ThreadGroup>,
    thread: Option<&Arc<Task>>,
    flags: i32,
) -> Arc<OpenFile> {
    let shown = if thread.is_some() { PIDFD_THREAD } else { 0 };
    let thread = thread.map(|t| (t.tid(), Arc::downgrade(t)));
    let f = OpenFile::new(
        None,
        Some(c.vfs().anonymous_inode()),
        Arc::new(PidFd { group: group.clone(), thread }),
        libc::O_RDWR | flags & libc::O_NONBLOCK,
    );
    f.show_flags(shown);
    f
}

/// The pidfd behind an open file; EBADF for other files.
pub fn of(f: &OpenFile) -> Result<&PidFd> {
    f.ops.as_any().downcast_ref().ok_or(Errno::EBADF)
}
