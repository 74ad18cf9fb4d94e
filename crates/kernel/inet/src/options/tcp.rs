//! Options of level IPPROTO_TCP: tcp(7).

use super::Common;
use crate::value::{int, read_int};
use abi::{Errno, Result};
use netstack::tcp::{Algorithm, State, TcpOptions, TcpSocket};
use socket::{NetNamespace, Options};
use std::time::Duration;
use vfs::Caller;

/// Names that libc lacks.
pub(crate) const TCP_INQ: i32 = 36;
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
const TCP_REPAIR_WINDOW: i32 = 29;
const TCP_IS_MPTCP: i32 = 43;
/// Longest name of a congestion control (TCP_CA_NAME_MAX).
const CA_NAME: usize = 16;
/// Seconds of the first retransmission of a SYN-ACK, and of the longest.
const SYN_ACK: (u64, u64) = (1, 120);
/// TCP_FIN_TIMEOUT_MAX.
const LONGEST_LINGER2: i32 = 120;
/// TCP_MIN_MSS.
const LEAST_MSS: i32 = 88;
/// MAX_TCP_WINDOW.
const MOST_MSS: i32 = 32_767;
/// Half of SOCK_MIN_RCVBUF.
const LEAST_CLAMP: u32 = 1152;

/// Tells the stack of a SOL_SOCKET option that has another value.
pub(crate) fn apply(from: &Options, o: &mut TcpOptions, name: i32) {
    match name {
        libc::SO_KEEPALIVE => o.keepalive = from.kept(name) != 0,
        libc::SO_OOBINLINE => o.oob_inline = from.kept(name) != 0,
        libc::SO_LINGER => o.linger = from.linger(),
        libc::SO_RCVLOWAT => o.receive_low = from.rcvlowat(),
        libc::SO_MAX_PACING_RATE => o.max_pacing_rate = from.max_pacing(),
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => o.send_buffer = Some(from.sndbuf()),
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => o.receive_buffer = Some(from.rcvbuf()),
        _ => super::apply(from, &mut o.ip, name),
    }
}

/// How many retransmissions of a SYN-ACK begin within so many seconds.
fn retransmissions(seconds: i32) -> u32 {
    let (mut count, mut passed, mut wait) = (0, 0, SYN_ACK.0);
    while count < 255 && passed < u64::try_from(seconds).unwrap_or(0) {
        passed += wait;
        wait = (wait * 2).min(SYN_ACK.1);
        count += 1;
    }
    count
}

/// How many seconds so many retransmissions take.
fn seconds(retransmissions: u32) -> i32 {
    let waits = (0..retransmissions).map(|n| (SYN_ACK.0 << n.min(16)).min(SYN_ACK.1));
    waits.sum::<u64>() as i32
}

fn secs(d: Duration) -> i32 {
    d.as_secs() as i32
}

