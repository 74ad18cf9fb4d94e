//! Containers: the state that the tasks of one container share, and that differs between the containers of a sandbox.
//!
//! [`Container`] has the namespaces of its first process, its limits ([`Limits`]) and the control groups of the host
//! that its processes go to. It knows no tasks; the operations on them are in the crate `task`.
//!
//! A checkpoint keeps indexes, namespaces, identity maps, limits on tasks and first processes. Control groups belong to
//! the host, so a restore receives new ones.

#![forbid(unsafe_code)]

mod device_rules;
mod host_cgroups;
mod indexes;
pub mod limits;
mod totals;

pub use limits::{CpuMax, Limits, Processors};
pub use totals::Totals;

use crate::host_cgroups::HostCgroups;
use crate::indexes::{Index, Indexes};
use abi::Result;
use caller::DeviceUse;
use cgroup::Cgroup;
use lock_order::{Condvar, Mutex};
use nsproxy::NsProxy;
use pid::PidNamespace;
use platform::{Context, Platform};
use spec::DeviceRule;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Ranges of ids of users and of groups: first one inside, first one outside, how many.
pub type IdMaps = [Vec<(u32, u32, u32)>; 2];

/// A container. It is forgotten with the last of its processes.
pub struct Container {
    index: Index,
    name: OnceLock<String>,
    environ: OnceLock<(u32, Vec<u8>)>,
    /// The namespaces of its first process.
    pub namespaces: Arc<NsProxy>,
    /// Root and mounts as it began.
    pub root_fs: Mutex<Option<Arc<mounts::FsContext>>>,
    /// The root directory that it began with, whatever its first process has chosen since.
    pub root: OnceLock<vfs::Path>,
    /// Its loop devices.
    pub loops: Arc<loopdev::Loops>,
    /// Its programs that decide about devices.
    pub programs: Arc<cgroup::Programs>,
    /// Lines of /proc/PID/uid_map and gid_map: first id inside, first outside, how many.
    id_maps: OnceLock<IdMaps>,
    device_rules: OnceLock<Vec<DeviceRule>>,
    /// Capabilities that its processes do not start with.
    withheld: AtomicU64,
    sandbox_limits: Arc<Limits>,
    own_limits: OnceLock<Arc<Limits>>,
    /// Its first process. The container ends with it.
    first: AtomicI32,
    cgroups: OnceLock<Arc<HostCgroups>>,
    frozen: AtomicBool,
    /// What was made in it, and what its threads that have left did.
    pub totals: Totals,
    finished: Mutex<Option<i32>>,
    finished_cv: Condvar,
}

impl Container {
    fn new(
        index: Index,
        loops: Arc<loopdev::Loops>,
        namespaces: Arc<NsProxy>,
        sandbox_limits: Arc<Limits>,
    ) -> Arc<Container> {
        let programs = cgroup::Programs::new(&namespaces.cgroup.root);
        Arc::new(Container {
            index,
            name: OnceLock::new(),
            environ: OnceLock::new(),
            namespaces,
            programs,
            root_fs: Mutex::new(None),
            root: OnceLock::new(),
            loops,
            id_maps: OnceLock::new(),
            device_rules: OnceLock::new(),
            withheld: AtomicU64::new(0),
            sandbox_limits,
            own_limits: OnceLock::new(),
            first: AtomicI32::new(0),
            cgroups: OnceLock::new(),
            frozen: AtomicBool::new(false),
            totals: Totals::default(),
            finished: Mutex::new(None),
            finished_cv: Condvar::new(),
        })
    }

    /// Its number among the sandbox's containers; 0 is the one that the sandbox ends with.
    pub fn index(&self) -> u32 {
        self.index.number()
    }

    /// What the runtime calls it; empty while it is made.
    pub fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// Sets its name. To be called once.
    pub fn set_name(&self, name: &str) {
        self.name.get_or_init(|| name.into());
    }

    /// Sets the user and the environment of its specification, entries each with a zero byte behind it. To be called once.
    pub fn set_environ(&self, user: u32, environ: Vec<u8>) {
        let _ = self.environ.set((user, environ));
    }

    /// The user and the environment of its specification.
    pub fn environ(&self) -> (u32, &[u8]) {
        self.environ.get().map_or((0, &[]), |(user, environ)| (*user, environ))
    }

    /// The PID namespace of its processes.
    pub fn pids(&self) -> &Arc<PidNamespace> {
        &self.namespaces.pid_for_children
    }

    /// The control group that all of its processes are in, or below. Its pids.max is the container's own limit.
    pub fn cgroup(&self) -> &Arc<Cgroup> {
        &self.namespaces.cgroup.root
    }

    /// Its first process; 0 while there is none.
    pub fn first(&self) -> i32 {
        self.first.load(Ordering::SeqCst)
    }

    /// Says which process is the first.
    pub fn set_first(&self, tgid: i32) {
        self.first.store(tgid, Ordering::SeqCst);
    }

