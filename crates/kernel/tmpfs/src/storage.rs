//! Where the content of an instance's files lives, and how many pages it may take.
//!
//! Key type: [`Storage`], one per instance. Neighbours: the module `content` stores the bytes of a file here; `memfile`
//! and `filestore` are the two places besides the heap.
//! Lock: the list of memory files to measure (rank `TMPFS_INEXACT`), outside a memory file's charge.
//! A checkpoint keeps the limit only: the pages in use follow from the content.

use crate::filestore::FileStore;
use crate::limit::Limit;
use crate::memfile::{MemFile, MemFiles};
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use std::sync::{Arc, Weak};

/// The storage of an instance.
pub(crate) struct Storage {
    /// Where content that is mapped lives.
    pub memory: Arc<MemFiles>,
    /// Where all other content lives; the heap without.
    pub file: Option<Arc<FileStore>>,
    /// Pages of data.
    pub pages: Limit,
    /// Memory files with an estimated charge.
    inexact: Mutex<Vec<Weak<MemFile>>, { rank::TMPFS_INEXACT }>,
}

impl Storage {
    /// Empty storage of at most `pages` pages.
    pub fn new(memory: &Arc<MemFiles>, file: Option<Arc<FileStore>>, pages: Option<u64>) -> Storage {
        Storage { memory: memory.clone(), file, pages: Limit::new(pages), inexact: Mutex::default() }
    }

    /// Charges pages of data; ENOSPC.
    pub fn charge(&self, pages: u64) -> Result<()> {
        if pages == 0 || self.pages.charge(pages).is_ok() {
            return Ok(());
        }
        self.settle();
        self.pages.charge(pages)
    }

    /// ENOSPC when `pages` may not be charged any more, whatever is measured.
    pub fn ensure_room(&self, pages: u64) -> Result<()> {
        if self.pages.room() < pages {
            self.settle();
        }
        if self.pages.room() < pages { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Charges a write of `pages` pages to a memory file of `most` pages. The write may have touched holes, so the charge
    /// is a guess, which [`Storage::settle`] corrects.
    pub fn estimate(&self, file: &Arc<MemFile>, pages: u64, most: u64) {
        self.list(file);
        file.charge_at_most(&self.pages, pages, most);
    }

    /// From now on mappings fill pages of `file` without the kernel's knowledge.
    pub fn set_mapped(&self, file: &Arc<MemFile>) {
        file.set_mapped();
        self.list(file);
    }

    /// Measures all memory files with an estimated charge.
    pub fn settle(&self) {
        if !self.pages.limited() {
            return;
        }
        self.inexact.lock().retain(|file| file.upgrade().is_some_and(|file| file.settle(&self.pages)));
    }

    /// Puts a memory file on the list of those with an estimated charge.
    fn list(&self, file: &Arc<MemFile>) {
        if file.set_listed() || !self.pages.limited() {
            return;
        }
        let mut list = self.inexact.lock();
        if list.len() == list.capacity() {
            list.retain(|file| file.strong_count() != 0);
        }
        list.push(Arc::downgrade(file));
    }
}
