//! Listening sockets at work: half-open connections, SYN cookies, new connections.

use super::arrival::Arrival;
use super::conn::{Conn, Emit, State};
use super::emit::{Packets, sizes};
use super::listener::Request;
use super::options::TcpOptions;
use super::socket::{Inner, TcpSocket};
use super::table::Tuple;
use crate::chain::Blocks;
use crate::network::path::Path;
use crate::sysctl::Sysctls;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Cookie, Flags, Options, Segment};
use ktime::Ktime;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Bits of `tcp_fastopen`: servers; without a cookie; for every listener.
const SERVER: i64 = 2;
const WITHOUT_COOKIE: i64 = 0x200;
const WITHOUT_OPTION: i64 = 0x400;

/// Cookies are looked for this long after the last one was sent.
const COOKIE_LIFE: Duration = Duration::from_secs(120);

/// Segment sizes that a cookie can stand for.
const COOKIE_MSS: [u16; 8] = [536, 1220, 1300, 1360, 1400, 1440, 1460, 8960];

/// Seconds of a cookie's clock.
const COOKIE_STEP: u64 = 64;

/// What a listener does with a segment.
pub(super) enum Answer {
    /// Nothing more.
    Nothing,
    /// A reset.
    Reset,
    /// The segment belongs to this new connection; the listener's waiters are woken.
    Child(Arc<TcpSocket>),
    /// A new connection that has taken the segment already.
    Taken,
}

impl TcpSocket {
    /// Takes a segment for a listening socket.
    pub(super) fn listener_input(&self, inner: &mut Inner, arrival: &Arrival<'_>) -> Answer {
        let flags = arrival.seg.flags;
        let known =
            inner.listener.as_ref().and_then(|listener| listener.requests.get(&arrival.tuple)).cloned();
        if let Some(request) = known {
            return self.request_input(inner, arrival, &request);
        }
        if flags.contains(Flags::RST) {
            return Answer::Nothing;
        }
        if flags.contains(Flags::ACK) {
            return self.cookie_input(inner, arrival);
        }
        if flags.contains(Flags::SYN) {
            let (valid, offer) = self.fast_cookie(inner, arrival);
            if valid && self.accept_fast(inner, arrival, offer) {
                return Answer::Taken;
            }
            self.syn_input(inner, arrival, offer);
        }
        Answer::Nothing
    }

    /// Whether a SYN may bring data, and the cookie to answer with (RFC 7413 section 4.2).
    fn fast_cookie(&self, inner: &Inner, arrival: &Arrival<'_>) -> (bool, Option<Cookie>) {
        let setting = self.stack.net.sysctls.tcp_fastopen.get();
        let wanted = inner.conn.options.fast_open_queue > 0 || setting & WITHOUT_OPTION != 0;
        if setting & SERVER == 0 || !wanted {
            return (false, None);
        }
        let offered = arrival.seg.options.fast_open;
        let data = !arrival.data.is_empty() || arrival.seg.flags.contains(Flags::FIN);
        if setting & WITHOUT_COOKIE != 0 || inner.conn.options.fast_open_no_cookie {
            return (data || offered.is_some(), None);
        }
        let Some(offered) = offered else { return (false, None) };
        let keys = &self.stack.tcp.fast_open_keys;
        let (valid, renew) = keys.judge(&arrival.tuple, &offered);
        let own = keys.cookie(&arrival.tuple).filter(|_| !valid || renew);
        (valid, own.map(|own| own.like(&offered)))
    }

    /// Makes a connection from a SYN with a valid cookie; false when too many wait for their handshake.
    fn accept_fast(&self, inner: &mut Inner, arrival: &Arrival<'_>, offer: Option<Cookie>) -> bool {
        let most = match inner.conn.options.fast_open_queue {
            0 => inner.listener.as_ref().map_or(0, |listener| listener.backlog),
            most => most,
        };
        let Some(listener) = inner.listener.as_mut() else { return false };
        let waits = |child: &Weak<TcpSocket>| {
            child.upgrade().is_some_and(|c| c.inner.lock_nested().conn.state == State::SynReceived)
        };
        listener.fast.retain(waits);
        if listener.fast.len() >= most || listener.is_full() {
            return false;
        }
        let (local, remote) = arrival.tuple;
        let path = self.path_for(&inner.conn.options, &arrival.tuple, arrival.device, arrival.now);
        let Some(path) = path else { return false };
        let child = self.child(inner, arrival.tuple, path);
        let iss = Seq(self.stack.net.keys.initial_sequence(local, remote, arrival.now));
        child.start_fast(arrival, iss, offer);
        if !self.stack.tcp.table.insert(arrival.tuple, &child) {
            return false;
        }
        if let Some(binding) = inner.binding {
            let own = crate::ports::Binding { listening: false, ip: local.ip(), ..binding };
            self.stack.tcp.table.inherit(own, child.id());
        }
        if let Some(listener) = inner.listener.as_mut() {
            listener.fast.push(Arc::downgrade(&child));
            listener.accept.push_back(child);
        }
        true
    }

