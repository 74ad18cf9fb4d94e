//! State of cpu.max: see `bandwidth`. Lock: TIMER. A checkpoint keeps nothing: the groups' use is looked at again.

use caller::timer::TimerHandle;
use lock_order::{Mutex, rank};
use std::sync::atomic::AtomicBool;
use wait::WaitQueue;

/// When the use of the groups is looked at.
#[derive(Default)]
pub(crate) struct BandwidthTimer {
    /// Some group is throttled.
    pub(crate) any: AtomicBool,
    /// Notified when a throttled group may go on.
    pub(crate) released: WaitQueue,
    pub(crate) timer: Mutex<Option<TimerHandle>, { rank::TIMER }>,
}
