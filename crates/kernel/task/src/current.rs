//! The running task as its own sentry thread sees it: memory access, file
//! lookups, and the state only the thread itself touches.

use crate::kernel::Kernel;
use crate::own_transfer::OwnTransfer;
use crate::resource::ThreadHandle;
use crate::result::{Restart, SysErr, SysResult};
use crate::task::Task;
use crate::thread_group::ThreadGroup;
use crate::tree::Node;
use abi::{Errno, PATH_MAX, Result, SigInfo, SigSet, Signal};
use caller::Blocking;
use caller::DeviceRules;
use caller::DeviceUse;
use caller::HasCredentials;
use caller::Identity;
use caller::Limits;
use caller::Resources;
use caller::SignalSource;
use caller::UserMemory;
use files::FdTable;
use mm::Mm;
use mounts::FsContext;
use mounts::PathCaller;
use pid::{Pid, PidNamespace};
use platform::Context;
use rights::Creds;
use signal::AltStack;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use vfs::FileLayer;
use vfs::{Caller, InUse, OpenFile, Vfs};
use wait::Waiter;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What restart_syscall(2) goes on with.
#[derive(Clone, Debug)]
pub enum RestartBlock {
    /// nanosleep(2) and relative clock_nanosleep(2).
    Sleep {
        /// When it ends.
        deadline: Instant,
        /// Where the remaining time goes, 0 for nowhere.
        remain: u64,
    },
    /// poll(2).
    Poll {
        /// Array of struct pollfd.
        fds: u64,
        /// Its length.
        count: u32,
        /// When it ends.
        deadline: Option<Instant>,
    },
}

/// A guest thread together with its platform context; owned by its sentry thread.
pub struct Current {
    /// The shared part.
    pub task: Arc<Task>,
    /// The platform's side.
    pub ctx: Box<dyn Context>,
    /// Memory.
    pub mm: ThreadHandle<Arc<Mm>>,
    /// Alternate signal stack.
    pub altstack: AltStack,
    /// Signal mask to restore after this call unless a handler runs.
    pub saved_mask: Option<SigSet>,
    /// A transfer that the guest thread makes when it resumes.
    pub(crate) own_transfer: Option<OwnTransfer>,
    /// How to restart the interrupted call.
    pub restart: Option<Restart>,
    /// State for restart_syscall(2).
    pub restart_block: Option<RestartBlock>,
    /// Descriptor table.
    pub(crate) fd_table: ThreadHandle<InUse<FdTable>>,
    /// File system context.
    pub(crate) fs_context: ThreadHandle<InUse<FsContext>>,
    /// Set by exit(2): leave with this code.
    pub exit_code: Option<i32>,
    /// What the platform was last told with `set_report_all`.
    pub(crate) report_all: bool,
    /// The platform makes a futex call of a traced thread; the address after its `syscall`.
    pub(crate) passed_futex: Option<u64>,
    /// The processor's trap flag was set for a step, not by the program.
    pub(crate) forced_tf: bool,
    /// It runs no program, but the kernel's own init: see `own_init`.
    pub(crate) init: bool,
}

impl Current {
    /// A thread that is about to run, with what its task was made of.
    pub(crate) fn new(
        task: Arc<Task>,
        ctx: Box<dyn Context>,
        mm: Arc<Mm>,
        fds: Arc<FdTable>,
        fs: Arc<FsContext>,
    ) -> Current {
        Current {
            task,
            ctx,
            mm: ThreadHandle::new(mm),
            altstack: AltStack::default(),
            saved_mask: None,
            own_transfer: None,
            restart: None,
            restart_block: None,
            fd_table: ThreadHandle::new(InUse::new(fds)),
            fs_context: ThreadHandle::new(InUse::new(fs)),
            exit_code: None,
            report_all: false,
            passed_futex: None,
            forced_tf: false,
            init: false,
        }
    }

