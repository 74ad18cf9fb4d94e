//! What a process writes down when it dies by a panic or a fatal signal: to a descriptor that it was given at its start.
//!
//! The thread that dies writes the head, the cause, its registers and the addresses on its stack. It makes host calls
//! only, on memory that is its own, and reads the stack by process_vm_readv(2), which fails where an access would
//! fault. Then it wakes a thread that waits in [`sleep`], lets that add what takes locks and memory, for a second at
//! most, and the process ends. Names of functions are found by the reader: the addresses are relative to the program.

use crate::process::vm_read;
use std::fmt::{self, Write};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::addr_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

unsafe extern "C" {
    /// First byte of the program in memory; defined by the linker.
    #[link_name = "__executable_start"]
    static START: u8;
    /// First byte after its code; defined by the linker.
    #[link_name = "etext"]
    static END: u8;
}

/// Signals that end the process with a report.
const FATAL: [(i32, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGABRT, "SIGABRT"),
];

/// Most callers that are shown.
const MOST_FRAMES: usize = 64;
/// With fewer, the frame pointers led nowhere.
const FEW_FRAMES: usize = 4;
/// How much of the stack is then looked at, in bytes.
const SCANNED: usize = 4096;
/// A fault this near to the stack pointer is an overflow of the stack, whose guard is hit.
const NEAR_STACK: u64 = 64 << 10;

/// Where to write, and the text that is known from the start.
static REPORT: OnceLock<(OwnedFd, String)> = OnceLock::new();
/// The thread that dies; 0 as long as none does.
static DYING: AtomicI32 = AtomicI32::new(0);
/// One of the values below; a futex.
static STATE: AtomicU32 = AtomicU32::new(LIVES);

const LIVES: u32 = 0;
const WANTS_MORE: u32 = 1;
const COMPLETE: u32 = 2;

/// The name of a signal that ends a process for what it has done.
pub fn signal_name(signo: i32) -> Option<&'static str> {
    let system = (libc::SIGSYS, "SIGSYS");
    FATAL.iter().chain([&system]).find(|(known, _)| *known == signo).map(|(_, name)| *name)
}

/// The address at which the program begins in memory.
pub fn program_start() -> u64 {
    addr_of!(START) as u64
}

/// From now on the process writes a report to `to` when it dies, `head` first. To be called once, and before another
/// handler of one of the signals is installed that goes on to the one before it.
pub fn report_to(to: OwnedFd, head: String) -> io::Result<()> {
    if REPORT.set((to, head)).is_err() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    for (signo, _) in FATAL {
        // SAFETY: an all-zero sigaction is valid; the handler has the signature that SA_SIGINFO asks for and makes only
        // calls that a handler may make.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND | libc::SA_NODEFER;
            libc::sigaction(signo, &raw const action, std::ptr::null_mut())
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Reports a panic of the calling thread. The caller then ends the process.
pub fn report_panic(what: &str) {
    let Some(out) = begin() else { return };
    let frame: u64;
    // SAFETY: copies a register.
    unsafe { std::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    let _ = writeln!(Direct(out), "cause: panic\n{what}\n\nthread: {}\nbacktrace:", crate::clock::gettid());
    callers(out, frame);
    finish();
}

/// Waits for so long, or until a thread dies; then true: what [`add`] adds within a second is in the report.
pub fn sleep(time: Duration) -> bool {
    let limit = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: the word is a static, and the time a local that outlives the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            addr_of!(STATE),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            LIVES,
            &raw const limit,
        )
    };
    STATE.load(Ordering::SeqCst) == WANTS_MORE
}

/// Adds to the report, whether the process dies or not.
pub fn add(text: &str) {
    if let Some((to, _)) = REPORT.get() {
        write_all(to.as_raw_fd(), text.as_bytes());
    }
}

/// Everything has been added: the process may end.
pub fn complete() {
    STATE.store(COMPLETE, Ordering::SeqCst);
}

/// Begins the report, unless another thread has, or there is none.
fn begin() -> Option<RawFd> {
    let (to, head) = REPORT.get()?;
    let me = crate::clock::gettid();
    match DYING.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {
            write_all(to.as_raw_fd(), head.as_bytes());
            Some(to.as_raw_fd())
        }
        // The abort after a panic, or a fault in the report itself.
        Err(other) if other == me => None,
        Err(_) => {
            // The other thread ends the process.
            pause(Duration::from_secs(5));
            None
        }
    }
}

