//! How many objects a sandbox and each of its users may have: limits as /proc/sys/fs shows them, and counts.
//!
//! Objects live in the kernel's memory, which is not the guest's to fill. Open files are counted for the sandbox. Pipe
//! buffers, epoll items and inotify are counted for the user that made them, and for all users together, because a
//! privileged guest can use any number of users. An object holds a [`Charge`] that ends with it. Locks: the table of
//! users is a leaf.

use abi::{Errno, Result};
use lock_order::Mutex;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// What is counted per user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Pages that pipes may hold.
    PipePages,
    /// Items of epolls.
    EpollWatches,
    /// inotify instances.
    InotifyInstances,
    /// inotify watches.
    InotifyWatches,
    /// Groups of fanotify.
    FanotifyGroups,
    /// Their marks.
    FanotifyMarks,
    /// Events that wait in them.
    FanotifyEvents,
    /// Mount namespaces that copies made.
    MountNamespaces,
    /// Mounts in them.
    Mounts,
    /// Bytes of parameters of file systems and of long sources of mounts.
    MountTexts,
    /// Contexts of asynchronous input and output.
    AioContexts,
    /// Record locks.
    Locks,
    /// Record locks on files that others outside can lock: the host has them as well.
    HostLocks,
    /// Files in memory that can be sealed and are in use: each keeps a descriptor of the sentry.
    SealableFiles,
    /// Bytes of the merged listings of stacked file systems.
    Listings,
    /// Connections to the daemons of FUSE file systems.
    FuseConnections,
    /// Bytes of attributes of processes, which their pidfds show.
    PidfdAttributes,
}
const KINDS: usize = 17;

/// A value below /proc/sys/fs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// file-max
    FileMax,
    /// pipe-max-size
    PipeMaxSize,
    /// pipe-user-pages-soft
    PipeSoft,
    /// pipe-user-pages-hard
    PipeHard,
    /// epoll/max_user_watches
    EpollWatches,
    /// inotify/max_user_instances
    InotifyInstances,
    /// inotify/max_user_watches
    InotifyWatches,
    /// inotify/max_queued_events
    InotifyEvents,
    /// user/max_mnt_namespaces
    MountNamespaces,
    /// nr_open
    NrOpen,
}
const LIMITS: usize = 10;

/// Pages of a new pipe when its user has reached the soft limit, or when all users have half of what they may have.
const PIPE_MIN_PAGES: u64 = 2;
/// Most mounts of all namespaces that copies made: twice what one may have.
const MOUNTS: u64 = 200_000;
/// Most bytes that programs give for mounts and instances of file systems.
const MOUNT_TEXTS: u64 = 32 << 20;
/// Most contexts of asynchronous input and output: each is a mapping of the kernel's own.
const AIO_CONTEXTS: u64 = 4096;
/// Most record locks that the host has as well: each takes memory of the host that no control group counts.
const HOST_LOCKS: u64 = 65536;
/// Groups of fanotify that a user may have, their marks, and the events that wait. All users together may have twice as many.
const FANOTIFY_GROUPS: u64 = 128;
const FANOTIFY_MARKS: u64 = 8192;
const FANOTIFY_EVENTS: u64 = 131_072;
/// Most files in memory that can be sealed and are in use; one user may have three quarters of them.
const SEALABLE_FILES: u64 = 4096;
/// Most bytes of merged directory listings that open directories keep.
const LISTINGS: u64 = 64 << 20;
/// Most FUSE file systems; one user may have half of them.
const FUSE_CONNECTIONS: u64 = 128;
/// Most bytes of attributes of all processes.
const PIDFD_ATTRIBUTES: u64 = 16 << 20;
/// Largest table of descriptors.
const NR_OPEN: u64 = 1 << 20;
/// How many inotify instances a user may have at first, and how many root may let a user have.
const INOTIFY_INSTANCES: u64 = 128;
const MOST_INOTIFY_INSTANCES: u64 = 1024;
/// How many users' inotify instances there may be.
const INOTIFY_USERS: u64 = 64;

/// The limits and counts of a sandbox.
pub struct Quotas {
    limits: [AtomicU64; LIMITS],
    /// What the sandbox was given: a guest may lower a limit, and raise it again up to this.
    given: [AtomicU64; LIMITS],
    /// Most pages of all pipes.
    pipe_pages: u64,
    /// Most record locks.
    locks: u64,
    total: [AtomicU64; KINDS],
    users: Mutex<BTreeMap<u32, Weak<Account>>>,
    /// Open files.
    pub files: Arc<FileCount>,
}

