//! Semaphore sets. See semget(2), semop(2), semctl(2).
//!
//! An array of operations happens at once or not at all: a thread that cannot go on waits for the set to change and
//! tries again. The set keeps adjustments of SEM_UNDO under the number of their [`UndoList`]. The threads of a process
//! share that list, and its end applies the adjustments.

use crate::control::{self, Shown};
use crate::ids::Object;
use crate::perm::{READ, WRITE};
use crate::{Doer, IpcNamespace, IpcPerm, Perm, doer, now, vnr};
use abi::{Errno, Result};
use caller::{Failure, Outcome};
use lock_order::{Mutex, rank};
use pid::{Pid, PidNamespace};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use vfs::Caller;
use wait::{Events, Stop, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod state;
pub use state::{SemState, SetState, UndoListState};

/// Highest value (SEMVMX).
pub const MAX_VALUE: i32 = 32767;
/// Most semaphores of a namespace: they live in the sentry.
const MAX_SEMS: u64 = 1 << 20;
/// Most bytes of adjustments of a namespace, each set's counted with [`UNDO_OVERHEAD`] more.
const MAX_UNDO_BYTES: u64 = 64 << 20;
const UNDO_OVERHEAD: u64 = 96;
/// Most sets with adjustments of one list.
const MAX_UNDO: usize = 4096;

/// `struct semid64_ds`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in the manual page")]
pub struct SemidDs {
    pub perm: IpcPerm,
    pub otime: i64,
    pub unused1: u64,
    pub ctime: i64,
    pub unused2: u64,
    pub nsems: u64,
    pub unused: [u64; 2],
}

/// `struct sembuf`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SemBuf {
    /// Number of the semaphore.
    pub num: u16,
    /// What to add; 0 waits for zero.
    pub op: i16,
    /// IPC_NOWAIT, SEM_UNDO.
    pub flags: i16,
}

/// SEM_UNDO.
const SEM_UNDO: i16 = 0x1000;
const NOWAIT: i16 = libc::IPC_NOWAIT as i16;

#[derive(Clone, Default)]
struct Sem {
    value: i32,
    pid: Doer,
}

struct State {
    perm: Perm,
    sems: Vec<Sem>,
    otime: i64,
    ctime: i64,
    removed: bool,
    undo: HashMap<u64, Vec<i16>>,
    /// The waiting threads: a number, the semaphore in the way, and whether for zero.
    waiting: Vec<(u64, u16, bool)>,
}

/// A set.
pub struct Set {
    state: Mutex<State, { rank::IPC_OBJECT }>,
    wait: WaitQueue,
    count: usize,
}

impl Object for Set {
    fn perm(&self) -> Perm {
        self.state.lock().perm
    }
}

/// The adjustments that the end of a process makes. Shared by CLONE_SYSVSEM.
pub struct UndoList {
    namespace: Arc<IpcNamespace>,
    number: u64,
    pid: Arc<Pid>,
    sets: Mutex<Vec<i32>>,
}

impl UndoList {
    /// One without adjustments, for a process.
    pub fn new(namespace: Arc<IpcNamespace>, pid: Arc<Pid>) -> Arc<UndoList> {
        let number = namespace.next_number();
        Arc::new(UndoList { namespace, number, pid, sets: Mutex::default() })
    }
}

impl Drop for UndoList {
    fn drop(&mut self) {
        for id in self.sets.get_mut().drain(..) {
            let set = self.namespace.sem.lock().find(id);
            if let Ok(set) = set
                && set.apply_undo(self.number, &self.pid)
            {
                self.namespace.undo_bytes.fetch_sub(set.undo_size(), Relaxed);
            }
        }
    }
}

/// Why operations cannot be made now.
struct Blocked(u16, bool);

