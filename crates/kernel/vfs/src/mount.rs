//! Mounted file systems and the tree they form.
//!
//! A [`Mount`] shows (a part of) a [`SuperBlock`]'s tree at a place of its
//! parent mount. The children of a mount are owned by it, keyed by the dentry
//! they sit on; a walk looks there only when `Dentry::mounted` says so. Changes
//! are made by the crate `mounts` under its table's lock (rank MOUNTS). [`peers`] says which mounts pass events to each
//! other, [`set`] which belong to one namespace.

use crate::dentry::Dentry;
use crate::in_use::{InUse, Shared, Users};
use crate::inode::{FileSystem, Hold};
use crate::notify::marks::Marks;
use abi::{Errno, Result};
use lock_order::RwLock;
use points::Listed;
use site::Site;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use user_ns::UserNamespace;

mod path;
pub mod peers;
mod points;
mod set;
mod site;
mod source;
mod superblock;
mod table;

pub use path::Path;
pub use peers::{PeerGroup, Share};
pub(crate) use points::MountPoints;
pub use set::{MOUNT_MAX, MountSet, Origin};
pub use source::Source;
pub use superblock::{SbFlags, SuperBlock};
pub use table::MountTable;

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
    /// What decides about times of access.
    pub const ATIME: MountFlags =
        MountFlags::NOATIME.union(MountFlags::NODIRATIME).union(MountFlags::RELATIME);

    /// The words for /proc/PID/mounts, each with a comma before it, without `rw` or `ro`.
    pub fn words(self) -> String {
        let mut s = String::new();
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

/// Propagation types of mount(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// MS_PRIVATE
    Private,
    /// MS_SHARED
    Shared,
    /// MS_SLAVE
    Slave,
    /// MS_UNBINDABLE
    Unbindable,
}

/// The numbers of a mount.
#[derive(Clone, Copy, Default)]
pub struct Ids {
    /// As in mountinfo.
    pub id: u32,
    /// Never given again in this kernel (STATX_MNT_ID_UNIQUE).
    pub unique: u64,
}

struct Attach {
    parent: Weak<Mount>,
    listed: Listed,
}

impl Attach {
    fn new(mount: &Arc<Mount>, at: &Path) -> Attach {
        mount.site.set(at);
        Attach { parent: Arc::downgrade(&at.mount), listed: Listed::new(mount, &at.dentry) }
    }
}

/// A mounted file system.
pub struct Mount {
    ids: OnceLock<Ids>,
    /// What is mounted.
    pub sb: Arc<SuperBlock>,
    /// The part of it that shows: its root, or below for bind mounts.
    pub root: Arc<Dentry>,
    /// Keeps what shows within reach, whatever becomes of its names.
    _held: Option<Hold>,
    /// The source as given to mount(2).
    pub source: Arc<Source>,
    flags: AtomicU32,
    /// Flags that stay, as a more privileged mount namespace set them (MNT_LOCK_*).
    locked_flags: AtomicU32,
    /// It stays where it is, over what it hides (MNT_LOCKED).
    locked: AtomicBool,
    /// The namespace that it belongs to; 0 when it belongs to none.
    ns_id: AtomicU64,
    ns: RwLock<Weak<MountSet>>,
    share: RwLock<Share>,
    /// It has not been used since umount2(2) with MNT_EXPIRE marked it.
    expiring: AtomicBool,
    /// umount(2) without MNT_DETACH has taken it away, or is about to: no use of it may begin.
    leaving: AtomicBool,
    /// Open files that may write through it.
    writers: AtomicU32,
    attach: RwLock<Option<Attach>>,
    site: Arc<Site>,
    children: read_biased_lock::RwLock<HashMap<usize, Arc<Mount>>>,
    /// Open files, root and working directories on it. While there are any, umount(2) fails.
    users: Users,
    /// Marks of fanotify(7) on the mount.
    pub marks: Marks,
}

