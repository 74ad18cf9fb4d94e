//! File locks: flock(2), POSIX record locks and open-file-description locks (fcntl(2)).
//!
//! The records hang on the inode. Record locks belong to a descriptor table
//! (POSIX) or to an open file (OFD), flock locks to an open file. Waiting goes
//! through one queue per inode; waits of POSIX locks are entered in one global
//! list in which a cycle is a deadlock (EDEADLK).

use crate::caller::Caller;
use crate::file::OpenFile;
use crate::retry::{Failure, Outcome, retry_on};
use abi::{Errno, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use wait::{Events, WaitQueue};

/// Who holds a record lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A descriptor table.
    Posix(u64),
    /// An open file.
    File(u64),
}

/// Type of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// F_RDLCK, LOCK_SH
    Shared,
    /// F_WRLCK, LOCK_EX
    Exclusive,
}

/// A locked range; `end` is the last byte in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Holder.
    pub owner: Owner,
    /// Process that took it, for F_GETLK; -1 for open-file-description locks.
    pub pid: i32,
    /// Type.
    pub kind: Kind,
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` is "to the end".
    pub end: u64,
}

impl Range {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }
}

/// "To the end of the file".
pub const TO_END: u64 = i64::MAX as u64;

#[derive(Default)]
struct Records(Vec<Range>);

impl Records {
    fn conflict(&self, owner: Owner, kind: Kind, start: u64, end: u64) -> Option<Range> {
        let clash = |r: &&Range| {
            r.owner != owner
                && r.overlaps(start, end)
                && (kind == Kind::Exclusive || r.kind == Kind::Exclusive)
        };
        self.0.iter().find(clash).copied()
    }

    /// Takes `start..=end` away from `owner`, splitting what sticks out; says whether anything was held.
    fn clear(&mut self, owner: Owner, start: u64, end: u64) -> bool {
        let mut rest = Vec::new();
        let before = self.0.len();
        self.0.retain(|r| {
            if r.owner != owner || !r.overlaps(start, end) {
                return true;
            }
            if r.start < start {
                rest.push(Range { end: start - 1, ..*r });
            }
            if r.end > end {
                rest.push(Range { start: end + 1, ..*r });
            }
            false
        });
        let any = self.0.len() != before;
        self.0.append(&mut rest);
        any
    }

    fn set(&mut self, mut new: Range) {
        self.clear(new.owner, new.start, new.end);
        // Merge with neighbours of the same type.
        self.0.retain(|r| {
            let touches = r.owner == new.owner
                && r.kind == new.kind
                && (r.end.checked_add(1) == Some(new.start) || new.end.checked_add(1) == Some(r.start));
            if touches {
                new.start = new.start.min(r.start);
                new.end = new.end.max(r.end);
            }
            !touches
        });
        self.0.push(new);
        self.0.sort_by_key(|r| r.start);
    }
}

/// The locks on one inode.
#[derive(Default)]
struct Locks {
    records: Mutex<Records>,
    flocks: Mutex<Vec<(u64, Kind)>>,
    queue: WaitQueue,
}

/// (waiter, holder) pairs of POSIX locks.
static WAITS: Mutex<Vec<(Owner, Owner)>> = Mutex::new(Vec::new());

struct Waiting(Owner);

impl Waiting {
    /// Enters the wait, or EDEADLK.
    fn enter(who: Owner, on: Owner) -> Result<Waiting> {
        let mut w = WAITS.lock();
        let mut seen = vec![on];
        let mut i = 0;
        while i < seen.len() {
            if seen[i] == who {
                return Err(Errno::EDEADLK);
            }
            for (a, b) in w.iter() {
                if *a == seen[i] && !seen.contains(b) {
                    seen.push(*b);
                }
            }
            i += 1;
        }
        w.push((who, on));
        Ok(Waiting(who))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut w = WAITS.lock();
        if let Some(i) = w.iter().position(|(a, _)| *a == self.0) {
            w.swap_remove(i);
        }
    }
}

fn locks_of(file: &OpenFile) -> Result<Arc<Locks>> {
    let a = file.inode.as_ref().and_then(|i| i.attachments()).ok_or(Errno::ENOLCK)?;
    Ok(a.get_or(Locks::default))
}

fn existing(file: &OpenFile) -> Option<Arc<Locks>> {
    file.inode.as_ref()?.attachments()?.get::<Locks>()
}

/// The range of a `struct flock` on this file; EINVAL, EOVERFLOW.
pub fn range_of(file: &OpenFile, whence: i32, start: i64, len: i64) -> Result<(u64, u64)> {
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => *file.pos.lock() as i64,
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
    Ok(existing(file).and_then(|l| l.records.lock().conflict(owner, kind, start, end)))
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
            && l.records.lock().clear(owner, start, end)
        {
            l.queue.notify(Events::ALL);
        }
        return Ok(());
    };
    let l = locks_of(file)?;
    file.mark_locked();
    let pid = if matches!(owner, Owner::Posix(_)) { cx.pid() } else { -1 };
    let mut waiting = None;
    let attempt = || {
        let mut r = l.records.lock();
        waiting = None;
        if let Some(c) = r.conflict(owner, kind, start, end) {
            if wait && matches!(owner, Owner::Posix(_)) {
                waiting = Some(Waiting::enter(owner, c.owner)?);
            }
            return Err(Errno::EAGAIN);
        }
        r.set(Range { owner, pid, kind, start, end });
        Ok(())
    };
    let mut attempt = attempt;
    if !wait {
        return attempt().map_err(Failure::Errno);
    }
    let done = retry_on(cx, &l.queue, Events::ALL, None, attempt);
    // A lock that shrank from exclusive to shared, or gave up bytes, may let others in.
    l.queue.notify(Events::ALL);
    done
}

/// flock(2). `kind` `None` unlocks.
pub fn flock(cx: &dyn Caller, file: &OpenFile, kind: Option<Kind>, wait: bool) -> Outcome<()> {
    let me = file.id;
    let drop_mine = |l: &Locks| {
        let mut f = l.flocks.lock();
        let n = f.len();
        f.retain(|(id, _)| *id != me);
        f.len() != n
    };
    let Some(kind) = kind else {
        if let Some(l) = existing(file)
            && drop_mine(&l)
        {
            l.queue.notify(Events::ALL);
        }
        return Ok(());
    };
    let l = locks_of(file)?;
    file.mark_locked();
    if l.flocks.lock().contains(&(me, kind)) {
        return Ok(());
    }
    // Converting is not atomic: the old lock goes first.
    if drop_mine(&l) {
        l.queue.notify(Events::ALL);
    }
    let attempt = || {
        let mut f = l.flocks.lock();
        let clash = |(id, k): &(u64, Kind)| *id != me && (kind == Kind::Exclusive || *k == Kind::Exclusive);
        if f.iter().any(clash) {
            return Err(Errno::EAGAIN);
        }
        f.push((me, kind));
        Ok(())
    };
    if wait { retry_on(cx, &l.queue, Events::ALL, None, attempt) } else { attempt().map_err(Failure::Errno) }
}

/// Closing any descriptor of a file releases the table's POSIX locks on it.
pub(crate) fn posix_release(file: &OpenFile, table: u64) {
    if let Some(l) = existing(file) {
        let any = l.records.lock().clear(Owner::Posix(table), 0, TO_END);
        if any {
            l.queue.notify(Events::ALL);
        }
    }
}

/// The last reference to an open file is gone: its flock and OFD locks are as well.
pub(crate) fn file_release(file: &OpenFile) {
    if let Some(l) = existing(file) {
        l.flocks.lock().retain(|(id, _)| *id != file.id);
        l.records.lock().clear(Owner::File(file.id), 0, TO_END);
        l.queue.notify(Events::ALL);
    }
}
