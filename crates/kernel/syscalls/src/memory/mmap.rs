//! mmap(2) and relatives.

use crate::arg::Ptr;
use abi::{Errno, PAGE_SIZE, page_down, page_up};
use caller::HasCredentials;
use mm::{LockAll, MapArgs, Vma};
use platform::OwnCall;
use policy::{Access, Kind};
use std::sync::Arc;
use task::policing::Subject;
use task::{Current, SysResult, Task, ptrace_access};
use vfs::policing::{self, FileOperation, Place};
use vfs::{FileLayer, OpenFile};

pub fn mmap(c: &mut Current, addr: u64, len: u64, prot: i32, flags: i32, fd: i32, offset: u64) -> SysResult {
    let file = if flags & libc::MAP_ANONYMOUS != 0 { None } else { Some(c.file(fd)?) };
    // Without MAP_FIXED the hint is rounded down; very low hints are ignored.
    let noexec = |f: &Arc<vfs::OpenFile>| {
        f.path.as_ref().is_some_and(|p| p.mount.flags().contains(vfs::MountFlags::NOEXEC))
    };
    let prot = if file.as_ref().is_some_and(noexec) { prot } else { implied(c, prot) };
    if let Some(file) = &file {
        decide_map(c, file, prot, flags)?;
    }
    let args = MapArgs { addr, len, prot, flags, file, offset };
    let mm = c.mm.clone();
    // The context is borrowed mutably while the file sees the caller: take it out for the call.
    let r = c.with_context(|c, ctx| mm.mmap(c, ctx, &args))?;
    if let Some(file) = &args.file {
        exec::trace_points::file_mapped(c, file, false);
    }
    Ok(r)
}

