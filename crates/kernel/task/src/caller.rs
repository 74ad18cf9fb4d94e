//! A task as the caller of subsystems: [`vfs::Caller`] and [`caller::UserMemory`]. Subsystems see [`Current`], or a [`TaskCaller`]
//! where they outlive the borrow of it.

use crate::current::Current;
use crate::namespace_caller::NamespaceCaller;
use crate::policing;
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Node;
use abi::{Errno, Result, SigInfo, Signal};
use caller::{
    Blocking, DeviceRules, DeviceUse, HasCredentials, Identity, Limits, Membership, Resources, SignalSource,
    UserMemory,
};
use files::FdTable;
use mounts::{FsContext, PathCaller};
use nsproxy::{Namespace, NsOps, NsProxy};
use pid::{Pid, PidNamespace};
use platform::Context;
use rights::Creds;
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;
use vfs::file::ProcessRef;
use vfs::policing::FileOperation;
use vfs::{Caller, FileLayer, InUse, OpenFile, Vfs};
use wait::Waiter;

impl Current {
    /// This task for subsystems, independent of the borrow of `self`.
    pub fn caller(&self) -> TaskCaller {
        TaskCaller(self.task.clone())
    }

    /// Runs `f` with the task as caller and the platform context side by side.
    pub fn with_context<T>(&mut self, f: impl FnOnce(&dyn Caller, &mut dyn Context) -> T) -> T {
        let caller = self.caller();
        f(&caller, self.ctx.as_mut())
    }
}

impl NamespaceCaller for TaskCaller {
    fn namespaces(&self) -> Option<Arc<NsProxy>> {
        Some(self.0.nsproxy())
    }
}

impl NamespaceCaller for Current {
    fn namespaces(&self) -> Option<Arc<NsProxy>> {
        Some(self.task.nsproxy())
    }
}

/// A task as a [`vfs::Caller`].
pub struct TaskCaller(Arc<Task>);

impl TaskCaller {
    /// This task as a caller.
    pub fn of(task: &Arc<Task>) -> TaskCaller {
        TaskCaller(task.clone())
    }
}

impl HasCredentials for TaskCaller {
    fn creds(&self) -> Creds {
        self.0.creds()
    }
    fn umask(&self) -> u32 {
        self.0.fs().map_or(0o22, |f| f.umask())
    }
}

impl Blocking for TaskCaller {
    fn waiter(&self) -> Arc<Waiter> {
        self.0.waiter.clone()
    }
    fn raise(&self, sig: Signal) {
        let info = SigInfo::user(sig, libc::SI_USER, self.0.group.pid.own_nr(), self.0.creds().uid);
        let _ = self.0.send(info);
    }
    fn blocks_or_ignores(&self, sig: Signal) -> bool {
        self.0.blocked().has(sig) || self.0.group.handlers().lock().get(sig).handler == signal::SIG_IGN
    }
    fn is_killed(&self) -> bool {
        self.0.is_killed()
    }
    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }
    fn end_deadline(&self) -> Instant {
        self.0.end_deadline()
    }
}

impl Identity for TaskCaller {
    fn pid(&self) -> i32 {
        self.0.tgid()
    }
    fn tid(&self) -> i32 {
        self.0.tid()
    }
    fn comm(&self) -> Vec<u8> {
        self.0.comm().split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    }
    fn pgid(&self) -> i32 {
        self.0.kernel().tree.lock().node(self.0.tgid()).map_or(0, Node::pgid)
    }
    fn sid(&self) -> i32 {
        self.0.kernel().tree.lock().node(self.0.tgid()).map_or(0, Node::sid)
    }
    fn pid_ns(&self) -> Option<Arc<PidNamespace>> {
        Some(self.0.pids().clone())
    }
    fn find_pid(&self, nr: i32) -> Option<Arc<Pid>> {
        if nr == self.0.tgid() {
            return Some(self.0.group.pid.clone());
        }
        self.0.kernel().pids.find(nr)
    }
}

impl Limits for TaskCaller {
    fn rlimit(&self, resource: i32) -> u64 {
        self.0.group.rlimit(resource)
    }
    fn resources(&self) -> &Arc<Resources> {
        &self.0.kernel().vfs.resources
    }
}

