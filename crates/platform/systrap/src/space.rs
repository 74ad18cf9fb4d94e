//! A stub process: memory of the guest, slots, and what happens when it dies.

use crate::FIRST_SLOT;
use crate::common::Held;
use crate::lent_fds::Lent;
use crate::rewrite::Sites;
use crate::slot::SlotMap;
use abi::{Errno, Result};
use hostsys::{futex, process};
use parking_lot::Mutex;
use platform::{AddressSpace, Before, GuestProcess, Interrupt, KNOWN_CALLS, Limits, Word};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use stub::layout::{INTERRUPT_SIGNAL, KNOWN_BIT, NSLOTS, SLEEP, STUB_TEXT};

/// A stub process.
pub(crate) struct Space {
    pub(crate) process: GuestProcess,
    slot_file: Arc<OwnedFd>,
    /// What the host had counted of the process before it served this address space.
    before: OnceLock<Before>,
    /// The process has had other threads, or not only its memory is another one than that of a new process.
    changed: AtomicBool,
    /// Guest threads that have not ended.
    pub(crate) contexts: AtomicU32,
    slots: Mutex<Slots>,
    threads: Mutex<Vec<Weak<Thread>>>,
    /// Threads that are being made.
    newcomers: AtomicUsize,
    /// It was allowed to fork: its slots may be mapped in other processes.
    pub(crate) forked: AtomicBool,
    /// Call sites rewritten in this memory.
    pub(crate) sites: Sites,
    /// Common files that the process has open.
    pub(crate) held: Held,
    /// Descriptors that it reads files by.
    pub(crate) lent: Lent,
}

#[derive(Default)]
struct Slots {
    maps: HashMap<usize, Arc<SlotMap>>,
    /// Given back, most recent last. Reused once the host thread that had it is gone.
    free: Vec<usize>,
    next: usize,
    leader: usize,
}

impl Space {
    /// `leader` is the slot of the process's first thread.
    pub(crate) fn new(
        pid: i32,
        pidfd: OwnedFd,
        slot_file: Arc<OwnedFd>,
        leader: usize,
        map: Arc<SlotMap>,
        limits: &Limits,
    ) -> Space {
        let slots = Slots { maps: HashMap::from([(leader, map)]), free: Vec::new(), next: 0, leader };
        let threads = Mutex::default();
        Space {
            process: GuestProcess::new(pid, pidfd, limits.max.min(STUB_TEXT), limits.vdso),
            slot_file,
            before: OnceLock::new(),
            changed: AtomicBool::new(false),
            contexts: AtomicU32::new(0),
            slots: Mutex::new(slots),
            threads,
            newcomers: AtomicUsize::new(0),
            forked: AtomicBool::new(false),
            sites: Sites::default(),
            held: Held::default(),
            lent: Lent::default(),
        }
    }

    /// A slot that no host thread uses.
    pub(crate) fn take_slot(&self) -> Result<(usize, Arc<SlotMap>)> {
        let mut s = self.slots.lock();
        let unused =
            |s: &Slots, i: &usize| s.maps.get(i).is_none_or(|m| m.alive().load(Ordering::Acquire) == 0);
        let reusable = s.free.iter().rposition(|i| unused(&s, i));
        let index = match reusable {
            Some(at) => s.free.remove(at),
            None => {
                if s.next == s.leader {
                    s.next += 1;
                }
                if s.next as u64 >= NSLOTS {
                    return Err(Errno::EAGAIN);
                }
                s.next += 1;
                s.next - 1
            }
        };
        if let Some(map) = s.maps.get(&index) {
            return Ok((index, map.clone()));
        }
        match SlotMap::new(self.slot_file.as_fd(), index) {
            Ok(map) => {
                let map = Arc::new(map);
                s.maps.insert(index, map.clone());
                Ok((index, map))
            }
            Err(e) => {
                s.free.push(index);
                Err(e)
            }
        }
    }

    /// The slots of a process that has been reaped, emptied for another process, with that of its first thread mapped. `None`
    /// when another process or a thread of the sentry may still use them.
    pub(crate) fn into_spare(self) -> Option<(OwnedFd, Arc<SlotMap>)> {
        let mut slots = self.slots.into_inner();
        if self.forked.into_inner() || slots.leader != FIRST_SLOT {
            return None;
        }
        let map = slots.maps.remove(&FIRST_SLOT).filter(|map| Arc::strong_count(map) == 1)?;
        let file = Arc::into_inner(self.slot_file)?;
        crate::slot::empty_file(&file).ok()?;
        Some((file, map))
    }

