//! A connection: its state, its opening and closing.

use super::board::Scoreboard;
use super::cc::{Algorithm, Congestion};
use super::chrono::Chrono;
use super::deadlines::Deadlines;
use super::notices::Notices;
use super::options::TcpOptions;
use super::phase::Recovery;
use super::pieces::Pieces;
use super::rack::Rack;
use super::rtt::Rtt;
use super::rx::RxQueue;
use crate::chain::{Blocks, Chain};
use crate::counters::Tcp as Counters;
use crate::notify::Events;
use crate::sysctl::Sysctls;
use crate::truesize;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Cookie, Segment};
use abi::Errno;
use ktime::Ktime;

/// Bytes of a segment where nothing is sent in segments: a piece of memory that Linux fills.
const WHOLE: u32 = 32_768;

/// The states of RFC 9293 section 3.3.2, with Linux's numbers (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum State {
    /// Data flows both ways.
    Established = 1,
    /// The SYN is sent.
    SynSent = 2,
    /// Both SYNs were seen, ours is not acknowledged.
    SynReceived = 3,
    /// Closed by this side, not acknowledged.
    FinWait1 = 4,
    /// Closed by this side.
    FinWait2 = 5,
    /// Closed by both; late segments are waited for.
    TimeWait = 6,
    /// No connection.
    Closed = 7,
    /// Closed by the peer.
    CloseWait = 8,
    /// Closed by the peer first, then by this side, not acknowledged.
    LastAck = 9,
    /// Waits for connections.
    Listen = 10,
    /// Closed by both at once, not acknowledged.
    Closing = 11,
}

/// Where segments go.
pub(crate) trait Emit {
    /// Sends a segment; ports and checksum are the receiver's affair. `mss` cuts a payload that is longer. `ect` marks it as one of
    /// an ECN-capable transport.
    fn emit(&mut self, segment: &Segment, payload: &Blocks, mss: u32, ect: bool);
}

/// What an operation on a connection uses.
pub(crate) struct Cx<'a> {
    pub(crate) now: Ktime,
    pub(crate) emit: &'a mut dyn Emit,
    pub(crate) rx: &'a mut RxQueue,
    pub(crate) counters: &'a Counters,
    pub(crate) sysctls: &'a Sysctls,
    /// What became true meanwhile.
    pub(crate) events: Events,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Agreed {
    /// What the peer takes in a segment, options included.
    pub(crate) peer_mss: u32,
    /// Windows are scaled.
    pub(crate) scaled: bool,
    pub(crate) snd_scale: u8,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// Acknowledgements that are due.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct AckState {
    /// Something is not acknowledged yet.
    pub(crate) pending: bool,
    /// It must not wait.
    pub(crate) now: bool,
    /// Acknowledgements that are sent at once.
    pub(crate) quick: u32,
    /// The connection is interactive: acknowledgements travel with answers.
    pub(crate) pingpong: bool,
    /// How long an acknowledgement waits, in milliseconds; 0 before the first data.
    pub(crate) ato: u64,
    pub(crate) last_data: Ktime,
    /// Congestion is echoed until the peer says that it slowed down.
    pub(crate) echo_congestion: bool,
    /// The last answer to an invalid segment.
    pub(crate) last_challenge: Option<Ktime>,
}

/// Counts for `TCP_INFO`.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Stats {
    pub(crate) segs_out: u32,
    pub(crate) segs_in: u32,
    pub(crate) data_segs_out: u32,
    pub(crate) data_segs_in: u32,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retrans: u64,
    pub(crate) bytes_acked: u64,
    pub(crate) total_retrans: u32,
    pub(crate) dsacks: u32,
    pub(crate) reorderings: u32,
    pub(crate) delivered: u64,
    /// When that number was reached.
    pub(crate) delivered_at: Ktime,
    /// When the latest delivered segment was sent.
    pub(crate) flight_start: Ktime,
    /// Bytes per second that arrive, by the latest sample.
    pub(crate) delivery_rate: u64,
    /// The sample was taken while the program had nothing more to send.
    pub(crate) rate_limited: bool,
    pub(crate) delivered_ce: u32,
    pub(crate) rtos: u32,
    pub(crate) probes_sent: u32,
    pub(crate) last_sent: Ktime,
    pub(crate) last_ack: Ktime,
}

