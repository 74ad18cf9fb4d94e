//! The record of mappings as an interval map, without any host call.

use crate::imaged::Imaged;
use crate::policy::Policy;
use crate::twin_map::TwinMap;
use abi::{Errno, PAGE_SIZE, Result};
use files::MappedFile;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use text_copies::Image;

/// Most mappings one address space may have (vm.max_map_count).
pub(crate) const MAX_MAP_COUNT: usize = 65530;

/// What a mapping is, for names in /proc/PID/maps and special treatment.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum VmaKind {
    /// Plain mmap(2) memory or a file.
    Normal,
    /// The brk area.
    Heap,
    /// The initial stack.
    Stack,
    /// Anonymous memory shared with forked processes; the number tells one from another.
    SharedAnon(u64),
}

/// One mapping.
#[derive(Clone)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// PROT_* bits.
    pub prot: i32,
    /// MAP_SHARED rather than MAP_PRIVATE.
    pub shared: bool,
    /// MAP_GROWSDOWN, MAP_NORESERVE and MAP_LOCKED as given, [`TOUCHED`], [`TRAMPOLINES`], [`DONT_FORK`], [`DONT_DUMP`],
    /// [`SEALED`], [`WIPE_ON_FORK`], [`RING`].
    pub flags: i32,
    /// Mapped file.
    pub file: Option<MappedFile>,
    /// Offset in the file of `start`.
    pub offset: u64,
    /// mlock(2)ed.
    pub locked: bool,
    /// What it is.
    pub kind: VmaKind,
    /// Memory policy.
    pub policy: Policy,
}

impl Vma {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Never true; mappings are not empty.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn same_object(&self, o: &Vma) -> bool {
        match (&self.file, &o.file) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// True when `next` continues this mapping seamlessly.
    fn joins(&self, next: &Vma) -> bool {
        self.end == next.start
            && self.prot == next.prot
            && self.shared == next.shared
            && self.flags == next.flags
            && self.locked == next.locked
            && self.kind == next.kind
            && self.policy == next.policy
            && self.same_object(next)
            && (self.file.is_none() || self.offset + self.len() == next.offset)
            && !(self.shared && self.file.is_none())
    }

    /// The part of it in `start..end`.
    pub fn part(&self, start: u64, end: u64) -> Vma {
        self.cut(self.start.max(start), self.end.min(end))
    }

    fn cut(&self, start: u64, end: u64) -> Vma {
        let mut v = self.clone();
        v.offset += start - v.start;
        v.start = start;
        v.end = end;
        v
    }
}

/// In [`Vma::flags`]: a file mapping that the program could write at some time.
pub const TOUCHED: i32 = 1 << 30;
/// In [`Vma::flags`]: the platform's, for rewritten call sites. The program cannot change it except by mapping over it.
pub const TRAMPOLINES: i32 = 1 << 29;
/// In [`Vma::flags`]: MADV_DONTFORK.
pub const DONT_FORK: i32 = 1 << 28;
/// In [`Vma::flags`]: MADV_DONTDUMP.
pub const DONT_DUMP: i32 = 1 << 26;
/// In [`Vma::flags`]: mseal(2).
pub const SEALED: i32 = 1 << 27;
/// In [`Vma::flags`]: MADV_WIPEONFORK. The host does it; a restore asks for it again.
pub const WIPE_ON_FORK: i32 = 1 << 25;
/// In [`Vma::flags`]: the ring of io_setup(2), which cannot become larger or executable.
pub const RING: i32 = 1 << 24;
/// How far a rewritten call site may be from its trampoline.
const REACH: u64 = 0x7000_0000;

/// Twins in one address space; further ones are not used.
const MAX_TWINS: usize = 64;

#[derive(Clone, Copy, Default)]
struct Packed {
    from: u64,
    top: u64,
}

/// How to take a recorded change back; see the module `undo`.
#[derive(Default)]
pub(crate) struct Undo {
    /// The range that changed.
    pub(crate) range: (u64, u64),
    /// What stood there.
    pub(crate) before: Vec<Vma>,
    /// The program break before a brk(2), which is also what that answers.
    pub(crate) brk: Option<u64>,
}

/// All mappings of an address space, plus the brk area's bounds.
#[derive(Clone)]
pub struct MemoryMap {
    areas: BTreeMap<u64, Vma>,
    /// Pages with rewritten call sites.
    rewritten: BTreeSet<u64>,
    /// Twins that are mapped.
    pub(crate) twins: Vec<TwinMap>,
    /// What is mapped from an image.
    pub(crate) imaged: Imaged,
    /// What is guarded ([`crate::guards`]).
    pub(crate) guards: Imaged,
    /// Call sites may be rewritten.
    pub rewriting: bool,
    /// Where execve(2) has mapped the interpreter, which maps libraries for the program.
    pub loader: std::ops::Range<u64>,
    /// Total mapped bytes (VmSize).
    total: u64,
    /// The most that they were (VmPeak).
    peak: u64,
    /// Lowest mappable address.
    pub min: u64,
    /// One past the highest mappable address.
    pub max: u64,
    /// Top of the area that address selection works down from.
    pub mmap_base: u64,
    /// Start of the heap.
    pub brk_start: u64,
    /// Current program break.
    pub brk: u64,
    /// `from..top` is mapped without a hole, and `top` was `mmap_base` then: the search for room begins below.
    packed: Packed,
    /// MCL_FUTURE of mlockall(2).
    pub(crate) lock_future: bool,
}

impl MemoryMap {
    /// An empty map over `min..max`.
    pub fn new(min: u64, max: u64) -> MemoryMap {
        MemoryMap {
            areas: BTreeMap::new(),
            rewritten: BTreeSet::new(),
            twins: Vec::new(),
            imaged: Imaged::default(),
            guards: Imaged::default(),
            rewriting: true,
            loader: 0..0,
            total: 0,
            peak: 0,
            min,
            max,
            mmap_base: max,
            brk_start: 0,
            brk: 0,
            packed: Packed::default(),
            lock_future: false,
        }
    }

