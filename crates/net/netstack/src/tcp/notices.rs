//! What a program is told of data that it sent, by the error queue: that memory of `MSG_ZEROCOPY` is free again, and when data was
//! sent and acknowledged (`SO_TIMESTAMPING`; Documentation/networking/timestamping.rst, msg_zerocopy.rst).

use crate::chain::Blocks;
use crate::memory::Charge;
use crate::stamps::{self, Moment};
use crate::wire::seq::Seq;
use ktime::Ktime;
use std::collections::VecDeque;
use std::sync::Arc;

/// Calls with `MSG_ZEROCOPY` that may be under way, and marks for timestamps.
const MOST: usize = 256;
/// Notices that wait to be read; the oldest stay.
const QUEUE: usize = 256;
/// What a timestamp counts for, besides its data.
const OVERHEAD: usize = 128;

/// An entry of the error queue.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Notice {
    /// The memory of these calls is free: first and last number.
    Zerocopy(u32, u32),
    /// Data was on its way.
    Stamp {
        /// How far.
        moment: Moment,
        /// The number of its last byte.
        id: u32,
        /// When.
        at: Ktime,
        /// The payload of the segment, or its beginning.
        #[serde(with = "crate::plain::bytes")]
        data: Arc<[u8]>,
    },
}

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Mark {
    /// The last byte of the write.
    at: Seq,
    flags: u32,
    /// The segment, once it is sent.
    #[serde(with = "crate::plain::maybe_bytes")]
    data: Option<Arc<[u8]>>,
}

/// The notices of a connection, most of which have none. Plain data.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Notices(Option<Box<Lists>>);

#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct Lists {
    /// The end of each call's data, and its number.
    zerocopy: VecDeque<(Seq, u32)>,
    next: u32,
    marks: VecDeque<Mark>,
    /// Where the numbers of timestamps begin.
    base: Seq,
    ready: VecDeque<Notice>,
    /// Bytes of the receive buffer, which bounds what timestamps and marks hold.
    limit: usize,
    #[serde(skip)]
    charge: Charge,
}

impl Notices {
    /// Whether saved ones are within the bounds; they count in no memory yet.
    pub(super) fn check(&mut self) -> bool {
        let Some(lists) = &mut self.0 else { return true };
        let shown = |data: &Arc<[u8]>| data.len() <= stamps::SHOWN;
        let fine = lists.zerocopy.len() <= MOST
            && lists.marks.len() <= MOST
            && lists.ready.len() <= QUEUE
            && lists.limit <= 1 << 31
            && lists.marks.iter().flat_map(|mark| &mark.data).all(shown)
            && lists.ready.iter().all(|notice| !matches!(notice, Notice::Stamp { data, .. } if !shown(data)));
        if fine {
            let held = lists.marks.iter().flat_map(|mark| &mark.data).map(|data| data.len()).sum::<usize>();
            let stamps = lists.ready.iter().map(|notice| match notice {
                Notice::Stamp { data, .. } => OVERHEAD + data.len(),
                Notice::Zerocopy(..) => 0,
            });
            let held = held + stamps.sum::<usize>();
            lists.charge.set(held);
        }
        fine
    }

    /// The bytes count in the memory that another queue counts in.
    pub(crate) fn join(&mut self, other: &Charge) {
        if let Some(lists) = &mut self.0 {
            lists.charge.join(other);
        }
    }

