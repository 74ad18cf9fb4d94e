//! The image of a checkpoint: one stream of metadata, and memory in page-aligned files.

#![forbid(unsafe_code)]

/// A piece of the file of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Extent {
    /// Where it belongs: an address, or an offset in a file.
    pub at: u64,
    /// Length in bytes, a multiple of the page size.
    pub len: u64,
    /// Offset in the file of pages, a multiple of the page size.
    pub offset: u64,
}