    /// The process is not to serve another program.
    pub(crate) fn set_changed(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }

    /// Whether only its memory may be another one than that of a new process.
    pub(crate) fn is_unchanged(&self) -> bool {
        !self.changed.load(Ordering::SeqCst) && !self.forked.load(Ordering::SeqCst)
    }

    /// Another address space of the same process, of which only the first thread is left.
    pub(crate) fn successor(&self, limits: &Limits) -> Result<Space> {
        let pidfd = self.process.pidfd().try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
        let (leader, map) = {
            let slots = self.slots.lock();
            (slots.leader, slots.maps.get(&slots.leader).cloned().ok_or(Errno::ESRCH)?)
        };
        let mut space = Space::new(self.process.pid, pidfd, self.slot_file.clone(), leader, map, limits);
        space.held = self.held.copy();
        Ok(space)
    }

    /// Processor time in nanoseconds that the process has used, whatever it served.
    pub(crate) fn time(&self) -> Option<u64> {
        let time = self.process.while_alive(|pid| hostsys::clock::process_cpu_ns(pid).ok_or(Errno::ESRCH));
        time.ok().map(|ns| ns as u64)
    }

    /// A program begins in a process that has served another one.
    pub(crate) fn begins_after(&self, before: Before) {
        let _ = self.before.set(before);
    }

    pub(crate) fn give_back(&self, index: usize) {
        self.slots.lock().free.push(index);
    }

    /// Announces a thread, until the guard goes.
    pub(crate) fn expect_thread(&self) -> Newcomer<'_> {
        self.set_changed();
        self.newcomers.fetch_add(1, Ordering::SeqCst);
        Newcomer(self)
    }

    /// How many threads are being made.
    pub(crate) fn newcomers(&self) -> usize {
        self.newcomers.load(Ordering::SeqCst)
    }

    /// Registers a thread for the news of the process's death.
    pub(crate) fn add_thread(&self, thread: &Arc<Thread>) {
        let mut threads = self.threads.lock();
        if threads.len() >= 64 && threads.len().is_power_of_two() {
            threads.retain(|t| t.strong_count() > 0);
        }
        threads.push(Arc::downgrade(thread));
        drop(threads);
        if self.process.has_ended() {
            thread.mark_dead();
        }
    }

    /// The process has ended: every context learns it, then the zombie is reaped. Returns the thread ids to forget.
    pub(crate) fn died(&self) -> Vec<i32> {
        self.process.set_ended();
        let threads: Vec<_> = self.threads.lock().drain(..).filter_map(|t| t.upgrade()).collect();
        for t in &threads {
            t.mark_dead();
        }
        threads.iter().map(|t| t.tid).collect()
    }

    /// Whether `tid` is a thread of this process now.
    pub(crate) fn has_thread(&self, tid: i32) -> bool {
        self.process.while_alive(|pid| process::tgkill(pid, tid, 0)).is_ok()
    }
}

/// A thread that is being made, see [`Space::expect_thread`].
pub(crate) struct Newcomer<'a>(&'a Space);

