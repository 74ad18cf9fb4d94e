//! A guest thread as the kernel drives it.

use crate::Inner;
use crate::notify::Grant;
use crate::space::Space;
use crate::tracer::{AUDIT_ARCH_X86_64, COMPARE_EXCHANGE, CallEnd, Command, Key, Stop, Tracer};
use abi::libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_GROWSDOWN, MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE,
    MAP_SHARED, MAP_STACK, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE,
};
use abi::{Errno, Result};
use hostsys::process;
use platform::{
    Action, AddressSpace, Context, Exit, ExtendedState, Fault, GuestMemory, HostUsage, Interrupt, OwnCall,
    OwnCalls, Regs, Spawn, Usage,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use stub::layout as l;

/// The guest thread is (about to be) in guest code or a native futex wait.
const RUNNING: u32 = 1;
/// An interrupt has been asked for and not yet been reported.
const PENDING: u32 = 2;

/// The host thread is gone.
struct ThreadGone;

struct Interrupter {
    tracer: Arc<Tracer>,
    key: Key,
    state: AtomicU32,
    /// In a native futex wait.
    waiting: AtomicBool,
    tid: i32,
}

impl Interrupter {
    /// False when an interrupt waits to be reported.
    fn enter(&self) -> bool {
        let r = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |s| (s & PENDING == 0).then_some(s | RUNNING));
        r.is_ok()
    }

    fn leave(&self) {
        self.state.fetch_and(!RUNNING, Ordering::SeqCst);
    }

    fn take_pending(&self) -> bool {
        self.state.fetch_and(!PENDING, Ordering::SeqCst) & PENDING != 0
    }
}

