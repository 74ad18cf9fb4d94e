//! The directory of queues, and mq_open(2), mq_unlink(2) on it.

use crate::MAX_QUEUES;
use crate::queue::{Attributes, FILE_SIZE, Queue, QueueFile};
use abi::stat::{Attr, StatFs};
use abi::time::Timespec;
use abi::{Errno, Result};
use lock_order::{Mutex, rank};
use rights::{Cap, Perm, mode};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use vfs::inode::NewNode;
use vfs::{
    Caller, DirEntry, DirInode, DirSink, DirectoryFile, DirectoryOps, FileOps, FileSystem, Inode, InodeRef,
    OpenFile, SetAttr, access,
};

mod state;
pub use state::{MqueuesState, Restored};

const MAGIC: i64 = 0x1980_0202;
/// Bytes a name counts for in the directory's size (DIRENT_SIZE).
const DIRENT_SIZE: u64 = 20;
/// HARD_MSGMAX and HARD_MSGSIZEMAX.
pub(crate) const HARD: (i64, i64) = (65536, 16 << 20);

pub(crate) fn now() -> Timespec {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into()
}

struct Directory {
    attr: Attr,
    queues: BTreeMap<Vec<u8>, Arc<Queue>>,
    next_ino: u64,
}

/// The queues of an IPC namespace; also the file system.
pub struct Mqueues {
    dir: Mutex<Directory, { rank::IPC_TABLE }>,
    /// What each user's queues could hold.
    pub(crate) charged: Mutex<HashMap<u32, u64>>,
    /// What is in all queues.
    pub(crate) bytes: Arc<AtomicU64>,
    /// /proc/sys/fs/mqueue: queues_max, msg_max, msgsize_max, msg_default, msgsize_default.
    pub limits: [AtomicI64; 5],
    /// The namespace has ended; a mount may still be there.
    ended: AtomicBool,
    me: Weak<Mqueues>,
}

impl Mqueues {
    /// The namespace has ended: no more queues are made.
    pub fn namespace_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// User and group of the directory.
    pub fn owner(&self) -> (u32, u32) {
        let attr = self.dir.lock().attr;
        (attr.uid, attr.gid)
    }

    /// How many queues there are.
    pub fn count(&self) -> usize {
        self.dir.lock().queues.len()
    }

    /// No queues, in a file system with this device number.
    pub fn new(dev: u64) -> Arc<Mqueues> {
        Mqueues::sharing(dev, (0, 0), Arc::default())
    }

    /// No queues either, in another namespace, in a directory of this user and group; the bytes of messages count for both.
    pub fn beside(&self, dev: u64, owner: (u32, u32)) -> Arc<Mqueues> {
        Mqueues::sharing(dev, owner, self.bytes.clone())
    }

