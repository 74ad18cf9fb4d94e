//! The inbox of a network namespace: frames that wait for its interfaces, and how an operation ends.
//!
//! Frames come from the loopback interface, from the other end of a veth pair, and from interfaces that stand upon others. Sending
//! only adds them. [`Inbox::finish`] ends an operation: it processes what waits here, and then in the inboxes of other namespaces that
//! got frames, up to a number of frames. What is left then, as a loop of bridges leaves it, waits for the timer of the upper layer.
//!
//! Generic over the interface `I`, so that an interface can own its inbox. Locks: `handed` is a leaf.

use super::backlog::Backlog;
use crate::frame::Frame;
use crate::memory::Memory;
use ktime::Ktime;
use lock_order::Mutex;
use std::sync::{Arc, OnceLock, Weak};

/// Frames that one operation processes, in all namespaces that it comes to.
pub(crate) const TURN: usize = 8192;

/// Other namespaces that one operation carries on with.
const MAX_HOPS: usize = 1000;

/// What the device layer needs of the layers above it, for one network namespace.
pub(crate) trait UpperLayer<I>: Send + Sync {
    /// Processes the frames of the namespace's inbox, at most `left` of them, which it counts down, and flushes its devices. Adds the
    /// inboxes of other namespaces that got frames meanwhile.
    fn turn(&self, now: Ktime, left: &mut usize, others: &mut Vec<Arc<Inbox<I>>>);

    /// Frames are left in the inbox: sets a timer for them.
    fn put_off(&self, now: Ktime);

    /// An operation of this namespace has ended.
    fn ended(&self, now: Ktime);

    /// The carrier of an interface may have changed, as the other end of its pair was set up or down.
    fn carrier_changed(&self, iface: &Arc<I>);

    /// Takes an interface out of the namespace, because the one below it or the other end of its pair is removed.
    fn remove(&self, index: u32) -> Option<Arc<I>>;
}

/// Where a frame goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It arrives on the interface.
    In,
    /// It leaves by the interface.
    Out,
}

/// A frame that waits at an interface.
pub(crate) struct Arrival<I> {
    pub(crate) iface: Arc<I>,
    pub(crate) frame: Frame,
    pub(crate) way: Way,
}

/// The frames of a network namespace that wait for their turn.
pub(crate) struct Inbox<I> {
    /// Number of the namespace among those that share interfaces.
    pub(crate) number: u64,
    backlog: Backlog<Arrival<I>>,
    /// Inboxes of other namespaces that were given frames since the last operation ended.
    handed: Mutex<Vec<Arc<Inbox<I>>>>,
    upper: OnceLock<Weak<dyn UpperLayer<I>>>,
}

impl<I> Inbox<I> {
    /// An empty inbox. Its bytes count for a memory.
    pub(crate) fn new(number: u64, memory: &Arc<Memory>) -> Arc<Inbox<I>> {
        Arc::new(Inbox {
            number,
            backlog: Backlog::new(memory),
            handed: Mutex::default(),
            upper: OnceLock::new(),
        })
    }

    /// Sets the upper layer; the first one stays.
    pub(crate) fn set_upper(&self, upper: Weak<dyn UpperLayer<I>>) {
        let _ = self.upper.set(upper);
    }

    /// The upper layer, while it exists.
    pub(crate) fn upper(&self) -> Option<Arc<dyn UpperLayer<I>>> {
        self.upper.get()?.upgrade()
    }

    /// Adds a frame of a flow; false when there is no room.
    pub(crate) fn push(&self, flow: u32, iface: Arc<I>, frame: Frame, way: Way) -> bool {
        let size = frame.buf.truesize();
        self.backlog.push(flow, Arrival { iface, frame, way }, size)
    }

    /// Processes what waits, also what the processing adds, but no more than `left` frames, which it counts down.
    pub(crate) fn run(&self, left: &mut usize, process: impl FnMut(Arrival<I>)) {
        self.backlog.run(left, process);
    }

    /// Whether frames wait.
    pub(crate) fn waits(&self) -> bool {
        self.backlog.waits()
    }

    /// The end of the operation is to carry on with another namespace.
    pub(crate) fn hand_over(&self, to: Arc<Inbox<I>>) {
        add(&mut self.handed.lock(), to);
    }

    /// Takes the inboxes that were given frames.
    pub(crate) fn take_handed(&self, others: &mut Vec<Arc<Inbox<I>>>) {
        self.handed.lock().drain(..).for_each(|other| add(others, other));
    }

    /// Ends an operation of the namespace whose upper layer is `upper`: processes what waits here and in the inboxes of other
    /// namespaces that got frames. No lock may be held.
    pub(crate) fn finish(&self, upper: &dyn UpperLayer<I>, now: Ktime) {
        // A loop of bridges keeps frames going round; each operation carries them on for a while only.
        let mut left = TURN;
        let mut others = std::mem::take(&mut *self.handed.lock());
        upper.turn(now, &mut left, &mut others);
        for _ in 0..MAX_HOPS {
            let Some(other) = others.pop() else { break };
            if let Some(upper) = other.upper() {
                upper.turn(now, &mut left, &mut others);
            }
        }
        for other in others.drain(..) {
            if let Some(upper) = other.upper() {
                upper.put_off(now);
            }
        }
        upper.ended(now);
        let mut handed = self.handed.lock();
        if handed.capacity() == 0 {
            *handed = others;
        }
    }
}

/// Adds an inbox to a list, once.
pub(crate) fn add<I>(list: &mut Vec<Arc<Inbox<I>>>, inbox: Arc<Inbox<I>>) {
    if !list.iter().any(|known| Arc::ptr_eq(known, &inbox)) {
        list.push(inbox);
    }
}

/// Keeps the packets of a flow together: addresses and ports, wherever they are.
pub(crate) fn flow_of(bytes: &[u8]) -> u32 {
    let part = bytes.get(26..58.min(bytes.len())).unwrap_or_default();
    part.iter().fold(0u32, |sum, byte| sum.rotate_left(5) ^ u32::from(*byte))
}
