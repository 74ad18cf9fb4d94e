//! uname(2), sysinfo(2), getrandom(2) and other small calls.

use crate::arg::Ptr;
use abi::Errno;
use caller::{HasCredentials, Identity};
use rights::Cap;
use std::sync::atomic::Ordering;
use task::{Current, RELEASE, SysResult, VERSION};
use zerocopy::{Immutable, IntoBytes};

pub fn uname(c: &mut Current, out: Ptr) -> SysResult {
    let uts = c.task.nsproxy().uts.names();
    let mut b = [0u8; 390];
    // Programs that know two numbers below version 3 get them with UNAME26.
    let old = c.task.group.personality.load(Ordering::Relaxed) & libc::UNAME26 as u32 != 0;
    let release = if old { task::RELEASE_26 } else { RELEASE };
    for (i, s) in ["Linux", &uts.nodename, release, VERSION, "x86_64", &uts.domainname].iter().enumerate() {
        let n = s.len().min(64);
        b[i * 65..i * 65 + n].copy_from_slice(&s.as_bytes()[..n]);
    }
    c.write_bytes(out.0, &b)?;
    Ok(0)
}

fn read_name(c: &Current, p: Ptr, len: u64) -> Result<String, Errno> {
    if !c.creds().ns_capable(c.task.nsproxy().uts.user_ns(), Cap::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    if len > 64 {
        return Err(Errno::EINVAL);
    }
    let mut b = vec![0; len as usize];
    c.read_bytes(p.0, &mut b)?;
    Ok(String::from_utf8_lossy(&b).trim_end_matches('\0').to_string())
}

pub fn sethostname(c: &mut Current, p: Ptr, len: u64) -> SysResult {
    let n = read_name(c, p, len)?;
    c.task.nsproxy().uts.rename(|uts| uts.nodename = n);
    Ok(0)
}

pub fn setdomainname(c: &mut Current, p: Ptr, len: u64) -> SysResult {
    let n = read_name(c, p, len)?;
    c.task.nsproxy().uts.rename(|uts| uts.domainname = n);
    Ok(0)
}

#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct SysInfo {
    uptime: i64,
    loads: [u64; 3],
    totalram: u64,
    freeram: u64,
    sharedram: u64,
    bufferram: u64,
    totalswap: u64,
    freeswap: u64,
    procs: u16,
    pad: u16,
    pad2: u32,
    totalhigh: u64,
    freehigh: u64,
    mem_unit: u32,
    pad3: u32,
}

pub fn sysinfo(c: &mut Current, out: Ptr) -> SysResult {
    let k = c.kernel();
    let procs = k.tree.lock().tasks().len() as u16;
    // A second that has begun counts, as Linux has it.
    let up = task::uptime_ns().saturating_add_signed(c.clock_offset(libc::CLOCK_BOOTTIME));
    let uptime = up.div_ceil(1_000_000_000) as i64;
    let (totalram, freeram) = (c.limits().memory(), c.limits().free());
    // Fixed-point numbers with 16 bits after the point.
    let loads = k.load_averages().map(|l| (l * 65536.0) as u64);
    let sharedram = k.memory.bytes();
    let info =
        SysInfo { uptime, loads, totalram, freeram, sharedram, procs, mem_unit: 1, ..SysInfo::default() };
    c.write_value(out.0, &info)?;
    Ok(0)
}

/// How much a call with a long buffer does at a time, in bytes.
const PIECE: u64 = 64 << 10;

/// Writes a piece of a result to guest memory now: what is queued for the resume would be held by the sentry until then.
fn put_piece(c: &mut Current, at: u64, piece: &[u8]) -> usize {
    if piece.len() <= 256 {
        // Along with the answer, or as far as it goes.
        return c.write_some(at, piece);
    }
    if c.fault_in(at, piece.len() as u64).is_err() {
        return 0;
    }
    let room = c.kernel().platform.limits().max.saturating_sub(at).min(piece.len() as u64) as usize;
    c.mm.space.write(at, piece.get(..room).unwrap_or_default())
}

pub fn getrandom(c: &mut Current, buf: Ptr, len: u64, flags: u32) -> SysResult {
    const NONBLOCK: u32 = 1;
    const RANDOM: u32 = 2;
    const INSECURE: u32 = 4;
    if flags & !(NONBLOCK | RANDOM | INSECURE) != 0 || flags & (RANDOM | INSECURE) == RANDOM | INSECURE {
        return Err(Errno::EINVAL.into());
    }
    let len = len.min(i32::MAX as u64);
    let mut done = 0;
    let mut b = vec![0; len.min(PIECE) as usize];
    while done < len {
        let piece = b.get_mut(..(len - done).min(PIECE) as usize).unwrap_or_default();
        hostsys::clock::random(piece);
        let n = put_piece(c, buf.0.saturating_add(done), piece);
        done += n as u64;
        if n < piece.len() {
            break;
        }
        // A signal ends a long call with what there is.
        if done < len && c.task.waiter.interrupted() {
            break;
        }
    }
    if done == 0 && len > 0 { Err(Errno::EFAULT.into()) } else { Ok(done) }
}

pub fn personality(c: &mut Current, p: u64) -> SysResult {
    let g = &c.task.group.personality;
    let old = g.load(Ordering::Relaxed);
    if p as u32 != 0xffff_ffff {
        g.store(p as u32, Ordering::Relaxed);
    }
    Ok(old.into())
}

pub fn vhangup(c: &mut Current) -> SysResult {
    if !c.creds().capable(Cap::SYS_TTY_CONFIG) {
        return Err(Errno::EPERM.into());
    }
    let session = c.sid();
    let terminal = c.kernel().tree.lock().terminal(session).cloned();
    if let Some(terminal) = terminal {
        terminal.hang_up_slave();
    }
    Ok(0)
}

pub fn reboot(c: &mut Current, m1: i32, m2: i32, _cmd: i32, _arg: u64) -> SysResult {
    const MAGIC2: [i32; 4] = [672274793, 85072278, 369367448, 537993216];
    if !c.pid_ns().is_some_and(|ns| c.creds().ns_capable(ns.user_ns(), Cap::SYS_BOOT)) {
        return Err(Errno::EPERM.into());
    }
    if m1 as u32 != 0xfee1_dead || !MAGIC2.contains(&m2) {
        return Err(Errno::EINVAL.into());
    }
    Err(Errno::EPERM.into())
}
