//! mount(2) of type `erofs`. See Documentation/filesystems/erofs.rst, "Mount options".

use crate::fs::ErofsFs;
use crate::options::Options;
use abi::{Errno, Result};
use loopdev::Image;
use mounts::PathCaller;
use mounts::fs_parameters::{ParameterSpec, Takes};
use mounts::fstypes::Request;
use std::sync::Arc;
use tmpfs::MemFiles;
use vfs::{Caller, FileSystem, SuperBlock};

/// The parameters.
pub const KNOWN: &[ParameterSpec] = &[
    ("user_xattr", Takes::Flag),
    ("nouser_xattr", Takes::Flag),
    ("acl", Takes::Flag),
    ("noacl", Takes::Flag),
];

/// Mounts the image in the source, a loop device or a file. Errors are those of [`Image::open`] and
/// [`crate::image::Super::read`]; EUCLEAN when the root is no directory.
pub fn mount(cx: &dyn PathCaller, request: &Request, memory: &Arc<MemFiles>) -> Result<Arc<SuperBlock>> {
    let options = options(request.parameters.iter().map(|(name, _)| &name[..]))?;
    let image = Image::open(cx, request, true)?;
    Ok(SuperBlock::new(ErofsFs::new(cx, image, options, memory)?))
}

/// The file system in an image that is open, with options in words.
pub fn in_image(
    cx: &dyn Caller,
    image: Image,
    words: &[String],
    memory: &Arc<MemFiles>,
) -> Result<Arc<dyn FileSystem>> {
    Ok(ErofsFs::new(cx, image, options(words.iter().map(String::as_bytes))?, memory)?)
}

fn options<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Options> {
    let mut options = Options { user_xattr: true, acl: true };
    for word in words {
        match word {
            b"user_xattr" => options.user_xattr = true,
            b"nouser_xattr" => options.user_xattr = false,
            b"acl" => options.acl = true,
            b"noacl" => options.acl = false,
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(options)
}
