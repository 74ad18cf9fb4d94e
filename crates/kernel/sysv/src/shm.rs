//! Shared memory segments. See shmget(2), shmop(2), shmctl(2).
//!
//! A segment is a file in memory (tmpfs), which the host maps; each shmat(2) opens it anew with the rights it asked
//! for. Each mapping of such an open file counts itself ([`MappedFile`]), so fork, exec, exit and munmap need no code
//! here. A removed segment ends with its last mapping.

use crate::control::{self, Shown};
use crate::ids::Object;
use crate::perm::{READ, WRITE};
use crate::{Doer, IpcNamespace, IpcPerm, Perm, doer, now, vnr};
use abi::{Errno, PAGE_SIZE, Result, page_up};
use files::MappedFile;
use lock_order::{Mutex, rank};
use pid::{Pid, PidNamespace};
use rights::Cap;
use std::any::Any;
use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use vfs::{Caller, FileOps, MapOps, MapRequest, Mapping, OpenFile, SetAttr, StorageOps};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod state;
pub use state::SegmentState;

/// SHM_DEST.
const DEST: u32 = 0o1000;
/// SHM_LOCKED.
const LOCKED: u32 = 0o2000;
/// /proc/sys/vm/hugetlb_shm_group.
const HUGETLB_GROUP: u32 = 0;
/// SHM_HUGETLB.
const HUGETLB: i32 = 0o4000;

/// `struct shmid64_ds`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in the manual page")]
pub struct ShmidDs {
    pub perm: IpcPerm,
    pub segsz: u64,
    pub atime: i64,
    pub dtime: i64,
    pub ctime: i64,
    pub cpid: i32,
    pub lpid: i32,
    pub nattch: u64,
    pub unused: [u64; 2],
}

struct State {
    perm: Perm,
    atime: i64,
    dtime: i64,
    ctime: i64,
    last: Doer,
    /// IPC_RMID was called: the segment goes with its last attachment.
    removed: bool,
    locked: bool,
}

/// A segment.
pub struct Segment {
    size: u64,
    creator: Doer,
    file: Arc<OpenFile>,
    /// Mappings of it, in all processes.
    nattch: Arc<AtomicU64>,
    state: Mutex<State, { rank::IPC_OBJECT }>,
}

impl Object for Segment {
    fn perm(&self) -> Perm {
        self.state.lock().perm
    }
}

impl Shown for Segment {
    type Ds = ShmidDs;

    fn show(&self, ns: Option<&PidNamespace>) -> ShmidDs {
        let s = self.state.lock();
        let mut perm = s.perm.show();
        perm.mode |= if s.removed { DEST } else { 0 } | if s.locked { LOCKED } else { 0 };
        ShmidDs {
            perm,
            segsz: self.size,
            atime: s.atime,
            dtime: s.dtime,
            ctime: s.ctime,
            cpid: vnr(&self.creator, ns),
            lpid: vnr(&s.last, ns),
            nattch: self.nattch.load(Relaxed),
            unused: [0; 2],
        }
    }

    fn perm_in(ds: &mut ShmidDs) -> &mut IpcPerm {
        &mut ds.perm
    }
}

/// The operations of an attached segment's open file.
struct Attached {
    inner: Arc<dyn FileOps>,
    id: i32,
    nattch: Arc<AtomicU64>,
    namespace: Weak<IpcNamespace>,
}

impl FileOps for Attached {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_storage(&self) -> Option<&dyn StorageOps> {
        Some(self)
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        Some(self)
    }
}

impl StorageOps for Attached {
    fn sync(&self, _cx: &dyn Caller, _file: &OpenFile, _data_only: bool) -> Result<()> {
        Ok(())
    }
}

impl MapOps for Attached {
    fn map(&self, cx: &dyn Caller, file: &OpenFile, req: &MapRequest) -> Result<Mapping> {
        self.inner.map(cx, file, req)
    }
    fn mapped(&self) {
        self.nattch.fetch_add(1, Relaxed);
    }
    fn unmapped(&self) {
        if self.nattch.fetch_sub(1, Relaxed) == 1
            && let Some(ns) = self.namespace.upgrade()
        {
            ns.shm_detached(self.id);
        }
    }
    fn left_mapped(&self, pid: &Arc<Pid>) {
        if let Some(ns) = self.namespace.upgrade() {
            ns.shm_touch(pid, self.id, false);
        }
    }
}