impl Quotas {
    /// Limits for a sandbox with this much memory, by Linux's rules.
    pub fn new(memory: u64) -> Arc<Quotas> {
        // A file takes up to a kibibyte: a tenth of the memory.
        let files = (memory / 1024 / 10).clamp(8192, 1 << 20);
        // 4% of the memory in items, 1% in watches.
        let epoll = (memory / 25 / 512).max(1024);
        let watches = (memory / 100 / 1024).clamp(8192, 1 << 20);
        let namespaces = (memory >> 20).clamp(64, 4096);
        let limits =
            [files, 1 << 20, 16384, 0, epoll, INOTIFY_INSTANCES, watches, 16384, namespaces, NR_OPEN];
        Quotas::with(limits, (memory / 16 / 4096).max(16384), (memory / 100 / 128).max(65536))
    }

    /// Without limits, for tests and for the kernel itself.
    pub fn unlimited() -> Arc<Quotas> {
        let most = i64::MAX as u64;
        Quotas::with(
            [most, 1 << 20, 0, 0, most, most / INOTIFY_USERS, most, 16384, most, NR_OPEN],
            most,
            most,
        )
    }

    fn with(limits: [u64; LIMITS], pipe_pages: u64, locks: u64) -> Arc<Quotas> {
        Arc::new(Quotas {
            limits: limits.map(AtomicU64::new),
            given: limits.map(AtomicU64::new),
            pipe_pages,
            locks,
            total: Default::default(),
            users: Mutex::default(),
            files: FileCount::new(limits[Limit::FileMax as usize]),
        })
    }

    /// The value of a limit.
    pub fn limit(&self, l: Limit) -> u64 {
        self.limits.get(l as usize).map_or(0, |v| v.load(Ordering::Relaxed))
    }

    /// Sets a limit for the sandbox, as its specification asks.
    pub fn give_limit(&self, l: Limit, value: u64) {
        if let Some(v) = self.given.get(l as usize) {
            v.store(value, Ordering::Relaxed);
        }
        self.set_limit(l, value);
    }

    /// Sets a limit as a guest asks: EPERM above what the sandbox was given. 0 is no limit for pages of pipes.
    pub fn lower_limit(&self, l: Limit, value: u64) -> Result<()> {
        let given = match l {
            Limit::InotifyInstances => self.given(l).max(MOST_INOTIFY_INSTANCES),
            _ => self.given(l),
        };
        let none = |n| n == 0 && matches!(l, Limit::PipeSoft | Limit::PipeHard);
        if !none(given) && (none(value) || value > given) {
            return Err(Errno::EPERM);
        }
        self.set_limit(l, value);
        Ok(())
    }

    fn given(&self, l: Limit) -> u64 {
        self.given.get(l as usize).map_or(0, |v| v.load(Ordering::Relaxed))
    }

    fn set_limit(&self, l: Limit, value: u64) {
        if let Some(v) = self.limits.get(l as usize) {
            v.store(value, Ordering::Relaxed);
        }
        match l {
            Limit::FileMax => self.files.max.store(value.min(i64::MAX as u64) as i64, Ordering::Relaxed),
            Limit::NrOpen => self.files.nr_open.store(value.min(NR_OPEN), Ordering::Relaxed),
            _ => {}
        }
    }

    /// The account of a user.
    pub fn account(self: &Arc<Quotas>, uid: u32) -> Arc<Account> {
        let mut users = self.users.lock();
        if let Some(known) = users.get(&uid).and_then(Weak::upgrade) {
            return known;
        }
        if users.len() >= 64 && users.len().is_power_of_two() {
            users.retain(|_, u| u.upgrade().is_some());
        }
        let new = Arc::new(Account { quotas: self.clone(), used: Default::default() });
        users.insert(uid, Arc::downgrade(&new));
        new
    }