    /// Timestamps, with their data, hold at most so many bytes.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.0.get_or_insert_default().limit = limit;
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.as_ref().is_some_and(|lists| !lists.ready.is_empty())
    }

    /// True while no further call with `MSG_ZEROCOPY` can be followed.
    pub(crate) fn is_full(&self) -> bool {
        self.0.as_ref().is_some_and(|lists| lists.zerocopy.len() >= MOST)
    }

    /// Takes the oldest.
    pub(crate) fn take(&mut self) -> Option<Notice> {
        let lists = self.0.as_mut()?;
        let notice = lists.ready.pop_front()?;
        if let Notice::Stamp { data, .. } = &notice {
            lists.release(OVERHEAD + data.len());
        }
        Some(notice)
    }

    /// Numbers of timestamps count from here.
    pub(crate) fn count_from(&mut self, base: Seq) {
        self.0.get_or_insert_default().base = base;
    }

    /// A call with `MSG_ZEROCOPY` wrote up to `end`.
    pub(crate) fn add_zerocopy(&mut self, end: Seq) {
        let lists = self.0.get_or_insert_default();
        lists.zerocopy.push_back((end, lists.next));
        lists.next = lists.next.wrapping_add(1);
    }

    /// A call wrote up to `end`; `start` is where the piece of its last byte begins. One piece has one mark.
    pub(crate) fn add_mark(&mut self, start: Seq, end: Seq, flags: u32) {
        let marks = &mut self.0.get_or_insert_default().marks;
        if let Some(last) = marks.back_mut().filter(|last| last.data.is_none() && !last.at.before(start)) {
            (last.at, last.flags) = (end - 1, flags);
        } else if marks.len() < MOST {
            marks.push_back(Mark { at: end - 1, flags, data: None });
        }
    }

    /// True when bytes up to `end` that were not sent before have a mark.
    pub(crate) fn is_marked(&self, end: Seq) -> bool {
        let marks = self.0.iter().flat_map(|lists| &lists.marks);
        marks.into_iter().any(|mark| mark.data.is_none() && mark.at.before(end))
    }

    /// Bytes up to `end` were sent, the last in a segment of this payload.
    pub(crate) fn sent(&mut self, end: Seq, payload: &Blocks, now: Ktime) {
        let Some(lists) = &mut self.0 else { return };
        let data: Arc<[u8]> =
            payload.iter().flat_map(|block| block.iter()).take(stamps::SHOWN).copied().collect();
        let mut marks = std::mem::take(&mut lists.marks);
        for mark in marks.iter_mut().filter(|mark| mark.data.is_none() && mark.at.before(end)) {
            let bare = mark.flags & stamps::OPT_TSONLY != 0;
            let shown: Arc<[u8]> = if bare { [].into() } else { data.clone() };
            for (flag, moment) in [(stamps::TX_SCHED, Moment::Scheduled), (stamps::TX_SOFTWARE, Moment::Sent)]
            {
                if mark.flags & flag != 0 {
                    lists.stamp(moment, mark, now, &shown);
                }
            }
            // Without room for its data the mark goes on without.
            let kept = mark.flags & stamps::TX_ACK != 0 && lists.hold(shown.len());
            mark.data = Some(if kept { shown } else { [].into() });
        }
        marks.retain(|mark| mark.data.is_none() || mark.flags & stamps::TX_ACK != 0);
        lists.marks = marks;
    }

    /// Bytes before `una` are acknowledged.
    pub(crate) fn acknowledged(&mut self, una: Seq, now: Ktime) {
        let Some(lists) = &mut self.0 else { return };
        while let Some((_, id)) = lists.zerocopy.pop_front_if(|(end, _)| end.upto(una)) {
            lists.free(id);
        }
        while let Some(mark) = lists.marks.pop_front_if(|mark| mark.at.before(una)) {
            let data = mark.data.clone().unwrap_or_default();
            lists.release(data.len());
            lists.stamp(Moment::Acknowledged, &mark, now, &data);
        }
    }

    /// The connection is over: nothing is sent again.
    pub(crate) fn finish(&mut self) {
        let Some(lists) = &mut self.0 else { return };
        while let Some((_, id)) = lists.zerocopy.pop_front() {
            lists.free(id);
        }
        let held = lists.marks.iter().flat_map(|mark| &mark.data).map(|data| data.len()).sum();
        lists.marks.clear();
        lists.release(held);
    }
}

impl Lists {
    fn free(&mut self, id: u32) {
        let room = self.ready.len() < QUEUE;
        match self.ready.back_mut() {
            Some(Notice::Zerocopy(_, last)) if last.wrapping_add(1) == id => *last = id,
            _ if room => self.ready.push_back(Notice::Zerocopy(id, id)),
            _ => {}
        }
    }

    /// Counts bytes, if there is room for them.
    fn hold(&mut self, bytes: usize) -> bool {
        let held = self.charge.bytes();
        let fits = held + bytes <= self.limit && (held == 0 || !self.charge.is_scarce());
        if fits {
            self.charge.set(held + bytes);
        }
        fits
    }

    fn release(&mut self, bytes: usize) {
        self.charge.set(self.charge.bytes().saturating_sub(bytes));
    }