    /// Takes every mapping out of the record.
    pub fn take_all(&mut self) -> Vec<Vma> {
        self.total = 0;
        self.twins.clear();
        self.imaged = Imaged::default();
        self.guards = Imaged::default();
        std::mem::take(&mut self.areas).into_values().collect()
    }

    /// Mappings in address order.
    pub fn iter(&self) -> impl Iterator<Item = &Vma> {
        self.areas.values()
    }

    /// Number of mappings.
    pub fn count(&self) -> usize {
        self.areas.len()
    }

    /// Mapped bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The most bytes that were mapped at a time.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The most bytes were this many before a checkpoint.
    pub(crate) fn raise_peak(&mut self, peak: u64) {
        self.peak = self.peak.max(peak);
    }

    /// Begins to count the most anew, as a process that was just made does.
    pub(crate) fn forget_peak(&mut self) {
        self.peak = self.total;
    }

    /// The mapping that holds `addr`.
    pub fn find(&self, addr: u64) -> Option<&Vma> {
        self.areas.range(..=addr).next_back().map(|(_, v)| v).filter(|v| v.end > addr)
    }

    /// The mappings before and behind an address at which there is none; `None` when there is one, or none behind.
    pub(crate) fn neighbours(&self, addr: u64) -> Option<(Option<&Vma>, &Vma)> {
        let below = self.areas.range(..=addr).next_back().map(|(_, v)| v);
        if below.is_some_and(|v| v.end > addr) {
            return None;
        }
        let (_, above) = self.areas.range(addr..).next()?;
        Some((below, above))
    }

    /// Mappings that meet `start..end`.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Vma> {
        let first = self.find(start).map_or(start, |v| v.start);
        self.areas.range(first..end.max(first)).map(|(_, v)| v)
    }

    /// True when every page of the range is mapped.
    pub fn covered(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        for v in self.overlapping(start, end) {
            if v.start > at {
                return false;
            }
            at = v.end;
        }
        at >= end
    }

    /// How many of `len` bytes from `start` on can be written, as far as the record says.
    pub fn writable_from(&self, start: u64, len: u64) -> u64 {
        let Some(end) = start.checked_add(len) else { return 0 };
        let mut at = start;
        for v in self.overlapping(start, end) {
            if v.start > at || v.prot & libc::PROT_WRITE == 0 {
                break;
            }
            at = v.end.min(end);
        }
        let guard = self.guarded(start, at).first().map_or(at, |(from, _)| *from);
        guard - start
    }

