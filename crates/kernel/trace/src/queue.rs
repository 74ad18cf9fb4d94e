//! Packets on their way to a sink: a bounded queue between the guest's threads and the sink's.

use lock_order::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Most bytes that wait for a sink.
pub(crate) const CAPACITY: usize = 4 << 20;

/// So many bytes end the sink's pause: about what a socket's buffer takes with its bookkeeping.
const ENOUGH: usize = 32 << 10;

/// Bytes of the length before each packet.
const PREFIX: usize = 4;

/// Packets, one behind the other.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
}

impl Batch {
    /// Takes the packets one by one; `f` may change them.
    pub(crate) fn drain(&mut self, mut f: impl FnMut(&mut [u8])) {
        let mut rest = self.bytes.as_mut_slice();
        while let Some((prefix, packets)) = rest.split_first_chunk_mut::<PREFIX>() {
            let len = (u32::from_le_bytes(*prefix) as usize).min(packets.len());
            let (packet, behind) = packets.split_at_mut(len);
            f(packet);
            rest = behind;
        }
        self.bytes.clear();
    }

    fn push(&mut self, packet: &[u8]) -> bool {
        let fits = self.bytes.len() + PREFIX + packet.len() <= CAPACITY;
        if fits {
            self.bytes.extend_from_slice(&(packet.len() as u32).to_le_bytes());
            self.bytes.extend_from_slice(packet);
        }
        fits
    }
}

#[derive(Default)]
struct State {
    waiting: Batch,
    /// The sink's thread is to be woken when so many bytes wait.
    wake_at: Option<usize>,
    /// The thread has left.
    left: bool,
    closed: bool,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    over: Condvar,
}

impl Queue {
    /// Adds a packet; false when there is no room for it.
    pub(crate) fn push(&self, packet: &[u8]) -> bool {
        let mut state = self.state.lock();
        let added = !state.closed && state.waiting.push(packet);
        if state.wake_at.is_some_and(|bytes| state.waiting.bytes.len() >= bytes) {
            state.wake_at = None;
            self.filled.notify_one();
        }
        added
    }

    /// Exchanges an empty batch for what waits, and sleeps until something does. False once the queue is closed and empty.
    pub(crate) fn take(&self, batch: &mut Batch) -> bool {
        let mut state = self.state.lock();
        while state.waiting.bytes.is_empty() {
            if state.closed {
                return false;
            }
            state.wake_at = Some(1);
            self.filled.wait(&mut state);
        }
        state.wake_at = None;
        std::mem::swap(batch, &mut state.waiting);
        true
    }

    /// Whether no packet comes any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// The thread pauses so that packets collect: waking it for each would cost the guest more than the packet. Ends
    /// early when there are enough, or the queue is closed.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.closed && state.waiting.bytes.len() < ENOUGH && Instant::now() < until {
            state.wake_at = Some(ENOUGH);
            self.filled.wait_until(&mut state, until);
        }
        state.wake_at = None;
    }

    /// Takes no more packets.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }

    /// The sink's thread is done.
    pub(crate) fn leave(&self) {
        self.state.lock().left = true;
        self.over.notify_all();
    }

    /// Waits until the sink's thread has sent what was there.
    pub(crate) fn wait_until_over(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while !state.left && Instant::now() < deadline {
            self.over.wait_until(&mut state, deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_order() {
        let queue = Queue::default();
        assert!(queue.push(b"one") && queue.push(b"") && queue.push(b"three"));
        let mut batch = Batch::default();
        assert!(queue.take(&mut batch));
        let mut seen = Vec::new();
        batch.drain(|packet| seen.push(packet.to_vec()));
        assert_eq!(seen, [b"one".to_vec(), b"".to_vec(), b"three".to_vec()]);
        queue.close();
        assert!(!queue.push(b"four") && !queue.take(&mut batch));
    }

    #[test]
    fn a_pause_ends_with_enough_packets() {
        let queue = Queue::default();
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| queue.pause(Duration::from_secs(60)));
            for _ in 0..=ENOUGH / 1024 {
                assert!(queue.push(&[0; 1024]));
            }
        });
        assert!(began.elapsed() < Duration::from_secs(30));
        queue.pause(Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_full_queue_refuses() {
        let queue = Queue::default();
        let big = vec![0; CAPACITY / 2];
        assert!(queue.push(&big) && !queue.push(&big) && queue.push(b"small"));
    }
}
