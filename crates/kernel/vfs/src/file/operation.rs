//! An operation on files as a policy sees it.

use super::OpenFile;
use crate::mount::Path;
use policy::{Access, Kind};
use std::sync::Arc;

/// Where an operation takes place.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// At an object that was found.
    Object(&'a Path),
    /// At a name in a directory, whether there is something or not.
    Name(&'a Path, &'a [u8]),
    /// On an open file.
    File(&'a OpenFile),
}

/// An operation on files.
pub struct FileOperation<'a> {
    /// Which one.
    pub kind: Kind,
    /// The object; the old place of a link or rename, what is mounted elsewhere.
    pub place: Option<Place<'a>>,
    /// The new place of a link or rename; the mount point.
    pub second: Option<Place<'a>>,
    /// The object of `place`, for what is known of it besides its path.
    pub file: Option<&'a Arc<OpenFile>>,
    /// The object of `place` is a directory.
    pub directory: bool,
    /// How a file is opened or mapped.
    pub access: Access,
}

impl<'a> FileOperation<'a> {
    /// An operation on something else, which a file leads to.
    pub fn without_place(kind: Kind) -> FileOperation<'a> {
        FileOperation {
            kind,
            place: None,
            second: None,
            file: None,
            directory: false,
            access: Access::empty(),
        }
    }

    /// An operation at one place.
    pub fn at(kind: Kind, place: Place<'a>) -> FileOperation<'a> {
        let directory = matches!(place, Place::Object(path) if path.is_dir());
        FileOperation {
            kind,
            place: Some(place),
            second: None,
            file: None,
            directory,
            access: Access::empty(),
        }
    }
}