impl Interrupt for Interrupter {
    fn asleep(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    fn host_tid(&self) -> i32 {
        self.tid
    }

    fn interrupt(&self) {
        if self.state.fetch_or(PENDING, Ordering::SeqCst) == RUNNING {
            self.tracer.send(Command::Interrupt { key: self.key });
        }
    }
}

/// See [`Context`].
pub(crate) struct PtraceContext {
    inner: Arc<Inner>,
    space: Arc<Space>,
    key: Key,
    tid: i32,
    regs: Regs,
    queue: Vec<Action>,
    report_all: bool,
    /// The next futex call is not reported, see `pass_futex`.
    passed: bool,
    /// It is to be told of.
    tell: bool,
    /// What it takes as its time-out.
    timeout: Option<[u64; 2]>,
    interrupter: Arc<Interrupter>,
    ended: bool,
}

fn range(addr: u64, len: u64, max: u64) -> Result<()> {
    match addr.checked_add(len) {
        Some(end) if end <= max => Ok(()),
        _ => Err(Errno::ENOMEM),
    }
}

fn only(flags: i32, allowed: i32) -> Result<()> {
    if flags & !allowed == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

impl PtraceContext {
    pub(crate) fn new(inner: Arc<Inner>, space: Arc<Space>, key: Key, regs: Regs) -> PtraceContext {
        let tid = space.process.pid;
        PtraceContext::thread(inner, space, key, tid, regs)
    }

    fn thread(inner: Arc<Inner>, space: Arc<Space>, key: Key, tid: i32, regs: Regs) -> PtraceContext {
        space.contexts.fetch_add(1, Ordering::SeqCst);
        let interrupter = Arc::new(Interrupter {
            tracer: inner.tracer.clone(),
            key,
            state: AtomicU32::new(0),
            waiting: AtomicBool::new(false),
            tid,
        });
        PtraceContext {
            inner,
            space,
            key,
            tid,
            regs,
            queue: Vec::new(),
            report_all: false,
            passed: false,
            tell: false,
            timeout: None,
            interrupter,
            ended: false,
        }
    }

    pub(crate) fn host_tid(&self) -> i32 {
        self.tid
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, ThreadGone> {
        let (answer, wait): (SyncSender<T>, Receiver<T>) = sync_channel(1);
        self.inner.tracer.send(command(answer));
        wait.recv().map_err(|_| ThreadGone)
    }

    fn host_call(&self, nr: i64, args: [u64; 6], grant: Option<Grant>) -> Result<u64> {
        let key = self.key;
        let r = self.ask(|answer| Command::Call { key, nr, args, grant, interruptible: false, answer });
        match r {
            Ok(CallEnd::Returned(r)) if (-4095..0).contains(&r) => Err(Errno::from_raw(-r as i32)),
            Ok(CallEnd::Returned(r)) => Ok(r as u64),
            Ok(CallEnd::Interrupted) => Err(Errno::EINTR),
            Err(ThreadGone) => Err(Errno::ESRCH),
        }
    }

    /// Has the thread make a host call.
    pub(crate) fn call(&mut self, nr: i64, args: [u64; 6], fd: Option<Arc<OwnedFd>>) -> Result<u64> {
        self.host_call(nr, args, fd.map(Grant::Fd))
    }

    /// Has the host write its answer to a call about `what` into guest memory; gives `N` bytes of it, from `offset` on. It goes to
    /// a page outside the guest's range that is there for this call. Threads of one process use different pages, most likely;
    /// should two use the same, one of them learns nothing.
    fn ask_host<const N: usize>(&mut self, nr: i64, what: u64, offset: u64) -> Option<[u8; N]> {
        self.flush().ok()?;
        let mut answer = [0; N];
        self.with_page(offset, &mut answer, |page| Ok((nr, [what, page, 0, 0, 0, 0]))).ok()?;
        Some(answer)
    }

    /// Makes a host call that may write to a page; copies what is there at `offset` to `out`.
    fn with_page(
        &mut self,
        offset: u64,
        out: &mut [u8],
        call: impl FnOnce(u64) -> Result<(i64, [u64; 6])>,
    ) -> Result<u64> {
        let len = abi::PAGE_SIZE;
        let page = self.own_page();
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED) as u64;
        let (nr, args) = call(page)?;
        self.call(libc::SYS_mmap, [page, len, prot, flags, u64::MAX, 0], None)?;
        let asked = self.call(nr, args, None);
        let read = process::vm_read(self.space.process.pid, page + offset, out);
        self.call(libc::SYS_munmap, [page, len, 0, 0, 0, 0], None)?;
        let result = asked?;
        if read? == out.len() { Ok(result) } else { Err(Errno::EFAULT) }
    }

    /// Blocks the host thread in a futex wait without an end.
    pub(crate) fn sleep_for_ever(&mut self) {
        let head = stub::IMAGE.first_chunk::<4>().copied().unwrap_or_default();
        let args = [l::STUB_TEXT, 128, u32::from_le_bytes(head).into(), 0, 0, 0];
        let (answer, _) = sync_channel(1);
        let (key, nr) = (self.key, libc::SYS_futex);
        self.inner.tracer.send(Command::Call { key, nr, args, grant: None, interruptible: false, answer });
    }

    fn clone_host(&mut self, flags: u64) -> Result<(Key, i32)> {
        let key = self.key;
        self.ask(|answer| Command::Clone { key, flags, answer }).map_err(|ThreadGone| Errno::EAGAIN)?
    }

    fn spawn_thread(&mut self) -> Result<PtraceContext> {
        let (key, tid) = self.clone_host(l::CLONE_THREAD_FLAGS)?;
        let mut new = PtraceContext::thread(self.inner.clone(), self.space.clone(), key, tid, self.regs);
        new.report_all = self.report_all;
        Ok(new)
    }

    pub(crate) fn spawn_fork(&mut self) -> Result<PtraceContext> {
        let (key, pid) = self.clone_host(l::CLONE_FORK_FLAGS)?;
        // The child is stopped and not reaped but by the tracer, so the id is its.
        let pidfd = process::pidfd_open(pid)?;
        let space = Arc::new(Space::new(pid, pidfd, &self.inner.limits));
        self.inner.tracer.add_space(&space);
        let mut new = PtraceContext::new(self.inner.clone(), space, key, self.regs);
        new.report_all = self.report_all;
        Ok(new)
    }

    // ---- actions -------------------------------------------------------------

    fn execute(&mut self, action: &Action) -> Result<()> {
        let max = self.inner.limits.max;
        let simple = |nr, args| self.host_call(nr, args, None).map(drop);
        match *action {
            Action::MapAnon { addr, len, prot, flags } => {
                only(flags, MAP_NORESERVE | MAP_GROWSDOWN | MAP_POPULATE | MAP_LOCKED | MAP_STACK)?;
                range(addr, len, max)?;
                let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
                simple(libc::SYS_mmap, [addr, len, prot as u64, flags as u64, u64::MAX, 0])
            }
            Action::MapFile { addr, len, prot, flags, ref fd, offset } => {
                only(flags, MAP_SHARED | MAP_PRIVATE | MAP_NORESERVE | MAP_POPULATE | MAP_LOCKED)?;
                range(addr, len, max)?;
                let kind = flags & (MAP_SHARED | MAP_PRIVATE);
                if kind != MAP_SHARED && kind != MAP_PRIVATE {
                    return Err(Errno::EINVAL);
                }
                let grant = Some(Grant::Fd(fd.clone()));
                let n = self.host_call(l::NR_NOTIFY as i64, [l::NOTIFY_FD, 0, 0, 0, 0, 0], grant)?;
                let flags = flags | MAP_FIXED;
                let mapped = simple(libc::SYS_mmap, [addr, len, prot as u64, flags as u64, n, offset]);
                let closed = simple(libc::SYS_close, [n, 0, 0, 0, 0, 0]);
                mapped.and(closed)
            }
            Action::Unmap { addr, len } => {
                range(addr, len, max)?;
                simple(libc::SYS_munmap, [addr, len, 0, 0, 0, 0])
            }
            Action::Protect { addr, len, prot } => {
                range(addr, len, max)?;
                simple(libc::SYS_mprotect, [addr, len, prot as u64, 0, 0, 0])
            }
            Action::Remap { addr, len, new_addr, new_len, flags } => {
                only(flags, MREMAP_DONTUNMAP)?;
                range(addr, len, max)?;
                range(new_addr, new_len, max)?;
                let flags = if addr == new_addr { 0 } else { flags | MREMAP_MAYMOVE | MREMAP_FIXED };
                simple(libc::SYS_mremap, [addr, len, new_len, flags as u64, new_addr, 0])
            }
            Action::RemapFile { addr, len, first } => {
                range(addr, len, max)?;
                simple(libc::SYS_remap_file_pages, [addr, len, 0, first, 0, 0])
            }
            Action::Advise { addr, len, advice } => {
                if u32::try_from(advice).map_or(true, |a| !stub::filter::MADVISE.contains(&a)) {
                    return Err(Errno::EINVAL);
                }
                range(addr, len, max)?;
                simple(libc::SYS_madvise, [addr, len, advice as u64, 0, 0, 0])
            }
            Action::Write { addr, ref data } => {
                self.touch(addr, data.len())?;
                if self.space.write(addr, data) == data.len() { Ok(()) } else { Err(Errno::EFAULT) }
            }
            Action::StoreAndWake { addr, value, wake } => {
                range(addr, 4, max).map_err(|_| Errno::EFAULT)?;
                if let Some(v) = value {
                    self.space.write(addr, &v.to_ne_bytes());
                }
                if wake > 0 {
                    // A fault only means that no thread waits there.
                    let _ = simple(libc::SYS_futex, [addr, 1, u64::from(wake), 0, 0, 0]);
                }
                Ok(())
            }
            Action::Name(name) => {
                // Threads of one process that are named at the same time may swap names in the host's lists.
                self.space.write_outside(stub::launch::NAME, &name)?;
                simple(libc::SYS_prctl, [libc::PR_SET_NAME as u64, stub::launch::NAME, 0, 0, 0, 0])
            }
            Action::Title(ref line) => {
                self.space.write_outside(stub::launch::TITLE, &stub::launch::title(line))
            }
            Action::SetFsBase(v) | Action::SetGsBase(v) => {
                if v < max {
                    Ok(())
                } else {
                    Err(Errno::EPERM)
                }
            }
        }
    }

    /// Has the guest's thread itself take the page faults of a large write. If they exceed a limit on memory, the host kills that
    /// process; in the course of a write from outside it goes on to kill others, as the first one's memory is held by the
    /// write. Small ones are not worth the time.
    fn touch(&mut self, addr: u64, len: usize) -> Result<()> {
        let (page, end) = (addr & !(abi::PAGE_SIZE - 1), addr.saturating_add(len as u64));
        if (len as u64) < abi::PAGE_SIZE || end > self.inner.limits.max {
            return Ok(());
        }
        let args = [page, end - page, libc::MADV_POPULATE_WRITE as u64, 0, 0, 0];
        match self.host_call(libc::SYS_madvise, args, None) {
            Err(Errno::ESRCH) => Err(Errno::ESRCH),
            // What cannot be written the write says.
            _ => Ok(()),
        }
    }

    fn flush_queue(&mut self) -> Result<(), (usize, Errno)> {
        let queue = std::mem::take(&mut self.queue);
        for (i, action) in queue.iter().enumerate() {
            self.execute(action).map_err(|e| (i, e))?;
        }
        Ok(())
    }

    // ---- running -----------------------------------------------------------------

    fn resume(&mut self) -> Result<Exit, ThreadGone> {
        loop {
            if !self.interrupter.enter() {
                self.interrupter.take_pending();
                return Ok(Exit::Interrupted);
            }
            let (key, regs) = (self.key, Box::new(self.regs));
            let stop = self.ask(|answer| Command::Resume { key, regs, answer });
            self.interrupter.leave();
            match stop? {
                Stop::Interrupted { regs } => {
                    self.regs = regs;
                    if self.interrupter.take_pending() {
                        return Ok(Exit::Interrupted);
                    }
                }
                Stop::Fault { regs, fault } => {
                    self.regs = regs;
                    return Ok(Exit::Fault(fault));
                }
                Stop::Syscall { regs, arch } if arch != AUDIT_ARCH_X86_64 => {
                    // int 0x80: there is no 32-bit interface, so the instruction faults as on a host without it.
                    self.regs = regs;
                    self.regs.rip = regs.rip.wrapping_sub(2);
                    self.regs.orig_rax = u64::MAX;
                    let (signo, code) = (libc::SIGSEGV, 128);
                    return Ok(Exit::Fault(Fault { signo, code, addr: 0, trapno: 13, err: 0x80 * 8 + 2 }));
                }
                Stop::Syscall { regs, .. } => {
                    self.regs = regs;
                    let passed = std::mem::take(&mut self.passed);
                    if self.report_all && !passed || !self.is_native_futex() {
                        return Ok(Exit::Syscall);
                    }
                    let tell = std::mem::take(&mut self.tell) && passed;
                    match self.native_futex()? {
                        Some(r) => {
                            self.regs.rax = r;
                            if tell {
                                return Ok(Exit::FutexDone);
                            }
                        }
                        None => return Ok(Exit::FutexInterrupted),
                    }
                }
            }
        }
    }

    /// As in the stub: the operations the host can do on its own.
    fn is_native_futex(&self) -> bool {
        platform::native_futex(self.regs.orig_rax, &self.regs.args()).is_some()
    }

    /// The call's result; `None` when it was interrupted.
    fn native_futex(&mut self) -> Result<Option<u64>, ThreadGone> {
        let (nr, mut args) = (self.regs.orig_rax, self.regs.args());
        let wait = platform::native_futex(nr, &args) == Some(platform::NativeFutex::Wait);
        let max = self.inner.limits.max;
        if platform::futex_addresses(nr, &args).iter().any(|(addr, len)| *addr >= max - len) {
            return Ok(Some(Errno::EFAULT.to_ret()));
        }
        let page = match self.timeout.take().map(|t| self.place_timeout(t)) {
            None => None,
            Some(Ok(page)) => {
                let at =
                    if nr as i64 == libc::SYS_futex || nr as i64 == libc::SYS_futex_waitv { 3 } else { 4 };
                args[at] = page;
                Some(page)
            }
            Some(Err(Errno::ESRCH)) => return Err(ThreadGone),
            Some(Err(e)) => return Ok(Some(e.to_ret())),
        };
        let result = self.call_futex(wait, nr as i64, args);
        if let Some(page) = page {
            // Of a process that has ended meanwhile there is nothing to give back.
            let _ = self.call(libc::SYS_munmap, [page, abi::PAGE_SIZE, 0, 0, 0, 0], None);
        }
        result
    }

    /// Puts a time-out in a page outside the guest's range, the thread's own: its address.
    fn place_timeout(&mut self, timeout: [u64; 2]) -> Result<u64> {
        let page = self.own_page();
        let prot = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED) as u64;
        self.call(libc::SYS_mmap, [page, abi::PAGE_SIZE, prot, flags, u64::MAX, 0], None)?;
        let mut bytes = [0; 16];
        let (seconds, nanoseconds) = bytes.split_at_mut(8);
        seconds.copy_from_slice(&timeout[0].to_ne_bytes());
        nanoseconds.copy_from_slice(&timeout[1].to_ne_bytes());
        self.space.write_outside(page, &bytes)?;
        Ok(page)
    }

    /// A page outside the guest's range. Threads of one process have different ones, most likely.
    fn own_page(&self) -> u64 {
        // The first page is taken.
        let pages = l::NSLOTS * l::STACK_SIZE / abi::PAGE_SIZE - 1;
        l::STACK_BASE + abi::PAGE_SIZE * (1 + self.tid as u64 % pages)
    }

    fn call_futex(&mut self, wait: bool, nr: i64, args: [u64; 6]) -> Result<Option<u64>, ThreadGone> {
        loop {
            if wait && !self.interrupter.enter() {
                self.interrupter.take_pending();
                return Ok(None);
            }
            let key = self.key;
            self.interrupter.waiting.store(wait, Ordering::Relaxed);
            let r =
                self.ask(|answer| Command::Call { key, nr, args, grant: None, interruptible: wait, answer });
            self.interrupter.waiting.store(false, Ordering::Relaxed);
            self.interrupter.leave();
            match r? {
                CallEnd::Returned(r) => return Ok(Some(r as u64)),
                CallEnd::Interrupted if self.interrupter.take_pending() => return Ok(None),
                CallEnd::Interrupted => {}
            }
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            for action in std::mem::take(&mut self.queue) {
                let _ = self.execute(&action);
            }
            // The host reaches a process's memory through its first thread: while others are left it stays
            // stopped, and then goes with the process.
            let last = self.space.contexts.fetch_sub(1, Ordering::SeqCst) == 1;
            let leader = self.tid == self.space.process.pid;
            match (last, leader) {
                (true, false) => self.space.kill(),
                (false, true) => {}
                _ => self.inner.tracer.send(Command::Exit { key: self.key }),
            }
        }
    }
}

impl Context for PtraceContext {
    fn space(&self) -> Arc<dyn AddressSpace> {
        self.space.clone()
    }

