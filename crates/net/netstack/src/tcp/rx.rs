//! The receive queue of a connection: bytes in order, ranges that came early, the window, urgent data.
//!
//! It has its own lock, so that a reader and the sender of a connection do not wait for each other. Plain data.

use super::limits::{MOST_BYTES, SPAN};
use crate::buf::Pool;
use crate::chain::{Blocks, Chain, Span};
use crate::memory::Memory;
use crate::ring::Ring;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Range, Sacks};
use std::sync::Arc;

/// Ranges that wait for bytes before them. A peer that sends more is one that attacks.
const MAX_RANGES: usize = 512;

/// Urgent data (RFC 9293 section 3.8.5; tcp(7), `MSG_OOB`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Urgent {
    /// The urgent byte.
    pub(crate) at: Seq,
    /// The byte, once it is there and until it is read out of band.
    pub(crate) byte: Option<u8>,
    /// It was read out of band.
    pub(crate) taken: bool,
}

/// What a segment's data was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// New bytes in order, this many with those that were waiting.
    InOrder(u32),
    /// Kept for later.
    Early,
    /// Nothing new.
    Duplicate,
    /// No room, or outside the window.
    Dropped,
}

/// The queue; see the module.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct RxQueue {
    /// The bytes in order.
    #[serde(skip)]
    chain: Chain,
    /// Bytes that came early, from `nxt` on; empty for [`Ring`], which they lie ahead of.
    #[serde(skip)]
    ahead: Ring,
    /// Next sequence number in order.
    pub(crate) nxt: Seq,
    /// Right edge of the window that the peer knows.
    pub(crate) edge: Seq,
    /// `nxt` when the last acknowledgement was sent.
    pub(crate) acked: Seq,
    /// Bytes that may wait to be read: the largest window.
    pub(crate) capacity: usize,
    /// The capacity is what the program asked for.
    pub(crate) fixed: bool,
    /// The shift of the window field.
    pub(crate) scale: u8,
    /// The size of the peer's full segments, as far as it is seen.
    pub(crate) mss: u32,
    /// Segments with data in order since then.
    unacked: u32,
    early: Vec<Range>,
    /// A number inside each range, the latest arrival first.
    recent: Vec<Seq>,
    /// The duplicate to report (RFC 2883).
    pub(crate) dsack: Option<Range>,
    /// The sequence number of a FIN that came early.
    fin_at: Option<Seq>,
    /// The peer's FIN is in order.
    pub(crate) fin: bool,
    pub(crate) urgent: Option<Urgent>,
    /// `SO_OOBINLINE`
    pub(crate) inline: bool,
    /// The handshake is over. Bytes that came past the packet that ends it would make that packet an old one.
    pub(crate) established: bool,
    /// Only packets tell what the socket wants to know of them (`IP_MINTTL`).
    pub(crate) packets_only: bool,
    /// Bytes read by the application, in all.
    pub(crate) copied: u64,
    /// Bytes received in order, in all.
    pub(crate) received: u64,
    /// The last descriptor is closed: no reader is left.
    pub(crate) shut: bool,
    /// A sender of the same stack waits for room.
    pub(crate) sender_waits: bool,
    /// The other direction's end on this stack puts bytes in here directly.
    pub(crate) direct: bool,
}

impl RxQueue {
    /// An empty queue with blocks of a stack's pool. Its bytes count in the stack's memory.
    pub(crate) fn of(memory: &Arc<Memory>, pool: &Pool) -> RxQueue {
        RxQueue { chain: Chain::of(memory, pool), ahead: Ring::of(memory), ..RxQueue::default() }
    }

    /// All bytes for a checkpoint: those in order, and those that came early with what is between them.
    pub(super) fn image(&self) -> Vec<u8> {
        let ahead = self.early.last().map_or(0, |range| range.end.since(self.nxt));
        [self.chain.image(), self.ahead.image(ahead as usize)].concat()
    }

