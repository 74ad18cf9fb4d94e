//! Contexts of asynchronous input and output. See io_setup(2), io_getevents(2).
//!
//! A context holds finished operations until somebody fetches them. They belong to an address space, where each has
//! the address of its (otherwise unused) ring page as identifier. Lock: a leaf.

use abi::{Errno, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use vfs::{Caller, Failure, Outcome};
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most operations of all contexts of the sandbox (fs.aio-max-nr).
pub const MAX_TOTAL: u64 = 65536;
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// Operations reserved by all contexts (fs.aio-nr).
pub fn total() -> u64 {
    TOTAL.load(Ordering::Relaxed)
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

/// A context.
pub struct AioContext {
    max: usize,
    done: Mutex<VecDeque<IoEvent>>,
    queue: WaitQueue,
    dead: AtomicBool,
}

impl Drop for AioContext {
    fn drop(&mut self) {
        TOTAL.fetch_sub(self.max as u64, Ordering::Relaxed);
    }
}

impl AioContext {
    /// One for `max` operations; EAGAIN when there are too many in all.
    pub fn new(max: u32) -> Result<Arc<AioContext>> {
        let add = |n: u64| n.checked_add(max.into()).filter(|n| *n <= MAX_TOTAL);
        TOTAL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| Errno::EAGAIN)?;
        Ok(Arc::new(AioContext {
            max: max as usize,
            done: Mutex::default(),
            queue: WaitQueue::new(),
            dead: AtomicBool::new(false),
        }))
    }

    /// True when another operation fits.
    pub fn has_room(&self) -> bool {
        self.done.lock().len() < self.max
    }

    /// An operation has finished.
    pub fn finish(&self, e: IoEvent) {
        self.done.lock().push_back(e);
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
        let ready = || {
            let n = self.done.lock().len();
            (n >= min || self.dead.load(Ordering::SeqCst)).then_some(())
        };
        let stop = cx.waiter().wait_on(&self.queue, Events::IN, deadline, ready).err();
        let mut done = self.done.lock();
        let n = done.len().min(max);
        match stop {
            Some(wait::Stop::Interrupted) if n == 0 => Err(Failure::Interrupted),
            _ => Ok(done.drain(..n).collect()),
        }
    }

    /// io_destroy(2).
    pub fn close(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.queue.notify(Events::ALL);
    }
}

/// The contexts of an address space.
pub type AioTable = Mutex<BTreeMap<u64, Arc<AioContext>>>;
