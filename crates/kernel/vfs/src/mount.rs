//! Mounted file systems and the tree they form.
//!
//! A [`Mount`] shows (a part of) a [`SuperBlock`]'s tree at a place of its
//! parent mount. The children of a mount are owned by it, keyed by the dentry
//! they sit on; a walk looks there only when `Dentry::mounted` says so. Changes
//! are made by [`crate::MountNs`] under its lock (rank MOUNTS).

use crate::dentry::Dentry;
use crate::inode::FileSystem;
use crate::path::Path;
use ranked::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

bitflags::bitflags! {
    /// Flags of one mount, with the values of mount(2)'s MS_*.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct MountFlags: u32 {
        /// MS_RDONLY
        const RDONLY = 1;
        /// MS_NOSUID
        const NOSUID = 2;
        /// MS_NODEV
        const NODEV = 4;
        /// MS_NOEXEC
        const NOEXEC = 8;
        /// MS_SYNCHRONOUS
        const SYNCHRONOUS = 16;
        /// MS_NOSYMFOLLOW
        const NOSYMFOLLOW = 256;
        /// MS_NOATIME
        const NOATIME = 1024;
        /// MS_NODIRATIME
        const NODIRATIME = 2048;
        /// MS_RELATIME
        const RELATIME = 1 << 21;
    }
}

impl MountFlags {
    /// The words for /proc/PID/mounts, `rw` or `ro` first.
    pub fn words(self) -> String {
        let mut s = String::from(if self.contains(MountFlags::RDONLY) { "ro" } else { "rw" });
        for (f, w) in [
            (MountFlags::NOSUID, ",nosuid"),
            (MountFlags::NODEV, ",nodev"),
            (MountFlags::NOEXEC, ",noexec"),
            (MountFlags::NOATIME, ",noatime"),
            (MountFlags::NODIRATIME, ",nodiratime"),
            (MountFlags::RELATIME, ",relatime"),
            (MountFlags::NOSYMFOLLOW, ",nosymfollow"),
        ] {
            if self.contains(f) {
                s.push_str(w);
            }
        }
        s
    }
}

/// A file system in use: the instance and its one tree of dentries, shared by all its mounts.
pub struct SuperBlock {
    /// The instance.
    pub fs: Arc<dyn FileSystem>,
    /// Root of the tree.
    pub root: Arc<Dentry>,
    /// MS_RDONLY for every mount of it.
    pub readonly: std::sync::atomic::AtomicBool,
    /// Where in a larger file system, which nobody sees as a whole, this part lies; empty for a file system of its own.
    origin: Vec<u8>,
    /// The path of what lies there: the root itself, or the one file of a directory that stands for a file.
    top: Vec<u8>,
}

impl SuperBlock {
    /// Puts a file system to use.
    pub fn new(fs: Arc<dyn FileSystem>) -> Arc<SuperBlock> {
        SuperBlock::part(fs, b"", b"")
    }

    /// The same for a part of a larger file system: what is `top` here lies at `origin` there.
    pub fn part(fs: Arc<dyn FileSystem>, origin: &[u8], top: &[u8]) -> Arc<SuperBlock> {
        let bare = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let root = Dentry::root(&*fs);
        Arc::new(SuperBlock { fs, root, readonly: false.into(), origin: bare(origin), top: bare(top) })
    }

    /// The path of a place in the whole file system, from its path in this part.
    pub fn path_in_whole(&self, path: &[u8]) -> Vec<u8> {
        let below = path.strip_prefix(&*self.top).unwrap_or(path);
        match below {
            b"/" if !self.origin.is_empty() => self.origin.clone(),
            b"" if self.origin.is_empty() => b"/".to_vec(),
            below => [&self.origin, below].concat(),
        }
    }
}

impl Drop for SuperBlock {
    /// Parents and children hold each other: break the cycles.
    fn drop(&mut self) {
        self.root.shrink(true);
        self.fs.unmounted();
    }
}

/// Propagation types of mount(2). Kept and shown; events do not propagate to other namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// MS_PRIVATE
    Private,
    /// MS_SHARED with its peer group.
    Shared(u32),
    /// MS_SLAVE of a peer group.
    Slave(u32),
    /// MS_UNBINDABLE
    Unbindable,
}

static NEXT_ID: AtomicU32 = AtomicU32::new(20);

struct Attach {
    parent: Weak<Mount>,
    point: Arc<Dentry>,
}

/// A mounted file system.
pub struct Mount {
    /// Identifier in mountinfo.
    pub id: u32,
    /// What is mounted.
    pub sb: Arc<SuperBlock>,
    /// The part of it that shows: its root, or below for bind mounts.
    pub root: Arc<Dentry>,
    /// The source as given to mount(2).
    pub source: Vec<u8>,
    flags: AtomicU32,
    /// The namespace that it belongs to; 0 when it belongs to none.
    ns: AtomicU64,
    propagation: RwLock<Propagation>,
    attach: RwLock<Option<Attach>>,
    children: biased::RwLock<HashMap<usize, Arc<Mount>>>,
}

/// The mounts on a mount, which stay as they are meanwhile.
pub(crate) struct Mounts<'a>(biased::ReadGuard<'a, HashMap<usize, Arc<Mount>>>);

impl Mounts<'_> {
    /// What is mounted on `d`.
    pub(crate) fn on(&self, d: &Arc<Dentry>) -> Option<&Arc<Mount>> {
        self.0.get(&key(d))
    }
}

