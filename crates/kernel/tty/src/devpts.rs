//! devpts: the file system of pseudoterminal slaves. See pts(4).
//!
//! Lock: the table of terminals, a leaf.

use crate::files::{MasterFile, SlaveFile};
use crate::pty::{JobControl, Pty, PtyState};
use crate::slaves::Slaves;
use abi::stat::{Attr, StatFs, makedev};
use abi::time::Timespec;
use abi::{Errno, Result};
use lock_order::Mutex;
use mounts::FsView;
use mounts::fs_parameters::{ParameterSpec, Takes, is_octal, is_u32, number};
use namei::{
    lookup::{Lookup, Start},
    walk::lookup,
};
use pid::Pid;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use vfs::attach::Attachments;
use vfs::{
    Caller, DirEntry, DirInode, DirSink, DirectoryFile, DirectoryOps, FileOps, FileSystem, Inode, InodeRef,
    OpenFile, SetAttr,
};

/// Major number of slaves.
pub(crate) const SLAVE_MAJOR: u32 = 136;
const DEVPTS_MAGIC: i64 = 0x1cd1;
/// Most terminals of one instance (kernel.pty.max).
const MAX: u32 = 4096;

/// Mount options.
#[derive(Clone, Copy)]
struct Options {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: u32,
    ptmxmode: u32,
    max: u32,
}