    /// Takes the bytes of a saved queue, of which the first `len` are in order. The queue counts in a stack's memory from now on;
    /// `None` when the state is none that a queue can have.
    pub(super) fn fill(
        &mut self,
        image: &[u8],
        len: usize,
        (memory, pool): (&Arc<Memory>, &Pool),
    ) -> Option<()> {
        let (ordered_bytes, ahead_bytes) = image.split_at_checked(len)?;
        let ahead = ahead_bytes.len();
        let mut at = self.nxt;
        let ordered = self.early.iter().all(|range| {
            let fine = range.start.after(at) && range.end.after(range.start) && range.end.upto(self.edge);
            at = range.end;
            fine
        });
        let fine = ordered
            && self.early.len() <= MAX_RANGES
            && at.since(self.nxt) as usize == ahead
            && self.edge.0.wrapping_sub(self.nxt.0) <= SPAN
            && self.nxt.0.wrapping_sub(self.acked.0) <= SPAN
            && image.len() <= SPAN as usize
            && self.capacity <= SPAN as usize
            && self.scale <= 14
            && self.mss <= 1 << 20
            && self.unacked <= SPAN
            && self.recent.len() <= 8
            && (!self.fin || self.early.is_empty())
            && self.copied <= MOST_BYTES
            && self.received <= MOST_BYTES;
        if !fine {
            return None;
        }
        (self.direct, self.sender_waits) = (false, false);
        (self.chain, self.ahead) = (Chain::of(memory, pool), Ring::of(memory));
        self.chain.push(ordered_bytes);
        self.ahead.write_ahead(0, ahead_bytes);
        Some(())
    }

    /// A queue that expects `nxt`.
    pub(crate) fn start(&mut self, nxt: Seq) {
        (self.nxt, self.edge, self.acked) = (nxt, nxt, nxt);
    }

    /// Bytes that can be read.
    pub(crate) fn len(&self) -> usize {
        self.chain.len()
    }

    /// True when bytes wait for others before them.
    pub(crate) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Makes room for a sender of the same stack that finds too little, when the reader keeps up and the size was not set by an option.
    pub(crate) fn grow(&mut self, limit: usize) {
        if !self.fixed && self.copied >= self.capacity as u64 {
            self.capacity = (2 * self.capacity).min(limit).max(self.capacity);
        }
    }

    /// Room for further bytes.
    pub(crate) fn room(&self) -> usize {
        self.chain.bounded(self.capacity).saturating_sub(self.chain.len())
    }

    /// The window that the peer knows, as far as it is not used up.
    pub(crate) fn window(&self) -> u32 {
        self.edge.since(self.nxt)
    }

    /// Where the window's edge would be if it were announced now. It moves by a full segment or half the buffer at least (RFC 9293
    /// section 3.8.6.2.2) and never back.
    fn next_edge(&self) -> Seq {
        let most = 65_535 << self.scale;
        let edge = self.nxt + self.room().min(most) as u32;
        let step = (self.capacity as u32 / 2).min(self.mss.max(1));
        if edge.since(self.edge) >= step { edge } else { self.edge.max(self.nxt) }
    }

    /// The window field of the next segment; the peer knows the edge from now on.
    pub(crate) fn announce(&mut self, scaled: bool) -> u16 {
        let scale = if scaled { self.scale } else { 0 };
        let window = self.next_edge() - self.nxt;
        // Rounded up, so that the edge does not move back.
        let field = window.div_ceil(1 << scale).min(65_535);
        self.edge = self.edge.max(self.nxt + (field << scale));
        self.acked = self.nxt;
        self.unacked = 0;
        field as u16
    }

    /// True when reading has made so much room that the peer should know.
    pub(crate) fn wants_update(&self) -> bool {
        let (known, next) = (self.window(), self.next_edge().since(self.nxt));
        !self.fin && next >= 2 * known && next.saturating_sub(known) >= self.mss.min(self.capacity as u32 / 2)
    }

    /// True when everything is read that came in two segments or more: the peer need not wait for its acknowledgement.
    pub(crate) fn wants_ack(&self) -> bool {
        self.unacked >= 2 && self.chain.is_empty()
    }

    /// Takes the data of a segment.
    pub(crate) fn accept(&mut self, seq: Seq, data: Span<'_>) -> Accepted {
        let end = seq + data.len() as u32;
        if end.upto(self.nxt) || self.fin {
            self.dsack = Some(Range { start: seq, end });
            return Accepted::Duplicate;
        }
        if seq.before(self.nxt) {
            self.dsack = Some(Range { start: seq, end: self.nxt });
        }
        let start = seq.max(self.nxt);
        let limit = self.edge.max(self.nxt);
        let end = end.min(limit);
        if !start.before(end) {
            return Accepted::Dropped;
        }
        let from = (start - seq) as usize;
        let Some(data) = data.part(from, from + (end - start) as usize) else { return Accepted::Dropped };
        self.keep_urgent(start, data.bytes());
        if start != self.nxt {
            return self.keep_early(Range { start, end }, data.bytes());
        }
        self.unacked += 1;
        if self.early.is_empty() {
            self.chain.push_span(data);
            return Accepted::InOrder(self.advance(end));
        }
        self.ahead.write_ahead(0, data.bytes());
        let n = self.advance(end);
        self.take_early(n as usize);
        Accepted::InOrder(n)
    }