impl DeviceRules for TaskCaller {
    fn has_device_rules(&self) -> bool {
        self.0.cgroup.has_device_rules() || self.0.group.container.has_device_rules()
    }
    fn check_device(&self, device: &DeviceUse) -> Result<()> {
        self.0.group.container.check_device(device)?;
        self.0.cgroup.check_device(device)
    }
}

/// The number of a process's network namespace.
fn net_ns_of_process(asker: &Task, nr: i32) -> Result<u64> {
    let task = asker.kernel().task(nr).filter(|task| !task.is_leaving()).ok_or(Errno::ESRCH)?;
    Ok(task.nsproxy().net.inum)
}

/// The number of the network namespace that a file of nsfs is for.
fn net_ns_of_file(file: &OpenFile) -> Result<u64> {
    match file.ops.as_any().downcast_ref() {
        Some(NsOps(Namespace::Net(net))) => Ok(net.inum),
        _ => Err(Errno::EINVAL),
    }
}

impl Membership for TaskCaller {
    fn container(&self) -> Option<u32> {
        Some(self.0.group.container.index())
    }
    fn sees_first_root(&self) -> bool {
        self.0.fs().is_some_and(|fs| self.0.group.container.begins_at(&fs))
    }
    fn net_ns(&self) -> Option<u64> {
        Some(self.0.nsproxy().net.inum)
    }
    fn net_ns_of_process(&self, nr: i32) -> Result<u64> {
        net_ns_of_process(&self.0, nr)
    }
    fn net_ns_of_descriptor(&self, fd: i32) -> Result<u64> {
        net_ns_of_file(&*self.descriptor(fd)?)
    }
    fn cgroup_root(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.0.nsproxy().cgroup.root.clone())
    }
}

impl FileLayer for TaskCaller {
    fn vfs(&self) -> &Arc<Vfs> {
        &self.0.kernel().vfs
    }
    fn install(&self, file: Arc<OpenFile>, cloexec: bool) -> Result<i32> {
        let limit = self.rlimit(libc::RLIMIT_NOFILE as i32);
        self.0.fds().ok_or(Errno::EBADF)?.install(file, cloexec, limit)
    }
    fn descriptor(&self, fd: i32) -> Result<Arc<OpenFile>> {
        self.0.fds().ok_or(Errno::EBADF)?.get(fd)
    }
    fn decide(&self, operation: &FileOperation<'_>) -> Result<()> {
        policing::decide_file(self, &self.0, operation)
    }
    fn process(&self) -> Option<ProcessRef> {
        Some(ProcessRef(self.0.group.clone()))
    }
    fn process_of(&self, pid: &Pid) -> Option<ProcessRef> {
        self.0.kernel().tree.lock().node(pid.nr()).map(|node| ProcessRef(node.group.clone()))
    }
}

impl PathCaller for TaskCaller {
    fn fs_context(&self) -> Option<Arc<FsContext>> {
        self.0.fs()
    }
}

impl HasCredentials for Current {
    fn creds(&self) -> Creds {
        match &self.acting {
            Some(creds) => Creds::from_inner(creds.clone()),
            None => self.task.creds(),
        }
    }
    fn umask(&self) -> u32 {
        self.fs_context.umask()
    }
}

impl Blocking for Current {
    fn waiter(&self) -> Arc<Waiter> {
        self.task.waiter.clone()
    }
    fn raise(&self, sig: Signal) {
        self.caller().raise(sig);
    }
    fn signals(&self) -> Option<&dyn SignalSource> {
        Some(&*self.task)
    }
    fn blocks_or_ignores(&self, sig: Signal) -> bool {
        self.caller().blocks_or_ignores(sig)
    }
    fn is_killed(&self) -> bool {
        self.task.is_killed()
    }
    fn deadline(&self) -> Option<Instant> {
        self.task.deadline()
    }
    fn end_deadline(&self) -> Instant {
        self.task.end_deadline()
    }
}

