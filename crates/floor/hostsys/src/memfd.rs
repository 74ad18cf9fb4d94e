//! Anonymous files (memfd_create(2)) and shared mappings of them.

use abi::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Creates an anonymous file of `len` bytes, close-on-exec. `sealable` allows [`seal`].
pub fn create(name: &CStr, len: u64, sealable: bool) -> Result<OwnedFd> {
    let mut flags = rustix::fs::MemfdFlags::CLOEXEC;
    if sealable {
        flags |= rustix::fs::MemfdFlags::ALLOW_SEALING;
    }
    let fd = rustix::fs::memfd_create(name, flags).map_err(crate::errno)?;
    rustix::fs::ftruncate(&fd, len).map_err(crate::errno)?;
    Ok(fd)
}

/// cachestat(2) of `len` bytes from `offset` on (0: to the end): pages in the cache, dirty, being written, evicted, recently
/// evicted.
pub fn cachestat(fd: &OwnedFd, offset: u64, len: u64) -> Result<[u64; 5]> {
    const SYS_CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    let mut counts = [0; 5];
    // SAFETY: both arrays have the sizes of `struct cachestat_range` and `struct cachestat`, and outlive the call.
    let r = unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    if r < 0 { Err(crate::last()) } else { Ok(counts) }
}

/// Writes all of `data` at `offset`.
pub fn write_all(fd: BorrowedFd<'_>, mut data: &[u8], mut offset: u64) -> Result<()> {
    while !data.is_empty() {
        let n = rustix::io::pwrite(fd, data, offset).map_err(crate::errno)?;
        if n == 0 {
            return Err(Errno::EIO);
        }
        data = data.get(n..).unwrap_or_default();
        offset += n as u64;
    }
    Ok(())
}

/// Gives up all that `len` bytes hold; they read as zeros then.
pub fn empty(fd: BorrowedFd<'_>, len: u64) -> Result<()> {
    use rustix::fs::FallocateFlags;
    rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, len)
        .map_err(crate::errno)
}

/// Forbids any further change of contents or size.
pub fn seal(fd: BorrowedFd<'_>) -> Result<()> {
    use rustix::fs::SealFlags;
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(fd, all).map_err(crate::errno)
}

/// Forbids any further change of contents or size, but through writable mappings that exist now.
pub fn seal_future(fd: BorrowedFd<'_>) -> Result<()> {
    use rustix::fs::SealFlags;
    let all = SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(fd, all).map_err(crate::errno)
}

/// A shared mapping of a part of a file, which another process may write at any time.
///
/// Words are accessed as atomics, byte ranges by copying; every access is
/// checked against the mapping's bounds. The file must not shrink below the
/// mapping while it exists (an access would raise SIGBUS).
#[derive(Debug)]
pub struct SharedMapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain shared memory, accessed through atomics and raw copies only.
unsafe impl Send for SharedMapping {}
// SAFETY: as above; concurrent access is what it is for.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `len` bytes at `offset`, readable and writable.
    pub fn new(fd: impl AsFd, offset: u64, len: usize) -> Result<SharedMapping> {
        // SAFETY: a new mapping at an address the kernel chooses aliases nothing.
        let p = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_fd().as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(crate::last());
        }
        match NonNull::new(p.cast()) {
            Some(base) => Ok(SharedMapping { base, len }),
            None => Err(Errno::ENOMEM),
        }
    }

    /// Length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    fn at(&self, offset: usize, len: usize, align: usize) -> *mut u8 {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits && offset.is_multiple_of(align), "access outside a shared mapping");
        // SAFETY: offset is within the mapping, checked above.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// A part of the mapping, to be filled.
    pub fn area(&self, offset: usize, len: usize) -> CopyArea<'_> {
        self.at(offset, len, 1);
        CopyArea { map: self, offset, len }
    }

    /// The 32-bit word at `offset`, which must be aligned and inside.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: in bounds and aligned (checked); lives as long as the mapping; only atomic accesses are made.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4, 4).cast()) }
    }

    /// The 64-bit word at `offset`, which must be aligned and inside.
    pub fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8, 8).cast()) }
    }

    /// Replaces the eight bytes at `offset`, which must be inside and in one cache line but need not be aligned, if
    /// they are `old`. A thread that executes them meanwhile executes either the old or the new bytes.
    pub fn exchange_in_line(&self, offset: usize, old: u64, new: u64) -> bool {
        assert!(offset % 64 <= 56, "across cache lines");
        let p = self.at(offset, 8, 1);
        let found: u64;
        // SAFETY: in bounds (checked), and never lent as a slice; the processor's exchange is atomic at any address.
        unsafe {
            core::arch::asm!("lock cmpxchg [{p}], {new}", p = in(reg) p, new = in(reg) new,
                inout("rax") old => found, options(nostack));
        }
        found == old
    }

    /// Copies bytes out. What is read may be torn when the other side writes meanwhile.
    pub fn copy_out(&self, offset: usize, buf: &mut [u8]) {
        let p = self.at(offset, buf.len(), 1);
        // SAFETY: the source is in bounds (checked); `buf` is ordinary memory and cannot overlap a mapping that is
        // never lent out as a slice.
        unsafe { copy(p, buf.as_mut_ptr(), buf.len()) }
    }

    /// Copies bytes in.
    pub fn copy_in(&self, offset: usize, data: &[u8]) {
        let p = self.at(offset, data.len(), 1);
        // SAFETY: as in `copy_out`, the other way round.
        unsafe { copy(data.as_ptr(), p, data.len()) }
    }
}

/// A part of a [`SharedMapping`] that receives bytes for a reader on the other side. Nothing is ever read from it: the
/// other side may have changed it.
#[derive(Clone, Copy, Debug)]
pub struct CopyArea<'a> {
    map: &'a SharedMapping,
    offset: usize,
    len: usize,
}

impl CopyArea<'_> {
    /// Where in the mapping it begins.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Puts `data` at `at`.
    pub fn put(&self, at: usize, data: &[u8]) {
        let p = self.room(at, data.len());
        // SAFETY: the destination is in bounds (checked); `data` is ordinary memory, apart from any mapping.
        unsafe { copy(data.as_ptr(), p, data.len()) }
    }

    /// Puts `n` zeros at `at`.
    pub fn zero(&self, at: usize, n: usize) {
        let p = self.room(at, n);
        // SAFETY: in bounds (checked), and never lent as a slice.
        unsafe { ptr::write_bytes(p, 0, n) }
    }

    /// Where `n` bytes at `at` go.
    pub(crate) fn room(&self, at: usize, n: usize) -> *mut u8 {
        assert!(at.checked_add(n).is_some_and(|end| end <= self.len), "outside a copy area");
        self.map.at(self.offset + at, n, 1)
    }
}

/// Copies between two caches: long ranges by `rep movsb`, which is twice as fast there, but on some processors 30 times as
/// slow where the destination is just ahead of the source in its page.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
unsafe fn copy(from: *const u8, to: *mut u8, n: usize) {
    let ahead = to.addr().wrapping_sub(from.addr()) % 4096;
    if n < 512 || (1..64).contains(&ahead) {
        // SAFETY: the caller's.
        return unsafe { ptr::copy_nonoverlapping(from, to, n) };
    }
    // SAFETY: the caller's; the direction flag is clear in all code that the compiler makes.
    unsafe {
        core::arch::asm!("rep movsb", inout("rsi") from => _, inout("rdi") to => _, inout("rcx") n => _,
            options(nostack, preserves_flags));
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
