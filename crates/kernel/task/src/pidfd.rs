//! Process descriptors. See pidfd_open(2).

use crate::current::Current;
use crate::task::ThreadGroup;
use abi::{Errno, Result};
use std::any::Any;
use std::sync::Arc;
use vfs::{FileOps, OpenFile};
use wait::{Events, WaitQueue};

/// An open pidfd.
pub struct PidFd {
    /// The process.
    pub group: Arc<ThreadGroup>,
}

impl FileOps for PidFd {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, _file: &OpenFile) -> Events {
        let gone = {
            let t = self.group.kernel.tree.lock();
            t.nodes.get(&self.group.tgid).is_none_or(|n| n.zombie.is_some())
        };
        if gone { Events::READABLE } else { Events::NONE }
    }
    fn wait_queue(&self) -> Option<WaitQueue> {
        Some(self.group.exit_wait.clone())
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[pidfd]".into())
    }
    fn fdinfo(&self) -> String {
        format!("Pid:\t{0}\nNSpid:\t{0}\n", crate::pids::number(self.group.tgid))
    }
}

/// Opens a descriptor for a process; `flags` may hold O_NONBLOCK.
pub fn install(c: &Current, group: &Arc<ThreadGroup>, flags: i32) -> Result<i32> {
    let f = OpenFile::new(
        None,
        Some(vfs::internal::InternalInode::shared()),
        Arc::new(PidFd { group: group.clone() }),
        libc::O_RDWR | flags & libc::O_NONBLOCK,
    );
    c.install(f, true)
}

/// The process behind a pidfd; EBADF for other descriptors.
pub fn group_of(f: &OpenFile) -> Result<Arc<ThreadGroup>> {
    f.ops.as_any().downcast_ref::<PidFd>().map(|p| p.group.clone()).ok_or(Errno::EBADF)
}
