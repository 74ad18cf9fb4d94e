//! The caller of a file operation: all narrow traits of the crate `caller`, and [`FileLayer`].

use super::{FileLayer, Vfs};
use ::caller::{
    Blocking, DeviceRules, DeviceUse, HasCredentials, Identity, Limits, Membership, Resources, SignalSource,
};
use abi::{Result, Signal};
use pid::{Pid, PidNamespace};
use rights::{Cap, Credentials, Creds};
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;
use wait::Waiter;

/// The calling task as file operations see it. Implemented by `task::Current`; tests have a plain one.
pub trait Caller:
    HasCredentials + Blocking + Identity + Limits + DeviceRules + Membership + FileLayer
{
}

impl<T> Caller for T where
    T: HasCredentials + Blocking + Identity + Limits + DeviceRules + Membership + FileLayer + ?Sized
{
}

/// The kernel itself as a caller, while it makes what programs then find: root, without limits, without signals.
pub struct Internal {
    vfs: Arc<Vfs>,
    creds: Arc<Credentials>,
}

impl Internal {
    /// The kernel with this file layer.
    pub fn new(vfs: &Arc<Vfs>) -> Internal {
        let creds = Arc::new(Credentials::root(&vfs.resources.user_ns, Cap::ALL));
        Internal { vfs: vfs.clone(), creds }
    }
}

impl HasCredentials for Internal {
    fn creds(&self) -> Creds {
        Creds::from_inner(self.creds.clone())
    }
    fn umask(&self) -> u32 {
        0
    }
}

impl Blocking for Internal {
    fn waiter(&self) -> Arc<Waiter> {
        Waiter::new()
    }
    fn raise(&self, _sig: Signal) {}
    fn blocks_or_ignores(&self, _sig: Signal) -> bool {
        true
    }
}

impl Identity for Internal {
    fn pid(&self) -> i32 {
        0
    }
    fn tid(&self) -> i32 {
        0
    }
    fn pgid(&self) -> i32 {
        0
    }
    fn sid(&self) -> i32 {
        0
    }
    fn pid_ns(&self) -> Option<Arc<PidNamespace>> {
        None
    }
    fn find_pid(&self, _nr: i32) -> Option<Arc<Pid>> {
        None
    }
}

impl Limits for Internal {
    fn rlimit(&self, _resource: i32) -> u64 {
        u64::MAX
    }
    fn resources(&self) -> &Arc<Resources> {
        &self.vfs.resources
    }
}

impl DeviceRules for Internal {}

impl Membership for Internal {}

impl FileLayer for Internal {
    fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }
}

/// A caller with other credentials, and without a limit on file sizes (Linux's `override_creds`).
pub struct As<'a> {
    cx: &'a dyn Caller,
    creds: Arc<Credentials>,
}

impl<'a> As<'a> {
    /// `cx` with the rights of `creds`.
    pub fn new(cx: &'a dyn Caller, creds: &Arc<Credentials>) -> As<'a> {
        As { cx, creds: creds.clone() }
    }
}

impl HasCredentials for As<'_> {
    fn creds(&self) -> Creds {
        Creds::from_inner(self.creds.clone())
    }
    fn umask(&self) -> u32 {
        0
    }
}

impl Blocking for As<'_> {
    fn waiter(&self) -> Arc<Waiter> {
        self.cx.waiter()
    }
    fn raise(&self, sig: Signal) {
        self.cx.raise(sig);
    }
    fn signals(&self) -> Option<&dyn SignalSource> {
        self.cx.signals()
    }
    fn blocks_or_ignores(&self, sig: Signal) -> bool {
        self.cx.blocks_or_ignores(sig)
    }
    fn is_killed(&self) -> bool {
        self.cx.is_killed()
    }
    fn deadline(&self) -> Option<Instant> {
        self.cx.deadline()
    }
    fn end_deadline(&self) -> Instant {
        self.cx.end_deadline()
    }
}

impl Identity for As<'_> {
    fn pid(&self) -> i32 {
        self.cx.pid()
    }
    fn tid(&self) -> i32 {
        self.cx.tid()
    }
    fn comm(&self) -> Vec<u8> {
        self.cx.comm()
    }
    fn pgid(&self) -> i32 {
        self.cx.pgid()
    }
    fn sid(&self) -> i32 {
        self.cx.sid()
    }
    fn pid_ns(&self) -> Option<Arc<PidNamespace>> {
        self.cx.pid_ns()
    }
    fn find_pid(&self, nr: i32) -> Option<Arc<Pid>> {
        self.cx.find_pid(nr)
    }
}

impl Limits for As<'_> {
    fn rlimit(&self, _resource: i32) -> u64 {
        u64::MAX
    }
    fn resources(&self) -> &Arc<Resources> {
        self.cx.resources()
    }
}

impl DeviceRules for As<'_> {
    fn has_device_rules(&self) -> bool {
        self.cx.has_device_rules()
    }
    fn check_device(&self, device: &DeviceUse) -> Result<()> {
        self.cx.check_device(device)
    }
}

impl Membership for As<'_> {
    fn container(&self) -> Option<u32> {
        self.cx.container()
    }
    fn net_ns(&self) -> Option<u64> {
        self.cx.net_ns()
    }
    fn net_ns_of_process(&self, nr: i32) -> Result<u64> {
        self.cx.net_ns_of_process(nr)
    }
    fn net_ns_of_descriptor(&self, fd: i32) -> Result<u64> {
        self.cx.net_ns_of_descriptor(fd)
    }
    fn cgroup_root(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.cx.cgroup_root()
    }
}

impl FileLayer for As<'_> {
    fn vfs(&self) -> &Arc<Vfs> {
        self.cx.vfs()
    }
}
