//! Access control lists of nodes.
//!
//! Lock: a leaf, held while list and mode change together. A lower inode is asked without it.

use super::{Node, one_xattr_space};
use abi::Result;
use lock_order::Mutex;
use rights::acl::{Acl, AclKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{AclInode, Caller};

enum State {
    /// Still that of the lower inode.
    Lower,
    /// Our own, if there is one.
    Own(Option<Arc<Acl>>),
}

/// The two lists of a node.
pub(crate) struct Acls {
    /// There are none for sure.
    none: AtomicBool,
    lists: Mutex<[State; 2]>,
}

impl Acls {
    /// Those of the lower inode, or none.
    pub fn new(lower: bool) -> Acls {
        let state = || if lower { State::Lower } else { State::Own(None) };
        Acls { none: (!lower).into(), lists: Mutex::new([state(), state()]) }
    }

    /// What the lists count for.
    pub fn space(&mut self) -> u64 {
        let lists = self.lists.get_mut();
        [AclKind::Access, AclKind::Default]
            .into_iter()
            .zip(lists)
            .map(|(kind, state)| if let State::Own(Some(acl)) = state { space(kind, acl) } else { 0 })
            .sum()
    }
}

fn space(kind: AclKind, acl: &Acl) -> u64 {
    one_xattr_space(kind.xattr(), &acl.to_xattr())
}

impl Node {
    /// Sets the permission bits, and those of the list.
    pub(crate) fn chmod(&self, mode: u32) -> Result<()> {
        if self.acl(AclKind::Access)?.is_none() {
            self.set_mode(mode);
            return Ok(());
        }
        self.change();
        let mut lists = self.acls.lists.lock();
        self.set_mode(mode);
        if let State::Own(Some(acl)) = &mut lists[AclKind::Access as usize] {
            *acl = Arc::new(acl.with_mode(mode));
        }
        Ok(())
    }

    /// A list is still that of the lower inode, if there is one.
    pub(crate) fn has_lower_acl(&self, kind: AclKind) -> bool {
        matches!(self.acls.lists.lock()[kind as usize], State::Lower)
    }

    /// Makes a list that of plain data.
    pub(crate) fn restore_acl(&self, kind: AclKind, acl: Option<Arc<Acl>>) -> Result<()> {
        // What the lower inode has is known from here on, so that it is not taken for ours later.
        self.acl(kind)?;
        if let Some(acl) = &acl {
            acl.validate()?;
        }
        let new = acl.as_ref().map_or(0, |acl| space(kind, acl));
        let mut lists = self.acls.lists.lock();
        self.acls.none.store(false, Ordering::Release);
        let old = std::mem::replace(&mut lists[kind as usize], State::Own(acl));
        let old = if let State::Own(Some(old)) = old { space(kind, &old) } else { 0 };
        self.fs.inodes.recharge(old, new);
        Ok(())
    }

    /// Names of the attributes that the lists are.
    pub(crate) fn acl_names(&self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for kind in [AclKind::Access, AclKind::Default] {
            if self.acl(kind)?.is_some() {
                names.push(kind.xattr().to_vec());
            }
        }
        Ok(names)
    }
}

impl AclInode for Node {
    fn acl(&self, kind: AclKind) -> Result<Option<Arc<Acl>>> {
        if self.acls.none.load(Ordering::Acquire) {
            return Ok(None);
        }
        if let State::Own(acl) = &self.acls.lists.lock()[kind as usize] {
            return Ok(acl.clone());
        }
        let lower = match &self.lower {
            Some(lower) => lower.acl(kind)?,
            None => None,
        };
        let mut lists = self.acls.lists.lock();
        if let State::Lower = lists[kind as usize] {
            if let Some(acl) = &lower {
                // What came from below is there already; it counts, but is not refused.
                self.fs.inodes.recharge(0, space(kind, acl));
            }
            lists[kind as usize] = State::Own(lower);
        }
        let none = lists.iter().all(|state| matches!(state, State::Own(None)));
        self.acls.none.store(none, Ordering::Release);
        match &lists[kind as usize] {
            State::Own(acl) => Ok(acl.clone()),
            State::Lower => Ok(None),
        }
    }

    fn set_acl(
        &self,
        _cx: &dyn Caller,
        kind: AclKind,
        acl: Option<Arc<Acl>>,
        mode: Option<u32>,
    ) -> Result<()> {
        // What the lower inode has is known from here on, so that it is not taken for ours later.
        self.acl(kind)?;
        let new = acl.as_ref().map_or(0, |acl| space(kind, acl));
        self.fs.inodes.charge(new)?;
        self.change();
        let old = {
            let mut lists = self.acls.lists.lock();
            self.acls.none.store(false, Ordering::Release);
            if let Some(mode) = mode {
                self.set_mode(mode);
            }
            std::mem::replace(&mut lists[kind as usize], State::Own(acl))
        };
        if let State::Own(Some(old)) = old {
            self.fs.inodes.uncharge(space(kind, &old));
        }
        self.touch_ctime();
        Ok(())
    }
}
