//! /proc/PID/ns: one set of namespaces, apart from mount namespaces and what each container of a pod has of its own.

use abi::stat::{Attr, StatFs, makedev};
use abi::{Errno, Result};
use kernfs::{At, Entry, Target, magic};
use nsproxy::NsProxy;
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, FileOps, FileSystem, Inode, InodeRef, OpenFile};

const DEV: u64 = makedev(0, 4);

macro_rules! ns {
    ($($name:literal = $kind:literal $ino:expr),* $(,)?) => {
        /// The directory.
        pub static NS: [Entry; 10] = [$(magic($name, |at| {
            let ino: fn(&At) -> Result<u64> = $ino;
            Ok(Target::File(NsInode::file($kind, ino(at)?)))
        })),*];
    };
}

/// The namespaces of the process; ESRCH once it has ended.
fn of(at: &At) -> Result<Arc<NsProxy>> {
    Ok(at.proc()?.task().ok_or(Errno::ESRCH)?.nsproxy())
}

fn mounts(at: &At) -> Result<u64> {
    let fs = at.proc()?.task().and_then(|t| t.fs()).ok_or(Errno::ENOENT)?;
    Ok(fs.view().ns.id)
}

fn user(at: &At) -> Result<u64> {
    Ok(at.proc()?.task().ok_or(Errno::ESRCH)?.creds().user_ns.inum())
}

ns! {
    "cgroup" = "cgroup" |at| Ok(of(at)?.cgroup.inum),
    "ipc" = "ipc" |at| Ok(of(at)?.ipc.inum),
    "mnt" = "mnt" mounts,
    "net" = "net" |at| Ok(of(at)?.net.inum),
    "pid" = "pid" |at| Ok(at.proc()?.group.pid.ns().ok_or(Errno::ESRCH)?.inum()),
    "pid_for_children" = "pid" |at| Ok(of(at)?.pid_for_children.inum()),
    "time" = "time" |at| Ok(of(at)?.time.inum),
    "time_for_children" = "time" |at| Ok(of(at)?.time.inum),
    "user" = "user" user,
    "uts" = "uts" |at| Ok(of(at)?.uts.inum),
}

/// The file system of namespaces.
struct NsFs;

impl FileSystem for NsFs {
    fn kind(&self) -> &'static str {
        "nsfs"
    }
    fn root(&self) -> InodeRef {
        Arc::new(NsInode { kind: "nsfs", ino: 1 })
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { f_type: 0x6e73_6673, f_bsize: 4096, f_namelen: 255, f_frsize: 4096, ..StatFs::default() })
    }
}

/// A namespace as a file.
#[derive(Clone)]
struct NsInode {
    kind: &'static str,
    ino: u64,
}

impl NsInode {
    fn file(kind: &'static str, ino: u64) -> Arc<OpenFile> {
        let i = NsInode { kind, ino };
        OpenFile::new(None, Some(Arc::new(i.clone())), Arc::new(NsOps(i)), libc::O_RDONLY)
    }
}

impl Inode for NsInode {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn fs(&self) -> Arc<dyn FileSystem> {
        Arc::new(NsFs)
    }
    fn attr(&self) -> Result<Attr> {
        Ok(Attr {
            dev: DEV,
            ino: self.ino,
            mode: libc::S_IFREG | 0o444,
            nlink: 1,
            blksize: 4096,
            ..Attr::default()
        })
    }
    fn open(&self, _cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(Errno::EPERM);
        }
        Ok(Arc::new(NsOps(self.clone())))
    }
}

/// An open namespace.
struct NsOps(NsInode);

impl FileOps for NsOps {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn link_name(&self) -> Option<String> {
        Some(format!("{}:[{}]", self.0.kind, self.0.ino))
    }
}
