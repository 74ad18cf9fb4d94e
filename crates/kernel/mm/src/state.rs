//! An address space as plain data, for checkpoints.

use crate::futex_hash::FutexHash;
use crate::map::{
    DONT_DUMP, DONT_FORK, MAX_MAP_COUNT, MemoryMap, RING, SEALED, TOUCHED, TRAMPOLINES, Vma, VmaKind,
    WIPE_ON_FORK,
};
use crate::policy::Policy;
use abi::PAGE_SIZE;
use files::MappedFile;
use image::Extent;
use ipc::aio::AioState;
use platform::Limits;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vfs::OpenFile;

/// What a saved area may have of [`Vma::flags`].
const FLAGS: i32 = libc::MAP_GROWSDOWN
    | libc::MAP_NORESERVE
    | libc::MAP_LOCKED
    | TOUCHED
    | DONT_FORK
    | DONT_DUMP
    | SEALED
    | RING
    | WIPE_ON_FORK;
/// Longest auxiliary vector and path of an executable in an image.
const MAX_BYTES: usize = 1 << 16;

/// An address space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryState {
    /// Its number in the image, which the processes that use it name.
    pub id: u64,
    /// Inode number of the user namespace that it belongs to.
    pub user_ns: u64,
    /// PR_SET_DUMPABLE.
    pub dumpable: i32,
    /// /proc/PID/coredump_filter.
    pub dump_filter: u32,
    /// PR_SET_THP_DISABLE, as PR_GET_THP_DISABLE answers it.
    pub huge_pages_off: u32,
    /// PR_FUTEX_HASH.
    #[serde(default)]
    pub futex_hash: FutexHash,
    /// Place and length of the vDSO, which the program knows.
    pub vdso: Option<(u64, u64)>,
    /// Place and length of the pages of the vDSO's data.
    pub vvar: Option<(u64, u64)>,
    /// Top of the area that address selection works down from.
    pub mmap_base: u64,
    /// Start of the heap.
    pub brk_start: u64,
    /// Current program break.
    pub brk: u64,
    /// The most bytes that were mapped at a time.
    pub peak: u64,
    /// MCL_FUTURE of mlockall(2).
    pub lock_future: bool,
    /// Call sites may be rewritten: the program has not been traced.
    pub rewriting: bool,
    /// What execve(2) recorded.
    pub image: ImageState,
    /// The mappings in ascending order, without those of the platform.
    pub areas: Vec<AreaState>,
    /// Contexts of io_setup(2).
    #[serde(default)]
    pub aio: Vec<AioState>,
}

/// [`crate::ImageInfo`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in ImageInfo")]
pub struct ImageState {
    /// Number of the executable's open file.
    pub exe: Option<u64>,
    pub exe_place: Option<Vec<u8>>,
    pub code: (u64, u64),
    pub data: (u64, u64),
    pub args: (u64, u64),
    pub env: (u64, u64),
    pub stack: u64,
    pub auxv: Vec<u8>,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaState {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// PROT_* bits.
    pub prot: i32,
    /// MAP_SHARED rather than MAP_PRIVATE.
    pub shared: bool,
    /// As [`Vma::flags`].
    pub flags: i32,
    /// Number of the mapped open file.
    pub file: Option<u64>,
    /// Offset in the file of `start`.
    pub offset: u64,
    /// mlock(2)ed.
    pub locked: bool,
    /// What it is.
    pub kind: VmaKind,
    /// Memory policy: mode with flags, and nodes.
    pub policy: (i32, u64),
    /// Pages of its own, by address.
    pub pages: Vec<Extent>,
    /// Pages that are as in a file of pages of an earlier image, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptState>,
    /// Guarded ranges (MADV_GUARD_INSTALL).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<(u64, u64)>,
}

/// Pages in a file of an earlier image, which a clone is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptState {
    /// Which file: 0 for that of the image that the sandbox was restored from, then those that this one kept pages of.
    pub layer: u32,
    /// Which pages.
    #[serde(flatten)]
    pub extent: Extent,
}

/// Anonymous memory that several address spaces may share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedState {
    /// As in [`VmaKind::SharedAnon`].
    pub number: u64,
    /// Length in bytes.
    pub len: u64,
    /// Its pages, by offset.
    pub pages: Vec<Extent>,
}

