//! nsfs: namespaces as files. See namespaces(7), ioctl_nsfs(2).
//!
//! A file holds its namespace: as long as it is open or mounted, the namespace lives. A mount namespace may hold files of
//! younger mount namespaces only ([`SpecialInode::mount_ns`]), so none holds itself.

use crate::{CgroupNamespace, Ipc, TimeNamespace, UtsNamespace};
use abi::clone::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER,
    CLONE_NEWUTS,
};
use abi::stat::{Attr, StatFs, makedev};
use abi::{Errno, Result};
use lock_order::Mutex;
use mounts::MountNs;
use pid::PidNamespace;
use socket::NetNamespace;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use user_ns::UserNamespace;
use vfs::attach::Attachments;
use vfs::dentry::Dentry;
use vfs::{Caller, FileOps, FileSystem, Inode, InodeRef, Mount, MountFlags, Path, SpecialInode, Vfs};

const DEV: u64 = makedev(0, 4);
/// NSFS_MAGIC.
const MAGIC: i64 = 0x6e73_6673;

/// A namespace of any kind.
#[derive(Clone)]
#[expect(missing_docs, reason = "one for each kind")]
pub enum Namespace {
    Cgroup(Arc<CgroupNamespace>),
    Ipc(Arc<Ipc>),
    Mount(Arc<MountNs>),
    Net(Arc<NetNamespace>),
    Pid(Arc<PidNamespace>),
    Time(Arc<TimeNamespace>),
    User(Arc<UserNamespace>),
    Uts(Arc<UtsNamespace>),
}

impl Namespace {
    /// The name of its kind, as links in /proc/PID/ns show it.
    pub fn kind(&self) -> &'static str {
        match self {
            Namespace::Cgroup(_) => "cgroup",
            Namespace::Ipc(_) => "ipc",
            Namespace::Mount(_) => "mnt",
            Namespace::Net(_) => "net",
            Namespace::Pid(_) => "pid",
            Namespace::Time(_) => "time",
            Namespace::User(_) => "user",
            Namespace::Uts(_) => "uts",
        }
    }

    /// CLONE_NEW*.
    pub fn flag(&self) -> u64 {
        match self {
            Namespace::Cgroup(_) => CLONE_NEWCGROUP,
            Namespace::Ipc(_) => CLONE_NEWIPC,
            Namespace::Mount(_) => CLONE_NEWNS,
            Namespace::Net(_) => CLONE_NEWNET,
            Namespace::Pid(_) => CLONE_NEWPID,
            Namespace::Time(_) => CLONE_NEWTIME,
            Namespace::User(_) => CLONE_NEWUSER,
            Namespace::Uts(_) => CLONE_NEWUTS,
        }
    }

    /// Number of its inode.
    pub fn inum(&self) -> u64 {
        match self {
            Namespace::Cgroup(ns) => ns.inum,
            Namespace::Time(ns) => ns.inum,
            Namespace::Ipc(ns) => ns.inum,
            Namespace::Mount(ns) => ns.id,
            Namespace::Net(ns) => ns.inum,
            Namespace::Pid(ns) => ns.inum(),
            Namespace::User(ns) => ns.inum(),
            Namespace::Uts(ns) => ns.inum,
        }
    }

    /// Where capabilities over it are held: its owner, for a user namespace itself.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        match self {
            Namespace::Cgroup(ns) => ns.user_ns(),
            Namespace::Time(ns) => ns.user_ns(),
            Namespace::Ipc(ns) => ns.user_ns(),
            Namespace::Mount(ns) => ns.user_ns(),
            Namespace::Net(ns) => ns.user_ns(),
            Namespace::Pid(ns) => ns.user_ns(),
            Namespace::User(ns) => ns,
            Namespace::Uts(ns) => ns.user_ns(),
        }
    }

    /// The namespace that an inode of nsfs is.
    pub fn of(inode: &InodeRef) -> Option<Namespace> {
        let inode: &NsInode = inode.as_any().downcast_ref()?;
        Some(inode.ns.clone())
    }

    /// The place of its file.
    pub fn path(&self, nsfs: &Arc<Mount>) -> Path {
        let name = format!("{}:[{}]", self.kind(), self.inum());
        let inode: InodeRef = match nsfs.root.inode.as_any().downcast_ref::<NsRoot>() {
            Some(root) => root.inode_of(self, nsfs.fs()),
            None => Arc::new(NsInode::new(self, nsfs.fs(), Weak::new())),
        };
        Path { mount: nsfs.clone(), dentry: Dentry::nameless(&nsfs.root, inode, name.as_bytes()) }
    }
}