/// What a SYN-ACK told of the peer.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Learnt {
    pub(crate) mss: u16,
    pub(crate) cookie: Option<Cookie>,
    /// It did not answer a question for a cookie, in the experimental option or the other one.
    pub(crate) silent: Option<bool>,
}

/// Fast Open (RFC 7413): data in the SYN.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub(crate) struct FastOpen {
    /// The option of the first SYN: a cookie, or an empty one that asks for it.
    pub(crate) cookie: Option<Cookie>,
    /// Bytes that the SYN carries.
    pub(crate) sent: u32,
    /// The data may go without a cookie.
    pub(crate) free: bool,
    /// Bytes of a segment to the peer, as far as is known from the last time; 0 for nothing.
    pub(crate) known_mss: u16,
    /// The connection uses Fast Open.
    pub(crate) used: bool,
    /// The first SYN is sent.
    pub(crate) told: bool,
    /// The peer took them.
    pub(crate) taken: bool,
    /// What is to be remembered of the peer for the next time.
    pub(crate) learnt: Option<Learnt>,
    /// This side accepted data with the SYN and may send before the handshake is complete.
    pub(crate) accepted: bool,
}

/// A connection; see the module of TCP. All of it is plain data.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Conn {
    pub(crate) state: State,
    pub(crate) options: TcpOptions,
    pub(crate) agreed: Agreed,
    /// What the path takes in a segment, options included.
    pub(crate) path_mss: u32,
    /// Largest payload handed to [`Emit`] at once.
    pub(crate) gso: u32,
    pub(crate) ts_offset: u32,
    /// The timestamp of the first SYN.
    pub(crate) syn_ts: u32,
    pub(crate) ts_recent: u32,
    pub(crate) ts_recent_at: Ktime,

    pub(crate) iss: Seq,
    pub(crate) una: Seq,
    pub(crate) nxt: Seq,
    /// The peer's window.
    pub(crate) wnd: u32,
    /// The segment that told it.
    pub(crate) wl1: Seq,
    pub(crate) max_wnd: u32,
    /// Bytes from `tx_seq` on: not acknowledged, then not sent.
    #[serde(skip)]
    pub(crate) tx: Chain,
    pub(crate) tx_seq: Seq,
    /// The pieces of what is not sent.
    pub(crate) pieces: Pieces,
    /// Bytes that `tx` may hold.
    pub(crate) tx_limit: usize,
    /// `tcp_notsent_lowat` of the stack, for sockets without a value of their own.
    pub(crate) notsent_default: u32,
    pub(crate) fin_queued: bool,
    /// The end of the last segment that was not full (Minshall's variant of Nagle's rule).
    pub(crate) small_end: Seq,
    /// The urgent pointer.
    pub(crate) urgent: Option<Seq>,
    /// The next data segment tells the peer that the window was reduced.
    pub(crate) tell_reduced: bool,

    pub(crate) board: Scoreboard,
    pub(crate) rtt: Rtt,
    pub(crate) cc: Congestion,
    pub(crate) rack: Rack,
    pub(crate) recovery: Recovery,
    pub(crate) deadlines: Deadlines,
    pub(crate) ack: AckState,
    pub(crate) stats: Stats,
    pub(crate) chrono: Chrono,
    pub(crate) notices: Notices,
    /// Most packets in flight of this round, and the round's end: is the window used?
    pub(crate) max_out: u32,
    pub(crate) max_out_end: Seq,
    pub(crate) cwnd_limited: bool,
    /// Time and bytes read at the start of the round that sizes the receive buffer.
    pub(crate) tuning: (Ktime, u64),
    pub(crate) fast_open: FastOpen,
    /// The pending error (`SO_ERROR`).
    pub(crate) error: Option<Errno>,
    /// An error that does not end the connection; told when a time-out does.
    pub(crate) soft_error: Option<Errno>,
    /// No descriptor is left.
    pub(crate) orphan: bool,
    /// A writer waits for the connection to open.
    pub(crate) write_pending: bool,
    /// A writer was told that there is no room.
    pub(crate) write_waits: bool,
}