    /// The first `n` bytes of those that came early are in order now.
    fn take_early(&mut self, n: usize) {
        self.ahead.commit(n);
        let [first, second] = self.ahead.peek(0, n);
        self.chain.push(first);
        self.chain.push(second);
        self.ahead.consume(n);
        if self.early.is_empty() {
            self.ahead.release();
        }
    }

    /// Puts bytes in without a segment; they are in order by construction. For the two ends of one stack.
    pub(crate) fn push(&mut self, data: Span<'_>) {
        self.chain.push_span(data);
        self.nxt += data.len() as u32;
        self.acked = self.nxt;
        self.edge = self.edge.max(self.nxt);
        self.received += data.len() as u64;
    }

    /// Moves `nxt` over bytes that have come, and over early ranges that follow.
    fn advance(&mut self, to: Seq) -> u32 {
        let before = self.nxt;
        let mut end = to;
        let reached = self.early.iter().take_while(|range| range.start.upto(end)).count();
        for range in self.early.drain(..reached) {
            end = end.max(range.end);
        }
        self.nxt = end;
        self.edge = self.edge.max(end);
        let n = end - before;
        self.received += u64::from(n);
        n
    }

    fn keep_early(&mut self, range: Range, data: &[u8]) -> Accepted {
        let first = self.early.partition_point(|known| known.end.before(range.start));
        let after = self.early.partition_point(|known| known.start.upto(range.end));
        let touched = &self.early[first..after.max(first)];
        if let Some(whole) = touched.iter().find(|k| k.start.upto(range.start) && range.end.upto(k.end)) {
            let inside = whole.start;
            self.dsack = Some(range);
            self.note_recent(inside);
            return Accepted::Duplicate;
        }
        if touched.is_empty() && self.early.len() >= MAX_RANGES {
            return Accepted::Dropped;
        }
        let joined = touched.iter().fold(range, |all, known| Range {
            start: all.start.min(known.start),
            end: all.end.max(known.end),
        });
        self.ahead.write_ahead((range.start - self.nxt) as usize, data);
        self.early.splice(first..after.max(first), [joined]);
        self.note_recent(range.start);
        Accepted::Early
    }

    fn note_recent(&mut self, seq: Seq) {
        self.recent.insert(0, seq);
        self.recent.truncate(8);
    }

    /// The ranges to report (RFC 2018 section 4, RFC 2883): the duplicate, then the latest first. The duplicate is reported once.
    pub(crate) fn sacks(&mut self, dsack: bool) -> Sacks {
        let mut sacks = Sacks::default();
        if let Some(duplicate) = self.dsack.take().filter(|_| dsack) {
            sacks.push(duplicate);
        }
        if self.early.is_empty() {
            self.recent.clear();
            return sacks;
        }
        let mut seen: [Option<Seq>; 9] = [None; 9];
        let recent = self.recent.iter().copied().chain(self.early.first().map(|range| range.start));
        for (n, seq) in recent.take(9).enumerate() {
            let place = self.early.partition_point(|range| range.end.upto(seq));
            let Some(range) = self.early.get(place).filter(|range| range.start.upto(seq)) else { continue };
            if !seen.contains(&Some(range.start)) {
                seen[n] = Some(range.start);
                sacks.push(*range);
            }
        }
        sacks
    }

    /// Takes a FIN at `seq`; true when it is in order now.
    pub(crate) fn accept_fin(&mut self, seq: Seq) -> bool {
        if !self.fin && seq.upto(self.edge.max(self.nxt)) && !seq.before(self.nxt) {
            self.fin_at = Some(seq);
        }
        self.finish()
    }

    /// True when a FIN that came early is in order now.
    pub(crate) fn finish(&mut self) -> bool {
        if self.fin || self.fin_at != Some(self.nxt) {
            return false;
        }
        self.fin = true;
        self.nxt += 1;
        self.edge = self.edge.max(self.nxt);
        self.early.clear();
        self.ahead.release();
        true
    }

