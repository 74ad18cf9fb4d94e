//! The right to look into a new program.

use caller::HasCredentials;
use rights::mode::MAY_READ;
use std::sync::Arc;
use task::Current;
use user_ns::UserNamespace;
use vfs::{InodeRef, OpenFile, access};

/// What its memory begins with; a change of credentials makes it not dumpable later.
pub(crate) struct Privacy {
    pub dumpable: bool,
    pub user_ns: Arc<UserNamespace>,
}

impl Privacy {
    /// Of a program made of these files: itself and its interpreter. It is not dumpable when its caller may not read
    /// one of them (would_dump), or has effective IDs that are not its real ones.
    pub(crate) fn of<'a>(c: &Current, files: impl Iterator<Item = &'a Arc<OpenFile>>) -> Privacy {
        let creds = c.creds();
        let mut privacy = Privacy {
            dumpable: creds.euid == creds.uid && creds.egid == creds.gid,
            user_ns: creds.user_ns.clone(),
        };
        for inode in files.filter_map(|f| f.inode.as_ref()) {
            if access::inode_may(c, inode, MAY_READ).is_err() {
                privacy.dumpable = false;
                privacy.widen(inode);
            }
        }
        privacy
    }

    /// Only a namespace that has the owner of a file decides about the right to read it.
    fn widen(&mut self, inode: &InodeRef) {
        let owner = inode.perm().ok();
        let has = |ns: &UserNamespace| {
            owner.is_some_and(|p| ns.user_here(p.uid).is_some() && ns.group_here(p.gid).is_some())
        };
        while let Some(parent) = self.user_ns.parent().filter(|_| !has(&self.user_ns)) {
            self.user_ns = parent.clone();
        }
    }
}
