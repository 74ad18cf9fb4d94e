//! An address space out of an image.
//!
//! Files are mapped as mmap(2) does. Over that the pages of the image are mapped privately from its file of pages: they
//! are read when the program touches them. The descriptor of that file has left the guest's process before the program
//! runs, because the file holds the memory of other processes too.

use crate::change_imaged::{behind, mapped};
use crate::guards::MADV_GUARD_INSTALL;
use crate::imaged::{Origin, Piece};
use crate::map::{DONT_DUMP, DONT_FORK, MAX_MAP_COUNT, Vma, VmaKind, WIPE_ON_FORK};
use crate::ops::{ImageInfo, Mm};
use crate::spaces::AddressSpaces;
use crate::state::{AreaState, KeptState, MemoryState, SharedState};
use abi::PAGE_SIZE;
use hostsys::page_file::PageFile;
use image::{Extent, PageSource};
use platform::{Action, Context, Limits, OwnCall};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use user_ns::UserNamespace;
use vfs::{Caller, Mapping, OpenFile};

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// Restores the address spaces of an image.
pub struct Restorer<'a> {
    all: Arc<AddressSpaces>,
    limits: Limits,
    pages: &'a PageFile,
    /// Those of earlier images that are mapped, too.
    layers: &'a [PageFile],
    file: &'a dyn Fn(u64) -> Option<Arc<OpenFile>>,
    /// Memory that address spaces share without a file, by number.
    shared: HashMap<u64, Arc<OwnedFd>>,
}

