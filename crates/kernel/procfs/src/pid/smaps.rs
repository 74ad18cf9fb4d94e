//! /proc/PID/smaps and smaps_rollup. The host counts resident pages of a whole address space only, so the pages of a
//! mapping that is not locked are its share by size. Pages count as shared when their object is mapped more than once in the sandbox.

use crate::pid::maps::{Line, header, lines};
use abi::{Errno, PAGE_SIZE, Result};
use kernfs::{At, resident};
use mm::{Mm, Vma, VmaKind};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use task::Kernel;

#[derive(Clone, Copy, Default)]
struct Use {
    rss: u64,
    anon: u64,
    shmem: u64,
    shared: u64,
    dirty: u64,
    locked: u64,
}

/// What is mapped how often: files by their inode, anonymous shared memory by its number.
#[derive(Default)]
struct Sharing(HashMap<(u64, u64), usize>);

impl Sharing {
    /// Looks at all address spaces.
    fn of(k: &Kernel) -> Sharing {
        let groups: Vec<_> = k.groups();
        let spaces: HashMap<usize, Arc<Mm>> = groups
            .iter()
            .filter_map(|g| Some(g.any_thread()?.mm()))
            .map(|mm| (Arc::as_ptr(&mm) as usize, mm))
            .collect();
        let mut all = Sharing::default();
        for mm in spaces.values() {
            mm.with_map(|m| {
                for key in m.iter().filter_map(Sharing::key) {
                    *all.0.entry(key).or_default() += 1;
                }
            });
        }
        all
    }

    fn key(v: &Vma) -> Option<(u64, u64)> {
        match (&v.kind, &v.file) {
            (VmaKind::SharedAnon(n), _) => Some((0, *n)),
            // Pages of a private mapping that can be written are mostly copies.
            (_, Some(f)) if v.shared || v.prot & libc::PROT_WRITE == 0 => {
                let inode = f.inode.as_ref().map_or(0, |i| Arc::as_ptr(i).cast::<()>() as u64);
                Some((inode, v.offset))
            }
            _ => None,
        }
    }

    fn shares(&self, v: &Vma) -> bool {
        Sharing::key(v).and_then(|k| self.0.get(&k)).is_some_and(|n| *n > 1)
    }
}

impl Use {
    /// Of a mapping that has `part` resident pages.
    fn of(l: &Line, part: u64, sharing: &Sharing) -> Use {
        let v = &l.vma;
        let rss = part * PAGE_SIZE / 1024;
        // Pages of a private mapping that the program could write are mostly copies.
        let anon = if copied(v) { rss } else { 0 };
        let dirty = if v.prot & libc::PROT_WRITE != 0 { rss } else { 0 };
        Use {
            rss,
            anon,
            shmem: if v.shared { rss } else { 0 },
            shared: if sharing.shares(v) { rss } else { 0 },
            dirty,
            locked: if v.locked { rss } else { 0 },
        }
    }

    fn add(&mut self, o: Use) {
        self.rss += o.rss;
        self.anon += o.anon;
        self.shmem += o.shmem;
        self.shared += o.shared;
        self.dirty += o.dirty;
        self.locked += o.locked;
    }

    fn print(&self, s: &mut String, rollup: bool) {
        let mut f = |k: &str, v: u64| {
            let _ = writeln!(s, "{:<16}{v:>8} kB", format!("{k}:"));
        };
        f("Rss", self.rss);
        f("Pss", self.rss);
        f("Pss_Dirty", self.dirty);
        if rollup {
            f("Pss_Anon", self.anon);
            f("Pss_File", self.rss - self.anon - self.shmem);
            f("Pss_Shmem", self.shmem);
        }
        let shared_dirty = self.shared.min(self.dirty);
        f("Shared_Clean", self.shared - shared_dirty);
        f("Shared_Dirty", shared_dirty);
        f("Private_Clean", self.rss - self.shared - (self.dirty - shared_dirty));
        f("Private_Dirty", self.dirty - shared_dirty);
        f("Referenced", self.rss);
        f("Anonymous", self.anon);
        for k in [
            "KSM",
            "LazyFree",
            "AnonHugePages",
            "ShmemPmdMapped",
            "FilePmdMapped",
            "Shared_Hugetlb",
            "Private_Hugetlb",
            "Swap",
            "SwapPss",
        ] {
            f(k, 0);
        }
        f("Locked", self.locked);
    }
}

/// Pages of a mapping that could be resident.
fn could_be(l: &Line) -> u64 {
    if l.special || l.vma.prot == libc::PROT_NONE { 0 } else { l.vma.len() / PAGE_SIZE }
}

/// Resident pages against pages that could be. Locked pages are resident: of a mapping that was locked before it was
/// touched (MLOCK_ONFAULT) as far as the host counts so many.
struct Share {
    resident: u64,
    all: u64,
    locked: u64,
}

