//! The boundary between the kernel and whatever runs guest code.
//!
//! A *platform* gives the kernel address spaces ([`AddressSpace`]) and guest
//! threads ([`Context`]). A context belongs to one sentry thread, which calls
//! [`Context::run`] in a loop. The kernel decides every mapping; the platform
//! has the guest thread execute it ([`Action`]). Memory is read and written
//! through the address space; nothing here maps guest memory into the sentry.
//!
//! Nothing that a context reports may be trusted beyond being *some* request
//! of that guest: registers, buffers and fault addresses are guest-controlled.

#![forbid(unsafe_code)]

mod native;

pub use native::{KNOWN_CALLS, NATIVE, NATIVE_CALLS, Native};

use abi::{Errno, Result};
pub use hostsys::memfd::CopyArea;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// General-purpose registers of a guest thread (names as in user_regs_struct).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "register names")]
pub struct Regs {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// On [`Exit::Syscall`] the system call number; `rax` then holds it too.
    pub orig_rax: u64,
    /// On [`Exit::Syscall`] the address after the `syscall` instruction.
    pub rip: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub fs_base: u64,
    pub gs_base: u64,
}

impl Regs {
    /// System call arguments in order.
    pub fn args(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }
}

/// Why [`Context::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The guest issued a system call; see [`Regs::orig_rax`].
    Syscall,
    /// The guest faulted.
    Fault(Fault),
    /// [`Interrupt::interrupt`] was called; registers are those of the guest
    /// at an arbitrary instruction boundary.
    Interrupted,
    /// A native futex wait (see [`Context`]) was interrupted. Registers are as
    /// for `Syscall`; the kernel finishes it with EINTR or restarts it.
    FutexInterrupted,
    /// An action queued for this resume failed; later ones were not executed
    /// and the guest has not resumed. The queue is empty again.
    ActionFailed {
        /// Position in the queue.
        index: usize,
        /// What the host answered (EFAULT for copies).
        errno: Errno,
    },
    /// The host process or thread that carried the guest is gone (killed by
    /// the host, or a hostile guest ended it). The context is unusable.
    Dead,
}

/// A processor exception raised by guest code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Signal number Linux maps the exception to (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP).
    pub signo: i32,
    /// si_code.
    pub code: i32,
    /// si_addr.
    pub addr: u64,
    /// Trap number (REG_TRAPNO) for the signal frame.
    pub trapno: u64,
    /// Error code (REG_ERR) for the signal frame.
    pub err: u64,
}

/// One operation that a guest thread executes on its own address space.
/// Ranges are page aligned where Linux wants them to be.
#[derive(Clone, Debug)]
pub enum Action {
    /// Map fresh private anonymous memory at exactly this place, replacing what is there.
    MapAnon {
        /// Start.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// PROT_* bits.
        prot: i32,
        /// Extra host flags out of MAP_NORESERVE, MAP_GROWSDOWN, MAP_POPULATE, MAP_LOCKED, MAP_STACK.
        flags: i32,
    },
    /// Map a file at exactly this place. `fd` is injected for the call and closed after it.
    MapFile {
        /// Start.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// PROT_* bits.
        prot: i32,
        /// MAP_SHARED or MAP_PRIVATE plus MAP_NORESERVE, MAP_POPULATE.
        flags: i32,
        /// The file, opened with no more rights than the guest has.
        fd: Arc<OwnedFd>,
        /// Offset in bytes.
        offset: u64,
    },
    /// munmap(2).
    Unmap {
        /// Start.
        addr: u64,
        /// Length in bytes.
        len: u64,
    },
    /// mprotect(2).
    Protect {
        /// Start.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// PROT_* bits.
        prot: i32,
    },
    /// mremap(2) with MREMAP_FIXED to `new_addr` (or in place when equal to `addr`).
    Remap {
        /// Old start.
        addr: u64,
        /// Old length.
        len: u64,
        /// New start.
        new_addr: u64,
        /// New length.
        new_len: u64,
        /// MREMAP_DONTUNMAP or 0.
        flags: i32,
    },
    /// madvise(2); the platform refuses advice outside its list with EINVAL.
    Advise {
        /// Start.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// MADV_* value.
        advice: i32,
    },
    /// Copy bytes into guest memory; EFAULT when that faults.
    Write {
        /// Destination.
        addr: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Store a 32-bit word, faults ignored, then FUTEX_WAKE `wake` shared waiters on it
    /// (thread exit: CLONE_CHILD_CLEARTID, robust futexes).
    StoreAndWake {
        /// Address of the word.
        addr: u64,
        /// New value; `None` leaves the word alone.
        value: Option<u32>,
        /// How many waiters to wake.
        wake: u32,
    },
    /// Name of this thread in the host's process lists, NUL padded.
    Name([u8; 16]),
    /// Command line of this address space in the host's process lists; a long one is cut. Copies (fork) inherit it.
    Title(Vec<u8>),
    /// Sets the guest's FS base.
    SetFsBase(u64),
    /// Sets the guest's GS base.
    SetGsBase(u64),
}

/// The range of addresses a guest may use, and fixed places in it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Lowest address a guest may map (mmap_min_addr).
    pub min: u64,
    /// One past the highest usable address.
    pub max: u64,
    /// Where the vDSO image stands (AT_SYSINFO_EHDR), outside `min..max`, and its length.
    pub vdso: Option<(u64, u64)>,
    /// Where the vvar pages stand and their length, for /proc/PID/maps.
    pub vvar: Option<(u64, u64)>,
    /// Size of the extended state (XSAVE area) of a signal frame in bytes.
    pub xstate_size: usize,
}