impl State {
    /// Tries an array of operations; the values stay as they were unless all can be made.
    fn attempt(
        &mut self,
        ops: &[SemBuf],
        undo: Option<u64>,
        pid: Doer,
    ) -> Result<std::result::Result<(), Blocked>> {
        let mut new: HashMap<u16, i32> = HashMap::new();
        let mut adjust: HashMap<u16, i32> = HashMap::new();
        let old = undo.and_then(|n| self.undo.get(&n));
        for o in ops {
            let sem = self.sems.get(usize::from(o.num)).ok_or(Errno::EFBIG)?;
            let value = *new.get(&o.num).unwrap_or(&sem.value);
            let next = value + i32::from(o.op);
            if o.op == 0 && value != 0 || next < 0 {
                return if o.flags & NOWAIT != 0 {
                    Err(Errno::EAGAIN)
                } else {
                    Ok(Err(Blocked(o.num, o.op == 0)))
                };
            }
            if next > MAX_VALUE {
                return Err(Errno::ERANGE);
            }
            if o.flags & SEM_UNDO != 0 {
                let had = old.and_then(|u| u.get(usize::from(o.num))).copied().unwrap_or(0).into();
                let a = adjust.entry(o.num).or_insert(had);
                *a -= i32::from(o.op);
                if *a < -MAX_VALUE - 1 || *a > MAX_VALUE {
                    return Err(Errno::ERANGE);
                }
            }
            new.insert(o.num, next);
        }
        for (n, value) in new {
            if let Some(s) = self.sems.get_mut(usize::from(n)) {
                *s = Sem { value, pid: pid.clone() };
            }
        }
        if let Some(number) = undo {
            // Made by `reserve_undo`.
            if let Some(list) = self.undo.get_mut(&number) {
                for (n, a) in adjust {
                    if let Some(x) = list.get_mut(usize::from(n)) {
                        *x = a as i16;
                    }
                }
            }
        }
        self.otime = now();
        Ok(Ok(()))
    }
}

impl Set {
    /// Bytes that the adjustments of one list count for.
    fn undo_size(&self) -> u64 {
        self.count as u64 * 2 + UNDO_OVERHEAD
    }

    /// True when there were adjustments.
    fn apply_undo(&self, number: u64, pid: &Arc<Pid>) -> bool {
        let mut s = self.state.lock();
        let Some(list) = s.undo.remove(&number) else { return false };
        for (sem, adjust) in s.sems.iter_mut().zip(list).filter(|(_, a)| *a != 0) {
            let value = (sem.value + i32::from(adjust)).clamp(0, MAX_VALUE);
            *sem = Sem { value, pid: Some(pid.clone()) };
        }
        s.otime = now();
        drop(s);
        self.wait.notify(Events::ALL);
        true
    }
}

impl Shown for Set {
    type Ds = SemidDs;

    fn show(&self, _ns: Option<&PidNamespace>) -> SemidDs {
        let s = self.state.lock();
        SemidDs {
            perm: s.perm.show(),
            otime: s.otime,
            ctime: s.ctime,
            nsems: self.count as u64,
            ..SemidDs::default()
        }
    }

    fn perm_in(ds: &mut SemidDs) -> &mut IpcPerm {
        &mut ds.perm
    }
}

/// What semctl(2) asks of one semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// GETVAL.
    Value,
    /// GETPID.
    Pid,
    /// GETNCNT.
    Increase,
    /// GETZCNT.
    Zero,
}

impl IpcNamespace {
    /// semget(2).
    pub fn semget(&self, cx: &dyn Caller, key: i32, nsems: i32, flags: i32) -> Result<i32> {
        let [msl, mns, _, mni] = &self.limits.sem;
        if nsems < 0 || nsems as u64 > msl.load(Relaxed) {
            return Err(Errno::EINVAL);
        }
        let count = nsems as usize;
        let make = |perm| {
            if count == 0 {
                return Err(Errno::EINVAL);
            }
            if self.sems.load(Relaxed) + count as u64 > mns.load(Relaxed).min(MAX_SEMS) {
                return Err(Errno::ENOSPC);
            }
            self.sems.fetch_add(count as u64, Relaxed);
            let state = State {
                perm,
                sems: vec![Sem::default(); count],
                otime: 0,
                ctime: now(),
                removed: false,
                undo: HashMap::new(),
                waiting: Vec::new(),
            };
            Ok(Set { state: Mutex::new(state), wait: WaitQueue::new(), count })
        };
        let limit = (mni.load(Relaxed), &self.limits.next_id[2]);
        let fits = |s: &Set| if count > s.count { Err(Errno::EINVAL) } else { Ok(()) };
        self.sem.lock().get(cx, (key, flags), limit, fits, make)
    }

