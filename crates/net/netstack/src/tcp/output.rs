//! Segments of a connection: new data, retransmissions, acknowledgements. `sendq` decides when new data may go.

use super::board::Mark;
use super::conn::{Conn, Cx, State};
use super::limits::INITIAL_WINDOW;
use super::phase::Ca;
use crate::chain::Blocks;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Options, Sacks, Segment};

/// Shortest time that an acknowledgement waits.
pub(crate) const ATO_MIN: u64 = 40;

/// Longest time.
const ATO_MAX: u64 = 200;

impl Conn {
    /// After an idle time the path is no longer known (RFC 5681 section 4.1, RFC 7661).
    pub(crate) fn restart_after_idle(&mut self, cx: &Cx<'_>) {
        let idle = cx.now.since(self.stats.last_sent);
        if self.board.out > 0 || idle <= self.rtt.rto() || self.stats.bytes_sent == 0 {
            return;
        }
        self.cc.idle();
        if cx.sysctls.tcp_slow_start_after_idle.on() {
            let halvings = (idle.as_nanos() / self.rtt.rto().as_nanos().max(1)).min(31) as u32;
            self.cc.ssthresh = self.cc.ssthresh.max(self.cc.cwnd / 4 * 3);
            self.cc.cwnd = (self.cc.cwnd >> halvings).max(INITIAL_WINDOW.min(self.cc.cwnd));
        }
    }

    /// Sends bytes of the send queue.
    pub(crate) fn send_range(
        &mut self,
        cx: &mut Cx<'_>,
        (seq, len): (Seq, u32),
        (fin, push): (bool, bool),
        again: bool,
    ) {
        let mut flags = Flags::ACK;
        flags.set(Flags::FIN, fin);
        // Large segments end with PSH, so that a receiver that joins segments does not wait.
        flags.set(Flags::PSH, len > 0 && push || len > self.mss());
        let ect = self.agreed.ecn && !again;
        if ect && len > 0 && std::mem::take(&mut self.tell_reduced) {
            flags |= Flags::CWR;
        }
        let mut segment = self.segment(cx, flags, seq);
        if let Some(at) = self.urgent.filter(|at| at.after(seq)) {
            segment.flags |= Flags::URG;
            segment.urgent = (at - seq).min(65_535) as u16;
        }
        let mss = self.mss();
        if len.min(mss) + 12 > mss {
            segment.options.sacks = Sacks::default();
        }
        self.note_sent(cx, len);
        if !again {
            cx.counters.orig_data_sent.add(len.div_ceil(mss).max(1).into());
        }
        self.note_ack_sent(cx);
        if !again && cx.now.since(self.ack.last_data).as_millis() < u128::from(self.ack.ato) {
            self.ack.pingpong = true;
        }
        let from = (seq - self.tx_seq) as usize;
        cx.emit.emit(&segment, &self.tx.peek(from, len as usize), mss, ect && len > 0);
    }

    /// Retransmits lost segments as far as the window allows.
    pub(crate) fn retransmit_lost(&mut self, cx: &mut Cx<'_>) {
        let mut from = 0;
        while self.board.lost > self.board.retrans
            && self.board.in_flight() < self.cc.cwnd
            && let Some(n) = self.board.next_lost(from)
        {
            let quota = self.cc.cwnd.saturating_sub(self.board.in_flight());
            let segs = quota.min(self.tso_segs(cx.sysctls, self.mss())).max(1);
            let before = self.board.retrans;
            if !self.retransmit_some(cx, n, segs) {
                break;
            }
            let packets = self.board.retrans.saturating_sub(before);
            from = n + 1;
            let fast = self.recovery.state == Ca::Recovery;
            let counter = if fast { &cx.counters.fast_retrans } else { &cx.counters.slow_start_retrans };
            counter.bump();
            if fast {
                self.recovery.prr_out += packets;
            }
        }
        if from > 0 && self.deadlines.rtx.is_none() {
            self.arm_rto(cx.now);
        }
    }

