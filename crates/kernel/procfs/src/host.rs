//! What the host tells of guest processes.

use abi::PAGE_SIZE;
use mm::Mm;

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