    /// Queues a timestamp; without room it is lost.
    fn stamp(&mut self, moment: Moment, mark: &Mark, at: Ktime, data: &Arc<[u8]>) {
        if self.ready.len() < QUEUE && self.hold(OVERHEAD + data.len()) {
            let id = if mark.flags & stamps::OPT_ID != 0 { mark.at - self.base } else { 0 };
            self.ready.push_back(Notice::Stamp { moment, id, at, data: data.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Pool;

    fn blocks(bytes: &[u8]) -> Blocks {
        Blocks::from_iter([Pool::default().copy(bytes)])
    }

    use crate::memory::Memory;

    #[test]
    fn calls_in_a_row_are_one_notice() {
        let mut notices = Notices::default();
        [10, 20, 30].into_iter().for_each(|end| notices.add_zerocopy(Seq(end)));
        notices.acknowledged(Seq(25), Ktime::ZERO);
        assert_eq!(notices.0.as_ref().unwrap().ready, [Notice::Zerocopy(0, 1)]);
        notices.finish();
        assert_eq!(notices.take(), Some(Notice::Zerocopy(0, 2)));
        assert_eq!(notices.take(), None);
        notices.add_zerocopy(Seq(40));
        notices.finish();
        assert_eq!(notices.take(), Some(Notice::Zerocopy(3, 3)));
    }

    #[test]
    fn calls_that_nobody_asks_about_are_bounded() {
        let mut notices = Notices::default();
        notices.set_limit(1 << 20);
        (0..1000).for_each(|n| notices.add_mark(Seq(10 * n), Seq(10 * n + 10), stamps::TX | stamps::OPT_ID));
        notices.sent(Seq(20_000), &blocks(b"payload"), Ktime::ZERO);
        notices.acknowledged(Seq(20_000), Ktime::ZERO);
        let lists = notices.0.unwrap();
        assert_eq!((lists.ready.len(), lists.marks.len()), (QUEUE, 0));
    }

    #[test]
    fn what_timestamps_hold_is_counted_and_bounded() {
        let memory = Arc::new(Memory::default());
        let mut notices = Notices::default();
        notices.set_limit(50_000);
        notices.join(&Charge::of(&memory));
        let send = |notices: &mut Notices, n: u32, flags| {
            notices.add_mark(Seq(10 * n), Seq(10 * n + 10), flags);
            notices.sent(Seq(10 * n + 10), &blocks(&[1; 4000]), Ktime::ZERO);
        };
        // Marks without room for their data have none.
        (0..200).for_each(|n| send(&mut notices, n, stamps::TX_ACK));
        assert_eq!(memory.used(), 50_000 / stamps::SHOWN * stamps::SHOWN);
        notices.acknowledged(Seq(2000), Ktime::ZERO);
        assert!((40_000..=50_000).contains(&memory.used()), "{}", memory.used());
        let told = std::iter::from_fn(|| notices.take()).count();
        assert!((20..QUEUE).contains(&told), "{told}");
        assert_eq!(memory.used(), 0);
        // While memory is scarce one waits.
        memory.set_limit(1);
        (200..300).for_each(|n| send(&mut notices, n, stamps::TX_SCHED));
        assert_eq!(memory.used(), OVERHEAD + stamps::SHOWN);
        assert!(notices.take().is_some() && notices.take().is_none());
        memory.set_limit(usize::MAX);
        send(&mut notices, 300, stamps::TX_ACK);
        assert_eq!(memory.used(), stamps::SHOWN);
        notices.finish();
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_piece_has_the_mark_of_its_last_write() {
        let flags = stamps::TX_ACK | stamps::TX_SCHED | stamps::OPT_ID;
        let mut notices = Notices::default();
        notices.set_limit(65_536);
        notices.count_from(Seq(100));
        notices.add_mark(Seq(100), Seq(110), flags);
        notices.add_mark(Seq(100), Seq(120), flags);
        notices.add_mark(Seq(120), Seq(130), flags | stamps::OPT_TSONLY);
        notices.sent(Seq(130), &blocks(b"ab"), Ktime::ZERO);
        notices.acknowledged(Seq(129), Ktime::ZERO);
        let told: Vec<_> = std::iter::from_fn(|| notices.take())
            .map(|notice| match notice {
                Notice::Stamp { moment, id, data, .. } => (moment, id, data.len()),
                Notice::Zerocopy(..) => unreachable!(),
            })
            .collect();
        use Moment::{Acknowledged, Scheduled};
        assert_eq!(told, [(Scheduled, 19, 2), (Scheduled, 29, 0), (Acknowledged, 19, 2)]);
    }
}