/// The error of a policy that refuses to map a file: what is mapped can be read, and written where the mapping is shared
/// and the file open for that, whatever `prot` is now.
fn decide_map(c: &Current, file: &Arc<OpenFile>, prot: i32, flags: i32) -> Result<(), Errno> {
    let shared = matches!(flags & MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    policing::decide_io(c, Kind::FileRead, file)?;
    if shared && file.writable() {
        policing::decide_io(c, Kind::FileWrite, file)?;
    }
    let mut access = Access::READ;
    access.set(Access::WRITE, shared && file.writable());
    access.set(Access::EXECUTE, prot & libc::PROT_EXEC != 0);
    decide_access(c, file, access)
}

/// The error of a policy that refuses to map a file so. What is mapped to be executed is executed.
fn decide_access(c: &Current, file: &Arc<OpenFile>, access: Access) -> Result<(), Errno> {
    if access.contains(Access::EXECUTE) {
        policing::decide_io(c, Kind::FileExec, file)?;
    }
    if file.path.is_none() || !policing::concerns(c, Kind::FileMap) || access == Access::READ {
        return Ok(());
    }
    let operation = FileOperation::at(Kind::FileMap, Place::File(file));
    c.decide(&FileOperation { access, file: Some(file), ..operation })
}

/// The type in flags of mmap(2).
const MAP_TYPE: i32 = 0xf;

/// One past the last address of a program on Linux. The platform keeps what is between its own limit and this; to the
/// program nothing is mapped there.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;

pub fn munmap(c: &mut Current, addr: u64, len: u64) -> SysResult {
    let max = c.kernel().platform.limits().max;
    let len = match addr.checked_add(len) {
        Some(end) if end > max && end <= TASK_SIZE && addr < max => max - addr,
        _ => len,
    };
    c.mm.clone().munmap(c.ctx.as_mut(), addr, len)?;
    Ok(0)
}

pub fn mprotect(c: &mut Current, addr: u64, len: u64, prot: i32) -> SysResult {
    let prot = implied(c, prot);
    let grows = prot & (libc::PROT_GROWSDOWN | libc::PROT_GROWSUP);
    if prot & !(7 | libc::PROT_GROWSDOWN | libc::PROT_GROWSUP | 8) != 0
        || grows == libc::PROT_GROWSDOWN | libc::PROT_GROWSUP
    {
        return Err(Errno::EINVAL.into());
    }
    let (mut addr, mut len) = (addr, len);
    if grows == libc::PROT_GROWSDOWN {
        // The whole stack area down to its start changes (glibc's executable stacks).
        let found = c.mm.with_map(|m| {
            m.find(addr)
                .map(|v| (v.start, v.kind == mm::VmaKind::Stack || v.flags & libc::MAP_GROWSDOWN != 0))
        });
        let (start, grows) = found.ok_or(Errno::ENOMEM)?;
        if !grows {
            return Err(Errno::EINVAL.into());
        }
        len += addr - start;
        addr = start;
    }
    if prot & libc::PROT_EXEC != 0 {
        for file in newly_executable(c, addr, len) {
            decide_access(c, &file, Access::EXECUTE)?;
        }
    }
    c.mm.clone().mprotect(c.ctx.as_mut(), addr, len, prot & 7)?;
    Ok(0)
}

pub fn pkey_mprotect(c: &mut Current, addr: u64, len: u64, prot: i32, key: i32) -> SysResult {
    // No key was given out; -1 is the one that needs none.
    if key == -1 { mprotect(c, addr, len, prot) } else { Err(Errno::EINVAL.into()) }
}

/// EINVAL is what Linux answers where the processor has no keys.
pub fn pkey_alloc(_c: &mut Current, _flags: u64, _rights: u64) -> SysResult {
    Err(Errno::EINVAL.into())
}

pub fn pkey_free(_c: &mut Current, _key: i32) -> SysResult {
    Err(Errno::EINVAL.into())
}

/// The files of a range that are mapped and cannot be executed yet, if a policy is about that.
fn newly_executable(c: &Current, addr: u64, len: u64) -> Vec<Arc<OpenFile>> {
    if !policing::concerns(c, Kind::FileMap) && !policing::concerns(c, Kind::FileExec) {
        return Vec::new();
    }
    c.mm.with_map(|map| {
        let areas = map.overlapping(page_down(addr), addr.saturating_add(len));
        let files =
            areas.filter(|area| area.prot & libc::PROT_EXEC == 0).filter_map(|area| area.file.as_deref());
        files.cloned().collect()
    })
}

/// READ_IMPLIES_EXEC of personality(2).
fn implied(c: &Current, prot: i32) -> i32 {
    let bits = c.task.group.personality.load(std::sync::atomic::Ordering::Relaxed);
    let implies = bits & libc::READ_IMPLIES_EXEC as u32 != 0 && prot & libc::PROT_READ != 0;
    if implies { prot | libc::PROT_EXEC } else { prot }
}

pub fn brk(c: &mut Current, want: u64) -> SysResult {
    let mm = c.mm.clone();
    Ok(c.with_context(|c, ctx| mm.brk(c, ctx, want)))
}

pub fn mremap(c: &mut Current, addr: u64, old: u64, new: u64, flags: i32, to: u64) -> SysResult {
    let mm = c.mm.clone();
    let r = c.with_context(|c, ctx| mm.mremap(c, ctx, (addr, old, new), flags, to))?;
    Ok(r)
}

pub fn madvise(c: &mut Current, addr: u64, len: u64, advice: i32) -> SysResult {
    const KNOWN: &[i32] = &[
        libc::MADV_NORMAL,
        libc::MADV_RANDOM,
        libc::MADV_SEQUENTIAL,
        libc::MADV_WILLNEED,
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_REMOVE,
        libc::MADV_DONTFORK,
        libc::MADV_DOFORK,
        libc::MADV_MERGEABLE,
        libc::MADV_UNMERGEABLE,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
        libc::MADV_DONTDUMP,
        libc::MADV_DODUMP,
        libc::MADV_WIPEONFORK,
        libc::MADV_KEEPONFORK,
        libc::MADV_COLD,
        libc::MADV_PAGEOUT,
        libc::MADV_POPULATE_READ,
        libc::MADV_POPULATE_WRITE,
        mm::MADV_GUARD_INSTALL,
        mm::MADV_GUARD_REMOVE,
    ];
    if !KNOWN.contains(&advice) {
        return Err(Errno::EINVAL.into());
    }
    let mm = c.mm.clone();
    if let Some(end) = page_up(len).and_then(|len| addr.checked_add(len))
        && mm.is_imaged(addr, end)
        && addr.is_multiple_of(PAGE_SIZE)
    {
        c.with_context(|c, ctx| mm.before_advice(c, ctx, addr, end, advice))?;
    }
    mm.madvise(c.ctx.as_mut(), addr, len, advice)?;
    Ok(0)
}

/// Checks an unaligned range and gives its page-rounded bounds.
fn pages(addr: u64, len: u64, overflow: Errno) -> Result<(u64, u64), Errno> {
    let end = addr.checked_add(len).and_then(page_up).ok_or(overflow)?;
    Ok((page_down(addr), end))
}

pub fn msync(c: &mut Current, addr: u64, len: u64, flags: i32) -> SysResult {
    let both = libc::MS_ASYNC | libc::MS_SYNC;
    if flags & !(both | libc::MS_INVALIDATE) != 0 || flags & both == both || !addr.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL.into());
    }
    let (start, end) = pages(addr, len, Errno::ENOMEM)?;
    let (areas, covered): (Vec<Vma>, bool) =
        c.mm.with_map(|m| (m.overlapping(start, end).cloned().collect(), m.covered(start, end)));
    for v in &areas {
        if flags & libc::MS_INVALIDATE != 0 && v.locked {
            return Err(Errno::EBUSY.into());
        }
        if let (Some(f), true, true) = (&v.file, v.shared, flags & libc::MS_SYNC != 0) {
            match f.ops.sync(c, f, true) {
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    if covered { Ok(0) } else { Err(Errno::ENOMEM.into()) }
}

pub fn mincore(c: &mut Current, addr: u64, len: u64, vec: Ptr) -> SysResult {
    if !addr.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL.into());
    }
    let (start, end) = pages(addr, len, Errno::ENOMEM)?;
    if !c.mm.with_map(|m| end <= m.max && m.covered(start, end)) {
        return Err(Errno::ENOMEM.into());
    }
    let count = (end - start) / PAGE_SIZE;
    c.check_range(vec.0, count)?;
    let mut all = vec![0; count.min(platform::MINCORE_PAGES as u64) as usize];
    let mut done = 0;
    while done < count && !c.is_killed() {
        let pages = (count - done).min(all.len() as u64) as usize;
        let piece = all.get_mut(..pages).unwrap_or_default();
        c.ctx.own_call(OwnCall::Mincore(start + done * PAGE_SIZE, pages), piece)?;
        // The low bit alone means something, and the guest's side could write what it likes.
        piece.iter_mut().for_each(|b| *b &= 1);
        c.write_bytes(vec.0.wrapping_add(done), piece)?;
        done += pages as u64;
    }
    Ok(0)
}

