//! Memory of guest processes, as the host counts it.

use abi::PAGE_SIZE;
use mm::Mm;
use std::collections::HashSet;
use std::sync::Arc;
use task::Kernel;

/// Resident memory in pages.
#[derive(Clone, Copy, Default)]
pub struct Resident {
    /// All of it.
    pub total: u64,
    /// Pages of files and of shared memory.
    pub shared: u64,
}

/// Resident memory of an address space: the host's count, or where the host does not show it,
/// everything that is mapped with any access.
pub fn resident(mm: &Mm) -> Resident {
    if let Some((total, shared)) = hostsys::process::resident_pages(mm.space.host_pid()) {
        return Resident { total, shared };
    }
    mm.with_map(|m| {
        let mut r = Resident::default();
        for v in m.iter().filter(|v| v.prot != libc::PROT_NONE) {
            let pages = v.len() / PAGE_SIZE;
            r.total += pages;
            if v.shared || v.file.is_some() {
                r.shared += pages;
            }
        }
        r
    })
}

/// Bytes of memory in use by processes, and how many of them are files' and shared.
pub fn memory_used(k: &Kernel) -> (u64, u64) {
    let groups: Vec<_> = k.groups();
    let mut seen = HashSet::new();
    let (mut total, mut shared) = (0, 0);
    for g in groups {
        let Some(t) = g.any_thread() else { continue };
        let mm = t.mm();
        if seen.insert(Arc::as_ptr(&mm) as usize) {
            let r = resident(&mm);
            total += r.total;
            shared += r.shared.min(r.total);
        }
    }
    (total * PAGE_SIZE, shared * PAGE_SIZE)
}