    fn regs(&mut self) -> &Regs {
        &self.regs
    }

    fn regs_mut(&mut self) -> &mut Regs {
        &mut self.regs
    }

    fn run(&mut self) -> Exit {
        match self.flush_queue() {
            Err((_, Errno::ESRCH)) => Exit::Dead,
            Err((index, errno)) => Exit::ActionFailed { index, errno },
            Ok(()) => self.resume().unwrap_or(Exit::Dead),
        }
    }

    fn queue(&mut self, action: Action) {
        let max = self.inner.limits.max;
        match action {
            Action::SetFsBase(v) if v < max => self.regs.fs_base = v,
            Action::SetGsBase(v) if v < max => self.regs.gs_base = v,
            _ => {}
        }
        self.queue.push(action);
    }

    fn flush(&mut self) -> Result<()> {
        self.flush_queue().map_err(|(_, e)| e)
    }

    fn spawn(&mut self, how: Spawn) -> Result<Box<dyn Context>> {
        self.flush()?;
        let new = match how {
            Spawn::Thread => self.spawn_thread()?,
            Spawn::Fork => self.spawn_fork()?,
        };
        Ok(Box::new(new))
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.interrupter.clone()
    }

    fn set_report_all(&mut self, on: bool) {
        (self.passed, self.tell, self.timeout) = (false, false, None);
        self.report_all = on;
    }

