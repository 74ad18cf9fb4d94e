//! What an acknowledgement does: windows, round-trip times, deliveries.

use super::bbr::Sample;
use super::board::{Mark, Sent};
use super::cc::Algorithm;
use super::chrono::Limit;
use super::conn::{Conn, Cx};
use super::news::AckNews;
use super::phase::Ca;
use crate::notify::Events;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Segment};
use ktime::Ktime;
use std::time::Duration;

impl Conn {
    /// Takes the acknowledgement of a segment; false when the segment is to be dropped.
    pub(crate) fn on_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment, len: u32) -> bool {
        let ack = seg.ack;
        if ack.after(self.nxt) {
            self.challenge(cx);
            return false;
        }
        self.note_timestamp(cx, seg);
        self.rack.begin();
        if ack.before(self.una) {
            // RFC 5961 section 5.2.
            if (ack + self.max_wnd.max(1)).before(self.una) {
                self.challenge(cx);
                return false;
            }
            let mut news = AckNews { other: true, ..AckNews::default() };
            self.take_sacks(cx, seg, &mut news);
            if news.delivered > 0 || news.dsack {
                self.recover(cx, &news);
            }
            return true;
        }
        let prior_una = self.una;
        let mut news = AckNews { other: len > 0 || seg.flags.contains(Flags::FIN), ..AckNews::default() };
        news.other |= self.update_window(seg, ack);
        news.echo_before = self.echoes_original(seg);
        let fully = self.board.is_empty();
        self.take_sacks(cx, seg, &mut news);
        self.acknowledge(cx, ack, &mut news);
        self.stats.last_ack = cx.now;
        self.take_rtt(cx.now, seg, &news);
        self.take_rate(cx.now, &mut news);
        if news.advanced {
            self.rtt.backoff = 0;
            self.soft_error = None;
            self.deadlines.retries = 0;
        }
        self.deadlines.probes = 0;
        self.end_probe(cx, ack, &news);
        if seg.flags.contains(Flags::ECE) && self.agreed.ecn {
            self.slow_down(ack);
        }
        if !fully {
            self.detect_losses(cx, &mut news);
            self.recover(cx, &news);
            self.grow_window(cx, &news);
            self.model_path(cx, &news);
        }
        if self.una != prior_una {
            self.rearm_after_progress(cx);
        }
        self.arm_keepalive(cx.now);
        true
    }

    /// Remembers the peer's timestamp (RFC 7323 section 4.3).
    fn note_timestamp(&mut self, cx: &Cx<'_>, seg: &Segment) {
        let Some((value, _)) = seg.options.timestamps.filter(|_| self.agreed.timestamps) else { return };
        if seg.seq.upto(cx.rx.acked) && (value.wrapping_sub(self.ts_recent) as i32) >= 0 {
            (self.ts_recent, self.ts_recent_at) = (value, cx.now);
        }
    }

    /// Takes the peer's window; true when it changed without an acknowledgement.
    fn update_window(&mut self, seg: &Segment, ack: Seq) -> bool {
        let wnd = u32::from(seg.window) << if self.agreed.scaled { self.agreed.snd_scale } else { 0 };
        let newer = ack.after(self.una) || seg.seq.after(self.wl1) || (seg.seq == self.wl1 && wnd > self.wnd);
        if !newer {
            return false;
        }
        self.wl1 = seg.seq;
        let changed = wnd != self.wnd;
        self.wnd = wnd;
        if wnd > self.max_wnd {
            self.max_wnd = wnd;
            self.board.set_mss(self.mss());
        }
        changed
    }

    fn echoes_original(&self, seg: &Segment) -> bool {
        let first = self.recovery.retrans_ts;
        seg.options
            .timestamps
            .is_some_and(|(_, echo)| first != 0 && echo != 0 && (echo.wrapping_sub(first) as i32) < 0)
    }

    /// Takes SACK ranges (RFC 2018), and the report of a duplicate (RFC 2883).
    fn take_sacks(&mut self, cx: &mut Cx<'_>, seg: &Segment, news: &mut AckNews) {
        let ranges = seg.options.sacks.as_slice();
        if !self.agreed.sack || ranges.is_empty() {
            return;
        }
        let first = ranges[0];
        let covered =
            ranges.get(1).is_some_and(|next| next.start.upto(first.start) && first.end.upto(next.end));
        news.dsack = first.start.before(first.end) && (!first.start.after(seg.ack - 1) || covered);
        if news.dsack {
            self.note_dsack(first.start, first.end);
            // Below what is acknowledged, or within what was received out of order.
            match first.start.before(seg.ack) {
                true => cx.counters.dsack_recv.bump(),
                false => cx.counters.dsack_ofo_recv.bump(),
            }
        }
        let (una, nxt, mss) = (self.una.max(seg.ack), self.nxt, self.mss());
        let ranges = ranges.iter().skip(usize::from(news.dsack));
        for range in ranges.filter(|r| r.start.before(r.end) && !r.start.before(una) && r.end.upto(nxt)) {
            let (rack, rtt, high_seq, stats) =
                (&mut self.rack, &self.rtt, self.recovery.high_seq, &mut self.stats);
            self.board.sack(*range, |sent| {
                note_delivery(sent, cx.now, high_seq, news);
                rack.delivered(sent, cx.now, rtt.min_rtt());
                if rack.note_order(sent, false, mss) {
                    stats.reorderings = stats.reorderings.saturating_add(1);
                    cx.counters.sack_reorder.bump();
                }
                stats.delivered += u64::from(sent.packets);
            });
        }
    }

    fn note_dsack(&mut self, start: Seq, end: Seq) {
        self.stats.dsacks = self.stats.dsacks.saturating_add(1);
        self.rack.widen(self.una, self.nxt);
        let packets = (end - start).div_ceil(self.mss()).max(1) as i32;
        self.recovery.note_dsack(start, end, packets);
    }

    /// Takes what is acknowledged in order off the queues.
    fn acknowledge(&mut self, cx: &mut Cx<'_>, ack: Seq, news: &mut AckNews) {
        if ack == self.una {
            return;
        }
        news.advanced = true;
        // The SYN of an accepted connection is not on the scoreboard, and Linux does not count it either.
        let (counted, mss) = (!self.board.is_empty(), self.mss());
        let (rack, rtt, high_seq, stats) =
            (&mut self.rack, &self.rtt, self.recovery.high_seq, &mut self.stats);
        self.board.acknowledge(ack, |sent| {
            news.acked += sent.packets;
            if sent.mark.contains(Mark::SACKED) {
                return;
            }
            note_delivery(sent, cx.now, high_seq, news);
            rack.delivered(sent, cx.now, rtt.min_rtt());
            if rack.note_order(sent, true, mss) {
                stats.reorderings = stats.reorderings.saturating_add(1);
                cx.counters.sack_reorder.bump();
            }
            stats.delivered += u64::from(sent.packets);
        });
        self.stats.bytes_acked += if counted { u64::from(ack - self.una) } else { 0 };
        self.una = ack;
        let bytes = (ack.since(self.tx_seq) as usize).min(self.tx.len());
        self.tx.consume(bytes);
        self.tx_seq += bytes as u32;
        if self.urgent.is_some_and(|at| at.upto(ack)) {
            self.urgent = None;
        }
        self.notices.acknowledged(ack, cx.now);
        if self.notices.is_ready() {
            cx.events |= Events::ERR;
        }
        self.chrono.stop(Limit::Busy, cx.now, self.tx.is_empty());
        if self.write_waits && self.is_writable() {
            self.write_waits = false;
            self.chrono.stop(Limit::Buffer, cx.now, self.tx.is_empty());
            cx.events |= Events::OUT;
        }
    }

    /// Takes a round-trip time: from a segment that was sent once, unless a hole before it was filled (Karn's rule), or else from the
    /// timestamp.
    fn take_rtt(&mut self, now: Ktime, seg: &Segment, news: &AckNews) {
        let echoed = || {
            let (_, echo) = seg.options.timestamps.filter(|_| self.agreed.timestamps && news.advanced)?;
            let millis = self.ts_now(now).wrapping_sub(echo);
            (echo != 0 && millis < i32::MAX as u32).then(|| Duration::from_millis(millis.max(1).into()))
        };
        if let Some(rtt) = news.rtt.filter(|_| !news.retransmitted).or_else(echoed) {
            self.rtt.sample(rtt, now);
            if news.advanced {
                self.cc.watch_rtt(rtt, self.una, self.nxt);
            }
        }
    }

    /// Measures what arrives per second: packets delivered since a segment was sent, over the longer of sending and acknowledging
    /// (draft-cheng-iccrg-delivery-rate-estimation).
    fn take_rate(&mut self, now: Ktime, news: &mut AckNews) {
        let Some((delivered, delivered_at, flight_start, at, limited)) = news.rate else { return };
        self.stats.delivered_at = now;
        self.stats.flight_start = at;
        let interval = at.since(flight_start).max(now.since(delivered_at));
        let quick = self.rtt.min_rtt().is_some_and(|min| interval < min);
        if interval.is_zero() || quick {
            return;
        }
        let bytes = u128::from(self.stats.delivered - delivered) * u128::from(self.mss());
        let rate = u64::try_from(bytes * 1_000_000_000 / interval.as_nanos().max(1)).unwrap_or(u64::MAX);
        news.sampled = rate;
        if !limited || rate >= self.stats.delivery_rate {
            (self.stats.delivery_rate, self.stats.rate_limited) = (rate, limited);
        }
    }

    /// Shows an acknowledgement to BBR.
    fn model_path(&mut self, cx: &Cx<'_>, news: &AckNews) {
        if self.cc.algorithm != Algorithm::Bbr {
            return;
        }
        let Some((prior_delivered, .., limited)) = news.rate else { return };
        let sample = Sample {
            now: cx.now,
            rate: (news.sampled > 0).then_some(news.sampled),
            limited,
            delivered: self.stats.delivered,
            prior_delivered,
            rtt: news.rtt.filter(|_| !news.retransmitted),
            acked: news.delivered,
            in_flight: self.board.in_flight(),
            mss: self.mss(),
            lost: news.lost > 0,
            recovering: matches!(self.recovery.state, Ca::Recovery | Ca::Loss),
        };
        self.cc.cwnd = self.cc.bbr.update(&sample, self.cc.cwnd).min(self.cc.clamp);
        self.tune_send_buffer(cx.sysctls);
    }

    /// Lets the congestion window grow, if it was the limit (RFC 7661 in spirit, as Linux does).
    fn grow_window(&mut self, cx: &Cx<'_>, news: &AckNews) {
        let open = matches!(self.recovery.state, Ca::Open | Ca::Disorder | Ca::Loss);
        if !open || news.acked == 0 {
            return;
        }
        if self.is_window_used() {
            self.cc.grow(news.acked, cx.now, self.rtt.srtt);
            self.tune_send_buffer(cx.sysctls);
        }
    }
}

/// Notes the delivery of a segment.
fn note_delivery(sent: &Sent, now: Ktime, high_seq: Seq, news: &mut AckNews) {
    news.delivered += sent.packets;
    if news.rate.is_none_or(|rate| sent.delivered >= rate.0) {
        let limited = sent.mark.contains(Mark::APP_LIMITED);
        news.rate = Some((sent.delivered, sent.delivered_at, sent.flight_start, sent.at, limited));
    }
    if sent.mark.contains(Mark::EVER) {
        news.retransmitted = true;
    } else {
        news.rtt = Some(now.since(sent.at));
        news.original |= sent.end.upto(high_seq);
    }
}
