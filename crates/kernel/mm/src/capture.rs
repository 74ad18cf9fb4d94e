//! Saving an address space: its record, and the pages that are not in any file.
//!
//! All guest threads of the address space stand still. What is saved of a private mapping of a file are pages that the
//! program may have changed; rewritten text is left out, because its own bytes are in the file. Nothing changes for the
//! program, which may go on afterwards.

use crate::imaged::Origin;
use crate::map::{DONT_DUMP, TOUCHED, TRAMPOLINES, Vma, VmaKind, WIPE_ON_FORK};
use crate::ops::Mm;
use crate::state::{AreaState, ImageState, KeptState, MemoryState, SharedState};
use abi::PAGE_SIZE;
use image::{Extent, PageSink, Runs};
use platform::{Action, Context, Limits};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are read at once.
const PIECE: u64 = 256 << 10;
/// Bytes that one of several threads saves at a time.
const BATCH: u64 = 8 << 20;
/// So many bytes are worth a thread.
const WORTH_A_THREAD: u64 = 8 << 20;

/// Knows which pages of an address space are its own: anonymous memory that was written, and copies of a file's pages.
pub trait Presence {
    /// Calls `found` with ranges in ascending order that hold all such pages of `start..end`.
    fn own_pages(&mut self, start: u64, end: u64, found: &mut dyn FnMut(u64, u64)) -> io::Result<()>;
}

/// Ranges that were asked for at once: each question is a way to another process and back.
struct Listed(Vec<(u64, u64)>);

impl Listed {
    fn of(own: &mut dyn Presence, areas: &[Vma]) -> io::Result<Listed> {
        let mut listed = Vec::new();
        if let (Some(first), Some(last)) = (areas.first(), areas.last()) {
            own.own_pages(first.start, last.end, &mut |a, b| listed.push((a, b)))?;
        }
        Ok(Listed(listed))
    }

    /// Those of `start..end`.
    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let first = self.0.partition_point(|(_, b)| *b <= start);
        let met = self.0.get(first..).unwrap_or_default().iter().take_while(move |(a, _)| *a < end);
        met.map(move |(a, b)| ((*a).max(start), (*b).min(end)))
    }
}

/// Saves the address spaces of a kernel.
pub struct Saver {
    limits: Limits,
    pages: Arc<dyn PageSink>,
    /// Pages that are as in the files of the image that the sandbox was restored from are named, not saved.
    keeps: bool,
    /// Areas that are to be in no core file, or in no child, have no pages in the image.
    spares: bool,
    shared: BTreeMap<u64, Shared>,
}

/// Anonymous shared memory, as far as it was seen.
#[derive(Default)]
struct Shared {
    len: u64,
    /// What was saved: start and end, by start.
    saved: BTreeMap<u64, u64>,
    pages: Vec<Extent>,
}

impl Saver {
    /// Puts pages to `pages`. Mapped files are named by [`vfs::OpenFile::id`]. With `keeps`, pages that the program has not
    /// changed since a restore are named ([`AreaState::kept`]): for a sandbox that is given the files that they are in.
    pub fn new(limits: Limits, pages: Arc<dyn PageSink>, keeps: bool) -> Saver {
        Saver { limits, pages, keeps, spares: false, shared: BTreeMap::new() }
    }

    /// With `spares`, private memory without a file is left out where the program asked for MADV_DONTDUMP or MADV_WIPEONFORK: it reads
    /// as zeros after a restore.
    #[must_use]
    pub fn sparing(self, spares: bool) -> Saver {
        Saver { spares, ..self }
    }

    /// The memory that address spaces share without a file, when all are saved.
    pub fn shared(self) -> Vec<SharedState> {
        let state = |(number, mut s): (u64, Shared)| {
            s.pages.sort_by_key(|e| e.at);
            SharedState { number, len: s.len, pages: s.pages }
        };
        self.shared.into_iter().map(state).collect()
    }
}

impl Shared {
    /// The parts of a range that are not saved yet; they are from now on.
    fn take(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.len = self.len.max(end);
        let mut parts = Vec::new();
        let mut at = start;
        let before = self.saved.range(..=start).next_back().map_or(start, |(from, _)| *from);
        for (from, to) in self.saved.range(before..end) {
            if at < *from {
                parts.push((at, *from));
            }
            at = at.max(*to);
        }
        if at < end {
            parts.push((at, end));
        }
        self.saved.extend(parts.iter().copied());
        parts
    }
}

fn failed(v: &Vma, error: &dyn std::fmt::Display) -> String {
    format!("cannot save the memory at {:#x}..{:#x}: {error}", v.start, v.end)
}

