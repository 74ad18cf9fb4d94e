//! /proc/PID/fd and fdinfo.

use abi::{Errno, Result};
use files::FdTable;
use kernfs::{At, Child, Entry, Names, Target, What};
use std::sync::Arc;
use vfs::OpenFile;

static LINK: Entry = Entry { name: "fd", mode: 0, what: What::Magic(target) };
static INFO: Entry = Entry { name: "fdinfo", mode: 0o444, what: What::Text(info, None) };

fn table(at: &At) -> Option<Arc<FdTable>> {
    at.proc?.main_task()?.fds()
}

fn file(at: &At) -> Result<(Arc<OpenFile>, bool)> {
    let t = table(at).ok_or(Errno::ENOENT)?;
    let fd = i32::try_from(at.n).map_err(|_| Errno::ENOENT)?;
    match (t.get(fd), t.cloexec(fd)) {
        (Ok(f), Ok(c)) => Ok((f, c)),
        _ => Err(Errno::ENOENT),
    }
}

/// Mode of a link: what the file was opened for.
pub fn link_mode(at: &At) -> u32 {
    let Ok((f, _)) = file(at) else { return 0 };
    let mut m = 0;
    if f.readable() {
        m |= 0o500;
    }
    if f.writable() {
        m |= 0o300;
    }
    m
}

fn target(at: &At) -> Result<Target> {
    Ok(Target::File(file(at)?.0))
}

fn find(at: &At, name: &[u8], entry: &'static Entry) -> Result<Child> {
    let s = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
    let fd: i32 = s.parse().map_err(|_| Errno::ENOENT)?;
    if fd.to_string() != s || table(at).ok_or(Errno::ENOENT)?.get(fd).is_err() {
        return Err(Errno::ENOENT);
    }
    Ok(Child { entry, proc: None, n: fd.into() })
}

fn list(at: &At, entry: &'static Entry) -> Result<Vec<(u64, String, Child)>> {
    let Some(t) = table(at) else { return Ok(Vec::new()) };
    let all = t.numbers();
    Ok(all.into_iter().map(|n| (n as u64, n.to_string(), Child { entry, proc: None, n: n.into() })).collect())
}

/// Links to open files.
pub struct Fds;

impl Names for Fds {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        find(at, name, &LINK)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        list(at, &LINK)
    }
    fn size(&self, at: &At) -> u64 {
        table(at).map_or(0, |t| t.numbers().len() as u64)
    }
}

/// States of open files.
pub struct FdInfos;

impl Names for FdInfos {
    fn find(&self, at: &At, name: &[u8]) -> Result<Child> {
        at.proc()?.may_access(at.cx()?)?;
        find(at, name, &INFO)
    }
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>> {
        at.proc()?.may_access(at.cx()?)?;
        list(at, &INFO)
    }
}

fn info(at: &At) -> Result<Vec<u8>> {
    let (f, cloexec) = file(at)?;
    let flags = f.flags() | if cloexec { libc::O_CLOEXEC } else { 0 };
    let mount = match &f.path {
        Some(p) => p.mount.id(),
        None => at.kernel().vfs.anonymous().id(),
    };
    let ino = f.attr().map_or(0, |a| a.ino);
    // The position may be held by a call that reads right now.
    let pos = f.pos.try_lock().map_or(0, |p| *p);
    let locks = table(at).map_or(String::new(), |t| crate::locks::of_file(at, &f, &t));
    let more = f.ops.fdinfo_in(at.pid_ns());
    let s = format!("pos:\t{pos}\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t{ino}\n{locks}{more}");
    Ok(s.into_bytes())
}
