//! `TCP_INFO`.

use super::conn::Conn;
use super::rx::RxQueue;
use ktime::Ktime;

/// The numbers of `struct tcp_info` (tcp(7)) in the units that Linux uses: microseconds, milliseconds and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the structure's fields, without their prefix")]
pub struct Info {
    pub state: u8,
    pub ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub backoff: u8,
    /// Bits: timestamps 1, SACK 2, window scale 4, ECN 8, data in the SYN 32.
    pub options: u8,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub rto: u32,
    pub ato: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub last_data_sent: u32,
    pub last_data_recv: u32,
    pub last_ack_recv: u32,
    pub pmtu: u32,
    pub rcv_ssthresh: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub reordering: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    pub busy_time: u64,
    pub rwnd_limited: u64,
    pub sndbuf_limited: u64,
    pub min_rtt: u32,
    pub delivery_rate: u64,
    pub delivery_rate_app_limited: bool,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub total_rto: u16,
}

impl Conn {
    /// What `TCP_INFO` tells.
    pub(crate) fn info(&self, rx: &RxQueue, now: Ktime, mtu: u32) -> Info {
        let micros = |d: std::time::Duration| d.as_micros().min(u32::MAX.into()) as u32;
        let ago = |at: Ktime| now.since(at).as_millis().min(u32::MAX.into()) as u32;
        let agreed = &self.agreed;
        let options = [agreed.timestamps, agreed.sack, agreed.scaled, agreed.ecn];
        let options: u8 = options.iter().enumerate().map(|(n, on)| u8::from(*on) << n).sum();
        let syn_data = self.fast_open.taken || (self.fast_open.accepted && rx.received > 0);
        let options = options | (u8::from(syn_data) << 5);
        let (busy, window, buffer) = self.chrono.totals(now);
        Info {
            state: self.state as u8,
            ca_state: self.recovery.state as u8,
            retransmits: self.deadlines.retries.min(255) as u8,
            probes: self.deadlines.probes.min(255) as u8,
            backoff: self.rtt.backoff.min(255) as u8,
            options,
            snd_wscale: agreed.snd_scale,
            rcv_wscale: rx.scale,
            rto: micros(self.rtt.rto()),
            ato: (self.ack.ato * 1000) as u32,
            snd_mss: self.mss(),
            rcv_mss: rx.mss,
            unacked: self.board.out,
            sacked: self.board.sacked + self.board.dupacks,
            lost: self.board.lost,
            retrans: self.board.retrans,
            last_data_sent: ago(self.stats.last_sent),
            last_data_recv: ago(self.ack.last_data),
            last_ack_recv: ago(self.stats.last_ack),
            pmtu: mtu,
            rcv_ssthresh: rx.capacity as u32,
            rtt: micros(self.rtt.srtt),
            rttvar: micros(self.rtt.var),
            snd_ssthresh: self.cc.ssthresh,
            snd_cwnd: self.cc.cwnd,
            advmss: self.own_mss().into(),
            reordering: self.rack.degree(),
            rcv_space: rx.capacity as u32,
            total_retrans: self.stats.total_retrans,
            bytes_acked: self.stats.bytes_acked,
            bytes_received: rx.received,
            segs_out: self.stats.segs_out,
            segs_in: self.stats.segs_in,
            notsent_bytes: self.unsent(),
            busy_time: busy.as_micros() as u64,
            rwnd_limited: window.as_micros() as u64,
            sndbuf_limited: buffer.as_micros() as u64,
            min_rtt: self.rtt.min_rtt().map_or(u32::MAX, micros),
            delivery_rate: self.stats.delivery_rate,
            delivery_rate_app_limited: self.stats.rate_limited,
            data_segs_in: self.stats.data_segs_in,
            data_segs_out: self.stats.data_segs_out,
            delivered: self.stats.delivered as u32,
            delivered_ce: self.stats.delivered_ce,
            bytes_sent: self.stats.bytes_sent,
            bytes_retrans: self.stats.bytes_retrans,
            dsack_dups: self.stats.dsacks,
            reord_seen: self.stats.reorderings,
            snd_wnd: self.wnd,
            rcv_wnd: rx.window(),
            total_rto: self.stats.rtos.min(65_535) as u16,
        }
    }
}
