//! Locks with a rank. In debug builds a thread panics when it takes a lock with a rank that is not above all ranks that
//! it holds. So a lock order that could deadlock fails in the first test that meets it.
//!
//! Ranks grow inwards: outermost locks have the lowest rank. Two locks of one
//! rank are held together only where [`Mutex::lock_nested`] takes the second. A lock without a rank of its own is a
//! leaf: no other is taken inside it.

#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

/// How often a thread that waits for a lock checks whether it still wants it.
const LOOK: Duration = Duration::from_millis(20);

/// Ranks of the kernel's locks, outermost first.
pub mod rank {
    /// The position of an open file: held across reads and writes.
    pub const FILE_POSITION: u8 = 1;
    /// Threads that wait to be requeued to a priority-inheritance futex.
    pub const PI_REQUEUE: u8 = 2;
    /// One epoll begins to watch another.
    pub const EPOLL_NESTING: u8 = 3;
    /// Waiters of a priority-inheritance futex.
    pub const PI_WORD: u8 = 4;
    /// An epoll looks for what is ready. One that watches another holds two.
    pub const EPOLL_SCAN: u8 = 5;
    /// Table of priority-inheritance futexes.
    pub const PI_TABLE: u8 = 6;
    /// Root and working directory change.
    pub const FS_CONTEXT: u8 = 7;
    /// A sandbox gets interfaces of the host.
    pub const HOST_LINKS: u8 = 8;
    /// A file of /dev/net/tun takes or gives up an interface.
    pub const TUN_FILE: u8 = 9;
    /// Interfaces that files of /dev/net/tun made, of a network namespace.
    pub const TUN_DEVICES: u8 = 10;
    /// Interfaces, addresses, routes or rules of a network namespace change on request. Outside of the locks that
    /// signals take: a change wakes waiting threads, and O_ASYNC turns that into signals.
    pub const RTNL: u8 = 11;

    // The network (crates/net), outside of the locks that signals take for the same reason.

    /// The rules of nf_tables of a network namespace change.
    pub const NFT_COMMIT: u8 = 12;
    /// The tables of iptables-legacy of one family change.
    pub const XT_TABLES: u8 = 13;
    /// NAT begins or ends in a network namespace.
    pub const NAT_USE: u8 = 14;
    /// Connection tracking begins or ends in a network namespace.
    pub const CONNTRACK_USE: u8 = 15;
    /// The raw sockets of a network namespace.
    pub const RAW_SOCKETS: u8 = 16;
    /// A TCP socket's connection or listener, a datagram socket's configuration. A listener is held while its child is taken.
    pub const SOCKET: u8 = 17;
    /// The receive queue of a TCP or datagram socket.
    pub const RECEIVE_QUEUE: u8 = 18;
    /// The ring and the memberships of a packet socket's descriptor.
    pub const PACKET_DESCRIPTOR: u8 = 19;
    /// The packet sockets of a network namespace.
    pub const PACKET_SOCKETS: u8 = 20;
    /// The fanout groups of a network namespace.
    pub const FANOUTS: u8 = 21;
    /// The members of a fanout group.
    pub const FANOUT_MEMBERS: u8 = 22;
    /// A packet socket.
    pub const PACKET_SOCKET: u8 = 23;
    /// The rules of a table of iptables-legacy, while packets pass them.
    pub const XT_RULES: u8 = 24;
    /// Routes and rules of a network namespace.
    pub const ROUTES: u8 = 25;
    /// The neighbours of a network namespace.
    pub const NEIGHBOURS: u8 = 26;
    /// The path MTUs of a network namespace.
    pub const PATH_MTUS: u8 = 27;
    /// When the next route of a network namespace expires.
    pub const ROUTE_EXPIRY: u8 = 28;
    /// When the timer of addresses is due.
    pub const ADDRESS_TIMER: u8 = 29;
    /// Fragments of packets.
    pub const FRAGMENTS: u8 = 30;
    /// The interfaces of a network namespace.
    pub const LINKS: u8 = 31;
    /// The ports of a bridge.
    pub const BRIDGE_PORTS: u8 = 32;
    /// What an interface stands upon, and what stands upon it.
    pub const LINK_EDGES: u8 = 33;
    /// The elements of a set of nf_tables. A packet that adds an element adds it to the copy of a batch as well.
    pub const NFT_SET: u8 = 34;
    /// Tracked connections by their tuples.
    pub const CONNTRACK_TABLE: u8 = 35;
    /// Tracked connections by age.
    pub const CONNTRACK_AGES: u8 = 36;
    /// The packet filter of a network namespace is put in its place, or taken away. A packet may be the last use of a chain.
    pub const HOOKS: u8 = 37;
    /// The place of a program that a packet socket's group or a datagram socket runs.
    pub const SOCKET_PROGRAM: u8 = 38;

