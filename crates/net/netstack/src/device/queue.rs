//! The queue of a TUN or TAP device: what the stack sends waits for a reader. Lock rank: `FRAMES`.

use super::driver::{About, Device, Features};
use crate::frame::Frame;
use crate::notify::{Events, Notifier};
use lock_order::{Mutex, rank};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// Frames that wait for the reader of a TUN or TAP device (`tx_queue_len`).
const QUEUE_FRAMES: usize = 500;

/// The device behind a TUN or TAP file: what the stack sends waits for a reader. What a writer writes goes to
/// [`crate::Stack::receive`].
pub struct QueueDevice {
    queue: Mutex<VecDeque<Frame>, { rank::FRAMES }>,
    features: Features,
    notify: Notifier,
}

impl QueueDevice {
    /// An empty queue. Features are what the reader takes (`TUNSETOFFLOAD`).
    pub fn new(features: Features, notify: Notifier) -> Arc<QueueDevice> {
        Arc::new(QueueDevice { queue: Mutex::default(), features, notify })
    }

    /// Takes the oldest frame.
    pub fn pop(&self) -> Option<Frame> {
        self.queue.lock().pop_front()
    }

    /// The frames that wait, oldest first.
    pub fn frames(&self) -> Vec<Frame> {
        self.queue.lock().iter().cloned().collect()
    }

    /// True when a frame waits.
    pub fn is_ready(&self) -> bool {
        !self.queue.lock().is_empty()
    }
}

impl Device for QueueDevice {
    fn features(&self) -> Features {
        self.features
    }

    fn about(&self) -> About {
        About { kind: "tun", ..About::default() }
    }

    fn transmit(&self, frame: Frame) {
        let mut queue = self.queue.lock();
        if queue.len() < QUEUE_FRAMES {
            queue.push_back(frame);
            drop(queue);
            self.notify.changed(Events::IN);
        }
    }
}

impl fmt::Debug for QueueDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueDevice({} frames)", self.queue.lock().len())
    }
}
