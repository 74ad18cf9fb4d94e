//! Open directories: the operations that are the same for all of them.

use super::{DirectoryOps, FileOps, SeekOps, StorageOps};
use std::any::Any;

/// The open file of a directory.
pub struct DirectoryFile<D>(pub D);

impl<D: DirectoryOps + Send + Sync + 'static> FileOps for DirectoryFile<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        self.0.as_storage()
    }
    fn as_directory(&self) -> Option<&dyn DirectoryOps> {
        Some(&self.0)
    }
}

impl<D: DirectoryOps + Send + Sync + 'static> SeekOps for DirectoryFile<D> {
    fn ends(&self) -> bool {
        self.0.ends()
    }
}
