//! munmap(2), mprotect(2), mremap(2), madvise(2), brk(2): checks, the host call
//! executed by the calling guest thread, then the record. mmap(2) is in `mmap`.

use crate::futex_hash::FutexHash;
use crate::guards::{MADV_GUARD_INSTALL, MADV_GUARD_REMOVE};
use crate::map::{DONT_DUMP, DONT_FORK, MemoryMap, RING, TRAMPOLINES, Undo, Vma, VmaKind, WIPE_ON_FORK};
use crate::policy::Policy;
use crate::spaces::AddressSpaces;
use crate::twin_map::Change;
use crate::users::Users;
use abi::{Errno, PAGE_SIZE, Result, page_up};
use lock_order::{Mutex, rank};
use pid::Pid;
use platform::{Action, AddressSpace, Context};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use user_ns::UserNamespace;
use vfs::{Caller, OpenFile};

/// What a core file holds by default: anonymous memory, and the first page of ELF files; see core(5).
const DUMP_FILTER: u32 = 0x33;

/// Addresses that execve(2) sets up, for /proc/PID/{cmdline,environ,auxv,stat} and prctl(2).
#[derive(Clone, Default)]
pub struct ImageInfo {
    /// The executable.
    pub exe: Option<Arc<OpenFile>>,
    /// Where it was when it was executed, as policies name it.
    pub exe_place: Option<Arc<[u8]>>,
    /// Code range.
    pub code: (u64, u64),
    /// Data range.
    pub data: (u64, u64),
    /// Argument strings.
    pub args: (u64, u64),
    /// Environment strings.
    pub env: (u64, u64),
    /// Initial stack pointer.
    pub stack: u64,
    /// The auxiliary vector as written on the stack.
    pub auxv: Arc<[u8]>,
}

/// Arguments of mmap(2), validated no further than their types.
pub struct MapArgs {
    /// Hint or fixed address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// PROT_* bits.
    pub prot: i32,
    /// MAP_* bits.
    pub flags: i32,
    /// The file unless MAP_ANONYMOUS.
    pub file: Option<Arc<OpenFile>>,
    /// Offset in bytes.
    pub offset: u64,
}

/// A guest address space and its record.
pub struct Mm {
    /// The platform's side.
    pub space: Arc<dyn AddressSpace>,
    /// What it shares with the kernel's others.
    pub(crate) all: Arc<AddressSpaces>,
    /// Held while the record and the host's mappings change together.
    pub(crate) ops: Mutex<(), { rank::MM_OPS }>,
    pub(crate) map: Mutex<MemoryMap, { rank::MM_MAP }>,
    /// How to take back a change that waits for the resume, and whether there is one.
    pub(crate) undo: Mutex<Option<Undo>, { rank::MM_MAP }>,
    pub(crate) unsettled: AtomicBool,
    /// It comes from an image, or from a fork of one that does.
    pub(crate) restored: AtomicBool,
    /// Read under locks of all kinds, of a directory for one: a policy is told the program.
    image: Mutex<ImageInfo, { rank::LEAF }>,
    /// Thread groups that use it.
    pub users: Users,
    /// PR_SET_DUMPABLE.
    pub dumpable: AtomicI32,
    /// Where CAP_SYS_PTRACE gives access to it although it is not dumpable.
    pub user_ns: Arc<UserNamespace>,
    /// /proc/PID/coredump_filter.
    pub dump_filter: AtomicU32,
    /// Of prctl(2): what PR_GET_THP_DISABLE answers. 1 for no huge pages, with 2 but where madvise(2) asks for them.
    pub huge_pages_off: AtomicU32,
    /// PR_FUTEX_HASH.
    pub futex_hash: Mutex<FutexHash>,
    /// Contexts of io_setup(2).
    pub aio: ipc::aio::AioTable,
}

