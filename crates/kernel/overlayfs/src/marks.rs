//! The marks of overlayfs in the layers: whiteouts, and extended attributes of its own.
//!
//! `opaque` of a directory: `y` where nothing below it shows, `x` where empty files with `whiteout` stand for
//! whiteouts. `origin`: the inode and the layer that an object is a copy of. `impure`: a directory of the upper layer
//! has such copies.

use crate::core::Core;
use crate::layers::Layer;
use abi::stat::{S_IFCHR, S_IFREG};
use abi::{Errno, Result};
use namei::stack::{self, Start};
use std::sync::Arc;
use vfs::{Caller, Dentry, InodeRef, NewNode};

/// Length of [`Origin`] as an attribute: Linux's header of a file handle, and device and inode number.
const ORIGIN: usize = HEADER + 16;
/// Version, magic number, length, flags, type, and a UUID.
const HEADER: usize = 21;
const ORIGIN_MAGIC: u8 = 0xfb;
/// A type of file handle that Linux has no decoder for: it takes such an origin as unknown.
const ORIGIN_TYPE: u8 = 0xf0;

/// Where something was copied from: the file system among those of the layers, and the inode number in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub fs: usize,
    pub ino: u64,
}

/// How opaque a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opaque {
    No,
    Yes,
    XWhiteouts,
}

impl Core {
    fn name(&self, what: &str) -> Vec<u8> {
        [self.prefix, what.as_bytes()].concat()
    }

    /// One of the attributes. `None` where there is none, and where it cannot be read.
    fn mark(&self, over: &dyn Caller, inode: &InodeRef, what: &str) -> Option<Vec<u8>> {
        let name = self.name(what);
        namei::xattr::check(over, inode, &name, rights::mode::MAY_READ).ok()?;
        inode.as_xattrs()?.get_xattr(over, &name).ok()
    }

    /// Sets one of the attributes. EOPNOTSUPP, EPERM where they cannot be kept.
    pub fn set_mark(&self, over: &dyn Caller, inode: &InodeRef, what: &str, value: &[u8]) -> Result<()> {
        let name = self.name(what);
        namei::xattr::check(over, inode, &name, rights::mode::MAY_WRITE)?;
        inode.xattrs()?.set_xattr(over, &name, value, 0)
    }

    /// How opaque a directory of a layer is.
    pub fn opacity(&self, over: &dyn Caller, inode: &InodeRef) -> Opaque {
        match self.mark(over, inode, "opaque").as_deref() {
            Some(b"y") => Opaque::Yes,
            Some(b"x") => Opaque::XWhiteouts,
            _ => Opaque::No,
        }
    }

    /// Makes a directory of the upper layer opaque; `missing` where that cannot be noted.
    pub fn set_opaque(&self, over: &dyn Caller, inode: &InodeRef, missing: Errno) -> Result<()> {
        if self.markless {
            return Err(missing);
        }
        self.set_mark(over, inode, "opaque", b"y")
    }

    /// A directory of the upper layer gets a copy.
    pub fn set_impure(&self, over: &dyn Caller, inode: &InodeRef) -> Result<()> {
        if self.markless || self.is_impure(over, inode) {
            return Ok(());
        }
        self.set_mark(over, inode, "impure", b"y")
    }

    pub fn is_impure(&self, over: &dyn Caller, inode: &InodeRef) -> bool {
        self.mark(over, inode, "impure").as_deref() == Some(b"y")
    }

    /// EPERM for what has its content or its place elsewhere: such layers need options that do not exist here.
    pub fn check_complete(&self, over: &dyn Caller, dentry: &Arc<Dentry>) -> Result<()> {
        let elsewhere = match dentry.is_dir() {
            true => self.mark(over, &dentry.inode, "redirect").is_some(),
            false => dentry.kind == S_IFREG && self.mark(over, &dentry.inode, "metacopy").is_some(),
        };
        if elsewhere { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Notes where a copy comes from. Without such notes inode numbers change in a later mount.
    pub fn set_origin(&self, over: &dyn Caller, copy: &InodeRef, origin: Origin) -> Result<()> {
        let Some(fs) = self.filesystems.get(origin.fs).filter(|_| !self.markless) else { return Ok(()) };
        let mut value = vec![0, ORIGIN_MAGIC, ORIGIN as u8, 0, ORIGIN_TYPE];
        value.resize(HEADER, 0);
        value.extend(fs.dev.to_le_bytes());
        value.extend(origin.ino.to_le_bytes());
        match self.set_mark(over, copy, "origin", &value) {
            Err(Errno::EOPNOTSUPP | Errno::EPERM) => Ok(()),
            done => done,
        }
    }

    /// Where a copy in the upper layer comes from, when that is one of the layers.
    pub fn origin(&self, over: &dyn Caller, copy: &InodeRef) -> Option<Origin> {
        let value = self.mark(over, copy, "origin")?;
        let number = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
        if value.len() != ORIGIN || value[1] != ORIGIN_MAGIC || value[4] != ORIGIN_TYPE {
            return None;
        }
        Some(Origin { fs: self.fs_of(number(HEADER)?)?, ino: number(HEADER + 8)? })
    }

    /// Whether an object of a layer says that there is nothing.
    pub fn is_whiteout(&self, over: &dyn Caller, layer: &Layer, dentry: &Arc<Dentry>) -> Result<bool> {
        match dentry.kind {
            S_IFCHR => Ok(dentry.inode.attr()?.rdev == 0),
            S_IFREG if layer.has_xwhiteouts() => {
                Ok(dentry.inode.attr()?.size == 0 && self.mark(over, &dentry.inode, "whiteout").is_some())
            }
            _ => Ok(false),
        }
    }

    /// Makes a whiteout in the work directory; gives its name there.
    pub fn make_whiteout(&self, over: &dyn Caller) -> Result<Vec<u8>> {
        let creds = over.creds();
        let start = Start { mode: 0, uid: creds.fsuid, gid: creds.fsgid };
        let temp = self.temp_name();
        stack::make(over, self.work()?, &temp, &NewNode::Char(0), start)?;
        Ok(temp)
    }

    /// Removes something from the work directory: a directory may have whiteouts in it. Failure leaves it there, for the next
    /// mount to remove.
    pub fn clean(&self, over: &dyn Caller, temp: &[u8]) {
        let Some(work) = &self.work else { return };
        let Ok(victim) = stack::find(over, &work.dentry, temp) else { return };
        if victim.is_dir() {
            let place = vfs::Path { mount: work.mount.clone(), dentry: victim.clone() };
            let _ = crate::listing::remove_all(over, &place, 0);
        }
        let _ = stack::remove(over, work, temp, victim.is_dir());
    }
}
