//! The words of a resolution: where it starts, how it resolves, what it leads to. See openat2(2).

use std::sync::Arc;
use vfs::{OpenFile, Path};

bitflags::bitflags! {
    /// How to resolve a path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Lookup: u32 {
        /// Follow a symbolic link in the last component.
        const FOLLOW = 1;
        /// The result must be a directory.
        const DIRECTORY = 2;
        /// The empty path means the starting point (AT_EMPTY_PATH).
        const EMPTY_PATH = 4;
        /// RESOLVE_NO_XDEV
        const NO_XDEV = 8;
        /// RESOLVE_NO_MAGICLINKS
        const NO_MAGICLINKS = 16;
        /// RESOLVE_NO_SYMLINKS
        const NO_SYMLINKS = 32;
        /// RESOLVE_BENEATH
        const BENEATH = 64;
        /// RESOLVE_IN_ROOT
        const IN_ROOT = 128;
        /// RESOLVE_CACHED: nothing that could block.
        const CACHED = 256;
        /// LOOKUP_MOUNTPOINT: to unmount what is found, so that it does not count as a use of the mount.
        const MOUNTPOINT = 512;
    }
}

/// Where a relative path starts.
#[derive(Clone)]
pub enum Start {
    /// The working directory (AT_FDCWD).
    Cwd,
    /// An open file: a directory, or with an empty path anything.
    File(Arc<OpenFile>),
    /// A place.
    At(Path),
}

/// What the last component of a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// A name.
    Normal,
    /// Nothing: the path is `/` or slashes only.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
}

impl Last {
    /// What a name is.
    pub(crate) fn of(name: &[u8]) -> Last {
        match name {
            b"." => Last::Dot,
            b".." => Last::DotDot,
            _ => Last::Normal,
        }
    }
}

/// A directory and the name in it that a call is about.
pub struct Parent {
    /// The directory.
    pub dir: Path,
    /// The name.
    pub name: Vec<u8>,
    /// What the name is.
    pub last: Last,
    /// Slashes followed it: only a directory will do.
    pub slash: bool,
}

impl Parent {
    /// Of a path that ends at `dir` without a name.
    pub(crate) fn root(dir: Path) -> Parent {
        Parent { dir, name: Vec::new(), last: Last::Root, slash: true }
    }

    /// Something that is no directory could be made under the name.
    pub(crate) fn is_name(&self) -> bool {
        self.last == Last::Normal && !self.slash
    }
}
