//! Copying up: an object of a lower layer is copied to the upper layer before it is changed.
//!
//! The copy is made in the work directory, and moved into place when it is complete. The times of the directory that it
//! moves to stay as they were.

use crate::core::Core;
use crate::marks::Origin;
use crate::node::Node;
use abi::stat::Attr;
use abi::{Errno, Result};
use namei::rename::NOREPLACE;
use namei::stack::{self, Start};
use rights::acl::AclKind;
use std::sync::Arc;
use vfs::{Caller, Dentry, InodeRef, NewNode, Path, SetAttr, TimeSet};

/// Bytes that are copied at a time.
const PIECE: usize = 128 << 10;

/// How much of a file is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    All,
    /// It is going to be truncated.
    None,
}

impl Node {
    /// The object of the upper layer. EROFS without an upper layer.
    pub fn copy_up(&self, cx: &dyn Caller, content: Content) -> Result<&Arc<Dentry>> {
        if let Some(upper) = self.upper.get() {
            return Ok(upper);
        }
        self.core.upper()?;
        // The directories on the way first, from the top.
        let mut above = Vec::new();
        let mut dir = self.place()?.0;
        while dir.upper.get().is_none() {
            let next = dir.place()?.0;
            above.push(dir);
            dir = next;
        }
        for dir in above.into_iter().rev() {
            dir.copy_one(cx, Content::All)?;
        }
        self.copy_one(cx, content)?;
        self.upper.get().ok_or(Errno::EIO)
    }

    /// As [`Node::copy_up`], of a directory that has been: its place in the upper layer.
    pub fn upper_dir(&self, cx: &dyn Caller) -> Result<Path> {
        let upper = self.copy_up(cx, Content::All)?;
        Ok(self.core.upper()?.path(upper))
    }

    fn copy_one(&self, cx: &dyn Caller, content: Content) -> Result<()> {
        let _copying = self.copying.lock_nested();
        if self.upper.get().is_some() {
            return Ok(());
        }
        let core = &self.core;
        let over = core.over(cx);
        let (dir, name) = self.place()?;
        let to = core.upper()?.path(dir.upper.get().ok_or(Errno::ESTALE)?);
        stack::writable(&to.mount)?;
        let lower = self.lower.first().ok_or(Errno::ESTALE)?;
        let attr = lower.dentry.inode.attr()?;
        let ns = &core.creds.user_ns;
        if ns.user_here(attr.uid).is_none() || ns.group_here(attr.gid).is_none() {
            return Err(Errno::EOVERFLOW);
        }
        // Copies of an object with several names are several objects: none of them can have its number.
        let fs = core.lower.get(lower.layer).map_or(0, |l| l.fs);
        let origin = (attr.is_dir() || attr.nlink == 1).then_some(Origin { fs, ino: attr.ino });
        let temp = core.temp_name();
        let done = make_copy(core, &over, &lower.dentry.inode, &attr, (&temp, content), origin)
            .and_then(|()| put(core, &over, &temp, (&to, &name), origin.is_some()));
        match done {
            Ok(upper) => self.enter_copy(upper, origin),
            Err(e) => {
                core.clean(&over, &temp);
                return Err(e);
            }
        }
        dir.changed();
        Ok(())
    }
}

/// Moves a complete copy into place.
fn put(
    core: &Core,
    over: &dyn Caller,
    temp: &[u8],
    (to, name): (&Path, &[u8]),
    marked: bool,
) -> Result<Arc<Dentry>> {
    let before = to.inode().attr()?;
    if marked {
        core.set_impure(over, to.inode())?;
    }
    stack::rename(over, (core.work()?, temp), (to, name), NOREPLACE)?;
    // Nothing has changed as far as anybody can see.
    let _ = to.inode().set_attr(over, &times(&before));
    stack::find(over, &to.dentry, name)
}

fn times(attr: &Attr) -> SetAttr {
    let (atime, mtime) = (Some(TimeSet::At(attr.atime)), Some(TimeSet::At(attr.mtime)));
    SetAttr { atime, mtime, ..SetAttr::default() }
}

