//! ptrace(2). Requests on a stopped thread; its registers are in `ptrace_regs`.

use crate::processes::ptrace_regs as regs;
use abi::{Errno, SigInfo, SigSet};
use caller::HasCredentials;
use rights::Cap;
use std::sync::Arc;
use task::{Current, Resume, SysResult, Task};
use tracee::{MESSAGE_ENTRY, MESSAGE_EXIT, event};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const TRACEME: u64 = 0;
const PEEKTEXT: u64 = 1;
const PEEKDATA: u64 = 2;
const PEEKUSER: u64 = 3;
const POKETEXT: u64 = 4;
const POKEDATA: u64 = 5;
const POKEUSER: u64 = 6;
const CONT: u64 = 7;
const KILL: u64 = 8;
const SINGLESTEP: u64 = 9;
const GETREGS: u64 = 12;
const SETREGS: u64 = 13;
const GETFPREGS: u64 = 14;
const SETFPREGS: u64 = 15;
const ATTACH: u64 = 16;
const DETACH: u64 = 17;
const SYSCALL: u64 = 24;
const ARCH_PRCTL: u64 = 30;
const SYSEMU: u64 = 31;
const SYSEMU_SINGLESTEP: u64 = 32;
const SETOPTIONS: u64 = 0x4200;
const GETEVENTMSG: u64 = 0x4201;
const GETSIGINFO: u64 = 0x4202;
const SETSIGINFO: u64 = 0x4203;
const GETREGSET: u64 = 0x4204;
const SETREGSET: u64 = 0x4205;
const SEIZE: u64 = 0x4206;
const INTERRUPT: u64 = 0x4207;
const LISTEN: u64 = 0x4208;
const PEEKSIGINFO: u64 = 0x4209;
const GETSIGMASK: u64 = 0x420a;
const SETSIGMASK: u64 = 0x420b;
const SECCOMP_GET_FILTER: u64 = 0x420c;
const SECCOMP_GET_METADATA: u64 = 0x420d;
const GET_SYSCALL_INFO: u64 = 0x420e;
const GET_RSEQ_CONFIGURATION: u64 = 0x420f;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
/// Bytes of `struct ptrace_syscall_info` by what it holds.
const INFO_NONE: usize = 24;
const INFO_ENTRY: usize = 80;
const INFO_EXIT: usize = 33;
const INFO_SECCOMP: usize = 84;
const INFO_SIZE: usize = 88;

pub fn ptrace(c: &mut Current, request: u64, pid: i32, addr: u64, data: u64) -> SysResult {
    c.police(policy::Kind::ProcessPtrace, task::policing::Subject::default)?;
    match request {
        TRACEME => return c.ptrace_traceme().map(|()| 0).map_err(Into::into),
        ATTACH => return c.ptrace_attach(pid, None).map(|()| 0),
        SEIZE => return c.ptrace_attach(pid, Some((addr, data))).map(|()| 0),
        _ => {}
    }
    let t = c.tracee(pid)?;
    match request {
        KILL => c.ptrace_kill(&t),
        INTERRUPT => c.ptrace_interrupt(&t)?,
        _ => {
            c.with_stopped(&t, |_| ())?;
            return stopped(c, &t, request, addr, data);
        }
    }
    Ok(0)
}

/// PTRACE_SECCOMP_GET_FILTER: the length of a filter, and its instructions where there is a buffer.
fn read_filter(c: &mut Current, t: &Arc<Task>, number: u64, to: u64) -> SysResult {
    let (code, _) = t.seccomp.filter(number)?;
    if to != 0 {
        c.write_bytes(to, code.as_bytes())?;
    }
    Ok(code.len() as u64)
}

/// PTRACE_SECCOMP_GET_METADATA: the flags that a filter was installed with.
fn filter_metadata(c: &mut Current, t: &Arc<Task>, size: u64, at: u64) -> SysResult {
    const FLAG_LOG: u64 = 2;
    if size < 8 {
        return Err(Errno::EINVAL.into());
    }
    let number: u64 = c.read_value(at)?;
    let (_, log) = t.seccomp.filter(number)?;
    let metadata = [number, if log { FLAG_LOG } else { 0 }];
    let size = size.min(16) as usize;
    c.write_bytes(at, metadata.as_bytes().get(..size).unwrap_or_default())?;
    Ok(size as u64)
}

