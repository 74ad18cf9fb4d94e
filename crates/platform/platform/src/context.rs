//! A guest thread, as several traits: running it, its memory, its extended state, its usage.

use crate::{Action, AddressSpace, CopyArea, Exit, Interrupt, Regs, Rewriter, Spawn};
use abi::Result;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// One guest thread. Owned by the sentry thread that runs it.
///
/// futex(2) operations WAIT, WAKE, WAIT_BITSET, WAKE_BITSET, REQUEUE,
/// CMP_REQUEUE and WAKE_OP, futex_waitv(2), futex_wake(2), futex_wait(2) and futex_requeue(2) are executed by the
/// platform itself on the host's own futex and are not reported as `Exit::Syscall`. Nor need be sched_yield, arch_prctl(ARCH_SET_FS), rseq (which the
/// kernel does not have) and those of [`Interrupt::set_answers`]. All others are.
/// The platform does so unless [`Context::set_report_all`] is on.
pub trait Context: GuestMemory + ExtendedState + Usage + OwnCalls + Send {
    /// The address space this thread runs in.
    fn space(&self) -> Arc<dyn AddressSpace>;
    /// After [`Exit::Syscall`]: the call's number and its arguments, as in the registers. Cheaper than these.
    fn call(&mut self) -> (u64, [u64; 6]) {
        let regs = self.regs();
        (regs.orig_rax, regs.args())
    }
    /// Sets rax, as [`Context::regs_mut`] does, but more cheaply.
    fn set_rax(&mut self, value: u64) {
        self.regs_mut().rax = value;
    }
    /// Registers as of the last exit.
    fn regs(&mut self) -> &Regs;
    /// Registers to resume with. fs_base and gs_base are honoured too.
    fn regs_mut(&mut self) -> &mut Regs;
    /// Executes queued actions, resumes the guest and waits for its next exit.
    fn run(&mut self) -> Exit;
    /// Lets a guest thread that has not run yet execute what is queued and run, without waiting for its exit: the next `run`
    /// waits for that. False: it does not run yet, and `run` starts it.
    fn begin(&mut self) -> bool {
        false
    }
    /// Queues an action for the next `run` or `flush`.
    fn queue(&mut self, action: Action);
    /// Has the guest thread execute the queued actions now, and waits.
    /// On failure the rest of the queue is dropped.
    fn flush(&mut self) -> Result<()>;
    /// True when a [`Context::flush`] would very likely be answered without anybody being woken.
    fn prompt(&self) -> bool {
        false
    }
    /// True when this is the only guest thread of its address space. Then no thread can see whether a change of
    /// mappings is made now or at the resume.
    fn alone(&self) -> bool {
        false
    }
    /// Starts a new guest thread. Its registers are a copy of this thread's,
    /// which the kernel then changes (rax = 0, rsp, fs_base) before running it
    /// from a sentry thread of its own. Extended state is copied. Queued actions are flushed first.
    fn spawn(&mut self, how: Spawn) -> Result<Box<dyn Context>>;
    /// Handle by which other threads interrupt this one.
    fn interrupter(&self) -> Arc<dyn Interrupt>;
    /// Report every system call, native futexes and known answers included (strace, seccomp, ptrace). A call that
    /// [`Context::pass_futex`] let through and that has not been made is reported again.
    fn set_report_all(&mut self, on: bool);
    /// Changes the program's text so that calls cost less; `None`: the platform does not.
    fn rewriter(&mut self) -> Option<&mut dyn Rewriter> {
        None
    }
    /// After a futex call was reported because of `set_report_all`: sets the registers back so that the next `run`
    /// makes it again, this once without reporting it. With `tell` that `run` returns [`Exit::FutexDone`] after the call.
    /// With `timeout` (seconds, nanoseconds) the call takes that in place of what its argument points to.
    /// False when the platform does not run that call itself.
    fn pass_futex(&mut self, tell: bool, timeout: Option<[u64; 2]>) -> bool;
    /// Writes to the vDSO image of this address space alone, `data` at the address `addr` in it, and waits. EINVAL outside of
    /// the image, EPERM and other errors of mprotect(2) where the host does not let it be changed.
    fn patch_vdso(&mut self, addr: u64, data: &[u8]) -> Result<()>;
    /// Ends the guest thread: executes queued actions (faults ignored), then the host thread exits.
    /// With the address space's last context this ends the host process as well.
    fn exit(self: Box<Self>);
    /// As [`Context::exit`], and keeps the host process for another program where that is possible. Its memory is
    /// emptied later. `None`: the process has ended, or is not to serve again.
    fn recycle(self: Box<Self>) -> Option<Recycled> {
        self.exit();
        None
    }
    /// Of [`Recycled::context`]: makes it what [`Platform::new_space`](crate::Platform::new_space) returns. EAGAIN: not yet,
    /// its memory is still being emptied. Other errors: the process has been killed. Never waits.
    ///
    /// A hostile program may still hold the process until the first `run`: a `flush` may then fail with ESRCH after some
    /// seconds, and the process is killed.
    fn renew(&mut self) -> Result<()> {
        Err(abi::Errno::EINVAL)
    }
}

