//! Places: a dentry as seen through a mount, and how they are written.

use super::Mount;
use crate::dentry::Dentry;
use crate::inode::InodeRef;
use abi::Result;
use abi::stat::{Attr, S_IFMT};
use std::sync::Arc;

/// A place: a dentry as seen through a mount.
#[derive(Clone)]
pub struct Path {
    /// The mount.
    pub mount: Arc<Mount>,
    /// The dentry in the mounted file system.
    pub dentry: Arc<Dentry>,
}

impl PartialEq for Path {
    fn eq(&self, o: &Path) -> bool {
        Arc::ptr_eq(&self.mount, &o.mount) && Arc::ptr_eq(&self.dentry, &o.dentry)
    }
}

impl Eq for Path {}

impl Path {
    /// The object there.
    pub fn inode(&self) -> &InodeRef {
        &self.dentry.inode
    }

    /// Its attributes.
    pub fn attr(&self) -> Result<Attr> {
        self.dentry.inode.attr()
    }

    /// True for directories.
    pub fn is_dir(&self) -> bool {
        self.dentry.is_dir()
    }

    /// S_IFMT bits.
    pub fn kind(&self) -> u32 {
        self.dentry.kind & S_IFMT
    }

    /// The topmost mount's root when something is mounted here.
    pub fn cross_mounts(mut self) -> Path {
        while let Some(m) = self.mount.child_at(&self.dentry) {
            let dentry = m.root.clone();
            self = Path { mount: m, dentry };
        }
        self
    }

    /// It is the root of a mount.
    pub fn is_mount_root(&self) -> bool {
        Arc::ptr_eq(&self.dentry, &self.mount.root)
    }

    /// One level up across mounts, not above `root`. Returns whether a mount was crossed.
    pub fn up(&self, root: &Path) -> (Path, bool) {
        let mut p = self.clone();
        let mut crossed = false;
        loop {
            if p == *root {
                return (p, crossed);
            }
            if Arc::ptr_eq(&p.dentry, &p.mount.root) {
                match p.mount.mountpoint() {
                    Some(m) => {
                        p = m;
                        crossed = true;
                        continue;
                    }
                    None => return (p, crossed),
                }
            }
            let Some(parent) = p.dentry.parent() else { return (p, crossed) };
            let up = Path { mount: p.mount, dentry: parent };
            let top = up.clone().cross_mounts();
            crossed |= !Arc::ptr_eq(&top.mount, &up.mount);
            return (top, crossed);
        }
    }

    /// Components from `root` down to here, and whether `root` was met on the way up.
    fn components(&self, root: Option<&Path>) -> (Vec<Arc<[u8]>>, bool) {
        let mut parts = Vec::new();
        let (mut mount, mut dentry) = (self.mount.clone(), self.dentry.clone());
        loop {
            if let Some(r) = root
                && Arc::ptr_eq(&r.mount, &mount)
                && Arc::ptr_eq(&r.dentry, &dentry)
            {
                return (parts, true);
            }
            if Arc::ptr_eq(&dentry, &mount.root) {
                match mount.mountpoint() {
                    Some(p) => {
                        mount = p.mount;
                        dentry = p.dentry;
                        continue;
                    }
                    None => return (parts, root.is_none()),
                }
            }
            let (parent, name) = dentry.place();
            parts.push(name);
            match parent {
                Some(p) => dentry = p,
                None => return (parts, false),
            }
        }
    }

    /// The path as getcwd(2) shows it, seen from `root`: as [`Path::display_link`] with `(unreachable)` before a place
    /// outside `root`.
    pub fn display(&self, root: &Path) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.reachable_from(root) && !self.is_detached() {
            out.extend_from_slice(b"(unreachable)");
        }
        out.extend(self.display_link(root));
        out
    }

    /// The path as links and maps in /proc show it: from `root`, or for a place outside from the top, with ` (deleted)`
    /// behind the name of an unlinked file.
    pub fn display_link(&self, root: &Path) -> Vec<u8> {
        if let Some(name) = nameless(&self.dentry).filter(|_| !self.is_mount_root()) {
            return name;
        }
        let (parts, _) = self.components(Some(root));
        let mut out = Vec::new();
        join(&mut out, &parts);
        if self.dentry.is_unlinked() {
            out.extend_from_slice(b" (deleted)");
        }
        out
    }

    /// The path from the root of its own mount tree, for mountinfo and logs.
    pub fn display_absolute(&self) -> Vec<u8> {
        if let Some(name) = nameless(&self.dentry).filter(|_| !self.is_mount_root()) {
            return name;
        }
        let (parts, _) = self.components(None);
        let mut out = Vec::new();
        join(&mut out, &parts);
        out
    }

    /// Path of the dentry within its file system (field 4 of mountinfo).
    pub fn display_in_fs(dentry: &Arc<Dentry>) -> Vec<u8> {
        if let Some(name) = nameless(dentry) {
            return name;
        }
        let mut parts = Vec::new();
        let mut d = dentry.clone();
        while let (Some(p), name) = d.place() {
            parts.push(name);
            d = p;
        }
        let mut out = Vec::new();
        join(&mut out, &parts);
        out
    }

    /// Names from `top` of the same file system down to here, the last one first; `None` when `top` is not above.
    pub fn names_below(&self, top: &Arc<Dentry>) -> Option<Vec<Arc<[u8]>>> {
        let mut parts = Vec::new();
        let mut d = self.dentry.clone();
        while !Arc::ptr_eq(&d, top) {
            let (parent, name) = d.place();
            parts.push(name);
            d = parent?;
        }
        Some(parts)
    }

    /// A path and names below it as [`Path::names_below`] gives them.
    pub fn join_below(base: &[u8], names: &[Arc<[u8]>]) -> Vec<u8> {
        let mut out = if names.is_empty() || base != b"/" { base.to_vec() } else { Vec::new() };
        if !names.is_empty() {
            join(&mut out, names);
        }
        out
    }

    /// True when `root` is met on the way up.
    pub fn reachable_from(&self, root: &Path) -> bool {
        self.components(Some(root)).1
    }

    fn is_detached(&self) -> bool {
        self.dentry.parent().is_none() && self.dentry.is_unlinked()
    }
}

/// How an object of [`Dentry::nameless`] is shown.
pub(super) fn nameless(dentry: &Arc<Dentry>) -> Option<Vec<u8>> {
    let (parent, name) = dentry.place();
    (parent.is_none() && !dentry.is_unlinked() && name.ends_with(b"]")).then(|| name.to_vec())
}

pub(super) fn join(out: &mut Vec<u8>, parts: &[Arc<[u8]>]) {
    let start = out.len();
    for p in parts.iter().rev() {
        if !p.starts_with(b"/") {
            out.push(b'/');
        }
        out.extend_from_slice(p);
    }
    if out.len() == start {
        out.push(b'/');
    }
}