impl Drop for Newcomer<'_> {
    fn drop(&mut self) {
        self.0.newcomers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl AddressSpace for Space {
    fn read(&self, addr: u64, buf: &mut [u8]) -> usize {
        self.process.read(addr, buf)
    }

    fn read_own(&self, addr: u64, buf: &mut [u8]) -> usize {
        let n = self.process.read(addr, buf);
        self.sites.show_own(addr, buf.get_mut(..n).unwrap_or_default());
        n
    }

    fn write(&self, addr: u64, data: &[u8]) -> usize {
        self.process.write(addr, data)
    }

    fn kill(&self) {
        self.process.kill();
    }

    fn host_pid(&self) -> i32 {
        self.process.pid
    }

    fn before(&self) -> Before {
        self.before.get().copied().unwrap_or_default()
    }
}

/// What the sentry has agreed that a stub thread may ask of the listener right now.
#[derive(Default)]
pub(crate) struct Grants {
    /// Flags of the one clone(2) that it may make.
    pub(crate) clone: Option<u64>,
    /// Descriptors that its actions name.
    pub(crate) fds: Vec<Arc<OwnedFd>>,
    /// A descriptor that is lent, and its number.
    pub(crate) lent: Option<(Arc<OwnedFd>, u32)>,
}

/// The part of a guest thread that other sentry threads reach.
pub(crate) struct Thread {
    pub(crate) space: Arc<Space>,
    pub(crate) index: usize,
    pub(crate) slot: Arc<SlotMap>,
    /// Named by the guest for threads, so only ever used together with the pid.
    pub(crate) tid: i32,
    /// The guest thread is (about to be) in guest code.
    running: AtomicBool,
    /// An interrupt has been asked for and not yet been reported.
    pending: AtomicBool,
    dead: AtomicBool,
    pub(crate) grants: Mutex<Grants>,
    pub(crate) answers: Mutex<Answers>,
    /// The process has emptied its memory of one program, and serves another one now.
    pub(crate) serves_again: Mutex<bool>,
}

impl Thread {
    pub(crate) fn new(space: Arc<Space>, index: usize, slot: Arc<SlotMap>, tid: i32) -> Arc<Thread> {
        let t = Thread {
            space,
            index,
            slot,
            tid,
            running: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            grants: Mutex::default(),
            answers: Mutex::default(),
            serves_again: Mutex::default(),
        };
        let t = Arc::new(t);
        t.space.add_thread(&t);
        t
    }

    /// The stub has made a request since `last`, or is dead.
    pub(crate) fn has_news(&self, last: u32) -> bool {
        self.slot.req().load(Ordering::Acquire) & !SLEEP != last || self.is_dead()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Makes the owner's wait end with `Exit::Dead`. Changes the request word, so a wait that has not begun fails too.
    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::SeqCst);
        let req = self.slot.req();
        let _ = req.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |v| Some((v ^ 0x4000_0000) & !SLEEP));
        futex::wake(req, i32::MAX);
    }

    /// An interrupt waits to be reported.
    pub(crate) fn interrupted(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// The guest is about to run. The answer that lets it, an exchange, is a barrier on x86 between this and a look at
    /// [`Thread::interrupted`].
    pub(crate) fn enter(&self) {
        self.running.store(true, Ordering::Release);
    }

    pub(crate) fn leave(&self) {
        self.running.store(false, Ordering::Release);
    }

    /// Takes the pending interrupt; false when there was none.
    pub(crate) fn take_pending(&self) -> bool {
        self.pending.swap(false, Ordering::SeqCst)
    }

    /// Stops the guest thread if it is in guest code; the stub notes it otherwise, and reports later.
    pub(crate) fn tell(&self) {
        let sent =
            self.space.process.while_alive(|pid| process::tgkill(pid, self.tid, INTERRUPT_SIGNAL as i32));
        if sent == Err(Errno::ESRCH) {
            self.mark_dead();
        }
    }
}

/// What the kernel has said about [`KNOWN_CALLS`].
#[derive(Default)]
pub(crate) struct Answers {
    /// Calls are to be reported all the same.
    pub(crate) report_all: bool,
    values: [Option<u32>; KNOWN_CALLS.len()],
}

impl Interrupt for Thread {
    fn asleep(&self) -> bool {
        self.slot.waiting().load(Ordering::Relaxed) != 0
    }

    fn host_tid(&self) -> i32 {
        self.tid
    }

    fn time_before(&self) -> u64 {
        if self.tid == self.space.process.pid { self.space.before().time } else { 0 }
    }

    fn set_answers(&self, answers: &[(u32, u32)]) {
        let mut known = self.answers.lock();
        for (nr, value) in answers {
            if let Some(i) = KNOWN_CALLS.iter().position(|k| k == nr)
                && let Some(v) = known.values.get_mut(i)
            {
                *v = Some(*value);
            }
        }
        for (nr, value) in KNOWN_CALLS.into_iter().zip(known.values) {
            let word = match value {
                Some(v) if !known.report_all => 1 << KNOWN_BIT | u64::from(v),
                _ => 0,
            };
            self.slot.known(nr).store(word, Ordering::Relaxed);
        }
    }

    fn word(&self, which: Word) -> Option<&AtomicU64> {
        Some(self.slot.word(which))
    }

    fn interrupt(&self) {
        if !self.pending.swap(true, Ordering::SeqCst) && self.running.load(Ordering::SeqCst) {
            self.tell();
        }
    }
}