impl AreaState {
    fn of(v: &Vma) -> AreaState {
        AreaState {
            start: v.start,
            end: v.end,
            prot: v.prot,
            shared: v.shared,
            flags: v.flags,
            file: None,
            offset: v.offset,
            locked: v.locked,
            kind: v.kind.clone(),
            policy: v.policy.made_of(),
            pages: Vec::new(),
            kept: Vec::new(),
            guards: Vec::new(),
        }
    }

    /// The area; `None` when it is not sound.
    pub(crate) fn vma(&self, file: Option<&Arc<OpenFile>>) -> Option<Vma> {
        let any = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let whole = [self.start, self.end, self.offset].iter().all(|n| n.is_multiple_of(PAGE_SIZE));
        let anonymous = matches!(self.kind, VmaKind::SharedAnon(_));
        let sound = whole
            && self.start < self.end
            && self.prot & !any == 0
            && self.flags & !FLAGS == 0
            && self.offset.checked_add(self.end - self.start).is_some()
            && self.file.is_some() == file.is_some()
            && (anonymous || !self.shared || file.is_some())
            && (!anonymous || self.shared)
            && (!self.shared || self.pages.is_empty() && self.kept.is_empty());
        let policy = Policy::new(self.policy.0, self.policy.1).ok()?;
        sound.then(|| Vma {
            start: self.start,
            end: self.end,
            prot: self.prot,
            shared: self.shared,
            flags: self.flags,
            file: file.cloned().map(MappedFile::new),
            offset: self.offset,
            locked: self.locked,
            kind: self.kind.clone(),
            policy,
        })
    }
}

impl MemoryState {
    /// What the record says, without the areas' files and pages and the things beside the record.
    pub(crate) fn of_map(m: &MemoryMap, limits: &Limits) -> MemoryState {
        let own = m.iter().filter(|v| v.flags & TRAMPOLINES == 0);
        MemoryState {
            vdso: limits.vdso,
            vvar: limits.vvar,
            mmap_base: m.mmap_base,
            brk_start: m.brk_start,
            brk: m.brk,
            peak: m.peak(),
            lock_future: m.lock_future,
            rewriting: m.rewriting,
            areas: own.map(AreaState::of).collect(),
            ..MemoryState::default()
        }
    }

