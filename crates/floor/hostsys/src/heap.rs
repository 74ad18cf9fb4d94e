//! Keeping the C library's heap small, mallopt(3) and malloc_trim(3).
//!
//! By default glibc gives every thread an arena of up to 64 MiB, keeps all large buffers once it has seen one, and
//! returns only the top of an arena. A sentry with 13 MB in use then held 450 MB.

/// Arenas, so threads that may allocate at once without waiting.
const ARENAS: i32 = 4;
/// Buffers from this size on are mappings of their own, gone when freed. Naming it stops glibc from raising it.
const MAPPED: i32 = 256 << 10;
/// Freed bytes worth a walk over all arenas.
const WORTHWHILE: usize = 4 << 20;

/// Sets the limits. Call once, before the first thread is started.
pub fn configure() {
    // SAFETY: mallopt takes two integers and changes the allocator's own settings only.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED);
    }
}

/// Gives free memory back to the host when there is enough of it to be worth the time
/// (a few milliseconds); the bytes that were free.
pub fn trim() -> usize {
    // SAFETY: mallinfo2 reads the allocator's counters under its own locks.
    let free = unsafe { libc::mallinfo2() }.fordblks;
    if free >= WORTHWHILE {
        // SAFETY: malloc_trim unmaps nothing that is in use.
        unsafe { libc::malloc_trim(0) };
    }
    free
}

/// Bytes in use.
pub fn used() -> u64 {
    // SAFETY: mallinfo2 reads the allocator's counters under its own locks.
    let info = unsafe { libc::mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// Gives all free memory back, however little it is: for a process that has done most of what it is there for.
pub fn shrink() {
    // SAFETY: malloc_trim unmaps nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn freed_memory_is_given_back() {
        super::configure();
        let many: Vec<Vec<u8>> = (0..2000).map(|_| vec![1; 10_000]).collect();
        let keep = many.last().cloned();
        drop(many);
        super::trim();
        // Not exact: other tests allocate as well.
        assert!(super::trim() < 64 << 20);
        assert_eq!(keep.map(|k| k.len()), Some(10_000));
    }
}
