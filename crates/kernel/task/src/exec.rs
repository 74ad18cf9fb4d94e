//! execve(2): everything that can fail happens in a fresh address space first;
//! only then do the other threads end and the old memory go.

use crate::current::Current;
use crate::life::Life;
use crate::result::{SysErr, SysResult};
use crate::stack::{Aux, StackImage};
use crate::task::Task;
use abi::{Errno, PAGE_SIZE, Result, Signal, page_down, page_up};
use elf::{FileHeader, Image};
use mm::{ImageInfo, MemoryMap, Mm, Vma, VmaKind};
use platform::{Action, Context, Regs, Word};
use signal::AltStack;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Caller, Cap, Credentials, MapRequest, Mapping, OpenFile};

/// Bytes of a file that decide how it is run.
const HEAD: usize = 256;
/// Nested interpreters of scripts.
const MAX_NESTING: usize = 5;
/// Longest single argument or environment string.
pub const MAX_ARG_STRLEN: usize = 128 << 10;
/// Bytes kept free below the stack.
const STACK_GAP: u64 = 1 << 20;
/// ADDR_NO_RANDOMIZE of personality(2).
const ADDR_NO_RANDOMIZE: u32 = 0x0004_0000;

/// A program to run.
pub struct Program {
    /// The opened file; execute permission was checked.
    pub file: Arc<OpenFile>,
    /// The name that was given, for AT_EXECFN and the task's name; of a script, too.
    pub filename: Vec<u8>,
    /// Arguments.
    pub argv: Vec<Vec<u8>>,
    /// Environment.
    pub envp: Vec<Vec<u8>>,
    /// A descriptor that is closed on exec names the file: scripts cannot be run from it (ENOENT).
    pub inaccessible: bool,
}

/// More of a command line than the host shows.
const MAX_TITLE: usize = 4096;

impl Program {
    /// The name that the task gets.
    fn name(&self) -> &[u8] {
        self.filename.rsplit(|&b| b == b'/').next().unwrap_or(&self.filename)
    }

    /// The arguments as process lists show them.
    fn title(&self) -> Vec<u8> {
        let mut line = Vec::new();
        for (i, arg) in self.argv.iter().enumerate() {
            if i > 0 {
                line.push(b' ');
            }
            line.extend_from_slice(arg.get(..MAX_TITLE).unwrap_or(arg));
            if line.len() >= MAX_TITLE {
                break;
            }
        }
        line
    }
}

/// A loaded but not yet running image.
struct Loaded {
    ctx: Box<dyn Context>,
    mm: Arc<Mm>,
}

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

/// The start of a program, which nearly always holds all headers.
struct Head(Vec<u8>);

impl Head {
    fn read(cx: &dyn Caller, f: &OpenFile) -> Result<Head> {
        let mut b = vec![0; 1024];
        let n = read_file(cx, f, 0, &mut b)?;
        b.truncate(n);
        Ok(Head(b))
    }

    /// As [`read_file`].
    fn read_at(&self, cx: &dyn Caller, f: &OpenFile, off: u64, buf: &mut [u8]) -> Result<usize> {
        let known = usize::try_from(off).ok().and_then(|o| self.0.get(o..o.checked_add(buf.len())?));
        match known {
            Some(b) => {
                buf.copy_from_slice(b);
                Ok(b.len())
            }
            None => read_file(cx, f, off, buf),
        }
    }
}

