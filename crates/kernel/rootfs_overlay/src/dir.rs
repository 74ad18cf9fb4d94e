//! Directories of several layers as one.

use crate::layers::{Stack, is_whiteout};
use abi::{Errno, Result};
use std::collections::HashSet;
use std::sync::Arc;
use tmpfs::lower::LowerDir;
use tmpfs::{Node, TmpFs};
use vfs::{Caller, DirEntry, DirInode, DirSink, InodeRef, OpenFile};

/// Says that a directory hides those below it.
const OPAQUE: [&[u8]; 2] = [b"trusted.overlay.opaque", b"user.overlay.opaque"];

/// DT_CHR.
const CHARACTER: u8 = 2;

/// A directory: those of the layers that have it, the uppermost first.
pub(crate) struct Merged {
    stack: Arc<Stack>,
    parts: Vec<InodeRef>,
    /// Names that begin with this are not shown.
    hidden: Option<Vec<u8>>,
}

impl Merged {
    /// `parts` are directories.
    pub fn new(stack: Arc<Stack>, parts: Vec<InodeRef>, hidden: Option<Vec<u8>>) -> Merged {
        Merged { stack, parts, hidden }
    }
}

impl Merged {
    /// Those that another process answers for.
    fn asked(&self) -> impl Iterator<Item = &dyn DirInode> {
        self.parts.iter().filter_map(|part| part.as_dir()).filter(|dir| dir.looks_ahead())
    }

    fn hides(&self, name: &[u8]) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| name.starts_with(hidden))
    }
}

impl LowerDir for Merged {
    fn find(&self, cx: &dyn Caller, fs: &Arc<TmpFs>, name: &[u8]) -> Result<Arc<Node>> {
        if self.hides(name) {
            return Err(Errno::ENOENT);
        }
        let mut found: Vec<InodeRef> = Vec::new();
        for (depth, part) in self.parts.iter().enumerate() {
            let inode = match part.lookup(cx, name) {
                Ok(inode) => inode,
                Err(Errno::ENOENT) => continue,
                Err(e) => return Err(e),
            };
            let attr = inode.attr()?;
            if is_whiteout(&attr) || (!found.is_empty() && !attr.is_dir()) {
                break;
            }
            found.push(inode);
            // What is left below is hidden, or there is nothing.
            if !attr.is_dir() || depth + 1 == self.parts.len() || is_opaque(cx, found.last()) {
                break;
            }
        }
        self.stack.node(fs, found)
    }

    fn look_ahead(&self, path: &[u8]) {
        self.asked().for_each(|dir| dir.look_ahead(path));
    }

    fn looked(&self) {
        self.asked().for_each(DirInode::looked);
    }

    fn list(&self, cx: &dyn Caller) -> Result<Arc<[DirEntry]>> {
        let mut all = Vec::new();
        let mut seen = HashSet::new();
        let several = self.parts.len() > 1;
        for part in &self.parts {
            let dev = part.attr()?.dev;
            for mut entry in list(cx, part)? {
                if self.hides(&entry.name) || several && !seen.insert(entry.name.clone()) {
                    continue;
                }
                let gone =
                    || part.lookup(cx, &entry.name).and_then(|i| i.attr()).is_ok_and(|a| is_whiteout(&a));
                if entry.kind == CHARACTER && gone() {
                    continue;
                }
                entry.ino = self.stack.ino(dev, entry.ino).unwrap_or(entry.ino);
                all.push(entry);
            }
        }
        Ok(all.into())
    }
}

fn is_opaque(cx: &dyn Caller, dir: Option<&InodeRef>) -> bool {
    let Some(xattrs) = dir.and_then(|dir| dir.as_xattrs()) else { return false };
    OPAQUE.iter().any(|name| xattrs.get_xattr(cx, name).is_ok_and(|value| value == b"y"))
}

struct Collect(Vec<DirEntry>);

impl DirSink for Collect {
    fn entry(&mut self, _next: u64, e: &DirEntry) -> bool {
        self.0.push(e.clone());
        true
    }
}

/// The whole listing of a directory of a layer.
fn list(cx: &dyn Caller, dir: &InodeRef) -> Result<Vec<DirEntry>> {
    let ops = dir.open(cx, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let f = OpenFile::new(None, Some(dir.clone()), ops, libc::O_RDONLY | libc::O_DIRECTORY);
    let mut all = Collect(Vec::new());
    let mut pos = 2;
    loop {
        let before = all.0.len();
        pos = f.ops.read_dir(cx, &f, pos, &mut all)?;
        if all.0.len() == before {
            return Ok(all.0);
        }
    }
}