    /// semtimedop(2); `undo` gives the caller's list when an operation asks for it.
    pub fn semop(
        &self,
        cx: &dyn Caller,
        id: i32,
        ops: &[SemBuf],
        deadline: Option<Instant>,
        undo: impl FnOnce() -> Arc<UndoList>,
    ) -> Outcome<()> {
        let me = self.next_number();
        let set = self.sem.lock().find(id)?;
        if ops.iter().any(|o| usize::from(o.num) >= set.count) {
            return Err(Errno::EFBIG.into());
        }
        let alter = ops.iter().any(|o| o.op != 0);
        set.perm().check(cx, &self.user_ns, if alter { WRITE } else { READ })?;
        let list = ops.iter().any(|o| o.flags & SEM_UNDO != 0 && o.op != 0).then(undo);
        if let Some(l) = &list {
            let mut sets = l.sets.lock();
            if !sets.contains(&id) {
                if sets.len() >= MAX_UNDO {
                    return Err(Errno::ENOSPC.into());
                }
                sets.push(id);
            }
        }
        let number = list.as_ref().map(|l| l.number);
        if let Some(n) = number {
            self.reserve_undo(&set, n)?;
        }
        let mut attempt = || -> Option<Result<()>> {
            let mut s = set.state.lock();
            s.waiting.retain(|w| w.0 != me);
            if s.removed {
                return Some(Err(Errno::EIDRM));
            }
            match s.attempt(ops, number, doer(cx)) {
                Err(e) => Some(Err(e)),
                Ok(Ok(())) => Some(Ok(())),
                Ok(Err(Blocked(num, zero))) => {
                    s.waiting.push((me, num, zero));
                    None
                }
            }
        };
        let r = cx.waiter().wait_on(&set.wait, Events::ALL, deadline, &mut attempt);
        match r {
            Ok(r) => {
                r?;
                if alter {
                    set.wait.notify(Events::ALL);
                }
                Ok(())
            }
            Err(stop) => {
                set.state.lock().waiting.retain(|w| w.0 != me);
                // Never restarted.
                Err(Failure::Errno(if stop == Stop::TimedOut { Errno::EAGAIN } else { Errno::EINTR }))
            }
        }
    }

    /// Makes room for a list's adjustments. ENOSPC when there are too many in all.
    fn reserve_undo(&self, set: &Set, number: u64) -> Result<()> {
        let mut s = set.state.lock();
        if s.removed {
            return Err(Errno::EIDRM);
        }
        if let Entry::Vacant(free) = s.undo.entry(number) {
            let add = |n: u64| n.checked_add(set.undo_size()).filter(|n| *n <= MAX_UNDO_BYTES);
            self.undo_bytes.fetch_update(Relaxed, Relaxed, add).map_err(|_| Errno::ENOSPC)?;
            free.insert(vec![0; set.count]);
        }
        Ok(())
    }

    /// GETVAL, GETPID, GETNCNT, GETZCNT.
    pub fn sem_ask(&self, cx: &dyn Caller, id: i32, num: i32, what: Ask) -> Result<i32> {
        let set = self.sem.lock().find(id)?;
        let s = set.state.lock();
        s.perm.check(cx, &self.user_ns, READ)?;
        let sem = usize::try_from(num).ok().and_then(|n| s.sems.get(n)).ok_or(Errno::EINVAL)?;
        let waits = |zero| s.waiting.iter().filter(|w| i32::from(w.1) == num && w.2 == zero).count() as i32;
        Ok(match what {
            Ask::Value => sem.value,
            Ask::Pid => vnr(&sem.pid, cx.pid_ns().as_deref()),
            Ask::Increase => waits(false),
            Ask::Zero => waits(true),
        })
    }

    /// Number of semaphores, for callers that are about to set all.
    pub fn sem_count(&self, id: i32) -> Result<usize> {
        Ok(self.sem.lock().find(id)?.count)
    }

    /// GETALL.
    pub fn sem_values(&self, cx: &dyn Caller, id: i32) -> Result<Vec<u16>> {
        let set = self.sem.lock().find(id)?;
        let s = set.state.lock();
        s.perm.check(cx, &self.user_ns, READ)?;
        Ok(s.sems.iter().map(|x| x.value as u16).collect())
    }

    /// SETVAL.
    pub fn sem_set_value(&self, cx: &dyn Caller, id: i32, num: i32, value: i32) -> Result<()> {
        if !(0..=MAX_VALUE).contains(&value) {
            return Err(Errno::ERANGE);
        }
        let set = self.sem.lock().find(id)?;
        let s = set.state.lock();
        let n = usize::try_from(num).map_err(|_| Errno::EINVAL)?;
        if n >= s.sems.len() {
            return Err(Errno::EINVAL);
        }
        s.perm.check(cx, &self.user_ns, WRITE)?;
        self.change(cx, s, &set, &[(n, value)]);
        Ok(())
    }