/// Reads from the start of a file in kernel context.
fn read_file(cx: &dyn Caller, f: &OpenFile, off: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match f.ops.read(cx, f, &mut buf[done..], off + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

impl Current {
    /// Replaces the program. On success the registers are those of the new one.
    pub fn exec(&mut self, mut p: Program) -> SysResult {
        self.resolve_scripts(&mut p)?;
        self.check_arg_space(&p)?;
        let file = p.file.clone();
        let head = Head::read(self, &file)?;
        let image = elf::parse(&mut |o, b| head.read_at(self, &file, o, b))?;
        let interp = match &image.interp {
            Some(path) => Some(self.open_interpreter(path)?),
            None => None,
        };
        let creds = self.exec_creds(&p.file)?;
        let broken = image.broken || interp.as_ref().is_some_and(|(_, i)| i.broken);
        let loaded = if broken { Err(Errno::EFAULT) } else { self.load(&p, &image, interp, &creds) };
        let loaded = match loaded {
            Ok(l) => l,
            // The segments are not where they can be, or the file ends before them: Linux finds out too late to go back.
            Err(Errno::EFAULT) => {
                self.kill_by(Signal::SIGSEGV);
                return Err(SysErr::NoReturn);
            }
            Err(e) => return Err(e.into()),
        };
        if let Err(e) = self.dethread() {
            loaded.ctx.exit();
            return Err(e);
        }
        self.commit(p, loaded, creds);
        Err(SysErr::NoReturn)
    }

    fn resolve_scripts(&self, p: &mut Program) -> Result<()> {
        // What the next interpreter is told to read.
        let mut script = p.filename.clone();
        for depth in 0.. {
            let mut head = [0u8; HEAD];
            let n = read_file(self, &p.file, 0, &mut head)?;
            if n < 2 || &head[..2] != b"#!" {
                return Ok(());
            }
            if depth >= MAX_NESTING {
                return Err(Errno::ELOOP);
            }
            if p.inaccessible {
                return Err(Errno::ENOENT);
            }
            let (interp, arg) = parse_shebang(&head[..n])?;
            let mut argv = vec![interp.clone()];
            argv.extend(arg);
            argv.push(std::mem::replace(&mut script, interp.clone()));
            argv.extend(p.argv.drain(..).skip(1));
            p.argv = argv;
            p.file = self.open_program(&interp)?;
        }
        Ok(())
    }

    /// Opens a file for execution, relative to the working directory.
    pub fn open_program(&self, path: &[u8]) -> Result<Arc<OpenFile>> {
        let view = self.fs_context.view();
        vfs::open::open_exec(self, &view, &vfs::walk::Start::Cwd, path, vfs::walk::Lookup::FOLLOW)
            .map_err(vfs::retry::Failure::errno)
    }

    fn open_interpreter(&self, path: &[u8]) -> Result<(Arc<OpenFile>, Image)> {
        let f = self.open_program(path)?;
        let head = Head::read(self, &f)?;
        if head.0.len() < size_of::<FileHeader>() {
            return Err(Errno::EIO);
        }
        let image = elf::parse(&mut |o, b| head.read_at(self, &f, o, b)).map_err(|e| match e {
            Errno::ENOEXEC => Errno::ELIBBAD,
            e => e,
        })?;
        Ok((f, image))
    }

    /// Arguments and environment may take a quarter of the stack limit.
    fn check_arg_space(&self, p: &Program) -> Result<()> {
        let limit = (self.rlimit(libc::RLIMIT_STACK as i32) / 4).clamp(128 << 10, 6 << 20);
        let mut total = p.filename.len() as u64 + 1;
        for s in p.argv.iter().chain(&p.envp) {
            if s.len() >= MAX_ARG_STRLEN {
                return Err(Errno::E2BIG);
            }
            total += s.len() as u64 + 1 + 8;
        }
        if total > limit { Err(Errno::E2BIG) } else { Ok(()) }
    }

    /// Whether another process uses the same file system context (CLONE_FS).
    fn shares_fs_with_others(&self) -> bool {
        let ours = |t: &Arc<Task>| t.fs().is_some_and(|fs| Arc::ptr_eq(&fs, self.fs()));
        let own = self.task.group.threads().iter().filter(|t| ours(t)).count();
        self.fs_context.tasks() > own
    }

    /// Credentials of the new program: set-id bits and the capability rules of capabilities(7).
    fn exec_creds(&self, file: &OpenFile) -> Result<Credentials> {
        let old = self.task.creds();
        let mut c = Credentials::clone(&old);
        let attr = file.attr()?;
        let nosuid =
            file.path.as_ref().is_some_and(|p| p.mount.flags().contains(vfs::mount::MountFlags::NOSUID));
        let plain = nosuid || self.task.no_new_privs.load(Ordering::Relaxed);
        if !plain {
            if attr.mode & libc::S_ISUID != 0 {
                c.euid = attr.uid;
            }
            if attr.mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP {
                c.egid = attr.gid;
            }
        }
        let setid = c.euid != old.euid || c.egid != old.egid;
        // Others could change the root and the working directory under the new program's feet.
        let unsafe_share = setid && self.shares_fs_with_others();
        if unsafe_share && !old.own_ns_capable(Cap::SETUID) {
            c.euid = c.uid;
            c.egid = c.gid;
        }
        c.suid = c.euid;
        c.sgid = c.egid;
        c.fsuid = c.euid;
        c.fsgid = c.egid;
        let noroot = c.securebits & 1 != 0;
        let (mut file_permitted, mut file_inheritable, mut file_effective) = (0, 0, false);
        if !noroot {
            if c.uid == 0 || c.euid == 0 {
                file_permitted = Cap::ALL;
                file_inheritable = Cap::ALL;
            }
            file_effective = c.euid == 0;
        }
        let privileged = file_permitted != 0 && setid;
        c.ambient = if privileged { 0 } else { c.ambient };
        c.permitted = c.inheritable & file_inheritable | file_permitted & c.bounding | c.ambient;
        if unsafe_share {
            c.permitted &= old.permitted;
        }
        c.effective = if file_effective { c.permitted } else { c.ambient };
        // SECBIT_KEEP_CAPS does not survive.
        c.securebits &= !0x10;
        Ok(c)
    }

    fn load(
        &self,
        p: &Program,
        image: &Image,
        interp: Option<(Arc<OpenFile>, Image)>,
        creds: &Credentials,
    ) -> Result<Loaded> {
        let platform = self.kernel().platform.clone();
        let limits = platform.limits();
        let fixed = self.task.group.personality.load(Ordering::Relaxed) & ADDR_NO_RANDOMIZE != 0;
        let mut random = Random::new();
        let mut rnd = |bits| if fixed { 0 } else { random.pages(bits) };
        let stack_limit = self.rlimit(libc::RLIMIT_STACK as i32);

        let mut ctx = self.task.group.container.new_space(&platform)?;
        let mut map = MemoryMap::new(limits.min, limits.max);
        let top = limits.max - PAGE_SIZE - rnd(22);
        let stack_size = page_up(stack_limit.clamp(256 << 10, 64 << 20)).unwrap_or(8 << 20);
        map.mmap_base =
            top - stack_limit.clamp(128 << 20, limits.max / 6) / PAGE_SIZE * PAGE_SIZE - STACK_GAP - rnd(28);

        let result = (|| {
            let bias = if image.relocatable {
                let want = (limits.max / 3 * 2 + rnd(28)) & !(image.align - 1);
                let (lo, hi) = image.span();
                let at = map.find_free(want, page_up(hi - lo).ok_or(Errno::EFAULT)?, image.align);
                at.ok_or(Errno::EFAULT)?.wrapping_sub(lo)
            } else {
                0
            };
            self.map_image(ctx.as_mut(), &mut map, &p.file, image, bias)?;
            let (_, hi) = image.span();
            let mut entry = image.entry.wrapping_add(bias);
            let mut base = 0;
            if let Some((f, i)) = &interp {
                let (lo, hi) = i.span();
                base = if i.relocatable {
                    map.find_free(0, hi - lo, i.align).ok_or(Errno::EFAULT)?.wrapping_sub(lo)
                } else {
                    0
                };
                self.map_image(ctx.as_mut(), &mut map, f, i, base)?;
                entry = i.entry.wrapping_add(base);
            }
            map.brk_start = hi.wrapping_add(bias) + if fixed { 0 } else { PAGE_SIZE + rnd(13) };
            let below_page = rnd(8) / PAGE_SIZE * 16;
            map.brk = map.brk_start;
            let prot =
                libc::PROT_READ | libc::PROT_WRITE | if image.exec_stack { libc::PROT_EXEC } else { 0 };
            let low = top - stack_size;
            ctx.queue(Action::MapAnon { addr: low, len: stack_size, prot, flags: libc::MAP_NORESERVE });
            map.insert(vma(low, top, prot, None, 0, VmaKind::Stack));

            let old = self.task.creds();
            let aux = Aux {
                sysinfo_ehdr: limits.vdso.map(|v| v.0),
                phdr: image.phdr.wrapping_add(bias),
                phnum: image.phnum,
                base,
                entry: image.entry.wrapping_add(bias),
                uid: creds.uid,
                euid: creds.euid,
                gid: creds.gid,
                egid: creds.egid,
                secure: creds.euid != creds.uid || creds.egid != creds.gid || creds.euid != old.euid,
            };
            let s = StackImage::build(top - below_page, &p.argv, &p.envp, &p.filename, &aux);
            if s.sp < low + PAGE_SIZE {
                return Err(Errno::E2BIG);
            }
            ctx.queue(Action::Write { addr: s.sp, data: s.bytes });
            ctx.queue(Action::Name(crate::task::comm(p.name())));
            ctx.queue(Action::Title(p.title()));
            ctx.flush()?;
            let info = ImageInfo {
                exe: Some(p.file.clone()),
                code: range_of(image, bias, libc::PROT_EXEC),
                data: range_of(image, bias, libc::PROT_WRITE),
                args: s.args,
                env: s.env,
                stack: s.sp,
                auxv: s.auxv,
            };
            *ctx.regs_mut() =
                Regs { rip: entry, rsp: s.sp, eflags: 0x202, orig_rax: u64::MAX, ..Regs::default() };
            ctx.reset_xstate();
            Ok(info)
        })();
        match result {
            Ok(info) => {
                let mm = Mm::new(&self.kernel().spaces, ctx.space(), map);
                mm.set_image(|i| *i = info);
                Ok(Loaded { ctx, mm })
            }
            Err(e) => {
                ctx.exit();
                Err(e)
            }
        }
    }

    fn map_image(
        &self,
        ctx: &mut dyn Context,
        map: &mut MemoryMap,
        file: &Arc<OpenFile>,
        image: &Image,
        bias: u64,
    ) -> Result<()> {
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
                let twin = if text { self.kernel().spaces.twins.find(file, offset, len) } else { None };
                let mapping = match &twin {
                    Some(image) => Mapping::Host { fd: image.twin.fd().clone(), offset: 0 },
                    None => file.ops.map(self, file, &req)?,
                };
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
                ctx.queue(Action::MapAnon { addr: anon, len: mem_pages - anon, prot: s.prot, flags: 0 });
                map.insert(vma(anon, mem_pages, s.prot, None, 0, VmaKind::Normal));
            }
        }
        Ok(())
    }

    /// Ends every other thread of the process and takes the leader's id.
    fn dethread(&mut self) -> Result<(), SysErr> {
        let g = self.task.group.clone();
        let me = self.task.tid();
        {
            let mut s = g.signals.lock();
            if !s.life.is_running() {
                return Err(Errno::EAGAIN.into());
            }
            if s.threads.len() == 1 && me == g.tgid {
                return Ok(());
            }
            s.life = Life::Dethreading(me);
            for t in s.threads.iter().filter(|t| !Arc::ptr_eq(t, &self.task)) {
                t.kick_fatal();
            }
        }
        let _sub = g.thread_exit.subscribe(wait::Events::ALL, self.task.waiter.clone());
        loop {
            {
                let mut s = g.signals.lock();
                if s.life.is_over() {
                    return Err(Errno::EAGAIN.into());
                }
                if s.threads.len() == 1 {
                    s.life = Life::Running;
                    break;
                }
            }
            let _ = self.task.waiter.sleep_uninterruptible(None);
        }
        if me != g.tgid {
            let mut t = self.kernel().tree.lock();
            t.tasks.remove(&me);
            if let Some(n) = t.nodes.get(&g.tgid) {
                self.task.set_pid(n.pid.clone());
            }
            t.tasks.insert(g.tgid, self.task.clone());
            t.leader_replaced(g.tgid);
        }
        Ok(())
    }

    fn commit(&mut self, p: Program, l: Loaded, creds: Credentials) {
        let g = self.task.group.clone();
        crate::futex::release(self, false);
        self.measure_end();
        let clear_child_tid = self.task.word(Word::ClearChildTid);
        if clear_child_tid != 0 && self.mm.users.shared() {
            self.ctx.queue(Action::StoreAndWake { addr: clear_child_tid, value: Some(0), wake: 1 });
        }
        self.task.set_interrupter(Some(l.ctx.interrupter()));
        // Where who shared the memory cannot write.
        self.task.set_word(Word::RobustList, 0);
        self.task.set_word(Word::ClearChildTid, 0);
        let own_time = self.exact_user_time();
        let old_ctx = std::mem::replace(&mut self.ctx, l.ctx);
        let (old_mm, ending) = {
            let s = g.signals.lock();
            self.task.note_pending();
            // Which memory the end of the process is counted for is decided together with the change.
            (self.mm.replace(&self.task.seen_mm, l.mm), s.life.is_over())
        };
        if ending {
            crate::exit::begin_end(&g, &self.mm);
        }
        let group_time = crate::exit::retire_memory(&g, &old_mm, ending);
        let before = self.task.user_before.load(Ordering::Relaxed);
        let before = before.saturating_add(own_time.unwrap_or(group_time));
        self.task.user_before.store(before, Ordering::Relaxed);
        old_ctx.exit();
        drop(old_mm);
        if let Some(gate) = self.task.vfork.lock().take() {
            gate.open();
        }
        if self.fd_table.is_shared() {
            let t = self.fd_table.fork_copy();
            self.set_fds(t);
        }
        self.fd_table.close_on_exec(self);
        g.unshare_handlers();
        g.handlers().lock().reset_for_exec();
        g.timers.clear(true);
        g.has_execed.store(true, Ordering::Relaxed);
        self.altstack = AltStack::default();
        self.task.set_comm(p.name());
        let old = self.task.creds();
        if creds.euid != old.euid || creds.egid != old.egid {
            self.task.pdeathsig.store(0, Ordering::Relaxed);
            self.mm.dumpable.store(0, Ordering::Relaxed);
        }
        self.task.set_creds(creds);
        if let Some(n) = self.kernel().tree.lock().nodes.get_mut(&g.tgid) {
            n.exit_signal = Signal::SIGCHLD.raw();
        }
        self.report_all = false;
        self.sync_report_all();
        self.tell_platform();
        self.restart = None;
    }
}

