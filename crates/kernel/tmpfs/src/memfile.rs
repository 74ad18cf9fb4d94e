//! Content in a file of the host's memory, from the moment somebody maps it.
//!
//! A mapping must not carry more rights than its open file has: whoever holds
//! a writable descriptor can map it writable. So there are two descriptors,
//! and the read-only one needs a file with a name for the moment of opening
//! it: in the directory given to [`set_backing`], which nobody else sees.
//! Without it the content lives in a memfd and readers get its only descriptor.

use abi::Result;
use hostsys::fs::{self as host, Access};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

static BACKING: OnceLock<OwnedFd> = OnceLock::new();

/// Gives the directory (of a private tmpfs that is not noexec) in which files are made. Once, at start.
pub fn set_backing(dir: OwnedFd) {
    let _ = BACKING.set(dir);
}

/// A file in memory.
pub(crate) struct MemFile {
    rw: Arc<OwnedFd>,
    ro: Option<Arc<OwnedFd>>,
}

impl MemFile {
    /// An empty one. Sealable ones are memfds, which have no read-only descriptor.
    pub fn new(sealable: bool) -> Result<MemFile> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if let (Some(dir), false) = (BACKING.get(), sealable) {
            let name = format!("f{}", NEXT.fetch_add(1, Ordering::Relaxed)).into_bytes();
            let rw = host::create_at(dir, &name, Access::ReadWrite, 0o700)?;
            let ro = host::open_at(dir, &name, Access::Read);
            host::unlink_at(dir, &name, false)?;
            return Ok(MemFile { rw: Arc::new(rw), ro: Some(Arc::new(ro?)) });
        }
        Ok(MemFile { rw: Arc::new(host::memfd("tmpfs")?), ro: None })
    }

    /// For the kernel's own reads and writes, and for shared mappings of writers.
    pub fn rw(&self) -> &Arc<OwnedFd> {
        &self.rw
    }

    /// For private mappings and those of readers.
    pub fn ro(&self) -> &Arc<OwnedFd> {
        self.ro.as_ref().unwrap_or(&self.rw)
    }
}
