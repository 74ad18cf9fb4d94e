//! The pipe's buffer: a bounded queue of page-sized slots. Pure: bytes in, bytes out.
//!
//! Capacity counts slots, as on Linux: a small write shares the last slot when it fits
//! there whole, otherwise it takes one of its own. Packets never share a slot, nor do pages that were
//! not copied by a write (vmsplice, splice, tee).

use std::collections::VecDeque;

/// Bytes in a slot; also PIPE_BUF, the longest write that is never split.
pub const SLOT: usize = 4096;
/// Most slots of a pipe: 2 GiB.
const MOST_SLOTS: usize = (1 << 31) / SLOT;
/// Freed buffers kept for the next writes.
const SPARE: usize = 4;

struct Slot {
    data: Vec<u8>,
    start: usize,
    packet: bool,
    /// A later write may go on in it.
    open: bool,
}

/// Queue of bytes with a bound on slots.
pub struct Ring {
    slots: VecDeque<Slot>,
    max: usize,
    spare: Vec<Vec<u8>>,
}

/// A slot as plain data.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SlotState {
    /// What is to be read.
    pub unread: Vec<u8>,
    /// Bytes of the slot that have been read but still take up space.
    pub read: usize,
    /// A packet of O_DIRECT.
    pub packet: bool,
    /// A later write may go on in it.
    #[serde(default)]
    pub open: bool,
}

/// A ring as plain data, for a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RingState {
    /// Slots in use, oldest first.
    pub slots: Vec<SlotState>,
    /// Most slots it may hold.
    pub max: usize,
}

impl RingState {
    /// EINVAL for what no ring can be.
    pub fn check(&self) -> abi::Result<()> {
        let fits = |slot: &SlotState| slot.read <= SLOT && slot.unread.len() <= SLOT - slot.read;
        let right = (1..=MOST_SLOTS).contains(&self.max) && self.slots.len() <= self.max;
        if right && self.slots.iter().all(fits) { Ok(()) } else { Err(abi::Errno::EINVAL) }
    }
}

impl From<&RingState> for Ring {
    fn from(s: &RingState) -> Ring {
        let slot = |s: &SlotState| {
            let mut data = vec![0; s.read];
            data.extend_from_slice(&s.unread);
            Slot { data, start: s.read, packet: s.packet, open: s.open }
        };
        Ring { slots: s.slots.iter().map(slot).collect(), max: s.max, spare: Vec::new() }
    }
}

impl Ring {
    /// As plain data.
    pub fn state(&self) -> RingState {
        let slot = |s: &Slot| SlotState {
            unread: s.data.get(s.start..).unwrap_or_default().to_vec(),
            read: s.start,
            packet: s.packet,
            open: s.open,
        };
        RingState { slots: self.slots.iter().map(slot).collect(), max: self.max }
    }

    /// An empty ring of `max` slots.
    pub fn new(max: usize) -> Ring {
        Ring { slots: VecDeque::new(), max, spare: Vec::new() }
    }

    /// Most slots it may hold.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Changes the bound; false when more slots are in use than that.
    pub fn resize(&mut self, max: usize) -> bool {
        if self.slots.len() > max {
            return false;
        }
        self.max = max;
        true
    }

    /// No byte to read.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// No slot to write to (a small write may still share the last one).
    pub fn is_full(&self) -> bool {
        self.slots.len() >= self.max
    }

    /// Bytes that a single write surely finds room for.
    pub fn room(&self) -> usize {
        self.max.saturating_sub(self.slots.len()) * SLOT
    }

    /// Bytes to read.
    pub fn len(&self) -> usize {
        self.slots.iter().map(|s| s.data.len() - s.start).sum()
    }

    /// Appends as much of `buf` as fits and returns how much that was. Up to PIPE_BUF bytes are taken
    /// whole or not at all.
    pub fn push(&mut self, buf: &[u8], packet: bool) -> usize {
        let mut done = 0;
        let tail = buf.len() % SLOT;
        if !packet
            && tail > 0
            && let Some(last) = self.slots.back_mut()
            && last.open
            && last.data.len() + tail <= SLOT
        {
            last.data.extend_from_slice(&buf[..tail]);
            done = tail;
        }
        while done < buf.len() && !self.is_full() {
            let n = (buf.len() - done).min(SLOT);
            let mut data = self.spare.pop().unwrap_or_default();
            data.extend_from_slice(&buf[done..done + n]);
            self.slots.push_back(Slot { data, start: 0, packet, open: !packet });
            done += n;
        }
        done
    }