    /// SETALL.
    pub fn sem_set_all(&self, cx: &dyn Caller, id: i32, values: &[u16]) -> Result<()> {
        let set = self.sem.lock().find(id)?;
        let s = set.state.lock();
        s.perm.check(cx, &self.user_ns, WRITE)?;
        if values.iter().any(|v| i32::from(*v) > MAX_VALUE) {
            return Err(Errno::ERANGE);
        }
        let all: Vec<_> = values.iter().map(|v| i32::from(*v)).enumerate().collect();
        self.change(cx, s, &set, &all);
        Ok(())
    }

    fn change(
        &self,
        cx: &dyn Caller,
        mut s: lock_order::MutexGuard<'_, State, { rank::IPC_OBJECT }>,
        set: &Set,
        values: &[(usize, i32)],
    ) {
        let pid = doer(cx);
        for &(n, value) in values {
            if let Some(x) = s.sems.get_mut(n) {
                *x = Sem { value, pid: pid.clone() };
            }
            // What was to be undone is settled.
            for u in s.undo.values_mut() {
                if let Some(a) = u.get_mut(n) {
                    *a = 0;
                }
            }
        }
        s.ctime = now();
        drop(s);
        set.wait.notify(Events::ALL);
    }

    /// IPC_STAT.
    pub fn sem_stat(&self, cx: &dyn Caller, id: i32) -> Result<SemidDs> {
        control::stat(cx, &self.sem, &self.user_ns, id)
    }

    /// SEM_STAT, SEM_STAT_ANY: the whole ID and the same.
    pub fn sem_stat_at(&self, cx: &dyn Caller, index: i32, any: bool) -> Result<(i32, SemidDs)> {
        control::stat_at(cx, &self.sem, index, any)
    }

    /// IPC_SET.
    pub fn sem_set(&self, cx: &dyn Caller, id: i32, p: &IpcPerm) -> Result<()> {
        let set = self.sem.lock().find(id)?;
        let mut s = set.state.lock();
        s.perm.set(cx, &self.user_ns, p)?;
        s.ctime = now();
        Ok(())
    }

    /// IPC_RMID.
    pub fn sem_remove(&self, cx: &dyn Caller, id: i32) -> Result<()> {
        let set = {
            let mut t = self.sem.lock();
            let set = t.find(id)?;
            let mut s = set.state.lock();
            s.perm.owned(cx, &self.user_ns)?;
            t.remove(&s.perm);
            s.removed = true;
            self.undo_bytes.fetch_sub(s.undo.len() as u64 * set.undo_size(), Relaxed);
            s.undo.clear();
            drop(s);
            set
        };
        self.sems.fetch_sub(set.count as u64, Relaxed);
        set.wait.notify(Events::ALL);
        Ok(())
    }

    /// IPC_INFO and, with `usage`, SEM_INFO: `struct seminfo`, and the highest index.
    pub fn sem_info(&self, usage: bool) -> ([i32; 10], i32) {
        let [msl, mns, opm, mni] =
            self.limits.sem.each_ref().map(|v| v.load(Relaxed).min(i32::MAX as u64) as i32);
        let t = self.sem.lock();
        let (usz, aem) =
            if usage { (t.len() as i32, self.sems.load(Relaxed) as i32) } else { (20, MAX_VALUE) };
        ([mns, mni, mns, mns, msl, opm, opm, usz, MAX_VALUE, aem], t.highest())
    }

    /// /proc/sysvipc/sem.
    pub fn sem_table(&self) -> String {
        let mut out = String::from(
            "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n",
        );
        let all: Vec<_> = self.sem.lock().iter().map(|(_, s)| s.clone()).collect();
        for set in all {
            let (id, d) = (set.perm().id, set.show(None));
            let p = d.perm;
            let _ = writeln!(
                out,
                "{:>10} {id:>10}  {:>4o} {:>10} {:>5} {:>5} {:>5} {:>5} {:>10} {:>10}",
                p.key, p.mode, d.nsems, p.uid, p.gid, p.cuid, p.cgid, d.otime, d.ctime,
            );
        }
        out
    }
}
