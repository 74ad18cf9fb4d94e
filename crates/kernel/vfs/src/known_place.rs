//! The place by which a watched object was found. It keeps neither the object nor its name: a checkpoint needs a name by which it
//! finds the object again.

use crate::{Dentry, Mount, Path};
use std::sync::{Arc, Weak};

/// The place by which an object was found.
pub struct KnownPlace {
    mount: Weak<Mount>,
    dentry: Weak<Dentry>,
    /// What the path in its file system was then.
    path: Vec<u8>,
}

/// What is known of a place by now.
pub enum Known {
    /// It is there.
    Place(Path),
    /// The cache has forgotten the name: the mount, and the path that it had in the file system.
    Name(Arc<Mount>, Vec<u8>),
    /// The mount is gone.
    Gone,
}

impl KnownPlace {
    /// The place as it is now.
    pub fn of(path: &Path) -> KnownPlace {
        KnownPlace {
            mount: Arc::downgrade(&path.mount),
            dentry: Arc::downgrade(&path.dentry),
            path: Path::display_in_fs(&path.dentry),
        }
    }

    /// What is known of it by now.
    pub fn now(&self) -> Known {
        match (self.mount.upgrade(), self.dentry.upgrade()) {
            (Some(mount), Some(dentry)) => Known::Place(Path { mount, dentry }),
            (Some(mount), None) => Known::Name(mount, self.path.clone()),
            (None, _) => Known::Gone,
        }
    }
}
