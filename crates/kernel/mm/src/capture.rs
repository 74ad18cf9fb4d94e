//! Saving an address space: its record, and the pages that are not in any file.
//!
//! All guest threads of the address space stand still. What is saved of a private mapping of a file are pages that the
//! program may have changed; rewritten text is left out, because its own bytes are in the file. Nothing changes for the
//! program, which may go on afterwards.

use crate::map::{TOUCHED, TRAMPOLINES, Vma, VmaKind};
use crate::ops::Mm;
use crate::state::{AreaState, ImageState, MemoryState, SharedState};
use abi::PAGE_SIZE;
use image::{Extent, PageSink, Runs};
use platform::{Action, Context, Limits};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Knows which pages of an address space are its own: anonymous memory that was written, and copies of a file's pages.
pub trait Presence {
    /// Calls `found` with ranges in ascending order that hold all such pages of `start..end`.
    fn own_pages(&mut self, start: u64, end: u64, found: &mut dyn FnMut(u64, u64)) -> io::Result<()>;
}

/// Saves the address spaces of a kernel.
pub struct Saver {
    limits: Limits,
    pages: Arc<dyn PageSink>,
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
    /// Puts pages to `pages`. Mapped files are named by [`vfs::OpenFile::id`].
    pub fn new(limits: Limits, pages: Arc<dyn PageSink>) -> Saver {
        Saver { limits, pages, shared: BTreeMap::new() }
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
    /// What stands against a checkpoint of the address space, in words.
    pub fn obstacles(&self) -> Vec<String> {
        let contexts = self.aio.lock().len();
        let aio = (contexts > 0).then(|| format!("{contexts} contexts of io_setup(2)"));
        aio.into_iter().collect()
    }

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
        state.user_ns = self.user_ns.inum();
        state.dumpable = self.dumpable.load(Ordering::Relaxed);
        state.dump_filter = self.dump_filter.load(Ordering::Relaxed);
        state.huge_pages_off = self.huge_pages_off.load(Ordering::Relaxed);
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
        mut own: Option<&mut dyn Presence>,
        saver: &mut Saver,
        states: &mut [AreaState],
    ) -> Result<(), String> {
        let mut buf = vec![0; PIECE as usize];
        for (v, state) in areas.iter().zip(states) {
            if let VmaKind::SharedAnon(number) = v.kind {
                let shared = saver.shared.entry(number).or_default();
                let base = v.start.wrapping_sub(v.offset);
                for (a, b) in shared.take(v.offset, v.offset + v.len()) {
                    let mut runs = Runs::new(&*saver.pages);
                    let range = (base.wrapping_add(a), base.wrapping_add(b));
                    // Behind the memory's end there is no page.
                    self.save(&mut runs, &mut buf, range, v.offset.wrapping_sub(v.start), true)
                        .map_err(|e| failed(v, &e))?;
                    shared.pages.extend(runs.finish());
                }
            } else if !v.shared {
                let parts = self.parts(v, own.as_deref_mut()).map_err(|e| failed(v, &e))?;
                let mut runs =
                    if v.file.is_some() { Runs::exact(&*saver.pages) } else { Runs::new(&*saver.pages) };
                for part in parts {
                    self.save(&mut runs, &mut buf, part, 0, v.file.is_some()).map_err(|e| failed(v, &e))?;
                }
                state.pages = runs.finish();
            }
        }
        Ok(())
    }

    /// The ranges of a private area with pages of its own, in ascending order.
    fn parts(&self, v: &Vma, own: Option<&mut (dyn Presence + '_)>) -> io::Result<Vec<(u64, u64)>> {
        let pieces = self.with_map(|m| m.imaged.pieces(v.start, v.end));
        // What was never writable is as in the file.
        let unknown = v.file.is_none() || v.flags & TOUCHED != 0;
        let mut parts = Vec::new();
        let mut own = own;
        for (start, end, imaged) in pieces {
            match &mut own {
                _ if !imaged && !unknown => {}
                Some(own) if !imaged => own.own_pages(start, end, &mut |a, b| parts.push((a, b)))?,
                _ => parts.push((start, end)),
            }
        }
        if v.file.is_some() {
            parts = joined(&parts);
        }
        let m = self.map.lock();
        let mut rest = Vec::new();
        for (start, end) in parts {
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
        Ok(rest)
    }

    /// Saves a range; its pages belong `shift` higher than their addresses. With `ends` there may be no page at some places.
    fn save(
        &self,
        runs: &mut Runs,
        buf: &mut [u8],
        (start, end): (u64, u64),
        shift: u64,
        ends: bool,
    ) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let want = (end - at).min(buf.len() as u64) as usize;
            let piece = buf.get_mut(..want).unwrap_or_default();
            let got = self.space.read(at, piece) / PAGE_SIZE as usize * PAGE_SIZE as usize;
            runs.put(at.wrapping_add(shift), piece.get(..got).unwrap_or_default())?;
            at += got as u64;
            if got < want {
                if !ends {
                    return Err(io::Error::other("the host process that holds it does not give it"));
                }
                at += PAGE_SIZE;
            }
        }
        Ok(())
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
