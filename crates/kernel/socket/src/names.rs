//! Names of Unix sockets in the caller's view of the file tree.

use crate::ops::Names;
use abi::{Errno, Result};
use vfs::fs_context::FsView;
use vfs::perm::{self, MAY_WRITE};
use vfs::walk::{Lookup, Start, lookup};
use vfs::{Caller, InodeRef, NewNode, dir};

impl Names for FsView {
    fn make(&self, cx: &dyn Caller, path: &[u8]) -> Result<InodeRef> {
        match dir::mknod(cx, self, &Start::Cwd, path, &NewNode::Socket, 0o777) {
            Ok(p) => Ok(p.inode().clone()),
            Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
            Err(e) => Err(e),
        }
    }

    fn find(&self, cx: &dyn Caller, path: &[u8]) -> Result<InodeRef> {
        let p = lookup(cx, self, &Start::Cwd, path, Lookup::FOLLOW)?;
        perm::may(cx, &p, MAY_WRITE)?;
        Ok(p.inode().clone())
    }
}
