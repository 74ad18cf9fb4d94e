//! Where mounts hang, for policies.
//!
//! A rule names a place by its path from the container's root. A mount that has been taken away, or whose namespace has
//! ended, hangs nowhere, while files of it can still be open: such a file is where the mount hung last. So every mount has a
//! [`Site`], which outlives the mount above and keeps no mount alive.

use super::Path;
use crate::dentry::Dentry;
use lock_order::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most mounts on the way up. A mount that was taken away can have been under one that now hangs below it.
const MAX_MOUNTS: usize = 1000;

/// Where a mount hangs, or hung last.
pub(super) struct Site {
    /// The root of the mount.
    root: Arc<Dentry>,
    /// The place of the mount above; `None` before it was attached.
    above: RwLock<Option<(Arc<Dentry>, Arc<Site>)>>,
    /// A mount hangs below it, or hung.
    has_below: AtomicBool,
}

impl Site {
    /// Of a mount that was not attached yet.
    pub(super) fn new(root: &Arc<Dentry>) -> Arc<Site> {
        Arc::new(Site { root: root.clone(), above: RwLock::new(None), has_below: AtomicBool::new(false) })
    }

    /// The mount is attached here. Where it comes below a mount that hung below itself, as the old root does at
    /// pivot_root(2), it stays where it was: sites in a circle would live for ever.
    pub(super) fn set(self: &Arc<Site>, at: &Path) {
        if self.has_below.load(Ordering::Relaxed) && at.mount.site.is_below(self) {
            return;
        }
        at.mount.site.has_below.store(true, Ordering::Relaxed);
        let new = (at.dentry.clone(), at.mount.site.clone());
        let old = self.above.write().replace(new);
        drop(old);
    }

    /// Whether it hangs below another one, or too deep to have a path.
    fn is_below(self: &Arc<Site>, other: &Arc<Site>) -> bool {
        let mut site = self.clone();
        for _ in 0..MAX_MOUNTS {
            if Arc::ptr_eq(&site, other) {
                return true;
            }
            let Some((_, above)) = site.above.read().clone() else { return false };
            site = above;
        }
        true
    }
}

impl Drop for Site {
    /// Without recursion: a guest can nest a hundred thousand.
    fn drop(&mut self) {
        let mut above = self.above.get_mut().take();
        while let Some((_, site)) = above {
            above = Arc::into_inner(site).and_then(|mut site| site.above.get_mut().take());
        }
    }
}

impl Path {
    /// The path from the directory `root`, through whatever mount that is reached. `None` for a place that has never been
    /// below: in a mount that was not attached, or in a tree of mounts with another root.
    pub fn display_below(&self, root: &Arc<Dentry>) -> Option<Vec<u8>> {
        if let Some(name) = super::path::nameless(&self.dentry).filter(|_| !self.is_mount_root()) {
            return Some(name);
        }
        let mut parts = Vec::new();
        let (mut dentry, mut site) = (self.dentry.clone(), self.mount.site.clone());
        let mut left = MAX_MOUNTS;
        while !Arc::ptr_eq(&dentry, root) {
            if Arc::ptr_eq(&dentry, &site.root) {
                left = left.checked_sub(1)?;
                let above = site.above.read().clone();
                (dentry, site) = above?;
                continue;
            }
            let (parent, name) = dentry.place();
            parts.push(name);
            dentry = parent?;
        }
        let mut out = Vec::new();
        super::path::join(&mut out, &parts);
        Some(out)
    }
}
