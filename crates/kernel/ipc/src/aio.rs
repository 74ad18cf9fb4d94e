//! Contexts of asynchronous input and output. See io_setup(2), io_getevents(2).
//!
//! A context is a ring of finished operations in memory that the guest has mapped. A program may take operations from
//! it by itself. The guest may write anything there. So an index is taken modulo the ring's size, and events go only to
//! the place of the kernel's own tail. Contexts belong to an address space, which identifies them by the file behind
//! the mapping. Lock: a context's tail, a leaf. A checkpoint keeps [`AioState`]; the ring is kept with its file.

use abi::{Errno, PAGE_SIZE, Result};
use caller::quota::{Charge, Kind};
use caller::{Failure, Outcome};
use hostsys::memfd::SharedMapping;
use lock_order::Mutex;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use vfs::Caller;
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most operations of all contexts of the sandbox (fs.aio-max-nr).
pub const MAX_TOTAL: u64 = 65536;

/// Operations reserved by all contexts of a kernel.
#[derive(Default)]
pub struct Operations(AtomicU64);

impl Operations {
    /// How many (fs.aio-nr).
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// `struct io_event`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IoEvent {
    /// What the program put into the request.
    pub data: u64,
    /// Address of the request.
    pub obj: u64,
    /// Result or negative error number.
    pub res: i64,
    /// 0.
    pub res2: i64,
}

const EVENT: usize = size_of::<IoEvent>();
/// `struct aio_ring`: identifier, number of places, head, tail, magic, compatible and incompatible features, and its
/// own length.
const HEADER: usize = 32;
const NR: usize = 4;
const HEAD: usize = 8;
const TAIL: usize = 12;
const MAGIC: (usize, u32) = (16, 0xa10a_10a1);
const COMPATIBLE: (usize, u32) = (20, 1);
const LENGTH: (usize, u32) = (28, HEADER as u32);

/// Bytes of the ring of a context for `max` operations: twice as many places, and whole pages.
pub fn ring_size(max: u32) -> u64 {
    let places = u64::from(max.max(8)) * 2 + 2;
    (HEADER as u64 + places * EVENT as u64).next_multiple_of(PAGE_SIZE)
}

/// A ring in memory that the guest can write.
struct Ring {
    memory: SharedMapping,
    places: u32,
}

impl Ring {
    fn new(fd: impl AsFd, size: u64) -> Result<Ring> {
        let memory = SharedMapping::new(fd, 0, size as usize)?;
        let places = ((size as usize - HEADER) / EVENT) as u32;
        for (at, v) in [(NR, places), MAGIC, COMPATIBLE, LENGTH] {
            memory.word(at).store(v, Ordering::Relaxed);
        }
        Ok(Ring { memory, places })
    }

    fn head(&self) -> u32 {
        self.memory.word(HEAD).load(Ordering::Acquire) % self.places
    }

    /// How many events there are before `tail`.
    fn len(&self, tail: u32) -> u32 {
        (tail + self.places - self.head()) % self.places
    }

    fn place(at: u32) -> usize {
        HEADER + at as usize * EVENT
    }

    /// Stores an event at `tail`; gives the next tail.
    fn push(&self, tail: u32, e: &IoEvent) -> u32 {
        self.memory.copy_in(Ring::place(tail), e.as_bytes());
        let next = (tail + 1) % self.places;
        self.memory.word(TAIL).store(next, Ordering::Release);
        next
    }

    /// Takes up to `max` events before `tail`.
    fn pop(&self, tail: u32, max: usize) -> Vec<IoEvent> {
        let mut head = self.head();
        let n = max.min(((tail + self.places - head) % self.places) as usize);
        let take = || {
            let mut e = IoEvent::default();
            self.memory.copy_out(Ring::place(head), e.as_mut_bytes());
            head = (head + 1) % self.places;
            e
        };
        let events = std::iter::repeat_with(take).take(n).collect();
        self.memory.word(HEAD).store(head, Ordering::Release);
        events
    }
}

/// A context as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AioState {
    /// The open file that its ring is mapped from.
    pub file: u64,
    max: u32,
    tail: u32,
    user: u32,
}

impl AioState {
    /// Bytes of its ring. EINVAL for a context that cannot be.
    pub fn ring_size(&self) -> Result<u64> {
        if (1..=MAX_TOTAL).contains(&self.max.into()) { Ok(ring_size(self.max)) } else { Err(Errno::EINVAL) }
    }
}

/// A context.
pub struct AioContext {
    max: u32,
    ring: Ring,
    tail: Mutex<u32>,
    uid: u32,
    queue: WaitQueue,
    dead: AtomicBool,
    _reserved: Reserved,
    _charge: Charge,
}

/// Operations of one context.
struct Reserved(Arc<Operations>, u64);

