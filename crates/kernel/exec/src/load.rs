//! Maps a program and its interpreter into a new address space.

use crate::Program;
use crate::privacy::Privacy;
use crate::stack::{Aux, StackImage};
use abi::{Errno, PAGE_SIZE, Result, libc, page_down, page_up};
use caller::{Limits, Membership};
use elf::Image;
use files::MappedFile;
use mm::{ImageInfo, MemoryMap, Mm, Vma, VmaKind};
use platform::{Action, Context, Regs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::{Current, NewCreds, ProgramImage};
use vfs::{MapRequest, Mapping, OpenFile};

/// Bytes kept free below the stack.
const STACK_GAP: u64 = 1 << 20;
/// ADDR_NO_RANDOMIZE of personality(2).
const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;

/// Random numbers for one program, fetched in one go.
struct Random([u8; 64], usize);

impl Random {
    fn new() -> Random {
        let mut b = [0; 64];
        hostsys::clock::random(&mut b);
        Random(b, 0)
    }

    /// `rnd` pages out of 2^bits.
    fn pages(&mut self, bits: u32) -> u64 {
        let Some(b) = self.0.get(self.1..self.1 + 8) else {
            *self = Random::new();
            return self.pages(bits);
        };
        self.1 += 8;
        let n = b.iter().fold(0, |v, x| v << 8 | u64::from(*x));
        (n & ((1 << bits) - 1)) * PAGE_SIZE
    }
}

/// An address space that is being filled.
struct Loader<'a> {
    c: &'a Current,
    ctx: Box<dyn Context>,
    map: MemoryMap,
    /// `None` with ADDR_NO_RANDOMIZE.
    random: Option<Random>,
}

/// Where the parts of a program are.
struct Layout {
    /// What is added to the program's addresses.
    bias: u64,
    /// Where the interpreter is, 0 without one.
    base: u64,
    /// Where execution begins.
    entry: u64,
}

/// Loads a program. On an error its address space is gone again.
pub(crate) fn load(
    c: &Current,
    p: &Program,
    image: &Image,
    interp: Option<(Arc<OpenFile>, Image)>,
    creds: &NewCreds,
) -> Result<ProgramImage> {
    let platform = &c.kernel().platform;
    let limits = platform.limits();
    let privacy = Privacy::of(c, std::iter::once(&p.file).chain(interp.as_ref().map(|(file, _)| file)));
    let fixed = c.task.group.personality.load(Ordering::Relaxed) & ADDR_NO_RANDOMIZE != 0;
    let load = |ctx| {
        let random = (!fixed).then(Random::new);
        let mut loader = Loader { c, ctx, map: MemoryMap::new(limits.min, limits.max), random };
        let filled = loader.fill(p, image, interp.as_ref(), creds);
        (loader, filled)
    };
    let open = privacy.dumpable && !creds.secure;
    let (loader, filled) = match c.recycled_space(&creds.creds, open).map(load) {
        // The program before may not have let go of the process, or has left it in disorder.
        Some((lost, Err(_))) => {
            lost.ctx.exit();
            load(c.task.group.container.new_space(platform)?)
        }
        Some(loaded) => loaded,
        None => load(c.task.group.container.new_space(platform)?),
    };
    match filled {
        Ok(info) => {
            let mm = Mm::new(&c.kernel().spaces, loader.ctx.space(), loader.map, privacy.user_ns);
            mm.dumpable.store(privacy.dumpable.into(), Ordering::Relaxed);
            mm.set_image(|i| *i = info);
            Ok(ProgramImage { ctx: loader.ctx, mm })
        }
        Err(e) => {
            loader.ctx.exit();
            Err(e)
        }
    }
}

