//! The boundary between the kernel and a platform, which runs guest code.
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

mod context;
mod guest_process;
mod native;
mod rewriting;

pub use context::{
    Context, ExtendedState, GuestMemory, HostUsage, MINCORE_PAGES, Moved, OwnCall, OwnCalls, Recycled,
    Transfer, Usage,
};
pub use guest_process::GuestProcess;
pub use native::{KNOWN_CALLS, NATIVE, NATIVE_CALLS, Native};
pub use rewriting::{REWRITE_AREA, Rewrite, Rewriter, Twin};

use abi::{Errno, Result};
pub use hostsys::memfd::CopyArea;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// General-purpose registers of a guest thread (names as in user_regs_struct).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    /// A futex call that [`Context::pass_futex`] let through, to be told of, has been made: `rax` is its result.
    FutexDone,
    /// The extended state of a signal frame, which was to be stored or loaded with this resume ([`Moved::Later`]) or before, was
    /// not; the guest has not resumed. The queue is empty again.
    FrameFailed,
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
    /// remap_file_pages(2) of a shared mapping, from page `first` of its file on.
    RemapFile {
        /// Start.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// Page of the file.
        first: u64,
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

/// The end of `len` bytes from `addr` on when all of them are in the range (start, length).
pub fn within(addr: u64, len: usize, (start, size): (u64, u64)) -> Option<u64> {
    let end = addr.checked_add(len as u64)?;
    (addr >= start && end - start <= size).then_some(end)
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
    /// As [`AddressSpace::read`], but gives the program's own bytes where the platform has changed its text.
    fn read_own(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.read(addr, buf)
    }
    /// Copies into guest memory; returns how many bytes were copied before a fault.
    fn write(&self, addr: u64, data: &[u8]) -> usize;
    /// Kills the host process that holds this address space. Idempotent; every
    /// context of it soon returns [`Exit::Dead`].
    fn kill(&self);
    /// Host process id, for debugging, resource usage and /proc of the host.
    fn host_pid(&self) -> i32;
    /// What the host counts of the process from before this address space.
    fn before(&self) -> Before {
        Before::default()
    }
    /// Processor time in nanoseconds that the guest has used in this address space, if the host tells.
    fn processor_time(&self) -> Option<u64> {
        let all = hostsys::clock::process_cpu_ns(self.host_pid())?;
        Some((all as u64).saturating_sub(self.before().time))
    }
}

/// What the host had counted of a process when an address space began in it.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Before {
    /// Processor time in nanoseconds.
    pub time: u64,
    /// As [`HostUsage::counts`].
    pub counts: [u64; 6],
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
    /// [`Usage::thread_time`].
    fn host_tid(&self) -> i32 {
        0
    }
    /// Processor time in nanoseconds that the thread of that id had used before it served this address space.
    fn time_before(&self) -> u64 {
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

/// Why a guest thread makes a call on the host's own futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeFutex {
    /// To wait; a signal may end it.
    Wait,
    /// To wake or move waiters.
    Wake,
}

/// What a call is that a platform runs on the host's own futex: most operations of futex(2) and all of its successors.
/// `None` for all other calls.
pub fn native_futex(nr: u64, args: &[u64; 6]) -> Option<NativeFutex> {
    match i64::try_from(nr).ok()? {
        abi::libc::SYS_futex if is_native_operation(args[1]) => {
            Some(if matches!(args[1] & 0x7f, 0 | 9) { NativeFutex::Wait } else { NativeFutex::Wake })
        }
        abi::libc::SYS_futex_waitv | FUTEX_WAIT => Some(NativeFutex::Wait),
        FUTEX_WAKE | FUTEX_REQUEUE => Some(NativeFutex::Wake),
        _ => None,
    }
}

/// futex_wake(2).
const FUTEX_WAKE: i64 = 454;
/// futex_wait(2).
const FUTEX_WAIT: i64 = 455;
/// futex_requeue(2).
const FUTEX_REQUEUE: i64 = 456;

/// Addresses in the registers of a native futex call, and how much of the memory behind each it uses.
pub fn futex_addresses(nr: u64, args: &[u64; 6]) -> [(u64, u64); 2] {
    let [a, op, _, d, e, _] = *args;
    match nr as i64 {
        abi::libc::SYS_futex if matches!(op & 0x7f, 0 | 9) => [(a, 4), (d, 16)],
        abi::libc::SYS_futex if matches!(op & 0x7f, 3..=5) => [(a, 4), (e, 4)],
        abi::libc::SYS_futex_waitv => [(a, 24), (d, 16)],
        FUTEX_WAIT => [(a, 4), (e, 16)],
        FUTEX_REQUEUE => [(a, 48), (0, 0)],
        _ => [(a, 4), (0, 0)],
    }
}

fn is_native_operation(op: u64) -> bool {
    let op = op as u32;
    let wait = matches!(op & 0x7f, 0 | 9);
    op & !0x1ff == 0 && (wait || matches!(op & 0x7f, 1 | 3 | 4 | 5 | 10) && op & 0x100 == 0)
}
