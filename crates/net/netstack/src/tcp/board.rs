//! The scoreboard: what was sent and not yet acknowledged (RFC 6675's terms, counted in packets as Linux does).

use crate::wire::seq::Seq;
use crate::wire::tcp::Range;
use ktime::Ktime;
use std::collections::VecDeque;

bitflags::bitflags! {
    /// What is known of a sent segment.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    #[serde(from = "u8", into = "u8")]
    pub(crate) struct Mark: u8 {
        /// The peer has it.
        const SACKED = 1;
        /// Taken for lost.
        const LOST = 2;
        /// A retransmission is under way.
        const RETRANS = 4;
        /// It was retransmitted at least once.
        const EVER = 8;
        /// It was sent while the application had nothing more to send.
        const APP_LIMITED = 16;
        /// PSH ends it.
        const PUSH = 32;
    }
}

impl From<u8> for Mark {
    fn from(bits: u8) -> Mark {
        Mark::from_bits_truncate(bits)
    }
}

impl From<Mark> for u8 {
    fn from(flags: Mark) -> u8 {
        flags.bits()
    }
}

/// A segment, or several that were sent as one.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sent {
    pub(crate) seq: Seq,
    pub(crate) end: Seq,
    /// Segments on the wire.
    pub(crate) packets: u32,
    /// Last transmission.
    pub(crate) at: Ktime,
    pub(crate) mark: Mark,
    /// Packets delivered when it was sent, and when that number was reached: for delivery rates.
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Ktime,
    /// When the first packet of the flight was sent.
    pub(crate) flight_start: Ktime,
}

impl Sent {
    fn packets_for(&self, mss: u32) -> u32 {
        (self.end - self.seq).div_ceil(mss.max(1)).max(1)
    }
}

/// The list with its sums. Plain data.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Scoreboard {
    list: VecDeque<Sent>,
    /// Packets of the list.
    pub(crate) out: u32,
    /// Packets that the peer has.
    pub(crate) sacked: u32,
    /// Packets taken for lost.
    pub(crate) lost: u32,
    /// Retransmissions under way.
    pub(crate) retrans: u32,
    /// Duplicate acknowledgements that stand for packets, with peers that send no SACK.
    pub(crate) dupacks: u32,
    mss: u32,
}

impl Scoreboard {
    /// Packets in the network, as far as is known.
    pub(crate) fn in_flight(&self) -> u32 {
        (self.out + self.retrans).saturating_sub(self.sacked + self.lost + self.dupacks)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.mss = mss.max(1);
    }