/// Bytes of memory that [`Context::add_area`] takes, page aligned.
pub const REWRITE_AREA: u64 = 0x1_0000;

/// What became of [`Context::rewrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The site now calls without a signal; this many bytes at this address differ from the file's.
    Done {
        /// First changed byte.
        addr: u64,
        /// How many.
        len: u64,
    },
    /// It stays as it is.
    Refused,
    /// There is no room within two gigabytes of it: [`Context::add_area`] first.
    NeedsArea,
}

/// A copy in memory of a file's text in which the platform rewrites call sites for every process that maps it, all of it and in
/// place of the file, privately, readable and executable. Offsets count from its start.
pub trait Twin: Send + Sync {
    /// What to map. Nobody but the platform can write it, through this descriptor neither.
    fn fd(&self) -> &Arc<OwnedFd>;
    /// Where rewritten sites lead, in the last page; nothing was there in the file. That page differs from the file's in nothing else.
    fn trampolines(&self) -> std::ops::Range<u64>;
    /// Rewrites the call site before this offset, for all at once. True when it has been, now or before. Anybody may name
    /// any offset.
    fn rewrite(&self, rip: u64) -> bool;
    /// The program's own offset for one inside a trampoline; any other stays the same.
    fn own_offset(&self, offset: u64) -> u64;
}

/// A way to run guest code.
pub trait Platform: Send + Sync {
    /// Name as given to `--platform`.
    fn name(&self) -> &'static str;
    /// Address limits, the same for every address space.
    fn limits(&self) -> Limits;
    /// A new empty address space with one guest thread that has not run yet (execve).
    /// The context's registers are zero; the kernel sets them before the first `run`.
    ///
    /// Errors: EAGAIN or ENOMEM when the host refuses another process.
    fn new_space(&self) -> Result<Box<dyn Context>>;
}

/// A guest address space, shared by its contexts.
pub trait AddressSpace: Send + Sync {
    /// Copies guest memory out; returns how many bytes were copied before a fault.
    /// 0 with a non-empty buffer means the first byte faulted.
    fn read(&self, addr: u64, buf: &mut [u8]) -> usize;
    /// Copies into guest memory; returns how many bytes were copied before a fault.
    fn write(&self, addr: u64, data: &[u8]) -> usize;
    /// Kills the host process that holds this address space. Idempotent; every
    /// context of it soon returns [`Exit::Dead`].
    fn kill(&self);
    /// Host process id, for debugging, resource usage and /proc of the host.
    fn host_pid(&self) -> i32;
}

/// A word of a guest thread that some platforms keep where the guest's side can change it without asking, by the system calls
/// that do nothing else. The guest may write anything there at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Blocked signals: rt_sigprocmask(2).
    Blocked,
    /// Signals that are pending: those must not be unblocked without asking. Only the kernel changes it.
    Pending,
    /// set_robust_list(2).
    RobustList,
    /// set_tid_address(2).
    ClearChildTid,
}

impl Word {
    /// All of them, in the order of their numbers.
    pub const ALL: [Word; 4] = [Word::Blocked, Word::Pending, Word::RobustList, Word::ClearChildTid];
}