impl Mm {
    /// Wraps a new address space, which belongs to a user namespace.
    pub fn new(
        all: &Arc<AddressSpaces>,
        space: Arc<dyn AddressSpace>,
        map: MemoryMap,
        user_ns: Arc<UserNamespace>,
    ) -> Arc<Mm> {
        Arc::new(Mm {
            all: all.clone(),
            space,
            ops: Mutex::new(()),
            map: Mutex::new(map),
            undo: Mutex::new(None),
            unsettled: AtomicBool::new(false),
            restored: AtomicBool::new(false),
            image: Mutex::new(ImageInfo::default()),
            users: Users::default(),
            dumpable: AtomicI32::new(1),
            user_ns,
            dump_filter: AtomicU32::new(DUMP_FILTER),
            huge_pages_off: AtomicU32::new(0),
            futex_hash: Mutex::default(),
            aio: Default::default(),
        })
    }

    /// The record for a forked copy of the address space; `space` is the child's.
    pub fn forked(&self, space: Arc<dyn AddressSpace>) -> Arc<Mm> {
        let mut map = self.map.lock().clone();
        let left: Vec<_> =
            map.iter().filter(|v| v.flags & DONT_FORK != 0).map(|v| (v.start, v.end)).collect();
        for (start, end) in left {
            map.remove(start, end);
        }
        let wiped: Vec<_> =
            map.iter().filter(|v| v.flags & WIPE_ON_FORK != 0).map(|v| (v.start, v.end)).collect();
        for (start, end) in wiped {
            map.record_guard(start, end, false);
        }
        let all = (map.min, map.max);
        map.lock_future = false;
        map.forget_peak();
        map.update(all.0, all.1, |v| v.locked = false);
        let mm = Mm::new(&self.all, space, map, self.user_ns.clone());
        mm.restored.store(self.restored.load(Ordering::Relaxed), Ordering::Relaxed);
        let image = self.image();
        mm.set_image(|i| *i = image);
        mm.dump_filter.store(self.dump_filter.load(Ordering::Relaxed), Ordering::Relaxed);
        // The host's fork copies its part.
        mm.huge_pages_off.store(self.huge_pages_off.load(Ordering::Relaxed), Ordering::Relaxed);
        mm.dumpable.store(self.dumpable.load(Ordering::Relaxed), Ordering::Relaxed);
        mm
    }

    /// Runs `f` on the record.
    pub fn with_map<T>(&self, f: impl FnOnce(&mut MemoryMap) -> T) -> T {
        f(&mut self.map.lock())
    }

    /// The last process has left: what its mappings held on to goes now, before anybody learns of it.
    pub fn forget_mappings(&self, pid: &Arc<Pid>) {
        let contexts = std::mem::take(&mut *self.aio.lock());
        drop(contexts);
        let gone = self.map.lock().take_all();
        for f in gone.iter().filter_map(|v| v.file.as_ref()) {
            if let Some(ops) = f.ops.as_map() {
                ops.left_mapped(pid);
            }
        }
        drop(gone);
        // The program's file can be written again.
        let exe = self.image.lock().exe.take();
        drop(exe);
    }

    /// Marks a mapping as the ring of a context of asynchronous input and output.
    pub fn mark_ring(&self, start: u64, len: u64) {
        self.map.lock().update(start, start + len, |v| v.flags |= RING);
    }

    /// What execve(2) recorded.
    pub fn image(&self) -> ImageInfo {
        self.image.lock().clone()
    }

    /// Changes what execve(2) recorded.
    pub fn set_image(&self, f: impl FnOnce(&mut ImageInfo)) {
        let mut image = self.image.lock();
        // The end of an open file takes locks: not here.
        let old = image.clone();
        f(&mut image);
        drop(image);
        drop(old);
    }

    /// True when a queued copy to this range will not fault unless the guest changes its mappings meanwhile.
    pub fn writable(&self, addr: u64, len: u64) -> bool {
        self.map.lock().accessible(addr, len, libc::PROT_WRITE)
    }