impl Shared for Mount {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// The mounts on a mount, which stay as they are meanwhile.
pub struct Mounts<'a>(read_biased_lock::ReadGuard<'a, HashMap<usize, Arc<Mount>>>);

impl Mounts<'_> {
    /// What is mounted on `d`.
    pub fn on(&self, d: &Arc<Dentry>) -> Option<&Arc<Mount>> {
        self.0.get(&key(d))
    }
}

/// What the mounts on a mount are found by: the address of the dentry that they sit on.
pub fn key(d: &Arc<Dentry>) -> usize {
    Arc::as_ptr(d) as usize
}

impl Mount {
    /// A mount that is not attached anywhere yet.
    pub fn new(sb: Arc<SuperBlock>, root: Arc<Dentry>, flags: MountFlags, source: &[u8]) -> Arc<Mount> {
        Mount::with_source(sb, root, flags, Source::new(source))
    }

    /// The same with a source that others may have as well.
    pub fn with_source(
        sb: Arc<SuperBlock>,
        root: Arc<Dentry>,
        flags: MountFlags,
        source: Arc<Source>,
    ) -> Arc<Mount> {
        Arc::new(Mount {
            ids: OnceLock::new(),
            site: Site::new(&root),
            sb,
            _held: root.inode.hold().ok().flatten(),
            root,
            source,
            flags: AtomicU32::new(flags.bits()),
            locked_flags: AtomicU32::new(0),
            locked: AtomicBool::new(false),
            ns_id: AtomicU64::new(0),
            ns: RwLock::new(Weak::new()),
            share: RwLock::default(),
            expiring: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            writers: AtomicU32::new(0),
            attach: RwLock::new(None),
            children: read_biased_lock::RwLock::default(),
            users: Users::default(),
            marks: Marks::default(),
        })
    }

    /// A mount of the whole file system.
    pub fn of(fs: Arc<dyn FileSystem>, flags: MountFlags, source: &[u8]) -> Arc<Mount> {
        let sb = SuperBlock::new(fs);
        let root = sb.root.clone();
        Mount::new(sb, root, flags, source)
    }

    /// Identifier in mountinfo; 0 before it belongs to a kernel.
    pub fn id(&self) -> u32 {
        self.ids().id
    }

    /// The identifier that no other mount of the kernel gets (STATX_MNT_ID_UNIQUE).
    pub fn unique_id(&self) -> u64 {
        self.ids().unique
    }

    fn ids(&self) -> Ids {
        self.ids.get().copied().unwrap_or_default()
    }

    /// Gives it its numbers, unless it has some.
    pub fn number(&self, ids: impl FnOnce() -> Ids) {
        self.ids.get_or_init(ids);
    }

    /// The file system instance.
    pub fn fs(&self) -> &Arc<dyn FileSystem> {
        &self.sb.fs
    }

    /// Flags, with RDONLY also when the whole instance is read-only.
    pub fn flags(&self) -> MountFlags {
        let f = self.own_flags();
        if self.sb.readonly() { f | MountFlags::RDONLY } else { f }
    }

    /// Flags of the mount itself.
    pub fn own_flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Replaces the flags (remount).
    pub fn set_flags(&self, f: MountFlags) {
        self.flags.store(f.bits(), Ordering::Relaxed);
    }