    /// F_SETOWN and F_SETSIG of an open file.
    pub const FILE_OWNER: u8 = 40;
    /// A terminal.
    pub const TERMINAL: u8 = 41;
    /// Task tree: parents, children, groups, sessions.
    pub const TASKS: u8 = 42;
    /// Signal state shared by a thread group.
    pub const SIGNALS: u8 = 48;
    /// Which table of signal actions a thread group uses.
    pub const SIGHAND: u8 = 49;
    /// A table of signal actions.
    pub const SIGACTIONS: u8 = 50;
    /// A thread's pending signals.
    pub const PENDING: u8 = 51;
    /// Setting of a POSIX timer, which a pending signal may refer to.
    pub const POSIX_TIMER: u8 = 52;
    /// The tracer of a thread, and the thread's stop.
    pub const TRACE: u8 = 53;
    /// Address space operations (held while the guest executes them).
    pub const MM_OPS: u8 = 58;
    /// The record of mappings.
    pub const MM_MAP: u8 = 63;
    /// Mount table.
    pub const MOUNTS: u8 = 78;
    /// Renames across directories of one file system.
    pub const RENAME: u8 = 83;
    /// Names of a directory change. A rename holds several: parents before children.
    pub const DIRECTORY: u8 = 88;
    /// POSIX and OFD locks of an inode; its flock(2) locks.
    pub const RECORD_LOCKS: u8 = 90;
    /// A table of System V objects, of message queues or of FIFOs.
    pub const IPC_TABLE: u8 = 92;
    /// A System V object, a pipe. tee(2) and splice(2) hold two pipes.
    pub const IPC_OBJECT: u8 = 94;
    /// The tree of control groups.
    pub const CGROUPS: u8 = 98;
    /// The table of loop devices of a container (`loopdev`).
    pub const LOOPS: u8 = 101;
    /// An inotify instance.
    pub const INOTIFY: u8 = 102;
    /// Entries of a directory of tmpfs; rmdir(2) and rename(2) hold two.
    pub const TMPFS_DIR: u8 = 104;
    /// Content of a file of tmpfs, limits of an instance.
    pub const TMPFS_CONTENT: u8 = 106;
    /// The files of an instance of tmpfs that still have to be measured.
    pub const TMPFS_INEXACT: u8 = 107;
    /// Pages of a file in memory.
    pub const MEMORY_FILE: u8 = 108;
    /// The texts that open files of /proc hold, oldest first.
    pub const SNAPSHOTS: u8 = 110;
    /// A netlink socket.
    pub const NETLINK_SOCKET: u8 = 112;
    /// A Unix socket. connect(2) holds two, in the order of their addresses, and the new connection.
    pub const UNIX_SOCKET: u8 = 114;
    /// A host socket's way to the name servers that the network gofer stands for.
    pub const NAME_SERVICE: u8 = 116;
    /// The thread that watches the host's sockets begins.
    pub const HOST_POLLER: u8 = 118;
    /// Events of what others change on the host are being read.
    pub const HOST_EVENTS: u8 = 230;
    /// Frames are written to an interface of the host, in order.
    pub const LINK_WRITER: u8 = 231;
    /// Frames that wait: for the stack, or for a device. A frame that goes gives its buffer back.
    pub const FRAMES: u8 = 232;
    /// Owner of a priority-inheritance futex.
    pub const PI_OWNER: u8 = 240;
    /// Setting of a timer (the timer's object is a leaf otherwise): held while the timer service is told.
    pub const TIMER: u8 = 244;
    /// The timer service's list.
    pub const TIMER_SERVICE: u8 = 246;
    /// Locks inside which no other is taken.
    pub const LEAF: u8 = u8::MAX;
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;
    use std::panic::Location;
    thread_local! { static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) }; }

    /// A lock that the thread holds.
    pub struct HeldLock(u8);

    impl HeldLock {
        /// Before the lock is taken.
        #[track_caller]
        pub fn enter(rank: u8, nested: bool) -> HeldLock {
            let at = Location::caller();
            HELD.with_borrow_mut(|h| {
                if let Some(&top) = h.iter().max() {
                    let inner = rank > top || nested && rank == top;
                    assert!(inner, "lock order: rank {rank} taken at {at} while rank {top} is held ({h:?})");
                }
                h.push(rank);
            });
            HeldLock(rank)
        }

        /// The same without a look at the order.
        pub fn below(rank: u8) -> HeldLock {
            HELD.with_borrow_mut(|h| h.push(rank));
            HeldLock(rank)
        }
    }

    impl Drop for HeldLock {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|h| {
                if let Some(i) = h.iter().rposition(|&r| r == self.0) {
                    h.remove(i);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    /// Nothing is checked.
    pub struct HeldLock;

    impl HeldLock {
        #[inline(always)]
        pub fn enter(_rank: u8, _nested: bool) -> HeldLock {
            HeldLock
        }

        #[inline(always)]
        pub fn below(_rank: u8) -> HeldLock {
            HeldLock
        }
    }
}

use held::HeldLock;

/// A mutex of rank `R`; a leaf where none is named.
#[derive(Default, Debug)]
pub struct Mutex<T, const R: u8 = { rank::LEAF }>(parking_lot::Mutex<T>);

impl<T, const R: u8> Mutex<T, R> {
    /// Wraps a value.
    pub const fn new(v: T) -> Self {
        Mutex(parking_lot::Mutex::new(v))
    }

    /// Takes the lock.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T, R> {
        let held = HeldLock::enter(R, false);
        MutexGuard { value: self.0.lock(), _held: held }
    }

    /// Takes the lock while another one of its rank may be held: the caller keeps an order among those.
    #[track_caller]
    pub fn lock_nested(&self) -> MutexGuard<'_, T, R> {
        let held = HeldLock::enter(R, true);
        MutexGuard { value: self.0.lock(), _held: held }
    }

    /// Takes the lock while locks are held that usually come after it: those of a stacked file system, which come
    /// before all locks of the file systems below it.
    pub fn lock_out_of_order(&self) -> MutexGuard<'_, T, R> {
        let held = HeldLock::below(R);
        MutexGuard { value: self.0.lock(), _held: held }
    }

    /// Takes the lock, unless `stop` says, while another thread holds it, that it is no longer wanted. For locks that
    /// are held while a program is waited for.
    #[track_caller]
    pub fn lock_unless(&self, stop: impl Fn() -> bool) -> Option<MutexGuard<'_, T, R>> {
        self.wait_unless(HeldLock::enter(R, false), stop)
    }

    /// As [`Mutex::lock_unless`] while another lock of its rank may be held.
    #[track_caller]
    pub fn lock_nested_unless(&self, stop: impl Fn() -> bool) -> Option<MutexGuard<'_, T, R>> {
        self.wait_unless(HeldLock::enter(R, true), stop)
    }

    fn wait_unless(&self, held: HeldLock, stop: impl Fn() -> bool) -> Option<MutexGuard<'_, T, R>> {
        loop {
            if let Some(value) = self.0.try_lock_for(LOOK) {
                return Some(MutexGuard { value, _held: held });
            }
            if stop() {
                return None;
            }
        }
    }

    /// Takes the lock if it is free. Not held to the order, as it never waits.
    pub fn try_lock(&self) -> Option<parking_lot::MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    /// Whether a thread holds the lock.
    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// The value, when the mutex is owned.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Holds a [`Mutex`].
