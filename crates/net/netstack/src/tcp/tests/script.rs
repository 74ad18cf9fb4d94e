//! What is sent when, segment by segment.

use super::pair::{Out, Side, open};
use crate::notify::Events;
use crate::sysctl::Sysctls;
use crate::tcp::conn::State;
use crate::tcp::input::Verdict;
use crate::tcp::phase::Ca;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Segment};
use abi::Errno;
use ktime::Ktime;
use std::time::Duration;

const START: Ktime = Ktime::from_millis(10_000_000);
const RTT: u64 = 40;
const MSS: usize = 1448;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn plain() -> (Side, Side, Ktime) {
    open(Sysctls::default(), Sysctls::default(), START, RTT)
}

/// Hands segments to `to`, and its answers back after half a round trip.
fn deliver(from: &mut Side, to: &mut Side, at: Ktime, segments: &[Out]) {
    for out in segments {
        to.receive(at, out);
        for answer in to.sent() {
            from.receive(at.plus(ms(RTT / 2)), &answer);
        }
    }
}

fn receive_all(to: &mut Side, now: Ktime, segments: &[Out]) {
    for out in segments {
        to.receive(now, out);
    }
}

fn numbers(segments: &[Out], base: Seq) -> Vec<usize> {
    segments.iter().map(|out| (out.seg.seq - base) as usize / MSS).collect()
}

/// Runs a side's timers until one of them sends, and tells when.
fn next_sent(side: &mut Side) -> (Ktime, Vec<Out>) {
    loop {
        let at = side.conn.deadlines.next().expect("a timer");
        side.timers(at);
        let sent = side.sent();
        if !sent.is_empty() || side.conn.state == State::Closed {
            return (at, sent);
        }
    }
}

/// A pair with an open window of the sender: `n` segments were acknowledged.
fn warm(n: usize) -> (Side, Side, Ktime) {
    let (mut a, mut b, mut now) = plain();
    let mut left = n * MSS;
    while left > 0 {
        let take = left.min(8 * MSS);
        left -= a.write(now, &vec![0; take]);
        let sent = a.sent();
        deliver(&mut a, &mut b, now.plus(ms(RTT / 2)), &sent);
        now = now.plus(ms(RTT));
        b.timers(now.plus(ms(60)));
        for answer in b.sent() {
            a.receive(now.plus(ms(80)), &answer);
        }
        now = now.plus(ms(80));
        b.read(now, 1 << 20);
        b.sent();
        a.sent();
    }
    (a, b, now)
}

#[test]
fn handshakes_carry_the_options() {
    let mut a = Side::new(Sysctls::default());
    a.with(START, |conn, cx| conn.connect(cx, Seq(1)));
    let syn = &a.sent()[0].seg;
    let options = &syn.options;
    assert_eq!(
        (syn.flags, syn.window, options.mss, options.wscale),
        (Flags::SYN, 65_535, Some(1460), Some(7))
    );
    assert!(options.sack_permitted && options.timestamps.is_some_and(|(_, echo)| echo == 0));
    let old = Sysctls::default();
    [&old.tcp_sack, &old.tcp_timestamps, &old.tcp_window_scaling].iter().for_each(|s| s.set(0).unwrap());
    let (a, b, _) = open(Sysctls::default(), old, START, RTT);
    for side in [a, b] {
        let agreed = side.conn.agreed;
        assert!(!agreed.sack && !agreed.timestamps && !agreed.scaled && side.conn.mss() == 1460);
    }
}

#[test]
fn an_old_syn_ack_is_acknowledged() {
    let (mut a, mut b) = (Side::new(Sysctls::default()), Side::new(Sysctls::default()));
    b.conn.state = State::Listen;
    a.with(START, |conn, cx| conn.connect(cx, Seq(100)));
    let syn = a.sent();
    b.receive(START, &syn[0]);
    let answer = b.sent();
    a.receive(START, &answer[0]);
    // This acknowledgement is lost.
    assert_eq!((a.conn.state, a.sent().len()), (State::Established, 1));
    let later = START.plus(ms(1000));
    a.receive(later, &answer[0]);
    let again = a.sent();
    assert_eq!((again.len(), a.counters.challenge_ack.get()), (1, 1));
    b.receive(later, &again[0]);
    assert_eq!((a.conn.state, b.conn.state), (State::Established, State::Established));
}