    /// Appends as much of `buf` as fits, in slots that later writes do not share, and returns how much that was. The
    /// first slot holds `first` bytes at most.
    pub fn push_pages(&mut self, buf: &[u8], first: usize) -> usize {
        let mut done = 0;
        while done < buf.len() && !self.is_full() {
            let most = if done == 0 { first.clamp(1, SLOT) } else { SLOT };
            let n = (buf.len() - done).min(most);
            let mut data = self.spare.pop().unwrap_or_default();
            data.extend_from_slice(&buf[done..done + n]);
            self.slots.push_back(Slot { data, start: 0, packet: false, open: false });
            done += n;
        }
        done
    }

    /// Moves `want` bytes from the front to `buf`. What is taken of a slot must fit into `buf`, or nothing of the slot is. A
    /// packet ends the read; what is not wanted of it is lost.
    pub fn pop_whole(&mut self, buf: &mut [u8], want: usize) -> usize {
        let mut done = 0;
        while done < want {
            let Some(s) = self.slots.front_mut() else { break };
            let n = (s.data.len() - s.start).min(want - done);
            if n > buf.len() - done {
                break;
            }
            buf[done..done + n].copy_from_slice(&s.data[s.start..s.start + n]);
            done += n;
            s.start += n;
            let packet = s.packet;
            if packet || s.start == s.data.len() {
                self.drop_front();
            }
            if packet {
                break;
            }
        }
        done
    }

