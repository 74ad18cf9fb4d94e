//! mmap(2): the checks of the request, the file's answer, the choice of the address, and the record.

use crate::map::{MAX_MAP_COUNT, MemoryMap, Undo, Vma, VmaKind};
use crate::ops::{MapArgs, Mm};
use crate::policy::Policy;
use abi::{Errno, PAGE_SIZE, Result, page_up};
use files::MappedFile;
use platform::{Action, Context};
use std::sync::Arc;
use vfs::mount::MountFlags;
use vfs::{Caller, MapRequest, Mapping, OpenFile};

/// What mmap(2) knows; MAP_SHARED_VALIDATE refuses the rest. The size of huge pages is in the high bits.
const KNOWN_FLAGS: i32 = libc::MAP_TYPE
    | libc::MAP_FIXED
    | libc::MAP_ANONYMOUS
    | libc::MAP_32BIT
    | libc::MAP_GROWSDOWN
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_LOCKED
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_STACK
    | libc::MAP_HUGETLB
    | libc::MAP_SYNC
    | libc::MAP_FIXED_NOREPLACE
    | MAP_ABOVE4G
    | 0x3f << 26;
/// Not in libc.
const MAP_ABOVE4G: i32 = 0x80;

impl MapArgs {
    fn has(&self, flags: i32) -> bool {
        self.flags & flags != 0
    }

