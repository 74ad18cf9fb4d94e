//! The running task as its own sentry thread sees it: memory access, file
//! lookups, and the state only the thread itself touches.

use crate::inherit::CurrentInherited;
use crate::kernel::Kernel;
use crate::own_transfer::OwnTransfer;
use crate::resource::ThreadHandle;
use crate::task::{Task, VforkGate};
use crate::tree::Node;
use abi::{Errno, PAGE_SIZE, PATH_MAX, Result, SigSet};
use container::Limits;
use files::FdTable;
use ktime::Ktime;
use mm::Mm;
use mounts::FsContext;
use platform::{Action, Context, Transfer};
use rights::cred::Credentials;
use signal::AltStack;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use sysresult::{Restart, SysErr, SysResult};
use tracee::After;
use vfs::{InUse, LentFd, OpenFile};
use wait::{Events, Stop, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What restart_syscall(2) goes on with.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum RestartBlock {
    /// nanosleep(2) and relative clock_nanosleep(2).
    Sleep {
        /// When it ends.
        deadline: Ktime,
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
        deadline: Option<Ktime>,
    },
}

/// What a kernel thread runs.
pub(crate) type KernelThread = Box<dyn FnOnce(&mut Current) + Send>;

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
    /// When the time-out ends of a call that was interrupted for a standstill, until it has started again.
    pub(crate) waits_until: Option<Ktime>,
    /// It waits in vfork(2); the result that the call will have.
    pub(crate) vforking: Option<u64>,
    /// What it waits for there, when it comes from a checkpoint.
    pub(crate) vfork_gate: Option<Arc<VforkGate>>,
    /// It is the kernel's own init of a container; the process of the program.
    pub(crate) own_init: Option<i32>,
    /// The processor's trap flag was set for a step, not by the program.
    pub(crate) forced_tf: bool,
    /// A tracer has yet to see the exit of a call that goes on after a standstill.
    pub(crate) exit_due: bool,
    /// A tracer has seen what a filter says of the call that is about to be made.
    pub(crate) filtered: bool,
    /// It comes from a checkpoint, and is in a stop.
    pub(crate) stopped: Option<After>,
    /// It runs this function of the kernel and no program, as a kernel thread of Linux.
    pub(crate) kernel_thread: Option<KernelThread>,
    /// Its guest thread runs, though it has no sentry thread yet.
    pub(crate) begun: bool,
    /// It acts with these credentials instead of its own for part of a call.
    pub(crate) acting: Option<Arc<Credentials>>,
}

impl Current {
    /// A thread that is about to run, with what its task was made of.
    pub(crate) fn new(
        task: Arc<Task>,
        ctx: Box<dyn Context>,
        mm: Arc<Mm>,
        fds: Arc<FdTable>,
        fs: Arc<FsContext>,
        inherited: CurrentInherited,
    ) -> Current {
        let CurrentInherited { altstack } = inherited;
        Current {
            task,
            ctx,
            mm: ThreadHandle::new(mm),
            altstack,
            saved_mask: None,
            own_transfer: None,
            restart: None,
            restart_block: None,
            fd_table: ThreadHandle::new(InUse::new(fds)),
            fs_context: ThreadHandle::new(InUse::new(fs)),
            exit_code: None,
            report_all: false,
            passed_futex: None,
            waits_until: None,
            vforking: None,
            vfork_gate: None,
            own_init: None,
            forced_tf: false,
            exit_due: false,
            filtered: false,
            stopped: None,
            kernel_thread: None,
            begun: false,
            acting: None,
        }
    }

    /// Calls `act` with these credentials in place of the thread's own, which others go on seeing (override_creds).
    pub fn acting_as<R>(&mut self, creds: Credentials, act: impl FnOnce(&Current) -> R) -> R {
        self.acting = Some(Arc::new(creds));
        let done = act(self);
        self.acting = None;
        done
    }

    /// What a new thread inherits from this one as it runs.
    pub(crate) fn inherited(&self) -> CurrentInherited {
        CurrentInherited { altstack: self.altstack }
    }

    /// The kernel.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.task.group.kernel
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

    /// Replaces the file system context (unshare(2)).
    pub fn set_fs(&mut self, f: Arc<FsContext>) {
        self.fs_context.replace(&self.task.fs_slot, InUse::new(f));
    }

