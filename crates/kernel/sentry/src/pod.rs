//! The containers of a sandbox by their names, and the files of the host that they use.

use caller::DeviceNumbers;
use container::Container;
use hostfs::HostFiles;
use hostlink::Links;
use hostsys::fanotify::Group;
use lock_order::{Mutex, rank};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// The containers of the sandbox.
pub(crate) struct Pod {
    containers: Mutex<BTreeMap<String, Weak<Container>>>,
    /// Trees and streams of the host.
    pub(crate) host_files: Arc<HostFiles>,
    /// Interfaces of the host's network namespace.
    pub(crate) links: Mutex<Links, { rank::HOST_LINKS }>,
    /// Whether containers may use Unix sockets of the host. The first one decides: the seccomp filter is made for it.
    sockets: OnceLock<bool>,
}

impl Pod {
    /// Without containers, for a kernel with these device numbers. `watcher` watches directories of the host.
    pub(crate) fn new(device_numbers: &Arc<DeviceNumbers>, watcher: Option<Group>) -> Arc<Pod> {
        Arc::new(Pod {
            containers: Mutex::default(),
            host_files: HostFiles::with(device_numbers, watcher),
            links: Mutex::default(),
            sockets: OnceLock::new(),
        })
    }

    /// Whether a container that `wants` to use Unix sockets of the host, or does not, may be in the sandbox.
    pub(crate) fn takes_sockets(&self, wants: bool) -> bool {
        *self.sockets.get_or_init(|| wants) || !wants
    }

    /// Remembers a container for as long as it is there.
    pub(crate) fn insert(&self, id: &str, container: &Arc<Container>) {
        let mut all = self.containers.lock();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(id.into(), Arc::downgrade(container));
    }

    /// The container of that name.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Container>> {
        self.containers.lock().get(id).and_then(Weak::upgrade)
    }
}
