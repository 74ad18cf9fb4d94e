//! TCP_INFO of a connection, for getsockopt(2) and sock_diag(7).

use ktime::Ktime;
use netstack::tcp::TcpSocket;

/// `struct tcp_info`, as long as the host's, at `now`.
pub fn bytes(socket: &TcpSocket, now: Ktime) -> Vec<u8> {
    let i = socket.info(now);
    let pacing = socket.configure(now, |o| o.max_pacing_rate);
    let mut out = Vec::with_capacity(280);
    let scales = i.snd_wscale & 0xf | (i.rcv_wscale & 0xf) << 4;
    let limited = i.delivery_rate_app_limited as u8;
    out.extend([i.state, i.ca_state, i.retransmits, i.probes, i.backoff, i.options, scales, limited]);
    let words = |out: &mut Vec<u8>, list: &[u32]| list.iter().for_each(|v| out.extend(v.to_ne_bytes()));
    let longs = |out: &mut Vec<u8>, list: &[u64]| list.iter().for_each(|v| out.extend(v.to_ne_bytes()));
    words(&mut out, &[i.rto, i.ato, i.snd_mss, i.rcv_mss, i.unacked, i.sacked, i.lost, i.retrans, 0]);
    words(&mut out, &[i.last_data_sent, 0, i.last_data_recv, i.last_ack_recv]);
    words(&mut out, &[i.pmtu, i.rcv_ssthresh, i.rtt, i.rttvar, i.snd_ssthresh, i.snd_cwnd]);
    words(&mut out, &[i.advmss, i.reordering, 0, i.rcv_space, i.total_retrans]);
    // tcpi_pacing_rate is what a rate limit says: nothing else paces.
    longs(&mut out, &[pacing, pacing, i.bytes_acked, i.bytes_received]);
    words(&mut out, &[i.segs_out, i.segs_in, i.notsent_bytes, i.min_rtt, i.data_segs_in, i.data_segs_out]);
    longs(&mut out, &[i.delivery_rate, i.busy_time, i.rwnd_limited, i.sndbuf_limited]);
    words(&mut out, &[i.delivered, i.delivered_ce]);
    longs(&mut out, &[i.bytes_sent, i.bytes_retrans]);
    words(&mut out, &[i.dsack_dups, i.reord_seen, 0, i.snd_wnd, i.rcv_wnd, 0]);
    words(&mut out, &[u32::from(i.total_rto), 0]);
    out.resize(280, 0);
    out
}
