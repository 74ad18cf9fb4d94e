//! Where threads come together that are to stand still. `T` is the thread as others see it, `C` as it runs itself. Not part of a
//! checkpoint: it is how one is made.

use lock_order::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use wait::WaitQueue;

/// What a thread that stands still does for others.
pub(crate) type Job<C> = Box<dyn FnOnce(&mut C) + Send>;

/// A thread that stands still.
pub(crate) struct Standing<T, C> {
    pub(crate) task: Arc<T>,
    pub(crate) jobs: Mutex<Vec<Job<C>>>,
}

/// Where the threads come together.
pub(crate) struct Meeting<T, C> {
    /// Those that have come, by ID.
    pub(crate) threads: Mutex<BTreeMap<i32, Arc<Standing<T, C>>>>,
    /// Notified when one comes.
    pub(crate) came: WaitQueue,
    /// They go on.
    pub(crate) over: AtomicBool,
}

impl<T, C> Default for Meeting<T, C> {
    fn default() -> Meeting<T, C> {
        Meeting { threads: Mutex::default(), came: WaitQueue::new(), over: AtomicBool::new(false) }
    }
}