/// A host process without a program.
pub struct Recycled {
    /// To be renewed before all else.
    pub context: Box<dyn Context>,
    /// Its `kill` ends the process unless it has emptied its memory and sleeps, for a guest that does not let that happen; once
    /// the context is renewed it does nothing.
    pub emptying: Arc<dyn AddressSpace>,
}

/// What a context adds to its [`AddressSpace`]: memory that came along with a call, and writes that go along with the resume.
pub trait GuestMemory {
    /// Queues an [`Action::Write`].
    fn queue_write(&mut self, addr: u64, data: &[u8]);
    /// Where at most `len` bytes may be put now that [`GuestMemory::queue_copied`] then has written to `addr`; it may be shorter.
    /// `None`: there is no such place, or it is taken.
    fn copy_area(&self, addr: u64, len: usize) -> Option<CopyArea<'_>> {
        let _ = (addr, len);
        None
    }
    /// As [`GuestMemory::queue_write`] of the first `len` bytes of the area that began at `offset`. Nothing may be queued between
    /// [`GuestMemory::copy_area`] and this.
    fn queue_copied(&mut self, addr: u64, offset: usize, len: usize) {
        let _ = (addr, offset, len);
    }
    /// Has the guest thread itself move bytes between a file and its memory with the next `run` or `flush`, after all that is
    /// queued. The descriptor is one that the guest could map. False: the platform does not, now. When the action fails, because
    /// not all bytes could be moved, nothing is known of what was moved: the call must be made another way.
    fn move_file(&mut self, fd: &Arc<OwnedFd>, moves: &Transfer) -> bool {
        let _ = (fd, moves);
        false
    }
    /// Bytes that fit one queued `Write` cheaply; larger copies go through [`AddressSpace::write`].
    fn write_limit(&self) -> usize;
    /// Guest memory captured together with the system call, if it covers
    /// `addr..addr + buf.len()`; true when `buf` was filled from it.
    fn captured(&self, addr: u64, buf: &mut [u8]) -> bool;
    /// Drops what was captured, because another thread may have changed the memory since.
    fn forget_captured(&mut self) {}
    /// The part of a captured string from `addr` on, with its NUL if that was captured; at most `max` bytes.
    fn captured_str(&self, addr: u64, max: usize) -> Option<Vec<u8>> {
        let _ = (addr, max);
        None
    }
    /// Has the guest thread replace the 32-bit word at `addr` by `new` if it is `old`, in one atomic step, after the
    /// queued actions. Gives what was there: `old` when it was replaced. EFAULT when the word cannot be written.
    fn compare_exchange(&mut self, addr: u64, old: u32, new: u32) -> Result<u32>;
}

