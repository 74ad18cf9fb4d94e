//! Network namespaces as requests of rtnetlink(7) name them: by a process, or by a descriptor of the caller's.

use abi::{Errno, Result};
use nsproxy::{Namespace, NsOps};
use socket::{FindNet, NetNamespace};
use std::sync::{Arc, Weak};
use task::Kernel;
use vfs::Caller;

/// The finder of a kernel, which it does not keep alive.
pub(crate) struct Finder(pub(crate) Weak<Kernel>);

impl Finder {
    fn task(&self, tid: i32) -> Result<Arc<task::Task>> {
        let kernel = self.0.upgrade().ok_or(Errno::ESRCH)?;
        kernel.task(tid).filter(|task| !task.is_leaving()).ok_or(Errno::ESRCH)
    }
}

impl FindNet for Finder {
    fn of_process(&self, cx: &dyn Caller, pid: i32) -> Result<Arc<NetNamespace>> {
        if pid <= 0 {
            return Err(Errno::ESRCH);
        }
        Ok(self.task(cx.find_vpid(pid))?.nsproxy().net.clone())
    }

    fn of_descriptor(&self, cx: &dyn Caller, fd: i32) -> Result<Arc<NetNamespace>> {
        let file = cx.descriptor(fd)?;
        match file.ops.as_any().downcast_ref() {
            Some(NsOps(Namespace::Net(net))) => Ok(net.clone()),
            _ => Err(Errno::EINVAL),
        }
    }
}