impl Mm {
    /// Saves the address space under the number `id`. All its guest threads stand still; `ctx` is one of them, with
    /// nothing queued and nothing to settle ([`Mm::settle`]). Without `own` all memory that may hold something is read.
    pub fn state(
        &self,
        id: u64,
        ctx: &mut dyn Context,
        own: Option<&mut dyn Presence>,
        saver: &mut Saver,
    ) -> Result<MemoryState, String> {
        let (mut state, areas) = {
            let m = self.map.lock();
            let areas: Vec<Vma> = m.iter().filter(|v| v.flags & TRAMPOLINES == 0).cloned().collect();
            (MemoryState::of_map(&m, &saver.limits), areas)
        };
        for (v, area) in areas.iter().zip(&mut state.areas) {
            area.file = v.file.as_deref().map(|f| f.id);
        }
        state.id = id;
        // Nothing leads to a context without its mapping.
        let mapped = |file: u64| state.areas.iter().any(|area| area.file == Some(file));
        let contexts = self.aio.lock().clone();
        let kept = contexts.iter().filter(|(file, _)| mapped(**file));
        state.aio = kept.map(|(file, context)| context.state(*file)).collect();
        state.user_ns = self.user_ns.inum();
        state.dumpable = self.dumpable.load(Ordering::Relaxed);
        state.dump_filter = self.dump_filter.load(Ordering::Relaxed);
        state.huge_pages_off = self.huge_pages_off.load(Ordering::Relaxed);
        state.futex_hash = *self.futex_hash.lock();
        let image = self.image();
        state.image = ImageState {
            exe: image.exe.as_ref().map(|f| f.id),
            exe_place: image.exe_place.map(|p| p.to_vec()),
            code: image.code,
            data: image.data,
            args: image.args,
            env: image.env,
            stack: image.stack,
            auxv: image.auxv.to_vec(),
        };
        let _ops = self.ops.lock();
        let saved = |v: &Vma| !v.shared || matches!(v.kind, VmaKind::SharedAnon(_));
        let hidden = |v: &&Vma| v.prot & libc::PROT_READ == 0 && saved(v);
        let lift = |ctx: &mut dyn Context, more: i32| {
            for v in areas.iter().filter(hidden) {
                ctx.queue(Action::Protect { addr: v.start, len: v.len(), prot: v.prot | more });
            }
            ctx.flush().map_err(|e| format!("cannot make memory readable for a moment: error {}", e.raw()))
        };
        let saved =
            lift(ctx, libc::PROT_READ).and_then(|()| self.save_areas(&areas, own, saver, &mut state.areas));
        lift(ctx, 0)?;
        saved?;
        Ok(state)
    }

    fn save_areas(
        &self,
        areas: &[Vma],
        own: Option<&mut dyn Presence>,
        saver: &mut Saver,
        states: &mut [AreaState],
    ) -> Result<(), String> {
        let own = own.map(|own| Listed::of(own, areas)).transpose();
        let own = own.map_err(|e| format!("cannot find the pages of a process: {e}"))?;
        let mut batches = Vec::new();
        for (area, v) in areas.iter().enumerate() {
            let guards = self.with_map(|m| m.guarded(v.start, v.end));
            if !guards.is_empty() && matches!(v.kind, VmaKind::SharedAnon(_)) {
                // What is below them is read through this process, which cannot read it.
                return Err("has guard pages (MADV_GUARD_INSTALL) in shared memory".into());
            }
            if let Some(state) = states.get_mut(area) {
                state.guards = guards;
            }
            if let VmaKind::SharedAnon(number) = v.kind {
                let shared = saver.shared.entry(number).or_default();
                let shift = v.offset.wrapping_sub(v.start);
                let parts = shared.take(v.offset, v.offset + v.len());
                let parts = parts.iter().map(|(a, b)| (a.wrapping_sub(shift), b.wrapping_sub(shift)));
                // Behind the memory's end there is no page.
                let how = How { area, shift, ends: true, exact: false };
                cut(parts, how, &mut batches);
            } else if saver.spares && v.file.is_none() && v.flags & (DONT_DUMP | WIPE_ON_FORK) != 0 {
                // It is zeros in the restored process.
            } else if !v.shared {
                let parts = self.parts(v, own.as_ref(), saver.keeps);
                let over_file = v.file.is_some();
                let how = How { area, shift: 0, ends: over_file, exact: over_file || parts.mixed };
                cut(parts.fresh.into_iter(), how, &mut batches);
                cut(parts.changed.into_iter(), how, &mut batches);
                if let Some(state) = states.get_mut(area) {
                    state.kept = parts.kept;
                }
            }
        }
        let saved = self.save_batches(&*saver.pages, &batches).map_err(|(area, error)| {
            areas.get(area).map_or_else(|| error.to_string(), |v| failed(v, &error))
        })?;
        for (batch, extents) in batches.iter().zip(saved) {
            let (Some(v), Some(state)) = (areas.get(batch.how.area), states.get_mut(batch.how.area)) else {
                continue;
            };
            match v.kind {
                VmaKind::SharedAnon(number) => {
                    saver.shared.entry(number).or_default().pages.extend(extents);
                }
                _ => state.pages.extend(extents),
            }
        }
        states.iter_mut().for_each(|state| state.pages.sort_by_key(|e| e.at));
        Ok(())
    }