    /// The sequence number of the next byte to read.
    pub(crate) fn read_seq(&self) -> Seq {
        self.nxt - self.chain.len() as u32 - u32::from(self.fin)
    }

    /// Notes an urgent pointer; true when it is news.
    pub(crate) fn urge(&mut self, at: Seq) -> bool {
        let old = self.urgent.is_some_and(|urgent| !at.after(urgent.at));
        if old || at.before(self.read_seq()) || at.before(self.nxt) {
            return false;
        }
        self.urgent = Some(Urgent { at, byte: None, taken: false });
        true
    }

    fn keep_urgent(&mut self, start: Seq, data: &[u8]) {
        if let Some(urgent) = &mut self.urgent
            && urgent.byte.is_none()
            && !urgent.taken
        {
            urgent.byte = data.get(urgent.at.0.wrapping_sub(start.0) as usize).copied();
        }
    }

    /// True when the next byte to read is the urgent one (`SIOCATMARK`).
    pub(crate) fn at_mark(&self) -> bool {
        self.urgent.is_some_and(|urgent| urgent.at == self.read_seq())
    }

    /// Bytes that a read gives before it stops at the urgent mark, and whether the urgent byte is skipped first.
    fn readable(&self, resume: bool) -> (usize, bool) {
        let Some(urgent) = self.urgent else { return (self.chain.len(), false) };
        let ahead = urgent.at.0.wrapping_sub(self.read_seq().0) as i32;
        match ahead {
            0 if self.inline => (self.chain.len(), false),
            0 if resume => (self.chain.len().saturating_sub(1), !self.chain.is_empty()),
            ahead if ahead > 0 => (self.chain.len().min(ahead as usize), false),
            _ => (self.chain.len(), false),
        }
    }

    /// Copies bytes out, and takes them unless `peek` says so. Zero means that nothing is there.
    #[cfg(test)]
    pub(crate) fn read(&mut self, out: &mut [u8], peek: bool) -> usize {
        self.read_from(0, out, peek)
    }

    /// Like [`RxQueue::read`], from an offset; only peeking has one.
    pub(crate) fn read_from(&mut self, offset: usize, out: &mut [u8], peek: bool) -> usize {
        let (limit, skip) = self.readable(true);
        let skip = usize::from(skip);
        let n = limit.saturating_sub(offset).min(out.len());
        let n = self.chain.copy_to(skip + offset, &mut out[..n]);
        if !peek && n > 0 {
            self.take(n + skip);
        }
        n
    }

    /// Takes up to `most` bytes with their blocks.
    pub(crate) fn read_blocks(&mut self, most: usize) -> Blocks {
        let (limit, skip) = self.readable(true);
        let (n, skip) = (limit.min(most), usize::from(skip));
        let blocks = self.chain.peek(skip, n);
        if n > 0 {
            self.take(n + skip);
        }
        blocks
    }

    /// Puts the last bytes that were taken back: their reader had no place for them.
    pub(crate) fn put_back(&mut self, blocks: Blocks) {
        let n: usize = blocks.iter().map(|block| block.len()).sum();
        if n as u64 <= self.copied {
            self.copied -= n as u64;
            self.chain.put_back(blocks);
        }
    }

    fn take(&mut self, n: usize) {
        self.chain.consume(n);
        self.copied += n as u64;
        self.forget_urgent();
    }

    /// Drops bytes without copying them (`MSG_TRUNC`).
    pub(crate) fn discard(&mut self, n: usize) -> usize {
        let n = n.min(self.chain.len());
        self.take(n);
        n
    }

    fn forget_urgent(&mut self) {
        if self.urgent.is_some_and(|urgent| urgent.at.before(self.read_seq())) {
            self.urgent = None;
        }
    }

    /// Memory of the queue.
    #[cfg(test)]
    pub(crate) fn storage(&self) -> usize {
        self.chain.storage() + self.ahead.storage()
    }

    /// Bytes that can be read as recv(2) counts them (`SIOCINQ`): up to the urgent mark.
    pub(crate) fn available(&self) -> usize {
        self.readable(true).0
    }

