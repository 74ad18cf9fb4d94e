//! Objects without a place in any tree: how /proc/PID/fd/N and AT_EMPTY_PATH reach pipes, sockets and the like. Such a
//! file gets a detached dentry on a private mount. The inode of that mount passes everything on to the open file.

use abi::stat::Attr;
use abi::{Errno, Result};
use std::sync::Arc;
use vfs::Caller;
use vfs::file::{FileOps, OpenFile};
use vfs::inode::{FileSystem, Inode, InodeRef, InternalFs, SetAttr, SpecialInode, XattrInode};
use vfs::mount::Path;
use vfs::{attach::Attachments, dentry::Dentry};

/// The inode by which an open file without a place is reached.
struct AnonInode {
    file: Arc<OpenFile>,
}

impl Inode for AnonInode {
    fn fs(&self) -> Arc<dyn FileSystem> {
        match &self.file.inode {
            Some(i) => i.fs(),
            None => Arc::new(InternalFs::Anon),
        }
    }
    fn attr(&self) -> Result<Attr> {
        self.file.attr()
    }
    fn set_attr(&self, cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        match &self.file.inode {
            Some(i) => i.set_attr(cx, set),
            None => Err(Errno::EPERM),
        }
    }
    fn open(&self, cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        match &self.file.inode {
            Some(i) => i.open(cx, flags),
            None => Err(Errno::ENXIO),
        }
    }
    fn as_xattrs(&self) -> Option<&dyn XattrInode> {
        self.file.inode.as_ref().and_then(|i| i.as_xattrs())
    }
    fn attachments(&self) -> Option<&Attachments> {
        self.file.inode.as_ref().and_then(|i| i.attachments())
    }
    fn as_special(&self) -> Option<&dyn SpecialInode> {
        Some(self)
    }
}

impl SpecialInode for AnonInode {
    fn open_file(&self) -> Option<&Arc<OpenFile>> {
        Some(&self.file)
    }
}

/// A place for any open file: its own, or a detached one.
pub fn path_of(cx: &dyn Caller, file: &Arc<OpenFile>) -> Path {
    if let Some(p) = &file.path {
        return p.clone();
    }
    let name = file.ops.link_name().unwrap_or_else(|| "anon_inode:[file]".into());
    let inode: InodeRef = Arc::new(AnonInode { file: file.clone() });
    Path {
        mount: cx.vfs().anonymous().clone(),
        dentry: Dentry::detached(cx.vfs().dcache(), inode, name.as_bytes()),
    }
}