    /// Whether this range is memory without a file that may be accessed so (PROT_*), whatever other ranges are.
    pub fn is_memory(&self, addr: u64, len: u64, prot: i32) -> bool {
        let m = self.map.lock();
        m.accessible(addr, len, prot) && m.overlapping(addr, addr + len).all(|v| v.file.is_none())
    }

    /// Excludes changes while `f` runs (fork).
    pub fn exclusive<T>(&self, f: impl FnOnce() -> T) -> T {
        let _ops = self.ops.lock();
        f()
    }

    /// munmap(2).
    pub fn munmap(&self, ctx: &mut dyn Context, addr: u64, len: u64) -> Result<()> {
        let _ops = self.ops.lock();
        let end = {
            let m = self.map.lock();
            if len == 0 {
                return Err(Errno::EINVAL);
            }
            let end = m.check_range(addr, len)?;
            if m.overlapping(addr, end).next().is_none() {
                return Ok(());
            }
            m.not_sealed(addr, end)?;
            end
        };
        self.untwin(ctx, addr, end, Change::Unmap);
        let parts = self.map.lock().without_trampolines(addr, end);
        for (a, b) in &parts {
            ctx.queue(Action::Unmap { addr: *a, len: b - a });
        }
        let mut gone = Vec::new();
        {
            let mut m = self.map.lock();
            for (a, b) in &parts {
                gone.extend(m.remove(*a, *b));
                m.take_rewritten(*a, *b);
            }
        }
        self.execute(ctx, Undo { range: (addr, addr), before: gone, brk: None })
    }

    /// mprotect(2) without PROT_GROWSDOWN/UP.
    pub fn mprotect(&self, ctx: &mut dyn Context, addr: u64, len: u64, prot: i32) -> Result<()> {
        if !addr.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        if len == 0 {
            return Ok(());
        }
        let len = page_up(len).ok_or(Errno::ENOMEM)?;
        let end = addr.checked_add(len).ok_or(Errno::ENOMEM)?;
        // What comes before a sealed mapping changes.
        let sealed = self.map.lock().first_seal(addr, end);
        if let Some(stop) = sealed {
            self.mprotect(ctx, addr, stop - addr, prot)?;
            return Err(Errno::EPERM);
        }
        let _ops = self.ops.lock();
        {
            let m = self.map.lock();
            if end > m.max {
                return Err(Errno::ENOMEM);
            }
            for v in m.overlapping(addr, end) {
                let noexec = v
                    .file
                    .as_ref()
                    .and_then(|f| f.path.as_ref())
                    .is_some_and(|p| p.mount.flags().contains(vfs::mount::MountFlags::NOEXEC));
                if prot & libc::PROT_EXEC != 0 && (noexec || v.flags & RING != 0) {
                    return Err(Errno::EACCES);
                }
                let read_only = v.shared && v.file.as_ref().is_some_and(|f| !f.writable());
                if prot & libc::PROT_WRITE != 0 && read_only {
                    return Err(Errno::EACCES);
                }
            }
        }
        let covered = self.map.lock().covered(addr, end);
        let text = libc::PROT_READ | libc::PROT_EXEC;
        if prot & (text | libc::PROT_WRITE) != text {
            let change = if prot & text == text { Change::Writable } else { Change::NotText };
            self.untwin(ctx, addr, end, change);
        }
        if prot & libc::PROT_WRITE != 0 {
            self.restore_text(ctx, addr, end);
        }
        let parts = self.map.lock().without_trampolines(addr, end);
        for (a, b) in &parts {
            ctx.queue(Action::Protect { addr: *a, len: b - a, prot });
        }
        if covered {
            let mut before = Vec::new();
            {
                let mut m = self.map.lock();
                for (a, b) in parts {
                    before.extend(m.overlapping(a, b).map(|v| v.part(a, b)));
                    m.update(a, b, |v| v.prot = prot);
                }
            }
            return self.execute(ctx, Undo { range: (addr, addr), before, brk: None });
        }
        let result = ctx.flush();
        if result.is_ok() || !covered {
            // As Linux does, the part before the first hole has changed.
            let mut m = self.map.lock();
            let stop = if covered { end } else { first_hole(&m, addr, end) };
            for (a, b) in parts {
                m.update(a, b.min(stop), |v| v.prot = prot);
            }
        }
        if covered { result } else { Err(Errno::ENOMEM) }
    }