    /// What was saved of each batch, by as many threads as it is worth; an error names the area.
    fn save_batches(
        &self,
        pages: &dyn PageSink,
        batches: &[Batch],
    ) -> Result<Vec<Vec<Extent>>, (usize, io::Error)> {
        let bytes: u64 = batches.iter().flat_map(|batch| &batch.parts).map(|(start, end)| end - start).sum();
        let threads = (bytes / WORTH_A_THREAD).min(hostsys::clock::processors() as u64).max(1);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut buf = vec![0; PIECE as usize];
            let mut saved = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(batch) = batches.get(at) else { return Ok(saved) };
                let extents = self.save(pages, batch, &mut buf).map_err(|e| (batch.how.area, e))?;
                saved.push((at, extents));
            }
        };
        let done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut done = vec![work()];
            let ended = |_| Err((usize::MAX, io::Error::other("a thread that saved memory has ended")));
            done.extend(others.into_iter().map(|other| other.join().unwrap_or_else(ended)));
            done
        });
        let mut all: Vec<_> = (0..batches.len()).map(|_| Vec::new()).collect();
        for saved in done {
            for (at, extents) in saved? {
                if let Some(to) = all.get_mut(at) {
                    *to = extents;
                }
            }
        }
        Ok(all)
    }

    fn save(&self, pages: &dyn PageSink, batch: &Batch, buf: &mut [u8]) -> io::Result<Vec<Extent>> {
        let mut runs = if batch.how.exact { Runs::exact(pages) } else { Runs::new(pages) };
        for &(start, end) in &batch.parts {
            let mut at = start;
            while at < end {
                let want = (end - at).min(buf.len() as u64) as usize;
                let piece = buf.get_mut(..want).unwrap_or_default();
                let got = self.space.read(at, piece) / PAGE_SIZE as usize * PAGE_SIZE as usize;
                runs.put(at.wrapping_add(batch.how.shift), piece.get(..got).unwrap_or_default())?;
                at += got as u64;
                if got < want {
                    if !batch.how.ends {
                        return Err(io::Error::other("the host process that holds it does not give it"));
                    }
                    at += PAGE_SIZE;
                }
            }
        }
        Ok(runs.finish())
    }

    /// The ranges of a private area with pages of its own. With `keeps` also those that are as in an earlier image.
    fn parts(&self, v: &Vma, own: Option<&Listed>, keeps: bool) -> Parts {
        let pieces = self.with_map(|m| m.imaged.pieces(v.start, v.end));
        // What was never writable is as in the file.
        let unknown = v.file.is_none() || v.flags & TOUCHED != 0;
        // Then no range may reach over another's pages.
        let mixed = keeps && own.is_some() && pieces.iter().any(|p| p.2.is_some_and(|p| p.origin.is_some()));
        let mut all = Parts { mixed, ..Parts::default() };
        for (start, end, imaged) in pieces {
            let origin = imaged.and_then(|piece| piece.origin);
            match (own, origin) {
                _ if imaged.is_none() && !unknown => {}
                (Some(own), _) if imaged.is_none() => {
                    let found: Vec<_> = own.within(start, end).collect();
                    let found = self.with_map(|m| m.unguarded(&found));
                    all.fresh.extend(if mixed { joined(&found) } else { found });
                }
                (Some(own), Some(origin)) if keeps => {
                    let changed: Vec<_> = own.within(start, end).collect();
                    let changed = self.with_map(|m| m.unguarded(&changed));
                    // The image has the bytes of rewritten text, too.
                    let changed = self.without_rewritten(&joined(&changed));
                    all.keep((start, end), &changed, origin);
                    all.changed.extend(changed);
                }
                _ => all.fresh.push((start, end)),
            }
        }
        if v.file.is_some() && !mixed {
            all.fresh = joined(&all.fresh);
        }
        all.fresh = self.without_rewritten(&all.fresh);
        all.fresh = self.with_map(|m| m.unguarded(&all.fresh));
        all
    }

    fn without_rewritten(&self, parts: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let m = self.map.lock();
        let mut rest = Vec::new();
        for &(start, end) in parts {
            let mut at = start;
            for page in m.rewritten_in(start, end) {
                if at < page {
                    rest.push((at, page));
                }
                at = page + PAGE_SIZE;
            }
            if at < end {
                rest.push((at, end));
            }
        }
        rest
    }
}