    /// The open file behind a descriptor; EBADF when there is none.
    pub fn file(&self, fd: i32) -> Result<Arc<OpenFile>> {
        self.fd_table.get(fd)
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

    /// As [`Current::write_some`], but at once: for one of several pieces, of which only the first could go along with the answer.
    pub fn write_some_now(&mut self, addr: u64, data: &[u8]) -> usize {
        let room = self.kernel().platform.limits().max.saturating_sub(addr).min(data.len() as u64);
        match self.fault_in(addr, room) {
            Ok(()) => self.mm.space.write(addr, &data[..room as usize]),
            Err(_) => 0,
        }
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

    /// Reads a signal set argument, which must have the size 8.
    pub fn read_sigset(&self, addr: u64, size: u64) -> Result<SigSet> {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        Ok(self.read_value::<SigSet>(addr)?.minus(SigSet::UNBLOCKABLE))
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
        match self.unless_stood_still(r) {
            Ok(v) => self.ctx.set_rax(v),
            Err(SysErr::Errno(e)) => self.ctx.set_rax(e.to_ret()),
            Err(SysErr::Restart(k)) => {
                self.restart = Some(k);
                self.ctx.set_rax(Errno::EINTR.to_ret());
            }
            Err(SysErr::NoReturn) => {}
        }
    }

    /// Tells the platform which calls it may answer by itself.
    pub(crate) fn sync_report_all(&mut self) {
        let want = self.kernel().reports_all()
            || self.task.seccomp.wants_all()
            || self.task.trace.is_traced()
            // Time-outs of futexes are those of the host's clock.
            || self.task.nsproxy().time.is_shifted();
        if want != self.report_all {
            self.report_all = want;
            self.ctx.set_report_all(want);
        }
    }

    /// Sleeps until woken, interrupted or late; marks the thread sleeping for /proc.
    pub fn sleep(&self, deadline: Option<Instant>) -> Result<(), Stop> {
        self.task.sleeping.store(true, Ordering::Relaxed);
        let r = self.task.waiter.sleep(deadline);
        self.task.sleeping.store(false, Ordering::Relaxed);
        r
    }

    /// Waits on a queue until `attempt` gives something; interrupted by signals.
    pub fn wait_on<T>(
        &self,
        queue: &WaitQueue,
        deadline: Option<Instant>,
        attempt: impl FnMut() -> Option<T>,
    ) -> Result<T, Stop> {
        self.task.sleeping.store(true, Ordering::Relaxed);
        let r = self.task.waiter.wait_on(queue, Events::ALL, deadline, attempt);
        self.task.sleeping.store(false, Ordering::Relaxed);
        r
    }
}

impl Current {
    /// What the task's container may use and uses.
    pub fn limits(&self) -> &Limits {
        self.task.group.container.limits()
    }

    /// Under a limit on memory, has the guest's thread take the page faults of what is to be written from here. If they
    /// exceed the limit, the host kills that process; in the course of a write from outside it goes on to kill others, the
    /// one that stands for the container and the sentry among them, as the write itself keeps the first one's memory.
    pub fn fault_in(&mut self, addr: u64, len: u64) -> Result<()> {
        if len < PAGE_SIZE || self.limits().memory_max().is_none() {
            return Ok(());
        }
        self.ctx.flush()?;
        let start = addr & !(PAGE_SIZE - 1);
        let len = (addr + len).next_multiple_of(PAGE_SIZE) - start;
        self.ctx.queue(Action::Advise { addr: start, len, advice: libc::MADV_POPULATE_WRITE });
        match self.ctx.flush() {
            Err(Errno::ESRCH) => Err(Errno::EFAULT),
            // What cannot be written, the write says.
            _ => Ok(()),
        }
    }
}

impl Current {
    /// Has the guest thread move bytes when it resumes. `positioned`: the caller advances the file's position by as much. False:
    /// the platform does not.
    pub fn transfer_by_itself(
        &mut self,
        file: &Arc<OpenFile>,
        loan: LentFd,
        moves: &Transfer,
        positioned: bool,
    ) -> bool {
        if !self.ctx.move_file(&loan.fd, moves) {
            return false;
        }
        self.own_transfer = Some(OwnTransfer::new(file, loan, moves, positioned));
        true
    }

    /// The guest thread has resumed: what was foreseen has happened.
    pub(crate) fn settle_transfer(&mut self) {
        if self.own_transfer.is_some() {
            self.own_transfer = None;
        }
    }

    /// An action has failed: takes back what was foreseen of a transfer. False when there was none.
    pub(crate) fn take_back_transfer(&mut self) -> bool {
        let Some(own) = self.own_transfer.take() else { return false };
        own.take_back();
        self.restart = Some(Restart::NoIntr);
        true
    }

    /// Nanoseconds that the caller's time namespace adds to what the host's clock (CLOCK_*) shows.
    pub fn clock_offset(&self, clock: i32) -> i64 {
        self.task.nsproxy().time.offset_ns(clock)
    }
}