    /// The record of a restored address space. Nothing that an image says is taken unseen: an error says what is wrong.
    /// `file` finds the open files by their numbers, and `pages` has the length of the file of pages, then those of the files
    /// of earlier images.
    pub fn record(
        &self,
        limits: &Limits,
        file: &dyn Fn(u64) -> Option<Arc<OpenFile>>,
        pages: &[u64],
    ) -> Result<MemoryMap, String> {
        if (self.vdso, self.vvar) != (limits.vdso, limits.vvar) {
            return Err(
                "the vDSO is at another address here; restore with the platform of the checkpoint".into()
            );
        }
        if self.areas.len() > MAX_MAP_COUNT {
            return Err(format!("there are {} areas in one address space", self.areas.len()));
        }
        let image = &self.image;
        let long = image.auxv.len().max(image.exe_place.as_ref().map_or(0, Vec::len)) > MAX_BYTES;
        let breaks = self.brk_start <= self.brk && self.brk <= limits.max;
        let base = self.mmap_base <= limits.max && self.mmap_base.is_multiple_of(PAGE_SIZE);
        if long || !breaks || !base {
            return Err("the addresses of the program, its heap or its stack are not sound".into());
        }
        let mut m = MemoryMap::new(limits.min, limits.max);
        m.mmap_base = self.mmap_base;
        let mut from = limits.min;
        for a in &self.areas {
            let wrong = |what: &str| format!("the area at {:#x}..{:#x} {what}", a.start, a.end);
            if a.start < from || a.end > limits.max {
                return Err(wrong("meets another one, or is where the platform has no memory for programs"));
            }
            from = a.end;
            let open = match a.file {
                Some(id) => Some(
                    file(id).ok_or_else(|| wrong(&format!("maps file {id}, which is not in the image")))?,
                ),
                None => None,
            };
            let length = |layer: usize| pages.get(layer).copied().unwrap_or(0);
            let kept = |k: &KeptState| {
                image::check(&[k.extent], (a.start, a.end), length((k.layer as usize).saturating_add(1)))
            };
            if !image::check(&a.pages, (a.start, a.end), length(0)) || !a.kept.iter().all(kept) {
                return Err(wrong("has pages that are not in the image"));
            }
            m.insert(a.vma(open.as_ref()).ok_or_else(|| wrong("is not sound"))?);
        }
        m.brk_start = self.brk_start;
        m.brk = self.brk;
        m.lock_future = self.lock_future;
        m.rewriting = self.rewriting;
        m.raise_peak(self.peak);
        Ok(m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { min: 0x10000, max: 1 << 40, vdso: Some((1 << 41, 8192)), vvar: None, xstate_size: 0 };

    fn area(start: u64, end: u64) -> AreaState {
        AreaState {
            start: start * PAGE_SIZE,
            end: end * PAGE_SIZE,
            prot: 3,
            shared: false,
            flags: 0,
            file: None,
            offset: 0,
            locked: false,
            kind: VmaKind::Normal,
            policy: (0, 0),
            pages: vec![Extent { at: start * PAGE_SIZE, len: PAGE_SIZE, offset: 0 }],
            kept: Vec::new(),
            guards: Vec::new(),
        }
    }

    fn state() -> MemoryState {
        let heap = AreaState { kind: VmaKind::Heap, locked: true, ..area(200, 300) };
        let shared =
            AreaState { shared: true, kind: VmaKind::SharedAnon(7), pages: Vec::new(), ..area(400, 500) };
        let kept = vec![KeptState { layer: 0, extent: area(120, 121).pages[0] }];
        let bound = AreaState { flags: SEALED | WIPE_ON_FORK, policy: (2, 1), ..area(600, 700) };
        MemoryState {
            vdso: LIMITS.vdso,
            mmap_base: 1 << 39,
            brk_start: 200 * PAGE_SIZE,
            brk: 300 * PAGE_SIZE - 5,
            peak: 1 << 30,
            lock_future: true,
            rewriting: true,
            areas: vec![AreaState { kept, ..area(100, 150) }, heap, shared, bound],
            ..MemoryState::default()
        }
    }

    fn map(s: &MemoryState) -> Result<MemoryMap, String> {
        s.record(&LIMITS, &|_| None, &[PAGE_SIZE, PAGE_SIZE])
    }

    #[test]
    fn a_record_survives_the_image() {
        let mut bytes = Vec::new();
        ciborium::into_writer(&state(), &mut bytes).unwrap();
        let read: MemoryState = ciborium::from_reader(&bytes[..]).unwrap();
        assert_eq!(read, state());
        let m = map(&read).unwrap();
        let mut again = MemoryState::of_map(&m, &LIMITS);
        for (a, b) in again.areas.iter_mut().zip(&read.areas) {
            (a.pages, a.kept) = (b.pages.clone(), b.kept.clone());
        }
        assert_eq!(again, read);
    }

    #[test]
    fn what_is_not_sound_is_refused() {
        let refused = |change: &dyn Fn(&mut MemoryState)| {
            let mut s = state();
            change(&mut s);
            assert!(map(&s).is_err(), "{s:?}");
        };
        refused(&|s| s.vdso = None);
        refused(&|s| s.brk = 1 << 50);
        refused(&|s| s.brk = 0);
        refused(&|s| s.mmap_base = u64::MAX);
        refused(&|s| s.areas.swap(0, 1));
        refused(&|s| s.areas[3].end = 1 << 50);
        refused(&|s| s.areas[0].start = 0);
        refused(&|s| s.areas[0].start += 1);
        refused(&|s| s.areas[0].end = s.areas[0].start);
        refused(&|s| s.areas[0].offset = u64::MAX - PAGE_SIZE + 1);
        refused(&|s| s.areas[0].prot = 8);
        refused(&|s| s.areas[0].flags = TRAMPOLINES);
        refused(&|s| s.areas[0].file = Some(1));
        refused(&|s| s.areas[0].shared = true);
        refused(&|s| s.areas[0].kind = VmaKind::SharedAnon(1));
        refused(&|s| s.areas[0].policy = (99, 0));
        refused(&|s| s.areas[0].pages[0].offset = PAGE_SIZE);
        refused(&|s| s.areas[0].pages[0].at = 0);
        let kept = |layer| KeptState { layer, extent: area(100, 101).pages[0] };
        refused(&|s| s.areas[0].kept = vec![kept(1)]);
        refused(&|s| s.areas[0].kept = vec![kept(u32::MAX)]);
        refused(&|s| s.areas[1].kept = vec![kept(0)]);
        refused(&|s| s.areas[2].kept = vec![KeptState { layer: 0, extent: area(400, 401).pages[0] }]);
        refused(&|s| s.areas[2].pages = s.areas[1].pages.clone());
        refused(&|s| s.image.auxv = vec![0; MAX_BYTES + 1]);
        refused(&|s| s.areas = vec![area(100, 101); MAX_MAP_COUNT + 1]);
    }
}