    /// madvise(2). Ranges with holes answer ENOMEM after advising the mapped parts.
    pub fn madvise(&self, ctx: &mut dyn Context, addr: u64, len: u64, advice: i32) -> Result<()> {
        let end = self.map.lock().check_range(addr, len)?;
        if end == addr {
            return Ok(());
        }
        let _ops = self.ops.lock();
        let parts: Vec<(u64, u64, bool, Result<()>)> = {
            let m = self.map.lock();
            let own = m.overlapping(addr, end).filter(|v| v.flags & TRAMPOLINES == 0);
            own.map(|v| (v.start.max(addr), v.end.min(end), v.locked, v.takes_advice(advice))).collect()
        };
        let covered = self.map.lock().covered(addr, end);
        for (a, b, locked, allowed) in parts {
            allowed?;
            let drops = matches!(
                advice,
                libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | MADV_GUARD_INSTALL
            );
            if locked && drops {
                return Err(Errno::EINVAL);
            }
            if matches!(advice, MADV_GUARD_INSTALL | MADV_GUARD_REMOVE) {
                self.map.lock().guard(a, b, advice == MADV_GUARD_INSTALL)?;
            }
            ctx.queue(Action::Advise { addr: a, len: b - a, advice });
        }
        let marks = match advice {
            libc::MADV_DONTFORK => Some((DONT_FORK, DONT_FORK)),
            libc::MADV_DOFORK => Some((DONT_FORK, 0)),
            libc::MADV_DONTDUMP => Some((DONT_DUMP, DONT_DUMP)),
            libc::MADV_DODUMP => Some((DONT_DUMP, 0)),
            libc::MADV_WIPEONFORK => Some((WIPE_ON_FORK, WIPE_ON_FORK)),
            libc::MADV_KEEPONFORK => Some((WIPE_ON_FORK, 0)),
            _ => None,
        };
        if let Some((of, bit)) = marks {
            self.map.lock().update(addr, end, |v| {
                // The host refuses to wipe anything but a program's own memory.
                let own = bit != WIPE_ON_FORK || v.file.is_none() && !v.shared;
                if v.flags & TRAMPOLINES == 0 && own {
                    v.flags = v.flags & !of | bit;
                }
            });
        }
        if covered {
            // With the resume, also where there are other threads: nothing is recorded, and what they do to the range meanwhile
            // could as well have come first.
            return Ok(());
        }
        ctx.flush()?;
        if covered { Ok(()) } else { Err(Errno::ENOMEM) }
    }

