//! Mount namespaces and callers with a view of them, for tests.

use crate::{FsContext, MountNs, PathCaller};
use abi::Signal;
use caller::{Blocking, DeviceRules, HasCredentials, Identity, Limits, Membership, Resources};
use pid::{Pid, PidNamespace};
use rights::Creds;
use std::ops::Deref;
use std::sync::Arc;
use vfs::testing::TestCaller;
use vfs::{FileLayer, Mount, Vfs};
use wait::Waiter;

/// A mount namespace with this mount at its top, in a file layer of its own.
pub fn mount_ns(root: Arc<Mount>) -> Arc<MountNs> {
    MountNs::new(&TestCaller::root().vfs, root)
}

/// A caller with a view of the tree.
pub struct TestPathCaller {
    /// The caller.
    pub caller: TestCaller,
    /// Its root, working directory and mounts.
    pub fs: Option<Arc<FsContext>>,
}

impl Deref for TestPathCaller {
    type Target = TestCaller;
    fn deref(&self) -> &TestCaller {
        &self.caller
    }
}

impl HasCredentials for TestPathCaller {
    fn creds(&self) -> Creds {
        self.caller.creds()
    }
    fn umask(&self) -> u32 {
        self.caller.umask()
    }
}

impl Blocking for TestPathCaller {
    fn waiter(&self) -> Arc<Waiter> {
        self.caller.waiter()
    }
    fn raise(&self, sig: Signal) {
        self.caller.raise(sig);
    }
    fn blocks_or_ignores(&self, sig: Signal) -> bool {
        self.caller.blocks_or_ignores(sig)
    }
}

impl Identity for TestPathCaller {
    fn pid(&self) -> i32 {
        self.caller.pid()
    }
    fn tid(&self) -> i32 {
        self.caller.tid()
    }
    fn pgid(&self) -> i32 {
        self.caller.pgid()
    }
    fn sid(&self) -> i32 {
        self.caller.sid()
    }
    fn pid_ns(&self) -> Option<Arc<PidNamespace>> {
        self.caller.pid_ns()
    }
    fn find_pid(&self, nr: i32) -> Option<Arc<Pid>> {
        self.caller.find_pid(nr)
    }
}

impl Limits for TestPathCaller {
    fn rlimit(&self, resource: i32) -> u64 {
        self.caller.rlimit(resource)
    }
    fn resources(&self) -> &Arc<Resources> {
        self.caller.resources()
    }
}

impl DeviceRules for TestPathCaller {}

impl Membership for TestPathCaller {}

impl FileLayer for TestPathCaller {
    fn vfs(&self) -> &Arc<Vfs> {
        self.caller.vfs()
    }
}

impl PathCaller for TestPathCaller {
    fn fs_context(&self) -> Option<Arc<FsContext>> {
        self.fs.clone()
    }
}