/// The id of the segment that a mapped file is.
pub fn segment_of(file: &OpenFile) -> Option<i32> {
    file.ops.as_any().downcast_ref::<Attached>().map(|a| a.id)
}

/// The same with the namespace, as long as that lasts.
pub fn segment_in(file: &OpenFile) -> Option<(Arc<IpcNamespace>, i32)> {
    let attached = file.ops.as_any().downcast_ref::<Attached>()?;
    Some((attached.namespace.upgrade()?, attached.id))
}

/// What shmat(2) has to map.
pub struct Attachment {
    /// The open file; while this is held, the segment counts as attached.
    pub file: MappedFile,
    /// Length in bytes, whole pages.
    pub len: u64,
}

impl IpcNamespace {
    /// shmget(2).
    pub fn shmget(&self, cx: &dyn Caller, key: i32, size: u64, flags: i32) -> Result<i32> {
        let limits = &self.limits;
        let mut t = self.shm.lock();
        let pages: u64 = t.iter().map(|(_, s)| s.size.div_ceil(PAGE_SIZE)).sum();
        t.get(
            cx,
            (key, flags),
            (limits.shmmni.load(Relaxed), &limits.next_id[0]),
            |s| if size > s.size { Err(Errno::EINVAL) } else { Ok(()) },
            |perm| {
                if size < 1 || size > limits.shmmax.load(Relaxed) {
                    return Err(Errno::EINVAL);
                }
                let len = page_up(size).filter(|l| *l <= i64::MAX as u64).ok_or(Errno::ENOSPC)?;
                if pages + len / PAGE_SIZE > limits.shmall.load(Relaxed) {
                    return Err(Errno::ENOSPC);
                }
                if flags & HUGETLB != 0 {
                    // There are no huge pages, for callers that may have some.
                    let creds = cx.creds();
                    let may = creds.capable(Cap::IPC_LOCK) || creds.in_group(HUGETLB_GROUP);
                    return Err(if may { Errno::ENOMEM } else { Errno::EPERM });
                }
                let file = self.memfds.file(cx, format!("SYSV{key:08x}").as_bytes(), 0)?;
                let inode = file.inode.as_ref().ok_or(Errno::ENOMEM)?;
                let set = SetAttr { size: Some(len), ..SetAttr::default() };
                inode.set_attr(cx, &set).map_err(|_| Errno::ENOMEM)?;
                let state = State {
                    perm,
                    atime: 0,
                    dtime: 0,
                    ctime: now(),
                    last: None,
                    removed: false,
                    locked: false,
                };
                let nattch = Arc::default();
                Ok(Segment { size, creator: doer(cx), file, nattch, state: Mutex::new(state) })
            },
        )
    }

    /// Opens a segment for shmat(2).
    pub fn shm_open(self: &Arc<Self>, cx: &dyn Caller, id: i32, flags: i32) -> Result<Attachment> {
        let seg = self.shm.lock().find(id)?;
        let s = seg.state.lock();
        let read_only = flags & libc::SHM_RDONLY != 0;
        let mut want = if read_only { READ } else { READ | WRITE };
        if flags & libc::SHM_EXEC != 0 {
            want |= 0o111;
        }
        s.perm.check(cx, &self.user_ns, want)?;
        if s.removed && seg.nattch.load(Relaxed) == 0 {
            return Err(Errno::EIDRM);
        }
        self.attachment(&seg, id, read_only)
    }

    /// What a mapping of a segment maps.
    fn attachment(self: &Arc<Self>, seg: &Segment, id: i32, read_only: bool) -> Result<Attachment> {
        let ops = self.attached(seg, id);
        let access = if read_only { libc::O_RDONLY } else { libc::O_RDWR };
        let file = OpenFile::new(seg.file.path.clone(), seg.file.inode.clone(), Arc::new(ops), access);
        let len = page_up(seg.size).ok_or(Errno::EINVAL)?;
        Ok(Attachment { file: MappedFile::new(file), len })
    }

    fn attached(self: &Arc<Self>, seg: &Segment, id: i32) -> Attached {
        let (inner, nattch) = (seg.file.ops.clone(), seg.nattch.clone());
        Attached { inner, id, nattch, namespace: Arc::downgrade(self) }
    }

    /// A segment was attached (or detached) by the caller.
    pub fn shm_touch(&self, pid: &Arc<Pid>, id: i32, attach: bool) {
        let Ok(seg) = self.shm.lock().find(id) else { return };
        let mut s = seg.state.lock();
        *(if attach { &mut s.atime } else { &mut s.dtime }) = now();
        s.last = Some(pid.clone());
    }