/// getsockopt(2).
pub(crate) fn get(net: &NetNamespace, socket: &TcpSocket, common: &Common, name: i32) -> Result<Vec<u8>> {
    match name {
        libc::TCP_INFO => return Ok(socket::tcp_info::bytes(socket, net.now())),
        libc::TCP_MAXSEG => return Ok(int(segment_size(net, socket))),
        libc::TCP_CONGESTION => {
            let algorithm = socket.configure(net.now(), |o| o.congestion);
            let mut name = algorithm.name().as_bytes().to_vec();
            name.resize(CA_NAME, 0);
            return Ok(name);
        }
        libc::TCP_ULP => return Ok(Vec::new()),
        libc::TCP_CC_INFO => return Ok(socket.congestion_info(net.now())),
        libc::TCP_QUICKACK => return Ok(int(socket.quick_ack() as i32)),
        libc::TCP_TIMESTAMP => return Ok(int(net.now().millis() as i32)),
        // Without effect, also on Linux.
        libc::TCP_THIN_DUPACK | TCP_IS_MPTCP => return Ok(int(0)),
        libc::TCP_REPAIR_QUEUE | libc::TCP_QUEUE_SEQ | TCP_REPAIR_WINDOW => return Err(Errno::EINVAL),
        TCP_INQ | libc::TCP_THIN_LINEAR_TIMEOUTS => {
            return Ok(int(common.kept(libc::IPPROTO_TCP, name)));
        }
        _ => {}
    }
    let value = socket.configure(net.now(), |o| {
        Ok(match name {
            libc::TCP_NODELAY => o.nodelay as i32,
            libc::TCP_CORK => o.cork as i32,
            libc::TCP_KEEPIDLE => secs(o.keep_idle),
            libc::TCP_KEEPINTVL => secs(o.keep_interval),
            libc::TCP_KEEPCNT => o.keep_count as i32,
            libc::TCP_SYNCNT => o.syn_count as i32,
            libc::TCP_LINGER2 => o.linger2.map_or(-1, secs),
            libc::TCP_DEFER_ACCEPT => seconds(o.defer_accept),
            libc::TCP_WINDOW_CLAMP => o.window_clamp as i32,
            libc::TCP_USER_TIMEOUT => o.user_timeout.as_millis() as i32,
            libc::TCP_FASTOPEN => o.fast_open_queue as i32,
            libc::TCP_NOTSENT_LOWAT => o.notsent_low as i32,
            libc::TCP_FASTOPEN_CONNECT => o.fast_open_connect as i32,
            TCP_FASTOPEN_NO_COOKIE => o.fast_open_no_cookie as i32,
            libc::TCP_REPAIR => 0,
            _ => return Err(Errno::ENOPROTOOPT),
        })
    })?;
    Ok(int(value))
}

/// TCP_MAXSEG: of a connection what it uses, otherwise what was asked for.
fn segment_size(net: &NetNamespace, socket: &TcpSocket) -> i32 {
    let asked = i32::from(socket.configure(net.now(), |o| o.max_segment));
    if asked != 0 && matches!(socket.state(), State::Closed | State::Listen) {
        return asked;
    }
    socket.info(net.now()).snd_mss as i32
}

/// A number between bounds; EINVAL.
pub(crate) fn within(v: i32, least: i32, most: i32) -> Result<i32> {
    if (least..=most).contains(&v) { Ok(v) } else { Err(Errno::EINVAL) }
}

/// setsockopt(2).
pub(crate) fn set(
    (net, socket): (&NetNamespace, &TcpSocket),
    common: &Common,
    _cx: &dyn Caller,
    name: i32,
    value: &[u8],
) -> Result<()> {
    match name {
        libc::TCP_CONGESTION => return set_congestion(net, socket, value),
        // No upper layer protocol is there.
        libc::TCP_ULP => return Err(if value.is_empty() { Errno::EINVAL } else { Errno::ENOENT }),
        _ => {}
    }
    let v = read_int(value)?;
    match name {
        libc::TCP_QUICKACK => {
            socket.set_quick_ack(net.now(), v != 0);
            return Ok(());
        }
        // They are for a socket under repair.
        libc::TCP_TIMESTAMP | libc::TCP_REPAIR_QUEUE | TCP_REPAIR_WINDOW => return Err(Errno::EPERM),
        libc::TCP_QUEUE_SEQ => return Err(Errno::EINVAL),
        TCP_INQ | libc::TCP_THIN_LINEAR_TIMEOUTS | libc::TCP_THIN_DUPACK => {
            common.keep(libc::IPPROTO_TCP, name, within(v, 0, 1)?);
            return Ok(());
        }
        _ => {}
    }
    let state = socket.state();
    let fresh = matches!(state, State::Closed | State::Listen);
    let default_linger2 = fin_timeout(socket);
    let fast_open = socket.network().sysctls.tcp_fastopen.get() & 1 != 0;
    socket.configure(net.now(), |o| set_field(o, name, v, (state, fresh, fast_open), default_linger2))
}