impl Identity for Current {
    fn pid(&self) -> i32 {
        self.task.tgid()
    }
    fn tid(&self) -> i32 {
        self.task.tid()
    }
    fn comm(&self) -> Vec<u8> {
        self.caller().comm()
    }
    fn pgid(&self) -> i32 {
        self.caller().pgid()
    }
    fn sid(&self) -> i32 {
        self.caller().sid()
    }
    fn pid_ns(&self) -> Option<Arc<PidNamespace>> {
        Some(self.task.pids().clone())
    }
    fn find_pid(&self, nr: i32) -> Option<Arc<Pid>> {
        if nr == self.task.tgid() {
            return Some(self.task.group.pid.clone());
        }
        self.task.kernel().pids.find(nr)
    }
}

impl Limits for Current {
    fn rlimit(&self, resource: i32) -> u64 {
        self.task.group.rlimit(resource)
    }
    fn resources(&self) -> &Arc<Resources> {
        &self.task.kernel().vfs.resources
    }
}

impl DeviceRules for Current {
    fn has_device_rules(&self) -> bool {
        self.task.cgroup.has_device_rules() || self.task.group.container.has_device_rules()
    }
    fn check_device(&self, device: &DeviceUse) -> Result<()> {
        self.task.group.container.check_device(device)?;
        self.task.cgroup.check_device(device)
    }
}

impl Membership for Current {
    fn container(&self) -> Option<u32> {
        Some(self.task.group.container.index())
    }
    fn sees_first_root(&self) -> bool {
        self.task.group.container.begins_at(self.fs())
    }
    fn net_ns(&self) -> Option<u64> {
        Some(self.task.nsproxy().net.inum)
    }
    fn net_ns_of_process(&self, nr: i32) -> Result<u64> {
        net_ns_of_process(&self.task, nr)
    }
    fn net_ns_of_descriptor(&self, fd: i32) -> Result<u64> {
        net_ns_of_file(&*self.descriptor(fd)?)
    }
    fn cgroup_root(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.task.nsproxy().cgroup.root.clone())
    }
}

impl FileLayer for Current {
    fn vfs(&self) -> &Arc<Vfs> {
        &self.task.kernel().vfs
    }
    fn install(&self, file: Arc<OpenFile>, cloexec: bool) -> Result<i32> {
        Current::install(self, file, cloexec)
    }
    fn descriptor(&self, fd: i32) -> Result<Arc<OpenFile>> {
        self.fds().get(fd)
    }
    fn decide(&self, operation: &FileOperation<'_>) -> Result<()> {
        policing::decide_file(&self.caller(), &self.task, operation)
    }
    fn process(&self) -> Option<ProcessRef> {
        Some(ProcessRef(self.task.group.clone()))
    }
    fn process_of(&self, pid: &Pid) -> Option<ProcessRef> {
        self.caller().process_of(pid)
    }
}

impl PathCaller for Current {
    fn fs_context(&self) -> Option<Arc<FsContext>> {
        Some(self.fs_context.clone())
    }
}

impl UserMemory for Current {
    fn copy_in(&mut self, addr: u64, buf: &mut [u8]) -> Result<()> {
        self.read_bytes(addr, buf)
    }
    fn copy_out(&mut self, addr: u64, data: &[u8]) -> Result<()> {
        self.write_bytes(addr, data)
    }
}

impl Current {
    /// Replaces the descriptor table (unshare(2), execve(2)).
    pub fn set_fds(&mut self, t: Arc<FdTable>) {
        let old = self.fd_table.replace(&self.task.fds_slot, InUse::new(t));
        if let Some(table) = old.leave() {
            table.close_all(self);
        }
    }

    /// Puts a file at the lowest free descriptor; EMFILE beyond RLIMIT_NOFILE.
    pub fn install(&self, file: Arc<OpenFile>, cloexec: bool) -> Result<i32> {
        self.fd_table.install(file, cloexec, self.rlimit(libc::RLIMIT_NOFILE as i32))
    }

    /// The thread that the caller calls by this number.
    pub fn find_task(&self, number: i32) -> Option<Arc<Task>> {
        self.kernel().task(self.find_vpid(number))
    }

    /// The process that the caller calls by this number, zombies included.
    pub fn find_group(&self, number: i32) -> Option<Arc<ThreadGroup>> {
        self.kernel().group(self.find_vpid(number))
    }
}