    /// Whether the mapping is shared; EINVAL and EOPNOTSUPP for types and flags that do not exist.
    fn is_shared(&self) -> Result<bool> {
        match self.flags & libc::MAP_TYPE {
            libc::MAP_PRIVATE => Ok(false),
            libc::MAP_SHARED => Ok(true),
            libc::MAP_SHARED_VALIDATE if self.file.is_none() => Err(Errno::EINVAL),
            libc::MAP_SHARED_VALIDATE if self.has(!KNOWN_FLAGS) => Err(Errno::EOPNOTSUPP),
            libc::MAP_SHARED_VALIDATE => Ok(true),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The length in whole pages, of an address space that ends at `max`.
    fn whole_pages(&self, max: u64) -> Result<u64> {
        if self.len == 0 || !self.offset.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let len = page_up(self.len).filter(|len| *len <= max).ok_or(Errno::ENOMEM)?;
        if self.file.is_some() && self.offset.checked_add(len).is_none() {
            return Err(Errno::EOVERFLOW);
        }
        Ok(len)
    }

    /// Asks the file what to map.
    fn ask(&self, cx: &dyn Caller, f: &Arc<OpenFile>, shared: bool, len: u64) -> Result<Mapping> {
        if f.flags() & libc::O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        if !f.readable() || (shared && self.prot & libc::PROT_WRITE != 0 && !f.writable()) {
            return Err(Errno::EACCES);
        }
        let validated = self.flags & libc::MAP_TYPE == libc::MAP_SHARED_VALIDATE;
        if validated && self.has(libc::MAP_SYNC) {
            return Err(Errno::EOPNOTSUPP);
        }
        if let Some(p) = &f.path
            && p.mount.flags().contains(MountFlags::NOEXEC)
            && self.prot & libc::PROT_EXEC != 0
        {
            return Err(Errno::EPERM);
        }
        f.ops.map(cx, f, &MapRequest { prot: self.prot, shared, offset: self.offset, len })
    }
}

impl MemoryMap {
    /// Where mmap(2) maps `len` bytes.
    fn place(&self, a: &MapArgs, len: u64) -> Result<u64> {
        if !a.has(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) {
            let found = if a.has(libc::MAP_32BIT) {
                let mut low = self.clone();
                low.max = 1 << 31;
                low.mmap_base = 1 << 31;
                low.find_free(0, len, PAGE_SIZE)
            } else {
                self.find_free(a.addr & !(PAGE_SIZE - 1), len, PAGE_SIZE)
            };
            return found.ok_or(Errno::ENOMEM);
        }
        if !a.addr.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let end = a.addr.checked_add(len).filter(|end| *end <= self.max).ok_or(Errno::ENOMEM)?;
        if a.addr < self.min {
            return Err(Errno::EPERM);
        }
        if a.has(libc::MAP_FIXED_NOREPLACE) && self.overlapping(a.addr, end).next().is_some() {
            return Err(Errno::EEXIST);
        }
        Ok(a.addr)
    }

    /// ENOMEM when the caller's limits leave no room for a mapping at `start`; `data` says whether it counts as data.
    fn check_limits(&self, cx: &dyn Caller, start: u64, end: u64, data: bool) -> Result<()> {
        let len = end - start;
        let replaced: u64 = self.overlapping(start, end).map(|v| v.end.min(end) - v.start.max(start)).sum();
        let total = self.total() - replaced + len;
        if total > cx.rlimit(libc::RLIMIT_AS as i32) || self.count() >= MAX_MAP_COUNT {
            return Err(Errno::ENOMEM);
        }
        let limit = cx.rlimit(libc::RLIMIT_DATA as i32);
        if data && limit != u64::MAX {
            let counts = |v: &&Vma| !v.shared && v.prot & libc::PROT_WRITE != 0;
            let used: u64 = self.iter().filter(counts).map(Vma::len).sum();
            if used + len > limit {
                return Err(Errno::ENOMEM);
            }
        }
        Ok(())
    }
}

impl Mm {
    /// mmap(2).
    pub fn mmap(&self, cx: &dyn Caller, ctx: &mut dyn Context, a: &MapArgs) -> Result<u64> {
        let shared = a.is_shared()?;
        let len = a.whole_pages(self.map.lock().max)?;
        let mapping = match &a.file {
            Some(f) => a.ask(cx, f, shared, len)?,
            None => Mapping::Anonymous,
        };
        let _ops = self.ops.lock();
        let (addr, locked) = {
            let m = self.map.lock();
            let locked = m.locks_new(cx, a.has(libc::MAP_LOCKED), len)?;
            let addr = m.place(a, len)?;
            m.not_sealed(addr, addr + len)?;
            m.check_limits(cx, addr, addr + len, !shared && a.prot & libc::PROT_WRITE != 0)?;
            (addr, locked)
        };
        // There are no huge pages to reserve.
        if a.has(libc::MAP_HUGETLB) {
            return Err(Errno::ENOMEM);
        }
        self.replace(ctx, addr, addr + len);
        let text = libc::PROT_READ | libc::PROT_EXEC;
        let twin = match (&mapping, &a.file, ctx.rewriter()) {
            (Mapping::Host { .. }, Some(f), Some(rewriter))
                if !shared && a.prot == text && self.map.lock().takes_twin(rewriter.called_from()) =>
            {
                self.all.twins.find(f, a.offset, len)
            }
            _ => None,
        };
        let anonymous = matches!(mapping, Mapping::Anonymous);
        if let (Mapping::Host { fd, .. }, Some(f), false, 0) = (&mapping, &a.file, shared, a.offset) {
            self.all.twins.used(ctx, f, fd, || cx.sees_first_root());
        }
        let mapping = match &twin {
            Some(image) => Mapping::Host { fd: image.twin.fd().clone(), offset: 0 },
            None => mapping,
        };
        ctx.queue(action(a, mapping, shared, addr, len)?);
        let vma = Vma {
            start: addr,
            end: addr + len,
            prot: a.prot,
            shared,
            flags: a.flags & (libc::MAP_GROWSDOWN | libc::MAP_NORESERVE),
            file: a.file.clone().map(MappedFile::new),
            // As Linux does, of shared memory without a file from its start on.
            offset: if shared && anonymous { 0 } else { a.offset },
            locked,
            kind: if shared && anonymous {
                VmaKind::SharedAnon(self.all.next_shared())
            } else {
                VmaKind::Normal
            },
            policy: Policy::default(),
        };
        let before = {
            let mut m = self.map.lock();
            let before = m.overlapping(addr, addr + len).map(|v| v.part(addr, addr + len)).collect();
            m.insert(vma);
            if let Some(image) = &twin {
                m.add_twin(addr, image.clone());
            }
            before
        };
        if let (Some(image), Some(rewriter)) = (twin, ctx.rewriter()) {
            rewriter.add_twin(addr, &image.twin);
        }
        self.execute(ctx, Undo { range: (addr, addr + len), before, brk: None })?;
        Ok(addr)
    }
}

/// What the stub's thread executes.
fn action(a: &MapArgs, mapping: Mapping, shared: bool, addr: u64, len: u64) -> Result<Action> {
    let prot = a.prot;
    let host_flags = a.flags & (libc::MAP_NORESERVE | libc::MAP_POPULATE);
    let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let flags = host_flags | kind;
    Ok(match mapping {
        Mapping::Host { fd, offset } => Action::MapFile { addr, len, prot, flags, fd, offset },
        Mapping::Anonymous if shared => {
            let fd = Arc::new(hostsys::memfd::create(c"shm", len, false)?);
            Action::MapFile { addr, len, prot, flags, fd, offset: 0 }
        }
        Mapping::Anonymous => Action::MapAnon { addr, len, prot, flags: host_flags },
    })
}
