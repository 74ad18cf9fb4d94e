//! Memory of guest processes, as the host counts it.

use abi::PAGE_SIZE;
use mm::Mm;
use std::collections::HashSet;
use std::sync::Arc;
use task::{Kernel, ResidentPages};

/// Resident memory of an address space: the host's count, or where the host does not show it,
/// everything that is mapped with any access.
pub fn resident(k: &Kernel, mm: &Mm) -> ResidentPages {
    k.figures.resident(mm.space.host_pid()).unwrap_or_else(|| most_resident(mm))
}

/// What could be resident.
fn most_resident(mm: &Mm) -> ResidentPages {
    mm.with_map(|m| {
        let mut r = ResidentPages::default();
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

/// The address spaces of processes, each one once.
fn spaces(k: &Kernel) -> Vec<Arc<Mm>> {
    let mut seen = HashSet::new();
    let tasks = k.groups().into_iter().filter_map(|group| group.any_thread());
    tasks.map(|t| t.mm()).filter(|mm| seen.insert(Arc::as_ptr(mm) as usize)).collect()
}

/// Bytes that processes have locked.
pub fn memory_locked(k: &Kernel) -> u64 {
    spaces(k).iter().map(|mm| mm.with_map(|map| map.locked())).sum()
}

/// Bytes of memory in use by processes and files in memory, and how many of them are files' and shared.
pub fn memory_used(k: &Kernel) -> (u64, u64) {
    let spaces = spaces(k);
    let pids: Vec<i32> = spaces.iter().map(|mm| mm.space.host_pid()).collect();
    let all = match k.figures.all_resident(&pids) {
        Some(known) => known.into_iter().map(Option::unwrap_or_default).collect(),
        None => spaces.iter().map(|mm| most_resident(mm)).collect::<Vec<_>>(),
    };
    let (total, shared) =
        all.iter().fold((0, 0), |(total, shared), r| (total + r.total, shared + r.shared.min(r.total)));
    // Files in memory are resident in the processes that map them, too.
    let files = (shared * PAGE_SIZE).max(k.memory.bytes());
    ((total - shared) * PAGE_SIZE + files, files)
}