impl Loader<'_> {
    /// `rnd` pages out of 2^bits, none without randomization.
    fn random_pages(&mut self, bits: u32) -> u64 {
        self.random.as_mut().map_or(0, |random| random.pages(bits))
    }

    fn fill(
        &mut self,
        p: &Program,
        image: &Image,
        interp: Option<&(Arc<OpenFile>, Image)>,
        creds: &NewCreds,
    ) -> Result<ImageInfo> {
        let stack_limit = self.c.rlimit(libc::RLIMIT_STACK as i32);
        let top = self.map.max - PAGE_SIZE - self.random_pages(22);
        self.map.mmap_base = top
            - stack_limit.clamp(128 << 20, self.map.max / 6) / PAGE_SIZE * PAGE_SIZE
            - STACK_GAP
            - self.random_pages(28);
        let at = self.map_program(p, image, interp)?;
        let (_, end) = image.span();
        let gap = if self.random.is_some() { PAGE_SIZE + self.random_pages(13) } else { 0 };
        self.map.brk_start = end.wrapping_add(at.bias) + gap;
        self.map.brk = self.map.brk_start;
        let below_page = self.random_pages(8) / PAGE_SIZE * 16;

        let stack_size = page_up(stack_limit.clamp(256 << 10, 64 << 20)).unwrap_or(8 << 20);
        let low = top - stack_size;
        let prot = libc::PROT_READ | libc::PROT_WRITE | if image.exec_stack { libc::PROT_EXEC } else { 0 };
        self.ctx.queue(Action::MapAnon { addr: low, len: stack_size, prot, flags: libc::MAP_NORESERVE });
        self.map.insert(vma(low, top, prot, None, 0, VmaKind::Stack));
        let aux = self.aux(image, &at, creds);
        let s = StackImage::build(top - below_page, &p.argv, &p.envp, &p.filename, &aux);
        if s.sp < low + PAGE_SIZE {
            return Err(Errno::E2BIG);
        }
        self.ctx.queue(Action::Write { addr: s.sp, data: s.bytes });
        self.ctx.queue(Action::Name(task::comm(p.name())));
        self.ctx.queue(Action::Title(p.title()));
        self.ctx.flush()?;
        *self.ctx.regs_mut() =
            Regs { rip: at.entry, rsp: s.sp, eflags: 0x202, orig_rax: u64::MAX, ..Regs::default() };
        self.ctx.reset_xstate();
        Ok(ImageInfo {
            exe: Some(p.file.clone()),
            exe_place: p
                .file
                .path
                .as_ref()
                .and_then(|path| self.c.task.group.policy_path(path))
                .map(Arc::from),
            code: range_of(image, at.bias, libc::PROT_EXEC),
            data: range_of(image, at.bias, libc::PROT_WRITE),
            args: s.args,
            env: s.env,
            stack: s.sp,
            auxv: s.auxv.into(),
        })
    }

    /// Maps the program and its interpreter.
    fn map_program(
        &mut self,
        p: &Program,
        image: &Image,
        interp: Option<&(Arc<OpenFile>, Image)>,
    ) -> Result<Layout> {
        let bias = if image.relocatable {
            let want = (self.map.max / 3 * 2 + self.random_pages(28)) & !(image.align - 1);
            self.bias(image, want)?
        } else {
            0
        };
        self.map_image(&p.file, image, bias)?;
        let Some((file, interp)) = interp else {
            return Ok(Layout { bias, base: 0, entry: image.entry.wrapping_add(bias) });
        };
        let base = if interp.relocatable { self.bias(interp, 0)? } else { 0 };
        self.map_image(file, interp, base)?;
        let (start, end) = interp.span();
        self.map.loader = start.wrapping_add(base)..end.wrapping_add(base);
        Ok(Layout { bias, base, entry: interp.entry.wrapping_add(base) })
    }

    /// What is to be added to the addresses of a relocatable image that is best put at `want`.
    fn bias(&self, image: &Image, want: u64) -> Result<u64> {
        let (lo, hi) = image.span();
        let len = page_up(hi - lo).ok_or(Errno::EFAULT)?;
        Ok(self.map.find_free(want, len, image.align).ok_or(Errno::EFAULT)?.wrapping_sub(lo))
    }

    fn aux(&self, image: &Image, at: &Layout, creds: &NewCreds) -> Aux {
        let NewCreds { creds, secure } = creds;
        Aux {
            sysinfo_ehdr: self.c.kernel().platform.limits().vdso.map(|v| v.0),
            phdr: image.phdr.wrapping_add(at.bias),
            phnum: image.phnum,
            base: at.base,
            entry: image.entry.wrapping_add(at.bias),
            uid: creds.user_ns.show_user(creds.uid),
            euid: creds.user_ns.show_user(creds.euid),
            gid: creds.user_ns.show_group(creds.gid),
            egid: creds.user_ns.show_group(creds.egid),
            secure: *secure,
        }
    }

    /// Maps the segments of a file.
    fn map_image(&mut self, file: &Arc<OpenFile>, image: &Image, bias: u64) -> Result<()> {
        let (c, ctx, map) = (self.c, self.ctx.as_mut(), &mut self.map);
        for s in &image.segments {
            let start = page_down(s.vaddr).wrapping_add(bias);
            let file_end = s.vaddr.wrapping_add(bias) + s.filesz;
            let mem_end = s.vaddr.wrapping_add(bias) + s.memsz;
            if start < map.min || mem_end > map.max {
                return Err(Errno::EFAULT);
            }
            let file_pages = page_up(file_end).ok_or(Errno::EFAULT)?;
            let mem_pages = page_up(mem_end).ok_or(Errno::EFAULT)?;
            let offset = page_down(s.offset);
            if s.filesz > 0 {
                let len = file_pages - start;
                let req = MapRequest { prot: s.prot, shared: false, offset, len };
                let text = s.prot == libc::PROT_READ | libc::PROT_EXEC;
                let twin = if text { c.kernel().spaces.twins.find(file, offset, len) } else { None };
                let mapping = match &twin {
                    Some(image) => Mapping::Host { fd: image.twin.fd().clone(), offset: 0 },
                    None => file.ops.map(c, file, &req)?,
                };
                if let (Mapping::Host { fd, .. }, 0) = (&mapping, offset) {
                    c.kernel().spaces.twins.used(ctx, file, fd, || c.sees_first_root());
                }
                match mapping {
                    Mapping::Host { fd, offset } => ctx.queue(Action::MapFile {
                        addr: start,
                        len,
                        prot: s.prot,
                        flags: libc::MAP_PRIVATE,
                        fd,
                        offset,
                    }),
                    Mapping::Anonymous => return Err(Errno::ENOEXEC),
                }
                map.insert(vma(start, file_pages, s.prot, Some(file.clone()), offset, VmaKind::Normal));
                if let Some(image) = twin {
                    if let Some(rewriter) = ctx.rewriter() {
                        rewriter.add_twin(start, &image.twin);
                    }
                    map.add_twin(start, image);
                }
                if mem_end > file_end && s.prot & libc::PROT_WRITE != 0 && file_end < file_pages {
                    // To the page's end, as Linux does: ld.so hands the rest out as zeroed memory.
                    let zero = (file_pages - file_end) as usize;
                    ctx.queue(Action::Write { addr: file_end, data: vec![0; zero] });
                }
            }
            let anon = if s.filesz > 0 { file_pages } else { start };
            if mem_pages > anon {
                // Like the program break, whatever the segment says, but for code.
                let prot = libc::PROT_READ | libc::PROT_WRITE | s.prot & libc::PROT_EXEC;
                ctx.queue(Action::MapAnon { addr: anon, len: mem_pages - anon, prot, flags: 0 });
                map.insert(vma(anon, mem_pages, prot, None, 0, VmaKind::Normal));
            }
        }
        Ok(())
    }
}

fn vma(start: u64, end: u64, prot: i32, file: Option<Arc<OpenFile>>, offset: u64, kind: VmaKind) -> Vma {
    let file = file.map(MappedFile::new);
    Vma {
        start,
        end,
        prot,
        shared: false,
        flags: 0,
        file,
        offset,
        locked: false,
        kind,
        policy: mm::Policy::default(),
    }
}

fn range_of(image: &Image, bias: u64, prot: i32) -> (u64, u64) {
    let hit = || image.segments.iter().filter(|s| s.prot & prot != 0);
    let lo = hit().map(|s| s.vaddr).min().unwrap_or(0);
    let hi = hit().map(|s| s.vaddr + s.filesz).max().unwrap_or(0);
    (lo.wrapping_add(bias), hi.wrapping_add(bias))
}
