//! The trait for the content of a regular file of the layers. See the module `lower` for the other traits.

use abi::Result;
use hostsys::memfd::CopyArea;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vfs::{Caller, Layer, LentFd, MapRequest, Mapping};

/// The content that a regular file starts with.
pub trait LowerFile: Send + Sync {
    /// 512-byte blocks.
    fn blocks(&self) -> u64;
    /// Opens now, so that a failure shows in open(2).
    fn probe(&self, cx: &dyn Caller) -> Result<()>;
    /// Reads at `off`.
    fn read(&self, cx: &dyn Caller, buf: &mut [u8], off: u64) -> Result<usize>;
    /// See [`vfs::FileOps::read_to`].
    fn read_to(&self, cx: &dyn Caller, to: &CopyArea<'_>, len: usize, off: u64) -> Option<Result<usize>>;
    /// SEEK_DATA (`data`) or SEEK_HOLE from `off`.
    fn seek(&self, cx: &dyn Caller, off: u64, data: bool) -> Result<u64>;
    /// A mapping that cannot write.
    fn map(&self, cx: &dyn Caller, req: &MapRequest) -> Result<Mapping>;
    /// See [`vfs::MapOps::lend`].
    fn lend(&self, cx: &dyn Caller, off: u64, len: usize) -> Option<LentFd>;
    /// See [`vfs::MapOps::image`]; nothing before it is opened.
    fn image(&self) -> Option<(u64, u64)>;
    /// See [`vfs::MapOps::layer`]; nothing before it is opened.
    fn layer(&self) -> Option<Layer>;
    /// See [`vfs::MapOps::image_fd`].
    fn image_fd(&self) -> Option<Arc<OwnedFd>>;
}