fn parse(options: &[u8]) -> Result<Options> {
    let mut o = Options { uid: None, gid: None, mode: 0o600, ptmxmode: 0, max: MAX };
    let text = std::str::from_utf8(options).map_err(|_| Errno::EINVAL)?;
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let number = || value.parse::<u32>().map_err(|_| Errno::EINVAL);
        let octal = || u32::from_str_radix(value, 8).map(|m| m & 0o7777).map_err(|_| Errno::EINVAL);
        match name {
            "uid" => o.uid = Some(number()?),
            "gid" => o.gid = Some(number()?),
            "mode" => o.mode = octal()?,
            "ptmxmode" => o.ptmxmode = octal()?,
            "max" if number()? <= MAX => o.max = number()?,
            "newinstance" => {}
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(o)
}

/// The parameters that fsconfig(2) and mount(2) may set.
pub const KNOWN: &[ParameterSpec] = &[
    ("uid", Takes::Checked(is_u32)),
    ("gid", Takes::Checked(is_u32)),
    ("mode", Takes::Checked(is_octal)),
    ("ptmxmode", Takes::Checked(is_octal)),
    ("max", Takes::Checked(is_max)),
    ("newinstance", Takes::Flag),
];

fn is_max(s: &str) -> bool {
    number(s).is_some_and(|n| n <= MAX.into())
}

/// An instance.
pub struct Devpts {
    dev: u64,
    options: Options,
    jobs: Arc<dyn JobControl>,
    slaves: Arc<Slaves>,
    root: Mutex<Attr>,
    ptmx: Arc<Node>,
    me: Weak<Devpts>,
}

fn now() -> Timespec {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into()
}

impl Devpts {
    /// An instance for mount(2) options; its terminals know of sessions through `jobs`. IDs are those of the mounter's
    /// user namespace.
    pub fn new(jobs: Arc<dyn JobControl>, cx: &dyn Caller, options: &[u8]) -> Result<Arc<Devpts>> {
        let mut options = parse(options)?;
        let creds = cx.creds();
        let ns = &creds.user_ns;
        let dev = cx.resources().device_numbers.alloc();
        options.uid = options.uid.map(|id| ns.user(id).ok_or(Errno::EINVAL)).transpose()?;
        options.gid = options.gid.map(|id| ns.group(id).ok_or(Errno::EINVAL)).transpose()?;
        let (uid, gid) = (ns.user(0).unwrap_or(0), ns.group(0).unwrap_or(0));
        let t = now();
        let base = Attr { dev, nlink: 1, blksize: 1024, atime: t, mtime: t, ctime: t, ..Attr::default() };
        let fs = Arc::new_cyclic(|me: &Weak<Devpts>| {
            let ptmx = Attr {
                ino: 2,
                mode: libc::S_IFCHR | options.ptmxmode,
                rdev: makedev(5, 2),
                uid,
                gid,
                ..base
            };
            Devpts {
                dev,
                options,
                jobs,
                slaves: Arc::default(),
                root: Mutex::new(Attr { ino: 1, mode: libc::S_IFDIR | 0o755, nlink: 2, ..base }),
                ptmx: Arc::new(Node::new(me, ptmx, None)),
                me: me.clone(),
            }
        });
        Ok(fs)
    }

    /// The instance at /dev/pts.
    pub(crate) fn mounted(cx: &dyn Caller, view: &FsView) -> Option<Arc<Devpts>> {
        let cx = vfs::Internal::new(cx.vfs());
        let at = lookup(&cx, view, &Start::Cwd, b"/dev/pts", Lookup::FOLLOW).ok()?;
        at.inode().as_any().downcast_ref::<Root>()?.devpts().ok()
    }

    /// A new pair, locked; ENOSPC when there are too many.
    pub(crate) fn allocate(&self, cx: &dyn Caller) -> Result<Arc<Pty>> {
        let c = cx.creds();
        let (time, clock) = (now(), cx.resources().clock);
        let make = |index| {
            let pty = Pty::new(index, clock, self.jobs.clone(), Arc::downgrade(&self.slaves));
            let attr = Attr {
                dev: self.dev,
                ino: u64::from(index) + 3,
                mode: libc::S_IFCHR | self.options.mode,
                nlink: 1,
                uid: self.options.uid.unwrap_or(c.fsuid),
                gid: self.options.gid.unwrap_or(c.fsgid),
                rdev: makedev(SLAVE_MAJOR, index),
                blksize: 1024,
                atime: time,
                mtime: time,
                ctime: time,
                ..Attr::default()
            };
            let node = Node::new(&self.me, attr, Some(&pty));
            (Arc::new(node) as InodeRef, pty)
        };
        self.slaves.add(self.options.max, make).ok_or(Errno::ENOSPC)
    }

    /// The instance that an inode is the root directory of.
    pub fn of(inode: &InodeRef) -> Option<Arc<Devpts>> {
        inode.as_any().downcast_ref::<Root>()?.devpts().ok()
    }

    /// User and group that new terminals get, if it says so.
    pub fn owner(&self) -> (Option<u32>, Option<u32>) {
        (self.options.uid, self.options.gid)
    }

    /// Modes of new terminals and of the multiplexer, and how many terminals there may be.
    pub fn numbers(&self) -> [u32; 3] {
        [self.options.mode, self.options.ptmxmode, self.options.max]
    }

    /// The pair of plain data, without open files. `served`: the pair that a sentry serves, which was made already. `pid`
    /// gives a process ID of the sandbox's own PID namespace. EEXIST, ENOSPC, EINVAL.
    pub fn restore(
        &self,
        cx: &dyn Caller,
        saved: &PtyState,
        served: Option<&Arc<Pty>>,
        pid: &dyn Fn(i32) -> Option<Arc<Pid>>,
    ) -> Result<Arc<Pty>> {
        let (index, clock) = (saved.index, cx.resources().clock);
        let attr = Attr {
            dev: self.dev,
            ino: u64::from(index) + 3,
            mode: libc::S_IFCHR | saved.attr.mode & 0o7777,
            rdev: makedev(SLAVE_MAJOR, index),
            ..saved.attr
        };
        let pty = match served {
            Some(pty) => {
                let node = self.slaves.get(index).ok_or(Errno::ENOENT)?;
                let node = node.as_any().downcast_ref::<Node>().ok_or(Errno::EINVAL)?;
                let there = node.pty.as_ref().and_then(Weak::upgrade);
                if !there.is_some_and(|there| Arc::ptr_eq(&there, pty)) {
                    return Err(Errno::EEXIST);
                }
                *node.attr.lock() = attr;
                pty.clone()
            }
            None => {
                let make = || {
                    let pty = Pty::new(index, clock, self.jobs.clone(), Arc::downgrade(&self.slaves));
                    let node = Node::new(&self.me, attr, Some(&pty));
                    (Arc::new(node) as InodeRef, pty)
                };
                self.slaves.add_at(index, self.options.max, make).ok_or(Errno::EEXIST)?
            }
        };
        let loaded = pty.load(saved, served.is_some(), pid);
        if loaded.is_err() && served.is_none() {
            self.slaves.remove(index);
        }
        loaded?;
        Ok(pty)
    }

    /// The node of a pair.
    pub fn slave_inode(&self, index: u32) -> Option<InodeRef> {
        self.slaves.get(index)
    }

    /// Opens the multiplexer: a new pair's master.
    pub(crate) fn open_master(&self, cx: &dyn Caller) -> Result<Arc<MasterFile>> {
        Ok(Arc::new(MasterFile { pty: self.allocate(cx)? }))
    }
}

impl FileSystem for Devpts {
    fn kind(&self) -> &'static str {
        "devpts"
    }
    fn root(&self) -> InodeRef {
        Arc::new(Root { fs: self.me.clone(), attachments: self.slaves.attachments() })
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs {
            f_type: DEVPTS_MAGIC,
            f_bsize: 4096,
            f_namelen: 255,
            f_frsize: 4096,
            ..StatFs::default()
        })
    }
    fn revalidate(&self) -> bool {
        true
    }
    fn has_safe_devices(&self) -> bool {
        true
    }
    fn options(&self) -> String {
        let o = &self.options;
        let id = |name: &str, v: Option<u32>| v.map(|v| format!("{name}={v},")).unwrap_or_default();
        let max = if o.max == MAX { String::new() } else { format!(",max={}", o.max) };
        let ids = [id("uid", o.uid), id("gid", o.gid)].concat();
        format!("{ids}mode={:03o},ptmxmode={:03o}{max}", o.mode, o.ptmxmode)
    }
}

