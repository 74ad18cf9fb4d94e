//! File locks: flock(2), POSIX record locks and open-file-description locks (fcntl(2)).
//!
//! The records hang on the inode. Record locks belong to a descriptor table
//! (POSIX) or to an open file (OFD), flock locks to an open file. Waiting goes
//! through one queue per inode; waits of POSIX locks are entered in one global
//! list in which a cycle is a deadlock (EDEADLK). Files that others outside this kernel can lock are locked on the host as
//! well ([`crate::host`]). A checkpoint keeps what [`LocksState`] has.

use crate::helper::{HostWait, Wanted};
use crate::host::{self, HostFlock, HostRecords};
use abi::{Errno, Result};
use caller::lock_waits::Waiting;
use caller::pace::Pace;
use caller::quota::{self, Charge};
use caller::retry::{Failure, Outcome, retry_paced};
use hostsys::fs::HostLock;
use lock_order::{Mutex, rank};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;
use vfs::file::LockFile;
use vfs::{Caller, OpenFile};
use wait::{Events, WaitQueue};

mod state;
pub use crate::host::{Kind, TO_END};
pub use caller::lock_waits::Owner;
pub use state::{LocksState, restore, state};

/// A locked range; `end` is the last byte in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Range {
    /// Holder.
    pub owner: Owner,
    /// Process that took it, for F_GETLK; -1 for open-file-description locks, 0 for a process outside.
    pub pid: i32,
    /// Type.
    pub kind: Kind,
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` is "to the end".
    pub end: u64,
}

/// The record locks of an inode: of each owner its ranges by their first byte. Those of one owner never overlap, so a
/// look at one place takes as long as the number of owners, not of ranges.
#[derive(Default)]
struct Records {
    of: HashMap<Owner, BTreeMap<u64, Range>>,
    count: u64,
    /// What is charged for the ranges, from the first one on.
    charge: Option<Charge>,
    /// What the host has of them.
    host: HostRecords,
}

/// The ranges of one owner that meet `start..=end`, the last one first.
fn meeting(ranges: &BTreeMap<u64, Range>, start: u64, end: u64) -> impl Iterator<Item = &Range> {
    ranges.range(..=end).rev().map(|(_, r)| r).take_while(move |r| r.end >= start)
}

impl Records {
    /// Charges what setting a range may need; ENOLCK when there are too many.
    fn make_room(&mut self, cx: &dyn Caller, on_host: bool) -> Result<()> {
        // A range may split another one, and is one itself.
        let most = self.count + 2;
        if on_host && most > host::RANGES {
            return Err(Errno::ENOLCK);
        }
        match &mut self.charge {
            Some(c) => c.resize(most),
            None => {
                let kind = if on_host { quota::Kind::HostLocks } else { quota::Kind::Locks };
                self.charge = cx.quotas().account(cx.creds().uid).charge(kind, most);
                self.charge.is_some()
            }
        }
        .then_some(())
        .ok_or(Errno::ENOLCK)
    }

    /// Takes a range that is free inside, on the host first; EAGAIN when a process outside has it.
    fn take(&mut self, cx: &dyn Caller, file: &OpenFile, new: Range) -> Result<()> {
        let of = &self.of;
        let held = || host::merged(of.values().flat_map(|m| m.values().map(|r| (r.start, r.end))).collect());
        let on_host = self.host.prepare(file, new.kind, held)?;
        let taken = self
            .make_room(cx, on_host)
            .and_then(|()| self.host.lock(new.kind, new.start, new.end, self.of.is_empty()));
        if taken.is_ok() {
            self.set(new);
        }
        self.settle();
        taken
    }

    /// Takes a range that is free inside and that `won` has on the host. EAGAIN when a process outside has taken it again.
    fn take_over(&mut self, cx: &dyn Caller, file: &OpenFile, new: Range, won: LockFile) -> Result<()> {
        if self.of.is_empty() {
            self.make_room(cx, true)?;
            self.host.adopt(won);
            self.set(new);
            self.settle();
            return Ok(());
        }
        // One description holds all ranges of the file. Two can share a range, so a shared one passes on without a gap.
        let shared = (new.kind == Kind::Shared).then_some(won);
        let taken = self.take(cx, file, new);
        drop(shared);
        taken
    }

    /// `owner` has a part of `start..=end`, which another description of ours would wait for.
    fn has_part(&self, owner: Owner, start: u64, end: u64) -> bool {
        self.of.get(&owner).is_some_and(|mine| meeting(mine, start, end).next().is_some())
    }

    /// Takes `start..=end` away from `owner`, here and then on the host; says whether anything was held.
    fn release(&mut self, owner: Owner, start: u64, end: u64) -> bool {
        let gone = self.clear(owner, start, end);
        let (Some(last), Some(first)) = (gone.first(), gone.last()) else { return false };
        self.settle();
        if self.of.is_empty() {
            self.host.end();
            return true;
        }
        // Where there was no lock nothing has to be given back: one call is enough for several ranges.
        let (start, end) = (start.max(first.start), end.min(last.end));
        let of = &self.of;
        let held = || of.values().flat_map(|m| meeting(m, start, end).map(|r| (r.start, r.end))).collect();
        self.host.unlock(start, end, held);
        true
    }

    /// Charges what there is.
    fn settle(&mut self) {
        if let Some(c) = &mut self.charge {
            c.resize(self.count);
        }
    }

    /// The first range of others that stands in the way.
    fn conflict(&self, owner: Owner, kind: Kind, start: u64, end: u64) -> Option<Range> {
        let others = self.of.iter().filter(|(o, _)| **o != owner);
        let clash = |r: &&Range| kind == Kind::Exclusive || r.kind == Kind::Exclusive;
        others
            .filter_map(|(_, m)| meeting(m, start, end).filter(clash).last())
            .min_by_key(|r| r.start)
            .copied()
    }

    /// Takes `start..=end` away from `owner`, splitting what sticks out. Returns the ranges that were met, the last one first.
    fn clear(&mut self, owner: Owner, start: u64, end: u64) -> Vec<Range> {
        let Some(mine) = self.of.get_mut(&owner) else { return Vec::new() };
        let gone: Vec<Range> = meeting(mine, start, end).copied().collect();
        let before = mine.len() as u64;
        for r in &gone {
            mine.remove(&r.start);
            if r.start < start {
                mine.insert(r.start, Range { end: start - 1, ..*r });
            }
            if r.end > end {
                mine.insert(end + 1, Range { start: end + 1, ..*r });
            }
        }
        self.count = self.count + mine.len() as u64 - before;
        if mine.is_empty() {
            self.of.remove(&owner);
        }
        gone
    }

    fn set(&mut self, mut new: Range) {
        self.clear(new.owner, new.start, new.end);
        let mine = self.of.entry(new.owner).or_default();
        let before = mine.len() as u64;
        // Merge with neighbours of the same type.
        let left = mine.range(..new.start).next_back().map(|(_, r)| *r);
        if let Some(l) = left.filter(|l| l.kind == new.kind && l.end + 1 == new.start) {
            mine.remove(&l.start);
            new.start = l.start;
        }
        let right = new.end.checked_add(1).and_then(|at| mine.get(&at).copied());
        if let Some(r) = right.filter(|r| r.kind == new.kind) {
            mine.remove(&r.start);
            new.end = r.end;
        }
        mine.insert(new.start, new);
        self.count = self.count + mine.len() as u64 - before;
    }
}

/// The locks on one inode.
#[derive(Default)]
struct Locks {
    records: Mutex<Records, { rank::RECORD_LOCKS }>,
    flocks: Mutex<Flocks, { rank::RECORD_LOCKS }>,
    queue: WaitQueue,
}

/// The flock(2) locks on an inode, by open file.
#[derive(Default)]
struct Flocks {
    held: Vec<(u64, Kind)>,
    host: HostFlock,
}

impl Flocks {
    /// Takes the lock of an open file away; says whether there was one.
    fn release(&mut self, id: u64) -> bool {
        let held = self.take_away(id);
        if self.held.is_empty() {
            self.host.end();
        }
        held
    }

    /// As [`Flocks::release`], without a look at the host.
    fn take_away(&mut self, id: u64) -> bool {
        let n = self.held.len();
        self.held.retain(|(of, _)| *of != id);
        self.held.len() != n
    }
}

fn locks_of(file: &OpenFile) -> Result<Arc<Locks>> {
    let a = file.inode.as_ref().and_then(|i| i.attachments()).ok_or(Errno::ENOLCK)?;
    Ok(a.get_or(Locks::default))
}

fn existing(file: &OpenFile) -> Option<Arc<Locks>> {
    file.inode.as_ref()?.attachments()?.get::<Locks>()
}

/// The range of a `struct flock` on this file; EINVAL, EOVERFLOW; EINTR for a thread that is killed.
pub fn range_of(cx: &dyn Caller, file: &OpenFile, whence: i32, start: i64, len: i64) -> Result<(u64, u64)> {
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => *file.hold_position(cx)? as i64,
        libc::SEEK_END => file.attr()?.size as i64,
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(start).ok_or(Errno::EOVERFLOW)?;
    let (s, e) = match len {
        0 => (start, i64::MAX),
        n if n > 0 => (start, start.checked_add(n - 1).ok_or(Errno::EOVERFLOW)?),
        n => (start.checked_add(n).ok_or(Errno::EINVAL)?, start - 1),
    };
    if s < 0 || start < 0 {
        return Err(Errno::EINVAL);
    }
    Ok((s as u64, e as u64))
}

/// F_GETLK, F_OFD_GETLK: the first lock that stands in the way.
pub fn test(file: &OpenFile, owner: Owner, kind: Kind, start: u64, end: u64) -> Result<Option<Range>> {
    let l = existing(file);
    let outside = match &l {
        Some(l) => {
            let r = l.records.lock();
            if let Some(c) = r.conflict(owner, kind, start, end) {
                return Ok(Some(c));
            }
            r.host.test(file, kind, start, end)?
        }
        None => HostRecords::default().test(file, kind, start, end)?,
    };
    Ok(outside.map(|(lock, start, end, pid)| {
        let kind = if lock == HostLock::Shared { Kind::Shared } else { Kind::Exclusive };
        // A process of the host is in no PID namespace that a program here knows.
        Range { owner: Owner::Outside, pid: pid.min(0), kind, start, end }
    }))
}

/// F_SETLK, F_SETLKW and their OFD forms. `kind` `None` unlocks.
pub fn set(
    cx: &dyn Caller,
    file: &OpenFile,
    owner: Owner,
    kind: Option<Kind>,
    start: u64,
    end: u64,
    wait: bool,
) -> Outcome<()> {
    let Some(kind) = kind else {
        if let Some(l) = existing(file)
            && l.records.lock().release(owner, start, end)
        {
            l.queue.notify(Events::ALL);
        }
        return Ok(());
    };
    let l = locks_of(file)?;
    release_with(file, &l);
    let pid = if matches!(owner, Owner::Posix(_)) { cx.pid() } else { -1 };
    let mut waiting = None;
    let turn = Turn::new(cx, file, &l);
    let mut attempt = || {
        let won = turn.won();
        let mut r = l.records.lock();
        waiting = None;
        if let Some(c) = r.conflict(owner, kind, start, end) {
            turn.outside.set(false);
            if wait && matches!(owner, Owner::Posix(_)) {
                waiting = Some(Waiting::enter(&cx.resources().lock_waits, owner, c.owner)?);
            }
            return Err(Errno::EAGAIN);
        }
        turn.outside.set(true);
        let new = Range { owner, pid, kind, start, end };
        let taken = match won {
            Some(won) => r.take_over(cx, file, new, won),
            None => r.take(cx, file, new),
        };
        if taken == Err(Errno::EAGAIN) && wait && !r.has_part(owner, start, end) {
            turn.wait(Wanted::Range(host::of(kind), start, end));
        }
        taken
    };
    let done = match wait {
        false => attempt().map_err(Failure::Errno),
        true => retry_paced(cx, &l.queue, Events::ALL, || turn.again(), attempt),
    };
    // A lock that shrank from exclusive to shared may let others in.
    if done.is_ok() && kind == Kind::Shared {
        l.queue.notify(Events::ALL);
    }
    done
}

/// flock(2). `kind` `None` unlocks.
pub fn flock(cx: &dyn Caller, file: &OpenFile, kind: Option<Kind>, wait: bool) -> Outcome<()> {
    let me = file.id;
    let Some(kind) = kind else {
        if let Some(l) = existing(file)
            && l.flocks.lock().release(me)
        {
            l.queue.notify(Events::ALL);
        }
        return Ok(());
    };
    let l = locks_of(file)?;
    release_with(file, &l);
    let turn = Turn::new(cx, file, &l);
    let attempt = || {
        let won = turn.won();
        let mut f = l.flocks.lock();
        if f.held.contains(&(me, kind)) {
            return Ok(());
        }
        // The lock of the other kind goes, whether or not the new one is free. Nobody else gets a turn between the two.
        let converts = f.take_away(me);
        let clash = |(_, k): &(u64, Kind)| kind == Kind::Exclusive || *k == Kind::Exclusive;
        let inside = f.held.iter().any(clash);
        turn.outside.set(!inside);
        let shared = !f.held.is_empty();
        let taken = match won {
            _ if inside => Err(Errno::EAGAIN),
            Some(won) if !shared => {
                f.host.adopt(won);
                Ok(())
            }
            _ => f.host.lock(file, kind, shared),
        };
        if taken.is_err() && !shared {
            f.host.end();
        }
        if taken.is_ok() {
            f.held.push((me, kind));
        }
        drop(f);
        if converts {
            l.queue.notify(Events::ALL);
        }
        if inside {
            return taken;
        }
        if taken == Err(Errno::EAGAIN) && wait {
            turn.wait(Wanted::File(host::of(kind)));
        }
        taken
    };
    if !wait {
        return attempt().map_err(Failure::Errno);
    }
    retry_paced(cx, &l.queue, Events::ALL, || turn.again(), attempt)
}

/// One thread's wait for a lock that a process outside holds.
struct Turn<'a> {
    cx: &'a dyn Caller,
    file: &'a OpenFile,
    locks: &'a Locks,
    pace: Pace<'a>,
    /// A process outside is in the way, and none inside.
    outside: Cell<bool>,
    /// The helping thread.
    helper: RefCell<Option<HostWait>>,
    /// The host cannot wait for this lock.
    refused: Cell<bool>,
}

impl<'a> Turn<'a> {
    fn new(cx: &'a dyn Caller, file: &'a OpenFile, locks: &'a Locks) -> Turn<'a> {
        let pace = Pace::new(&cx.resources().outside_waits);
        let (outside, refused) = (Cell::new(false), Cell::new(false));
        Turn { cx, file, locks, pace, outside, helper: RefCell::default(), refused }
    }

    /// The description with which the helping thread has got the lock.
    fn won(&self) -> Option<LockFile> {
        let mut helper = self.helper.borrow_mut();
        let result = helper.as_ref()?.won()?;
        *helper = None;
        self.refused.set(result.is_err());
        result.ok()
    }

    /// Has a thread wait for the lock, if there is none yet.
    fn wait(&self, wanted: Wanted) {
        let mut helper = self.helper.borrow_mut();
        if helper.is_some() || self.refused.get() {
            return;
        }
        let Some(slot) = self.cx.resources().outside_waits.helper() else { return };
        let file = self.file.ops.as_storage().and_then(|storage| storage.lock_file_anew(self.file));
        *helper = file.and_then(|file| HostWait::begin(slot, file, wanted, &self.locks.queue));
    }

    /// When to ask again, where there is no notification.
    fn again(&self) -> Option<Instant> {
        (self.outside.get() && self.helper.borrow().is_none()).then(|| self.pace.next())
    }
}

/// Closing any descriptor of a file releases the table's POSIX locks on it.
pub fn posix_release(file: &OpenFile, table: u64) {
    if let Some(l) = existing(file)
        && l.records.lock().release(Owner::Posix(table), 0, TO_END)
    {
        l.queue.notify(Events::ALL);
    }
}

/// The flock(2) and open-file-description locks of an open file, released when it is closed for good.
struct FileLocks {
    locks: Arc<Locks>,
    file: u64,
}

impl Drop for FileLocks {
    fn drop(&mut self) {
        self.locks.flocks.lock().release(self.file);
        self.locks.records.lock().release(Owner::File(self.file), 0, TO_END);
        self.locks.queue.notify(Events::ALL);
    }
}

/// Locks may be held in the name of `file` from now on, until it is closed.
fn release_with(file: &OpenFile, locks: &Arc<Locks>) {
    file.release_with(|| Box::new(FileLocks { locks: locks.clone(), file: file.id }));
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Owner = Owner::Posix(1);
    const OTHER: Owner = Owner::File(2);

    fn range(owner: Owner, kind: Kind, start: u64, end: u64) -> Range {
        Range { owner, pid: 1, kind, start, end }
    }

    fn held(r: &Records, owner: Owner) -> Vec<(u64, u64)> {
        r.of.get(&owner).map_or(Vec::new(), |m| m.values().map(|r| (r.start, r.end)).collect())
    }

    #[test]
    fn ranges_split_and_merge() {
        let mut r = Records::default();
        r.set(range(ME, Kind::Shared, 10, 19));
        r.set(range(ME, Kind::Shared, 30, 39));
        r.set(range(ME, Kind::Shared, 20, 29));
        assert_eq!(held(&r, ME), [(10, 39)]);
        r.set(range(ME, Kind::Exclusive, 15, 17));
        assert_eq!(held(&r, ME), [(10, 14), (15, 17), (18, 39)]);
        assert_eq!(r.clear(ME, 12, 30).len(), 3);
        assert_eq!(held(&r, ME), [(10, 11), (31, 39)]);
        r.set(range(ME, Kind::Shared, 0, TO_END));
        assert_eq!((held(&r, ME), r.count), (vec![(0, TO_END)], 1));
        assert_eq!([5, 5, 0].map(|at| r.clear(ME, at, TO_END).len()), [1, 0, 1]);
        assert!(r.of.is_empty() && r.count == 0);
    }

    #[test]
    fn ranges_are_counted() {
        let mut r = Records::default();
        for i in 0..10 {
            r.make_room(&vfs::testing::TestCaller::root(), false).unwrap();
            r.set(range(ME, Kind::Exclusive, i * 10, i * 10 + 5));
            r.settle();
        }
        let charged = |r: &Records| r.charge.as_ref().map(Charge::count);
        assert_eq!((r.count, charged(&r)), (10, Some(10)));
        r.clear(ME, 2, 3);
        r.clear(ME, 20, 60);
        r.settle();
        assert_eq!((r.count, charged(&r)), (7, Some(7)));
        r.clear(ME, 0, TO_END);
        r.settle();
        assert_eq!((r.count, charged(&r)), (0, Some(0)));
    }

    #[test]
    fn the_first_conflict_of_others_counts() {
        let mut r = Records::default();
        r.set(range(ME, Kind::Exclusive, 0, TO_END));
        assert_eq!(r.conflict(ME, Kind::Exclusive, 0, TO_END), None);
        r.clear(ME, 0, TO_END);
        r.set(range(OTHER, Kind::Shared, 10, 19));
        r.set(range(OTHER, Kind::Exclusive, 20, 29));
        r.set(range(Owner::Posix(3), Kind::Shared, 5, 50));
        let first = |kind, start, end| r.conflict(ME, kind, start, end).map(|r| r.start);
        assert_eq!(first(Kind::Shared, 0, 100), Some(20));
        assert_eq!(first(Kind::Exclusive, 0, 100), Some(5));
        assert_eq!(first(Kind::Exclusive, 0, 4), None);
        assert_eq!(first(Kind::Shared, 30, TO_END), None);
        assert_eq!(first(Kind::Shared, 29, 29), Some(20));
    }
}