#[test]
fn both_may_open_at_once() {
    let (mut a, mut b) = (Side::new(Sysctls::default()), Side::new(Sysctls::default()));
    a.with(START, |conn, cx| conn.connect(cx, Seq(100)));
    b.with(START, |conn, cx| conn.connect(cx, Seq(u32::MAX)));
    let (one, two) = (a.sent(), b.sent());
    a.receive(START, &two[0]);
    b.receive(START, &one[0]);
    assert_eq!((a.conn.state, b.conn.state), (State::SynReceived, State::SynReceived));
    let (one, two) = (a.sent(), b.sent());
    assert_eq!(one[0].seg.flags, Flags::SYN | Flags::ACK);
    a.receive(START, &two[0]);
    b.receive(START, &one[0]);
    assert_eq!((a.conn.state, b.conn.state), (State::Established, State::Established));
    a.write(START, b"works");
    let sent = a.sent();
    sent.iter().for_each(|out| assert_eq!(b.receive(START, out), Verdict::Done));
    assert_eq!(b.read(START, 9), b"works");
}

#[test]
fn a_reordered_segment_is_not_sent_again() {
    let (mut a, mut b, now) = warm(16);
    let base = a.conn.nxt;
    a.write(now, &[1; 10 * MSS]);
    let sent = a.sent();
    assert_eq!(numbers(&sent, base), (0..10).collect::<Vec<_>>());
    let order = [0, 1, 3, 4, 2, 5, 6, 7, 8, 9];
    for (n, place) in order.iter().enumerate() {
        let at = now.plus(ms(RTT / 2)).plus(Duration::from_micros(n as u64 * 100));
        deliver(&mut a, &mut b, at, &sent[*place..=*place]);
    }
    assert_eq!((a.counters.retrans_segs.get(), a.conn.recovery.state), (0, Ca::Open));
    // Now that reordering is known, three later arrivals are no reason either.
    let now = now.plus(ms(200));
    b.read(now, 1 << 20);
    receive_all(&mut a, now, &b.sent());
    a.write(now, &[2; 10 * MSS]);
    let sent = a.sent();
    for (n, place) in [0, 2, 3, 4, 5, 6, 7, 1, 8, 9].iter().enumerate() {
        let at = now.plus(ms(RTT / 2)).plus(Duration::from_micros(n as u64 * 100));
        deliver(&mut a, &mut b, at, &sent[*place..=*place]);
    }
    assert_eq!((a.counters.retrans_segs.get(), a.counters.sack_reorder.get() > 0), (0, true));
    assert!(a.conn.board.is_empty());
}

#[test]
fn a_lost_segment_is_sent_again_at_once() {
    let (mut a, mut b, now) = warm(16);
    let base = a.conn.nxt;
    a.write(now, &[1; 10 * MSS]);
    let sent = a.sent();
    let at = now.plus(ms(RTT / 2));
    deliver(&mut a, &mut b, at, &sent[..2]);
    assert!(a.sent().is_empty());
    deliver(&mut a, &mut b, at, &sent[3..5]);
    assert!(a.sent().is_empty(), "two duplicates are no loss yet");
    let cwnd = a.conn.cc.cwnd;
    deliver(&mut a, &mut b, at, &sent[5..6]);
    let again = a.sent();
    assert_eq!((numbers(&again, base), a.conn.recovery.state), (vec![2], Ca::Recovery));
    assert_eq!((a.conn.cc.ssthresh, a.counters.sack_recovery.get()), ((f64::from(cwnd) * 0.7) as u32, 1));
    deliver(&mut a, &mut b, at, &sent[6..]);
    assert!(a.sent().is_empty());
    deliver(&mut a, &mut b, at.plus(ms(RTT)), &again);
    assert_eq!((a.conn.recovery.state, a.conn.cc.cwnd), (Ca::Open, a.conn.cc.ssthresh));
    assert_eq!((a.counters.retrans_segs.get(), a.counters.timeouts.get()), (1, 0));
}

#[test]
fn a_lost_tail_costs_a_probe_and_no_time_out() {
    let (mut a, mut b, now) = warm(16);
    let base = a.conn.nxt;
    a.write(now, &[1; 10 * MSS]);
    let sent = a.sent();
    deliver(&mut a, &mut b, now.plus(ms(RTT / 2)), &sent[..7]);
    a.sent();
    let srtt = a.conn.rtt.srtt;
    let (at, probe) = next_sent(&mut a);
    assert_eq!(numbers(&probe, base), [9]);
    let waited = at.since(now.plus(ms(RTT)));
    assert!(waited >= srtt * 2 && waited < ms(200), "{waited:?}, twice {srtt:?}");
    deliver(&mut a, &mut b, at.plus(ms(RTT / 2)), &probe);
    // Its acknowledgement shows that 7 and 8 are lost, too. It acknowledges 6 as well, so two packets may follow.
    let again = a.sent();
    assert_eq!(numbers(&again, base), [7, 8]);
    deliver(&mut a, &mut b, at.plus(ms(2 * RTT)), &again);
    assert!(a.conn.board.is_empty());
    assert_eq!((a.counters.loss_probes.get(), a.counters.timeouts.get()), (1, 0));
}

