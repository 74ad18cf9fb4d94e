//! Process IDs and PID namespaces. See pid_namespaces(7).
//!
//! As in Linux, a process ID is an object ([`Pid`], Linux's `struct pid`) with one number for each level of namespaces: one in
//! the namespace of its task, and one in every ancestor of that. Level 0 is the sandbox's own namespace, which no
//! program sees: the number there is unique in the sandbox, and the kernel's tables are keyed by it ([`Pid::nr`]).
//!
//! A number is taken as long as an object is attached to the process ID: the thread or process of that ID, and the
//! members of a process group or session of that ID ([`Attached`]). The object may outlive that, for objects that
//! record a process (the creator of a shared memory segment, the peer of a socket): it still has its numbers.
//!
//! Lock: the table of a namespace, a leaf. A checkpoint keeps the numbers of each ID and the last number of each namespace.

#![forbid(unsafe_code)]

use abi::{Errno, Result};
use lock_order::Mutex;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use user_ns::{NamespaceCount, UserNamespace};

/// Highest process ID of a namespace plus one: what kernel.pid_max begins with and does not exceed (PID_MAX_LIMIT).
pub const PID_MAX: i32 = 1 << 22;
/// The least kernel.pid_max.
pub const PID_MAX_MIN: i32 = AFTER_WRAP + 1;
/// The same for the sandbox's own namespace. Only the kernel uses its numbers.
const ROOT_MAX: i32 = i32::MAX;
/// Where numbers go on after the last one (RESERVED_PIDS).
const AFTER_WRAP: i32 = 300;
/// Most levels below the sandbox's own namespace (MAX_PID_NS_LEVEL).
pub const MAX_LEVEL: usize = 32;

/// A PID namespace.
pub struct PidNamespace {
    /// Number of its nsfs inode.
    inum: u64,
    level: usize,
    parent: Option<Arc<PidNamespace>>,
    user_ns: Arc<UserNamespace>,
    table: Mutex<Table>,
    /// kernel.pid_max.
    max: AtomicI32,
    counted: Option<NamespaceCount>,
}

#[derive(Default)]
struct Table {
    /// Init has ended: there will be no process any more.
    closed: bool,
    last: i32,
    pids: BTreeMap<i32, Weak<Pid>>,
}

impl Table {
    /// The first number from `from` on, below `max`, that is not taken.
    fn free_in(&self, from: i32, max: i32) -> Option<i32> {
        let mut nr = from;
        for taken in self.pids.range(from..).map(|(taken, _)| *taken) {
            if taken != nr {
                break;
            }
            nr = taken.checked_add(1)?;
        }
        (nr < max).then_some(nr)
    }
}

impl PidNamespace {
    /// The sandbox's own namespace, owned by the initial user namespace.
    pub fn root(inum: u64, user_ns: Arc<UserNamespace>) -> Arc<PidNamespace> {
        Arc::new(PidNamespace {
            inum,
            level: 0,
            parent: None,
            user_ns,
            table: Mutex::default(),
            max: AtomicI32::new(ROOT_MAX),
            counted: None,
        })
    }

    /// A namespace inside this one, owned by `user_ns`: a container's, or one that `counted` counts. ENOSPC when that is too deep.
    pub fn child(
        self: &Arc<Self>,
        inum: u64,
        user_ns: Arc<UserNamespace>,
        counted: Option<NamespaceCount>,
    ) -> Result<Arc<PidNamespace>> {
        if self.level >= MAX_LEVEL {
            return Err(Errno::ENOSPC);
        }
        let parent = Some(self.clone());
        let (level, table) = (self.level + 1, Mutex::default());
        // Whatever the parent has: its limit holds for its own numbers of the processes here.
        let max = AtomicI32::new(PID_MAX);
        Ok(Arc::new(PidNamespace { inum, level, parent, user_ns, table, max, counted }))
    }

    /// The user that it counts for, if it counts.
    pub fn counted_for(&self) -> Option<u32> {
        self.counted.as_ref().map(NamespaceCount::user)
    }

    /// Number of its nsfs inode, as /proc/PID/ns/pid shows it.
    pub fn inum(&self) -> u64 {
        self.inum
    }

