//! Access control lists of host objects. The host's file system keeps them, as extended attributes, and gives new
//! objects what they inherit. The kernel inside decides about access.
//!
//! A list that was read is kept as long as the object's attributes. In watched directories that is until another
//! process changes something; elsewhere until the time of change differs. Our own change of the list ends it as well.

use super::Node;
use super::standing::is_told;
use crate::fs::Mode;
use abi::stat::{S_IFDIR, S_IFREG};
use abi::time::Timespec;
use abi::{Errno, Result};
use lock_order::Mutex;
use rights::acl::{Acl, AclKind};
use std::sync::Arc;
use vfs::{AclInode, Caller, Inode};

/// When a list is still what it was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stamp {
    /// It never changes.
    Always,
    /// While the numbers of changes by others stand.
    Told((u64, u64)),
    /// While this is the time of the last change.
    Changed(Timespec),
}

/// The lists of a node that are known.
#[derive(Default)]
pub(crate) struct Acls(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    /// Our changes.
    changes: u64,
    lists: [Option<(Stamp, Option<Arc<Acl>>)>; 2],
}

impl Node {
    fn acl_stamp(&self) -> Stamp {
        if self.fs.mode == Mode::Exclusive {
            return Stamp::Always;
        }
        let known = self.known();
        let told = is_told(&known, self.fs.coherence) && !self.watch.has_other_names();
        match self.standing().filter(|_| told) {
            Some(standing) => Stamp::Told(standing.by_others()),
            None => Stamp::Changed(self.rights().ctime),
        }
    }

    /// We are changing the list, here or by the mode.
    pub(crate) fn forget_acls(&self) {
        let forget = |node: &Node| {
            let mut known = node.acls.0.lock();
            known.changes += 1;
            known.lists = [None, None];
        };
        forget(self);
        self.fs.home.other_trees(&self.fs, |tree| {
            let node = tree.nodes.read().get(&self.key).and_then(|node| node.upgrade());
            if let Some(node) = node {
                forget(&node);
            }
        });
    }

    fn read_acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        // Others have no descriptor by which the host could be asked.
        if !matches!(self.kind, S_IFREG | S_IFDIR) {
            return Ok(None);
        }
        match self.target(|dir, target| dir.get_xattr(target, kind.xattr())) {
            Ok(value) => Ok(Acl::from_xattr(&value)?.map(Arc::new)),
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl AclInode for Node {
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        if kind == AclKind::Default && self.kind != S_IFDIR {
            return Ok(None);
        }
        let stamp = self.acl_stamp();
        let changes = {
            let known = self.acls.0.lock();
            if let Some((stood, acl)) = &known.lists[kind as usize]
                && *stood == stamp
            {
                return Ok(acl.clone());
            }
            known.changes
        };
        let acl = self.read_acl(kind)?;
        let mut known = self.acls.0.lock();
        if known.changes == changes {
            known.lists[kind as usize] = Some((stamp, acl.clone()));
        }
        Ok(acl)
    }

    fn set_acl(
        &self,
        cx: &dyn Caller,
        kind: AclKind,
        acl: Option<Arc<Acl>>,
        mode: Option<u32>,
    ) -> Result<()> {
        if self.fs.readonly {
            return Err(Errno::EROFS);
        }
        let changing = self.changing();
        let done = match acl {
            // The host sets the mode that goes with it.
            Some(acl) => self.changing_attributes(|| {
                self.target(|dir, target| dir.set_xattr(target, kind.xattr(), &acl.to_xattr(), 0))
            }),
            None => match self
                .changing_attributes(|| self.target(|dir, target| dir.remove_xattr(target, kind.xattr())))
            {
                Err(Errno::ENODATA) => Ok(()),
                done => done,
            },
        };
        self.forget_acls();
        drop(changing);
        done?;
        match mode {
            Some(mode) if self.current()?.mode & 0o7777 != mode => {
                self.set_attr(cx, &vfs::SetAttr { mode: Some(mode), ..vfs::SetAttr::default() })
            }
            _ => self.current().map(drop),
        }
    }

    fn inherits_by_itself(&self) -> bool {
        true
    }
}