    fn patch_vdso(&mut self, addr: u64, data: &[u8]) -> Result<()> {
        let (start, len) = self.inner.limits.vdso.ok_or(Errno::EINVAL)?;
        platform::within(addr, data.len(), (start, len)).ok_or(Errno::EINVAL)?;
        self.flush()?;
        let protect = |prot: i32| [start, len, prot as u64, 0, 0, 0];
        self.host_call(libc::SYS_mprotect, protect(libc::PROT_READ | libc::PROT_WRITE), None)?;
        let written = self.space.write_outside(addr, data);
        self.host_call(libc::SYS_mprotect, protect(libc::PROT_READ | libc::PROT_EXEC), None)?;
        written
    }

    fn pass_futex(&mut self, tell: bool, timeout: Option<[u64; 2]>) -> bool {
        if !self.is_native_futex() || !self.report_all {
            return false;
        }
        (self.passed, self.tell, self.timeout) = (true, tell, timeout);
        self.regs.rip = self.regs.rip.wrapping_sub(2);
        self.regs.rax = self.regs.orig_rax;
        true
    }

    fn exit(mut self: Box<Self>) {
        self.end();
    }
}

impl GuestMemory for PtraceContext {
    fn queue_write(&mut self, addr: u64, data: &[u8]) {
        self.queue(Action::Write { addr, data: data.to_vec() });
    }