    /// brk(2): gives the resulting break, unchanged when the request cannot be met.
    pub fn brk(&self, cx: &dyn Caller, ctx: &mut dyn Context, want: u64) -> u64 {
        let _ops = self.ops.lock();
        let (start, cur) = {
            let m = self.map.lock();
            (m.brk_start, m.brk)
        };
        if want < start {
            return cur;
        }
        let (Some(old_end), Some(new_end)) = (page_up(cur), page_up(want)) else { return cur };
        if new_end > old_end {
            let m = self.map.lock();
            let grow = new_end - old_end;
            let room = new_end <= m.max && m.overlapping(old_end, new_end + PAGE_SIZE).next().is_none();
            let locked = m.locks_new(cx, false, grow);
            let limits = want - start <= cx.rlimit(libc::RLIMIT_DATA as i32)
                && m.total() + grow <= cx.rlimit(libc::RLIMIT_AS as i32)
                && locked.is_ok();
            if !room || !limits {
                return cur;
            }
            drop(m);
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            ctx.queue(Action::MapAnon { addr: old_end, len: grow, prot, flags: 0 });
            let mut m = self.map.lock();
            m.insert(Vma {
                start: old_end,
                end: new_end,
                prot,
                shared: false,
                flags: 0,
                file: None,
                offset: 0,
                locked: locked.unwrap_or(false),
                kind: VmaKind::Heap,
                policy: Policy::default(),
            });
            m.brk = want;
            drop(m);
            let undo = Undo { range: (old_end, new_end), before: Vec::new(), brk: Some(cur) };
            return if self.execute(ctx, undo).is_ok() { want } else { cur };
        } else if new_end < old_end {
            if self.map.lock().not_sealed(new_end, old_end).is_err() {
                return cur;
            }
            ctx.queue(Action::Unmap { addr: new_end, len: old_end - new_end });
            let before = {
                let mut m = self.map.lock();
                m.brk = want;
                m.remove(new_end, old_end)
            };
            let undo = Undo { range: (new_end, old_end), before, brk: Some(cur) };
            return if self.execute(ctx, undo).is_ok() { want } else { cur };
        }
        self.map.lock().brk = want;
        want
    }

