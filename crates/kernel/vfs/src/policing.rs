//! Policies about files: the question that code asks before an operation, on the object that it has found.
//!
//! A kernel without a policy answers with one load of a word ([`caller::Resources::policed`]).

use crate::file::OpenFile;
pub use crate::file::operation::{FileOperation, Place};
use crate::mount::Path;
use crate::{Caller, Layer};
use abi::stat::S_IFREG;
use abi::{Result, libc};
use policy::{Access, Kind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whether a policy is about this operation.
#[inline]
pub fn concerns(cx: &dyn Caller, kind: Kind) -> bool {
    cx.resources().policed.load(Ordering::Relaxed) >> kind as u8 & 1 != 0
}

/// The error of a policy that refuses an operation at one place.
#[inline]
pub fn decide(cx: &dyn Caller, kind: Kind, place: Place<'_>) -> Result<()> {
    if !concerns(cx, kind) {
        return Ok(());
    }
    cx.decide(&FileOperation::at(kind, place))
}

/// The same of one that gives an object another place. The first place is that of the object `directory` says the kind of.
#[inline]
pub fn decide_move(
    cx: &dyn Caller,
    kind: Kind,
    from: Place<'_>,
    to: Place<'_>,
    directory: bool,
) -> Result<()> {
    if !concerns(cx, kind) {
        return Ok(());
    }
    cx.decide(&FileOperation { second: Some(to), directory, ..FileOperation::at(kind, from) })
}

/// The same of a mount that shows what is below this directory elsewhere, as a layer of an overlay.
pub fn decide_layer(cx: &dyn Caller, dir: &Path) -> Result<()> {
    if !concerns(cx, Kind::FileMount) {
        return Ok(());
    }
    cx.decide(&FileOperation { directory: true, ..FileOperation::at(Kind::FileMount, Place::Object(dir)) })
}

/// The same of open(2) with these flags.
#[inline]
pub fn decide_open(cx: &dyn Caller, place: &Path, flags: i32) -> Result<()> {
    // A place alone is neither read nor written. Its later use is decided on.
    if flags & libc::O_PATH != 0 {
        return Ok(());
    }
    if flags & libc::O_TRUNC != 0 {
        decide(cx, Kind::FileTruncate, Place::Object(place))?;
    }
    if !concerns(cx, Kind::FileOpen) {
        return Ok(());
    }
    let access = open_access(flags);
    cx.decide(&FileOperation { access, ..FileOperation::at(Kind::FileOpen, Place::Object(place)) })
}

/// Whether the content of a regular file is in the writable layer of an overlay.
pub fn is_new(cx: &dyn Caller, path: &Path) -> bool {
    let inode = path.inode();
    path.kind() == S_IFREG
        && inode.fs().kind() == "overlay"
        && inode.open(cx, libc::O_RDONLY).is_ok_and(|ops| ops.layer() == Some(Layer::Upper))
}

/// What flags of open(2) ask for.
pub fn open_access(flags: i32) -> Access {
    let mut access = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Access::READ,
        libc::O_WRONLY => Access::WRITE,
        _ => Access::READ | Access::WRITE,
    };
    access.set(Access::APPEND, flags & libc::O_APPEND != 0);
    access.set(Access::CREATE, flags & libc::O_CREAT != 0);
    access.set(Access::TRUNCATE, flags & libc::O_TRUNC != 0);
    access
}

/// The same of a descriptor that another process has opened, when the caller receives it.
#[inline]
pub fn decide_received(cx: &dyn Caller, file: &Arc<OpenFile>) -> Result<()> {
    if !concerns(cx, Kind::FileOpen) || file.path.is_none() || file.flags() & libc::O_PATH != 0 {
        return Ok(());
    }
    let access = open_access(file.flags());
    let at = FileOperation::at(Kind::FileOpen, Place::File(file));
    cx.decide(&FileOperation { access, file: Some(file), ..at })
}

/// The same of reading or writing an open file. Files without a place are left alone.
#[inline]
pub fn decide_io(cx: &dyn Caller, kind: Kind, file: &Arc<OpenFile>) -> Result<()> {
    if !concerns(cx, kind) || file.path.is_none() {
        return Ok(());
    }
    cx.decide(&FileOperation { file: Some(file), ..FileOperation::at(kind, Place::File(file)) })
}
