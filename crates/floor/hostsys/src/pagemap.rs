//! Which pages of a process are its own: PAGEMAP_SCAN of /proc/PID/pagemap (Linux 6.7).

use abi::Result;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The request, for filters.
pub const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | (b'f' as u64) << 8 | 16;

const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const PFNZERO: u64 = 1 << 5;

/// `struct pm_scan_arg`.
#[derive(Default)]
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// Ranges of `start..end` with anonymous pages that are in memory or swapped out, but for the page of zeros: at most
/// `most`. Also gives how far the answer goes.
pub fn own_pages(
    pagemap: BorrowedFd<'_>,
    start: u64,
    end: u64,
    most: usize,
) -> Result<(u64, Vec<(u64, u64)>)> {
    let mut regions = vec![Region::default(); most];
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        start,
        end,
        vec: regions.as_mut_ptr() as u64,
        vec_len: most as u64,
        category_inverted: FILE | PFNZERO,
        category_mask: FILE | PFNZERO,
        category_anyof_mask: PRESENT | SWAPPED,
        return_mask: 0,
        ..Scan::default()
    };
    // SAFETY: both structures have the host's layout; the host writes at most `vec_len` regions, for which there is room.
    let n = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut scan) };
    let n = crate::check(n.into())? as usize;
    let found: Vec<_> = regions.iter().take(n).map(|r| (r.start, r.end)).collect();
    // The host hands its ranges over 512 at a time, and may leave the end of an earlier batch in `walk_end` (Linux 6.18).
    let until = if n < most { end } else { scan.walk_end.max(found.last().map_or(start, |last| last.1)) };
    Ok((until, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::os::fd::AsFd;

    #[test]
    fn written_pages_are_found() {
        const PAGE: usize = 4096;
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        // SAFETY: a new mapping of its own, which is used within its bounds and unmapped at the end.
        unsafe {
            let at = mmap_anonymous(
                std::ptr::null_mut(),
                64 * PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
            .unwrap();
            let bytes = at.cast::<u8>();
            for page in [3, 4, 9] {
                bytes.add(page * PAGE).write_volatile(1);
            }
            bytes.add(20 * PAGE).read_volatile();
            let start = at as u64;
            let page = |n: u64| start + n * PAGE as u64;
            let found = |most| own_pages(pagemap.as_fd(), page(0), page(64), most);
            match found(8) {
                Ok(found) => assert_eq!(found, (page(64), vec![(page(3), page(5)), (page(9), page(10))])),
                // An older kernel.
                Err(e) => assert_eq!(e.raw(), libc::ENOTTY),
            }
            if let Ok((until, one)) = found(1) {
                assert_eq!((until, one), (page(9), vec![(page(3), page(5))]));
            }
            munmap(at, 64 * PAGE).unwrap();
        }
    }

    #[test]
    fn many_ranges_are_found_once() {
        const PAGE: usize = 4096;
        const PAGES: usize = 3000;
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        // SAFETY: a new mapping of its own, which is used within its bounds and unmapped at the end.
        unsafe {
            let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
            let at = mmap_anonymous(std::ptr::null_mut(), PAGES * PAGE, prot, flags).unwrap();
            // No large pages.
            rustix::mm::madvise(at, PAGES * PAGE, rustix::mm::Advice::LinuxNoHugepage).unwrap();
            for page in (0..PAGES).step_by(2) {
                at.cast::<u8>().add(page * PAGE).write_volatile(1);
            }
            let start = at as u64;
            let page = |n: usize| start + (n * PAGE) as u64;
            let whole: Vec<_> = (0..PAGES).step_by(2).map(|n| (page(n), page(n + 1))).collect();
            for most in [1, 100, 511, 512, 513, 700, 1000, 1024, 1500, 2000] {
                let (mut from, mut all) = (start, Vec::new());
                while from < page(PAGES) {
                    // An older kernel has no such call.
                    let Ok((until, some)) = own_pages(pagemap.as_fd(), from, page(PAGES), most) else {
                        return;
                    };
                    assert!(from < until && some.last().is_none_or(|last| last.1 <= until), "{most}");
                    all.extend(some);
                    from = until;
                }
                assert!(all == whole, "{most}: {} ranges", all.len());
            }
            munmap(at, PAGES * PAGE).unwrap();
        }
    }
}