#[test]
fn a_repaired_tail_is_still_a_loss() {
    let (mut a, mut b, now) = warm(16);
    a.write(now, &[1; 3 * MSS]);
    let sent = a.sent();
    deliver(&mut a, &mut b, now.plus(ms(RTT / 2)), &sent[..2]);
    a.sent();
    let cwnd = a.conn.cc.cwnd;
    let (at, probe) = next_sent(&mut a);
    assert_eq!(probe.len(), 1);
    deliver(&mut a, &mut b, at.plus(ms(RTT / 2)), &probe);
    assert_eq!((a.counters.loss_probe_recovery.get(), a.counters.timeouts.get()), (1, 0));
    assert!(a.conn.cc.cwnd < cwnd);
}

#[test]
fn a_peer_that_vanished_is_given_up() {
    let (mut a, _, now) = warm(8);
    a.write(now, b"hello?");
    a.sent();
    let mut times = Vec::new();
    while a.conn.state != State::Closed {
        let (at, sent) = next_sent(&mut a);
        times.extend(sent.iter().map(|_| at.since(now)));
    }
    let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert!(gaps[1..8].windows(2).all(|pair| pair[1] == 2 * pair[0]), "{gaps:?}");
    assert_eq!(gaps.iter().max(), Some(&120_000));
    assert_eq!(a.conn.error, Some(Errno::ETIMEDOUT));
    assert!(times.last().is_some_and(|last| *last > ms(800_000) && *last < ms(924_600)), "{times:?}");
    let (mut a, _, now) = warm(8);
    a.conn.options.user_timeout = ms(5000);
    a.write(now, b"hello?");
    while a.conn.state != State::Closed {
        let at = a.conn.deadlines.next().unwrap();
        assert!(at.since(now) <= ms(5600), "{:?}", at.since(now));
        a.timers(at);
    }
}

#[test]
fn zero_windows_are_probed() {
    let (mut a, mut b, now) = plain();
    b.rx.capacity = 2 * MSS;
    // The window that was announced before still counts; use it up.
    let mut now = now;
    for _ in 0..100 {
        a.write(now, &[3; 4 * MSS]);
        let mut sent = a.sent();
        if sent.is_empty() {
            // A window of less than a segment is used after a while.
            (now, sent) = next_sent(&mut a);
        }
        deliver(&mut a, &mut b, now, &sent);
        now = now.plus(ms(RTT));
        b.timers(now.plus(ms(200)));
        receive_all(&mut a, now, &b.sent());
        if a.conn.wnd == 0 && a.conn.board.is_empty() {
            break;
        }
    }
    assert_eq!((a.conn.wnd, a.conn.board.is_empty(), a.conn.unsent() > 0), (0, true, true));
    a.sent();
    let mut gaps = Vec::new();
    let mut last = now;
    for _ in 0..4 {
        let (at, probe) = next_sent(&mut a);
        assert_eq!((probe.len(), probe[0].data.len(), probe[0].seg.seq), (1, 0, a.conn.una - 1));
        deliver(&mut a, &mut b, at, &probe);
        gaps.push(at.since(last));
        last = at;
    }
    assert!(gaps.windows(2).all(|pair| pair[1] >= pair[0]), "{gaps:?}");
    let had = b.read(last, 1 << 20).len();
    let update = b.sent();
    assert_eq!(update.len(), 1, "reading {had} bytes opens the window");
    a.receive(last, &update[0]);
    let sent = a.sent();
    assert!(!sent.is_empty() && sent.iter().all(|out| !out.data.is_empty()));
    assert_eq!(a.counters.timeouts.get(), 0);
}

