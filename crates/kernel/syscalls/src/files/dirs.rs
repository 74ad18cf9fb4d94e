//! getdents(2), chdir(2), getcwd(2), chroot(2), umask(2).

use crate::arg::{Fd, PathPtr, Ptr};
use crate::at::{self, CWD, real_file};
use crate::iov::{CHUNK, Iov};
use abi::Errno;
use namei::dir;
use policy::Kind;
use rights::mode;
use task::{Current, SysResult};
use vfs::access;
use vfs::inode::{DirEntry, DirSink};
use vfs::policing::{self, Place};

/// Layout of a directory record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// `struct linux_dirent`: the type is the last byte.
    Old,
    /// `struct linux_dirent64`.
    New,
}

/// Collects records up to a size.
struct Records {
    layout: Layout,
    max: usize,
    out: Vec<u8>,
}

impl DirSink for Records {
    fn entry(&mut self, next: u64, e: &DirEntry) -> bool {
        // Numbers, length, type (before or behind the name), and the name with its NUL.
        let len = (8 + 8 + 2 + 1 + e.name.len() + 1).next_multiple_of(8);
        if self.out.len() + len > self.max {
            return false;
        }
        let end = self.out.len() + len;
        self.out.extend_from_slice(&e.ino.to_ne_bytes());
        self.out.extend_from_slice(&next.to_ne_bytes());
        self.out.extend_from_slice(&(len as u16).to_ne_bytes());
        if self.layout == Layout::New {
            self.out.push(e.kind);
        }
        self.out.extend_from_slice(&e.name);
        self.out.resize(end, 0);
        if self.layout == Layout::Old {
            self.out[end - 1] = e.kind;
        }
        true
    }
}

fn read_dir(c: &mut Current, fd: Fd, buf: Ptr, size: u32, layout: Layout) -> SysResult {
    let f = real_file(c, fd)?;
    // Sizes are signed on the way: one that looks negative holds no record.
    let max = usize::try_from(size as i32).unwrap_or(0).min(CHUNK);
    let mut records = Records { layout, max, out: Vec::new() };
    policing::decide_io(c, Kind::FileRead, &f)?;
    vfs::notify::ask_to_read(c, &f)?;
    let before = *f.hold_position(c)?;
    let full = dir::read(c, &f, &mut records)?;
    if records.out.is_empty() {
        return if full { Err(Errno::EINVAL.into()) } else { Ok(0) };
    }
    let out = &records.out;
    let iov = Iov::one(c, buf.0, out.len() as u64)?;
    let stored = iov.scatter(c, 0, out);
    if stored == out.len() {
        return Ok(stored as u64);
    }
    let (whole, next) = whole_records(out, stored);
    *f.hold_position(c)? = next.unwrap_or(before);
    if whole == 0 { Err(Errno::EFAULT.into()) } else { Ok(whole as u64) }
}

/// How many bytes of `out` are the records that end within `len`, and the offset behind the last of them.
fn whole_records(out: &[u8], len: usize) -> (usize, Option<u64>) {
    let (mut end, mut next) = (0, None);
    while let Some((head, [a, b])) =
        out.get(end..).and_then(|r| r.first_chunk::<18>()).map(|h| (h, [h[16], h[17]]))
    {
        let size = usize::from(u16::from_ne_bytes([a, b]));
        if end + size > len {
            break;
        }
        end += size;
        next = head[8..].first_chunk().map(|o| u64::from_ne_bytes(*o));
    }
    (end, next)
}

pub fn getdents(c: &mut Current, fd: Fd, buf: Ptr, size: u32) -> SysResult {
    read_dir(c, fd, buf, size, Layout::Old)
}

pub fn getdents64(c: &mut Current, fd: Fd, buf: Ptr, size: u32) -> SysResult {
    read_dir(c, fd, buf, size, Layout::New)
}

pub fn chdir(c: &mut Current, path: PathPtr) -> SysResult {
    let (start, path) = at::read(c, CWD, path)?;
    let found = namei::link::find_dir(c, &c.fs().view(), &start, &path)?;
    policing::decide(c, Kind::FileChdir, Place::Object(&found.place))?;
    c.fs().set_cwd(found.place.clone());
    Ok(0)
}

pub fn fchdir(c: &mut Current, fd: Fd) -> SysResult {
    let f = c.file(fd.0)?;
    let p = f.path.as_ref().filter(|p| p.is_dir()).ok_or(Errno::ENOTDIR)?;
    access::inode_may(c, p.inode(), mode::MAY_EXEC)?;
    policing::decide(c, Kind::FileChdir, Place::Object(p))?;
    c.fs().set_cwd(p.clone());
    Ok(0)
}

pub fn getcwd(c: &mut Current, buf: Ptr, size: u64) -> SysResult {
    let view = c.fs().view();
    if view.cwd.dentry.is_unlinked() {
        return Err(Errno::ENOENT.into());
    }
    let mut path = view.cwd.display(&view.root);
    path.push(0);
    if path.len() > abi::PATH_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if path.len() as u64 > size {
        return Err(Errno::ERANGE.into());
    }
    c.write_bytes(buf.0, &path)?;
    Ok(path.len() as u64)
}

pub fn chroot(c: &mut Current, path: PathPtr) -> SysResult {
    let path = c.read_path(path.0)?;
    let found = namei::link::find_root(c, &c.fs().view(), &path)?;
    policing::decide(c, Kind::FileChroot, Place::Object(&found.place))?;
    c.fs().set_root(found.place.clone());
    Ok(0)
}

pub fn umask(c: &mut Current, mask: u32) -> SysResult {
    Ok(c.fs().set_umask(mask).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts() {
        let e = DirEntry { ino: 5, kind: libc::DT_REG, name: b"abc".to_vec() };
        for (layout, kind_at) in [(Layout::New, 18), (Layout::Old, 23)] {
            let mut r = Records { layout, max: 30, out: Vec::new() };
            assert!(r.entry(9, &e));
            assert!(!r.entry(10, &e));
            assert_eq!(r.out.len(), 24);
            assert_eq!(r.out[16..18], 24u16.to_ne_bytes());
            assert_eq!(r.out[kind_at], libc::DT_REG);
            let name = if layout == Layout::New { 19 } else { 18 };
            assert_eq!(&r.out[name..name + 4], b"abc\0");
        }
    }
}
