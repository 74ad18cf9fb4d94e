//! Landlock's say in what is done to files. Nothing is looked at for credentials without a domain.
//!
//! Rules are collected from the object up to the root of the namespace, through the places where file systems are
//! mounted; what
//! the caller sees as its root does not matter.

use abi::stat::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};
use abi::{Errno, Result};
use landlock::{Domain, Object, Request, access};
use std::sync::Arc;
use vfs::Caller;
use vfs::dentry::Dentry;
use vfs::file::denied;
use vfs::inode::NewNode;
use vfs::mount::Path;
use vfs::{InodeRef, KnownPlace};

/// The right that making something of this type takes.
fn making(kind: u32) -> u64 {
    match kind {
        S_IFDIR => access::MAKE_DIR,
        S_IFCHR => access::MAKE_CHAR,
        S_IFBLK => access::MAKE_BLOCK,
        S_IFIFO => access::MAKE_FIFO,
        S_IFSOCK => access::MAKE_SOCK,
        S_IFLNK => access::MAKE_SYM,
        _ => access::MAKE_REG,
    }
}

fn removing(dentry: &Dentry) -> u64 {
    if dentry.is_dir() { access::REMOVE_DIR } else { access::REMOVE_FILE }
}

/// Asks the rules on the way from a place up; with `all` also where the answer is clear before the end.
fn collect<'a>(
    domain: &'a Domain,
    place: &Path,
    first: Option<&Dentry>,
    wanted: u64,
    all: bool,
) -> Request<'a> {
    let mut request = Request::new(domain, wanted);
    let mut at = |dentry: &Dentry| {
        if let Ok(a) = dentry.inode.attr() {
            request.at((a.dev, a.ino));
        }
        !all && request.is_allowed()
    };
    if first.is_some_and(&mut at) {
        return request;
    }
    let (mut mount, mut dentry) = (place.mount.clone(), place.dentry.clone());
    while !at(&dentry) {
        // What is below a mount is hidden and has no say.
        while Arc::ptr_eq(&dentry, &mount.root) {
            let Some(point) = mount.mountpoint() else { return request };
            (mount, dentry) = (point.mount, point.dentry);
        }
        let Some(parent) = dentry.parent() else { break };
        dentry = parent;
    }
    request
}

/// EACCES unless the caller's domain allows this at a place.
pub(crate) fn check(cx: &dyn Caller, place: &Path, wanted: u64) -> Result<()> {
    match &cx.creds().landlock {
        Some(domain) => collect(domain, place, None, wanted, false).result(),
        None => Ok(()),
    }
}

/// Making something in a directory.
pub(crate) fn check_make(cx: &dyn Caller, dir: &Path, node: &NewNode) -> Result<()> {
    let kind = match node {
        NewNode::Directory => S_IFDIR,
        NewNode::Symlink(_) => S_IFLNK,
        NewNode::Char(_) => S_IFCHR,
        NewNode::Block(_) => S_IFBLK,
        NewNode::Fifo => S_IFIFO,
        NewNode::Socket | NewNode::BoundSocket(_) => S_IFSOCK,
        NewNode::Regular => S_IFREG,
    };
    check(cx, dir, making(kind))
}

/// Removing something from a directory.
pub(crate) fn check_remove(cx: &dyn Caller, dir: &Path, victim: &Dentry) -> Result<()> {
    check(cx, dir, removing(victim))
}

/// Opening: EACCES, or what the open file may not be used for.
pub(crate) fn check_open(cx: &dyn Caller, place: &Path, flags: i32, execute: bool) -> Result<u8> {
    let creds = cx.creds();
    let Some(domain) = &creds.landlock else { return Ok(0) };
    // Files without a place of their own belong to the process that has them.
    let nowhere = Arc::ptr_eq(&place.mount, cx.vfs().anonymous());
    if flags & libc::O_PATH != 0 || nowhere || place.inode().open_file().is_some() {
        return Ok(0);
    }
    let mode = flags & libc::O_ACCMODE;
    let mut wanted = 0;
    if place.is_dir() {
        wanted |= access::READ_DIR;
    } else if mode != libc::O_WRONLY {
        wanted |= access::READ_FILE;
    }
    if mode != libc::O_RDONLY {
        wanted |= access::WRITE_FILE;
    }
    if execute {
        wanted |= access::EXECUTE;
    }
    if flags & libc::O_TRUNC != 0 && place.kind() == S_IFREG {
        wanted |= access::TRUNCATE;
    }
    let request = collect(domain, place, None, wanted | access::TRUNCATE | access::IOCTL_DEV, false);
    let allowed = request.allowed();
    if wanted & !allowed != 0 {
        return Err(Errno::EACCES);
    }
    let truncate = if allowed & access::TRUNCATE == 0 { denied::TRUNCATE } else { 0 };
    let device = matches!(place.kind(), S_IFCHR | S_IFBLK);
    let ioctl = if device && allowed & access::IOCTL_DEV == 0 { denied::IOCTL } else { 0 };
    Ok(truncate | ioctl)
}

/// Linking `old` of one directory to another, or moving it there in the place of `new`.
pub(crate) struct Moving<'a> {
    pub(crate) from: &'a Path,
    pub(crate) old: &'a Dentry,
    pub(crate) to: &'a Path,
    pub(crate) new: Option<&'a Dentry>,
    /// It leaves its directory.
    pub(crate) leaves: bool,
    /// The two change places.
    pub(crate) exchange: bool,
}

impl Moving<'_> {
    /// EACCES for what may not be done to the directories, EXDEV for what may not change its place.
    pub(crate) fn check(&self, cx: &dyn Caller) -> Result<()> {
        let creds = cx.creds();
        let Some(domain) = &creds.landlock else { return Ok(()) };
        let mut of_from = self.new.filter(|_| self.exchange).map_or(0, |n| making(n.kind));
        let mut of_to = making(self.old.kind);
        if self.leaves {
            of_from |= removing(self.old);
            of_to |= self.new.map_or(0, removing);
        }
        if Arc::ptr_eq(&self.from.dentry, &self.to.dentry) {
            return collect(domain, self.to, None, of_from | of_to, false).result();
        }
        let from = collect(domain, self.from, None, of_from | access::REFER, true);
        let to = collect(domain, self.to, None, of_to | access::REFER, true);
        let file = collect(domain, self.from, Some(self.old), 0, true);
        Request::moved(&from, &to, &file, self.old.is_dir())?;
        match self.new.filter(|_| self.exchange) {
            Some(new) => {
                let file = collect(domain, self.to, Some(new), 0, true);
                Request::moved(&to, &from, &file, new.is_dir())
            }
            None => Ok(()),
        }
    }
}

/// What a rule names, for a checkpoint.
pub struct RuleObject {
    /// The object.
    pub inode: InodeRef,
    /// What is known of the place by which it was named.
    pub place: KnownPlace,
}

impl RuleObject {
    /// That of a rule that [`rule_object`] made.
    pub fn of(object: &Object) -> Option<&RuleObject> {
        object.held.downcast_ref()
    }
}

/// A place as a rule names it.
pub fn rule_object(place: &Path) -> Result<Object> {
    let a = place.attr()?;
    let held = RuleObject { inode: place.inode().clone(), place: KnownPlace::of(place) };
    Ok(Object { key: (a.dev, a.ino), held: Arc::new(held) })
}