#[test]
fn a_needless_time_out_is_taken_back() {
    for timestamps in [1, 0] {
        let settings = || {
            let sysctls = Sysctls::default();
            sysctls.tcp_timestamps.set(timestamps).unwrap();
            sysctls.tcp_early_retrans.set(0).unwrap();
            sysctls
        };
        let (mut a, mut b, now) = open(settings(), settings(), START, RTT);
        a.write(now, &[1; 14 * 1460]);
        let (cwnd, sent) = (a.conn.cc.cwnd, a.sent());
        assert_eq!(sent.len(), 10);
        // Everything is late by a second.
        let (at, again) = next_sent(&mut a);
        assert_eq!((again.len(), a.conn.recovery.state), (1, Ca::Loss));
        assert_eq!(a.conn.cc.cwnd, 1);
        deliver(&mut a, &mut b, at.plus(ms(500)), &sent);
        assert_eq!(a.counters.spurious_rtos.get(), 1, "timestamps {timestamps}");
        assert!(a.conn.cc.cwnd >= cwnd && a.conn.recovery.state == Ca::Open);
        assert_eq!(a.counters.retrans_segs.get(), 1);
    }
}

#[test]
fn marked_packets_slow_the_sender_down_once() {
    let ecn = || {
        let sysctls = Sysctls::default();
        sysctls.tcp_ecn.set(1).unwrap();
        sysctls
    };
    let (mut a, mut b, now) = open(ecn(), ecn(), START, RTT);
    // The pair's server does not negotiate; both ends are told.
    (a.conn.agreed.ecn, b.conn.agreed.ecn) = (true, true);
    a.write(now, &[1; 8 * MSS]);
    let sent = a.sent();
    assert!(sent.iter().all(|out| out.ect));
    b.receive_marked(now, &sent[0], true);
    b.receive(now, &sent[1]);
    let acks = b.sent();
    assert!(!acks.is_empty() && acks.iter().all(|out| out.seg.flags.contains(Flags::ECE) && !out.ect));
    receive_all(&mut a, now, &acks);
    assert_eq!((a.conn.recovery.state, a.conn.cc.ssthresh), (Ca::Cwr, 7));
    deliver(&mut a, &mut b, now, &sent[2..]);
    a.write(now, &[1; 4 * MSS]);
    let next = a.sent();
    assert!(next[0].seg.flags.contains(Flags::CWR) && !next.last().unwrap().seg.flags.contains(Flags::CWR));
    b.receive(now, &next[0]);
    b.sent();
    b.receive(now, &next[1]);
    assert!(b.sent().iter().all(|out| !out.seg.flags.contains(Flags::ECE)));
}

#[test]
fn acknowledgements_wait_for_a_second_segment() {
    let (mut a, mut b, now) = warm(60);
    (b.conn.ack.quick, b.conn.ack.pingpong) = (0, false);
    a.write(now, &[1; 3 * MSS]);
    let sent = a.sent();
    b.receive(now, &sent[0]);
    assert!(b.sent().is_empty());
    b.receive(now, &sent[1]);
    assert_eq!(b.sent().len(), 1);
    b.receive(now, &sent[2]);
    let (at, ack) = next_sent(&mut b);
    assert_eq!((ack.len(), ack[0].data.len()), (1, 0));
    assert!((ms(40)..=ms(200)).contains(&at.since(now)), "{:?}", at.since(now));
}

#[test]
fn small_segments_wait_or_not() {
    let (mut a, mut b, now) = plain();
    a.write(now, b"one");
    assert_eq!(a.sent().len(), 1);
    a.write(now, b"two");
    assert!(a.sent().is_empty(), "Nagle");
    a.write(now, &[0; MSS]);
    let full = a.sent();
    assert_eq!((full.len(), full[0].data.len()), (1, MSS));
    a.conn.options.nodelay = true;
    a.write(now, b"!");
    assert_eq!(a.sent().len(), 1);
    a.conn.options.cork = true;
    a.write(now, b"corked");
    assert!(a.sent().is_empty());
    a.conn.options.cork = false;
    a.with(now, |conn, cx| conn.output(cx));
    let last = a.sent();
    assert_eq!((last.len(), &last[0].data[..]), (1, &b"corked"[..]));
    deliver(&mut a, &mut b, now, &last);
}

#[test]
fn idle_peers_are_asked() {
    let (mut a, mut b, now) = warm(4);
    a.conn.options.keepalive = true;
    a.with(now, |conn, cx| conn.arm_keepalive(cx.now));
    let (at, probe) = next_sent(&mut a);
    assert_eq!((at.since(now).as_secs(), probe[0].seg.seq), (7200, a.conn.nxt - 1));
    b.receive(at, &probe[0]);
    let answer = b.sent();
    assert_eq!(answer.len(), 1);
    a.receive(at, &answer[0]);
    let mut last = at;
    let mut gaps = Vec::new();
    while a.conn.state != State::Closed {
        let (at, _) = next_sent(&mut a);
        gaps.push(at.since(last).as_secs());
        last = at;
    }
    assert_eq!(gaps, [[7200].as_slice(), &[75; 9]].concat());
    assert_eq!((a.conn.error, a.sent().len()), (Some(Errno::ETIMEDOUT), 0));
}

