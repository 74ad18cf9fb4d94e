//! How what is written becomes segments, and what the program is told of it.

use super::pair::{Out, Side, open};
use crate::notify::Events;
use crate::stamps::{self, Moment};
use crate::sysctl::Sysctls;
use crate::tcp::SendFlags;
use crate::tcp::notices::Notice;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Range, Sacks, Segment};
use ktime::Ktime;
use std::time::Duration;

const START: Ktime = Ktime::from_millis(10_000_000);
const MSS: usize = 1000;

/// A sender with a device that cuts segments, with full segments of 1000 bytes and a peer's window of `window` bytes.
fn sender(window: u32, rtt: u64, change: impl Fn(&Sysctls)) -> (Side, Ktime) {
    let settings = || {
        let sysctls = Sysctls::default();
        sysctls.tcp_timestamps.set(0).unwrap();
        change(&sysctls);
        sysctls
    };
    let (mut a, _, now) = open(settings(), settings(), START, rtt);
    a.conn.set_path(MSS as u32, 65_000);
    (a.conn.wnd, a.conn.max_wnd) = (window, window);
    (a, now)
}

fn write(a: &mut Side, now: Ktime, len: usize, wanted: SendFlags) -> usize {
    a.with(now, |conn, cx| conn.write(cx, vec![0; len][..].into(), wanted))
}

/// Ends and PSH flags of what was sent, in bytes from the start.
fn shape(a: &mut Side) -> Vec<(u32, bool)> {
    let end = |out: &Out| out.seg.seq - Seq(1001) + out.data.len() as u32;
    a.sent().iter().map(|out| (end(out), out.seg.flags.contains(Flags::PSH))).collect()
}

fn acknowledge(a: &mut Side, now: Ktime, bytes: u32, sacks: &[(u32, u32)]) {
    let mut list = Sacks::default();
    for (start, end) in sacks {
        list.push(Range { start: Seq(1001 + start), end: Seq(1001 + end) });
    }
    let wnd = (a.conn.wnd >> a.conn.agreed.snd_scale) as u16;
    let mut seg = Segment {
        seq: a.rx.nxt,
        ack: Seq(1001 + bytes),
        flags: Flags::ACK,
        window: wnd,
        ..Segment::default()
    };
    seg.options.sacks = list;
    a.receive(now, &Out { seg, data: Vec::new(), ect: false });
}

#[test]
fn pieces_that_end_by_request_are_not_joined() {
    let (mut a, now) = sender(60_000, 10, |_| ());
    a.conn.cc.cwnd = 2;
    write(&mut a, now, 2400, SendFlags::default());
    write(&mut a, now, 400, SendFlags { whole: true, ..SendFlags::default() });
    write(&mut a, now, 300, SendFlags::default());
    assert_eq!(shape(&mut a), [(1000, false), (2000, false)]);
    a.conn.cc.cwnd = 10;
    acknowledge(&mut a, now.plus(Duration::from_millis(10)), 2000, &[]);
    // The second write was joined to the rest of the first; the third stands alone, and obeys Nagle's rule.
    assert_eq!(shape(&mut a), [(2800, true)]);
    acknowledge(&mut a, now.plus(Duration::from_millis(20)), 2800, &[]);
    assert_eq!(shape(&mut a), [(3100, true)]);
}

#[test]
fn more_says_that_a_small_segment_waits() {
    let (mut a, now) = sender(60_000, 10, |_| ());
    write(&mut a, now, 100, SendFlags { more: true, ..SendFlags::default() });
    assert!(a.sent().is_empty());
    write(&mut a, now, 950, SendFlags::default());
    assert_eq!(shape(&mut a), [(1000, false), (1050, true)]);
}

#[test]
fn segments_are_as_large_as_the_rate_allows() {
    for (rtt, least, sizes) in [(100, 2, vec![2, 2, 2, 2, 2]), (100, 4, vec![4, 4, 2]), (1, 2, vec![5, 5])] {
        let (mut a, now) = sender(60_000, rtt, |s| s.tcp_min_tso_segs.set(least).unwrap());
        write(&mut a, now, 20_000, SendFlags::default());
        let entries = (0..a.conn.board.len()).filter_map(|n| a.conn.board.get(n));
        assert_eq!(entries.map(|sent| sent.packets).collect::<Vec<_>>(), sizes, "{rtt} ms, {least}");
    }
}

