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
use vfs::SuperBlock;

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
    let mut options = Options { user_xattr: true, acl: true };
    for (name, _) in &request.parameters {
        match &name[..] {
            b"user_xattr" => options.user_xattr = true,
            b"nouser_xattr" => options.user_xattr = false,
            b"acl" => options.acl = true,
            b"noacl" => options.acl = false,
            _ => return Err(Errno::EINVAL),
        }
    }
    let image = Image::open(cx, request, true)?;
    Ok(SuperBlock::new(ErofsFs::new(cx, image, options, memory)?))
}
