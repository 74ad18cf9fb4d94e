//! The source of a mounted file system: the file of a loop device, or a file without one.

use crate::block::BlockFile;
use crate::device::READ_ONLY;
use abi::stat::{S_IFBLK, S_IFREG};
use abi::{Errno, Result};
use caller::retry::Failure;
use mounts::PathCaller;
use mounts::fstypes::Request;
use namei::opening::open_path;
use namei::walk::lookup;
use namei::{Lookup, Start};
use std::sync::Arc;
use vfs::file::devices::Opened;
use vfs::file::file_kind;
use vfs::{Caller, OpenFile, Path, SbFlags};

/// Images that are read one through the other. Each takes some stack of the thread that reads.
const DEEPEST: u32 = 8;

/// Bytes that a file system is read from.
///
/// They are those of the file that a loop device has when the file system is mounted, also when the device gets another file
/// later: so an image never lies below itself. The device counts as open while the image is.
pub struct Image {
    file: Arc<OpenFile>,
    offset: u64,
    size: u64,
    device: Option<Arc<OpenFile>>,
    number: Option<u64>,
    below: u32,
}

/// An error of opening, for a caller that is not called again.
fn plain(failure: Failure) -> Errno {
    if let Failure::Errno(e) = failure { e } else { Errno::EINTR }
}

impl Image {
    /// Opens the source of a mount. EINVAL without one, ENOTBLK for what is no block device nor a file where `files` are taken,
    /// EACCES for a read-only device that is to be mounted writable, ENXIO for a block device that is no loop device, EIO for a
    /// loop device without a file. ENOTBLK as well when more than eight images would lie in each other.
    pub fn open(cx: &dyn PathCaller, request: &Request, files: bool) -> Result<Image> {
        let source = request.source.as_deref().filter(|s| !s.is_empty()).ok_or(Errno::EINVAL)?;
        let view = cx.fs_context().ok_or(Errno::EPERM)?.view();
        let place = lookup(cx, &view, &Start::Cwd, source, Lookup::FOLLOW)?;
        let image = match place.kind() {
            S_IFBLK => {
                let inode = place.inode().clone();
                if place.mount.nodev() {
                    return Err(Errno::EACCES);
                }
                vfs::access::device_may(cx, &inode, rights::mode::MAY_READ)?;
                let number = inode.attr()?.rdev;
                let opened = cx.vfs().devices.open_block(cx, &place, &inode, number, libc::O_RDONLY);
                let device = match opened.map_err(plain)? {
                    Opened::Ops(ops) => OpenFile::new(Some(place), Some(inode), ops, libc::O_RDONLY),
                    Opened::File(file) => file,
                };
                let block: &BlockFile = device.ops.as_any().downcast_ref().ok_or(Errno::ENXIO)?;
                let bound = block.device.bound().ok_or(Errno::EIO)?;
                if bound.info.flags & READ_ONLY != 0 && !request.flags.contains(SbFlags::RDONLY) {
                    return Err(Errno::EACCES);
                }
                let (offset, size) = (bound.info.offset, bound.size);
                Image { file: bound.file, offset, size, device: Some(device), number: Some(number), below: 0 }
            }
            S_IFREG if files => {
                return Image::in_file(cx, place);
            }
            _ => return Err(Errno::ENOTBLK),
        };
        image.counted()
    }

    /// Opens the image in a regular file.
    pub fn in_file(cx: &dyn Caller, place: Path) -> Result<Image> {
        let file = open_path(cx, place, libc::O_RDONLY).map_err(plain)?;
        if file_kind(&file) != S_IFREG || !file.ops.seekable() || file.ops.as_storage().is_none() {
            return Err(Errno::EINVAL);
        }
        let size = file.attr()?.size;
        Image { file, offset: 0, size, device: None, number: None, below: 0 }.counted()
    }

    fn counted(mut self) -> Result<Image> {
        self.below = 1 + self.file.inode.as_ref().map_or(0, |inode| inode.fs().images_below());
        if self.below > DEEPEST { Err(Errno::ENOTBLK) } else { Ok(self) }
    }

    /// Fills `buf` from byte `at` on. EIO when the image ends before.
    pub fn read_at(&self, cx: &dyn Caller, at: u64, buf: &mut [u8]) -> Result<()> {
        let end = at.checked_add(buf.len() as u64).filter(|&end| end <= self.size);
        if end.is_none() {
            return Err(Errno::EIO);
        }
        let mut done = 0;
        while done < buf.len() {
            let from = self.offset.checked_add(at + done as u64).ok_or(Errno::EIO)?;
            match self.file.ops.read(cx, &self.file, &mut buf[done..], from)? {
                0 => return Err(Errno::EIO),
                n => done += n,
            }
        }
        Ok(())
    }

    /// Number of the loop device; `None` for a file.
    pub fn device_number(&self) -> Option<u64> {
        self.device.as_ref().and(self.number)
    }

    /// See [`vfs::FileSystem::images_below`].
    pub fn images_below(&self) -> u32 {
        self.below
    }
}