fn vma(start: u64, end: u64, prot: i32, file: Option<Arc<OpenFile>>, offset: u64, kind: VmaKind) -> Vma {
    Vma { start, end, prot, shared: false, flags: 0, file, offset, locked: false, kind }
}

fn range_of(image: &Image, bias: u64, prot: i32) -> (u64, u64) {
    let hit = || image.segments.iter().filter(|s| s.prot & prot != 0);
    let lo = hit().map(|s| s.vaddr).min().unwrap_or(0);
    let hi = hit().map(|s| s.vaddr + s.filesz).max().unwrap_or(0);
    (lo.wrapping_add(bias), hi.wrapping_add(bias))
}

/// `#! interpreter [argument]`: blanks around both are dropped, the rest of the line is one argument.
fn parse_shebang(head: &[u8]) -> Result<(Vec<u8>, Option<Vec<u8>>)> {
    let blank = |b: &u8| *b == b' ' || *b == b'\t';
    let rest = &head[2..];
    let (line, complete) = match rest.iter().position(|&b| b == b'\n' || b == 0) {
        Some(n) => (&rest[..n], true),
        None => (rest, head.len() < HEAD),
    };
    let start = line.iter().position(|b| !blank(b)).ok_or(Errno::ENOEXEC)?;
    let line = &line[start..];
    let end = line.iter().position(blank);
    // A name that runs to the end of what was read may be cut off.
    if end.is_none() && !complete {
        return Err(Errno::ENOEXEC);
    }
    let interp = &line[..end.unwrap_or(line.len())];
    let arg = &line[interp.len()..];
    let arg = arg.iter().position(|b| !blank(b)).map(|s| &arg[s..]);
    let arg = arg.map(|a| {
        let end = a.iter().rposition(|b| !blank(b)).map_or(0, |e| e + 1);
        a[..end].to_vec()
    });
    Ok((interp.to_vec(), arg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shebang_lines() {
        let p = |s: &str| parse_shebang(s.as_bytes());
        assert_eq!(p("#!/bin/sh\n"), Ok((b"/bin/sh".to_vec(), None)));
        assert_eq!(p("#! /bin/sh -e x \n"), Ok((b"/bin/sh".to_vec(), Some(b"-e x".to_vec()))));
        assert_eq!(p("#!/bin/sh"), Ok((b"/bin/sh".to_vec(), None)));
        assert_eq!(p("#!  \n"), Err(Errno::ENOEXEC));
        assert_eq!(parse_shebang(format!("#!{}", "a".repeat(254)).as_bytes()), Err(Errno::ENOEXEC));
    }
}