pub struct MutexGuard<'a, T, const R: u8 = { rank::LEAF }> {
    value: parking_lot::MutexGuard<'a, T>,
    _held: HeldLock,
}

impl<T, const R: u8> Deref for MutexGuard<'_, T, R> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const R: u8> DerefMut for MutexGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A reader-writer lock of rank `R`; a leaf where none is named. A thread may not read it twice at a time: a writer in between would block both.
#[derive(Default, Debug)]
pub struct RwLock<T, const R: u8 = { rank::LEAF }>(parking_lot::RwLock<T>);

impl<T, const R: u8> RwLock<T, R> {
    /// Wraps a value.
    pub const fn new(v: T) -> Self {
        RwLock(parking_lot::RwLock::new(v))
    }

    /// Takes the lock for reading.
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let held = HeldLock::enter(R, false);
        ReadGuard { value: self.0.read(), _held: held }
    }

    /// Takes the lock for writing.
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let held = HeldLock::enter(R, false);
        WriteGuard { value: self.0.write(), _held: held }
    }

    /// Takes the lock for writing while another one of its rank may be held: the caller keeps an order among those.
    #[track_caller]
    pub fn write_nested(&self) -> WriteGuard<'_, T> {
        let held = HeldLock::enter(R, true);
        WriteGuard { value: self.0.write(), _held: held }
    }

    /// The value, when the lock is owned.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Holds a [`RwLock`] for reading.