impl Share {
    fn of(at: &At, all: &[Line]) -> Self {
        let resident = at.mm().ok().flatten().map_or(0, |m| resident(at.kernel(), &m).total);
        let locked = all.iter().filter(|l| l.vma.locked).map(could_be).sum();
        let all = all.iter().map(could_be).sum();
        let locked = if locked <= resident { locked } else { 0 };
        Self { resident: resident.min(all) - locked, all: all - locked, locked }
    }

    /// Whether all pages of a mapping are resident.
    fn whole(&self, l: &Line) -> bool {
        l.vma.locked && self.locked > 0
    }

    /// The resident pages of a mapping.
    fn part(&self, l: &Line) -> u64 {
        if self.whole(l) { could_be(l) } else { self.of_unlocked(could_be(l)) }
    }

    /// Of so many pages that are not locked as many are resident, rounded up.
    fn of_unlocked(&self, pages: u64) -> u64 {
        let product = u128::from(pages) * u128::from(self.resident);
        product.div_ceil(u128::from(self.all.max(1))) as u64
    }
}

/// Whether the program can write to a private mapping, or could: the host counts its pages as memory that is used.
fn accounted(v: &Vma) -> bool {
    !v.shared && (v.prot & libc::PROT_WRITE != 0 || v.flags & mm::TOUCHED != 0)
}

/// Whether a mapping's pages are its own, not a file's.
fn copied(v: &Vma) -> bool {
    !v.shared && (v.file.is_none() || accounted(v))
}

fn flags(l: &Line) -> String {
    let v = &l.vma;
    let mut s = String::from("VmFlags: ");
    let mut f = |on: bool, name: &str| {
        if on {
            s.push_str(name);
            s.push(' ');
        }
    };
    f(v.prot & libc::PROT_READ != 0, "rd");
    f(v.prot & libc::PROT_WRITE != 0, "wr");
    f(v.prot & libc::PROT_EXEC != 0, "ex");
    f(v.shared && v.file.as_ref().is_none_or(|f| f.writable()), "sh");
    f(true, "mr");
    f(!v.shared || v.file.as_ref().is_none_or(|f| f.writable()), "mw");
    f(v.flags & mm::RING == 0, "me");
    f(v.shared, "ms");
    f(v.flags & libc::MAP_GROWSDOWN != 0, "gd");
    f(v.locked, "lo");
    f(l.special || v.flags & mm::RING != 0, "de");
    f(v.flags & libc::MAP_NORESERVE != 0, "nr");
    f(v.flags & libc::MAP_NORESERVE == 0 && accounted(v), "ac");
    f(v.flags & mm::DONT_FORK != 0, "dc");
    f(v.flags & mm::DONT_DUMP != 0, "dd");
    f(v.flags & mm::SEALED != 0, "sl");
    s
}

pub fn smaps(at: &At) -> Result<Vec<u8>> {
    let all = lines(at)?;
    let (share, sharing) = (Share::of(at, &all), Sharing::of(at.kernel()));
    let mut out = Vec::new();
    for l in &all {
        out.extend(header(l));
        let mut s = String::new();
        let size = l.vma.len() / 1024;
        let _ = write!(
            s,
            "Size:           {size:>8} kB\nKernelPageSize: {:>8} kB\nMMUPageSize:    {:>8} kB\n",
            4, 4
        );
        Use::of(l, share.part(l), &sharing).print(&mut s, false);
        let _ = writeln!(s, "THPeligible:           0\n{}", flags(l));
        out.extend(s.into_bytes());
    }
    Ok(out)
}

pub fn rollup(at: &At) -> Result<Vec<u8>> {
    let all = lines(at)?;
    let user: Vec<&Line> = all.iter().filter(|l| l.vma.start < 1 << 63).collect();
    let (Some(first), Some(last)) = (user.first(), user.last()) else { return Err(Errno::ESRCH) };
    let (share, sharing) = (Share::of(at, &all), Sharing::of(at.kernel()));
    let mut sum = Use::default();
    let (mut pages, mut resident) = (0, 0);
    for l in &all {
        // Together exactly what the host counts.
        let part = if share.whole(l) {
            could_be(l)
        } else {
            pages += could_be(l);
            let part = share.of_unlocked(pages) - resident;
            resident += part;
            part
        };
        sum.add(Use::of(l, part, &sharing));
    }
    let mut s = format!("{:08x}-{:08x} ---p 00000000 00:00 0 ", first.vma.start, last.vma.end);
    while s.len() < 73 {
        s.push(' ');
    }
    s.push_str("[rollup]\n");
    sum.print(&mut s, true);
    Ok(s.into_bytes())
}
