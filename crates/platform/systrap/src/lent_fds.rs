//! Descriptors lent to a stub process. Its threads use them to read large pieces of files directly into their memory.
//!
//! Natively such a read is one copy in one processor's cache. Through the slot it is two copies, and the bytes go from
//! one processor to another. A file is lent when the process has read enough of it in large pieces, because passing a
//! descriptor costs more than some reads. The guest could map the same descriptor. It is taken back when the guest
//! closes any descriptor, or when the kernel has closed the file.
//!
//! A process has [`LENT`] numbers for them, beyond those that the host gives out for mappings. A number keeps its file while a
//! thread is about to use it, so a read never finds another file there.

use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use stub::layout::LENT;

/// Large reads of a file before it is lent.
const EARN: u32 = 4;
/// The same, at most, where descriptors are closed all the time.
const MAX_EARN: u32 = 1024;
/// A file that was read less often than this while it was lent was lent too soon.
const WORTH: u32 = 16;
/// A file that has not been read for so many large reads makes room.
const IDLE: u64 = 64;

/// What the process has at one number, or is to have.
#[derive(Default)]
struct Entry {
    /// The file that reads are counted for; none, or one that is gone, when the number is free.
    file: Weak<OwnedFd>,
    reads: u32,
    /// Threads that are about to use the number.
    users: u32,
    /// The process has been given the file.
    held: bool,
    /// The process may have a descriptor there, perhaps of a former file.
    open: bool,
    /// [`Table::clock`] at the last read.
    used: u64,
}

impl Entry {
    fn is_of(&self, fd: &Arc<OwnedFd>) -> bool {
        std::ptr::eq(self.file.as_ptr(), Arc::as_ptr(fd))
    }
    fn is_free(&self) -> bool {
        self.file.strong_count() == 0
    }
}

#[derive(Default)]
struct Table {
    entries: [Entry; LENT as usize],
    clock: u64,
    /// Large reads before a file is lent, above [`EARN`].
    more: u32,
}

/// The descriptors of one process.
#[derive(Default)]
pub(crate) struct Lent {
    table: Mutex<Table>,
    /// How many entries are `open`.
    open: AtomicU32,
    /// Something was lent at some time: a fork may have copies.
    ever: AtomicBool,
}

/// A number that a thread may use, until [`Lent::done`].
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) index: usize,
    /// The process has to be given the file first.
    pub(crate) give: bool,
}

impl Lent {
    /// A thread wants to make a large read of a file.
    pub(crate) fn turn(&self, fd: &Arc<OwnedFd>) -> Option<Turn> {
        let mut table = self.table.lock();
        table.clock += 1;
        let (now, earn) = (table.clock, EARN + table.more);
        let known = table.entries.iter().position(|e| e.is_of(fd));
        let index = known.or_else(|| {
            let usable = |e: &Entry| e.users == 0 && (e.is_free() || now - e.used > IDLE);
            let index = (0..LENT as usize).filter(|i| table.entries.get(*i).is_some_and(usable));
            let index = index.min_by_key(|i| table.entries.get(*i).map(|e| (!e.is_free(), e.used)))?;
            let entry = table.entries.get_mut(index)?;
            *entry = Entry { file: Arc::downgrade(fd), open: entry.open, ..Entry::default() };
            Some(index)
        })?;
        let entry = table.entries.get_mut(index)?;
        entry.used = now;
        entry.reads = entry.reads.saturating_add(1);
        // Another thread is giving it to the process just now.
        if entry.reads <= earn || !entry.held && entry.users > 0 {
            return None;
        }
        entry.users += 1;
        if !entry.open {
            entry.open = true;
            self.open.fetch_add(1, Relaxed);
            self.ever.store(true, Relaxed);
        }
        Some(Turn { index, give: !entry.held })
    }