/// Requests that need a stopped thread.
fn stopped(c: &mut Current, t: &Arc<Task>, request: u64, addr: u64, data: u64) -> SysResult {
    let resume = match request {
        CONT => Some(Resume::Cont),
        SYSCALL => Some(Resume::Syscall),
        SINGLESTEP => Some(Resume::Step),
        SYSEMU => Some(Resume::Sysemu),
        SYSEMU_SINGLESTEP => Some(Resume::SysemuStep),
        _ => None,
    };
    if let Some(how) = resume {
        c.ptrace_resume(t, how, data)?;
        return Ok(0);
    }
    match request {
        PEEKTEXT | PEEKDATA => {
            let mut word = [0; 8];
            if peek(c, t, addr, &mut word)? != 8 {
                return Err(Errno::EIO.into());
            }
            c.write_bytes(data, &word)?;
        }
        POKETEXT | POKEDATA => {
            if poke(c, t, addr, &data.to_le_bytes())? != 8 {
                return Err(Errno::EIO.into());
            }
        }
        PEEKUSER => {
            let word = match regs::debug_register(addr) {
                Some(n) => c.peek_debug(t, n),
                None => c.with_stopped(t, |s| regs::peek_user(&s.regs, addr))??,
            };
            c.write_value(data, &word)?;
        }
        POKEUSER => match regs::debug_register(addr) {
            Some(n) => c.poke_debug(t, n, data)?,
            None => c.with_stopped(t, |s| {
                let max = c.kernel().platform.limits().max;
                regs::poke_user(&s.regs, addr, data, max).map(|new| s.set_regs(new))
            })??,
        },
        GETREGS | SETREGS | GETFPREGS | SETFPREGS => {
            let set = if matches!(request, GETREGS | SETREGS) { regs::PRSTATUS } else { regs::PRFPREG };
            if matches!(request, GETREGS | GETFPREGS) {
                let bytes = regs::get(c, t, set)?;
                c.write_bytes(data, &bytes)?;
            } else {
                let mut bytes = vec![0; regs::size(c, set)?];
                c.read_bytes(data, &mut bytes)?;
                regs::set(c, t, set, &bytes)?;
            }
        }
        GETREGSET | SETREGSET => regset(c, t, request == SETREGSET, addr, data)?,
        DETACH => c.ptrace_detach(t, data)?,
        SETOPTIONS => c.ptrace_set_options(t, data)?,
        LISTEN => c.ptrace_listen(t)?,
        GETEVENTMSG => {
            let message = c.with_stopped(t, |s| s.message)?;
            c.write_value(data, &message)?;
        }
        ARCH_PRCTL => arch_prctl(c, t, data, addr)?,
        GETSIGINFO => {
            let info = c.with_stopped(t, |s| s.info)?.ok_or(Errno::EINVAL)?;
            c.write_value(data, &info)?;
        }
        SETSIGINFO => {
            let new: SigInfo = c.read_value(data)?;
            c.with_stopped(t, |s| s.info.as_mut().map(|info| *info = new))?.ok_or(Errno::EINVAL)?;
        }
        GETSIGMASK | SETSIGMASK if addr != 8 => return Err(Errno::EINVAL.into()),
        GETSIGMASK => {
            let mask = t.blocked();
            c.write_value(data, &mask)?;
        }
        SETSIGMASK => {
            let mask: SigSet = c.read_value(data)?;
            c.ptrace_set_mask(t, mask)?;
        }
        PEEKSIGINFO => return peek_siginfo(c, t, addr, data),
        GET_SYSCALL_INFO => return syscall_info(c, t, addr, data),
        GET_RSEQ_CONFIGURATION => {
            // The kernel has no rseq(2): nothing is registered.
            let none = [0u8; 24];
            c.write_bytes(data, &none[..addr.min(24) as usize])?;
            return Ok(24);
        }
        SECCOMP_GET_FILTER | SECCOMP_GET_METADATA => {
            if !c.creds().capable(Cap::SYS_ADMIN) || c.task.seccomp.mode() != syscall_filter::DISABLED {
                return Err(Errno::EACCES.into());
            }
            return if request == SECCOMP_GET_FILTER {
                read_filter(c, t, addr, data)
            } else {
                filter_metadata(c, t, addr, data)
            };
        }
        _ => return Err(Errno::EIO.into()),
    }
    Ok(0)
}

