//! One connection with all it needs, and what it sends.

use crate::chain::Blocks;
use crate::counters::Tcp as Counters;
use crate::notify::Events;
use crate::sysctl::Sysctls;
use crate::tcp::conn::{Conn, Cx, Emit, State};
use crate::tcp::input::Verdict;
use crate::tcp::options::TcpOptions;
use crate::tcp::rx::RxQueue;
use crate::wire::seq::Seq;
use crate::wire::tcp::{Flags, Segment};
use ktime::Ktime;

/// What was sent.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) seg: Segment,
    pub(crate) data: Vec<u8>,
    pub(crate) ect: bool,
}

#[derive(Default)]
struct Sink(Vec<Out>);

impl Emit for Sink {
    fn emit(&mut self, segment: &Segment, payload: &Blocks, mss: u32, ect: bool) {
        let data: Vec<u8> = payload.iter().flat_map(|block| block.iter().copied()).collect();
        if data.is_empty() {
            return self.0.push(Out { seg: *segment, data, ect });
        }
        // As segmentation offload does.
        let count = data.len().div_ceil(mss as usize);
        for (n, part) in data.chunks(mss as usize).enumerate() {
            let mut seg = *segment;
            seg.seq += n as u32 * mss;
            if n + 1 < count {
                seg.flags.remove(Flags::FIN | Flags::PSH);
            }
            self.0.push(Out { seg, data: part.to_vec(), ect });
        }
    }
}

pub(crate) struct Side {
    pub(crate) conn: Conn,
    pub(crate) rx: RxQueue,
    pub(crate) sysctls: Sysctls,
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    sink: Sink,
}

impl Side {
    pub(crate) fn new(sysctls: Sysctls) -> Side {
        let mut conn = Conn::new(TcpOptions::new(&sysctls), &sysctls);
        conn.set_path(1460, 0);
        Side {
            conn,
            rx: RxQueue::default(),
            sysctls,
            counters: Counters::default(),
            events: Events::empty(),
            sink: Sink::default(),
        }
    }

    pub(crate) fn with<R>(&mut self, now: Ktime, f: impl FnOnce(&mut Conn, &mut Cx<'_>) -> R) -> R {
        let mut cx = Cx {
            now,
            emit: &mut self.sink,
            rx: &mut self.rx,
            counters: &self.counters,
            sysctls: &self.sysctls,
            events: Events::empty(),
        };
        let result = f(&mut self.conn, &mut cx);
        self.events |= cx.events;
        result
    }

    /// Takes what was sent.
    pub(crate) fn sent(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.sink.0)
    }

    pub(crate) fn receive(&mut self, now: Ktime, out: &Out) -> Verdict {
        self.receive_marked(now, out, false)
    }

    pub(crate) fn receive_marked(&mut self, now: Ktime, out: &Out, congested: bool) -> Verdict {
        let syn = out.seg.flags & (Flags::SYN | Flags::ACK) == Flags::SYN;
        if self.conn.state == State::Listen && syn {
            self.with(now, |conn, cx| {
                conn.accept(cx, &out.seg, Seq(9000), false);
                conn.send_syn(cx);
            });
            return Verdict::Done;
        }
        self.with(now, |conn, cx| conn.on_segment(cx, &out.seg, out.data[..].into(), congested))
    }

    pub(crate) fn write(&mut self, now: Ktime, data: &[u8]) -> usize {
        self.with(now, |conn, cx| {
            let n = conn.write(cx, data.into(), Default::default());
            conn.output(cx);
            n
        })
    }

    pub(crate) fn read(&mut self, now: Ktime, max: usize) -> Vec<u8> {
        let mut out = vec![0; max];
        let n = self.rx.read(&mut out, false);
        out.truncate(n);
        self.with(now, |conn, cx| {
            conn.tune_receive_buffer(cx);
            if cx.rx.wants_update() {
                conn.send_ack(cx);
            }
        });
        out
    }

    pub(crate) fn timers(&mut self, now: Ktime) {
        self.with(now, |conn, cx| conn.on_timer(cx));
    }
}

/// A client and a server after the handshake, with a round trip of `rtt` ms; nothing is left to send.
pub(crate) fn open(client: Sysctls, server: Sysctls, start: Ktime, rtt: u64) -> (Side, Side, Ktime) {
    let (mut a, mut b) = (Side::new(client), Side::new(server));
    b.conn.state = State::Listen;
    a.with(start, |conn, cx| conn.connect(cx, Seq(1000)));
    let half = std::time::Duration::from_micros(rtt * 500);
    let syn = a.sent();
    b.receive(start.plus(half), &syn[0]);
    let answer = b.sent();
    let now = start.plus(half * 2);
    a.receive(now, &answer[0]);
    let ack = a.sent();
    b.receive(now, &ack[0]);
    assert_eq!((a.conn.state, b.conn.state), (State::Established, State::Established));
    // The server learnt nothing of the round trip, since its SYN-ACK is not on its scoreboard here.
    b.conn.rtt.sample(half * 2, now);
    (a, b, now)
}