    /// mremap(2).
    pub fn mremap(
        &self,
        cx: &dyn Caller,
        ctx: &mut dyn Context,
        (addr, old_len, new_len): (u64, u64, u64),
        flags: i32,
        new_addr: u64,
    ) -> Result<u64> {
        let (may_move, fixed, keep) = (
            flags & libc::MREMAP_MAYMOVE != 0,
            flags & libc::MREMAP_FIXED != 0,
            flags & libc::MREMAP_DONTUNMAP != 0,
        );
        if flags & !(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0
            || (fixed || keep) && !may_move
            || keep && old_len != new_len
            || !addr.is_multiple_of(PAGE_SIZE)
        {
            return Err(Errno::EINVAL);
        }
        let old_len = page_up(old_len).ok_or(Errno::EINVAL)?;
        let new_len = page_up(new_len).ok_or(Errno::EINVAL)?;
        if new_len == 0 {
            return Err(Errno::EINVAL);
        }
        let tail =
            if self.restored.load(Ordering::Relaxed) { self.tail(cx, addr, old_len, new_len)? } else { None };
        let _ops = self.ops.lock();
        let moved = Moved { addr, old_len, new_len, keep, may_move, fixed: fixed.then_some(new_addr) };
        let (v, target) = moved.place(cx, &self.map.lock())?;
        if target == addr && new_len < old_len {
            self.shorten(ctx, addr + new_len, addr + old_len)?;
            return Ok(addr);
        }
        if target != addr || new_len != old_len {
            if v.flags & TRAMPOLINES != 0 {
                return Err(Errno::EFAULT);
            }
            if target != addr {
                // A rewritten call site jumps by distance.
                self.untwin(ctx, addr, addr + old_len, Change::NotText);
                self.restore_text(ctx, addr, addr + old_len);
                self.replace(ctx, target, target + new_len);
            }
            let flags = flags & libc::MREMAP_DONTUNMAP;
            let mut imaged = Vec::new();
            let guards = self.map.lock().moved_guards(addr, old_len, (target, new_len));
            if old_len != 0 && self.is_imaged(addr, addr + old_len) {
                let (from, to) = ((addr, old_len), (target, new_len));
                imaged = self.queue_move(ctx, &v, from, to, tail.as_ref(), keep);
            } else {
                ctx.queue(Action::Remap { addr, len: old_len, new_addr: target, new_len, flags });
            }
            ctx.flush()?;
            let mut m = self.map.lock();
            if !keep && old_len != 0 {
                m.remove(addr, addr + old_len);
            } else if keep {
                m.imaged.remove(addr, addr + old_len);
                m.guards.remove(addr, addr + old_len);
            }
            m.insert(Vma { start: target, end: target + new_len, offset: v.offset + (addr - v.start), ..v });
            imaged.into_iter().for_each(|piece| m.imaged.add(piece));
            guards.into_iter().for_each(|(from, to)| m.record_guard(from, to, true));
        }
        Ok(target)
    }

    /// Unmaps what mremap(2) cut off.
    fn shorten(&self, ctx: &mut dyn Context, start: u64, end: u64) -> Result<()> {
        self.untwin(ctx, start, end, Change::Unmap);
        let parts = self.map.lock().without_trampolines(start, end);
        for (a, b) in &parts {
            ctx.queue(Action::Unmap { addr: *a, len: b - a });
        }
        ctx.flush()?;
        let mut m = self.map.lock();
        for (a, b) in parts {
            m.remove(a, b);
            m.take_rewritten(a, b);
        }
        Ok(())
    }
}

/// What mremap(2) was asked for.
struct Moved {
    addr: u64,
    old_len: u64,
    new_len: u64,
    /// MREMAP_DONTUNMAP.
    keep: bool,
    may_move: bool,
    /// MREMAP_FIXED: where to.
    fixed: Option<u64>,
}

impl Moved {
    /// The mapping and where it goes, with every check of mremap(2) in Linux's order.
    fn place(&self, cx: &dyn Caller, m: &MemoryMap) -> Result<(Vma, u64)> {
        let Moved { addr, old_len, new_len, keep, may_move, fixed } = *self;
        if new_len > m.max || old_len > m.max {
            return Err(Errno::EINVAL);
        }
        let v = m.find(addr).ok_or(Errno::EFAULT)?.clone();
        m.not_sealed(addr, addr.saturating_add(old_len.max(1)))?;
        if old_len == 0 && !v.shared {
            return Err(Errno::EINVAL);
        }
        let old_end = addr.checked_add(old_len).ok_or(Errno::EINVAL)?;
        // What only gets shorter may span several mappings, and holes.
        let stays = fixed.is_none() && !keep && new_len <= old_len;
        if old_end > v.end && !stays {
            return Err(Errno::EFAULT);
        }
        if v.flags & RING != 0 && new_len > old_len {
            return Err(Errno::EFAULT);
        }
        if v.locked && new_len > old_len {
            m.room_to_lock(cx, new_len - old_len)?;
        }
        if keep && (v.shared || v.file.is_some()) {
            return Err(Errno::EINVAL);
        }
        if new_len > old_len && m.total() + new_len - old_len > cx.rlimit(libc::RLIMIT_AS as i32) {
            return Err(Errno::ENOMEM);
        }
        let target = if let Some(new_addr) = fixed {
            let end = m.check_range(new_addr, new_len)?;
            if new_addr < m.min {
                return Err(Errno::EPERM);
            }
            if new_addr < old_end && addr < end {
                return Err(Errno::EINVAL);
            }
            m.not_sealed(new_addr, end)?;
            new_addr
        } else if !keep && old_len != 0 && fits_in_place(m, &v, (addr, old_len, new_len)) {
            addr
        } else if may_move {
            m.find_free(0, new_len, PAGE_SIZE).ok_or(Errno::ENOMEM)?
        } else {
            return Err(Errno::ENOMEM);
        };
        Ok((v, target))
    }
}

/// True when a mapping can shrink or grow where it is.
fn fits_in_place(m: &MemoryMap, v: &Vma, (addr, old_len, new_len): (u64, u64, u64)) -> bool {
    let (old_end, new_end) = (addr + old_len, addr + new_len);
    new_len <= old_len
        || old_end == v.end && new_end <= m.max && m.overlapping(old_end, new_end).next().is_none()
}

fn first_hole(m: &MemoryMap, start: u64, end: u64) -> u64 {
    let mut at = start;
    for v in m.overlapping(start, end) {
        if v.start > at {
            break;
        }
        at = v.end.min(end);
    }
    at
}