/// Lets the thread that waits in [`sleep`] add to the report.
fn finish() {
    STATE.store(WANTS_MORE, Ordering::SeqCst);
    // SAFETY: the word is a static.
    unsafe {
        libc::syscall(libc::SYS_futex, addr_of!(STATE), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX)
    };
    for _ in 0..200 {
        if STATE.load(Ordering::SeqCst) == COMPLETE {
            return;
        }
        pause(Duration::from_millis(5));
    }
}

fn pause(time: Duration) {
    let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // SAFETY: the time is a local that outlives the call; nothing is written.
    unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
}

extern "C" fn on_signal(signo: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both; they are only read, while the handler runs. Both fields are integers.
    let (code, address, sender, registers) = unsafe {
        let address = (*info).si_addr() as u64;
        let registers = (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        ((*info).si_code, address, (*info).si_pid(), registers)
    };
    let register = |which: i32| registers[which as usize] as u64;
    let Some(out) = begin() else { return };
    let name = signal_name(signo).unwrap_or("?");
    let mut text = Direct(out);
    let (ip, sp, bp) = (register(libc::REG_RIP), register(libc::REG_RSP), register(libc::REG_RBP));
    let _ = write!(text, "cause: signal {signo} ({name}), code {code}");
    let raised = code > 0;
    // SAFETY: no arguments.
    let own = !raised && sender == unsafe { libc::getpid() };
    if raised {
        let _ = write!(text, ", address {address:#x}");
        if signo == libc::SIGSEGV && address.abs_diff(sp) < NEAR_STACK {
            let _ = write!(text, ": the stack is too short");
        }
    } else {
        let _ = write!(text, ", sent by {}", if own { "this process itself" } else { "another process" });
    }
    let _ = writeln!(text, "\n\nthread: {}\nregisters:", crate::clock::gettid());
    for (name, which) in REGISTERS {
        let _ = writeln!(text, "  {name:<4}{:#018x}", register(which));
    }
    let _ = writeln!(text, "backtrace:");
    caller(out, ip);
    if callers(out, bp) < FEW_FRAMES {
        let _ = writeln!(text, "addresses of the program on the stack:");
        scan(out, sp);
    }
    finish();
    if !raised && !own {
        // Executed again, the instruction would not fault. After a signal of its own abort(3) goes on.
        // SAFETY: ends the process.
        unsafe { libc::_exit(128 + signo) };
    }
    // The handler is gone: the same fault is fatal now, and leaves the right status.
}

const REGISTERS: [(&str, i32); 18] = [
    ("rip", libc::REG_RIP),
    ("rsp", libc::REG_RSP),
    ("rbp", libc::REG_RBP),
    ("rax", libc::REG_RAX),
    ("rbx", libc::REG_RBX),
    ("rcx", libc::REG_RCX),
    ("rdx", libc::REG_RDX),
    ("rsi", libc::REG_RSI),
    ("rdi", libc::REG_RDI),
    ("r8", libc::REG_R8),
    ("r9", libc::REG_R9),
    ("r10", libc::REG_R10),
    ("r11", libc::REG_R11),
    ("r12", libc::REG_R12),
    ("r13", libc::REG_R13),
    ("r14", libc::REG_R14),
    ("r15", libc::REG_R15),
    ("efl", libc::REG_EFL),
];

/// Follows the frame pointers, which all of the program keeps but the C library. Says how many callers were found.
fn callers(out: RawFd, mut frame: u64) -> usize {
    // SAFETY: no arguments.
    let pid = unsafe { libc::getpid() };
    for found in 0..MOST_FRAMES {
        let mut pair = [0; 16];
        if frame == 0 || !frame.is_multiple_of(8) || vm_read(pid, frame, &mut pair) != Ok(pair.len()) {
            return found;
        }
        let (next, address) = pair.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let (next, address) = (word(next), word(address));
        // The call, not what follows it.
        caller(out, address.wrapping_sub(1));
        if next <= frame {
            return found + 1;
        }
        frame = next;
    }
    MOST_FRAMES
}

/// Shows what may be return addresses, from the top of the stack.
fn scan(out: RawFd, stack: u64) {
    // SAFETY: no arguments.
    let pid = unsafe { libc::getpid() };
    let program = program();
    let mut shown = 0;
    for at in (stack & !7..).step_by(8).take(SCANNED / 8) {
        let mut word = [0; 8];
        if vm_read(pid, at, &mut word) != Ok(word.len()) {
            return;
        }
        let address = u64::from_le_bytes(word);
        if program.contains(&address) && shown < MOST_FRAMES {
            caller(out, address.wrapping_sub(1));
            shown += 1;
        }
    }
}

fn program() -> Range<u64> {
    program_start()..addr_of!(END) as u64
}

/// An address of the program is shown by its distance from the program's first byte.
fn caller(out: RawFd, address: u64) {
    let program = program();
    let _ = match program.contains(&address) {
        true => writeln!(Direct(out), "  ringfence+{:#x}", address - program.start),
        false => writeln!(Direct(out), "  {address:#x}"),
    };
}

/// Writes to a descriptor at once.
struct Direct(RawFd);

impl Write for Direct {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_all(self.0, text.as_bytes());
        Ok(())
    }
}