    /// Drops everything; the connection is over.
    pub(crate) fn clear(&mut self) {
        self.chain.clear();
        self.ahead.clear();
        self.early = Vec::new();
        self.recent = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn queue(capacity: usize) -> RxQueue {
        let mut queue = RxQueue { capacity, mss: 100, ..RxQueue::default() };
        queue.start(Seq(u32::MAX - 1000));
        queue.announce(false);
        queue
    }

    /// Segments of a stream in any order, cut anywhere, repeated, give the stream.
    #[test]
    fn any_order_gives_the_stream() {
        let mut random = Random::new(8);
        for round in 0..50 {
            let stream: Vec<u8> = (0..20_000).map(|_| random.next() as u8).collect();
            let mut queue = queue(1 + random.below(9000) as usize);
            let (first, mut got) = (queue.nxt, Vec::<u8>::new());
            let mut guard = 0;
            while got.len() < stream.len() {
                guard += 1;
                assert!(guard < 100_000, "round {round} stays at {}", got.len());
                let at = (got.len() as u64 + random.below(3000)).saturating_sub(700) as usize;
                let at = if random.chance(30) { got.len() + queue.len() } else { at }.min(stream.len() - 1);
                let end = (at + 1 + random.below(400) as usize).min(stream.len());
                queue.accept(first + at as u32, stream[at..end].into());
                let sacks = queue.sacks(true);
                assert!(sacks.as_slice().iter().all(|r| r.start.before(r.end)));
                if random.chance(40) {
                    let mut out = vec![0; random.below(2000) as usize];
                    let n = queue.read(&mut out, false);
                    got.extend(&out[..n]);
                    queue.announce(false);
                }
                assert!(queue.len() <= queue.capacity && queue.storage() <= 16_384 + 4096);
            }
            assert!(got == stream);
        }
    }

    #[test]
    fn reports_the_latest_range_first_and_duplicates_once() {
        let mut queue = queue(50_000);
        let base = queue.nxt;
        for at in [100, 300, 500, 700, 900] {
            assert_eq!(queue.accept(base + at, [0; 100][..].into()), Accepted::Early);
        }
        assert_eq!(queue.accept(base + 300, [0; 100][..].into()), Accepted::Duplicate);
        let range = |from, to| Range { start: base + from, end: base + to };
        let sacks = queue.sacks(true);
        assert_eq!(sacks.as_slice(), [range(300, 400), range(300, 400), range(900, 1000), range(700, 800)]);
        assert_eq!(queue.sacks(true).as_slice()[..2], [range(300, 400), range(900, 1000)]);
        assert_eq!(queue.accept(base, [0; 150][..].into()), Accepted::InOrder(200));
        assert!(!queue.accept_fin(base + 1000));
        assert_eq!(queue.accept(base + 200, [0; 800][..].into()), Accepted::InOrder(800));
        assert!(queue.finish() && queue.fin && !queue.has_early());
    }

    #[test]
    fn windows_do_not_shrink_and_move_in_steps() {
        let mut queue = queue(1000);
        assert_eq!(queue.window(), 1000);
        queue.accept(queue.nxt, [0; 1000][..].into());
        assert_eq!((queue.announce(false), queue.wants_update()), (0, false));
        assert_eq!(queue.accept(queue.nxt, [0; 1][..].into()), Accepted::Dropped);
        queue.read(&mut [0; 99], false);
        assert_eq!((queue.announce(false), queue.wants_update()), (0, false));
        queue.read(&mut [0; 1], false);
        assert!(queue.wants_update());
        assert_eq!(queue.announce(false), 100);
        queue.capacity = 10;
        assert_eq!(queue.announce(false), 100);
    }

    #[test]
    fn early_ranges_are_bounded() {
        let mut queue = queue(60_000);
        for n in 0..20_000 {
            queue.accept(queue.nxt + 1 + 2 * n, [1][..].into());
        }
        assert_eq!(queue.early.len(), MAX_RANGES);
    }

    #[test]
    fn reading_stops_at_the_urgent_byte_and_skips_it() {
        let mut queue = queue(1000);
        let base = queue.nxt;
        assert!(queue.urge(base + 3));
        queue.accept(base, b"abcXdef"[..].into());
        let mut out = [0; 10];
        assert_eq!((queue.read(&mut out, false), &out[..3]), (3, &b"abc"[..]));
        assert!(queue.at_mark() && queue.urgent.unwrap().byte == Some(b'X'));
        assert_eq!((queue.read(&mut out, false), &out[..3]), (3, &b"def"[..]));
        assert!(queue.urgent.is_none());
    }
}
