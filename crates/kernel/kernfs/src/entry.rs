//! Tables: the entries of a directory and the text of its files.

use crate::fs::KernFs;
use crate::proc::Proc;
use abi::{Errno, Result};
use container::{Container, Limits};
use mm::Mm;
use nsproxy::NsProxy;
use pid::PidNamespace;
use rights::{Credentials, Creds};
use std::cell::Cell;
use std::sync::{Arc, Weak};
use task::{Kernel, Task};
use vfs::{Caller, FileOps, OpenFile, Path};

/// Makes a file's text, or a link's.
pub type Read = fn(&At) -> Result<Vec<u8>>;
/// Takes what was written, all in one piece.
pub type Write = fn(&At, &[u8]) -> Result<()>;
/// Opens a file that is no text.
pub type Open = fn(&At, i32) -> Result<Arc<dyn FileOps>>;

/// One name of a table.
pub struct Entry {
    /// Name in the directory.
    pub name: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// What it is.
    pub what: What,
}

/// The kinds of entries.
pub enum What {
    /// A directory of a table, and of names that are made up on the way.
    Dir(&'static [Entry], Option<&'static dyn Names>),
    /// A file made of text.
    Text(Read, Option<Write>),
    /// A file that is no text.
    Special(Open),
    /// A symbolic link.
    Link(Read),
    /// A link to a place or an open file rather than to a path.
    Magic(fn(&At) -> Result<Target>),
}

/// Where a magic link leads.
pub enum Target {
    /// To a place.
    Place(Path),
    /// To an open file.
    File(Arc<OpenFile>),
}

/// Names in a directory that no table has.
pub trait Names: Sync {
    /// Finds one; ENOENT.
    fn find(&self, at: &At, name: &[u8]) -> Result<Child>;
    /// All of them, with numbers that order them and serve as directory offsets.
    fn list(&self, at: &At) -> Result<Vec<(u64, String, Child)>>;
    /// st_size of the directory.
    fn size(&self, _at: &At) -> u64 {
        0
    }
    /// Links from subdirectories.
    fn subdirs(&self, _at: &At) -> u64 {
        0
    }
}

/// A child found by [`Names`].
#[derive(Clone)]
pub struct Child {
    /// What it is.
    pub entry: &'static Entry,
    /// The process it belongs to when that is not its directory's.
    pub proc: Option<Arc<Proc>>,
    /// The number in its name, or another that tells it from its siblings.
    pub n: i64,
}

/// Where text is made and for which caller.
pub struct At<'a> {
    /// The file system.
    pub fs: &'a KernFs,
    /// The process that the directory belongs to.
    pub proc: Option<&'a Arc<Proc>>,
    /// The number in the name.
    pub n: i64,
    /// The task that asks; `None` where the file layer does not say.
    pub cx: Option<&'a dyn Caller>,
    /// Credentials of the opener of the file that is read or written.
    pub opener: Option<&'a Arc<Credentials>>,
    /// The memory that the file was opened for, see [`FsType::check_open`](crate::FsType::check_open).
    pub bound: Option<&'a Weak<Mm>>,
    /// How many bytes of a write were taken, where that is not all of them.
    pub taken: Cell<Option<usize>>,
}

