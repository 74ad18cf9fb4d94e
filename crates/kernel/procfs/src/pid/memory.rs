//! Files that show a process's memory: cmdline, environ, auxv, mem.

use abi::{Errno, Result};
use kernfs::At;
use mm::Mm;
use std::any::Any;
use std::sync::{Arc, Weak};
use task::{Kernel, Task, ThreadGroup};
use vfs::{Caller, FileOps, OpenFile, SeekOps};

/// Most bytes of arguments or environment that are shown.
const MAX: u64 = 8 << 20;
/// Most bytes that are read or written at once against their protection.
const MAX_FORCED: usize = 1 << 20;

fn range(mm: &Mm, from: u64, to: u64) -> Vec<u8> {
    let mut b = vec![0; to.saturating_sub(from).min(MAX) as usize];
    let n = mm.space.read(from, &mut b);
    b.truncate(n);
    b
}

pub fn cmdline(at: &At) -> Result<Vec<u8>> {
    Ok(at.proc()?.mm().map(|mm| command_line(&mm)).unwrap_or_default())
}

/// A program's arguments, each with a NUL after it, as /proc/PID/cmdline shows them.
pub fn command_line(mm: &Mm) -> Vec<u8> {
    let i = mm.image();
    let args = range(mm, i.args.0, i.args.1);
    if args.last().is_none_or(|&b| b == 0) {
        return args;
    }
    // The title was overwritten, maybe into the environment: one string from the start on.
    let mut all = range(mm, i.args.0, i.env.1.max(i.args.1));
    if let Some(n) = all.iter().position(|&b| b == 0) {
        all.truncate(n + 1);
    }
    all
}

/// Strings between two addresses, as much as is shown of them.
pub fn strings(mm: &Mm, (start, end): (u64, u64)) -> Vec<u8> {
    range(mm, start, end)
}

pub fn environ(at: &At) -> Result<Vec<u8>> {
    let Some(mm) = at.mm()? else { return Ok(Vec::new()) };
    let i = mm.image();
    Ok(range(&mm, i.env.0, i.env.1))
}

pub fn auxv(at: &At) -> Result<Vec<u8>> {
    Ok(at.mm()?.map(|mm| mm.image().auxv.to_vec()).unwrap_or_default())
}

/// /proc/PID/mem. Does not keep the memory alive.
struct MemOps {
    mm: Weak<Mm>,
    group: Arc<ThreadGroup>,
    kernel: Weak<Kernel>,
}

impl MemOps {
    /// The memory, while a process uses it.
    fn memory(&self) -> Option<Arc<Mm>> {
        self.mm.upgrade().filter(|mm| !mm.users.none())
    }

    /// A thread that its tracer has stopped, which can lift page protections as Linux's FOLL_FORCE does. It may be one of another
    /// process that shares the memory (CLONE_VM).
    fn stopped(&self, mm: &Arc<Mm>) -> Option<Arc<Task>> {
        let of = |t: &Arc<Task>| t.trace.is_held() && Arc::ptr_eq(&t.mm(), mm);
        let own = self.group.threads().into_iter().find(of);
        own.or_else(|| self.kernel.upgrade()?.tasks().into_iter().find(of))
    }
}

/// Whether the file shows memory that no process uses any more.
pub fn shows_gone_memory(file: &OpenFile) -> bool {
    let ops: Option<&MemOps> = file.ops.as_any().downcast_ref();
    ops.is_some_and(|ops| {
        ops.memory().is_none_or(|mm| ops.group.threads().iter().all(|t| !Arc::ptr_eq(&t.mm(), &mm)))
    })
}

pub fn open_mem(at: &At, _flags: i32) -> Result<Arc<dyn FileOps>> {
    let p = at.proc()?;
    let cx = at.cx()?;
    let mm = p.mm_access(cx)?.map(|m| Arc::downgrade(&m)).ok_or(Errno::ESRCH)?;
    super::police_look(cx, p)?;
    Ok(Arc::new(MemOps { mm, group: p.group.clone(), kernel: Arc::downgrade(at.kernel()) }))
}

impl FileOps for MemOps {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        let Some(mm) = self.memory() else { return Ok(0) };
        let mut done = mm.space.read_own(off, buf);
        let mapped = mm.with_map(|m| m.find(off).is_some());
        if done == 0
            && mapped
            && let Some(t) = self.stopped(&mm)
        {
            let len = buf.len().min(MAX_FORCED);
            let forced = t.run_stopped(
                move |c| {
                    let mut bytes = vec![0; len];
                    let n = c.mm.force_read(c.ctx.as_mut(), off, &mut bytes);
                    bytes.truncate(n);
                    bytes
                },
                || cx.waiter().interrupted(),
            )?;
            buf[..forced.len()].copy_from_slice(&forced);
            done = forced.len();
        }
        match done {
            0 if !buf.is_empty() => Err(Errno::EIO),
            n => Ok(n),
        }
    }
    fn write(&self, cx: &dyn Caller, _file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        let Some(mm) = self.memory() else { return Ok(0) };
        let mut done = if mm.writable(off, buf.len() as u64) { mm.space.write(off, buf) } else { 0 };
        if done < buf.len()
            && let Some(t) = self.stopped(&mm)
        {
            let data = buf[..buf.len().min(MAX_FORCED)].to_vec();
            done = t.run_stopped(
                move |c| c.mm.force_write(c.ctx.as_mut(), off, &data),
                || cx.waiter().interrupted(),
            )?;
        }
        match done {
            0 if !buf.is_empty() => Err(Errno::EIO),
            n => Ok(n),
        }
    }
}

impl SeekOps for MemOps {
    fn ends(&self) -> bool {
        false
    }
}