    /// True when every byte of the range lies in mappings with all of `prot`, none of them shared with a file (pages
    /// may be missing at the end of such a mapping; a private one is nearly always a program's data).
    pub fn accessible(&self, start: u64, len: u64, prot: i32) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        let mut at = start;
        for v in self.overlapping(start, end) {
            if v.start > at || v.prot & prot != prot || v.shared && v.file.is_some() {
                return false;
            }
            at = v.end;
        }
        at >= end && self.guarded(start, end).is_empty()
    }

    /// Checks that a range is page aligned at its start and inside the address space;
    /// gives its end rounded up.
    pub fn check_range(&self, start: u64, len: u64) -> Result<u64> {
        if !start.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let len = abi::page_up(len).ok_or(Errno::EINVAL)?;
        let end = start.checked_add(len).ok_or(Errno::EINVAL)?;
        if end > self.max { Err(Errno::EINVAL) } else { Ok(end) }
    }

    /// Nothing is mapped in `len` bytes (page multiple) from this page on, and a program may map something.
    pub(crate) fn is_free(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len).filter(|end| *end <= self.max);
        start >= self.min
            && start.is_multiple_of(PAGE_SIZE)
            && end.is_some_and(|end| self.overlapping(start, end).next().is_none())
    }

    /// Finds `len` free bytes (page multiple), aligned to `align`, highest first below `mmap_base`;
    /// `hint` is tried first. `gap` bytes stay free below every MAP_GROWSDOWN area.
    pub fn find_free(&self, hint: u64, len: u64, align: u64) -> Option<u64> {
        if self.is_free(hint, len) {
            return Some(hint);
        }
        self.find_below(self.packed_from(), len, align).or_else(|| self.find_below(self.max, len, align))
    }

    /// No page is free from here to `mmap_base`.
    fn packed_from(&self) -> u64 {
        if self.packed.top == self.mmap_base { self.packed.from } else { self.mmap_base }
    }

    /// Something has been mapped here.
    fn pack(&mut self, start: u64, end: u64, packed: u64) {
        let mut from = packed;
        if start < from && from <= end {
            from = start;
            while let Some((_, v)) = self.areas.range(..from).next_back().filter(|(_, v)| v.end == from) {
                from = v.start;
            }
        }
        self.packed = Packed { from, top: self.mmap_base };
    }

    fn find_below(&self, top: u64, len: u64, align: u64) -> Option<u64> {
        let mut end = top;
        for v in self.areas.range(..top).rev().map(|(_, v)| v) {
            if v.end < end
                && let Some(a) = fit(v.end.max(self.min), end, len, align)
            {
                return Some(a);
            }
            end = end.min(v.start);
        }
        fit(self.min, end, len, align)
    }

    /// True when the range is program text of one private file mapping that was never writable.
    pub fn is_pristine_text(&self, start: u64, end: u64) -> bool {
        self.find(start).is_some_and(|v| {
            let text = libc::PROT_READ | libc::PROT_EXEC;
            v.end >= end && v.file.is_some() && !v.shared && v.prot == text && v.flags & TOUCHED == 0
        })
    }

    /// `len` free bytes from which and to which a 32-bit jump reaches `site`.
    pub fn find_near(&self, site: u64, len: u64) -> Option<u64> {
        let v = self.find(site)?;
        if let Some(a) = self.find_below(v.start, len, PAGE_SIZE)
            && site - a < REACH
        {
            return Some(a);
        }
        let mut at = v.end;
        for next in self.areas.range(at..).map(|(_, v)| v) {
            if next.start - at >= len {
                break;
            }
            at = next.end;
        }
        (at + len <= self.max && at + len - site < REACH).then_some(at)
    }

    /// Remembers that bytes of these pages differ from the file's.
    pub fn set_rewritten(&mut self, addr: u64, len: u64) {
        self.rewritten.extend((abi::page_down(addr)..addr + len).step_by(PAGE_SIZE as usize));
    }

    /// Some bytes of this page differ from the file's, in this address space alone.
    pub(crate) fn is_rewritten(&self, addr: u64) -> bool {
        self.rewritten.contains(&abi::page_down(addr))
    }

    /// Pages of a range of which some bytes differ from the file's.
    pub(crate) fn rewritten_in(&self, start: u64, end: u64) -> Vec<u64> {
        self.rewritten.range(start..end.max(start)).copied().collect()
    }

    /// One twin more may be mapped by a call from this site. Only ld.so maps what will be executed in place. Others that map
    /// text may read it, translate it, or execute it elsewhere; and they get the file.
    pub(crate) fn takes_twin(&self, site: u64) -> bool {
        self.rewriting && self.twins.len() < MAX_TWINS && self.loader.contains(&site)
    }

    /// Records that a mapping, which was just made, is that of a twin.
    pub fn add_twin(&mut self, start: u64, image: Arc<Image>) {
        let end = start + image.len;
        self.twins.push(TwinMap { start, end, image, whole: true });
    }

    /// The twin in which an address lies, all of it as it was mapped.
    pub(crate) fn whole_twin(&self, addr: u64) -> Option<&TwinMap> {
        self.twins.iter().find(|t| t.whole && (t.start..t.end).contains(&addr))
    }

    /// Forgets the rewritten pages of a range and gives their addresses.
    pub fn take_rewritten(&mut self, start: u64, end: u64) -> Vec<u64> {
        let pages: Vec<u64> = self.rewritten.range(start..end.max(start)).copied().collect();
        for p in &pages {
            self.rewritten.remove(p);
        }
        pages
    }

    /// True when trampolines stand in the range.
    pub fn has_trampolines(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).any(|v| v.flags & TRAMPOLINES != 0)
    }

    /// The range without the trampolines in it.
    pub fn without_trampolines(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let mut at = start;
        for v in self.overlapping(start, end).filter(|v| v.flags & TRAMPOLINES != 0) {
            parts.push((at, v.start.max(at)));
            at = v.end;
        }
        parts.push((at, end.max(at)));
        parts.retain(|(a, b)| a < b);
        parts
    }

    /// Removes `start..end`, cutting mappings at the edges. Gives what was removed.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<Vma> {
        let hit: Vec<u64> = self.overlapping(start, end).map(|v| v.start).collect();
        let mut gone = Vec::new();
        for key in hit {
            let Some(v) = self.areas.remove(&key) else { continue };
            self.total -= v.len();
            if v.start < start {
                self.put(v.cut(v.start, start));
            }
            if v.end > end {
                self.put(v.cut(end, v.end));
            }
            gone.push(v.cut(v.start.max(start), v.end.min(end)));
        }
        if !self.imaged.is_empty() {
            self.imaged.remove(start, end);
        }
        if !self.guards.is_empty() {
            self.guards.remove(start, end);
        }
        if end > self.packed_from() {
            self.packed = Packed { from: end.min(self.mmap_base), top: self.mmap_base };
        }
        gone
    }

    fn put(&mut self, v: Vma) {
        self.total += v.len();
        self.peak = self.peak.max(self.total);
        self.areas.insert(v.start, v);
    }

    /// Records a mapping, replacing what was in its range and merging with its neighbours.
    pub fn insert(&mut self, v: Vma) {
        if v.start >= v.end {
            return;
        }
        let packed = self.packed_from();
        self.remove(v.start, v.end);
        let mut v = v;
        if v.file.is_some() && v.prot & libc::PROT_WRITE != 0 {
            v.flags |= TOUCHED;
        }
        if let Some(prev) = self.areas.range(..v.start).next_back().map(|(_, p)| p)
            && prev.joins(&v)
        {
            let key = prev.start;
            if let Some(p) = self.areas.remove(&key) {
                self.total -= p.len();
                v.offset = p.offset;
                v.start = p.start;
            }
        }
        if let Some(next) = self.areas.get(&v.end)
            && v.joins(next)
        {
            let key = next.start;
            if let Some(n) = self.areas.remove(&key) {
                self.total -= n.len();
                v.end = n.end;
            }
        }
        let (start, end) = (v.start, v.end);
        self.put(v);
        self.pack(start, end, packed);
    }

    /// Changes every mapping in the range through `change`, re-merging afterwards.
    pub fn update(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Vma)) {
        // What is mapped will be the same as before.
        let packed = Packed { from: self.packed_from(), top: self.mmap_base };
        let kept = (std::mem::take(&mut self.imaged), std::mem::take(&mut self.guards));
        let parts = self.remove(start, end);
        self.packed = packed;
        for mut v in parts {
            change(&mut v);
            self.insert(v);
        }
        (self.imaged, self.guards) = kept;
    }
}