    /// Retransmits an entry of the scoreboard, one full segment at most; false when the peer's window is in the way.
    pub(crate) fn retransmit(&mut self, cx: &mut Cx<'_>, n: usize) -> bool {
        self.retransmit_some(cx, n, 1)
    }

    /// Like [`Conn::retransmit`], with so many segments at most.
    fn retransmit_some(&mut self, cx: &mut Cx<'_>, n: usize, segs: u32) -> bool {
        let Some(sent) = self.board.get(n) else { return false };
        let (seq, mss) = (sent.seq, self.mss());
        let most = if self.gso > 0 { mss.saturating_mul(segs) } else { mss };
        if seq == self.iss && matches!(self.state, State::SynSent | State::SynReceived) {
            self.note_retransmission(cx, n);
            cx.counters.syn_retrans.bump();
            self.send_syn(cx);
            return true;
        }
        let edge = self.una + self.wnd;
        if n > 0 && sent.end.after(edge) {
            return false;
        }
        if (sent.end - sent.seq) - u32::from(sent.end.after(self.tx_end())) > most {
            self.board.split(n, seq + most);
        }
        let Some(sent) = self.board.get(n) else { return false };
        let (end, push) = (sent.end, sent.mark.contains(Mark::PUSH));
        let fin = end.after(self.tx_end());
        let len = (end - seq) - u32::from(fin);
        self.note_retransmission(cx, n);
        self.stats.bytes_retrans += u64::from(len);
        self.send_range(cx, (seq, len), (fin, push), true);
        true
    }

    fn note_retransmission(&mut self, cx: &Cx<'_>, n: usize) {
        let now = cx.now;
        let mut packets = 1;
        self.board.change(n, |sent| {
            sent.mark.insert(Mark::RETRANS | Mark::EVER);
            sent.at = now;
            packets = sent.packets;
        });
        cx.counters.retrans_segs.add(packets.into());
        self.stats.total_retrans = self.stats.total_retrans.wrapping_add(packets);
        let ts = self.ts_now(now);
        self.recovery.note_retransmission(ts, packets);
    }

    // Segments without data.

    /// A header with everything that each segment of the connection has.
    pub(crate) fn segment(&self, cx: &mut Cx<'_>, mut flags: Flags, seq: Seq) -> Segment {
        if self.ack.echo_congestion && !flags.contains(Flags::RST) {
            flags |= Flags::ECE;
        }
        let options = Options {
            timestamps: self.agreed.timestamps.then(|| (self.ts_now(cx.now), self.ts_recent)),
            sacks: if self.agreed.sack { cx.rx.sacks(cx.sysctls.tcp_dsack.on()) } else { Sacks::default() },
            ..Options::default()
        };
        let window = cx.rx.announce(self.agreed.scaled);
        Segment { seq, ack: cx.rx.nxt, flags, window, options, ..Segment::default() }
    }

    /// Sends a segment without data.
    pub(crate) fn send_control(&mut self, cx: &mut Cx<'_>, flags: Flags, seq: Seq) {
        let mut segment = self.segment(cx, flags, seq);
        if flags.contains(Flags::RST) {
            segment.options.sacks = Sacks::default();
        }
        self.note_sent(cx, 0);
        cx.emit.emit(&segment, &Blocks::new(), u32::MAX, false);
    }