/// Reads a tracee's memory, whatever its protection; how many bytes.
pub(crate) fn peek(c: &Current, t: &Arc<Task>, addr: u64, buf: &mut [u8]) -> Result<usize, Errno> {
    let direct = t.mm().space.read_own(addr, buf);
    if direct == buf.len() || !t.mm().with_map(|m| m.find(addr.wrapping_add(direct as u64)).is_some()) {
        return Ok(direct);
    }
    let len = buf.len();
    let bytes = c.in_tracee(t, move |c| {
        let mut bytes = vec![0; len];
        let n = c.mm.force_read(c.ctx.as_mut(), addr, &mut bytes);
        bytes.truncate(n);
        bytes
    })?;
    buf[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}

/// Writes a tracee's memory, whatever its protection.
pub(crate) fn poke(c: &Current, t: &Arc<Task>, addr: u64, data: &[u8]) -> Result<usize, Errno> {
    if t.mm().writable(addr, data.len() as u64) {
        let direct = t.mm().space.write(addr, data);
        if direct == data.len() {
            return Ok(direct);
        }
    }
    let data = data.to_vec();
    c.in_tracee(t, move |c| c.mm.force_write(c.ctx.as_mut(), addr, &data))
}

/// PTRACE_GETREGSET, PTRACE_SETREGSET: `data` is a struct iovec.
fn regset(c: &mut Current, t: &Arc<Task>, set: bool, which: u64, data: u64) -> Result<(), Errno> {
    let [base, len]: [u64; 2] = c.read_value(data)?;
    let size = regs::size(c, which)?;
    if !len.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let len = (len as usize).min(size);
    if set {
        let mut bytes = vec![0; len];
        c.read_bytes(base, &mut bytes)?;
        regs::set(c, t, which, &bytes)?;
    } else {
        let bytes = regs::get(c, t, which)?;
        c.write_bytes(base, bytes.get(..len).unwrap_or(&bytes))?;
    }
    c.write_value(data + 8, &(len as u64))
}

/// PTRACE_ARCH_PRCTL: the segment bases.
fn arch_prctl(c: &mut Current, t: &Arc<Task>, code: u64, value: u64) -> Result<(), Errno> {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    let max = c.kernel().platform.limits().max;
    let mut new = c.with_stopped(t, |s| s.regs)?;
    match code {
        GET_FS => return c.write_value(value, &new.fs_base),
        GET_GS => return c.write_value(value, &new.gs_base),
        SET_FS | SET_GS if value >= max => return Err(Errno::EPERM),
        SET_FS => new.fs_base = value,
        SET_GS => new.gs_base = value,
        _ => return Err(Errno::EINVAL),
    }
    c.with_stopped(t, |s| s.set_regs(new))
}

/// `struct ptrace_peeksiginfo_args`.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct PeekArgs {
    off: u64,
    flags: u32,
    nr: i32,
}

fn peek_siginfo(c: &mut Current, t: &Arc<Task>, args: u64, to: u64) -> SysResult {
    const SHARED: u32 = 1;
    let a: PeekArgs = c.read_value(args)?;
    if a.flags & !SHARED != 0 || a.nr < 0 {
        return Err(Errno::EINVAL.into());
    }
    let all = match a.flags & SHARED {
        0 => t.pending.lock().state(),
        _ => t.group.signals.lock().shared.state(),
    };
    let from = usize::try_from(a.off).unwrap_or(usize::MAX);
    let mut done = 0;
    for p in all.iter().skip(from).take(a.nr as usize) {
        let at = to + done * size_of::<SigInfo>() as u64;
        match c.write_now(at, p.info.as_bytes()) {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(done)
}

/// PTRACE_GET_SYSCALL_INFO: gives the number of bytes there are, and writes as many as fit.
fn syscall_info(c: &mut Current, t: &Arc<Task>, size: u64, to: u64) -> SysResult {
    let (r, info, message) = c.with_stopped(t, |s| (s.regs, s.info, s.message))?;
    let mut b = [0u8; INFO_SIZE];
    b[4..8].copy_from_slice(&AUDIT_ARCH_X86_64.to_le_bytes());
    b[8..16].copy_from_slice(&r.rip.to_le_bytes());
    b[16..24].copy_from_slice(&r.rsp.to_le_bytes());
    let call = |b: &mut [u8; INFO_SIZE]| {
        b[24..32].copy_from_slice(&u64::from(r.orig_rax as u32).to_le_bytes());
        for (i, a) in r.args().iter().enumerate() {
            b[32 + 8 * i..40 + 8 * i].copy_from_slice(&a.to_le_bytes());
        }
    };
    let code = info.map_or(0, |i| i.code);
    let (kind, len) = if code == libc::SIGTRAP | 0x80 && message == MESSAGE_ENTRY {
        call(&mut b);
        (1, INFO_ENTRY)
    } else if code == libc::SIGTRAP | 0x80 && message == MESSAGE_EXIT {
        b[24..32].copy_from_slice(&r.rax.to_le_bytes());
        b[32] = u8::from((-4095..0).contains(&(r.rax as i64)));
        (2, INFO_EXIT)
    } else if code == libc::SIGTRAP | (event::SECCOMP << 8) as i32 {
        call(&mut b);
        b[80..84].copy_from_slice(&(message as u32).to_le_bytes());
        (3, INFO_SECCOMP)
    } else {
        (0, INFO_NONE)
    };
    b[0] = kind;
    c.write_bytes(to, &b[..len.min(usize::try_from(size).unwrap_or(len))])?;
    Ok(len as u64)
}