fn key(d: &Arc<Dentry>) -> usize {
    Arc::as_ptr(d) as usize
}

impl Mount {
    /// A mount that is not attached anywhere yet.
    pub fn new(sb: Arc<SuperBlock>, root: Arc<Dentry>, flags: MountFlags, source: &[u8]) -> Arc<Mount> {
        Arc::new(Mount {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            sb,
            root,
            source: source.to_vec(),
            flags: AtomicU32::new(flags.bits()),
            ns: AtomicU64::new(0),
            propagation: RwLock::new(Propagation::Private),
            attach: RwLock::new(None),
            children: biased::RwLock::default(),
        })
    }

    /// A mount of the whole file system.
    pub fn of(fs: Arc<dyn FileSystem>, flags: MountFlags, source: &[u8]) -> Arc<Mount> {
        let sb = SuperBlock::new(fs);
        let root = sb.root.clone();
        Mount::new(sb, root, flags, source)
    }

    /// The file system instance.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.sb.fs
    }

    /// Flags, with RDONLY also when the whole instance is read-only.
    pub fn flags(&self) -> MountFlags {
        let f = MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed));
        if self.sb.readonly.load(Ordering::Relaxed) { f | MountFlags::RDONLY } else { f }
    }

    /// Replaces the flags (remount).
    pub fn set_flags(&self, f: MountFlags) {
        self.flags.store(f.bits(), Ordering::Relaxed);
    }

    /// True when nothing may be changed through this mount.
    pub fn readonly(&self) -> bool {
        self.flags().contains(MountFlags::RDONLY)
    }

    /// Propagation type.
    pub fn propagation(&self) -> Propagation {
        *self.propagation.read()
    }

    /// Sets the propagation type.
    pub fn set_propagation(&self, p: Propagation) {
        *self.propagation.write() = p;
    }

    /// The root of the mount as a path.
    pub fn root_path(self: &Arc<Mount>) -> Path {
        Path { mount: self.clone(), dentry: self.root.clone() }
    }

    /// Where it is mounted: parent mount and dentry there.
    pub fn mountpoint(&self) -> Option<Path> {
        let a = self.attach.read();
        let a = a.as_ref()?;
        Some(Path { mount: a.parent.upgrade()?, dentry: a.point.clone() })
    }

    /// The id of the namespace that it belongs to.
    pub(crate) fn ns(&self) -> u64 {
        self.ns.load(Ordering::Acquire)
    }

    /// Makes it a member of a namespace, or with 0 of none.
    pub(crate) fn set_ns(&self, id: u64) {
        self.ns.store(id, Ordering::Release);
    }

    /// True while attached to a parent.
    pub fn is_attached(&self) -> bool {
        self.attach.read().is_some()
    }

    /// What is mounted on `d` of this mount, if anything.
    pub fn child_at(&self, d: &Arc<Dentry>) -> Option<Arc<Mount>> {
        if !d.is_mountpoint() {
            return None;
        }
        self.children.read().get(&key(d)).cloned()
    }

    /// What is mounted on it, unless somebody is changing that.
    pub(crate) fn mounts(&self) -> Option<Mounts<'_>> {
        self.children.try_read().map(Mounts)
    }

    /// Mounts that sit on this one, oldest first.
    pub fn children(&self) -> Vec<Arc<Mount>> {
        let mut v: Vec<_> = self.children.read().values().cloned().collect();
        v.sort_by_key(|m| m.id);
        v
    }

    /// This mount and all below, parents first.
    pub fn tree(self: &Arc<Mount>) -> Vec<Arc<Mount>> {
        let mut out = vec![self.clone()];
        let mut i = 0;
        while i < out.len() {
            let c = out[i].children();
            out.extend(c);
            i += 1;
        }
        out
    }

    /// Attaches `self` at `at`; nothing may be mounted there yet.
    pub(crate) fn attach_at(self: &Arc<Mount>, at: &Path) {
        at.dentry.mounted.fetch_add(1, Ordering::AcqRel);
        *self.attach.write() = Some(Attach { parent: Arc::downgrade(&at.mount), point: at.dentry.clone() });
        at.mount.children.write().insert(key(&at.dentry), self.clone());
    }

    /// Takes `self` off its mount point; its own children stay on it.
    pub(crate) fn detach(self: &Arc<Mount>) {
        let Some(a) = self.attach.write().take() else { return };
        a.point.mounted.fetch_sub(1, Ordering::AcqRel);
        if let Some(p) = a.parent.upgrade() {
            p.children.write().remove(&key(&a.point));
        }
    }
}

impl Drop for Mount {
    /// Takes the mounts below apart without recursion: a guest can stack and nest a hundred thousand.
    fn drop(&mut self) {
        let mut todo = self.leave();
        while let Some(m) = todo.pop() {
            if let Some(mut m) = Arc::into_inner(m) {
                todo.extend(m.leave());
            }
        }
    }
}

impl Mount {
    /// Leaves the mount point; gives the mounts that sit on it.
    fn leave(&mut self) -> Vec<Arc<Mount>> {
        if let Some(a) = self.attach.get_mut().take() {
            a.point.mounted.fetch_sub(1, Ordering::AcqRel);
        }
        std::mem::take(&mut *self.children.write()).into_values().collect()
    }
}