    /// Flags that cannot be taken away in its namespace.
    pub fn locked_flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.locked_flags.load(Ordering::Relaxed))
    }

    /// Locks flags, and with `place` the place, against a less privileged namespace.
    pub fn lock(&self, flags: MountFlags, place: bool) {
        self.locked_flags.fetch_or(flags.bits(), Ordering::Relaxed);
        self.locked.fetch_or(place, Ordering::Relaxed);
    }

    /// Whether it must stay over what it hides.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }

    /// Locks it to its place, or lets go; gives what was before.
    pub fn set_locked(&self, on: bool) -> bool {
        self.locked.swap(on, Ordering::Relaxed)
    }

    /// Whether the lock on its flags lets them become these: what restricts stays, and how access times are kept.
    pub fn may_become(&self, new: MountFlags) -> bool {
        let (old, locked) = (self.own_flags(), self.locked_flags());
        let stays = old & (locked - MountFlags::ATIME);
        let times =
            !locked.intersects(MountFlags::ATIME) || (old ^ new) & MountFlags::ATIME == MountFlags::empty();
        new.contains(stays) && times
    }

    /// Device files on it cannot be opened.
    pub fn nodev(&self) -> bool {
        self.sb.user_ns().is_some() && !self.sb.fs.has_safe_devices()
            || self.own_flags().contains(MountFlags::NODEV)
    }

    /// Whether set-ID bits and capabilities of its files count for a task of a user namespace (mnt_may_suid).
    pub fn gives_rights(&self, user_ns: &UserNamespace) -> bool {
        let within = self.sb.user_ns().is_none_or(|owner| user_ns.is_within(owner));
        within && !self.own_flags().contains(MountFlags::NOSUID)
    }

    /// True when nothing may be changed through this mount.
    pub fn readonly(&self) -> bool {
        self.flags().contains(MountFlags::RDONLY)
    }

    /// Forbids changes through it; EBUSY while a file is open for writing.
    pub fn make_readonly(&self) -> Result<()> {
        let old = self.flags.fetch_or(MountFlags::RDONLY.bits(), Ordering::SeqCst);
        if old & MountFlags::RDONLY.bits() != 0 || self.writers.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        self.flags.fetch_and(!MountFlags::RDONLY.bits(), Ordering::SeqCst);
        Err(Errno::EBUSY)
    }

    /// How it passes events on.
    pub fn share(&self) -> Share {
        self.share.read().clone()
    }

    /// Changes how it passes events on; gives what was before. The lists of the groups are the caller's business.
    pub fn change_share(&self, change: impl FnOnce(&mut Share)) -> Share {
        let mut share = self.share.write();
        let old = share.clone();
        change(&mut share);
        old
    }

    /// The peer group that it is a member of (`shared:N` of mountinfo).
    pub fn peer_group(&self) -> Option<Arc<PeerGroup>> {
        self.share.read().group.clone()
    }

    /// The peer group that it gets events from (`master:N` of mountinfo).
    pub fn master(&self) -> Option<Arc<PeerGroup>> {
        self.share.read().master.clone()
    }

    /// MS_UNBINDABLE: it cannot be bind mounted.
    pub fn is_unbindable(&self) -> bool {
        self.share.read().unbindable
    }

    /// Uses it; `None` when umount(2) has taken it away, or is about to. The count comes before the look, and umount(2) marks
    /// before it looks at the count, so at least one of the two sees the other.
    fn hold(self: &Arc<Mount>) -> Option<InUse<Mount>> {
        let held = InUse::new(self.clone());
        (!self.leaving.load(Ordering::SeqCst)).then_some(held)
    }

    /// The same, after an umount(2) that is in progress, which this waits for: `None` when it has gone.
    pub fn hold_in(self: &Arc<Mount>, table: &MountTable) -> Option<InUse<Mount>> {
        self.hold().or_else(|| {
            table.settle();
            self.hold()
        })
    }

    /// umount(2) is about to take it away, or has changed its mind.
    pub fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::SeqCst);
    }

    /// It is used: a mark of MNT_EXPIRE is gone.
    pub fn used(&self) {
        if self.expiring.load(Ordering::Relaxed) {
            self.expiring.store(false, Ordering::Relaxed);
        }
    }

    /// Marks it for MNT_EXPIRE; whether it had the mark.
    pub fn expire(&self) -> bool {
        self.expiring.swap(true, Ordering::Relaxed)
    }

    /// The root of the mount as a path.
    pub fn root_path(self: &Arc<Mount>) -> Path {
        Path { mount: self.clone(), dentry: self.root.clone() }
    }

    /// Where it is mounted: parent mount and dentry there.
    pub fn mountpoint(&self) -> Option<Path> {
        let a = self.attach.read();
        let a = a.as_ref()?;
        Some(Path { mount: a.parent.upgrade()?, dentry: a.listed.point().clone() })
    }

    /// The id of the namespace that it belongs to; 0 for none.
    pub fn ns_id(&self) -> u64 {
        self.ns_id.load(Ordering::Acquire)
    }

    /// The namespace that it belongs to.
    pub fn ns(&self) -> Option<Arc<MountSet>> {
        self.ns.read().upgrade()
    }

    /// Notifies the watchers of its namespace of a change.
    pub fn announce(&self) {
        if let Some(ns) = self.ns() {
            ns.announce();
        }
    }

    /// Makes it a member of a namespace with this id, or with 0 of none.
    pub fn set_ns(&self, id: u64, ns: Weak<MountSet>) {
        self.ns_id.store(id, Ordering::Release);
        *self.ns.write() = ns;
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
        Mounts(self.children.read()).on(d).cloned()
    }

    /// The mounts on it, unless a thread is changing them.
    pub fn mounts(&self) -> Option<Mounts<'_>> {
        self.children.try_read().map(Mounts)
    }

    /// The mounts on places with known [`key`]s, in no order. The work is that for the fewer of the two.
    pub fn children_on<V>(&self, places: &HashMap<usize, V>) -> Vec<Arc<Mount>> {
        let children = self.children.read();
        if places.len() < children.len() {
            return places.keys().filter_map(|place| children.get(place)).cloned().collect();
        }
        children.iter().filter(|(place, _)| places.contains_key(place)).map(|(_, m)| m.clone()).collect()
    }

    /// The locked ones of the mounts that sit on this one.
    pub fn locked_children(&self) -> Vec<Arc<Mount>> {
        self.children.read().values().filter(|m| m.is_locked()).cloned().collect()
    }

    /// Mounts that sit on this one, oldest first.
    pub fn children(&self) -> Vec<Arc<Mount>> {
        let mut v: Vec<_> = self.children.read().values().cloned().collect();
        v.sort_by_key(|m| m.unique_id());
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
    pub fn attach_at(self: &Arc<Mount>, at: &Path) {
        *self.attach.write() = Some(Attach::new(self, at));
        at.mount.children.write().insert(key(&at.dentry), self.clone());
    }

    /// Slips `self`, which carries `top` (itself or what covers its root), between `at` and what is mounted there.
    pub fn attach_beneath(self: &Arc<Mount>, at: &Path, top: &Path) {
        let above = at.mount.children.read().get(&key(&at.dentry)).cloned();
        let Some(above) = above else { return self.attach_at(at) };
        // Walkers find either the old mount or the new one with the old one on it.
        let (mine, its) = (Attach::new(self, at), Attach::new(&above, top));
        top.mount.children.write().insert(key(&top.dentry), above.clone());
        let was = above.attach.write().replace(its);
        *self.attach.write() = Some(mine);
        at.mount.children.write().insert(key(&at.dentry), self.clone());
        drop(was);
    }

    /// Takes `self` off its mount point; its own children stay on it.
    pub fn detach(self: &Arc<Mount>) {
        let was = self.attach.write().take();
        let parent = was.as_ref().and_then(|a| Some((a.parent.upgrade()?, a.listed.point())));
        if let Some((parent, point)) = parent {
            parent.children.write().remove(&key(point));
        }
    }
}

/// An open file that may write through a mount.
pub struct Writing(Arc<Mount>);

impl Writing {
    /// Counts one more.
    pub fn new(mount: &Arc<Mount>) -> Writing {
        mount.writers.fetch_add(1, Ordering::SeqCst);
        mount.sb.writers.fetch_add(1, Ordering::SeqCst);
        Writing(mount.clone())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
        self.0.sb.writers.fetch_sub(1, Ordering::SeqCst);
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
        let share = std::mem::take(self.share.get_mut());
        peers::leave(self.ids().unique, share);
        drop(self.attach.get_mut().take());
        std::mem::take(&mut *self.children.write()).into_values().collect()
    }
}