    /// Where capabilities over it are held.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.user_ns
    }

    /// How many namespaces it is inside of.
    pub fn level(&self) -> usize {
        self.level
    }

    /// The namespace that it is inside of; none for the sandbox's own.
    pub fn parent(&self) -> Option<&Arc<PidNamespace>> {
        self.parent.as_ref()
    }

    /// Whether this is `outer` or inside of it.
    pub fn is_within(&self, outer: &PidNamespace) -> bool {
        let mut at = Some(self);
        while let Some(ns) = at.filter(|ns| ns.level > outer.level) {
            at = ns.parent.as_deref();
        }
        at.is_some_and(|ns| std::ptr::eq(ns, outer))
    }

    /// Its init has ended, or was never started: no further number is given out.
    pub fn close(&self) {
        self.table.lock().closed = true;
    }

    /// Whether no further number is given out.
    pub fn is_closed(&self) -> bool {
        self.table.lock().closed
    }

    /// A new process ID, with a number here and in every namespace around. EAGAIN when there is none left, ENOMEM when the
    /// namespace has lost its init.
    pub fn alloc(self: &Arc<Self>) -> Result<Attached> {
        self.alloc_as(&[], |_| true)
    }

    /// A new process ID with these numbers, from this namespace outwards (`set_tid` of clone3(2)); `may` says in which namespaces the
    /// caller may choose. EINVAL for more numbers than there are namespaces, for one out of range, and for any but 1 where init is
    /// not there yet; EPERM; EEXIST for one that is taken.
    pub fn alloc_as(
        self: &Arc<Self>,
        wanted: &[i32],
        may: impl Fn(&PidNamespace) -> bool,
    ) -> Result<Attached> {
        // The sandbox's own namespace is not one that programs know.
        if wanted.len() > self.level {
            return Err(Errno::EINVAL);
        }
        let mut numbers: SmallVec<[Number; 2]> = SmallVec::new();
        let (mut at, mut wanted) = (Some(self), wanted.iter());
        while let Some(ns) = at {
            let reserved = match wanted.next() {
                Some(nr) => ns.reserve_this(*nr, may(ns)),
                None => ns.reserve(),
            };
            match reserved {
                Ok(nr) => numbers.push(Number { ns: ns.clone(), nr }),
                Err(e) => {
                    numbers.iter().for_each(Number::unreserve);
                    return Err(e);
                }
            }
            at = ns.parent.as_ref();
        }
        numbers.reverse();
        let pid = Arc::new(Pid { numbers, users: AtomicUsize::new(0) });
        for n in &pid.numbers {
            n.ns.table.lock().pids.insert(n.nr, Arc::downgrade(&pid));
        }
        Ok(pid.attach())
    }

    /// Highest number plus one (kernel.pid_max).
    pub fn max(&self) -> i32 {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_max(&self, max: i32) {
        self.max.store(max.clamp(PID_MAX_MIN, PID_MAX), Ordering::Relaxed);
    }

    /// Takes the next free number, ascending.
    fn reserve(&self) -> Result<i32> {
        let max = self.max();
        let mut t = self.table.lock();
        if t.closed {
            return Err(Errno::ENOMEM);
        }
        // The first process is init, with the number 1.
        if self.level > 0 && t.pids.is_empty() {
            t.last = 0;
        }
        // Low numbers are for the first processes: once past them, the search goes on above them.
        let again = if t.last >= AFTER_WRAP { AFTER_WRAP } else { 1 };
        let next = t.last.saturating_add(1);
        let nr = t.free_in(next, max).or_else(|| t.free_in(again, max)).ok_or(Errno::EAGAIN)?;
        t.last = nr;
        t.pids.insert(nr, Weak::new());
        Ok(nr)
    }

    /// Takes that number.
    fn reserve_this(&self, nr: i32, may: bool) -> Result<i32> {
        let mut t = self.table.lock();
        if !(1..self.max()).contains(&nr) || nr != 1 && t.pids.is_empty() {
            return Err(Errno::EINVAL);
        }
        if !may {
            return Err(Errno::EPERM);
        }
        if t.closed {
            return Err(Errno::ENOMEM);
        }
        let Entry::Vacant(free) = t.pids.entry(nr) else { return Err(Errno::EEXIST) };
        free.insert(Weak::new());
        Ok(nr)
    }

    /// The process ID with this number here (find_pid_ns).
    pub fn find(&self, nr: i32) -> Option<Arc<Pid>> {
        self.table.lock().pids.get(&nr)?.upgrade()
    }

    /// The process IDs that have a number here, in its order.
    pub fn taken(&self) -> Vec<Arc<Pid>> {
        self.table.lock().pids.values().filter_map(Weak::upgrade).collect()
    }

    /// A process ID of a checkpoint with these numbers, from the sandbox's own namespace inwards to this one. EINVAL unless there is
    /// one for each level and all are in range, EEXIST for one that is taken.
    pub fn restore(self: &Arc<Self>, saved: &[i32]) -> Result<Attached> {
        let mut levels = vec![self.clone()];
        while let Some(parent) = levels.last().and_then(|ns| ns.parent.clone()) {
            levels.push(parent);
        }
        levels.reverse();
        if saved.len() != levels.len() {
            return Err(Errno::EINVAL);
        }
        let mut numbers: SmallVec<[Number; 2]> = SmallVec::new();
        for (ns, nr) in levels.into_iter().zip(saved) {
            // The limit may have been higher when it was given.
            let max = if ns.level == 0 { ROOT_MAX } else { PID_MAX };
            let reserved = if (1..max).contains(nr) {
                match ns.table.lock().pids.entry(*nr) {
                    Entry::Vacant(free) => {
                        free.insert(Weak::new());
                        Ok(())
                    }
                    Entry::Occupied(_) => Err(Errno::EEXIST),
                }
            } else {
                Err(Errno::EINVAL)
            };
            if let Err(e) = reserved {
                numbers.iter().for_each(Number::unreserve);
                return Err(e);
            }
            numbers.push(Number { ns, nr: *nr });
        }
        let pid = Arc::new(Pid { numbers, users: AtomicUsize::new(0) });
        for n in &pid.numbers {
            n.ns.table.lock().pids.insert(n.nr, Arc::downgrade(&pid));
        }
        Ok(pid.attach())
    }

    /// The number given out last.
    pub fn last(&self) -> i32 {
        self.table.lock().last
    }

    /// Sets it, as writing /proc/sys/kernel/ns_last_pid does.
    pub fn set_last(&self, nr: i32) {
        let max = self.max();
        self.table.lock().last = nr.clamp(0, max - 1);
    }
}