    /// Most that one user may have, and all together.
    fn most(&self, kind: Kind) -> (u64, u64) {
        match kind {
            Kind::PipePages => (u64::MAX, self.pipe_pages),
            Kind::MountNamespaces => (u64::MAX, self.limit(Limit::MountNamespaces)),
            Kind::Mounts => (u64::MAX, MOUNTS),
            Kind::MountTexts => (u64::MAX, MOUNT_TEXTS),
            Kind::AioContexts => (u64::MAX, AIO_CONTEXTS),
            Kind::Locks => (u64::MAX, self.locks),
            Kind::HostLocks => (u64::MAX, self.locks.min(HOST_LOCKS)),
            Kind::SealableFiles => (SEALABLE_FILES - SEALABLE_FILES / 4, SEALABLE_FILES),
            Kind::FuseConnections => (FUSE_CONNECTIONS / 2, FUSE_CONNECTIONS),
            Kind::Listings => (LISTINGS - LISTINGS / 4, LISTINGS),
            Kind::PidfdAttributes => (u64::MAX, PIDFD_ATTRIBUTES),
            Kind::EpollWatches => (self.limit(Limit::EpollWatches), self.limit(Limit::EpollWatches)),
            Kind::InotifyWatches => (self.limit(Limit::InotifyWatches), self.limit(Limit::InotifyWatches)),
            Kind::FanotifyGroups => (FANOTIFY_GROUPS, 2 * FANOTIFY_GROUPS),
            Kind::FanotifyMarks => (FANOTIFY_MARKS, 2 * FANOTIFY_MARKS),
            Kind::FanotifyEvents => (FANOTIFY_EVENTS, 2 * FANOTIFY_EVENTS),
            Kind::InotifyInstances => {
                let one = self.limit(Limit::InotifyInstances);
                // More for one user is no more for all.
                (one, one.min(self.given(Limit::InotifyInstances)).saturating_mul(INOTIFY_USERS))
            }
        }
    }
}

/// A user of a sandbox, for objects that go on charging.
pub struct Account {
    quotas: Arc<Quotas>,
    used: [AtomicU64; KINDS],
}

fn add(to: Option<&AtomicU64>, n: u64, most: u64) -> bool {
    let more = |v: u64| v.checked_add(n).filter(|&v| v <= most);
    to.is_some_and(|c| c.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok())
}

fn sub(from: Option<&AtomicU64>, n: u64) {
    if let Some(c) = from {
        c.fetch_sub(n, Ordering::Relaxed);
    }
}

impl Account {
    fn user(&self, kind: Kind) -> Option<&AtomicU64> {
        self.used.get(kind as usize)
    }

    fn total(&self, kind: Kind) -> Option<&AtomicU64> {
        self.quotas.total.get(kind as usize)
    }

    /// What the user has.
    pub fn used(&self, kind: Kind) -> u64 {
        self.user(kind).map_or(0, |v| v.load(Ordering::Relaxed))
    }

    fn take(&self, kind: Kind, n: u64) -> bool {
        let (one, all) = self.quotas.most(kind);
        if !add(self.user(kind), n, one) {
            return false;
        }
        let fits = add(self.total(kind), n, all);
        if !fits {
            sub(self.user(kind), n);
        }
        fits
    }

    fn give(&self, kind: Kind, n: u64) {
        sub(self.user(kind), n);
        sub(self.total(kind), n);
    }

    /// Charges `n` objects; `None` when there may not be as many.
    pub fn charge(self: &Arc<Account>, kind: Kind, n: u64) -> Option<Charge> {
        self.take(kind, n).then(|| Charge { account: self.clone(), kind, n })
    }

    fn over(&self, limit: Limit, pages: u64) -> bool {
        let max = self.quotas.limit(limit);
        max != 0 && self.used(Kind::PipePages) + pages > max
    }

    /// Charges the pages of a new pipe: `want`, or fewer where the user, or all users together, have many. ENFILE.
    pub fn new_pipe(self: &Arc<Account>, want: u64, privileged: bool) -> Result<Charge> {
        let all = self.total(Kind::PipePages).map_or(0, |v| v.load(Ordering::Relaxed));
        let many = all + want > self.quotas.pipe_pages / 2 || !privileged && self.over(Limit::PipeSoft, want);
        let pages = if many { PIPE_MIN_PAGES.min(want) } else { want };
        if !privileged && self.over(Limit::PipeHard, pages) {
            return Err(Errno::ENFILE);
        }
        self.charge(Kind::PipePages, pages).ok_or(Errno::ENFILE)
    }
}