    fn sharing(dev: u64, (uid, gid): (u32, u32), bytes: Arc<AtomicU64>) -> Arc<Mqueues> {
        let t = now();
        let attr = Attr {
            dev,
            ino: 1,
            mode: libc::S_IFDIR | 0o1777,
            nlink: 2,
            uid,
            gid,
            size: 2 * DIRENT_SIZE,
            blksize: 4096,
            atime: t,
            mtime: t,
            ctime: t,
            ..Attr::default()
        };
        Arc::new_cyclic(|me| Mqueues {
            dir: Mutex::new(Directory { attr, queues: BTreeMap::new(), next_ino: 2 }),
            charged: Mutex::default(),
            bytes,
            limits: [256, 10, 8192, 10, 8192].map(AtomicI64::new),
            ended: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    fn limit(&self, i: usize) -> i64 {
        self.limits.get(i).map_or(0, |l| l.load(Ordering::Relaxed))
    }

    /// Counts a restored queue for its user, whatever the limit is by now.
    pub(crate) fn charge(&self, (uid, bytes): (u32, u64)) {
        *self.charged.lock().entry(uid).or_default() += bytes;
    }

    pub(crate) fn uncharge(&self, (uid, bytes): (u32, u64)) {
        let mut c = self.charged.lock();
        if let Some(b) = c.get_mut(&uid) {
            *b = b.saturating_sub(bytes);
            if *b == 0 {
                c.remove(&uid);
            }
        }
    }

    /// Makes a queue that does not exist; the directory is locked.
    fn make(
        &self,
        cx: &dyn Caller,
        d: &mut Directory,
        name: &[u8],
        mode: u32,
        wanted: Option<&Attributes>,
    ) -> Result<Arc<Queue>> {
        let creds = cx.creds();
        let privileged = creds.capable(Cap::SYS_RESOURCE);
        let (most, size) = (self.limit(1), self.limit(2));
        let (maxmsg, msgsize) = match wanted {
            None => (most.min(self.limit(3)), size.min(self.limit(4))),
            Some(a) => (a.maxmsg, a.msgsize),
        };
        let max = if privileged { HARD } else { (most, size) };
        if maxmsg <= 0 || msgsize <= 0 || maxmsg > max.0 || msgsize > max.1 {
            return Err(Errno::EINVAL);
        }
        if d.queues.len() >= MAX_QUEUES || d.queues.len() as i64 >= self.limit(0) && !privileged {
            return Err(Errno::ENOSPC);
        }
        let bytes = size_counted(maxmsg, msgsize);
        let limit = cx.rlimit(libc::RLIMIT_MSGQUEUE as i32);
        {
            let mut c = self.charged.lock();
            let used = c.entry(creds.uid).or_default();
            if *used + bytes > limit {
                return Err(Errno::EMFILE);
            }
            *used += bytes;
        }
        let t = now();
        let attr = Attr {
            dev: d.attr.dev,
            ino: d.next_ino,
            mode: libc::S_IFREG | mode & 0o7777,
            nlink: 1,
            uid: creds.fsuid,
            gid: creds.fsgid,
            size: FILE_SIZE,
            blksize: 4096,
            atime: t,
            mtime: t,
            ctime: t,
            ..Attr::default()
        };
        d.next_ino += 1;
        let owner = self.me.upgrade().ok_or(Errno::EIO)?;
        let q = Queue::new(owner, attr, maxmsg, msgsize, (creds.uid, bytes));
        d.queues.insert(name.to_vec(), q.clone());
        d.attr.size += DIRENT_SIZE;
        d.attr.mtime = t;
        d.attr.ctime = t;
        Ok(q)
    }

    fn node(&self, queue: Arc<Queue>, name: &[u8]) -> InodeRef {
        Arc::new(Node { queue, name: String::from_utf8_lossy(name).into_owned(), fs: self.me.clone() })
    }

    /// mq_open(2) with flags that are valid for open(2).
    pub fn open(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        flags: i32,
        mode: u32,
        wanted: Option<&Attributes>,
    ) -> Result<Arc<OpenFile>> {
        let name = checked(name)?;
        let both = libc::O_CREAT | libc::O_EXCL;
        let found = {
            let mut d = self.dir.lock();
            match d.queues.get(name).cloned() {
                Some(_) if flags & both == both => return Err(Errno::EEXIST),
                Some(q) => (q, false),
                None if flags & libc::O_CREAT == 0 => return Err(Errno::ENOENT),
                None => {
                    mode::allowed(&cx.creds(), &of(&d.attr), mode::MAY_WRITE | mode::MAY_EXEC)?;
                    (self.make(cx, &mut d, name, mode & 0o777 & !cx.umask(), wanted)?, true)
                }
            }
        };
        let inode = self.node(found.0.clone(), name);
        let want = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => mode::MAY_READ,
            libc::O_WRONLY => mode::MAY_WRITE,
            libc::O_RDWR => mode::MAY_READ | mode::MAY_WRITE,
            _ => return Err(Errno::EINVAL),
        };
        if !found.1 {
            access::inode_may(cx, &inode, want)?;
        }
        let ops = inode.open(cx, flags)?;
        let keep = libc::O_ACCMODE | libc::O_NONBLOCK;
        Ok(OpenFile::new(None, Some(inode), ops, flags & keep))
    }

    /// mq_unlink(2).
    pub fn remove(&self, cx: &dyn Caller, name: &[u8]) -> Result<()> {
        let name = checked(name)?;
        let mut d = self.dir.lock();
        let victim = of(&d.queues.get(name).ok_or(Errno::ENOENT)?.attr.lock());
        let (creds, dir) = (cx.creds(), of(&d.attr));
        mode::allowed(&creds, &dir, mode::MAY_WRITE | mode::MAY_EXEC)?;
        mode::check_sticky(&creds, &dir, &victim)?;
        take(&mut d, name)
    }
}

/// What a queue counts for, as Linux counts: the texts, and a structure for each message and each priority in use.
pub(crate) fn size_counted(maxmsg: i64, msgsize: i64) -> u64 {
    let tree = maxmsg as u64 * 48 + maxmsg.min(32768) as u64 * 40;
    (maxmsg * msgsize) as u64 + tree
}

/// What permission checks need.
fn of(attr: &Attr) -> Perm {
    Perm { mode: attr.mode, uid: attr.uid, gid: attr.gid }
}

fn take(d: &mut Directory, name: &[u8]) -> Result<()> {
    let gone = d.queues.remove(name).ok_or(Errno::ENOENT)?;
    let t = now();
    d.attr.size -= DIRENT_SIZE;
    d.attr.mtime = t;
    d.attr.ctime = t;
    gone.attr.lock().nlink = 0;
    Ok(())
}

/// A name has no slash and is neither of the two that mean a directory.
fn checked(name: &[u8]) -> Result<&[u8]> {
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EACCES),
        n if n.contains(&b'/') => Err(Errno::EACCES),
        n if n.len() > 255 => Err(Errno::ENAMETOOLONG),
        n => Ok(n),
    }
}