/// Bytes of Linux's `struct rt_sigframe` from the return address on, up to the end of siginfo. Where the stack pointer is
/// 8 bytes behind its start, rt_sigreturn(2) may find it captured.
pub const SIGNAL_FRAME: usize = 440;
/// Offset of the extended state's address in it.
pub const SIGNAL_FRAME_FPSTATE: usize = 232;

/// Interrupts a context from another thread.
pub trait Interrupt: Send + Sync {
    /// Makes the context's current or next `run` return [`Exit::Interrupted`]
    /// (or `FutexInterrupted`) promptly. Sticky; several calls may merge into one.
    fn interrupt(&self);
    /// True while the context waits in a native futex call, as far as the guest does not hide it (for /proc).
    fn asleep(&self) -> bool {
        false
    }
    /// The host's id of the guest thread, as the guest's side has named it; 0 when there is none. Only for
    /// [`Context::thread_time`].
    fn host_tid(&self) -> i32 {
        0
    }
    /// What these system calls (number, result) of the context answer from now on, so that the platform may do without
    /// asking. Calls it does not know are ignored, and so is everything while [`Context::set_report_all`] is on.
    fn set_answers(&self, answers: &[(u32, u32)]) {
        let _ = answers;
    }
    /// Where the platform keeps the word; `None`: the kernel does.
    fn word(&self, which: Word) -> Option<&AtomicU64> {
        let _ = which;
        None
    }
}

/// Mode of [`Context::spawn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spawn {
    /// A thread in the same address space (threads, vfork and CLONE_VM children).
    Thread,
    /// A copy-on-write copy of the address space with one thread (fork).
    Fork,
}

/// True for the futex(2) operations that a platform runs on the host's own futex; `op` as in the register.
pub fn is_native_futex(op: u64) -> bool {
    let op = op as u32;
    let wait = matches!(op & 0x7f, 0 | 9);
    op & !0x1ff == 0 && (wait || matches!(op & 0x7f, 1 | 3 | 4 | 5 | 10) && op & 0x100 == 0)
}