#[test]
fn no_more_is_queued_than_asked_for() {
    let (mut a, now) = sender(32_000, 10, |_| ());
    a.conn.options.notsent_low = 4000;
    (a.conn.tx_limit, a.conn.cc.cwnd) = (1 << 20, 10);
    // Half the peer's window is a piece; it is filled up as long as some of it goes out.
    assert_eq!(write(&mut a, now, 59_000, SendFlags::default()), 26_000);
    assert_eq!(write(&mut a, now, 1, SendFlags::default()), 0);
    a.sent();
    a.events = Events::empty();
    let mut now = now;
    for acked in [5000, 10_000, 14_000, 19_000] {
        assert!(!a.events.contains(Events::OUT) || a.conn.unsent() < 2000, "{}", a.conn.unsent());
        now = now.plus(Duration::from_millis(10));
        acknowledge(&mut a, now, acked, &[]);
        a.sent();
    }
    assert!(a.events.contains(Events::OUT) && a.conn.unsent() == 0);
}

#[test]
fn an_acknowledgement_in_order_beside_ranges_is_no_reordering() {
    let (mut a, now) = sender(60_000, 10, |_| ());
    write(&mut a, now, 10_000, SendFlags::default());
    a.sent();
    let later = now.plus(Duration::from_millis(10));
    acknowledge(&mut a, later, 1000, &[(3000, 4000), (6000, 10_000)]);
    assert!(!a.conn.rack.reordering);
    assert_eq!(a.conn.board.lost, 4);
    // What is lost goes again, several segments at once.
    assert_eq!(shape(&mut a), [(2000, false), (3000, false), (5000, false), (6000, true)]);
    // A hole that fills by itself is reordering: the report names how far the others came early.
    let (mut a, now) = sender(60_000, 10, |_| ());
    write(&mut a, now, 10_000, SendFlags::default());
    acknowledge(&mut a, later, 0, &[(7000, 8000)]);
    acknowledge(&mut a, later, 2000, &[(7000, 8000)]);
    assert!(a.conn.rack.reordering && a.conn.rack.degree() == 8);
    let _ = now;
}

#[test]
fn memory_is_free_when_its_data_is_acknowledged() {
    let (mut a, now) = sender(60_000, 10, |_| ());
    let wanted = SendFlags { zerocopy: true, ..SendFlags::default() };
    (0..3).for_each(|_| assert_eq!(write(&mut a, now, 2000, wanted), 2000));
    let later = now.plus(Duration::from_millis(10));
    acknowledge(&mut a, later, 1999, &[]);
    assert!(!a.conn.notices.is_ready());
    acknowledge(&mut a, later, 4000, &[]);
    assert!(a.events.contains(Events::ERR));
    assert_eq!(a.conn.notices.take(), Some(Notice::Zerocopy(0, 1)));
    a.with(later, |conn, cx| conn.abort(cx));
    assert_eq!(a.conn.notices.take(), Some(Notice::Zerocopy(2, 2)));
}

#[test]
fn sending_and_acknowledging_are_stamped() {
    let (mut a, now) = sender(60_000, 10, |_| ());
    a.conn.options.timestamping = stamps::TX | stamps::OPT_ID;
    a.conn.notices.count_from(a.conn.una);
    write(&mut a, now, 1500, SendFlags::default());
    let later = now.plus(Duration::from_millis(10));
    acknowledge(&mut a, later, 1500, &[]);
    let mut told = Vec::new();
    while let Some(Notice::Stamp { moment, id, at, .. }) = a.conn.notices.take() {
        told.push((moment, id, at));
    }
    let wanted = [(Moment::Scheduled, now), (Moment::Sent, now), (Moment::Acknowledged, later)];
    assert_eq!(told, wanted.map(|(moment, at)| (moment, 1499, at)));
}

#[test]
fn time_without_window_is_counted() {
    let (mut a, now) = sender(0, 10, |_| ());
    write(&mut a, now, 1000, SendFlags::default());
    let info = a.conn.info(&a.rx, now.plus(Duration::from_millis(100)), 1500);
    assert_eq!((info.busy_time, info.rwnd_limited, info.sndbuf_limited), (100_000, 100_000, 0));
}