struct Number {
    ns: Arc<PidNamespace>,
    nr: i32,
}

impl Number {
    /// Gives a number back that was reserved and never used.
    fn unreserve(&self) {
        self.ns.table.lock().pids.remove(&self.nr);
    }

    /// Gives the number back, unless another process has it by now.
    fn release(&self, of: &Pid) {
        let mut t = self.ns.table.lock();
        if t.pids.get(&self.nr).is_some_and(|pid| std::ptr::eq(pid.as_ptr(), of)) {
            t.pids.remove(&self.nr);
        }
    }
}

/// A process ID.
pub struct Pid {
    /// By level.
    numbers: SmallVec<[Number; 2]>,
    /// Guards that keep the numbers taken.
    users: AtomicUsize,
}

impl std::fmt::Debug for Pid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.numbers.iter().map(|n| n.nr)).finish()
    }
}

impl Pid {
    /// The number in the sandbox's own namespace: the key of the kernel's tables (pid_nr).
    pub fn nr(&self) -> i32 {
        self.numbers.first().map_or(0, |n| n.nr)
    }

    /// The number in the namespace of the task itself.
    pub fn own_nr(&self) -> i32 {
        self.numbers.last().map_or(0, |n| n.nr)
    }

    /// The number in a namespace; 0 where the process cannot be seen (pid_nr_ns).
    pub fn nr_in(&self, ns: &PidNamespace) -> i32 {
        match self.numbers.get(ns.level) {
            Some(n) if std::ptr::eq(&*n.ns, ns) => n.nr,
            _ => 0,
        }
    }

    /// All of its numbers, from the sandbox's own namespace inwards.
    pub fn numbers(&self) -> Vec<i32> {
        self.numbers.iter().map(|n| n.nr).collect()
    }

    /// The namespace of the task.
    pub fn ns(&self) -> Option<&Arc<PidNamespace>> {
        self.numbers.last().map(|n| &n.ns)
    }