#[test]
fn guessed_segments_do_no_harm() {
    let (mut a, mut b, now) = warm(4);
    let out = |flags, seq, ack| {
        let segment = Segment { flags, seq, ack, window: 100, ..Segment::default() };
        Out { seg: segment, data: Vec::new(), ect: false }
    };
    let (nxt, una) = (b.rx.nxt, b.conn.nxt);
    b.receive(now, &out(Flags::RST, nxt + 100, una));
    let challenge = b.sent();
    assert_eq!((challenge.len(), challenge[0].seg.flags, challenge[0].seg.ack), (1, Flags::ACK, nxt));
    b.receive(now, &out(Flags::SYN, nxt + 50, una));
    b.receive(now, &out(Flags::ACK, nxt, una + 1_000_000));
    assert!(b.sent().is_empty(), "challenges are limited");
    b.receive(now, &out(Flags::RST, nxt - 1, una));
    b.receive(now, &out(Flags::RST, nxt + 1_000_000, una));
    assert_eq!(b.conn.state, State::Established);
    // An old timestamp.
    a.write(now, b"x");
    let mut old = a.sent().remove(0);
    old.seg.options.timestamps = Some((b.conn.ts_recent.wrapping_sub(1000), 0));
    b.receive(now.plus(ms(1000)), &old);
    assert_eq!((b.counters.paws_estab.get(), b.rx.len() % MSS), (1, 0));
    b.receive(now, &out(Flags::RST, nxt, una));
    assert_eq!((b.conn.state, b.conn.error), (State::Closed, Some(Errno::ECONNRESET)));
    assert!(b.events.contains(Events::HUP));
}

#[test]
fn both_may_close_at_once() {
    let (mut a, mut b, now) = plain();
    a.with(now, |conn, cx| conn.close_write(cx));
    b.with(now, |conn, cx| conn.close_write(cx));
    let (one, two) = (a.sent(), b.sent());
    a.receive(now, &two[0]);
    b.receive(now, &one[0]);
    assert_eq!((a.conn.state, b.conn.state), (State::Closing, State::Closing));
    let (one, two) = (a.sent(), b.sent());
    a.receive(now, &two[0]);
    b.receive(now, &one[0]);
    assert_eq!((a.conn.state, b.conn.state), (State::TimeWait, State::TimeWait));
    a.timers(now.plus(ms(59_999)));
    assert_eq!(a.conn.state, State::TimeWait);
    a.timers(now.plus(ms(60_000)));
    assert_eq!(a.conn.state, State::Closed);
}

#[test]
fn without_sack_three_duplicates_mean_a_loss() {
    let old = || {
        let sysctls = Sysctls::default();
        sysctls.tcp_sack.set(0).unwrap();
        sysctls
    };
    let (mut a, mut b, now) = open(old(), old(), START, RTT);
    let base = a.conn.nxt;
    a.write(now, &[1; 10 * MSS]);
    let sent = a.sent();
    deliver(&mut a, &mut b, now, &sent[..1]);
    a.sent();
    // 1 and 4 are lost.
    deliver(&mut a, &mut b, now, &sent[2..4]);
    assert_eq!(a.counters.retrans_segs.get(), 0);
    deliver(&mut a, &mut b, now, &sent[5..]);
    let again: Vec<_> = a.sent().into_iter().filter(|out| (out.seg.seq - base) < 10 * MSS as u32).collect();
    assert_eq!(numbers(&again, base), [1]);
    deliver(&mut a, &mut b, now.plus(ms(RTT)), &again);
    let again: Vec<_> = a.sent().into_iter().filter(|out| (out.seg.seq - base) < 10 * MSS as u32).collect();
    assert_eq!(numbers(&again, base), [4], "a partial acknowledgement");
    deliver(&mut a, &mut b, now.plus(ms(2 * RTT)), &again);
    assert_eq!((a.conn.una - base, a.conn.recovery.state), (10 * MSS as u32, Ca::Open));
    assert_eq!(a.counters.timeouts.get(), 0);
}