    fn write_limit(&self) -> usize {
        l::SLOT_DATA_SIZE as usize
    }

    fn captured(&self, _addr: u64, _buf: &mut [u8]) -> bool {
        false
    }

    fn compare_exchange(&mut self, addr: u64, old: u32, new: u32) -> Result<u32> {
        self.flush()?;
        range(addr, 4, self.inner.limits.max).map_err(|_| Errno::EFAULT)?;
        let args = [addr, new.into(), old.into(), 0, 0, 0];
        self.host_call(COMPARE_EXCHANGE, args, None).map(|v| v as u32)
    }
}

impl ExtendedState for PtraceContext {
    fn xstate(&mut self) -> Result<Vec<u8>> {
        let key = self.key;
        let host =
            self.ask(|answer| Command::GetXstate { key, answer }).map_err(|ThreadGone| Errno::ESRCH)??;
        self.inner.xstate.as_in_frame(&host)
    }

    fn set_xstate(&mut self, bytes: &[u8]) -> Result<()> {
        let key = self.key;
        let mut image = self.inner.xstate.sanitise(bytes)?;
        // The host wants its full size, which may exceed that of a frame.
        let host =
            self.ask(|answer| Command::GetXstate { key, answer }).map_err(|ThreadGone| Errno::ESRCH)??;
        image.resize(host.len(), 0);
        self.ask(|answer| Command::SetXstate { key, bytes: image, answer })
            .map_err(|ThreadGone| Errno::ESRCH)?
    }

    fn reset_xstate(&mut self) {
        // Fails only when the thread is gone, which the next run reports.
        let _ = self.set_xstate(&self.inner.xstate.initial());
    }
}

impl Usage for PtraceContext {
    fn usage(&mut self, thread: bool) -> Option<HostUsage> {
        let who = if thread { libc::RUSAGE_THREAD } else { libc::RUSAGE_SELF };
        let bytes = self.ask_host(libc::SYS_getrusage, who as u64, HostUsage::OFFSET as u64)?;
        Some(HostUsage::parse(&bytes))
    }

    fn thread_time(&mut self, host_tid: i32) -> Option<u64> {
        let clock = stub::filter::thread_clock(host_tid);
        stub::filter::nanoseconds(self.ask_host(libc::SYS_clock_gettime, clock, 0)?)
    }
}

impl OwnCalls for PtraceContext {
    fn own_call(&mut self, call: OwnCall, out: &mut [u8]) -> Result<u64> {
        self.flush()?;
        let limits = self.inner.limits;
        self.with_page(0, out, |page| stub::own_call::registers(call, page, &limits))
    }
}

impl Drop for PtraceContext {
    fn drop(&mut self) {
        self.queue.clear();
        self.end();
    }
}
