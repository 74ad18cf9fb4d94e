//! What a program is told of data that it sent, by the error queue: that memory of `MSG_ZEROCOPY` is free again, and when data was
//! sent and acknowledged (`SO_TIMESTAMPING`; Documentation/networking/timestamping.rst, msg_zerocopy.rst).

use super::seq::Seq;
use crate::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;

/// Calls with `MSG_ZEROCOPY` that may be under way, and marks for timestamps.
const MOST: usize = 256;
/// Notices that wait to be read; the oldest stay.
const QUEUE: usize = 256;
/// Bytes of a segment that a timestamp shows.
const SHOWN: usize = 2048;

/// Flags of `SO_TIMESTAMPING`: what is told of sent data.
pub mod stamps {
    /// When the device took it.
    pub const TX_SOFTWARE: u32 = 1 << 1;
    /// Software timestamps are reported at all.
    pub const SOFTWARE: u32 = 1 << 4;
    /// Timestamps are told apart by a number.
    pub const OPT_ID: u32 = 1 << 7;
    /// When it was given to the device's queue.
    pub const TX_SCHED: u32 = 1 << 8;
    /// When it was acknowledged.
    pub const TX_ACK: u32 = 1 << 9;
    /// A timestamp comes without the data.
    pub const OPT_TSONLY: u32 = 1 << 11;
    /// The number counts what was written, not what is acknowledged, from the option on.
    pub const OPT_ID_TCP: u32 = 1 << 16;
    /// All that ask for something to be recorded.
    pub const TX: u32 = TX_SOFTWARE | TX_SCHED | TX_ACK;
}

/// What was recorded (`SCM_TSTAMP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The device took the data.
    Sent = 0,
    /// The data was given to the device's queue.
    Scheduled = 1,
    /// The peer has the data.
    Acknowledged = 2,
}

/// An entry of the error queue.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        at: Instant,
        /// The payload of the segment, or its beginning.
        data: Arc<[u8]>,
    },
}

#[derive(Clone, Debug)]
struct Mark {
    /// The last byte of the write.
    at: Seq,
    flags: u32,
    /// The segment, once it is sent.
    data: Option<Arc<[u8]>>,
}

/// The notices of a connection, most of which have none. Plain data.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices(Option<Box<Lists>>);

#[derive(Clone, Debug, Default)]
struct Lists {
    /// The end of each call's data, and its number.
    zerocopy: VecDeque<(Seq, u32)>,
    next: u32,
    marks: VecDeque<Mark>,
    /// Where the numbers of timestamps begin.
    base: Seq,
    ready: VecDeque<Notice>,
}

impl Notices {
    pub(crate) fn is_ready(&self) -> bool {
        self.0.as_ref().is_some_and(|lists| !lists.ready.is_empty())
    }

    /// True while no further call with `MSG_ZEROCOPY` can be followed.
    pub(crate) fn is_full(&self) -> bool {
        self.0.as_ref().is_some_and(|lists| lists.zerocopy.len() >= MOST)
    }

    /// Takes the oldest.
    pub(crate) fn take(&mut self) -> Option<Notice> {
        self.0.as_mut()?.ready.pop_front()
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
    pub(crate) fn sent(&mut self, end: Seq, payload: [&[u8]; 2], now: Instant) {
        let Some(lists) = &mut self.0 else { return };
        let data: Arc<[u8]> = payload.concat().into_iter().take(SHOWN).collect();
        let (base, ready) = (lists.base, &mut lists.ready);
        for mark in lists.marks.iter_mut().filter(|mark| mark.data.is_none() && mark.at.before(end)) {
            let shown = if mark.flags & stamps::OPT_TSONLY != 0 { [].into() } else { data.clone() };
            mark.data = Some(shown.clone());
            for (flag, moment) in [(stamps::TX_SCHED, Moment::Scheduled), (stamps::TX_SOFTWARE, Moment::Sent)]
            {
                if mark.flags & flag != 0 {
                    stamp(ready, moment, number(mark, base), now, &shown);
                }
            }
        }
        lists.marks.retain(|mark| mark.data.is_none() || mark.flags & stamps::TX_ACK != 0);
    }

    /// Bytes before `una` are acknowledged.
    pub(crate) fn acknowledged(&mut self, una: Seq, now: Instant) {
        let Some(lists) = &mut self.0 else { return };
        while let Some((_, id)) = lists.zerocopy.pop_front_if(|(end, _)| end.upto(una)) {
            lists.free(id);
        }
        while let Some(mark) = lists.marks.pop_front_if(|mark| mark.at.before(una)) {
            let data = mark.data.clone().unwrap_or_default();
            stamp(&mut lists.ready, Moment::Acknowledged, number(&mark, lists.base), now, &data);
        }
    }

    /// The connection is over: nothing is sent again.
    pub(crate) fn finish(&mut self) {
        let Some(lists) = &mut self.0 else { return };
        while let Some((_, id)) = lists.zerocopy.pop_front() {
            lists.free(id);
        }
        lists.marks.clear();
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
}

fn number(mark: &Mark, base: Seq) -> u32 {
    if mark.flags & stamps::OPT_ID != 0 { mark.at - base } else { 0 }
}

fn stamp(ready: &mut VecDeque<Notice>, moment: Moment, id: u32, at: Instant, data: &Arc<[u8]>) {
    if ready.len() < QUEUE {
        ready.push_back(Notice::Stamp { moment, id, at, data: data.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_a_row_are_one_notice() {
        let mut notices = Notices::default();
        [10, 20, 30].into_iter().for_each(|end| notices.add_zerocopy(Seq(end)));
        notices.acknowledged(Seq(25), Instant::ZERO);
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
        (0..1000).for_each(|n| notices.add_mark(Seq(10 * n), Seq(10 * n + 10), stamps::TX | stamps::OPT_ID));
        notices.sent(Seq(20_000), [b"payload", b""], Instant::ZERO);
        notices.acknowledged(Seq(20_000), Instant::ZERO);
        let lists = notices.0.unwrap();
        assert_eq!((lists.ready.len(), lists.marks.len()), (QUEUE, 0));
    }

    #[test]
    fn a_piece_has_the_mark_of_its_last_write() {
        let flags = stamps::TX_ACK | stamps::TX_SCHED | stamps::OPT_ID;
        let mut notices = Notices::default();
        notices.count_from(Seq(100));
        notices.add_mark(Seq(100), Seq(110), flags);
        notices.add_mark(Seq(100), Seq(120), flags);
        notices.add_mark(Seq(120), Seq(130), flags | stamps::OPT_TSONLY);
        notices.sent(Seq(130), [b"a", b"b"], Instant::ZERO);
        notices.acknowledged(Seq(129), Instant::ZERO);
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