impl FileSystem for Mqueues {
    fn kind(&self) -> &'static str {
        "mqueue"
    }
    fn root(&self) -> InodeRef {
        Arc::new(Root(self.me.clone()))
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { f_type: MAGIC, f_bsize: 4096, f_namelen: 255, f_frsize: 4096, ..StatFs::default() })
    }
    fn revalidate(&self) -> bool {
        true
    }
}

/// The directory. It holds no state, so every caller may have its own.
struct Root(Weak<Mqueues>);

impl Root {
    fn all(&self) -> Result<Arc<Mqueues>> {
        self.0.upgrade().ok_or(Errno::EIO)
    }
}

fn fs_of(w: &Weak<Mqueues>) -> Arc<dyn FileSystem> {
    match w.upgrade() {
        Some(f) => f,
        None => Arc::new(vfs::inode::InternalFs::Anon),
    }
}

impl Inode for Root {
    fn fs(&self) -> Arc<dyn FileSystem> {
        fs_of(&self.0)
    }
    fn kind(&self) -> u32 {
        libc::S_IFDIR
    }
    fn attr(&self) -> Result<Attr> {
        Ok(self.all()?.dir.lock().attr)
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        set.apply(&mut self.all()?.dir.lock().attr, now());
        Ok(())
    }
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(DirectoryFile(RootFile(self.all()?))))
    }
    fn as_dir(&self) -> Option<&dyn DirInode> {
        Some(self)
    }
}

impl DirInode for Root {
    fn lookup(&self, _cx: &dyn Caller, name: &[u8]) -> Result<InodeRef> {
        let all = self.all()?;
        let q = all.dir.lock().queues.get(name).cloned().ok_or(Errno::ENOENT)?;
        Ok(all.node(q, name))
    }
    fn create(
        &self,
        cx: &dyn Caller,
        name: &[u8],
        node: &NewNode,
        mode: u32,
        _uid: u32,
        _gid: u32,
    ) -> Result<InodeRef> {
        if *node != NewNode::Regular {
            return Err(Errno::EPERM);
        }
        let all = self.all()?;
        if all.ended.load(Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
        let q = {
            let mut d = all.dir.lock();
            if d.queues.contains_key(name) {
                return Err(Errno::EEXIST);
            }
            all.make(cx, &mut d, name, mode, None)?
        };
        Ok(all.node(q, name))
    }
    fn unlink(&self, _cx: &dyn Caller, name: &[u8]) -> Result<()> {
        let all = self.all()?;
        let mut d = all.dir.lock();
        take(&mut d, name)
    }
}

struct RootFile(Arc<Mqueues>);

impl DirectoryOps for RootFile {
    fn read_dir(&self, _cx: &dyn Caller, _file: &OpenFile, pos: u64, sink: &mut dyn DirSink) -> Result<u64> {
        // Offset: inode number plus two; those grow with time, so the order is that of creation.
        let mut all: Vec<(u64, Vec<u8>)> =
            self.0.dir.lock().queues.iter().map(|(n, q)| (q.attr.lock().ino, n.clone())).collect();
        all.sort();
        let mut at = pos;
        for (ino, name) in all {
            if ino + 1 < pos {
                continue;
            }
            if !sink.entry(ino + 2, &DirEntry { ino, kind: libc::DT_REG, name }) {
                return Ok(at);
            }
            at = ino + 2;
        }
        Ok(at)
    }
}

/// A queue as an inode.
struct Node {
    queue: Arc<Queue>,
    name: String,
    fs: Weak<Mqueues>,
}

impl Inode for Node {
    fn fs(&self) -> Arc<dyn FileSystem> {
        fs_of(&self.fs)
    }
    fn kind(&self) -> u32 {
        libc::S_IFREG
    }
    fn attr(&self) -> Result<Attr> {
        Ok(*self.queue.attr.lock())
    }
    fn set_attr(&self, _cx: &dyn Caller, set: &SetAttr) -> Result<()> {
        set.apply(&mut self.queue.attr.lock(), now());
        Ok(())
    }
    fn open(&self, _cx: &dyn Caller, _flags: i32) -> Result<Arc<dyn FileOps>> {
        Ok(Arc::new(QueueFile { queue: self.queue.clone(), name: self.name.clone() }))
    }
}