fn fit(lo: u64, hi: u64, len: u64, align: u64) -> Option<u64> {
    let a = hi.checked_sub(len)? & !(align - 1);
    (a >= lo).then_some(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(start: u64, end: u64, prot: i32) -> Vma {
        Vma {
            start: start * PAGE_SIZE,
            end: end * PAGE_SIZE,
            prot,
            shared: false,
            flags: 0,
            file: None,
            offset: 0,
            locked: false,
            kind: VmaKind::Normal,
            policy: Policy::default(),
        }
    }

    fn model(m: &MemoryMap) -> Vec<(u64, u64, i32)> {
        m.iter().map(|v| (v.start / PAGE_SIZE, v.end / PAGE_SIZE, v.prot)).collect()
    }

    #[test]
    fn the_search_for_room_skips_what_is_packed_and_nothing_else() {
        let mut m = MemoryMap::new(PAGE_SIZE, 1000 * PAGE_SIZE);
        m.mmap_base = 900 * PAGE_SIZE;
        let mut seed = 1u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..20_000 {
            let (at, len) = (1 + random(950), 1 + random(20));
            match random(5) {
                0 => drop(m.remove(at * PAGE_SIZE, (at + len) * PAGE_SIZE)),
                1 => m.update(at * PAGE_SIZE, (at + len) * PAGE_SIZE, |v| v.prot ^= 2),
                2 => m.insert(v(at, at + len, 3)),
                3 => m.mmap_base = (800 + random(100)) * PAGE_SIZE,
                _ => {
                    if let Some(a) = m.find_free(0, len * PAGE_SIZE, PAGE_SIZE) {
                        m.insert(v(a / PAGE_SIZE, a / PAGE_SIZE + len, len as i32 & 3));
                    }
                }
            }
            let slow = m.find_below(m.mmap_base, len * PAGE_SIZE, PAGE_SIZE);
            assert_eq!(m.find_below(m.packed_from(), len * PAGE_SIZE, PAGE_SIZE), slow);
        }
    }

    #[test]
    fn neighbours_merge_and_cuts_split() {
        let mut m = MemoryMap::new(PAGE_SIZE, 1000 * PAGE_SIZE);
        m.insert(v(10, 20, 3));
        m.insert(v(20, 30, 3));
        assert_eq!(model(&m), [(10, 30, 3)]);
        m.update(15 * PAGE_SIZE, 18 * PAGE_SIZE, |v| v.prot = 1);
        assert_eq!(model(&m), [(10, 15, 3), (15, 18, 1), (18, 30, 3)]);
        m.update(15 * PAGE_SIZE, 18 * PAGE_SIZE, |v| v.prot = 3);
        assert_eq!(model(&m), [(10, 30, 3)]);
        m.remove(12 * PAGE_SIZE, 13 * PAGE_SIZE);
        assert_eq!(model(&m), [(10, 12, 3), (13, 30, 3)]);
        assert_eq!(m.total(), 19 * PAGE_SIZE);
        assert!(m.covered(13 * PAGE_SIZE, 30 * PAGE_SIZE));
        assert!(!m.covered(11 * PAGE_SIZE, 14 * PAGE_SIZE));
    }

    #[test]
    fn against_a_page_by_page_model() {
        let mut m = MemoryMap::new(PAGE_SIZE, 256 * PAGE_SIZE);
        let mut pages = [0i32; 256];
        let mut seed = 12345u64;
        let mut rnd = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..20_000 {
            let a = 1 + rnd(250);
            let b = a + 1 + rnd(255 - a);
            match rnd(3) {
                0 => {
                    let p = 1 + rnd(3) as i32;
                    m.insert(v(a, b, p));
                    pages[a as usize..b as usize].fill(p);
                }
                1 => {
                    m.remove(a * PAGE_SIZE, b * PAGE_SIZE);
                    pages[a as usize..b as usize].fill(0);
                }
                _ => {
                    m.update(a * PAGE_SIZE, b * PAGE_SIZE, |v| v.prot = 7);
                    pages[a as usize..b as usize].iter_mut().filter(|p| **p != 0).for_each(|p| *p = 7);
                }
            }
            assert_eq!(m.total() / PAGE_SIZE, pages.iter().filter(|p| **p != 0).count() as u64);
        }
        for (i, p) in pages.iter().enumerate() {
            assert_eq!(m.find(i as u64 * PAGE_SIZE).map_or(0, |v| v.prot), *p);
        }
        if let Some(a) = m.find_free(0, 3 * PAGE_SIZE, PAGE_SIZE) {
            assert!(pages[(a / PAGE_SIZE) as usize..][..3].iter().all(|p| *p == 0));
        }
    }
}
