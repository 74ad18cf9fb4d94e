//! Whether a saved connection can be one: a checkpoint's image is any bytes.
//!
//! What is refused here would later be an index out of bounds, an overflow or a loop without end. What is only unlikely harms the
//! connection alone.

use super::board::{Scoreboard, Sent};
use super::conn::{Conn, State};
use super::limits::{MOST_BYTES, SPAN};
use super::options::TcpOptions;
use crate::wire::seq::Seq;
use std::time::Duration;

/// Entries of the scoreboard, and pieces of the send queue.
const MOST_ENTRIES: usize = 1 << 20;
/// Counts that are added up.
const MOST_COUNT: u32 = 1 << 30;
/// The largest buffer that an option can ask for.
const MOST_BUFFER: usize = 1 << 31;
/// The longest time that is calculated with.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// True when all are at most `most`.
fn upto<T: PartialOrd>(values: &[T], most: T) -> bool {
    values.iter().all(|value| *value <= most)
}

impl Conn {
    /// Whether a connection with `len` bytes in its send queue can be; sums are made anew. A connection that is over, or was never
    /// begun, has nothing under way.
    pub(super) fn check(&mut self, len: usize) -> Option<()> {
        if matches!(self.state, State::Closed | State::Listen) {
            (self.board, self.pieces, self.deadlines) = Default::default();
            self.fin_queued = false;
            self.tx_seq = self.nxt;
        } else {
            self.check_numbers(len)?;
        }
        self.options.check()?;
        let fine = upto(&[self.agreed.peer_mss, self.path_mss, self.gso], SPAN)
            && self.agreed.snd_scale <= 14
            && self.tx_limit <= MOST_BUFFER
            && upto(
                &[self.ack.quick, self.max_out, self.deadlines.retries, self.deadlines.probes],
                MOST_COUNT,
            )
            && self.ack.ato <= MOST_COUNT.into()
            && self.cc.check()
            && self.recovery.check()
            && self.rack.check(LONGEST)
            && upto(&[self.rtt.srtt, self.rtt.var, self.rtt.latest], LONGEST)
            && self.rtt.min.is_none_or(|(min, _)| min <= LONGEST)
            && self.rtt.backoff <= 31
            && self.chrono.check(LONGEST)
            && self.notices.check();
        self.path_mss = self.path_mss.clamp(8, 65_535);
        let mss = self.mss();
        self.board.set_mss(mss);
        let stats = &self.stats;
        let counts = [
            stats.total_retrans,
            stats.dsacks,
            stats.reorderings,
            stats.delivered_ce,
            stats.rtos,
            stats.probes_sent,
        ];
        let bytes =
            [stats.bytes_sent, stats.bytes_retrans, stats.bytes_acked, stats.delivered, stats.delivery_rate];
        (fine && upto(&counts, MOST_COUNT) && upto(&bytes, MOST_BYTES)).then_some(())
    }

    fn check_numbers(&mut self, len: usize) -> Option<()> {
        let len = u32::try_from(len).ok().filter(|len| *len <= SPAN)?;
        let end = self.tx_seq + len;
        let flight = self.nxt - self.una;
        // The SYN or the FIN is not in the queue.
        let queued = self.tx_seq + 1 - self.una;
        let sent = self.nxt + 1 - self.tx_seq;
        let last = len + 1 + u32::from(self.fin_queued);
        if flight > SPAN || queued > 2 || sent > last {
            return None;
        }
        self.board.check(self.una - 1, self.nxt)?;
        let list = &self.pieces.list;
        let mut at = self.nxt;
        let grows = list.iter().all(|piece| {
            let fine = piece.end.after(at) && piece.end.upto(end);
            at = piece.end;
            fine
        });
        (grows && list.len() <= MOST_ENTRIES).then_some(())
    }
}

impl Scoreboard {
    /// Whether the entries follow each other between two numbers; the sums are made anew.
    fn check(&mut self, from: Seq, to: Seq) -> Option<()> {
        let list: Vec<Sent> = self.take_all();
        if list.len() > MOST_ENTRIES {
            return None;
        }
        let mut at = list.first().map_or(from, |first| first.seq);
        let mut packets = 0_u32;
        for sent in &list {
            let len = sent.end - sent.seq;
            let fine = sent.seq == at
                && !sent.seq.before(from)
                && (1..=SPAN).contains(&len)
                && sent.end.upto(to)
                && (1..=len).contains(&sent.packets)
                && sent.delivered <= MOST_BYTES;
            packets = packets.checked_add(sent.packets).filter(|all| fine && *all <= SPAN)?;
            at = sent.end;
        }
        let dupacks = self.dupacks.min(packets);
        *self = Scoreboard::default();
        self.dupacks = dupacks;
        list.into_iter().for_each(|sent| self.put_back(sent));
        Some(())
    }
}

impl TcpOptions {
    fn check(&self) -> Option<()> {
        let buffers = [self.send_buffer, self.receive_buffer].into_iter().flatten();
        let fine = buffers.into_iter().all(|size| size <= MOST_BUFFER)
            && upto(&[self.keep_idle, self.keep_interval, self.user_timeout], LONGEST)
            && self.linger.is_none_or(|time| time <= LONGEST)
            && self.linger2.is_none_or(|time| time <= LONGEST)
            && self.ip.check();
        fine.then_some(())
    }
}
