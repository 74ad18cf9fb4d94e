//! File systems behind the trees of the gofer that do not change: directories, and images of EROFS.

use crate::errors::{other, text};
use crate::fds::Fds;
use abi::Errno;
use hostfs::{Coherence, HostFiles, HostFs};
use hosttree::DirectoryRef;
use hosttree::direct::Direct;
use hosttree::remote::{Connection, Remote, Trust};
use loopdev::Image;
use namei::walk;
use rootfs_overlay::{FileStore, Upper};
use spec::{FILE_ENTRY, FdIndex, Overlay, StartError};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use task::Kernel;
use vfs::{Dentry, FileSystem, Internal, Mount, MountFlags, SuperBlock};

type FsRef = Arc<dyn FileSystem>;

/// What trees are made with.
pub(crate) struct Trees<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) files: &'a Arc<HostFiles>,
    /// Descriptors of those that are images.
    pub(crate) images: &'a [FdIndex],
    /// Descriptors lead to the gofer.
    pub(crate) through_gofer: bool,
    /// Opens files of the trees once more.
    pub(crate) opening: Option<Arc<Connection>>,
}

impl Trees<'_> {
    /// The directory that a tree's descriptor stands for.
    pub(crate) fn open(&self, tree: OwnedFd) -> Result<DirectoryRef, StartError> {
        if !self.through_gofer {
            return Ok(Direct::with_gofer(tree, self.opening.clone()));
        }
        asks(tree, Trust::Own, "the container's own files")
    }

    /// A tree that does not change: everything about it is cached for good. `layered`: it is an overlay itself.
    pub(crate) fn fixed(&self, index: FdIndex, layered: bool, fds: &mut Fds) -> Result<FsRef, StartError> {
        let tree = fds.take(index)?;
        if self.images.contains(&index) {
            return self.image(tree, &[]);
        }
        let tree = self.open(tree)?;
        let made = match layered {
            true => HostFs::layered(self.files, tree, true, Coherence::Strict),
            false => HostFs::new(self.files, tree, true),
        };
        made.map(|layer| layer as FsRef).map_err(|e| other(text(e)))
    }

    /// An overlay over a tree.
    pub(crate) fn over(
        &self,
        index: FdIndex,
        layered: bool,
        overlay: &Overlay,
        fds: &mut Fds,
    ) -> Result<FsRef, StartError> {
        let store = overlay.store.map(|index| fds.take(index).map(FileStore::new)).transpose()?;
        let upper =
            Upper { store, size: overlay.size, hidden: overlay.hidden.clone().map(String::into_bytes) };
        let mut layers = vec![self.fixed(index, layered, fds)?];
        for index in &overlay.layers {
            layers.push(self.fixed(*index, false, fds)?);
        }
        rootfs_overlay::new(&self.kernel.memory, upper, &layers).map_err(|e| other(text(e)))
    }

    /// The image in a tree of one file.
    pub(crate) fn image(&self, tree: OwnedFd, options: &[String]) -> Result<FsRef, StartError> {
        let tree = self.open(tree)?;
        let cx = &Internal::new(&self.kernel.vfs);
        let opened = || {
            let sb = SuperBlock::new(HostFs::new(self.files, tree, true)?);
            let entry = file_entry(cx, &sb)?;
            let mount = Mount::new(sb, entry, MountFlags::RDONLY, b"none");
            let image = Image::in_file(cx, mount.root_path())?;
            erofs::in_image(cx, image, options, &self.kernel.memory)
        };
        opened().map_err(|e| {
            let why = match e {
                Errno::EINVAL => {
                    " (is it an image of EROFS? without features of newer versions? are the options known?)"
                }
                _ => "",
            };
            other(format!("image of EROFS: {}{why}", text(e)))
        })
    }
}

/// The directory that the gofer at the other end of a channel serves.
/// `name`: what the log calls its files.
pub(crate) fn asks(channel: OwnedFd, trust: Trust, name: &str) -> Result<DirectoryRef, StartError> {
    Remote::attach(channel, trust, name)
        .map_err(|e| other(format!("the gofer of {name} does not serve them: {}", text(e))))
}

/// The only file of a directory that stands for a file.
pub(crate) fn file_entry(cx: &Internal, sb: &Arc<SuperBlock>) -> Result<Arc<Dentry>, Errno> {
    walk::find(cx, &sb.root, FILE_ENTRY.as_bytes(), false)
}