/// The ranges of a private area, each list in ascending order, that hold pages of its own.
#[derive(Default)]
struct Parts {
    /// In no image.
    fresh: Vec<(u64, u64)>,
    /// Changed since the restore.
    changed: Vec<(u64, u64)>,
    /// As they were restored.
    kept: Vec<KeptState>,
    /// There may be some of each.
    mixed: bool,
}

impl Parts {
    /// Keeps what of a range is not changed; it begins at `origin`.
    fn keep(&mut self, (start, end): (u64, u64), changed: &[(u64, u64)], origin: Origin) {
        let ends = [(end, end)];
        let mut at = start;
        for &(from, to) in changed.iter().chain(&ends) {
            if at < from {
                let extent = Extent { at, len: from - at, offset: origin.offset + (at - start) };
                self.kept.push(KeptState { layer: origin.layer, extent });
            }
            at = to;
        }
    }
}

/// How ranges of an area are saved.
#[derive(Clone, Copy)]
struct How {
    /// Which area.
    area: usize,
    /// Pages belong so much higher than their addresses.
    shift: u64,
    /// There may be no page at some places.
    ends: bool,
    /// See [`Runs::exact`].
    exact: bool,
}

/// Ranges of one area, in ascending order, that one thread saves.
struct Batch {
    how: How,
    parts: Vec<(u64, u64)>,
}

/// Puts ranges into batches of equal size.
fn cut(parts: impl Iterator<Item = (u64, u64)>, how: How, batches: &mut Vec<Batch>) {
    let mut room = 0;
    for (start, end) in parts {
        let mut at = start;
        while at < end {
            if room == 0 {
                batches.push(Batch { how, parts: Vec::new() });
                room = BATCH;
            }
            let to = end.min(at.saturating_add(room));
            if let Some(batch) = batches.last_mut() {
                batch.parts.push((at, to));
            }
            room -= to - at;
            at = to;
        }
    }
}

/// Joins ranges of pages over a file where what is between is small, so that there are not too many mappings. What is
/// between is saved too: it is as in the file.
fn joined(parts: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut out: Vec<(u64, u64)> = Vec::new();
    for &(start, end) in parts {
        let most = (4 * PAGE_SIZE) << (out.len() / 64).min(30);
        match out.last_mut() {
            Some(last) if start - last.1 < most => last.1 = end,
            _ => out.push((start, end)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranges_become_few() {
        let parts: Vec<_> = (0..100_000).map(|i| (i * 9 * PAGE_SIZE, (i * 9 + 1) * PAGE_SIZE)).collect();
        let few = joined(&parts);
        assert!(few.len() < 200, "{}", few.len());
        assert_eq!((few[0], few.last().unwrap().1), (parts[0], parts[99_999].1));
    }

    #[test]
    fn batches_hold_all_ranges_in_order() {
        let how = How { area: 3, shift: 0, ends: false, exact: false };
        let mut batches = Vec::new();
        let parts = [(0, PAGE_SIZE), (BATCH, 4 * BATCH), (5 * BATCH, 5 * BATCH + PAGE_SIZE)];
        cut(parts.into_iter(), how, &mut batches);
        cut([].into_iter(), how, &mut batches);
        let all: Vec<_> = batches.iter().map(|b| b.parts.clone()).collect();
        let borders = [BATCH * 2 - PAGE_SIZE, BATCH * 3 - PAGE_SIZE, 4 * BATCH - PAGE_SIZE];
        let last = vec![(borders[2], 4 * BATCH), parts[2]];
        let middle = vec![(borders[1], borders[2])];
        let first = vec![parts[0], (BATCH, borders[0])];
        assert_eq!(all, [first, vec![(borders[0], borders[1])], middle, last]);
    }

    #[test]
    fn shared_memory_is_saved_once() {
        let mut s = Shared::default();
        assert_eq!(s.take(10, 20), [(10, 20)]);
        assert_eq!(s.take(5, 30), [(5, 10), (20, 30)]);
        assert_eq!(s.take(0, 30), [(0, 5)]);
        assert_eq!(s.take(29, 31), [(30, 31)]);
        assert!(s.take(0, 31).is_empty());
        assert_eq!(s.len, 31);
    }
}