impl Conn {
    /// A connection in CLOSED.
    pub(crate) fn new(options: TcpOptions, sysctls: &Sysctls) -> Conn {
        let tx_limit = options.send_buffer.unwrap_or_else(|| sysctls.tcp_wmem_default.size());
        let cc = Congestion::new(options.congestion);
        Conn {
            state: State::Closed,
            options,
            agreed: Agreed { peer_mss: 536, ..Agreed::default() },
            path_mss: 536,
            gso: 0,
            ts_offset: 0,
            syn_ts: 0,
            ts_recent: 0,
            ts_recent_at: Ktime::ZERO,
            iss: Seq(0),
            una: Seq(0),
            nxt: Seq(0),
            wnd: 0,
            wl1: Seq(0),
            max_wnd: 0,
            tx: Chain::default(),
            tx_seq: Seq(0),
            pieces: Pieces::default(),
            tx_limit,
            notsent_default: sysctls.tcp_notsent_lowat.get().clamp(0, u32::MAX.into()) as u32,
            fin_queued: false,
            small_end: Seq(0),
            urgent: None,
            tell_reduced: false,
            board: Scoreboard::default(),
            rtt: Rtt::default(),
            cc,
            rack: Rack::default(),
            recovery: Recovery::default(),
            deadlines: Deadlines::default(),
            ack: AckState::default(),
            stats: Stats::default(),
            chrono: Chrono::default(),
            notices: Notices::default(),
            max_out: 0,
            max_out_end: Seq(0),
            cwnd_limited: false,
            tuning: (Ktime::ZERO, 0),
            fast_open: FastOpen::default(),
            error: None,
            soft_error: None,
            orphan: false,
            write_pending: false,
            write_waits: false,
        }
    }

    /// Sets the initial sequence number and all that counts from it.
    pub(crate) fn start_at(&mut self, iss: Seq) {
        (self.iss, self.una, self.nxt, self.tx_seq) = (iss, iss, iss + 1, iss + 1);
        (self.small_end, self.max_out_end) = (iss, iss);
        self.start_queue(iss + 1);
        self.recovery.high_seq = iss;
    }

    /// Bytes that a SYN may carry, so that the largest options fit beside them; 0 when it must not.
    pub(crate) fn syn_data_room(&self) -> usize {
        let granted = self.fast_open.cookie.is_some_and(|cookie| !cookie.as_slice().is_empty());
        if !granted && !self.fast_open.free {
            return 0;
        }
        let mut mss = self.path_mss;
        if self.options.max_segment > 0 {
            mss = mss.min(self.options.max_segment.into());
        }
        if self.fast_open.known_mss > 0 {
            mss = mss.min(self.fast_open.known_mss.into());
        }
        mss.saturating_sub(40) as usize
    }

    /// The MSS that the peer is told.
    pub(crate) fn own_mss(&self) -> u16 {
        let mss = self.path_mss.min(65_535) as u16;
        if self.options.max_segment > 0 { mss.min(self.options.max_segment) } else { mss }
    }

    /// The value of the timestamp clock.
    pub(crate) fn ts_now(&self, now: Ktime) -> u32 {
        (now.millis() as u32).wrapping_add(self.ts_offset)
    }

    /// Payload of a full segment, timestamps deducted.
    pub(crate) fn mss(&self) -> u32 {
        let options = if self.agreed.timestamps { 12 } else { 0 };
        let mss = self.agreed.peer_mss.min(self.path_mss);
        // A window that never holds two segments: half of it is a full one (RFC 9293 section 3.8.6.2.1).
        let bound = if self.max_wnd > 536 { self.max_wnd / 2 } else { self.max_wnd };
        let mss = mss.saturating_sub(options).max(8);
        if bound > 0 { mss.min(bound.max(8)) } else { mss }
    }

    /// The path takes segments of another size.
    pub(crate) fn set_path(&mut self, path_mss: u32, gso: u32) {
        (self.path_mss, self.gso) = (path_mss.max(8), gso);
        self.board.set_mss(self.mss());
    }

    /// End of what was written.
    pub(crate) fn tx_end(&self) -> Seq {
        self.tx_seq + self.tx.len() as u32
    }

    /// Bytes written and not sent.
    pub(crate) fn unsent(&self) -> u32 {
        self.tx_end().since(self.nxt)
    }

    /// True when the FIN is queued and not sent.
    pub(crate) fn fin_unsent(&self) -> bool {
        self.fin_queued && self.nxt.upto(self.tx_end())
    }

    /// True when this side may still write.
    pub(crate) fn can_send(&self) -> bool {
        let early = self.state == State::SynReceived && self.fast_open.accepted && !self.fin_queued;
        early || matches!(self.state, State::Established | State::CloseWait)
    }

