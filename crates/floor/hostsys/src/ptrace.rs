//! ptrace(2) on threads that the calling thread has seized.

use abi::{Errno, Result};
use std::ptr;

pub use libc::user_regs_struct as Regs;

/// Options for [`seize`]: die with the tracer, mark system call stops, follow every clone.
const OPTIONS: i32 = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK;

/// Event number of a stop that was not caused by a signal.
pub const EVENT_STOP: i32 = libc::PTRACE_EVENT_STOP;
/// Event numbers of a clone: fork, vfork, clone.
pub const EVENT_CLONES: [i32; 3] =
    [libc::PTRACE_EVENT_FORK, libc::PTRACE_EVENT_VFORK, libc::PTRACE_EVENT_CLONE];
/// Signal number of a system call stop.
pub const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;

fn request(op: libc::c_uint, tid: i32, addr: usize, data: usize) -> Result<i64> {
    // SAFETY: called below only, with requests that take integers or pointers to live locals of the right size.
    crate::check(unsafe { libc::ptrace(op, tid, addr, data) } as i64)
}

/// Attaches to a process without stopping it.
pub fn seize(pid: i32) -> Result<()> {
    request(libc::PTRACE_SEIZE, pid, 0, OPTIONS as usize).map(drop)
}

/// Attaches to a thread without stopping it; it goes on by itself when the tracer ends.
pub fn seize_to_look(tid: i32) -> Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, 0).map(drop)
}

/// Lets a stopped thread go, with a signal or 0.
pub fn detach(tid: i32, signo: i32) -> Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signo as usize).map(drop)
}

/// What has become of one thread that the calling thread traces, if it has stopped or ended.
pub fn look(tid: i32) -> Result<Option<Event>> {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let r = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG) };
    if crate::check(i64::from(r))? == 0 {
        return Ok(None);
    }
    Ok(Some(match libc::WIFSTOPPED(status) {
        true => Event::Stopped(libc::WSTOPSIG(status), status >> 16),
        false => Event::Gone,
    }))
}

/// Stops a running thread ([`EVENT_STOP`]).
pub fn interrupt(tid: i32) -> Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Resumes; system calls are executed by the host. No signal is delivered.
pub fn resume(tid: i32) -> Result<()> {
    request(libc::PTRACE_CONT, tid, 0, 0).map(drop)
}

/// Resumes until the next system call, which is not executed. No signal is delivered.
pub fn emulate(tid: i32) -> Result<()> {
    request(libc::PTRACE_SYSEMU, tid, 0, 0).map(drop)
}

/// General-purpose registers of a stopped thread.
pub fn regs(tid: i32) -> Result<Regs> {
    // SAFETY: all-zero is a valid user_regs_struct.
    let mut r: Regs = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETREGS, tid, 0, ptr::from_mut(&mut r) as usize)?;
    Ok(r)
}

/// The registers in the order in which the structure, and so a core file, has them.
pub fn words(r: &Regs) -> [u64; 27] {
    [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi,
        r.rdi, r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base, r.gs_base, r.ds, r.es, r.fs, r.gs,
    ]
}

/// Replaces them; EIO for values the processor would refuse.
pub fn set_regs(tid: i32, r: &Regs) -> Result<()> {
    request(libc::PTRACE_SETREGS, tid, 0, ptr::from_ref(r) as usize).map(drop)
}

/// Signal that a thread stopped for: number, si_code, si_addr.
pub fn siginfo(tid: i32) -> Result<(i32, i32, u64)> {
    // SAFETY: all-zero is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, ptr::from_mut(&mut info) as usize)?;
    // SAFETY: si_addr is within siginfo_t; for other kinds it is some other integer.
    Ok((info.si_signo, info.si_code, unsafe { info.si_addr() } as u64))
}

/// Message of the last event: the new thread's id for a clone.
pub fn event_message(tid: i32) -> Result<u64> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, ptr::from_mut(&mut message) as usize)?;
    Ok(message)
}

/// Audit architecture of the thread at a system call stop.
pub fn syscall_arch(tid: i32) -> Result<u32> {
    // op, padding, arch, instruction and stack pointer, then a union
    let mut info = [0u32; 24];
    request(libc::PTRACE_GET_SYSCALL_INFO, tid, size_of_val(&info), info.as_mut_ptr() as usize)?;
    Ok(info[1])
}

const NT_X86_XSTATE: usize = 0x202;

/// Extended state of a stopped thread; the number of bytes it has.
pub fn xstate(tid: i32, buf: &mut [u8]) -> Result<usize> {
    let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, ptr::from_mut(&mut iov) as usize)?;
    Ok(iov.iov_len)
}

/// Replaces it; must have the full length.
pub fn set_xstate(tid: i32, bytes: &[u8]) -> Result<()> {
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, ptr::from_mut(&mut iov) as usize).map(drop)
}

/// What [`wait`] reports of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is gone and reaped.
    Gone,
    /// It stopped: signal number, event number or 0.
    Stopped(i32, i32),
}

/// Waits for the next event of any thread that the calling thread traces. `ending` is called with its id before a
/// thread that has ended is reaped (just after, in the rare case that it was killed while stopped). ECHILD when
/// there is none left.
pub fn wait(ending: impl Fn(i32)) -> Result<(i32, Event)> {
    // SAFETY: all-zero is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let which = libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: `info` is valid for writes.
        let r = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, which | libc::WNOWAIT) };
        match crate::check(i64::from(r)) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e),
        }
    }
    // SAFETY: waitid fills si_pid.
    let tid = unsafe { info.si_pid() };
    let ended = matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED);
    if ended {
        ending(tid);
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let r = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::__WNOTHREAD | libc::WNOHANG) };
    if crate::check(i64::from(r))? == 0 {
        return Err(Errno::EAGAIN);
    }
    if libc::WIFSTOPPED(status) {
        Ok((tid, Event::Stopped(libc::WSTOPSIG(status), status >> 16)))
    } else {
        if !ended {
            ending(tid);
        }
        Ok((tid, Event::Gone))
    }
}
