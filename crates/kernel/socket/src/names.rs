//! Names of Unix sockets in the caller's view of the file tree.

use crate::ops::Names;
use abi::{Errno, Result};
use mounts::fs_context::FsView;
use namei::dir;
use namei::{
    lookup::{Lookup, Start},
    walk::lookup,
};
use policy::Kind;
use rights::mode::MAY_WRITE;
use vfs::policing::{self, Place};
use vfs::{Caller, InodeRef, NewNode, OpenFile, access};

/// Names for bind(2): what it makes has the permission bits of the socket itself, less the umask.
pub struct Naming<'a> {
    view: &'a FsView,
    mode: u32,
}

impl<'a> Naming<'a> {
    /// For a socket as an open file.
    pub fn new(view: &'a FsView, socket: &OpenFile) -> Result<Naming<'a>> {
        Ok(Naming { view, mode: socket.attr()?.mode & 0o7777 })
    }
}

impl Names for Naming<'_> {
    fn make(&self, cx: &dyn Caller, path: &[u8], kind: i32) -> Result<InodeRef> {
        make(cx, self.view, path, (kind, self.mode))
    }

    fn find(&self, cx: &dyn Caller, path: &[u8]) -> Result<InodeRef> {
        self.view.find(cx, path)
    }
}

fn make(cx: &dyn Caller, view: &FsView, path: &[u8], (kind, mode): (i32, u32)) -> Result<InodeRef> {
    // The umask counts here even where a default list takes its place for files.
    match dir::mknod(cx, view, &Start::Cwd, path, &NewNode::BoundSocket(kind), mode & !cx.umask()) {
        Ok(p) => Ok(p.inode().clone()),
        Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
        Err(e) => Err(e),
    }
}

impl Names for FsView {
    fn make(&self, cx: &dyn Caller, path: &[u8], kind: i32) -> Result<InodeRef> {
        make(cx, self, path, (kind, 0o777))
    }

    fn find(&self, cx: &dyn Caller, path: &[u8]) -> Result<InodeRef> {
        let p = lookup(cx, self, &Start::Cwd, path, Lookup::FOLLOW)?;
        access::may(cx, &p, MAY_WRITE)?;
        policing::decide(cx, Kind::NetConnect, Place::Object(&p))?;
        Ok(p.inode().clone())
    }
}