/// Floating-point and vector registers of a stopped guest thread, as in a signal frame (XSAVE layout).
pub trait ExtendedState {
    /// The extended state (XSAVE layout, as in a signal frame) of the stopped guest: `Limits::xstate_size` bytes
    /// with Linux's words at 464..512 in place, without the FP_XSTATE_MAGIC2 word that follows them in a frame.
    fn xstate(&mut self) -> Result<Vec<u8>>;
    /// Replaces the extended state; EINVAL when the bytes are not a valid image.
    fn set_xstate(&mut self, bytes: &[u8]) -> Result<()>;
    /// Resets the extended state to that of a new process.
    fn reset_xstate(&mut self);
    /// Writes a signal frame to guest memory at `addr` and the extended state, as [`ExtendedState::xstate`] gives it, at `xstate`,
    /// a multiple of 64, after the queued actions; resets the state. EFAULT when they cannot be written. With `later` the
    /// platform may do that with the next `run`.
    fn store_frame(&mut self, addr: u64, frame: &[u8], xstate: u64, later: bool) -> Result<Moved> {
        let _ = (addr, frame, xstate, later);
        Ok(Moved::Not)
    }
    /// Takes the extended state from guest memory, where one that [`ExtendedState::store_frame`] wrote is expected; the guest
    /// may have changed it. EFAULT when it cannot be read or is not valid. `later` as above.
    fn fetch_xstate(&mut self, addr: u64, later: bool) -> Result<Moved> {
        let _ = (addr, later);
        Ok(Moved::Not)
    }
}

/// What has become of a wish to store extended state in guest memory, or to load it from there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// It is not to be had now, and nothing has been done.
    Not,
    /// It is done.
    Now,
    /// It is queued, and when it fails the next `run` returns [`Exit::FrameFailed`].
    Later,
}

/// Of a process or thread, as the host counts it.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct HostUsage {
    /// Largest resident set in KiB.
    pub maxrss: u64,
    /// Minor and major faults, blocks read and written, voluntary and involuntary context switches.
    pub counts: [u64; 6],
}

impl HostUsage {
    /// Where a host's `struct rusage` has what is needed of it.
    pub const OFFSET: usize = 32;
    /// How many bytes that is.
    pub const SIZE: usize = 112;

    /// From those bytes.
    pub fn parse(bytes: &[u8; HostUsage::SIZE]) -> HostUsage {
        let (words, _) = bytes.as_chunks::<8>();
        let word =
            |offset: usize| words.get((offset - HostUsage::OFFSET) / 8).map_or(0, |w| u64::from_ne_bytes(*w));
        HostUsage { maxrss: word(32), counts: [64, 72, 88, 96, 128, 136].map(word) }
    }
}

/// What the host counts for a guest.
pub trait Usage {
    /// What the host counts of the address space's process, or of this `thread` alone; after the queued actions.
    fn usage(&mut self, thread: bool) -> Option<HostUsage>;
    /// Processor time in nanoseconds of a thread of the same address space, this one or another; after the queued actions.
    fn thread_time(&mut self, host_tid: i32) -> Option<u64>;
}

/// A host call that a guest thread makes about its own address space, because the host alone knows the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnCall {
    /// membarrier(2): command and flags.
    Membarrier(i32, u32),
    /// mincore(2) of so many pages from an address on: a byte for each.
    Mincore(u64, usize),
    /// prctl(2) with PR_SET_THP_DISABLE: whether huge pages are off, and flags.
    HugePagesOff(bool, u64),
}

/// Pages that one [`OwnCall::Mincore`] asks about at most.
pub const MINCORE_PAGES: usize = 4096;

/// Host calls by guest threads.
pub trait OwnCalls {
    /// Makes the call after the queued actions. Gives its result; `out` is filled as far as the call has an answer in memory.
    fn own_call(&mut self, call: OwnCall, out: &mut [u8]) -> Result<u64>;
}

/// Bytes that a guest thread moves between a file and its memory.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Into the file; otherwise out of it.
    pub write: bool,
    /// Where in the guest's memory.
    pub addr: u64,
    /// How many.
    pub len: usize,
    /// Where in the file.
    pub offset: u64,
}
