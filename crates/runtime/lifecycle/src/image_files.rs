//! The image of a checkpoint: a directory with two files.

use crate::packed_pages::read_packed;
use crate::{Error, Result};
use image::{About, FIRST, Reader};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file of metadata.
pub const METADATA: &str = "metadata";
/// The file of pages.
pub const PAGES: &str = "pages";
/// The file of compressed pages, in the place of that.
pub const PACKED: &str = "pages.zst";
/// What metadata says of its image.
fn about(metadata: &OwnedFd, dir: &Path) -> Result<About> {
    let wrong = |why: &dyn std::fmt::Display| Error::from(format!("{}: {METADATA}: {why}", dir.display()));
    let mut first = Vec::new();
    let file = File::from(metadata.try_clone()?);
    // The offset stays at its first byte.
    let len = file.metadata()?.len().min(FIRST as u64);
    first.resize(len as usize, 0);
    file.read_exact_at(&mut first, 0).map_err(|error| wrong(&error))?;
    Reader::about_from(&first).map_err(|error| wrong(&error))
}

/// The files of an image, open for reading.
#[derive(Debug)]
pub struct ImageFiles {
    /// Metadata.
    pub metadata: OwnedFd,
    /// Pages.
    pub pages: OwnedFd,
    /// Files of pages of earlier images, which the image of a clone names.
    pub layers: Vec<OwnedFd>,
}

impl ImageFiles {
    /// For a sandbox that is restored from them: open files of its own, for reading only.
    pub(crate) fn share(&self) -> std::io::Result<Vec<OwnedFd>> {
        let open = |file: &OwnedFd| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            Ok(openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        };
        [&self.metadata, &self.pages].into_iter().chain(&self.layers).map(open).collect()
    }

    /// Opens the image in a directory.
    pub(crate) fn open(dir: &Path) -> Result<ImageFiles> {
        let open = |name: &str| {
            let path = dir.join(name);
            // A FIFO is not waited for.
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let wrong = |why: &dyn std::fmt::Display| {
                Error::from(format!("{} is no image of a checkpoint: {name}: {why}", dir.display()))
            };
            let file = openat(CWD, &path, flags, Mode::empty()).map_err(|error| wrong(&error))?;
            match fstat(&file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file()) {
                true => Ok(file),
                false => Err(wrong(&"it is no regular file")),
            }
        };
        let metadata = open(METADATA)?;
        let pages = match open(PACKED) {
            Ok(packed) => read_packed(&packed.into(), dir, about(&metadata, dir)?.pages)?.into(),
            Err(_) => open(PAGES)?,
        };
        Ok(ImageFiles { metadata, pages, layers: Vec::new() })
    }
}
