//! A file's mappings, counted.

use std::ops::Deref;
use std::sync::Arc;
use vfs::file::OpenFile;

/// The open file of one mapping. Each of them counts as one mapping of the file, and its clones too: [`MapOps::mapped`] and
/// [`MapOps::unmapped`] are told, as `vm_operations_struct` does in Linux.
///
/// [`MapOps::mapped`]: crate::MapOps::mapped
/// [`MapOps::unmapped`]: crate::MapOps::unmapped
pub struct MappedFile(Arc<OpenFile>);

impl MappedFile {
    /// One more mapping of `file`.
    pub fn new(file: Arc<OpenFile>) -> MappedFile {
        if let Some(ops) = file.ops.as_map() {
            ops.mapped();
        }
        MappedFile(file)
    }
}

impl Clone for MappedFile {
    fn clone(&self) -> MappedFile {
        MappedFile::new(self.0.clone())
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if let Some(ops) = self.0.ops.as_map() {
            ops.unmapped();
        }
    }
}

impl Deref for MappedFile {
    type Target = Arc<OpenFile>;
    fn deref(&self) -> &Arc<OpenFile> {
        &self.0
    }
}