/// One guest thread. Owned by the sentry thread that runs it.
///
/// futex(2) operations WAIT, WAKE, WAIT_BITSET, WAKE_BITSET, REQUEUE,
/// CMP_REQUEUE and WAKE_OP are executed by the platform itself on the host's
/// own futex and are not reported as `Exit::Syscall`. Nor need be sched_yield, arch_prctl(ARCH_SET_FS), rseq (which the
/// kernel does not have) and those of [`Interrupt::set_answers`]. All others are.
/// The platform does so unless [`Context::set_report_all`] is on.
pub trait Context: Send {
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
    /// Queues an [`Action::Write`].
    fn queue_write(&mut self, addr: u64, data: &[u8]) {
        self.queue(Action::Write { addr, data: data.to_vec() });
    }
    /// Where at most `len` bytes may be put now that [`Context::queue_copied`] then has written to `addr`; it may be shorter.
    /// `None`: there is no such place, or it is taken.
    fn copy_area(&self, addr: u64, len: usize) -> Option<CopyArea<'_>> {
        let _ = (addr, len);
        None
    }
    /// As [`Context::queue_write`] of the first `len` bytes of the area that began at `offset`. Nothing may be queued between
    /// [`Context::copy_area`] and this.
    fn queue_copied(&mut self, addr: u64, offset: usize, len: usize) {
        let _ = (addr, offset, len);
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
    /// True when this is the only guest thread of its address space: then nobody can tell whether a change of mappings is
    /// made now or at the resume.
    fn alone(&self) -> bool {
        false
    }
    /// Bytes that fit one queued `Write` cheaply; larger copies go through [`AddressSpace::write`].
    fn write_limit(&self) -> usize;
    /// Guest memory captured together with the system call, if it covers
    /// `addr..addr + buf.len()`; true when `buf` was filled from it.
    fn captured(&self, addr: u64, buf: &mut [u8]) -> bool;
    /// The part of a captured string from `addr` on, with its NUL if that was captured; at most `max` bytes.
    fn captured_str(&self, addr: u64, max: usize) -> Option<Vec<u8>> {
        let _ = (addr, max);
        None
    }
    /// Starts a new guest thread. Its registers are a copy of this thread's,
    /// which the kernel then changes (rax = 0, rsp, fs_base) before running it
    /// from a sentry thread of its own. Extended state is copied. Queued actions are flushed first.
    fn spawn(&mut self, how: Spawn) -> Result<Box<dyn Context>>;
    /// The extended state (XSAVE layout, as in a signal frame) of the stopped guest: `Limits::xstate_size` bytes
    /// with Linux's words at 464..512 in place, without the FP_XSTATE_MAGIC2 word that follows them in a frame.
    fn xstate(&mut self) -> Result<Vec<u8>>;
    /// Replaces the extended state; EINVAL when the bytes are not a valid image.
    fn set_xstate(&mut self, bytes: &[u8]) -> Result<()>;
    /// Resets the extended state to that of a new process.
    fn reset_xstate(&mut self);
    /// Writes a signal frame to guest memory at `addr` and the extended state, as [`Context::xstate`] gives it, at `xstate`,
    /// a multiple of 64, after the queued actions; resets the state. False when that is not to be had now, and nothing has
    /// been done; EFAULT when they cannot be written.
    fn store_frame(&mut self, addr: u64, frame: &[u8], xstate: u64) -> Result<bool> {
        let _ = (addr, frame, xstate);
        Ok(false)
    }
    /// Takes the extended state from guest memory, where one that [`Context::store_frame`] wrote is expected; the guest
    /// may have changed it. False when that is not to be had now; EFAULT when it cannot be read or is not valid.
    fn fetch_xstate(&mut self, addr: u64) -> Result<bool> {
        let _ = addr;
        Ok(false)
    }
    /// Has the guest thread replace the 32-bit word at `addr` by `new` if it is `old`, in one atomic step, after the
    /// queued actions. Gives what was there: `old` when it was replaced. EFAULT when the word cannot be written.
    fn compare_exchange(&mut self, addr: u64, old: u32, new: u32) -> Result<u32>;
    /// Largest resident set of the address space so far in KiB, as the host counts it; after the queued actions.
    fn max_rss(&mut self) -> Option<u64>;
    /// Processor time in nanoseconds of a thread of the same address space, this one or another; after the queued actions.
    fn thread_time(&mut self, host_tid: i32) -> Option<u64>;
    /// Handle by which other threads interrupt this one.
    fn interrupter(&self) -> Arc<dyn Interrupt>;
    /// Report every system call, native futexes and known answers included (strace, seccomp, ptrace).
    fn set_report_all(&mut self, on: bool);
    /// After an exit: a call site of the guest (the address after its `syscall`) for which [`Context::rewrite`] would
    /// pay. Each one is named only once.
    fn hot_site(&mut self) -> Option<u64> {
        None
    }
    /// Replaces instructions at a call site by a jump, so that calls from there are cheaper. The caller vouches that the
    /// 16 bytes on either side of `rip` are in one private file mapping that the guest can read and execute but never
    /// could write, and keeps everybody from changing mappings meanwhile. The bytes stay valid targets of jumps.
    fn rewrite(&mut self, rip: u64) -> Rewrite {
        let _ = rip;
        Rewrite::Refused
    }
    /// Gives [`REWRITE_AREA`] bytes of private anonymous memory, mapped readable and executable, to later rewrites in
    /// this address space (and in its forks). Only the platform may change it from now on.
    fn add_area(&mut self, start: u64) {
        let _ = start;
    }
    /// The guest takes the areas' memory for itself: every rewritten byte has been restored, and nothing is rewritten
    /// any more.
    fn forget_areas(&mut self) {}
    /// After an exit: call sites (addresses after a `syscall`) that have lately raised a first signal in this thread.
    fn new_sites(&mut self) -> Vec<u64> {
        Vec::new()
    }
    /// Makes a twin of `text`, whole pages, the last of which belongs to the program up to offset `end`; `sites` are call sites to be
    /// rewritten at once; every process of the sandbox may read it if it is `public`. `None`: it would be of no use, or cannot be made.
    fn make_twin(&self, text: &[u8], end: u64, sites: &[u64], public: bool) -> Option<Arc<dyn Twin>> {
        let _ = (text, end, sites, public);
        None
    }
    /// A twin is mapped at `start` in this address space (and in its forks).
    fn add_twin(&mut self, start: u64, twin: &Arc<dyn Twin>) {
        let _ = (start, twin);
    }
    /// Its trampolines are about to go; nothing leads there any more.
    fn forget_twin(&mut self, start: u64) {
        let _ = start;
    }
    /// After a futex call was reported because of `set_report_all`: sets the registers back so that the next `run`
    /// makes it again, this once without reporting it. False when the platform does not run that call itself.
    fn pass_futex(&mut self) -> bool;
    /// Ends the guest thread: executes queued actions (faults ignored), then the host thread exits.
    /// With the address space's last context this ends the host process as well.
    fn exit(self: Box<Self>);
}