impl<'a> Restorer<'a> {
    /// Of the kernel's address spaces: `pages` is the file of pages, and those of earlier images, open for reading only; `file` finds open files by
    /// the numbers of the image; `shared` is what [`crate::Saver::shared`] gave.
    pub fn new(
        all: &Arc<AddressSpaces>,
        limits: Limits,
        (pages, layers): (&'a PageFile, &'a [PageFile]),
        file: &'a dyn Fn(u64) -> Option<Arc<OpenFile>>,
        shared: &[SharedState],
    ) -> Result<Restorer<'a>, String> {
        let mut restorer = Restorer { all: all.clone(), limits, pages, layers, file, shared: HashMap::new() };
        for s in shared {
            let wrong = |what: &str| format!("shared memory {} {what}", s.number);
            let len = Some(s.len).filter(|len| *len <= limits.max && len.is_multiple_of(PAGE_SIZE));
            let len = len.ok_or_else(|| wrong("has a length that no mapping can have"))?;
            if !image::check(&s.pages, (0, len), pages.len()) {
                return Err(wrong("has pages that are not in the image"));
            }
            let fd = hostsys::memfd::create(c"shm", len, false)
                .map_err(|e| wrong(&format!("cannot be made: error {}", e.raw())))?;
            each_page(pages, &s.pages, |at, page| {
                hostsys::memfd::write_all(fd.as_fd(), page, at)
                    .map_err(|e| wrong(&format!("cannot be filled: error {}", e.raw())))
            })?;
            if restorer.shared.insert(s.number, Arc::new(fd)).is_some() {
                return Err(wrong("is there twice"));
            }
            all.skip_shared(s.number);
        }
        Ok(restorer)
    }

    /// What of an area is mapped from which file: its number in the restored sandbox, as [`KeptState::layer`] has it, the
    /// file, and the pages.
    fn mapped<'s>(&'s self, area: &'s AreaState) -> impl Iterator<Item = (u32, &'s PageFile, Extent)> {
        let own = area.pages.iter().map(|extent| (0, self.pages, *extent));
        own.chain(area.kept.iter().filter_map(|KeptState { layer, extent }| {
            Some((layer.checked_add(1)?, self.layers.get(*layer as usize)?, *extent))
        }))
    }

    /// Fills the new address space of `ctx`. After an error the caller ends the context.
    pub fn restore(
        &self,
        cx: &dyn Caller,
        ctx: &mut dyn Context,
        saved: &MemoryState,
        user_ns: Arc<UserNamespace>,
    ) -> Result<Arc<Mm>, String> {
        let extents: usize = saved.areas.iter().map(|a| 1 + a.pages.len() + a.kept.len()).sum();
        let guards: usize = saved.areas.iter().map(|a| a.guards.len()).sum();
        if guards > 2 * MAX_MAP_COUNT {
            return Err(format!(
                "an address space has {guards} guarded ranges, more than a process may have"
            ));
        }
        if extents > MAX_MAP_COUNT {
            return Err(format!("an address space consists of {extents} pieces, more than the host maps"));
        }
        let exe = match saved.image.exe {
            Some(id) => {
                Some((self.file)(id).ok_or_else(|| format!("the executable, file {id}, is missing"))?)
            }
            None => None,
        };
        let lengths: Vec<u64> = std::iter::once(self.pages).chain(self.layers).map(PageFile::len).collect();
        let mut map = saved.record(&self.limits, self.file, &lengths)?;
        let mut areas = Vec::new();
        for area in &saved.areas {
            let file = area.file.and_then(self.file);
            areas.push((area, area.vma(file.as_ref()).ok_or("an area is not sound")?));
        }
        // All of one file's mappings together: the guest's process is handed its descriptor once.
        for (area, v) in &areas {
            self.queue_area(cx, ctx, v, area)?;
        }
        for (area, v) in &areas {
            self.queue_pages(ctx, v, area)?;
            area.guards.iter().for_each(|(from, to)| map.record_guard(*from, *to, true));
            if !copied(area) {
                self.mapped(area).for_each(|(layer, _, e)| {
                    let origin = Some(Origin { layer, offset: e.offset });
                    map.imaged.add(Piece { start: e.at, end: e.at + e.len, origin });
                });
            }
        }
        ctx.flush().map_err(|e| refused("the mappings", e))?;
        self.forget_descriptor(ctx, &map)?;
        if saved.huge_pages_off != 0 {
            let call = OwnCall::HugePagesOff(true, u64::from(saved.huge_pages_off & 2));
            ctx.own_call(call, &mut []).map_err(|e| refused("huge pages", e))?;
        }
        let mm = Mm::new(&self.all, ctx.space(), map, user_ns);
        mm.restored.store(true, Ordering::Relaxed);
        mm.dumpable.store(saved.dumpable.clamp(0, 2), Ordering::Relaxed);
        mm.dump_filter.store(saved.dump_filter, Ordering::Relaxed);
        mm.huge_pages_off.store(saved.huge_pages_off & 3, Ordering::Relaxed);
        *mm.futex_hash.lock() = saved.futex_hash;
        let image = &saved.image;
        mm.set_image(|i| {
            *i = ImageInfo {
                exe,
                exe_place: image.exe_place.as_deref().map(Arc::from),
                code: image.code,
                data: image.data,
                args: image.args,
                env: image.env,
                stack: image.stack,
                auxv: image.auxv.as_slice().into(),
            }
        });
        Ok(mm)
    }

    /// Queues what lies below the pages of an area.
    fn queue_area(
        &self,
        cx: &dyn Caller,
        ctx: &mut dyn Context,
        v: &Vma,
        area: &AreaState,
    ) -> Result<(), String> {
        let wrong = |what: &str| format!("cannot map {:#x}..{:#x}: {what}", v.start, v.end);
        let whole = area.pages.iter().any(|e| (e.at, e.len) == (v.start, v.len()));
        if copied(area) || !whole || v.shared {
            let mapping = match (&v.kind, &v.file) {
                (VmaKind::SharedAnon(number), _) => {
                    let fd = self.shared.get(number).ok_or_else(|| wrong("its shared memory is missing"))?;
                    Mapping::Host { fd: fd.clone(), offset: v.offset }
                }
                (_, Some(f)) => {
                    let writes = v.shared && v.prot & libc::PROT_WRITE != 0;
                    if f.flags() & libc::O_PATH != 0 || !f.readable() || writes && !f.writable() {
                        return Err(wrong("its file is not open for that"));
                    }
                    behind(cx, v, v.start, v.len())
                        .map_err(|e| wrong(&format!("its file answers error {}", e.raw())))?
                }
                _ => Mapping::Anonymous,
            };
            if v.shared && matches!(mapping, Mapping::Anonymous) {
                return Err(wrong("its file is not memory to share"));
            }
            ctx.queue(mapped(v, &mapping, v.start, v.len()));
        }
        Ok(())
    }

    /// Queues the pages of an area, and advice.
    fn queue_pages(&self, ctx: &mut dyn Context, v: &Vma, area: &AreaState) -> Result<(), String> {
        if copied(area) {
            let (addr, len) = (v.start, v.len());
            let prot = v.prot | libc::PROT_READ | libc::PROT_WRITE;
            ctx.queue(Action::Protect { addr, len, prot });
            for (_, file, extent) in self.mapped(area) {
                each_page(file, &[extent], |addr, page| {
                    ctx.queue(Action::Write { addr, data: page.to_vec() });
                    ctx.flush().map_err(|e| refused("a page", e))
                })?;
            }
            ctx.queue(Action::Protect { addr, len, prot: v.prot });
        } else {
            let private = libc::MAP_PRIVATE | v.flags & libc::MAP_NORESERVE;
            for (_, file, e) in self.mapped(area) {
                ctx.queue(Action::MapFile {
                    addr: e.at,
                    len: e.len,
                    prot: v.prot,
                    flags: private,
                    fd: file.fd().clone(),
                    offset: e.offset,
                });
            }
        }
        let advice = [
            (DONT_FORK, libc::MADV_DONTFORK),
            (DONT_DUMP, libc::MADV_DONTDUMP),
            (WIPE_ON_FORK, libc::MADV_WIPEONFORK),
        ];
        for (_, advice) in advice.into_iter().filter(|(flag, _)| v.flags & flag != 0) {
            ctx.queue(Action::Advise { addr: v.start, len: v.len(), advice });
        }
        for &(from, to) in &area.guards {
            if from < v.start || to > v.end || from >= to || (from | to) % PAGE_SIZE != 0 {
                return Err("guard pages lie outside of their area".into());
            }
            ctx.queue(Action::Advise { addr: from, len: to - from, advice: MADV_GUARD_INSTALL });
        }
        Ok(())
    }

    /// A platform may keep the descriptor that it mapped last in the guest's process: it maps another one.
    fn forget_descriptor(&self, ctx: &mut dyn Context, map: &crate::MemoryMap) -> Result<(), String> {
        let Some(addr) = map.find_free(0, PAGE_SIZE, PAGE_SIZE) else { return Err("no page is free".into()) };
        let fd = hostsys::memfd::create(c"none", 0, false).map_err(|e| refused("a descriptor", e))?;
        let (prot, flags, fd) = (libc::PROT_NONE, libc::MAP_PRIVATE, Arc::new(fd));
        ctx.queue(Action::MapFile { addr, len: PAGE_SIZE, prot, flags, fd, offset: 0 });
        ctx.queue(Action::Unmap { addr, len: PAGE_SIZE });
        ctx.flush().map_err(|e| refused("the last page", e))
    }
}

/// The host takes MADV_WIPEONFORK for anonymous memory only, so such an area is not mapped from the image.
fn copied(area: &AreaState) -> bool {
    area.flags & WIPE_ON_FORK != 0
}

fn refused(what: &str, error: abi::Errno) -> String {
    format!("the host refuses {what} of a restored address space: error {}", error.raw())
}

/// Calls `put` with the pages of extents that are not zeros.
fn each_page(
    file: &PageFile,
    extents: &[Extent],
    mut put: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut buf = vec![0; PIECE as usize];
    for e in extents {
        let mut done = 0;
        while done < e.len {
            let piece = buf.get_mut(..(e.len - done).min(PIECE) as usize).unwrap_or_default();
            file.read(e.offset + done, piece).map_err(|e| format!("cannot read pages: {e}"))?;
            for (i, page) in piece.chunks(PAGE_SIZE as usize).enumerate() {
                if !image::is_zero(page) {
                    put(e.at + done + i as u64 * PAGE_SIZE, page)?;
                }
            }
            done += piece.len() as u64;
        }
    }
    Ok(())
}
