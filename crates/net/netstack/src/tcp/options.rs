//! Options of a TCP socket (tcp(7)).

use super::cc::Algorithm;
use crate::options::IpOptions;
use crate::sysctl::Sysctls;
use std::time::Duration;

/// The options. Plain data: the kernel reads and writes the fields with `configure`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TcpOptions {
    /// Options of the network layer.
    pub ip: IpOptions,
    /// `TCP_NODELAY`
    pub nodelay: bool,
    /// `TCP_NODELAY` was set just now: what waits goes
    pub flush: bool,
    /// Flags of `SO_TIMESTAMPING`
    pub timestamping: u32,
    /// `TCP_CORK`
    pub cork: bool,
    /// `SO_KEEPALIVE`
    pub keepalive: bool,
    /// `TCP_KEEPIDLE`
    pub keep_idle: Duration,
    /// `TCP_KEEPINTVL`
    pub keep_interval: Duration,
    /// `TCP_KEEPCNT`
    pub keep_count: u32,
    /// `TCP_USER_TIMEOUT`; zero for the default
    pub user_timeout: Duration,
    /// `SO_LINGER`
    pub linger: Option<Duration>,
    /// `TCP_LINGER2`: time in FIN-WAIT-2; `None` does not wait at all
    pub linger2: Option<Duration>,
    /// `TCP_MAXSEG`, 0 for none
    pub max_segment: u16,
    /// `TCP_SYNCNT`
    pub syn_count: u32,
    /// `TCP_WINDOW_CLAMP`, 0 for none
    pub window_clamp: u32,
    /// `TCP_CONGESTION`
    pub congestion: Algorithm,
    /// `SO_OOBINLINE`
    pub oob_inline: bool,
    /// `SO_SNDBUF`, when it was set: no tuning
    pub send_buffer: Option<usize>,
    /// `SO_RCVBUF`, when it was set: no tuning
    pub receive_buffer: Option<usize>,
    /// `SO_RCVLOWAT`
    pub receive_low: usize,
    /// `TCP_NOTSENT_LOWAT`; 0 is the setting of the stack
    pub notsent_low: u32,
    /// `TCP_DEFER_ACCEPT`: retransmissions of the SYN-ACK during which data is waited for
    pub defer_accept: u32,
    /// `TCP_FASTOPEN`: connections that may wait for their handshake with data, 0 for none
    pub fast_open_queue: usize,
    /// `TCP_FASTOPEN_CONNECT`: connect(2) waits for the first data
    pub fast_open_connect: bool,
    /// `TCP_FASTOPEN_NO_COOKIE`
    pub fast_open_no_cookie: bool,
    /// `SO_MAX_PACING_RATE`, bytes per second; `u64::MAX` for none
    pub max_pacing_rate: u64,
}

impl TcpOptions {
    /// The options of a new socket.
    pub fn new(sysctls: &Sysctls) -> TcpOptions {
        let seconds = |setting: &crate::sysctl::Setting| Duration::from_secs(setting.size() as u64);
        TcpOptions {
            ip: IpOptions::new(sysctls),
            nodelay: false,
            flush: false,
            timestamping: 0,
            cork: false,
            keepalive: false,
            keep_idle: seconds(&sysctls.tcp_keepalive_time),
            keep_interval: seconds(&sysctls.tcp_keepalive_intvl),
            keep_count: sysctls.tcp_keepalive_probes.size() as u32,
            user_timeout: Duration::ZERO,
            linger: None,
            linger2: Some(seconds(&sysctls.tcp_fin_timeout)),
            max_segment: 0,
            syn_count: sysctls.tcp_syn_retries.size() as u32,
            window_clamp: 0,
            congestion: Algorithm::of_new_connections(sysctls),
            oob_inline: false,
            send_buffer: None,
            receive_buffer: None,
            receive_low: 1,
            notsent_low: 0,
            defer_accept: 0,
            fast_open_queue: 0,
            fast_open_connect: false,
            fast_open_no_cookie: false,
            max_pacing_rate: u64::MAX,
        }
    }

    /// Bytes of the receive window at most: a part of the buffer is for overhead, as `tcp_adv_win_scale` says.
    pub(crate) fn window_limit(&self, sysctls: &Sysctls) -> usize {
        let buffer = self.receive_buffer.unwrap_or_else(|| sysctls.tcp_rmem_default.size());
        let window = (buffer / 2).max(1);
        if self.window_clamp > 0 { window.min(self.window_clamp as usize) } else { window }
    }

    /// The shift of the window field that the largest buffer needs.
    pub(crate) fn window_shift(&self, sysctls: &Sysctls) -> u8 {
        let tuned = sysctls.tcp_rmem_max.size().max(sysctls.rmem_max.size());
        let mut space = self.receive_buffer.unwrap_or(tuned);
        if self.window_clamp > 0 {
            space = space.min(self.window_clamp as usize);
        }
        let mut shift = 0;
        while space > 65_535 && shift < 14 {
            space >>= 1;
            shift += 1;
        }
        shift
    }
}
