//! What open files of one kernel share, and what an operation on one may ask of its caller's files.

use super::OpenFile;
use super::devices::{Devices, NoFifos, Opener};
use super::operation::FileOperation;
use crate::dentry::Dcache;
use crate::inode::{InodeRef, InternalFs, InternalInode};
use crate::mount::{Mount, MountFlags, MountTable};
use abi::{Errno, Result};
use caller::{ANONYMOUS_INODE, DeviceNumbers, Quotas, Resources};
use ktime::Clock;
use pid::Pid;
use std::sync::Arc;
use user_ns::UserNamespace;

/// The file layer of one kernel. Two kernels in one process have nothing of it in common.
pub struct Vfs {
    /// What it shares with the other subsystems.
    pub resources: Arc<Resources>,
    /// Drivers of character devices and FIFOs.
    pub devices: Devices,
    /// Mounts: their numbers, and the lock under which they change.
    pub mounts: Arc<MountTable>,
    anonymous: Arc<Mount>,
    anonymous_inode: InodeRef,
}

impl Vfs {
    /// With these limits, in this initial user namespace, and without named pipes.
    pub fn new(quotas: Arc<Quotas>, user_ns: Arc<UserNamespace>) -> Arc<Vfs> {
        Vfs::with_devices(quotas, user_ns, Arc::default(), Arc::new(NoFifos), Clock::default())
    }

    /// The same with the device numbers of file systems that were made before, and a clock; `fifo` opens named pipes.
    pub fn with_devices(
        quotas: Arc<Quotas>,
        user_ns: Arc<UserNamespace>,
        device_numbers: Arc<DeviceNumbers>,
        fifo: Arc<dyn Opener>,
        clock: Clock,
    ) -> Arc<Vfs> {
        let mounts = Arc::new(MountTable::default());
        let anonymous = Mount::of(Arc::new(InternalFs::Anon), MountFlags::empty(), b"anon_inodefs");
        mounts.number(&anonymous);
        Arc::new(Vfs {
            resources: Resources::new(quotas, user_ns, device_numbers, clock),
            devices: Devices::new(fifo),
            mounts,
            anonymous,
            anonymous_inode: Arc::new(InternalInode::new(ANONYMOUS_INODE, InternalFs::Anon, 0o600, 0, 0)),
        })
    }

    /// The mount on which objects without a tree live.
    pub fn anonymous(&self) -> &Arc<Mount> {
        &self.anonymous
    }

    /// What all dentries share.
    pub fn dcache(&self) -> &Arc<Dcache> {
        &self.mounts.dcache
    }

    /// The inode that all anonymous descriptors share.
    pub fn anonymous_inode(&self) -> InodeRef {
        self.anonymous_inode.clone()
    }
}

/// A process that an object remembers, also beyond its end, to give pidfds of it.
pub trait Process: Send + Sync {
    /// A new pidfd of it, which is no descriptor yet.
    fn open_pidfd(self: Arc<Self>) -> Arc<OpenFile>;
}

/// A process that is remembered.
#[derive(Clone)]
pub struct ProcessRef(pub Arc<dyn Process>);

impl std::fmt::Debug for ProcessRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProcessRef")
    }
}

/// A caller with files.
pub trait FileLayer {
    /// The file layer of the caller's kernel.
    fn vfs(&self) -> &Arc<Vfs>;
    /// Gives an open file a descriptor of the caller. EMFILE; EBADF for the kernel itself, which has none.
    fn install(&self, _file: Arc<OpenFile>, _cloexec: bool) -> Result<i32> {
        Err(Errno::EBADF)
    }
    /// The error of a policy that refuses an operation. The kernel itself is under none.
    fn decide(&self, _operation: &FileOperation<'_>) -> Result<()> {
        Ok(())
    }
    /// The caller's process; none for the kernel itself.
    fn process(&self) -> Option<ProcessRef> {
        None
    }
    /// The process with this ID, unless its parent has waited for it.
    fn process_of(&self, _pid: &Pid) -> Option<ProcessRef> {
        None
    }
    /// The open file of one of the caller's descriptors. EBADF.
    fn descriptor(&self, _fd: i32) -> Result<Arc<OpenFile>> {
        Err(Errno::EBADF)
    }
}
