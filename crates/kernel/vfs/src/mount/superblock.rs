//! File systems in use.

use crate::dentry::{Dentry, Handles};
use crate::inode::FileSystem;
use crate::notify::marks::Marks;
use abi::{Errno, Result};
use rights::{Cap, Credentials};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use user_ns::UserNamespace;

bitflags::bitflags! {
    /// Flags of a file system instance, with the values of mount(2)'s MS_*.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct SbFlags: u32 {
        /// MS_RDONLY
        const RDONLY = 1;
        /// MS_SYNCHRONOUS
        const SYNCHRONOUS = 16;
        /// MS_MANDLOCK
        const MANDLOCK = 64;
        /// MS_DIRSYNC
        const DIRSYNC = 128;
        /// MS_SILENT: nothing is logged
        const SILENT = 1 << 15;
        /// MS_LAZYTIME
        const LAZYTIME = 1 << 25;
    }
}

impl SbFlags {
    /// What a remount replaces.
    pub const CHANGING: SbFlags = SbFlags::RDONLY
        .union(SbFlags::SYNCHRONOUS)
        .union(SbFlags::MANDLOCK)
        .union(SbFlags::DIRSYNC)
        .union(SbFlags::LAZYTIME);

    /// The words for /proc/PID/mounts and mountinfo, `rw` or `ro` first.
    pub fn words(self) -> String {
        let mut s = String::from(if self.contains(SbFlags::RDONLY) { "ro" } else { "rw" });
        for (f, w) in [
            (SbFlags::SYNCHRONOUS, ",sync"),
            (SbFlags::DIRSYNC, ",dirsync"),
            (SbFlags::MANDLOCK, ",mand"),
            (SbFlags::LAZYTIME, ",lazytime"),
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
    flags: AtomicU32,
    /// Open files that may write, through all mounts of it.
    pub(super) writers: AtomicU32,
    /// The path of this part in a larger file system that is not mounted as a whole; empty for a file system of its own.
    origin: Vec<u8>,
    /// The path of what lies there: the root itself, or the one file of a directory that stands for a file.
    top: Vec<u8>,
    /// The user namespace that it was made for (s_user_ns), unless that is the initial one.
    user_ns: OnceLock<Arc<UserNamespace>>,
    /// Marks of fanotify(7) on the file system.
    pub marks: Marks,
    /// File handles that were given out.
    pub handles: Handles,
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
        let (flags, writers) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(SuperBlock {
            fs,
            root,
            flags,
            writers,
            origin: bare(origin),
            top: bare(top),
            user_ns: OnceLock::new(),
            marks: Marks::default(),
            handles: Handles::default(),
        })
    }

    /// It belongs to a user namespace: the IDs of its files are those that the namespace has, and it has no devices. The first
    /// call counts.
    pub fn set_user_ns(&self, user_ns: &Arc<UserNamespace>) {
        if !user_ns.is_initial() {
            let _ = self.user_ns.set(user_ns.clone());
        }
    }

    /// The user namespace that it belongs to; `None` for the initial one.
    pub fn user_ns(&self) -> Option<&Arc<UserNamespace>> {
        self.user_ns.get()
    }

    /// Whether a caller may change it: EPERM without CAP_SYS_ADMIN in the user namespace that it belongs to.
    pub fn may_reconfigure(&self, creds: &Credentials) -> Result<()> {
        let allowed = match self.user_ns() {
            Some(owner) => creds.ns_capable(owner, Cap::SYS_ADMIN),
            None => creds.capable(Cap::SYS_ADMIN),
        };
        if allowed { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether a file of it can have this owner.
    pub fn can_hold(&self, uid: u32, gid: u32) -> bool {
        self.user_ns().is_none_or(|ns| ns.user_here(uid).is_some() && ns.group_here(gid).is_some())
    }

    /// Flags of the instance.
    pub fn flags(&self) -> SbFlags {
        SbFlags::from_bits_truncate(self.flags.load(Ordering::Acquire))
    }

    /// Replaces what `mask` names by what `flags` says.
    pub fn set_flags(&self, flags: SbFlags, mask: SbFlags) {
        let set = |old: u32| Some(old & !mask.bits() | (flags & mask).bits());
        let _ = self.flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    /// Nothing may be changed through any mount of it.
    pub fn readonly(&self) -> bool {
        self.flags().contains(SbFlags::RDONLY)
    }

    /// Makes every mount of it read-only; EBUSY while a file is open for writing.
    pub fn make_readonly(&self) -> Result<()> {
        self.set_flags(SbFlags::RDONLY, SbFlags::RDONLY);
        if self.writers.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        self.set_flags(SbFlags::empty(), SbFlags::RDONLY);
        Err(Errno::EBUSY)
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