/// The file system of namespaces.
pub struct NsFs(Arc<NsRoot>);

impl NsFs {
    /// The one mount of a kernel that all of its namespaces are in.
    pub fn mount(vfs: &Vfs) -> Arc<Mount> {
        let mount = Mount::of(Arc::new(NsFs(NsRoot::new())), MountFlags::empty(), b"nsfs");
        vfs.mounts.number(&mount);
        mount
    }
}

impl NsFs {
    /// The namespace of a kind and number that has a file in this mount.
    pub fn known(nsfs: &Arc<Mount>, kind: u64, inum: u64) -> Option<Namespace> {
        let root: &NsRoot = nsfs.root.inode.as_any().downcast_ref()?;
        let inode = root.inodes.lock().get(&(kind, inum))?.upgrade()?;
        Some(inode.ns.clone())
    }
}

impl FileSystem for NsFs {
    fn kind(&self) -> &'static str {
        "nsfs"
    }
    fn root(&self) -> InodeRef {
        self.0.clone()
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { f_type: MAGIC, f_bsize: 4096, f_namelen: 255, f_frsize: 4096, ..StatFs::default() })
    }
    fn binds_from_nowhere(&self) -> bool {
        true
    }
}

fn attr(ino: u64, mode: u32) -> Attr {
    Attr { dev: DEV, ino, mode, nlink: 1, blksize: 4096, ..Attr::default() }
}

/// The directory, which no program sees. It knows the inodes that are in use: what hangs on one (locks, watches) is there for
/// all paths to the namespace.
///
/// Lock: a leaf; no inode is dropped under it.
struct NsRoot {
    me: Weak<NsRoot>,
    inodes: Mutex<BTreeMap<(u64, u64), Weak<NsInode>>>,
}

impl NsRoot {
    fn new() -> Arc<NsRoot> {
        Arc::new_cyclic(|me| NsRoot { me: me.clone(), inodes: Mutex::default() })
    }

    fn inode_of(&self, ns: &Namespace, fs: &Arc<dyn FileSystem>) -> Arc<NsInode> {
        let mut inodes = self.inodes.lock();
        let known = inodes.entry((ns.flag(), ns.inum())).or_default();
        known.upgrade().unwrap_or_else(|| {
            let new = Arc::new(NsInode::new(ns, fs, self.me.clone()));
            *known = Arc::downgrade(&new);
            new
        })
    }
}

impl Inode for NsRoot {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.me.upgrade().map_or_else(|| Arc::new(NsFs(NsRoot::new())), |root| Arc::new(NsFs(root)))
    }
    fn attr(&self) -> Result<Attr> {
        Ok(attr(1, libc::S_IFDIR | 0o555))
    }
}

/// A namespace as a file.
struct NsInode {
    ns: Namespace,
    fs: Arc<dyn FileSystem>,
    root: Weak<NsRoot>,
    attachments: Attachments,
}

impl NsInode {
    fn new(ns: &Namespace, fs: &Arc<dyn FileSystem>, root: Weak<NsRoot>) -> NsInode {
        NsInode { ns: ns.clone(), fs: fs.clone(), root, attachments: Attachments::default() }
    }
}

impl Drop for NsInode {
    fn drop(&mut self) {
        let Some(root) = self.root.upgrade() else { return };
        let key = (self.ns.flag(), self.ns.inum());
        let mut inodes = root.inodes.lock();
        // A new one may have come meanwhile, which is dropped after the lock.
        let next = inodes.get(&key).and_then(Weak::upgrade);
        if next.is_none() {
            inodes.remove(&key);
        }
        drop(inodes);
        drop(next);
    }
}

impl Inode for NsInode {
    fn fs(&self) -> Arc<dyn FileSystem> {
        self.fs.clone()
    }
    fn attr(&self) -> Result<Attr> {
        Ok(attr(self.ns.inum(), libc::S_IFREG | 0o444))
    }
    fn open(&self, _cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(Errno::EPERM);
        }
        Ok(Arc::new(NsOps(self.ns.clone())))
    }
    fn as_special(&self) -> Option<&dyn SpecialInode> {
        Some(self)
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
}

impl SpecialInode for NsInode {
    fn mount_ns(&self) -> Option<u64> {
        if let Namespace::Mount(ns) = &self.ns { Some(ns.id) } else { None }
    }
}

/// An open namespace.
pub struct NsOps(pub Namespace);

impl FileOps for NsOps {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