/// The root directory. It holds no state of its own, so every caller may have another one.
pub(crate) struct Root {
    fs: Weak<Devpts>,
    attachments: Arc<Attachments>,
}

impl Root {
    pub(crate) fn devpts(&self) -> Result<Arc<Devpts>> {
        self.fs.upgrade().ok_or(Errno::EIO)
    }
}

impl Inode for Root {
    fn fs(&self) -> Arc<dyn FileSystem> {
        match self.fs.upgrade() {
            Some(f) => f,
            None => Arc::new(vfs::inode::InternalFs::Anon),
        }
    }
    fn kind(&self) -> u32 {
        libc::S_IFDIR
    }
    fn attr(&self) -> Result<Attr> {
        Ok(*self.devpts()?.root.lock())
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        set.apply(&mut self.devpts()?.root.lock(), now());
        Ok(())
    }
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(DirectoryFile(RootFile(self.devpts()?))))
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        Some(self)
    }
}

impl DirInode for Root {
    fn lookup(&self, _cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        let fs = self.devpts()?;
        if name == b"ptmx" {
            return Ok(fs.ptmx.clone());
        }
        let text = std::str::from_utf8(name).map_err(|_| Errno::ENOENT)?;
        let index: u32 = text.parse().map_err(|_| Errno::ENOENT)?;
        if index.to_string() != text {
            return Err(Errno::ENOENT);
        }
        fs.slave_inode(index).ok_or(Errno::ENOENT)
    }
}

struct RootFile(Arc<Devpts>);

impl DirectoryOps for RootFile {
    fn read_dir(&self, _cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        // Offsets: 3 behind ptmx, index + 4 behind a slave.
        let mut at = pos;
        if at < 3 {
            let e = DirEntry { ino: 2, kind: libc::DT_CHR, name: b"ptmx".to_vec() };
            if !sink.entry(3, &e) {
                return Ok(at);
            }
            at = 3;
        }
        let first = (at - 3) as u32;
        let indices = self.0.slaves.numbers(first);
        for i in indices {
            let next = u64::from(i) + 4;
            let name = i.to_string().into_bytes();
            let e = DirEntry { ino: u64::from(i) + 3, kind: libc::DT_CHR, name };
            if !sink.entry(next, &e) {
                return Ok(at);
            }
            at = next;
        }
        Ok(at)
    }
}

/// A slave, or the multiplexer (without a pair of its own).
pub(crate) struct Node {
    fs: Weak<Devpts>,
    attr: Mutex<Attr>,
    pty: Option<Weak<Pty>>,
    attachments: Attachments,
}

impl Node {
    fn new(fs: &Weak<Devpts>, attr: Attr, pty: Option<&Arc<Pty>>) -> Node {
        let attachments = Attachments::default();
        Node { fs: fs.clone(), attr: Mutex::new(attr), pty: pty.map(Arc::downgrade), attachments }
    }

    /// Opens the slave, or a new master.
    pub(crate) fn open_device(&self, cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        match &self.pty {
            None => Ok(self.fs.upgrade().ok_or(Errno::EIO)?.open_master(cx)?),
            Some(p) => Ok(SlaveFile::open(&p.upgrade().ok_or(Errno::EIO)?, cx, flags)?),
        }
    }
}

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        match self.fs.upgrade() {
            Some(f) => f,
            None => Arc::new(vfs::inode::InternalFs::Anon),
        }
    }
    fn kind(&self) -> u32 {
        libc::S_IFCHR
    }
    fn attr(&self) -> Result<Attr> {
        Ok(*self.attr.lock())
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        set.apply(&mut self.attr.lock(), now());
        Ok(())
    }
    fn open(&self, cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
        self.open_device(cx, flags)
    }
    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.attachments)
    }
}
