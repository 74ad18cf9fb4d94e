//! User namespaces, which own capabilities. See user_namespaces(7).
//!
//! A capability is held in one namespace: that of the credentials. It counts in this namespace and in those inside of it.
//! Every other namespace (network, PID, UTS, IPC, mount) belongs to a user namespace, and what may be changed in it is a
//! question of capabilities there.
//!
//! A namespace never changes, so there is no lock. A checkpoint keeps number, owner and parent of each.

#![forbid(unsafe_code)]

use abi::{Errno, Result};
use std::sync::Arc;

/// Number of the initial namespace's nsfs inode (PROC_USER_INIT_INO).
pub const INITIAL: u64 = 4026531837;
/// Most levels below the initial namespace.
pub const MAX_LEVEL: usize = 32;

/// A user namespace.
#[derive(Debug)]
pub struct UserNamespace {
    inum: u64,
    level: usize,
    parent: Option<Arc<UserNamespace>>,
    owner: u32,
}

impl UserNamespace {
    /// The initial one of a kernel, which user 0 owns.
    pub fn initial() -> Arc<UserNamespace> {
        Arc::new(UserNamespace { inum: INITIAL, level: 0, parent: None, owner: 0 })
    }

    /// A namespace inside this one, made by a process with this effective user ID. ENOSPC when that is too deep.
    pub fn child(self: &Arc<Self>, inum: u64, owner: u32) -> Result<Arc<UserNamespace>> {
        if self.level > MAX_LEVEL {
            return Err(Errno::ENOSPC);
        }
        Ok(Arc::new(UserNamespace { inum, level: self.level + 1, parent: Some(self.clone()), owner }))
    }

    /// Number of its nsfs inode, as /proc/PID/ns/user shows it.
    pub fn inum(&self) -> u64 {
        self.inum
    }

    /// True for the kernel's initial namespace.
    pub fn is_initial(&self) -> bool {
        self.level == 0
    }

    /// Whether somebody of namespace `from` with effective user ID `euid` has the capabilities here that `held` says they have
    /// in `from`: as they are here and inside of `from`, and all of them in a namespace that they made themselves.
    pub fn grants(&self, from: &UserNamespace, euid: u32, held: bool) -> bool {
        let mut at = self;
        loop {
            if std::ptr::eq(at, from) {
                return held;
            }
            if at.level <= from.level {
                return false;
            }
            let Some(parent) = at.parent.as_deref() else { return false };
            if std::ptr::eq(parent, from) && at.owner == euid {
                return true;
            }
            at = parent;
        }
    }
}

impl PartialEq for UserNamespace {
    fn eq(&self, other: &UserNamespace) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for UserNamespace {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_count_in_their_namespace_and_inside_it() {
        let top = UserNamespace::initial();
        let (a, b) = (top.child(1, 1000).unwrap(), top.child(2, 1000).unwrap());
        let inner = a.child(3, 0).unwrap();
        for ns in [&top, &a, &inner] {
            assert!(ns.grants(&top, 1, true));
            assert!(!ns.grants(&top, 1, false));
        }
        assert!(a.grants(&a, 7, true) && inner.grants(&a, 7, true));
        // Neither outwards nor to a neighbour.
        assert!(!top.grants(&a, 0, true) && !b.grants(&a, 0, true) && !a.grants(&inner, 0, true));
    }

    #[test]
    fn who_made_a_namespace_has_all_in_it_and_inside() {
        let top = UserNamespace::initial();
        let mine = top.child(1, 1000).unwrap();
        let inner = mine.child(2, 7).unwrap();
        assert!(mine.grants(&top, 1000, false) && inner.grants(&top, 1000, false));
        assert!(!mine.grants(&top, 7, false) && !inner.grants(&top, 7, false));
        // The user ID counts in the parent of the namespace only.
        assert!(!mine.grants(&mine, 1000, false) && inner.grants(&mine, 7, false));
    }

    #[test]
    fn depth_is_bounded() {
        let mut deepest = UserNamespace::initial();
        for _ in 0..=MAX_LEVEL {
            deepest = deepest.child(9, 0).unwrap();
        }
        assert_eq!(deepest.child(9, 0).err(), Some(Errno::ENOSPC));
    }
}