    /// Sends an acknowledgement.
    pub(crate) fn send_ack(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.state, State::Closed | State::SynSent | State::Listen) {
            return;
        }
        self.send_control(cx, Flags::ACK, self.nxt);
        self.note_ack_sent(cx);
    }

    fn note_ack_sent(&mut self, _cx: &Cx<'_>) {
        self.ack.pending = false;
        self.ack.now = false;
        self.ack.quick = self.ack.quick.saturating_sub(1);
        self.deadlines.delack = None;
    }

    /// Sends an acknowledgement now or later, if one is due (RFC 9293 section 3.8.6.3).
    pub(crate) fn check_ack(&mut self, cx: &mut Cx<'_>) {
        if !self.ack.pending {
            return;
        }
        let unacked = cx.rx.nxt.since(cx.rx.acked);
        let quick = self.ack.quick > 0 && !self.ack.pingpong;
        if self.ack.now || quick || unacked > cx.rx.mss || cx.rx.has_early() {
            return self.send_ack(cx);
        }
        if self.deadlines.delack.is_none() {
            let wait = self.ack.ato.clamp(ATO_MIN, ATO_MAX);
            self.deadlines.delack = Some(cx.now.plus(std::time::Duration::from_millis(wait)));
        }
    }

    /// Learns from the arrival of data how long acknowledgements may wait.
    pub(crate) fn note_data_received(&mut self, cx: &mut Cx<'_>, len: u32) {
        self.ack.pending = true;
        if len >= cx.rx.mss {
            cx.rx.mss = len.min(self.path_mss.max(536));
        }
        let gap = cx.now.since(self.ack.last_data).as_millis() as u64;
        self.ack.last_data = cx.now;
        if self.ack.ato == 0 {
            self.go_quick(cx, 16);
            self.ack.ato = ATO_MIN;
        } else if gap <= ATO_MIN / 2 {
            self.ack.ato = self.ack.ato / 2 + ATO_MIN / 2;
        } else if gap < self.ack.ato {
            self.ack.ato = (self.ack.ato / 2 + gap).min(self.rtt.rto().as_millis() as u64);
        } else if gap > self.rtt.rto().as_millis() as u64 {
            self.go_quick(cx, 16);
        }
    }

    /// Sends the next acknowledgements at once.
    pub(crate) fn go_quick(&mut self, cx: &Cx<'_>, most: u32) {
        let wanted = (cx.rx.window() / (2 * cx.rx.mss.max(1))).clamp(2, most.max(2));
        self.ack.quick = self.ack.quick.max(wanted);
    }

    /// Sends SYN, or SYN-ACK after the peer's SYN.
    pub(crate) fn send_syn(&mut self, cx: &mut Cx<'_>) {
        let answer = self.state == State::SynReceived;
        let mut flags = if answer { Flags::SYN | Flags::ACK } else { Flags::SYN };
        if self.agreed.ecn {
            flags |= if answer { Flags::ECE } else { Flags::ECE | Flags::CWR };
        }
        let on = |setting: &crate::sysctl::Setting, agreed: bool| if answer { agreed } else { setting.on() };
        let timestamps = on(&cx.sysctls.tcp_timestamps, self.agreed.timestamps);
        let scaling = on(&cx.sysctls.tcp_window_scaling, self.agreed.scaled);
        let options = Options {
            mss: Some(self.own_mss()),
            wscale: scaling.then_some(cx.rx.scale),
            sack_permitted: on(&cx.sysctls.tcp_sack, self.agreed.sack),
            timestamps: timestamps.then(|| (self.ts_now(cx.now), self.ts_recent)),
            // A repeated SYN is a plain one: the data or the option may be what was dropped.
            fast_open: self.fast_open.cookie.filter(|_| !self.fast_open.told),
            ..Options::default()
        };
        if !self.fast_open.told {
            self.syn_ts = self.ts_now(cx.now);
        }
        let data = if self.fast_open.told || answer { 0 } else { self.fast_open.sent };
        self.fast_open.told = true;
        let ack = if answer { cx.rx.nxt } else { Seq(0) };
        let window = cx.rx.announce(false);
        let segment = Segment { seq: self.iss, ack, flags, window, options, ..Segment::default() };
        self.note_sent(cx, data);
        cx.emit.emit(&segment, &self.tx.peek(0, data as usize), u32::MAX, false);
    }
}