    /// Copies bytes from the front without taking them (tee).
    pub fn peek(&self, buf: &mut [u8]) -> usize {
        let mut done = 0;
        for s in &self.slots {
            let n = (s.data.len() - s.start).min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&s.data[s.start..s.start + n]);
            done += n;
            if s.packet || done == buf.len() {
                break;
            }
        }
        done
    }

    /// Moves up to `len` bytes to the end of `to`, or copies them (`keep`), as far as there are slots. Each slot or part
    /// of one gets a slot of its own.
    pub fn splice(&mut self, to: &mut Ring, len: usize, keep: bool) -> usize {
        let mut done = 0;
        let mut at = 0;
        while done < len && !to.is_full() {
            let Some(s) = self.slots.get_mut(at) else { break };
            let n = (s.data.len() - s.start).min(len - done);
            let whole = n == s.data.len() - s.start;
            done += n;
            if whole && !keep {
                let slot = self.slots.pop_front();
                to.slots.extend(slot);
                continue;
            }
            let data = s.data[s.start..s.start + n].to_vec();
            to.slots.push_back(Slot { data, start: 0, packet: s.packet, open: false });
            if keep {
                at += 1;
            } else {
                s.start += n;
            }
        }
        done
    }

    fn drop_front(&mut self) {
        if let Some(mut s) = self.slots.pop_front()
            && self.spare.len() < SPARE
        {
            s.data.clear();
            self.spare.push(s.data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Ring {
        fn pop(&mut self, buf: &mut [u8]) -> usize {
            let want = buf.len();
            self.pop_whole(buf, want)
        }
    }

    #[test]
    fn slots_that_do_not_fit_stay() {
        let (mut ring, mut buf) = (Ring::new(4), [0; SLOT + 2]);
        ring.push(&[1; SLOT], false);
        ring.push(b"abcd", false);
        ring.push(b"packet", true);
        assert_eq!(ring.pop_whole(&mut buf, SLOT + 100), SLOT);
        assert_eq!(ring.pop_whole(&mut buf[..3], 100), 0);
        assert_eq!((ring.pop_whole(&mut buf[..3], 3), &buf[..3]), (3, &b"abc"[..]));
        assert_eq!(ring.pop_whole(&mut buf[..3], 100), 1);
        assert_eq!((ring.pop_whole(&mut buf[..3], 100), ring.len()), (0, 6));
        assert_eq!((ring.pop_whole(&mut buf[..3], 3), ring.len()), (3, 0));
    }

    #[test]
    fn state_and_back() {
        let mut ring = Ring::new(4);
        ring.push(b"abc", false);
        ring.push(b"packet", true);
        ring.pop(&mut [0; 2]);
        let state = ring.state();
        let mut again = Ring::from(&state);
        assert_eq!(again.state(), state);
        assert_eq!((again.len(), again.max()), (7, 4));
        let mut buf = [0; 9];
        assert_eq!((again.pop(&mut buf), &buf[..7]), (7, &b"cpacket"[..]));
    }

    #[test]
    fn agrees_with_a_byte_queue() {
        let mut r = Ring::new(4);
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut seed = 1u64;
        let mut rand = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        for i in 0..20_000usize {
            if rand(2) == 0 {
                let data: Vec<u8> = (0..rand(9000)).map(|k| (k + i) as u8).collect();
                let n = r.push(&data, false);
                assert!(data.len() > SLOT || n == 0 || n == data.len());
                model.extend(&data[..n]);
            } else {
                let mut buf = vec![0; rand(9000)];
                let n = r.pop(&mut buf);
                assert_eq!(n, buf.len().min(model.len()));
                assert!(buf[..n].iter().eq(model.drain(..n).collect::<Vec<_>>().iter()));
            }
            assert_eq!(r.len(), model.len());
            assert!(r.slots.len() <= 4);
        }
    }

    #[test]
    fn splice_moves_what_fits() {
        let (mut a, mut b) = (Ring::new(4), Ring::new(2));
        assert_eq!(a.push(&[1; 3 * SLOT], false), 3 * SLOT);
        assert_eq!(a.splice(&mut b, 10, true), 10);
        assert_eq!((a.len(), b.len()), (3 * SLOT, 10));
        assert_eq!(a.splice(&mut b, 2 * SLOT, false), SLOT);
        assert_eq!((a.len(), b.len()), (2 * SLOT, SLOT + 10));
        assert_eq!(a.splice(&mut b, 1, false), 0);
        assert_eq!(b.pop(&mut [0; 2 * SLOT]), SLOT + 10);
        assert_eq!(a.splice(&mut b, 5, false), 5);
        assert_eq!((a.len(), b.len()), (2 * SLOT - 5, 5));
        // A part of a slot is a page of its own, which later writes do not share; a slot that moved whole can still grow.
        assert_eq!(b.push(b"x", false), 1);
        assert_eq!((b.len(), b.slots.len()), (6, 2));
        let (mut a, mut b) = (Ring::new(2), Ring::new(2));
        a.push(b"ab", false);
        assert_eq!((a.splice(&mut b, 2, false), b.push(b"c", false), b.slots.len()), (2, 1, 1));
    }

    #[test]
    fn pages_of_others_are_not_shared() {
        let mut r = Ring::new(4);
        assert_eq!((r.push_pages(b"a", SLOT), r.push(b"b", false), r.push(b"c", false)), (1, 1, 1));
        assert_eq!((r.slots.len(), Ring::from(&r.state()).push(b"d", false)), (2, 1));
        assert_eq!((r.push_pages(&[1; 2 * SLOT], 3), r.slots.len()), (SLOT + 3, 4));
        assert_eq!(r.push_pages(b"x", SLOT), 0);
    }

    #[test]
    fn small_writes_share_a_slot_and_packets_do_not() {
        let mut r = Ring::new(2);
        for _ in 0..2 * SLOT {
            assert_eq!(r.push(b"x", false), 1);
        }
        assert_eq!(r.push(b"x", false), 0);
        let mut r = Ring::new(2);
        assert_eq!((r.push(b"abc", true), r.push(b"de", true), r.push(b"f", true)), (3, 2, 0));
        let mut b = [0; 2];
        assert_eq!((r.pop(&mut b), &b), (2, b"ab"));
        assert_eq!((r.pop(&mut b), &b), (2, b"de"));
        assert_eq!(r.pop(&mut b), 0);
    }
}