    fn syn_input(&self, inner: &mut Inner, arrival: &Arrival<'_>, offer: Option<Cookie>) {
        let counters = &self.stack.net.counters.tcp;
        let sysctls = &self.stack.net.sysctls;
        let Some(listener) = inner.listener.as_mut() else { return };
        if listener.is_full() {
            counters.listen_overflows.bump();
            return counters.listen_drops.bump();
        }
        let most = listener.backlog.max(8).min(sysctls.tcp_max_syn_backlog.size().max(1));
        let crowded = listener.requests.len() >= most;
        let cookies = sysctls.tcp_syncookies.get();
        if (crowded && cookies > 0) || cookies == 2 {
            return self.send_cookie(inner, arrival);
        }
        if crowded {
            return counters.listen_drops.bump();
        }
        let (local, remote) = arrival.tuple;
        let asked = arrival.seg.flags.contains(Flags::ECE | Flags::CWR);
        let iss = Seq(self.stack.net.keys.initial_sequence(local, remote, arrival.now));
        let deadline = arrival.now.plus(Conn::syn_ack_wait(0));
        let request = Request {
            syn: *arrival.seg,
            iss,
            sent_at: arrival.now,
            retries: 0,
            deadline,
            ecn: asked && sysctls.tcp_ecn.on(),
            offer,
            acked: false,
        };
        listener.deadline = Some(listener.deadline.map_or(deadline, |at| at.min(deadline)));
        listener.requests.insert(arrival.tuple, request.clone());
        self.send_syn_ack(inner, arrival.now, &arrival.tuple, arrival.device, &request, None);
    }

    /// Sends a SYN-ACK. `ts` replaces the timestamp, for cookies.
    fn send_syn_ack(
        &self,
        inner: &Inner,
        now: Ktime,
        tuple: &Tuple,
        device: u32,
        request: &Request,
        ts: Option<u32>,
    ) {
        let Some(path) = self.path_for(&inner.conn.options, tuple, device, now) else { return };
        let (offer, sysctls) = (&request.syn.options, &self.stack.net.sysctls);
        let mss = sizes(&path).0.min(65_535) as u16;
        let limit = inner.conn.options.max_segment;
        let clock =
            (now.millis() as u32).wrapping_add(self.stack.net.keys.timestamp_offset(tuple.0, tuple.1));
        let scaled = offer.wscale.is_some() && sysctls.tcp_window_scaling.on();
        let stamped = offer.timestamps.filter(|_| sysctls.tcp_timestamps.on());
        let window = inner.conn.options.window_limit(sysctls).min(65_535) as u16;
        let mut flags = Flags::SYN | Flags::ACK;
        flags.set(Flags::ECE, request.ecn);
        let segment = Segment {
            seq: request.iss,
            ack: request.syn.seq + 1,
            flags,
            window,
            options: Options {
                mss: Some(if limit > 0 { mss.min(limit) } else { mss }),
                wscale: scaled.then(|| inner.conn.options.window_shift(sysctls)),
                sack_permitted: offer.sack_permitted && sysctls.tcp_sack.on(),
                timestamps: stamped.map(|(value, _)| (ts.unwrap_or(clock), value)),
                fast_open: request.offer,
                ..Options::default()
            },
            ..Segment::default()
        };
        self.stack.net.counters.tcp.out_segs.bump();
        self.packets(&inner.conn.options, Some(&path), tuple, now).emit(
            &segment,
            &Blocks::new(),
            u32::MAX,
            false,
        );
    }