    pub(crate) fn front(&self) -> Option<&Sent> {
        self.list.front()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Sent> + ExactSizeIterator {
        self.list.iter()
    }

    pub(crate) fn push(&mut self, sent: Sent) {
        self.out += sent.packets;
        self.list.push_back(sent);
    }

    /// Takes all entries out.
    pub(super) fn take_all(&mut self) -> Vec<Sent> {
        self.list.drain(..).collect()
    }

    /// Puts an entry with its marks to the end.
    pub(super) fn put_back(&mut self, sent: Sent) {
        self.add(&sent, 1);
        self.list.push_back(sent);
    }

    fn add(&mut self, sent: &Sent, sign: i32) {
        let change = |count: &mut u32, mark| {
            if sent.mark.contains(mark) {
                *count = count.saturating_add_signed(sign * sent.packets as i32);
            }
        };
        change(&mut self.sacked, Mark::SACKED);
        change(&mut self.lost, Mark::LOST);
        change(&mut self.retrans, Mark::RETRANS);
        self.out = self.out.saturating_add_signed(sign * sent.packets as i32);
    }

    /// Changes the `n`-th entry and the sums with it.
    pub(crate) fn change(&mut self, n: usize, f: impl FnOnce(&mut Sent)) {
        let Some(mut sent) = self.list.get(n).copied() else { return };
        self.add(&sent, -1);
        f(&mut sent);
        self.add(&sent, 1);
        self.list[n] = sent;
    }

    /// Marks the `n`-th entry lost.
    pub(crate) fn mark_lost(&mut self, n: usize) {
        self.change(n, |sent| {
            sent.mark.insert(Mark::LOST);
            sent.mark.remove(Mark::RETRANS);
        });
    }

    /// Cuts the `n`-th entry in two at a sequence number inside it.
    pub(crate) fn split(&mut self, n: usize, at: Seq) {
        let Some(&whole) = self.list.get(n) else { return };
        if !at.after(whole.seq) || !at.before(whole.end) {
            return;
        }
        self.add(&whole, -1);
        let (mut left, mut right) = (Sent { end: at, ..whole }, Sent { seq: at, ..whole });
        left.mark.remove(Mark::PUSH);
        (left.packets, right.packets) = (left.packets_for(self.mss), right.packets_for(self.mss));
        self.add(&left, 1);
        self.add(&right, 1);
        self.list[n] = left;
        self.list.insert(n + 1, right);
    }

    /// Index of the first entry that ends after `seq`.
    pub(crate) fn index_of(&self, seq: Seq) -> usize {
        self.list.partition_point(|sent| sent.end.upto(seq))
    }

    /// Takes entries that end at or before `una`; a partly acknowledged entry is cut. `each` sees them.
    pub(crate) fn acknowledge(&mut self, una: Seq, mut each: impl FnMut(&Sent)) {
        while let Some(&first) = self.list.front() {
            if first.end.after(una) {
                if first.seq.before(una) {
                    self.split(0, una);
                    continue;
                }
                break;
            }
            self.add(&first, -1);
            self.list.pop_front();
            each(&first);
        }
    }

    /// Marks what a range covers as received. `each` sees entries as they were before, if they were not marked.
    pub(crate) fn sack(&mut self, range: Range, mut each: impl FnMut(&Sent)) {
        let mut n = self.index_of(range.start);
        if self.list.get(n).is_some_and(|sent| sent.seq.before(range.start)) {
            self.split(n, range.start);
            n += 1;
        }
        while let Some(&sent) = self.list.get(n) {
            if !sent.seq.before(range.end) {
                break;
            }
            if sent.end.after(range.end) {
                self.split(n, range.end);
                continue;
            }
            if !sent.mark.contains(Mark::SACKED) {
                each(&sent);
                self.change(n, |sent| {
                    sent.mark.insert(Mark::SACKED);
                    sent.mark.remove(Mark::LOST | Mark::RETRANS);
                });
            }
            n += 1;
        }
    }

    /// Forgets what the peer said to have (it took it back; RFC 2018 section 8).
    pub(crate) fn forget_sacks(&mut self) {
        for n in 0..self.list.len() {
            self.change(n, |sent| sent.mark.remove(Mark::SACKED));
        }
        self.dupacks = 0;
    }

    /// Takes nothing for lost any more: the recovery was spurious.
    pub(crate) fn forget_losses(&mut self) {
        for n in 0..self.list.len() {
            self.change(n, |sent| sent.mark.remove(Mark::LOST));
        }
    }

    /// The first entry that is lost and not retransmitted, from an index on.
    pub(crate) fn next_lost(&self, from: usize) -> Option<usize> {
        let wanted = |sent: &Sent| sent.mark & (Mark::LOST | Mark::RETRANS | Mark::SACKED) == Mark::LOST;
        self.list.iter().skip(from).position(wanted).map(|n| n + from)
    }

    pub(crate) fn get(&self, n: usize) -> Option<&Sent> {
        self.list.get(n)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn sent(seq: u32, end: u32) -> Sent {
        Sent {
            seq: Seq(seq),
            end: Seq(end),
            packets: (end - seq).div_ceil(10),
            at: Ktime::ZERO,
            mark: Mark::empty(),
            delivered: 0,
            delivered_at: Ktime::ZERO,
            flight_start: Ktime::ZERO,
        }
    }

    /// Sums equal what the list says, and marks equal a bitmap of the bytes, whatever happens.
    #[test]
    fn agrees_with_a_bitmap() {
        let mut random = Random::new(6);
        for _ in 0..300 {
            let (mut board, mut model) = (Scoreboard::default(), vec![false; 2000]);
            board.set_mss(10);
            (0..20).for_each(|n| board.push(sent(n * 100, n * 100 + 100)));
            let mut una = 0;
            for _ in 0..30 {
                let start = una + random.below(2000 - una as u64) as u32;
                let end = (start + 1 + random.below(150) as u32).min(2000);
                board.sack(Range { start: Seq(start), end: Seq(end) }, |_| ());
                model[start as usize..end as usize].fill(true);
                if random.chance(20) {
                    una += random.below(100) as u32;
                    board.acknowledge(Seq(una), |_| ());
                }
                let n = random.below(board.len() as u64 + 1) as usize;
                if board.get(n).is_some_and(|sent| !sent.mark.contains(Mark::SACKED)) {
                    board.mark_lost(n);
                }
                for sent in board.iter() {
                    let bytes = &model[sent.seq.0 as usize..sent.end.0 as usize];
                    assert!(bytes.iter().all(|b| *b == sent.mark.contains(Mark::SACKED)));
                }
                let sum = |mark| {
                    let marked = board.iter().filter(|sent| sent.mark.contains(mark));
                    marked.map(|sent| sent.packets).sum::<u32>()
                };
                assert_eq!(board.out, sum(Mark::empty()));
                assert_eq!((board.sacked, board.lost), (sum(Mark::SACKED), sum(Mark::LOST)));
                assert_eq!(board.front().map_or(2000, |sent| sent.seq.0), una.min(2000));
            }
        }
    }
}