/// Objects that are counted as long as it lives.
pub struct Charge {
    account: Arc<Account>,
    kind: Kind,
    n: u64,
}

impl Charge {
    /// How many.
    pub fn count(&self) -> u64 {
        self.n
    }

    /// Changes the count; false when there may not be as many.
    pub fn resize(&mut self, n: u64) -> bool {
        if n > self.n && !self.account.take(self.kind, n - self.n) {
            return false;
        }
        self.account.give(self.kind, self.n.saturating_sub(n));
        self.n = n;
        true
    }

    /// Changes the pages of a pipe. EPERM for a user that has too many, ENOMEM when all users have.
    pub fn resize_pipe(&mut self, pages: u64, privileged: bool) -> Result<()> {
        let more = pages.saturating_sub(self.n);
        if more > 0
            && !privileged
            && (self.account.over(Limit::PipeSoft, more) || self.account.over(Limit::PipeHard, more))
        {
            return Err(Errno::EPERM);
        }
        if self.resize(pages) { Ok(()) } else { Err(Errno::ENOMEM) }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give(self.kind, self.n);
    }
}

/// Cells of a spread count.
const CELLS: usize = 16;
/// How far a cell goes before it is carried over.
const BATCH: i64 = 32;

/// The open files of a sandbox. Each thread counts in a cell that few share, and carries over now and then: opening
/// writes to no cache line that all threads use.
pub struct FileCount {
    cells: [Arc<Cell64>; CELLS],
    carried: Arc<AtomicI64>,
    max: AtomicI64,
    nr_open: AtomicU64,
}

#[repr(align(128))]
struct Cell64 {
    here: AtomicI64,
    carried: Arc<AtomicI64>,
}