fn write_all(to: RawFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the pointer and the length are of one slice.
        let n = unsafe { libc::write(to, bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(n) {
            Ok(n) if n > 0 => bytes = bytes.get(n..).unwrap_or_default(),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// Not a test by itself: dies as the environment says, and leaves a report in a file.
    #[test]
    #[ignore = "started by the next ones"]
    fn helper_that_dies() {
        let Some(path) = std::env::var_os("CRASH_REPORT") else { return };
        let file = std::fs::File::create(path).unwrap();
        report_to(file.into(), "head\n".into()).unwrap();
        std::thread::spawn(|| {
            while !sleep(Duration::from_millis(50)) {}
            add("more\n");
            complete();
        });
        match std::env::var("CRASH_BY").unwrap().as_str() {
            "panic" => {
                std::panic::set_hook(Box::new(|info| {
                    report_panic(&info.to_string());
                    std::process::abort();
                }));
                panic!("so be it");
            }
            // SAFETY: the address is never mapped; the fault is what is wanted.
            "fault" => unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) },
            "stack" => drop(recursion(1)),
            _ => std::process::abort(),
        }
    }

    #[expect(unconditional_recursion, reason = "runs out of stack")]
    fn recursion(n: u64) -> u64 {
        let block = std::hint::black_box([n; 512]);
        recursion(n ^ block[3]) ^ block[7]
    }

    fn report(by: &str) -> (String, Option<i32>) {
        let path = std::env::temp_dir().join(format!("crash-{by}-{}", std::process::id()));
        let me = std::env::current_exe().unwrap();
        let args = ["--exact", "--ignored", "crash::tests::helper_that_dies"];
        let mut command = std::process::Command::new(me);
        let end = command.args(args).env("CRASH_REPORT", &path).env("CRASH_BY", by).output().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with("head\ncause: ") && text.ends_with("more\n"), "{text}");
        assert!(text.matches("  ringfence+0x").count() >= 3, "{text}");
        assert_eq!(text.matches("cause").count(), 1, "{text}");
        (text, end.status.signal())
    }

    #[test]
    fn panics_are_reported() {
        let (text, signal) = report("panic");
        assert!(text.contains("cause: panic\n") && text.contains("so be it"), "{text}");
        assert_eq!(signal, Some(libc::SIGABRT));
    }

    #[test]
    fn faults_are_reported() {
        let (text, signal) = report("fault");
        assert!(text.contains("signal 11 (SIGSEGV), code 1, address 0x10\n"), "{text}");
        assert!(text.contains("  rip 0x"), "{text}");
        assert_eq!(signal, Some(libc::SIGSEGV));
        let (text, signal) = report("stack");
        assert!(text.contains("(SIGSEGV)") && text.contains("the stack is too short"), "{text}");
        assert_eq!(signal, Some(libc::SIGSEGV));
    }

    #[test]
    fn aborts_are_reported() {
        let (text, signal) = report("abort");
        assert!(text.contains("signal 6 (SIGABRT)"), "{text}");
        assert_eq!(signal, Some(libc::SIGABRT));
    }
}