    fn shm_detached(&self, id: i32) {
        // What goes is dropped when no lock is held.
        let mut gone = None;
        let mut t = self.shm.lock();
        if let Ok(seg) = t.find(id) {
            let s = seg.state.lock();
            if s.removed && seg.nattch.load(Relaxed) == 0 {
                t.remove(&s.perm);
                gone = Some(seg.clone());
            }
        }
        drop(t);
        drop(gone);
    }

    /// IPC_STAT.
    pub fn shm_stat(&self, cx: &dyn Caller, id: i32) -> Result<ShmidDs> {
        control::stat(cx, &self.shm, &self.user_ns, id)
    }

    /// SHM_STAT, SHM_STAT_ANY: the whole ID and the same.
    pub fn shm_stat_at(&self, cx: &dyn Caller, index: i32, any: bool) -> Result<(i32, ShmidDs)> {
        control::stat_at(cx, &self.shm, index, any)
    }

    /// IPC_SET.
    pub fn shm_set(&self, cx: &dyn Caller, id: i32, p: &IpcPerm) -> Result<()> {
        let seg = self.shm.lock().find(id)?;
        let mut s = seg.state.lock();
        s.perm.set(cx, &self.user_ns, p)?;
        s.ctime = now();
        Ok(())
    }

    /// IPC_RMID.
    pub fn shm_remove(&self, cx: &dyn Caller, id: i32) -> Result<()> {
        let mut t = self.shm.lock();
        let seg = t.find(id)?;
        let mut s = seg.state.lock();
        s.perm.owned(cx, &self.user_ns)?;
        if seg.nattch.load(Relaxed) == 0 {
            t.remove(&s.perm);
        } else {
            t.forget_key(s.perm.key);
            s.perm.key = crate::IPC_PRIVATE;
        }
        s.removed = true;
        drop(s);
        drop(t);
        Ok(())
    }

    /// SHM_LOCK, SHM_UNLOCK: recorded, nothing is pinned.
    pub fn shm_lock(&self, cx: &dyn Caller, id: i32, lock: bool) -> Result<()> {
        let seg = self.shm.lock().find(id)?;
        let mut s = seg.state.lock();
        if !cx.creds().ns_capable(&self.user_ns, Cap::IPC_LOCK) {
            let e = cx.creds().euid;
            if e != s.perm.uid && e != s.perm.cuid || lock && cx.rlimit(libc::RLIMIT_MEMLOCK as i32) == 0 {
                return Err(Errno::EPERM);
            }
        }
        s.locked = lock;
        Ok(())
    }

    /// IPC_INFO: `struct shminfo64`, and the highest index.
    pub fn shm_limits(&self) -> ([u64; 9], i32) {
        let l = &self.limits;
        let mni = l.shmmni.load(Relaxed);
        let info = [l.shmmax.load(Relaxed), 1, mni, mni, l.shmall.load(Relaxed), 0, 0, 0, 0];
        (info, self.shm.lock().highest())
    }

    /// SHM_INFO: `struct shm_info`, and the highest index.
    pub fn shm_usage(&self) -> ([u64; 6], i32) {
        let t = self.shm.lock();
        let pages = t.iter().map(|(_, s)| s.size.div_ceil(PAGE_SIZE)).sum();
        ([t.len() as u64, pages, 0, 0, 0, 0], t.highest())
    }

    /// /proc/sysvipc/shm, as seen from this PID namespace.
    pub fn shm_table(&self, ns: &PidNamespace) -> String {
        let mut out = String::from(
            "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      \
             atime      dtime      ctime                   rss                  swap\n",
        );
        let all: Vec<_> = self.shm.lock().iter().map(|(_, s)| s.clone()).collect();
        for seg in all {
            let (id, d) = (seg.perm().id, seg.show(Some(ns)));
            let p = d.perm;
            let _ = writeln!(
                out,
                "{:>10} {id:>10}  {:>4o} {:>21} {:>5} {:>5}  {:>5} {:>5} {:>5} {:>5} {:>5} {:>10} {:>10} {:>10} {:>21} {:>21}",
                p.key,
                p.mode,
                d.segsz,
                d.cpid,
                d.lpid,
                d.nattch,
                p.uid,
                p.gid,
                p.cuid,
                p.cgid,
                d.atime,
                d.dtime,
                d.ctime,
                0,
                0,
            );
        }
        out
    }
}