    /// The kernel.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.task.group.kernel
    }

    /// The thread that the caller calls by this number.
    pub fn find_task(&self, number: i32) -> Option<Arc<Task>> {
        self.kernel().task(self.find_vpid(number))
    }

    /// The process that the caller calls by this number, zombies included.
    pub fn find_group(&self, number: i32) -> Option<Arc<ThreadGroup>> {
        self.kernel().group(self.find_vpid(number))
    }

    /// Tells the platform what it may answer by itself.
    pub(crate) fn tell_platform(&self) {
        let tree = self.kernel().tree.lock();
        let parent = tree.node(self.task.tgid()).map_or(0, Node::parent);
        self.task.tell_all(parent);
    }

    /// Descriptor table.
    pub fn fds(&self) -> Arc<FdTable> {
        self.fd_table.clone()
    }

    /// Descriptor table, borrowed.
    pub fn fd_table(&self) -> &Arc<FdTable> {
        &self.fd_table
    }

    /// Root, working directory, umask, mounts.
    pub fn fs(&self) -> &Arc<FsContext> {
        &self.fs_context
    }

    /// True when other tasks use the same descriptor table.
    pub fn shares_fds(&self) -> bool {
        self.fd_table.is_shared()
    }

    /// Replaces the descriptor table (unshare(2), execve(2)).
    pub fn set_fds(&mut self, t: Arc<FdTable>) {
        let old = self.fd_table.replace(&self.task.fds_slot, InUse::new(t));
        if let Some(table) = old.leave() {
            table.close_all(self);
        }
    }

    /// Replaces the file system context (unshare(2)).
    pub fn set_fs(&mut self, f: Arc<FsContext>) {
        self.fs_context.replace(&self.task.fs_slot, InUse::new(f));
    }

    /// The open file behind a descriptor; EBADF when there is none.
    pub fn file(&self, fd: i32) -> Result<Arc<OpenFile>> {
        self.fd_table.get(fd)
    }

    /// Puts a file at the lowest free descriptor; EMFILE beyond RLIMIT_NOFILE.
    pub fn install(&self, file: Arc<OpenFile>, cloexec: bool) -> Result<i32> {
        self.fd_table.install(file, cloexec, self.rlimit(libc::RLIMIT_NOFILE as i32))
    }

    /// Reads guest memory; EFAULT unless all of it can be read.
    pub fn read_bytes(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        self.check_range(addr, buf.len() as u64)?;
        if self.ctx.captured(addr, buf) {
            return Ok(());
        }
        if self.mm.space.read(addr, buf) == buf.len() { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// Reads as much as possible; EFAULT when nothing.
    pub fn read_some(&self, addr: u64, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let room = self.kernel().platform.limits().max.saturating_sub(addr).min(buf.len() as u64) as usize;
        let buf = &mut buf[..room];
        if !buf.is_empty() && self.ctx.captured(addr, buf) {
            return Ok(buf.len());
        }
        match self.mm.space.read(addr, buf) {
            0 => Err(Errno::EFAULT),
            n => Ok(n),
        }
    }

    /// Writes guest memory; EFAULT unless all of it can be written. Small writes to plain
    /// memory are carried out by the guest thread when it resumes.
    pub fn write_bytes(&mut self, addr: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.check_range(addr, data.len() as u64)?;
        if data.len() <= self.ctx.write_limit() && self.mm.writable(addr, data.len() as u64) {
            self.ctx.queue_write(addr, data);
            return Ok(());
        }
        self.fault_in(addr, data.len() as u64)?;
        self.write_now(addr, data)
    }

    /// Writes guest memory at once, visible to other threads when this returns.
    pub fn write_now(&self, addr: u64, data: &[u8]) -> Result<()> {
        self.check_range(addr, data.len() as u64)?;
        if self.mm.space.write(addr, data) == data.len() { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// Writes as much as possible; says how much that was.
    pub fn write_some(&mut self, addr: u64, data: &[u8]) -> usize {
        if self.write_bytes(addr, data).is_ok() {
            return data.len();
        }
        let room = self.kernel().platform.limits().max.saturating_sub(addr).min(data.len() as u64) as usize;
        self.mm.space.write(addr, &data[..room])
    }

    /// EFAULT when the range is not part of the address space at all, mapped or not.
    pub fn check_range(&self, addr: u64, len: u64) -> Result<()> {
        match addr.checked_add(len) {
            Some(end) if end <= self.kernel().platform.limits().max => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }

    /// Reads a plain value.
    pub fn read_value<T: FromBytes + IntoBytes>(&self, addr: u64) -> Result<T> {
        let mut v = T::new_zeroed();
        self.read_bytes(addr, v.as_mut_bytes())?;
        Ok(v)
    }

    /// Writes a plain value.
    pub fn write_value<T: IntoBytes + Immutable>(&mut self, addr: u64, v: &T) -> Result<()> {
        self.write_bytes(addr, v.as_bytes())
    }

    /// Reads `count` values; EINVAL when that is more than `max`.
    pub fn read_array<T: FromBytes + IntoBytes + Immutable>(
        &self,
        addr: u64,
        count: usize,
        max: usize,
    ) -> Result<Vec<T>> {
        if count > max {
            return Err(Errno::EINVAL);
        }
        let mut v: Vec<T> = (0..count).map(|_| T::new_zeroed()).collect();
        self.read_bytes(addr, v.as_mut_slice().as_mut_bytes())?;
        Ok(v)
    }

    /// Reads a string up to its NUL, which is not included. Without a NUL in the first `max` bytes: `too_long`.
    pub fn read_cstr(&self, addr: u64, max: usize, too_long: Errno) -> Result<Vec<u8>> {
        let mut out = self.ctx.captured_str(addr, max).unwrap_or_default();
        if out.last() == Some(&0) {
            out.pop();
            return Ok(out);
        }
        let mut at = addr.checked_add(out.len() as u64).ok_or(Errno::EFAULT)?;
        loop {
            // Up to the page's end: the next page may be missing.
            let chunk = (4096 - (at % 4096) as usize).min(max - out.len());
            if chunk == 0 {
                return Err(too_long);
            }
            let start = out.len();
            out.resize(start + chunk, 0);
            let n = self.read_some(at, &mut out[start..])?;
            out.truncate(start + n);
            if let Some(z) = out[start..].iter().position(|&b| b == 0) {
                out.truncate(start + z);
                return Ok(out);
            }
            if n < chunk {
                return Err(Errno::EFAULT);
            }
            at = at.checked_add(n as u64).ok_or(Errno::EFAULT)?;
        }
    }

    /// Reads a path; ENAMETOOLONG beyond PATH_MAX.
    pub fn read_path(&self, addr: u64) -> Result<Vec<u8>> {
        self.read_cstr(addr, PATH_MAX, Errno::ENAMETOOLONG)
    }

    /// Reads a signal set argument whose size must be 8.
    pub fn read_sigset(&self, addr: u64, size: u64) -> Result<SigSet> {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        Ok(self.read_value::<SigSet>(addr)?.minus(SigSet::UNBLOCKABLE))
    }

    /// Changes the signal mask until the call is over: a delivered handler saves the old one,
    /// otherwise it is restored before the guest resumes (sigsuspend, ppoll, pselect, epoll_pwait).
    pub fn set_temporary_mask(&mut self, mask: SigSet) {
        if self.saved_mask.is_none() {
            self.saved_mask = Some(self.task.blocked());
        }
        self.task.set_blocked(mask);
    }

    /// Puts the mask of `set_temporary_mask` back at once: the call was not interrupted.
    pub fn restore_mask(&mut self) {
        if let Some(m) = self.saved_mask.take() {
            self.task.set_blocked(m);
        }
    }

    /// True when the thread is about to end, for a look between two pieces of a long call.
    pub fn is_killed(&self) -> bool {
        self.task.waiter.interrupted() && self.dying()
    }

    /// Has the platform make the futex call that was reported as all calls are, with another time-out (seconds, nanoseconds) than
    /// the call's if one is given. False when it does not make that call itself.
    pub fn pass_futex(&mut self, timeout: Option<[u64; 2]>) -> bool {
        let traced = self.task.trace.is_traced();
        let rip = traced.then(|| self.ctx.regs().rip);
        let passed = self.ctx.pass_futex(traced, timeout);
        self.passed_futex = rip.filter(|_| passed);
        passed
    }

    /// True when a fatal end is under way, which even uninterruptible sleeps honour.
    pub fn dying(&self) -> bool {
        self.task.group.signals.lock().life.ends(self.task.tid())
    }

    /// Completes a call with an errno in rax.
    pub fn set_result(&mut self, r: SysResult) {
        match r {
            Ok(v) => self.ctx.set_rax(v),
            Err(SysErr::Errno(e)) => self.ctx.set_rax(e.to_ret()),
            Err(SysErr::Restart(k)) => {
                self.restart = Some(k);
                self.ctx.set_rax(Errno::EINTR.to_ret());
            }
            Err(SysErr::NoReturn) => {}
        }
    }
}

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

/// A task as a [`vfs::Caller`].
pub struct TaskCaller(Arc<Task>);

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
}

impl PathCaller for TaskCaller {
    fn fs_context(&self) -> Option<Arc<FsContext>> {
        self.0.fs()
    }
}

impl HasCredentials for Current {
    fn creds(&self) -> Creds {
        self.task.creds()
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

impl Task {
    /// True while the thread sleeps in a call, for the state letter of /proc.
    pub fn is_sleeping(&self) -> bool {
        let mut native = false;
        self.with_interrupter(|i| native = i.asleep());
        native || self.sleeping.load(Ordering::Relaxed) || self.waiter.asleep()
    }
}