    /// Whether the task is in this namespace, not in one below it.
    pub fn is_of(&self, ns: &PidNamespace) -> bool {
        self.ns().is_some_and(|own| std::ptr::eq(&**own, ns))
    }

    /// Whether this is the init of its namespace (is_child_reaper).
    pub fn is_child_reaper(&self) -> bool {
        self.own_nr() == 1
    }

    /// The numbers from a namespace on down to the one of `task` (NSpid and its relatives in /proc/PID/status): 0 where this
    /// one cannot be seen; none where `task` cannot.
    pub fn numbers_from(&self, task: &Pid, ns: &PidNamespace) -> Vec<i32> {
        if task.nr_in(ns) == 0 {
            return Vec::new();
        }
        task.numbers.iter().skip(ns.level).map(|n| self.nr_in(&n.ns)).collect()
    }

    /// Keeps the numbers taken until the guard is dropped. Only while they are: a process ID without users stays
    /// without.
    pub fn attach(self: &Arc<Self>) -> Attached {
        self.users.fetch_add(1, Ordering::Relaxed);
        Attached(self.clone())
    }
}

/// A thread, process, process group or session has this ID: its numbers are taken until the last of these goes.
#[derive(Debug)]
pub struct Attached(Arc<Pid>);

impl std::ops::Deref for Attached {
    type Target = Arc<Pid>;
    fn deref(&self) -> &Arc<Pid> {
        &self.0
    }
}

impl Clone for Attached {
    fn clone(&self) -> Attached {
        self.0.attach()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        // The sandbox's own number stays the object's: what remembers the process finds it by that.
        self.0.numbers.iter().skip(1).for_each(|n| n.release(&self.0));
    }
}