    /// The read has been made, or has failed: then the file must earn it again.
    pub(crate) fn done(&self, turn: Turn, well: bool) {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(turn.index) else { return };
        entry.users = entry.users.saturating_sub(1);
        entry.held = well;
        if !well {
            entry.reads = 0;
        }
    }

    /// The guest closes descriptors: all that is lent is to go.
    pub(crate) fn end_all(&self) {
        if self.open.load(Relaxed) == 0 {
            return;
        }
        let mut table = self.table.lock();
        let soon = table.entries.iter().any(|e| e.held && e.reads < EARN + table.more + WORTH);
        table.more = if soon { (table.more * 2 + EARN).min(MAX_EARN) } else { 0 };
        for entry in &mut table.entries {
            (entry.file, entry.held) = (Weak::new(), false);
        }
    }

    /// The number of a descriptor that the calling thread is to close now, until [`Lent::closed`].
    pub(crate) fn to_close(&self) -> Option<usize> {
        if self.open.load(Relaxed) == 0 {
            return None;
        }
        let mut table = self.table.try_lock()?;
        let index = table.entries.iter().position(|e| e.open && e.users == 0 && (!e.held || e.is_free()))?;
        table.entries.get_mut(index)?.users = 1;
        Some(index)
    }

    /// It has been closed.
    pub(crate) fn closed(&self, index: usize) {
        if let Some(entry) = self.table.lock().entries.get_mut(index) {
            (entry.users, entry.held, entry.open) = (0, false, false);
            self.open.fetch_sub(1, Relaxed);
        }
    }

    /// A fork of the process may have copies. A fork that runs while another thread is given a file may keep that copy longer,
    /// which does no harm.
    pub(crate) fn ever(&self) -> bool {
        self.ever.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/").unwrap().into())
    }

    fn earn(lent: &Lent, fd: &Arc<OwnedFd>) -> Turn {
        (0..2 * MAX_EARN).find_map(|_| lent.turn(fd)).unwrap()
    }

    #[test]
    fn a_number_keeps_its_file_while_it_is_used() {
        let lent = Lent::default();
        let first = file();
        let turn = earn(&lent, &first);
        assert!(turn.give && lent.turn(&first).is_none(), "it is being given");
        lent.done(turn, true);
        let again = lent.turn(&first).unwrap();
        assert!(!again.give && again.index == turn.index);
        lent.end_all();
        assert!(lent.to_close().is_none(), "in use");
        let others: Vec<_> = (0..2 * LENT).map(|_| file()).collect();
        for other in &others {
            let turn = (0..=2 * EARN + 2 * IDLE as u32 * EARN).find_map(|_| lent.turn(other));
            assert_ne!(turn.map(|t| t.index), Some(again.index));
            if let Some(turn) = turn {
                lent.done(turn, true);
            }
        }
        lent.done(again, true);
        assert_eq!(lent.to_close(), Some(again.index));
        assert_eq!(lent.to_close(), None, "somebody does already");
        lent.closed(again.index);
    }

    #[test]
    fn a_failure_must_be_made_up_for() {
        let lent = Lent::default();
        let fd = file();
        lent.done(earn(&lent, &fd), false);
        assert!(lent.turn(&fd).is_none());
        assert!(earn(&lent, &fd).give);
    }

    #[test]
    fn what_nobody_has_any_more_is_closed() {
        let lent = Lent::default();
        let fd = file();
        let turn = earn(&lent, &fd);
        lent.done(turn, true);
        assert_eq!(lent.to_close(), None);
        drop(fd);
        assert_eq!(lent.to_close(), Some(turn.index));
    }

    #[test]
    fn closing_all_the_time_makes_it_rarer() {
        let lent = Lent::default();
        let mut last = 0;
        for _ in 0..3 {
            let fd = file();
            let reads = (1..).find(|_| lent.turn(&fd).map(|turn| lent.done(turn, true)).is_some()).unwrap();
            assert!(reads > last);
            last = reads;
            lent.end_all();
            let index = lent.to_close().unwrap();
            lent.closed(index);
        }
    }
}
