//! Files that show a process's memory: cmdline, environ, auxv, mem.

use abi::{Errno, Result};
use kernfs::At;
use mm::Mm;
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::{Caller, Cap, FileOps, OpenFile, SeekOps};

/// Most bytes of arguments or environment that are shown.
const MAX: u64 = 8 << 20;

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

pub fn environ(at: &At) -> Result<Vec<u8>> {
    let Some(mm) = at.proc()?.mm() else { return Ok(Vec::new()) };
    let i = mm.image();
    Ok(range(&mm, i.env.0, i.env.1))
}

pub fn auxv(at: &At) -> Result<Vec<u8>> {
    Ok(at.proc()?.mm().map(|mm| mm.image().auxv).unwrap_or_default())
}

/// /proc/PID/mem. Does not keep the memory alive.
struct MemOps {
    mm: Weak<Mm>,
}

pub fn open_mem(at: &At, _flags: i32) -> Result<Arc<dyn FileOps>> {
    let p = at.proc()?;
    let cx = at.cx()?;
    // PTRACE_MODE_ATTACH: as for reading, but never for a process that is not dumpable.
    p.may_access(cx)?;
    let mm = p.mm().map(|m| Arc::downgrade(&m)).unwrap_or_default();
    if cx.pid() != p.group.tgid && !cx.creds().capable(Cap::SYS_PTRACE) {
        return Err(Errno::EACCES);
    }
    Ok(Arc::new(MemOps { mm }))
}

impl FileOps for MemOps {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        let Some(mm) = self.mm.upgrade() else { return Ok(0) };
        match mm.space.read(off, buf) {
            0 if !buf.is_empty() => Err(Errno::EIO),
            n => Ok(n),
        }
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], off: u64) -> Result<usize> {
        let Some(mm) = self.mm.upgrade() else { return Ok(0) };
        match mm.space.write(off, buf) {
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