pub struct ReadGuard<'a, T> {
    value: parking_lot::RwLockReadGuard<'a, T>,
    _held: HeldLock,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// Holds a [`RwLock`] for writing.
pub struct WriteGuard<'a, T> {
    value: parking_lot::RwLockWriteGuard<'a, T>,
    _held: HeldLock,
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Where threads wait for a change of what a [`Mutex`] guards. The mutex counts as held meanwhile.
#[derive(Default, Debug)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that no thread waits for.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Lets the mutex go until it is notified.
    pub fn wait<T, const R: u8>(&self, guard: &mut MutexGuard<'_, T, R>) {
        self.0.wait(&mut guard.value);
    }

    /// As [`Condvar::wait`], at most until `deadline`; false when that has passed.
    pub fn wait_until<T, const R: u8>(&self, guard: &mut MutexGuard<'_, T, R>, deadline: Instant) -> bool {
        !self.0.wait_until(&mut guard.value, deadline).timed_out()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_checked() {
        let (a, b) = (Mutex::<_, 10>::new(1), Mutex::<_, 20>::new(2));
        let g = a.lock();
        assert_eq!(*b.lock() + *g, 3);
        drop(g);
        if cfg!(debug_assertions) {
            let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _b = b.lock();
                let _a = a.lock();
            }));
            assert!(r.is_err());
        }
    }

    #[test]
    fn two_of_one_rank_are_held_on_purpose_only() {
        let (a, b) = (RwLock::<_, 10>::new(1), RwLock::<_, 10>::new(2));
        let held = a.write();
        assert_eq!(*b.write_nested() + *held, 3);
        if cfg!(debug_assertions) {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(b.write()))).is_err());
        }
    }

    #[test]
    fn a_wait_may_be_given_up() {
        let lock = Mutex::<_, 10>::new(1);
        assert_eq!(lock.lock_unless(|| true).as_deref(), Some(&1));
        let held = lock.lock();
        let looks = std::sync::atomic::AtomicU32::new(0);
        let stop = || looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1;
        std::thread::scope(|s| {
            assert!(s.spawn(|| lock.lock_unless(stop).is_none()).join().unwrap());
        });
        drop(held);
        assert!(lock.lock_unless(|| true).is_some());
    }

    #[test]
    fn a_leaf_is_the_innermost() {
        let (leaf, other) = (<Mutex<i32>>::new(1), <RwLock<i32>>::new(2));
        *leaf.lock() += 1;
        *other.write() += 1;
        assert_eq!(*other.read(), 3);
        if cfg!(debug_assertions) {
            let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _leaf = leaf.lock();
                let _other = other.write();
            }));
            assert!(r.is_err());
        }
    }

    #[test]
    fn a_condition_is_waited_for() {
        let (ready, changed) = (<Mutex<bool>>::new(false), Condvar::new());
        std::thread::scope(|s| {
            s.spawn(|| {
                *ready.lock() = true;
                changed.notify_all();
            });
            let mut ready = ready.lock();
            while !*ready {
                changed.wait(&mut ready);
            }
            assert!(!changed.wait_until(&mut ready, Instant::now()));
        });
    }
}
