//! A tree of host files.

use crate::node::Node;
use abi::stat::StatFs;
use abi::{Errno, Result};
use hostsys::fs as host;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use vfs::{FileSystem, InodeRef};

/// How a tree is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Nobody else changes it and we only read it: everything is cached for good.
    Exclusive,
    /// Others on the host change it: everything is asked for again.
    Shared,
}

/// A tree of host files.
pub struct HostFs {
    pub(crate) mode: Mode,
    pub(crate) readonly: bool,
    pub(crate) root_fd: Arc<OwnedFd>,
    root: Mutex<Option<Arc<Node>>>,
    /// Nodes in use of a shared tree by (host device, inode number), so that one file is one inode.
    pub(crate) nodes: Mutex<HashMap<(u64, u64), Weak<Node>>>,
    /// Our device numbers for the host's.
    devices: Mutex<Vec<(u64, u64)>>,
}

impl HostFs {
    /// The tree behind a directory descriptor (O_PATH is enough). `exclusive`: nobody changes it while we
    /// run, and neither do we; otherwise it is shared with the host.
    pub fn new(root: OwnedFd, exclusive: bool) -> Result<Arc<HostFs>> {
        let mode = if exclusive { Mode::Exclusive } else { Mode::Shared };
        let attr = host::stat(&root)?;
        if !attr.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let fs = Arc::new(HostFs {
            mode,
            readonly: exclusive,
            root_fd: Arc::new(root),
            root: Mutex::new(None),
            nodes: Mutex::default(),
            devices: Mutex::new(vec![(attr.dev, vfs::inode::new_dev())]),
        });
        let node = Node::new(&fs, None, b"", attr);
        *fs.root.lock() = Some(node);
        Ok(fs)
    }

    /// Our number for a host device.
    pub(crate) fn device(&self, host_dev: u64) -> u64 {
        let mut t = self.devices.lock();
        if let Some((_, ours)) = t.iter().find(|(h, _)| *h == host_dev) {
            return *ours;
        }
        let new = vfs::inode::new_dev();
        t.push((host_dev, new));
        new
    }
}

impl FileSystem for HostFs {
    fn kind(&self) -> &'static str {
        // What the guest sees has the type of a local disk file system; see statfs.
        "ext4"
    }
    fn root(&self) -> InodeRef {
        match &*self.root.lock() {
            Some(r) => r.clone(),
            None => vfs::internal::InternalInode::shared(),
        }
    }
    fn statfs(&self) -> Result<StatFs> {
        host::statfs(&self.root_fd)
    }
    fn revalidate(&self) -> bool {
        self.mode == Mode::Shared
    }
    fn unmounted(&self) {
        let root = self.root.lock().take();
        drop(root);
    }
}
