//! The containers of a sandbox by their names, and the files of the host that they use.

use crate::awaited::{Awaited, Joined};
use crate::errors::other;
use crate::first::{Member, NOT_STARTED};
use crate::image::Image;
use caller::DeviceNumbers;
use container::Container;
use hostfs::HostFiles;
use hostlink::Links;
use hostsys::fanotify::Group;
use lock_order::{Mutex, rank};
use spec::{HostUds, SandboxSpec, StartError};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// The containers of the sandbox.
pub(crate) struct Pod {
    containers: Mutex<BTreeMap<String, Weak<Container>>>,
    /// Trees and streams of the host.
    pub(crate) host_files: Arc<HostFiles>,
    /// Interfaces of the host's network namespace.
    pub(crate) links: Mutex<Option<Links>, { rank::HOST_LINKS }>,
    /// The image that the sandbox is restored from, until all of its containers are there.
    awaited: Mutex<Option<Awaited>>,
    /// The containers as a checkpoint takes them.
    members: Mutex<Vec<Weak<Member>>>,
    /// What containers may do with Unix sockets of the host. The first one decides: the seccomp filter is made for it.
    sockets: OnceLock<HostUds>,
    /// The gofers serve files by their protocol. The same holds.
    through_gofer: OnceLock<bool>,
    /// Some gofer is asked about files. The same holds.
    asks_gofers: OnceLock<bool>,
}

impl Pod {
    /// Without containers, for a kernel with these device numbers. `watcher` watches directories of the host.
    pub(crate) fn new(device_numbers: &Arc<DeviceNumbers>, watcher: Option<Group>) -> Arc<Pod> {
        Arc::new(Pod {
            containers: Mutex::default(),
            host_files: HostFiles::with(device_numbers, watcher),
            links: Mutex::default(),
            awaited: Mutex::default(),
            members: Mutex::default(),
            sockets: OnceLock::new(),
            through_gofer: OnceLock::new(),
            asks_gofers: OnceLock::new(),
        })
    }

    /// Whether a container that `wants` to do this with Unix sockets of the host may be in the sandbox.
    pub(crate) fn takes_sockets(&self, wants: HostUds) -> bool {
        let may = self.sockets.get_or_init(|| wants);
        (may.open || !wants.open) && (may.create || !wants.create)
    }

    /// Whether a container with files that are served in this way may be in the sandbox.
    pub(crate) fn takes_files(&self, through_gofer: bool) -> bool {
        *self.through_gofer.get_or_init(|| through_gofer) == through_gofer
    }

    /// Whether a container that `asks` gofers about files may be in the sandbox.
    pub(crate) fn takes_gofers(&self, asks: bool) -> bool {
        *self.asks_gofers.get_or_init(|| asks) || !asks
    }

    /// Remembers a container for as long as it is there.
    pub(crate) fn insert(&self, id: &str, container: &Arc<Container>) {
        let mut all = self.containers.lock();
        all.retain(|_, known| known.strong_count() > 0);
        all.insert(id.into(), Arc::downgrade(container));
    }

    /// Containers come from this image.
    pub(crate) fn await_containers(&self, image: Image) {
        *self.awaited.lock() = Some(Awaited { image, joined: Vec::new() });
    }

    /// The place in the image of a container beside the first. See [`Awaited::place`].
    pub(crate) fn place(&self, spec: &SandboxSpec, image: (u64, u64)) -> Result<u32, StartError> {
        let awaited = self.awaited.lock();
        let awaited = awaited.as_ref();
        let awaited = awaited.ok_or_else(|| {
            other(
                "its sandbox runs already, and waits for no container of an image: restore the sandbox first; a \
                 container that joins it because of its network namespace needs a bundle that names another one"
                    .into(),
            )
        })?;
        awaited.place(spec, image)
    }

    /// A container is there; gives the image and all containers if it was the last.
    pub(crate) fn join(&self, joined: Joined) -> Result<Option<Awaited>, StartError> {
        let mut slot = self.awaited.lock();
        let Some(awaited) = slot.as_mut() else {
            return Err(other("its sandbox waits for no container of an image any more".into()));
        };
        if awaited.joined.iter().any(|one| one.restored.index == joined.restored.index) {
            return Err(other("that container of the image is there already".into()));
        }
        awaited.joined.push(joined);
        awaited.joined.sort_by_key(|one| one.restored.index);
        Ok(slot.take_if(|awaited| awaited.is_complete()))
    }

    /// A container that waits for others is over.
    pub(crate) fn leave(&self, container: &Arc<Container>) {
        let mut slot = self.awaited.lock();
        let gone = slot.as_mut().map(|awaited| {
            let is = |one: &mut Joined| Arc::ptr_eq(&one.restored.container, container);
            awaited.joined.extract_if(.., is).collect::<Vec<_>>()
        });
        drop(slot);
        drop(gone);
    }

    /// The containers of the image that have not come.
    pub(crate) fn missing(&self) -> Vec<String> {
        let slot = self.awaited.lock();
        slot.iter().flat_map(|awaited| awaited.missing()).collect()
    }

    /// No container can be restored any more: all end.
    pub(crate) fn give_up(all: &[Joined]) {
        all.iter().for_each(|one| one.restored.container.finish(NOT_STARTED));
    }

    /// Remembers a container as a checkpoint takes it.
    pub(crate) fn add(&self, member: &Arc<Member>) {
        let mut all = self.members.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(member));
    }

    /// The containers that are not over, the first one first.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        let mut all: Vec<_> = self.members.lock().iter().filter_map(Weak::upgrade).collect();
        all.retain(|member| !member.container.is_over());
        all.sort_by_key(|member| member.container.index());
        all
    }

    /// The container of that name.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Container>> {
        self.containers.lock().get(id).and_then(Weak::upgrade)
    }
}
