//! The image of a checkpoint: one stream of metadata, and memory in page-aligned files.
//!
//! The directory of an image has two files: `metadata`, which [`Writer`] makes and [`Reader`] reads, and `pages`, or
//! [`packed`] pages.
//! [`PageSink`] and [`PageSource`] are the file of pages, without a host call. [`Runs`] puts pages there and gives the
//! [`Extent`]s. Pages of zeros are not written: they are holes of the file, or belong to no extent.

#![forbid(unsafe_code)]

mod about;
mod format;
pub mod packed;
mod pages;
mod sums;

pub use about::About;
pub use format::{Error, FIRST, Reader, VERSION, Writer};
pub use pages::{PAGE, PageSink, PageSource, Runs, check, is_zero};
pub use sums::Sums;

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