impl Reserved {
    fn new(all: &Arc<Operations>, n: u64) -> Result<Reserved> {
        let add = |old: u64| old.checked_add(n).filter(|n| *n <= MAX_TOTAL);
        let done = all.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        done.map(|_| Reserved(all.clone(), n)).map_err(|_| Errno::EAGAIN)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl AioContext {
    /// One for `max` operations with a ring in a file of [`ring_size`] bytes that cannot shrink; EAGAIN when there are
    /// too many contexts or operations in all.
    pub fn new(cx: &dyn Caller, all: &Arc<Operations>, max: u32, ring: impl AsFd) -> Result<Arc<AioContext>> {
        AioContext::with(cx, cx.creds().uid, all, max, ring, 0)
    }

    fn with(
        cx: &dyn Caller,
        uid: u32,
        all: &Arc<Operations>,
        max: u32,
        ring: impl AsFd,
        tail: u32,
    ) -> Result<Arc<AioContext>> {
        let user = cx.quotas().account(uid);
        let charge = user.charge(Kind::AioContexts, 1).ok_or(Errno::EAGAIN)?;
        let reserved = Reserved::new(all, max.into())?;
        Ok(Arc::new(AioContext {
            max,
            ring: Ring::new(ring, ring_size(max))?,
            tail: Mutex::new(tail),
            uid,
            queue: WaitQueue::new(),
            dead: AtomicBool::new(false),
            _reserved: reserved,
            _charge: charge,
        }))
    }

    /// As plain data; `file` is the open file that its ring is mapped from.
    pub fn state(&self, file: u64) -> AioState {
        AioState { file, max: self.max, tail: *self.tail.lock(), user: self.uid }
    }

    /// Back from plain data, with a ring in a file of at least [`AioState::ring_size`] bytes that cannot shrink. EAGAIN when there
    /// are too many, EINVAL for what cannot be.
    pub fn restore(
        cx: &dyn Caller,
        all: &Arc<Operations>,
        saved: &AioState,
        ring: impl AsFd,
    ) -> Result<Arc<AioContext>> {
        let places = (saved.ring_size()? - HEADER as u64) / EVENT as u64;
        if u64::from(saved.tail) >= places {
            return Err(Errno::EINVAL);
        }
        AioContext::with(cx, saved.user, all, saved.max, ring, saved.tail)
    }

    fn len(&self) -> u32 {
        self.ring.len(*self.tail.lock())
    }

    /// True when another operation fits.
    pub fn has_room(&self) -> bool {
        self.len() < self.max
    }

    /// An operation has finished.
    pub fn finish(&self, e: IoEvent) {
        {
            let mut tail = self.tail.lock();
            *tail = self.ring.push(*tail, &e);
        }
        self.queue.notify(Events::IN);
    }

    /// Waits for `min` finished operations and takes at most `max`; fewer when the time is up or the context is gone.
    pub fn take(
        &self,
        cx: &dyn Caller,
        min: usize,
        max: usize,
        deadline: Option<Instant>,
    ) -> Outcome<Vec<IoEvent>> {
        let ready = || (self.len() as usize >= min || self.dead.load(Ordering::SeqCst)).then_some(());
        let stop = cx.waiter().wait_on(&self.queue, Events::IN, deadline, ready).err();
        let events = self.ring.pop(*self.tail.lock(), max);
        match stop {
            Some(wait::Stop::Interrupted) if events.is_empty() => Err(Failure::Interrupted),
            _ => Ok(events),
        }
    }

    /// io_destroy(2).
    pub fn close(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.queue.notify(Events::ALL);
    }
}

/// The contexts of an address space, by the id of the open file that is their ring's mapping.
pub type AioTable = Mutex<BTreeMap<u64, Arc<AioContext>>>;

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::testing::TestCaller;

    fn event(n: u64) -> IoEvent {
        IoEvent { data: n, obj: 2 * n, res: 3, res2: 0 }
    }

    #[test]
    fn a_program_shares_the_ring() {
        let cx = TestCaller::with_caps(0);
        let fd = hostsys::memfd::create(c"ring", ring_size(4), false).unwrap();
        let all = Arc::default();
        let c = AioContext::new(&cx, &all, 4, &fd).unwrap();
        assert_eq!(all.total(), 4);
        let guest = SharedMapping::new(&fd, 0, ring_size(4) as usize).unwrap();
        assert_eq!(guest.word(MAGIC.0).load(Ordering::Relaxed), MAGIC.1);
        let now = Some(Instant::now());
        for round in 0..500u64 {
            (0..3).for_each(|n| c.finish(event(round * 3 + n)));
            assert!(c.has_room());
            c.finish(event(7));
            assert!(!c.has_room());
            // The program takes one by itself.
            let places = guest.word(NR).load(Ordering::Relaxed);
            let head = guest.word(HEAD).load(Ordering::Relaxed);
            guest.word(HEAD).store((head + 1) % places, Ordering::Relaxed);
            let got = c.take(&cx, 1, 9, now).unwrap();
            assert_eq!(got, [event(round * 3 + 1), event(round * 3 + 2), event(7)]);
        }
        // Nonsense in the ring costs the program its events and harms no other program.
        for word in [u32::MAX, 0x8000_0000, 12345] {
            guest.word(HEAD).store(word, Ordering::Relaxed);
            guest.word(TAIL).store(word, Ordering::Relaxed);
            guest.word(NR).store(word, Ordering::Relaxed);
            c.finish(event(1));
            assert!(c.take(&cx, 0, 1000, now).unwrap().len() < 1000);
        }
        assert_eq!(c.take(&cx, 1, 9, now), Ok(vec![]));
        let saved = c.state(7);
        guest.word(HEAD).store(saved.tail, Ordering::Relaxed);
        c.finish(event(5));
        let saved = AioState { tail: c.state(7).tail, ..saved };
        drop(c);
        let c = AioContext::restore(&cx, &all, &saved, &fd).unwrap();
        assert_eq!((c.state(7), c.take(&cx, 1, 9, now)), (saved, Ok(vec![event(5)])));
        for bad in [
            AioState { tail: u32::MAX, ..saved },
            AioState { max: 0, ..saved },
            AioState { max: u32::MAX, ..saved },
        ] {
            assert_eq!(AioContext::restore(&cx, &all, &bad, &fd).err(), Some(Errno::EINVAL));
        }
        drop(c);
        assert_eq!(all.total(), 0);
    }
}