impl At<'_> {
    /// The kernel.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.fs.kernel
    }
    /// The process; ESRCH once it is gone.
    pub fn proc(&self) -> Result<&Arc<Proc>> {
        let p = self.proc.ok_or(Errno::ESRCH)?;
        if p.exists(self.kernel()) { Ok(p) } else { Err(Errno::ESRCH) }
    }
    /// The process's memory: that for which the file was opened, or the present one. `None` once it is gone; ESRCH once
    /// the process is.
    pub fn mm(&self) -> Result<Option<Arc<Mm>>> {
        let proc = self.proc()?;
        // Memory that no process uses any more is gone, even if other objects still refer to its record.
        let used = |mm: &Arc<Mm>| !mm.users.none();
        Ok(self.bound.map_or_else(|| proc.mm(), |mm| Weak::upgrade(mm).filter(used)))
    }
    /// The task that asks.
    pub fn cx(&self) -> Result<&dyn Caller> {
        self.cx.ok_or(Errno::EACCES)
    }
    /// Credentials of the opener of the file; those of the caller where no file is open.
    pub fn opener(&self) -> Result<Arc<Credentials>> {
        self.opener.cloned().map_or_else(|| Ok(Creds::into_inner(self.cx()?.creds())), Ok)
    }
    /// The asking task as the kernel knows it.
    pub fn caller(&self) -> Option<Arc<Task>> {
        self.kernel().task(self.cx?.tid())
    }
    /// What this file system calls the process with this id; 0 for one that it does not show.
    pub fn pid_nr(&self, id: i32) -> i32 {
        self.kernel().pids.find(id).map_or(0, |pid| pid.nr_in(&self.fs.pids))
    }
    /// The PID namespace that the file system shows numbers of.
    pub fn pid_ns(&self) -> &PidNamespace {
        &self.fs.pids
    }
    /// The process, group or session with a number in this file system, as the kernel's tables know it; or [`caller::NO_ID`].
    pub fn find_pid(&self, number: i32) -> i32 {
        self.fs.pids.find(number).map_or(caller::NO_ID, |pid| pid.nr())
    }
    /// The namespaces of the process that the directory belongs to, else of the asking task.
    pub fn nsproxy(&self) -> Arc<NsProxy> {
        if let Some(task) = self.proc.and_then(|proc| proc.task()) {
            return task.nsproxy();
        }
        self.caller().map_or_else(|| self.kernel().first.namespaces.clone(), |t| t.nsproxy())
    }
    /// The container of the asking task.
    pub fn container(&self) -> Arc<Container> {
        self.caller().map_or_else(|| self.kernel().first.clone(), |t| t.group.container.clone())
    }
    /// What the asking task's container may use and uses.
    pub fn limits(&self) -> Arc<Limits> {
        self.container().limits().clone()
    }
    /// The root directory that paths are shown from: the asking task's.
    pub fn root(&self) -> Option<Path> {
        let fs = self.caller().and_then(|t| t.fs()).or_else(|| self.kernel().first.root_fs.lock().clone())?;
        Some(fs.view().root.clone())
    }
    /// A path as the asking task sees it.
    pub fn show(&self, p: &Path) -> Vec<u8> {
        match self.root() {
            Some(r) => p.display_link(&r),
            None => p.display_absolute(),
        }
    }
    /// What /proc/PID/fd and maps call an open file.
    pub fn show_file(&self, f: &OpenFile) -> Vec<u8> {
        match &f.path {
            Some(p) => self.show(p),
            None => f.ops.link_name().unwrap_or_else(|| "anon_inode:[file]".into()).into_bytes(),
        }
    }
}

/// A read-only text file.
pub const fn text(name: &'static str, read: Read) -> Entry {
    Entry { name, mode: 0o444, what: What::Text(read, None) }
}
/// A text file that only its owner may read.
pub const fn private(name: &'static str, read: Read) -> Entry {
    Entry { name, mode: 0o400, what: What::Text(read, None) }
}
/// A text file that takes writes.
pub const fn writable(name: &'static str, mode: u32, read: Read, write: Write) -> Entry {
    Entry { name, mode, what: What::Text(read, Some(write)) }
}
/// A directory of a table.
pub const fn dir(name: &'static str, entries: &'static [Entry]) -> Entry {
    Entry { name, mode: 0o555, what: What::Dir(entries, None) }
}
/// A symbolic link.
pub const fn link(name: &'static str, read: Read) -> Entry {
    Entry { name, mode: 0o777, what: What::Link(read) }
}
/// A magic link.
pub const fn magic(name: &'static str, to: fn(&At) -> Result<Target>) -> Entry {
    Entry { name, mode: 0o777, what: What::Magic(to) }
}
/// A file without any text.
pub const fn empty(name: &'static str) -> Entry {
    text(name, nothing)
}

/// No text.
pub fn nothing(_at: &At) -> Result<Vec<u8>> {
    Ok(Vec::new())
}

/// Text of a number and a line end.
pub fn line(v: impl std::fmt::Display) -> Result<Vec<u8>> {
    Ok(format!("{v}\n").into_bytes())
}

/// Parses a decimal number as the kernel's `kstrtoint` does: an optional sign, base prefixes, white space around.
pub fn parse_int(data: &[u8]) -> Result<i64> {
    let s = std::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
    let s = s.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
    let (neg, digits) = match s.as_bytes().first() {
        Some(b'-') => (true, &s[1..]),
        Some(b'+') => (false, &s[1..]),
        _ => (false, s),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return Err(Errno::EINVAL);
    }
    let v = i64::from_str_radix(digits, radix).map_err(|e| match e.kind() {
        std::num::IntErrorKind::PosOverflow => Errno::ERANGE,
        _ => Errno::EINVAL,
    })?;
    Ok(if neg { -v } else { v })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        assert_eq!(parse_int(b"12\n"), Ok(12));
        assert_eq!(parse_int(b"-17"), Ok(-17));
        assert_eq!(parse_int(b"0x10\n"), Ok(16));
        assert_eq!(parse_int(b"010"), Ok(8));
        assert_eq!(parse_int(b"0"), Ok(0));
        assert_eq!(parse_int(b""), Err(Errno::EINVAL));
        assert_eq!(parse_int(b"1x"), Err(Errno::EINVAL));
        assert_eq!(parse_int(b"99999999999999999999"), Err(Errno::ERANGE));
    }
}