    pub(super) fn packets<'a>(
        &'a self,
        options: &TcpOptions,
        path: Option<&'a Path>,
        tuple: &Tuple,
        now: Ktime,
    ) -> Packets<'a> {
        Packets {
            net: &self.stack.net,
            path,
            local: tuple.0,
            remote: tuple.1,
            tos: options.ip.tos_for(tuple.1.ip()),
            ttl: options.ip.ttl_for(tuple.1.ip()),
            dont_fragment: options.ip.mtu_discovery.forbids_fragments(),
            mark: options.ip.mark,
            owner: options.ip.owner(),
            now,
        }
    }

    /// A segment for a half-open connection.
    fn request_input(&self, inner: &mut Inner, arrival: &Arrival<'_>, request: &Request) -> Answer {
        let (seg, counters) = (arrival.seg, &self.stack.net.counters.tcp);
        let expected = request.syn.seq + 1;
        let Some(listener) = inner.listener.as_mut() else { return Answer::Nothing };
        if seg.flags.contains(Flags::RST) {
            if seg.seq == expected {
                listener.requests.remove(&arrival.tuple);
                counters.attempt_fails.bump();
            }
            return Answer::Nothing;
        }
        if seg.flags.contains(Flags::SYN) && seg.seq == request.syn.seq {
            self.send_syn_ack(inner, arrival.now, &arrival.tuple, arrival.device, request, None);
            return Answer::Nothing;
        }
        if !seg.flags.contains(Flags::ACK) || seg.flags.contains(Flags::SYN) {
            return Answer::Nothing;
        }
        if seg.ack != request.iss + 1 {
            return Answer::Reset;
        }
        let window = inner.conn.options.window_limit(&self.stack.net.sysctls) as u32;
        if seg.seq.before(expected) || seg.seq.after(expected + window) {
            return Answer::Nothing;
        }
        if listener.is_full() {
            counters.listen_overflows.bump();
            let reset = self.stack.net.sysctls.tcp_abort_on_overflow.on();
            if reset {
                listener.requests.remove(&arrival.tuple);
            }
            return if reset { Answer::Reset } else { Answer::Nothing };
        }
        let bare = arrival.data.is_empty() && !seg.flags.contains(Flags::FIN);
        if bare && inner.conn.options.defer_accept > request.retries {
            if let Some(kept) = listener.requests.get_mut(&arrival.tuple) {
                kept.acked = true;
            }
            return Answer::Nothing;
        }
        listener.requests.remove(&arrival.tuple);
        self.make_child(inner, arrival, request)
    }

    /// Makes the connection of a completed handshake.
    fn make_child(&self, inner: &mut Inner, arrival: &Arrival<'_>, request: &Request) -> Answer {
        let Some(path) = self.path_for(&inner.conn.options, &arrival.tuple, arrival.device, arrival.now)
        else {
            return Answer::Nothing;
        };
        let child = self.child(inner, arrival.tuple, path);
        child.start_child(arrival.now, &request.syn, request.iss, request.ecn);
        if !self.stack.tcp.table.insert(arrival.tuple, &child) {
            return Answer::Nothing;
        }
        if let Some(binding) = inner.binding {
            let own = crate::ports::Binding { listening: false, ip: arrival.tuple.0.ip(), ..binding };
            self.stack.tcp.table.inherit(own, child.id());
        }
        if request.retries == 0 && request.sent_at > Ktime::ZERO {
            child.sample(arrival.now.since(request.sent_at), arrival.now);
        }
        if let Some(listener) = inner.listener.as_mut() {
            listener.accept.push_back(child.clone());
        }
        Answer::Child(child)
    }

    // SYN cookies: the state of a half-open connection travels in its sequence number.

    fn send_cookie(&self, inner: &mut Inner, arrival: &Arrival<'_>) {
        let offered = arrival.seg.options.mss.unwrap_or(536);
        let size = COOKIE_MSS.iter().rposition(|mss| *mss <= offered).unwrap_or(0) as u32;
        let step = arrival.now.millis() / 1000 / COOKIE_STEP;
        let iss = Seq(self.cookie(&arrival.tuple, arrival.seg.seq, step, size));
        let options = &arrival.seg.options;
        let bits = options.wscale.map_or(15, u32::from) | u32::from(options.sack_permitted) << 4;
        let clock = (arrival.now.millis() as u32)
            .wrapping_add(self.stack.net.keys.timestamp_offset(arrival.tuple.0, arrival.tuple.1));
        // The options hide in the low bits of the timestamp; without one they are not used.
        let ts = (clock & !0x3f) | bits;
        let mut syn = *arrival.seg;
        if options.timestamps.is_none() {
            (syn.options.wscale, syn.options.sack_permitted) = (None, false);
        }
        if let Some(listener) = inner.listener.as_mut() {
            listener.cookies_at = Some(arrival.now);
        }
        let request = Request {
            syn,
            iss,
            sent_at: Ktime::ZERO,
            retries: 0,
            deadline: arrival.now,
            ecn: false,
            offer: None,
            acked: false,
        };
        self.stack.net.counters.tcp.syncookies_sent.bump();
        self.send_syn_ack(inner, arrival.now, &arrival.tuple, arrival.device, &request, Some(ts));
    }

    fn cookie(&self, tuple: &Tuple, irs: Seq, step: u64, size: u32) -> u32 {
        let mac = self.stack.net.keys.hash("cookie", (tuple, irs, step, size)) as u32 & 0xff_ffff;
        ((step as u32 & 0x1f) << 27) | ((size & 7) << 24) | mac
    }

    fn cookie_input(&self, inner: &mut Inner, arrival: &Arrival<'_>) -> Answer {
        let Some(listener) = inner.listener.as_ref() else { return Answer::Reset };
        let recent = listener.cookies_at.is_some_and(|at| arrival.now.since(at) < COOKIE_LIFE);
        if !recent || arrival.seg.flags.contains(Flags::SYN) {
            return Answer::Reset;
        }
        let (seg, counters) = (arrival.seg, &self.stack.net.counters.tcp);
        let (iss, irs) = (seg.ack - 1, seg.seq - 1);
        let now = arrival.now.millis() / 1000 / COOKIE_STEP;
        let size = iss.0 >> 24 & 7;
        let valid = (0..2).any(|back| {
            now.checked_sub(back).is_some_and(|step| self.cookie(&arrival.tuple, irs, step, size) == iss.0)
        });
        if !valid {
            counters.syncookies_failed.bump();
            return Answer::Reset;
        }
        if listener.is_full() {
            counters.listen_overflows.bump();
            return Answer::Nothing;
        }
        counters.syncookies_recv.bump();
        let mut options = Options { mss: Some(COOKIE_MSS[size as usize & 7]), ..Options::default() };
        if let Some((value, echo)) = seg.options.timestamps {
            options.timestamps = Some((value, 0));
            options.sack_permitted = echo & 0x10 != 0;
            options.wscale = Some((echo & 0xf) as u8).filter(|scale| *scale < 15);
        }
        let syn = Segment { seq: irs, flags: Flags::SYN, window: seg.window, options, ..Segment::default() };
        let request = Request {
            syn,
            iss,
            sent_at: Ktime::ZERO,
            retries: 0,
            deadline: arrival.now,
            ecn: false,
            offer: None,
            acked: false,
        };
        self.make_child(inner, arrival, &request)
    }

    /// Sends SYN-ACKs again, and forgets connections that were not completed.
    pub(super) fn expire_requests(&self, inner: &mut Inner, now: Ktime) {
        let sysctls: &Sysctls = &self.stack.net.sysctls;
        let most = sysctls.tcp_synack_retries.size() as u32;
        let defer = inner.conn.options.defer_accept;
        let Some(listener) = inner.listener.as_mut() else { return };
        let mut again = Vec::new();
        listener.requests.retain(|tuple, request| {
            if request.deadline > now {
                return true;
            }
            if request.retries >= most.max(defer) {
                return false;
            }
            request.retries += 1;
            request.deadline = now.plus(Conn::syn_ack_wait(request.retries));
            // A deferred connection is asked once more only at the end.
            if !request.acked || request.retries >= defer {
                again.push((*tuple, request.clone()));
            }
            true
        });
        listener.deadline = listener.requests.values().map(|request| request.deadline).min();
        for (tuple, request) in again {
            self.stack.net.counters.tcp.retrans_segs.bump();
            self.stack.net.counters.tcp.syn_retrans.bump();
            self.send_syn_ack(inner, now, &tuple, 0, &request, None);
        }
    }

    /// True when the socket listens.
    pub(super) fn listens(inner: &Inner) -> bool {
        inner.conn.state == State::Listen
    }
}