impl Cell64 {
    fn add(&self, n: i64) {
        let now = self.here.fetch_add(n, Ordering::Relaxed) + n;
        if now.abs() >= BATCH {
            self.carried.fetch_add(self.here.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// The cell of the calling thread.
fn cell() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! { static CELL: Cell<usize> = const { Cell::new(usize::MAX) }; }
    CELL.with(|c| {
        if c.get() == usize::MAX {
            c.set(NEXT.fetch_add(1, Ordering::Relaxed) % CELLS);
        }
        c.get()
    })
}

impl FileCount {
    /// How large a table of descriptors may be (fs.nr_open).
    pub fn nr_open(&self) -> u64 {
        self.nr_open.load(Ordering::Relaxed)
    }

    /// A count with a limit.
    pub fn new(max: u64) -> Arc<FileCount> {
        let carried = Arc::new(AtomicI64::new(0));
        let one = |_| Arc::new(Cell64 { here: AtomicI64::new(0), carried: carried.clone() });
        let max = AtomicI64::new(max.min(i64::MAX as u64) as i64);
        Arc::new(FileCount {
            cells: std::array::from_fn(one),
            carried,
            max,
            nr_open: AtomicU64::new(NR_OPEN),
        })
    }

    /// ENFILE when there are as many files as there may be, give or take some hundred.
    pub fn check(&self) -> Result<()> {
        if self.carried.load(Ordering::Relaxed) >= self.max.load(Ordering::Relaxed) {
            return Err(Errno::ENFILE);
        }
        Ok(())
    }

    /// How many files are open.
    pub fn now(&self) -> u64 {
        let here: i64 = self.cells.iter().map(|c| c.here.load(Ordering::Relaxed)).sum();
        (self.carried.load(Ordering::Relaxed) + here).max(0) as u64
    }
}

/// An open file's place in the count.
#[derive(Default)]
pub struct CountedFile(OnceLock<Arc<Cell64>>);

impl CountedFile {
    /// Counts the file, once.
    pub fn count(&self, files: &FileCount) {
        if let Some(c) = files.cells.get(cell())
            && self.0.set(c.clone()).is_ok()
        {
            c.add(1);
        }
    }

    /// It has been counted.
    pub fn is_counted(&self) -> bool {
        self.0.get().is_some()
    }
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        if let Some(c) = self.0.get() {
            c.add(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_all_of_them_have_limits() {
        let q = Quotas::new(1 << 30);
        q.set_limit(Limit::InotifyInstances, 2);
        let a = q.account(7);
        let held: Vec<_> = (0..2).filter_map(|_| a.charge(Kind::InotifyInstances, 1)).collect();
        assert_eq!(held.len(), 2);
        assert!(q.account(7).charge(Kind::InotifyInstances, 1).is_none());
        let others: Vec<_> =
            (100..300).filter_map(|u| q.account(u).charge(Kind::InotifyInstances, 1)).collect();
        assert_eq!(others.len() as u64, 2 * INOTIFY_USERS - 2);
        drop(held);
        assert!(q.account(7).charge(Kind::InotifyInstances, 1).is_some());
        drop((a, others));
        assert_eq!(q.account(7).used(Kind::InotifyInstances), 0);
    }

    #[test]
    fn a_guest_moves_limits_below_what_is_given() {
        let q = Quotas::new(1 << 30);
        assert_eq!(q.lower_limit(Limit::InotifyInstances, 1025), Err(Errno::EPERM));
        for value in [0, 1024, 7] {
            assert_eq!(q.lower_limit(Limit::InotifyInstances, value), Ok(()));
            assert_eq!(q.limit(Limit::InotifyInstances), value);
        }
        q.give_limit(Limit::InotifyInstances, 5000);
        assert_eq!(q.lower_limit(Limit::InotifyInstances, 4000), Ok(()));
        assert_eq!(q.lower_limit(Limit::NrOpen, 64), Ok(()));
        assert_eq!(q.files.nr_open(), 64);
        assert_eq!(q.lower_limit(Limit::NrOpen, NR_OPEN + 1), Err(Errno::EPERM));
        // No limit is more than any limit, where 0 means that.
        assert_eq!(q.lower_limit(Limit::PipeSoft, 0), Err(Errno::EPERM));
        assert_eq!(q.lower_limit(Limit::PipeHard, 5), Ok(()));
        assert_eq!(q.lower_limit(Limit::PipeHard, 0), Ok(()));
    }

    #[test]
    fn pipes_get_smaller_and_then_none() {
        let q = Quotas::new(1 << 30);
        q.set_limit(Limit::PipeSoft, 32);
        q.set_limit(Limit::PipeHard, 36);
        let a = q.account(7);
        let sizes = |n: usize, privileged| -> Vec<_> { (0..n).map(|_| a.new_pipe(16, privileged)).collect() };
        let made = sizes(5, false);
        let counts: Vec<_> = made.iter().map(|c| c.as_ref().map(Charge::count).ok()).collect();
        assert_eq!(counts, [Some(16), Some(16), Some(2), Some(2), None]);
        let mut rich = a.new_pipe(16, true).unwrap();
        assert_eq!(rich.count(), 16);
        assert_eq!(rich.resize_pipe(32, false), Err(Errno::EPERM));
        assert_eq!(rich.resize_pipe(32, true), Ok(()));
        assert_eq!(rich.resize_pipe(1 << 40, true), Err(Errno::ENOMEM));
        assert_eq!(rich.resize_pipe(1, false), Ok(()));
        assert_eq!(a.used(Kind::PipePages), 37);
        drop((made, rich));
        assert_eq!(a.used(Kind::PipePages), 0);
    }

    #[test]
    fn one_user_leaves_sealable_files_to_others() {
        let q = Quotas::new(1 << 30);
        let take = |uid| q.account(uid).charge(Kind::SealableFiles, 1);
        let (a, b) = (q.account(7), q.account(8));
        let most: Vec<_> = (0..5000).map_while(|_| a.charge(Kind::SealableFiles, 1)).collect();
        assert_eq!(most.len(), 3072);
        let others: Vec<_> = (0..5000).map_while(|_| b.charge(Kind::SealableFiles, 1)).collect();
        assert_eq!(others.len(), 1024);
        drop(most);
        assert!(take(7).is_some());
    }

    #[test]
    fn files_are_counted() {
        let f = FileCount::new(1000);
        let all: Vec<CountedFile> = (0..1100).map(|_| CountedFile::default()).collect();
        all.iter().for_each(|c| {
            c.count(&f);
            c.count(&f);
        });
        assert_eq!((f.now(), f.check()), (1100, Err(Errno::ENFILE)));
        std::thread::scope(|s| {
            s.spawn(|| drop(all));
        });
        assert_eq!((f.now(), f.check()), (0, Ok(())));
    }
}