fn fin_timeout(socket: &TcpSocket) -> Duration {
    Duration::from_secs(socket.network().sysctls.tcp_fin_timeout.size() as u64)
}

fn set_field(
    o: &mut TcpOptions,
    name: i32,
    v: i32,
    (state, fresh, fast_open): (State, bool, bool),
    linger2: Duration,
) -> Result<()> {
    let time = |v: i32| within(v, 1, 32_767).map(|v| Duration::from_secs(v as u64));
    match name {
        libc::TCP_NODELAY => (o.nodelay, o.flush) = (v != 0, v != 0),
        libc::TCP_CORK if v == 0 => (o.cork, o.flush) = (false, o.nodelay),
        libc::TCP_CORK => o.cork = v != 0,
        libc::TCP_MAXSEG if v == 0 => o.max_segment = 0,
        libc::TCP_MAXSEG => o.max_segment = within(v, LEAST_MSS, MOST_MSS)? as u16,
        libc::TCP_KEEPIDLE => o.keep_idle = time(v)?,
        libc::TCP_KEEPINTVL => o.keep_interval = time(v)?,
        libc::TCP_KEEPCNT => o.keep_count = within(v, 1, 127)? as u32,
        libc::TCP_SYNCNT => o.syn_count = within(v, 1, 127)? as u32,
        libc::TCP_LINGER2 if v < 0 => o.linger2 = None,
        libc::TCP_LINGER2 if v == 0 => o.linger2 = Some(linger2),
        libc::TCP_LINGER2 => o.linger2 = Some(Duration::from_secs(v.min(LONGEST_LINGER2) as u64)),
        libc::TCP_DEFER_ACCEPT => o.defer_accept = retransmissions(v),
        libc::TCP_WINDOW_CLAMP if v == 0 && state != State::Closed => return Err(Errno::EINVAL),
        libc::TCP_WINDOW_CLAMP if v == 0 => o.window_clamp = 0,
        libc::TCP_WINDOW_CLAMP => o.window_clamp = (v as u32).max(LEAST_CLAMP),
        libc::TCP_USER_TIMEOUT => o.user_timeout = Duration::from_millis(within(v, 0, i32::MAX)? as u64),
        libc::TCP_FASTOPEN if fresh => o.fast_open_queue = within(v, 0, i32::MAX)? as usize,
        libc::TCP_FASTOPEN => return Err(Errno::EINVAL),
        libc::TCP_NOTSENT_LOWAT => o.notsent_low = v as u32,
        libc::TCP_FASTOPEN_CONNECT if (0..=1).contains(&v) && !fast_open => return Err(Errno::EOPNOTSUPP),
        libc::TCP_FASTOPEN_CONNECT if state == State::Closed => o.fast_open_connect = within(v, 0, 1)? != 0,
        TCP_FASTOPEN_NO_COOKIE if fresh => o.fast_open_no_cookie = within(v, 0, 1)? != 0,
        libc::TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_NO_COOKIE => {
            within(v, 0, 1)?;
            return Err(Errno::EINVAL);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

fn set_congestion(net: &NetNamespace, socket: &TcpSocket, value: &[u8]) -> Result<()> {
    if value.is_empty() {
        return Err(Errno::EINVAL);
    }
    let name = value.get(..CA_NAME - 1).unwrap_or(value);
    let name = name.split(|&b| b == 0).next().unwrap_or_default();
    let algorithm = std::str::from_utf8(name).ok().and_then(Algorithm::by_name).ok_or(Errno::ENOENT)?;
    socket.configure(net.now(), |o| o.congestion = algorithm);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defer_accept_counts_retransmissions() {
        let shown = |s| seconds(retransmissions(s));
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 63].map(shown), [0, 1, 3, 3, 7, 7, 15, 63]);
        assert_eq!(retransmissions(i32::MAX), 255);
        assert_eq!(retransmissions(-1), 0);
    }
}
