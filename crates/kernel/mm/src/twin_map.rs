//! Twins ([`text_copies`]) in an address space: which there are, and how a part of one may change. The module `rewrite` acts on
//! it.

use abi::PAGE_SIZE;
use std::sync::Arc;
use text_copies::Image;

/// A twin in an address space.
#[derive(Clone)]
pub(crate) struct TwinMap {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) image: Arc<Image>,
    /// All of it is mapped, and nothing has changed; else the last page is.
    pub(crate) whole: bool,
}

impl TwinMap {
    /// Where the page of the trampolines starts.
    pub(crate) fn last_page(&self) -> u64 {
        self.end - PAGE_SIZE
    }
}

/// What is about to happen to a part of a mapping.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It becomes writable, and stays readable and executable.
    Writable,
    /// It stays, or moves, but cannot be read and executed where it is.
    NotText,
    /// It goes.
    Unmap,
}