impl Drop for Pid {
    fn drop(&mut self) {
        self.numbers.iter().take(1).for_each(|n| n.release(self));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top() -> Arc<PidNamespace> {
        PidNamespace::root(1, UserNamespace::initial())
    }

    #[test]
    fn one_number_for_each_level() {
        let root = top();
        let (a, b) = (
            root.child(2, UserNamespace::initial(), None).unwrap(),
            root.child(3, UserNamespace::initial(), None).unwrap(),
        );
        let inner = a.child(4, UserNamespace::initial(), None).unwrap();
        let pids: Vec<_> = [&a, &b, &inner].iter().map(|ns| ns.alloc().unwrap()).collect();
        assert_eq!(pids.iter().map(|p| p.nr()).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(pids.iter().map(|p| p.own_nr()).collect::<Vec<_>>(), [1, 1, 1]);
        let deep = &pids[2];
        assert_eq!((deep.nr_in(&root), deep.nr_in(&a), deep.nr_in(&b), deep.nr_in(&inner)), (3, 2, 0, 1));
        assert_eq!(deep.numbers_from(deep, &a), [2, 1]);
        // From inside, the init of `a` cannot be seen.
        assert_eq!(pids[0].numbers_from(deep, &a), [1, 0]);
        assert!(
            deep.numbers_from(deep, &b).is_empty()
                && deep.is_child_reaper()
                && deep.is_of(&inner)
                && !deep.is_of(&a)
        );
        assert!(Arc::ptr_eq(&a.find(2).unwrap(), deep) && a.find(3).is_none());
    }

    #[test]
    fn numbers_are_taken_as_long_as_somebody_is_attached() {
        let root = top();
        let ns = root.child(2, UserNamespace::initial(), None).unwrap();
        let first = ns.alloc().unwrap();
        let (group, remembered) = (first.attach(), Arc::clone(&first));
        drop(first);
        ns.set_last(0);
        assert_eq!(ns.alloc().unwrap().own_nr(), 2);
        drop(group);
        assert!(ns.find(1).is_none());
        ns.set_last(0);
        let next = ns.alloc().unwrap();
        // What remembers the old one still knows its number, and its end does not free the new one's.
        assert_eq!((next.own_nr(), remembered.own_nr()), (1, 1));
        assert!(Arc::ptr_eq(&root.find(1).unwrap(), &remembered));
        drop(remembered);
        assert!(Arc::ptr_eq(&ns.find(1).unwrap(), &next) && root.find(1).is_none());
    }

    #[test]
    fn limit_of_a_namespace() {
        let outer = top().child(2, UserNamespace::initial(), None).unwrap();
        let _init = outer.alloc().unwrap();
        outer.set_max(400);
        let inner = outer.child(3, UserNamespace::initial(), None).unwrap();
        assert_eq!((inner.max(), outer.max()), (PID_MAX, 400));
        inner.set_max(0);
        assert_eq!(inner.max(), PID_MAX_MIN);
        let mut all: Vec<_> = (1..PID_MAX_MIN).map(|_| inner.alloc().unwrap()).collect();
        assert_eq!(all.iter().map(|pid| pid.own_nr()).max(), Some(PID_MAX_MIN - 1));
        assert_eq!(inner.alloc().err(), Some(Errno::EAGAIN));
        // Past the low numbers, which are free again, there is but one.
        all.drain(5..);
        assert_eq!(inner.alloc().unwrap().own_nr(), AFTER_WRAP);
        inner.set_max(PID_MAX);
        // The limit outside holds for the numbers there.
        let many: Vec<_> = std::iter::from_fn(|| inner.alloc().ok()).collect();
        assert!(many.iter().all(|pid| pid.nr_in(&outer) < 400), "{}", many.len());
        assert!(inner.alloc().is_err());
    }

    #[test]
    fn numbers_that_are_chosen() {
        let ns = top().child(2, UserNamespace::initial(), None).unwrap();
        let choose = |numbers: &[i32]| ns.alloc_as(numbers, |_| true);
        assert_eq!(choose(&[2]).err(), Some(Errno::EINVAL));
        let init = choose(&[1]).unwrap();
        assert_eq!(init.own_nr(), 1);
        let chosen = choose(&[700]).unwrap();
        assert_eq!(chosen.own_nr(), 700);
        assert_eq!(choose(&[700]).err(), Some(Errno::EEXIST));
        for bad in [&[0][..], &[-1], &[PID_MAX], &[5, 5]] {
            assert_eq!(choose(bad).err(), Some(Errno::EINVAL));
        }
        assert_eq!(ns.alloc_as(&[5], |_| false).err(), Some(Errno::EPERM));
        // What was refused takes no number, and the next one follows the last that was not chosen.
        assert_eq!(ns.alloc().unwrap().own_nr(), 2);
    }

    #[test]
    fn numbers_of_a_checkpoint() {
        let (root, saved) = (top(), [[4, 1], [9, 700]]);
        let ns = root.child(2, UserNamespace::initial(), None).unwrap();
        let again: Vec<_> = saved.iter().map(|numbers| ns.restore(numbers).unwrap()).collect();
        assert_eq!(again.iter().map(|pid| pid.numbers()).collect::<Vec<_>>(), saved);
        assert!(Arc::ptr_eq(&root.find(9).unwrap(), &again[1]) && root.taken().len() == 2);
        assert_eq!(ns.restore(&[10, 700]).err(), Some(Errno::EEXIST));
        for bad in [&[][..], &[10], &[10, 0], &[10, PID_MAX], &[-1, 5], &[10, 5, 5]] {
            assert_eq!(ns.restore(bad).err(), Some(Errno::EINVAL), "{bad:?}");
        }
        // What was refused takes no number.
        assert_eq!(ns.restore(&[10, 5]).unwrap().nr(), 10);
    }

    #[test]
    fn numbers_begin_again_and_can_run_out() {
        let ns = top().child(2, UserNamespace::initial(), None).unwrap();
        // The first is 1, whatever was set before.
        ns.set_last(9);
        let init = ns.alloc().unwrap();
        assert_eq!(init.own_nr(), 1);
        ns.set_last(PID_MAX - 2);
        let all: Vec<_> = (0..2).map(|_| ns.alloc().unwrap().own_nr()).collect();
        assert_eq!(all, [PID_MAX - 1, AFTER_WRAP]);
        let mut deepest = top();
        for _ in 0..MAX_LEVEL {
            deepest = deepest.child(9, UserNamespace::initial(), None).unwrap();
        }
        assert_eq!(deepest.child(9, UserNamespace::initial(), None).err(), Some(Errno::ENOSPC));
        let pid = deepest.alloc().unwrap();
        assert_eq!(pid.numbers_from(&pid, &deepest), [1]);
        deepest.close();
        assert_eq!(deepest.alloc().err(), Some(Errno::ENOMEM));
    }
}