    /// What the send queue counts for (`SO_MEMINFO`): its bytes and its segments' descriptors.
    pub(crate) fn tx_charge(&self) -> usize {
        let cut = self.pieces.list.back().map_or(self.nxt, |last| last.end);
        let whole = self.tx_end().since(cut).div_ceil(WHOLE) as usize;
        truesize::segments(self.board.len() + self.pieces.list.len() + whole, self.tx.len())
    }

    /// True when a writer may begin a segment. As in Linux the segment is filled, whatever room there is: the last one
    /// of a full queue passes the limit.
    pub(crate) fn may_begin(&self) -> bool {
        self.tx_charge() < self.tx_limit
    }

    /// Bytes that the queue may still hold while memory is scarce.
    pub(crate) fn scarce_room(&self) -> usize {
        self.tx.bounded(usize::MAX).saturating_sub(self.tx.len())
    }

    /// Room for writers of bytes that are kept without segments. The queue ends where a segment of [`WHOLE`] bytes
    /// would, counted from the beginning of the stream, so that it takes writes of usual sizes whole or not at all.
    pub(crate) fn tx_room(&self) -> usize {
        let begun = self.tx_end().0.wrapping_sub(self.iss.0).wrapping_sub(1) % WHOLE;
        let rest = if begun > 0 { (WHOLE - begun) as usize } else { 0 };
        let free = self.tx_limit.saturating_sub(self.tx_charge() + rest);
        let further = free.div_ceil(truesize::segments(1, WHOLE as usize));
        rest.saturating_add(further.saturating_mul(WHOLE as usize)).min(self.scarce_room())
    }

    /// True when poll(2) says that the socket is writable: a third of the buffer is free, and little waits to be sent.
    pub(crate) fn is_writable(&self) -> bool {
        let low = match self.options.notsent_low {
            0 => self.notsent_default,
            low => low,
        };
        let charge = self.tx_charge();
        let third = self.tx_limit.saturating_sub(charge) >= charge / 2;
        u64::from(self.unsent()) * 2 < low.into() && third && self.scarce_room() > 0
    }

    /// The last byte written is urgent (`MSG_OOB`).
    pub(crate) fn urge(&mut self) {
        self.urgent = Some(self.tx_end());
    }

    /// Leaves a state for another.
    pub(crate) fn enter(&mut self, cx: &mut Cx<'_>, state: State) {
        let counted = |state| matches!(state, State::Established | State::CloseWait);
        if counted(self.state) && !counted(state) {
            cx.counters.curr_estab.drop_one();
            if state == State::Closed {
                cx.counters.estab_resets.bump();
            }
        }
        self.state = state;
    }

    /// The connection is over.
    pub(crate) fn finish(&mut self, cx: &mut Cx<'_>, error: Option<Errno>) {
        if self.state == State::Closed {
            return;
        }
        self.enter(cx, State::Closed);
        self.error = self.error.or(error);
        self.deadlines = Deadlines::default();
        self.tx.clear();
        self.tx_seq = self.nxt;
        self.forget_pieces();
        self.notices.finish();
        self.fin_queued = false;
        self.board = Scoreboard::default();
        self.write_waits = false;
        cx.events |= Events::ANY;
    }

    /// Grows the send buffer with the congestion window (`tcp_wmem`).
    pub(crate) fn tune_send_buffer(&mut self, sysctls: &Sysctls) {
        if self.options.send_buffer.is_some() {
            return;
        }
        // BBR needs more than one window behind the one that is under way.
        let windows = if self.cc.algorithm == Algorithm::Bbr { 3 } else { 2 };
        let segments = self.cc.cwnd.max(super::limits::INITIAL_WINDOW).max(self.rack.degree() + 1) as usize;
        let segment = truesize::full_segment(self.agreed.peer_mss.max(self.mss()) as usize);
        let wanted = segments.saturating_mul(windows * segment);
        let limit = sysctls.tcp_wmem_max.size();
        self.tx_limit = self.tx_limit.max(wanted.min(limit));
    }

    /// Counts a segment that is about to be sent.
    pub(crate) fn note_sent(&mut self, cx: &Cx<'_>, payload: u32) {
        let packets = payload.div_ceil(self.mss()).max(1);
        cx.counters.out_segs.add(packets.into());
        self.stats.segs_out = self.stats.segs_out.wrapping_add(packets);
        if payload > 0 {
            self.stats.data_segs_out = self.stats.data_segs_out.wrapping_add(packets);
            self.stats.bytes_sent += u64::from(payload);
            self.stats.last_sent = cx.now;
        }
    }
}