    /// Says which devices its processes may make and open, once.
    pub fn set_device_rules(&self, rules: Vec<DeviceRule>) {
        let _ = self.device_rules.set(rules);
    }

    /// Whether there are rules about devices.
    pub fn has_device_rules(&self) -> bool {
        self.device_rules.get().is_some_and(|rules| !rules.is_empty())
    }

    /// EPERM for a use of a device that the rules refuse.
    pub fn check_device(&self, device: &DeviceUse) -> Result<()> {
        device_rules::check(self.device_rules.get().map_or(&[], Vec::as_slice), device)
    }

    /// Capabilities that no process from outside brings in.
    pub fn withheld(&self) -> u64 {
        self.withheld.load(Ordering::Relaxed)
    }

    /// Sets them.
    pub fn withhold(&self, capabilities: u64) {
        self.withheld.store(capabilities, Ordering::Relaxed);
    }

    /// Says whether its tasks may run. They notice when they look.
    pub fn set_frozen(&self, on: bool) {
        self.frozen.store(on, Ordering::SeqCst);
    }

    /// Whether its tasks are not to run.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }

    /// What its processes may use and use: its own limits, or the sandbox's.
    pub fn limits(&self) -> &Arc<Limits> {
        self.own_limits.get().unwrap_or(&self.sandbox_limits)
    }

    /// Gives it limits of its own: files of its control groups, open for reading.
    pub fn set_limits(&self, files: Vec<(String, OwnedFd)>) {
        if !files.is_empty() {
            let _ = self.own_limits.set(Arc::new(Limits::within(&self.sandbox_limits, files)));
        }
    }

    /// Has its processes put into control groups of the host: files that take process ids, open for writing.
    pub fn set_cgroups(&self, files: Vec<OwnedFd>) {
        if !files.is_empty() {
            let _ = self.cgroups.set(HostCgroups::new(files));
        }
    }

    /// Whether this is the first container and its root directory is the root here, too, on the same mount.
    pub fn begins_at(&self, fs: &mounts::FsContext) -> bool {
        let view = fs.view();
        self.index() == 0
            && self.root.get().is_some_and(|root| {
                Arc::ptr_eq(&root.mount, &view.root.mount) && Arc::ptr_eq(&root.dentry, &view.root.dentry)
            })
    }

    /// Whether its processes are in control groups of the host of their own.
    pub fn has_host_cgroups(&self) -> bool {
        self.cgroups.get().is_some()
    }

    /// An address space for one of its processes.
    pub fn new_space(&self, platform: &Arc<dyn Platform>) -> Result<Box<dyn Context>> {
        match self.cgroups.get() {
            Some(cgroups) => cgroups.new_space(platform),
            None => platform.new_space(),
        }
    }

    /// No further address space is made ready: the container ends.
    pub fn close_cgroups(&self) {
        if let Some(cgroups) = self.cgroups.get() {
            cgroups.close();
        }
    }

    /// Which ids of the host the container's users and groups are, to be shown. The first call counts.
    pub fn set_id_maps(&self, maps: IdMaps) {
        let _ = self.id_maps.set(maps);
    }

    /// The same as lines of users or of groups; empty for all ids as they are.
    pub fn id_map(&self, groups: bool) -> &[(u32, u32, u32)] {
        self.id_maps.get().map_or(&[], |maps| &maps[usize::from(groups)])
    }

    /// Records how the first process ended.
    pub fn finish(&self, status: i32) {
        let mut f = self.finished.lock();
        if f.is_none() {
            *f = Some(status);
            self.finished_cv.notify_all();
        }
    }

    /// Whether the first process has ended.
    pub fn is_over(&self) -> bool {
        self.finished.lock().is_some()
    }

    /// Waits for the end of the first process; gives its wait status.
    pub fn wait_finished(&self) -> i32 {
        let mut f = self.finished.lock();
        loop {
            if let Some(s) = *f {
                return s;
            }
            self.finished_cv.wait(&mut f);
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.close_cgroups();
        self.cgroup().close();
    }
}

/// Makes the containers of a kernel.
pub struct Containers {
    indexes: Arc<Indexes>,
    /// The loop devices of each.
    pub loops: Arc<loopdev::LoopsTable>,
}

impl Containers {
    /// The first container, with index 0.
    pub fn first(namespaces: NsProxy, limits: Limits) -> (Arc<Container>, Self) {
        let (indexes, index) = Indexes::first();
        let table: Arc<loopdev::LoopsTable> = Arc::default();
        let loops = table.add(index.number());
        let first = Container::new(index, loops, Arc::new(namespaces), Arc::new(limits));
        (first, Self { indexes, loops: table })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.indexes.count()
    }

    /// A further container, in a sandbox with these limits. `None` when there are too many.
    pub fn add(&self, namespaces: NsProxy, sandbox_limits: Arc<Limits>) -> Option<Arc<Container>> {
        let index = self.indexes.take()?;
        let loops = self.loops.add(index.number());
        Some(Container::new(index, loops, Arc::new(namespaces), sandbox_limits))
    }
}