pub fn membarrier(c: &mut Current, command: i32, flags: u32, _cpu: i32) -> SysResult {
    const QUERY: i32 = 0;
    // Those of restartable sequences, which there are not.
    const SEQUENCES: u64 = 1 << 7 | 1 << 8;
    let answer = c.ctx.own_call(OwnCall::Membarrier(command, flags), &mut [])?;
    Ok(if command == QUERY { answer & !SEQUENCES } else { answer })
}

pub fn mseal(c: &mut Current, addr: u64, len: u64, flags: u64) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    c.mm.seal(addr, len)?;
    Ok(0)
}

pub fn remap_file_pages(
    c: &mut Current,
    addr: u64,
    len: u64,
    prot: u64,
    first: u64,
    _flags: u64,
) -> SysResult {
    if prot != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mm = c.mm.clone();
    mm.remap_file_pages(c.ctx.as_mut(), page_down(addr), page_down(len), first)?;
    Ok(0)
}

pub fn mlock(c: &mut Current, addr: u64, len: u64) -> SysResult {
    let (start, end) = pages(addr, len, Errno::EINVAL)?;
    c.mm.lock(c, start, end, false)?;
    c.mm.clone().read_in(c.ctx.as_mut(), start, end)?;
    Ok(0)
}

pub fn mlock2(c: &mut Current, addr: u64, len: u64, flags: i32) -> SysResult {
    const ONFAULT: i32 = 1;
    crate::arg::check_flags(flags, ONFAULT)?;
    let (start, end) = pages(addr, len, Errno::EINVAL)?;
    c.mm.lock(c, start, end, flags & ONFAULT != 0)?;
    if flags & ONFAULT == 0 {
        c.mm.clone().read_in(c.ctx.as_mut(), start, end)?;
    }
    Ok(0)
}

pub fn munlock(c: &mut Current, addr: u64, len: u64) -> SysResult {
    let (start, end) = pages(addr, len, Errno::EINVAL)?;
    c.mm.unlock(start, end)?;
    Ok(0)
}