/// Makes a copy in the work directory.
fn make_copy(
    core: &Core,
    over: &dyn Caller,
    from: &InodeRef,
    attr: &Attr,
    (temp, content): (&[u8], Content),
    origin: Option<Origin>,
) -> Result<()> {
    let node = match attr.file_type() {
        libc::S_IFREG => NewNode::Regular,
        libc::S_IFDIR => NewNode::Directory,
        libc::S_IFLNK => NewNode::Symlink(from.readlink(over)?),
        libc::S_IFIFO => NewNode::Fifo,
        libc::S_IFSOCK => NewNode::Socket,
        libc::S_IFCHR => NewNode::Char(attr.rdev),
        libc::S_IFBLK => NewNode::Block(attr.rdev),
        _ => return Err(Errno::EIO),
    };
    let device = matches!(node, NewNode::Block(_)) || matches!(node, NewNode::Char(number) if number != 0);
    if device && !core.creds.capable(rights::Cap::MKNOD) {
        return Err(Errno::EPERM);
    }
    let start = Start { mode: attr.mode & 0o7777, uid: attr.uid, gid: attr.gid };
    let copy = stack::make(over, core.work()?, temp, &node, start)?;
    let to = &copy.inode;
    if node == NewNode::Regular && content == Content::All && attr.size > 0 {
        copy_data(core, over, from, to, attr.size)?;
    }
    copy_xattrs(core, over, from, to)?;
    copy_acls(over, from, to)?;
    if let Some(origin) = origin {
        core.set_origin(over, to, origin)?;
    }
    to.set_attr(over, &times(attr))
}

/// Copies content, leaving holes where the file below says that it has some.
fn copy_data(core: &Core, over: &dyn Caller, from: &InodeRef, to: &InodeRef, size: u64) -> Result<()> {
    let source = stack::open(over, from, libc::O_RDONLY | libc::O_NOATIME)?;
    let ops = to.open(over, libc::O_WRONLY)?;
    let target = vfs::OpenFile::new(None, Some(to.clone()), ops, libc::O_WRONLY);
    let mut piece = vec![0; PIECE];
    let (mut at, mut end) = (0, 0);
    let mut holes = source.ops.as_seek().filter(|_| size >= PIECE as u64);
    while at < size {
        if let Some(seek) = holes {
            match seek.seek_special(over, &source, i64::try_from(at).unwrap_or(i64::MAX), libc::SEEK_DATA) {
                Ok(next) => at = at.max(next),
                Err(Errno::ENXIO) => break,
                Err(_) => holes = None,
            }
        }
        let want = usize::try_from(size.saturating_sub(at)).map_or(PIECE, |left| left.min(PIECE));
        let got = source.ops.read(over, &source, &mut piece[..want], at)?;
        if got == 0 {
            break;
        }
        let mut done = 0;
        while done < got {
            let wrote = target.ops.write(over, &target, &piece[done..got], at + done as u64)?;
            if wrote == 0 {
                return Err(Errno::EIO);
            }
            done += wrote;
        }
        at += got as u64;
        end = at;
    }
    if end < size {
        to.set_attr(over, &SetAttr { size: Some(size), ..SetAttr::default() })?;
    }
    if !core.volatile
        && let Some(storage) = target.ops.as_storage()
    {
        storage.sync(over, &target, false)?;
    }
    Ok(())
}

/// Copies attributes but overlayfs's own. What the upper layer does not know stays behind, unless rights depend on it.
fn copy_xattrs(core: &Core, over: &dyn Caller, from: &InodeRef, to: &InodeRef) -> Result<()> {
    let Some(source) = from.as_xattrs() else { return Ok(()) };
    let names = match source.list_xattr(over) {
        Err(Errno::EOPNOTSUPP) => return Ok(()),
        names => names?,
    };
    for name in names {
        if AclKind::of_xattr(&name).is_some() || core.name_above(name.clone()).is_none() {
            continue;
        }
        // Capabilities of files are shown and kept as the mounter's user namespace has them; those that it cannot see go.
        let value = match namei::xattr::get(over, from, &name) {
            Err(Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EOVERFLOW) => continue,
            value => value?,
        };
        let set = namei::xattr::set(over, to, &name, &value, 0);
        match set {
            Err(Errno::EOPNOTSUPP) if !name.starts_with(b"security.") => {}
            done => done?,
        }
    }
    Ok(())
}

fn copy_acls(over: &dyn Caller, from: &InodeRef, to: &InodeRef) -> Result<()> {
    if from.kind() == libc::S_IFLNK {
        return Ok(());
    }
    let Some(source) = from.as_acls() else { return Ok(()) };
    for kind in [AclKind::Access, AclKind::Default] {
        if let Some(acl) = source.acl(kind)? {
            to.as_acls().ok_or(Errno::EOPNOTSUPP)?.set_acl(over, kind, Some(acl), None)?;
        }
    }
    Ok(())
}
