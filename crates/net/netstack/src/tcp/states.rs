//! How a connection opens and closes: what both sides agree on, and the changes of its state (RFC 9293 section 3.3.2).

use super::board::{Mark, Sent};
use super::conn::{Conn, Cx, State};
use crate::chain::Span;
use crate::notify::Events;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Segment};

impl Conn {
    /// Sends a SYN (active open).
    pub(crate) fn connect(&mut self, cx: &mut Cx<'_>, iss: Seq) {
        self.start_at(iss);
        self.state = State::SynSent;
        cx.rx.capacity = self.options.window_limit(cx.sysctls);
        cx.rx.fixed = self.options.receive_buffer.is_some() || self.options.window_clamp > 0;
        cx.rx.scale = self.options.window_shift(cx.sysctls);
        cx.rx.mss = self.path_mss;
        cx.counters.active_opens.bump();
        self.agreed.ecn = cx.sysctls.tcp_ecn.get() == 1;
        self.push_sent(cx, iss, iss + 1);
        self.add_syn_data(cx);
        self.send_syn(cx);
        self.arm_rto(cx.now);
    }

    /// What was written already goes with the SYN.
    fn add_syn_data(&mut self, cx: &Cx<'_>) {
        let most = self.syn_data_room();
        let len = self.tx.len().min(most) as u32;
        if len == 0 {
            return;
        }
        self.fast_open.sent = len;
        self.nxt = self.iss + 1 + len;
        self.push_sent(cx, self.iss + 1, self.nxt);
        let last = self.board.len() - 1;
        self.board.change(last, |sent| sent.mark.insert(Mark::PUSH));
    }

    fn push_sent(&mut self, cx: &Cx<'_>, seq: Seq, end: Seq) {
        self.board.push(Sent {
            seq,
            end,
            packets: 1,
            at: cx.now,
            mark: Mark::empty(),
            delivered: 0,
            delivered_at: cx.now,
            flight_start: cx.now,
        });
    }

    /// Takes a connection whose SYN brought a valid cookie: its data may be read before the handshake is complete.
    pub(crate) fn accept_fast(&mut self, cx: &mut Cx<'_>, syn: &Segment, iss: Seq, data: Span<'_>) {
        self.accept(cx, syn, iss, false);
        self.fast_open.accepted = true;
        cx.counters.fast_open_passive.bump();
        if !data.is_empty() {
            cx.rx.accept(syn.seq + 1, data);
        }
        self.push_sent(cx, iss, iss + 1);
        self.send_syn(cx);
        self.arm_rto(cx.now);
        cx.events |= Events::IN | Events::OUT;
    }

    /// Takes over a half-open connection: `syn` came from the peer, our SYN-ACK with `iss` went out.
    pub(crate) fn accept(&mut self, cx: &mut Cx<'_>, syn: &Segment, iss: Seq, ecn: bool) {
        self.start_at(iss);
        self.state = State::SynReceived;
        cx.rx.capacity = self.options.window_limit(cx.sysctls);
        cx.rx.fixed = self.options.receive_buffer.is_some() || self.options.window_clamp > 0;
        cx.rx.scale = self.options.window_shift(cx.sysctls);
        self.agree(cx, syn);
        self.agreed.ecn = ecn;
        cx.rx.announce(false);
        cx.counters.passive_opens.bump();
    }

    /// Takes over what a SYN offers. `asked` holds for the side that opened: it offered everything that the settings allow.
    pub(crate) fn agree(&mut self, cx: &mut Cx<'_>, syn: &Segment) {
        let offer = &syn.options;
        let sysctls = cx.sysctls;
        let scaled = offer.wscale.filter(|_| sysctls.tcp_window_scaling.on());
        self.agreed.peer_mss = offer.mss.map_or(536, u32::from);
        // TCP_MAXSEG counts now; later changes are for the next connection.
        if self.options.max_segment > 0 {
            self.agreed.peer_mss = self.agreed.peer_mss.min(self.options.max_segment.into());
        }
        self.agreed.scaled = scaled.is_some();
        self.agreed.snd_scale = scaled.unwrap_or(0);
        self.agreed.sack = offer.sack_permitted && sysctls.tcp_sack.on();
        self.agreed.timestamps = offer.timestamps.is_some() && sysctls.tcp_timestamps.on();
        if let Some((value, _)) = offer.timestamps {
            (self.ts_recent, self.ts_recent_at) = (value, cx.now);
        }
        cx.rx.start(syn.seq + 1);
        if scaled.is_none() {
            cx.rx.scale = 0;
        }
        cx.rx.mss = self.agreed.peer_mss.min(self.path_mss).max(1);
        self.wnd = syn.window.into();
        self.max_wnd = self.wnd;
        self.wl1 = syn.seq;
        self.board.set_mss(self.mss());
    }

    /// The connection is open.
    pub(crate) fn establish(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Established;
        cx.rx.established = true;
        self.max_wnd = self.max_wnd.max(self.wnd);
        self.tuning = (cx.now, cx.rx.copied);
        self.stats.last_ack = cx.now;
        self.ack.last_data = cx.now;
        self.tune_send_buffer(cx.sysctls);
        self.board.set_mss(self.mss());
        self.arm_keepalive(cx.now);
        cx.counters.curr_estab.bump();
        cx.events |= Events::OUT;
    }

    /// Closes this side (shutdown(2), close(2)): a FIN follows what was written.
    pub(crate) fn close_write(&mut self, cx: &mut Cx<'_>) {
        let next = match self.state {
            State::Established | State::SynReceived => State::FinWait1,
            State::CloseWait => State::LastAck,
            _ => return,
        };
        self.enter(cx, next);
        self.fin_queued = true;
        self.output(cx);
    }

    /// Ends the connection with a reset (RFC 9293 section 3.10.5).
    pub(crate) fn abort(&mut self, cx: &mut Cx<'_>) {
        let tell = matches!(
            self.state,
            State::Established
                | State::SynReceived
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
                | State::LastAck
                | State::Closing
        );
        if tell {
            cx.counters.out_rsts.bump();
            self.send_control(cx, Flags::RST | Flags::ACK, self.nxt);
        }
        self.finish(cx, None);
    }
}