pub fn mlockall(c: &mut Current, flags: i32) -> SysResult {
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags == 0 || flags & !known != 0 || flags == libc::MCL_ONFAULT {
        return Err(Errno::EINVAL.into());
    }
    let which = LockAll { current: flags & libc::MCL_CURRENT != 0, future: flags & libc::MCL_FUTURE != 0 };
    c.mm.lock_all(c, which)?;
    if which.current && flags & libc::MCL_ONFAULT == 0 {
        let (start, end) = c.mm.with_map(|m| (m.min, m.max));
        // What cannot be read in is locked all the same.
        let _ = c.mm.clone().read_in(c.ctx.as_mut(), start, end);
    }
    Ok(0)
}

pub fn munlockall(c: &mut Current) -> SysResult {
    c.mm.unlock_all();
    Ok(0)
}

type Iov = [u64; 2];

pub(crate) fn vm_iovecs(c: &Current, at: Ptr, count: u64) -> Result<Vec<Iov>, Errno> {
    let v: Vec<Iov> = c.read_array(at.0, count as usize, 1024)?;
    let mut total = 0u64;
    for i in &v {
        total = total.checked_add(i[1]).filter(|t| *t <= i64::MAX as u64).ok_or(Errno::EINVAL)?;
    }
    Ok(v)
}

/// The error of a policy that refuses to look into another process.
pub(crate) fn police_access(c: &Current, tgid: i32) -> Result<(), Errno> {
    if tgid == c.task.tgid() { Ok(()) } else { c.police(Kind::ProcessPtrace, Subject::default) }
}

/// EPERM unless the caller may look into a thread, by its real ids; see ptrace(2).
pub(crate) fn may_access(c: &Current, t: &Task) -> Result<(), Errno> {
    if ptrace_access::may_access(&c.creds(), c.task.tgid(), t, ptrace_access::Mode::Real) {
        police_access(c, t.tgid())
    } else {
        Err(Errno::EPERM)
    }
}

/// The memory of a process that the caller may look into.
pub(crate) fn vm_target(c: &Current, pid: i32) -> Result<Arc<mm::Mm>, Errno> {
    let t = c.find_task(pid).ok_or(Errno::ESRCH)?;
    let mm = ptrace_access::mm_access(&c.creds(), c.task.tgid(), &t, ptrace_access::Mode::Real);
    let mm = mm.ok_or(Errno::EPERM)?;
    police_access(c, t.tgid()).map(|()| mm)
}

fn process_vm(c: &mut Current, pid: i32, l: (Ptr, u64), r: (Ptr, u64), flags: u64, write: bool) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let local = vm_iovecs(c, l.0, l.1)?;
    let remote = vm_iovecs(c, r.0, r.1)?;
    let target = vm_target(c, pid)?;
    let mut buf = vec![0u8; 64 << 10];
    let mut done = 0u64;
    let (mut li, mut lo) = (0, 0u64);
    'outer: for rv in &remote {
        let mut ro = 0;
        while ro < rv[1] {
            while li < local.len() && lo == local[li][1] {
                li += 1;
                lo = 0;
            }
            let Some(lv) = local.get(li) else { break 'outer };
            let n = (rv[1] - ro).min(lv[1] - lo).min(buf.len() as u64);
            let b = &mut buf[..n as usize];
            let (ra, la) = (rv[0].wrapping_add(ro), lv[0].wrapping_add(lo));
            let moved = if write {
                match c.read_some(la, b) {
                    Ok(k) => target.space.write(ra, &b[..k]),
                    Err(_) => 0,
                }
            } else {
                let k = target.space.read_own(ra, b);
                c.mm.space.write(la, &b[..k])
            } as u64;
            done += moved;
            if moved < n || c.is_killed() {
                break 'outer;
            }
            ro += n;
            lo += n;
        }
    }
    let wanted = remote.iter().any(|i| i[1] > 0) && local.iter().any(|i| i[1] > 0);
    if done == 0 && wanted { Err(Errno::EFAULT.into()) } else { Ok(done) }
}

pub fn process_vm_readv(
    c: &mut Current,
    pid: i32,
    l: Ptr,
    ln: u64,
    r: Ptr,
    rn: u64,
    flags: u64,
) -> SysResult {
    process_vm(c, pid, (l, ln), (r, rn), flags, false)
}

pub fn process_vm_writev(
    c: &mut Current,
    pid: i32,
    l: Ptr,
    ln: u64,
    r: Ptr,
    rn: u64,
    flags: u64,
) -> SysResult {
    process_vm(c, pid, (l, ln), (r, rn), flags, true)
}
