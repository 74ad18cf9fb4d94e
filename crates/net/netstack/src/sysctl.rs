//! The settings below /proc/sys/net that the stack obeys, one set per stack.
//!
//! See ip-sysctl.rst of the Linux documentation and tcp(7). Each setting is an atomic number: hot paths read it without a lock.

use std::sync::atomic::{AtomicI64, Ordering};

macro_rules! sysctls {
    ($($(#[$doc:meta])* $field:ident = $name:literal, $default:expr, $min:expr, $max:expr;)*) => {
        /// The settings; see the module.
        #[derive(Debug)]
        pub struct Sysctls { $($(#[$doc])* pub $field: Setting,)* }

        impl Default for Sysctls {
            fn default() -> Self {
                Sysctls { $($field: Setting { value: AtomicI64::new($default), min: $min, max: $max },)* }
            }
        }

        impl Sysctls {
            /// The setting with a path below /proc/sys/net.
            pub fn by_name(&self, name: &str) -> Option<&Setting> {
                match name { $($name => Some(&self.$field),)* _ => None }
            }

            /// Paths below /proc/sys/net.
            pub const NAMES: &'static [&'static str] = &[$($name,)*];
        }
    };
}

/// One number with the bounds that a write must keep.
#[derive(Debug)]
pub struct Setting {
    value: AtomicI64,
    min: i64,
    max: i64,
}

impl Setting {
    /// The value.
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// The value as a size or count; negative values are zero.
    pub fn size(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(0)
    }

    /// True unless it is zero.
    pub fn on(&self) -> bool {
        self.get() != 0
    }

    /// Changes the value; `EINVAL` when it is out of bounds.
    pub fn set(&self, value: i64) -> Result<(), abi::Errno> {
        if !(self.min..=self.max).contains(&value) {
            return Err(abi::Errno::EINVAL);
        }
        self.value.store(value, Ordering::Relaxed);
        Ok(())
    }
}

const INT: i64 = i32::MAX as i64;

sysctls! {
    /// Index of the algorithm in `Algorithm::NAMES`; see `Algorithm::of_new_connections`.
    tcp_congestion = "ipv4/tcp_congestion_control", 1, 0, 2;
    /// Whether IPv4 packets for others are forwarded.
    ip_forward = "ipv4/ip_forward", 0, 0, 1;
    /// Whether IPv6 packets for others are forwarded.
    ip6_forward = "ipv6/conf/all/forwarding", 0, 0, 1;
    /// TTL of packets that do not say otherwise.
    ip_default_ttl = "ipv4/ip_default_ttl", 64, 1, 255;
    /// Whether addresses that are not local may be bound.
    ip_nonlocal_bind = "ipv4/ip_nonlocal_bind", 0, 0, 1;
    /// The same for IPv6.
    ip6_nonlocal_bind = "ipv6/ip_nonlocal_bind", 0, 0, 1;
    /// Whether path MTU discovery is off.
    ip_no_pmtu_disc = "ipv4/ip_no_pmtu_disc", 0, 0, 3;
    /// First ephemeral port.
    port_low = "ipv4/ip_local_port_range/low", 32768, 1, 65535;
    /// Last ephemeral port.
    port_high = "ipv4/ip_local_port_range/high", 60999, 1, 65535;
    /// Lowest port that needs no privilege.
    unprivileged_port_start = "ipv4/ip_unprivileged_port_start", 1024, 0, 65535;
    /// Memory for fragments, above which the oldest are dropped.
    ipfrag_high_thresh = "ipv4/ipfrag_high_thresh", 4 << 20, 0, INT;
    /// Seconds until an incomplete packet is dropped.
    ipfrag_time = "ipv4/ipfrag_time", 30, 0, INT;
    /// The same for IPv6.
    ip6frag_time = "ipv6/ip6frag_time", 60, 0, INT;
    /// Whether echo requests are ignored.
    icmp_echo_ignore_all = "ipv4/icmp_echo_ignore_all", 0, 0, 1;
    /// Whether echo requests to broadcast addresses are ignored.
    icmp_echo_ignore_broadcasts = "ipv4/icmp_echo_ignore_broadcasts", 1, 0, 1;
    /// ICMP errors per second.
    icmp_msgs_per_sec = "ipv4/icmp_msgs_per_sec", 1000, 0, INT;
    /// ICMP errors at once.
    icmp_msgs_burst = "ipv4/icmp_msgs_burst", 50, 0, INT;
    /// First group that may open ping sockets.
    ping_group_low = "ipv4/ping_group_range/low", 1, 0, u32::MAX as i64;
    /// Last group that may open ping sockets.
    ping_group_high = "ipv4/ping_group_range/high", 0, 0, u32::MAX as i64;
    /// Multicast groups that a socket may join.
    igmp_max_memberships = "ipv4/igmp_max_memberships", 20, 0, INT;
    /// Sources of one membership of IPv4.
    igmp_max_msf = "ipv4/igmp_max_msf", 10, 0, INT;
    /// Whether IPv6 sockets without an address are IPv6 only.
    bindv6only = "ipv6/bindv6only", 0, 0, 1;
    /// Hop limit of IPv6 packets that do not say otherwise.
    ip6_hop_limit = "ipv6/conf/default/hop_limit", 64, 1, 255;
    /// Largest listen backlog.
    somaxconn = "core/somaxconn", 4096, 0, INT;
    /// Receive buffer of sockets that do not say otherwise.
    rmem_default = "core/rmem_default", 212_992, 2304, INT;
    /// Largest SO_RCVBUF.
    rmem_max = "core/rmem_max", 212_992, 2304, INT;
    /// Send buffer of sockets that do not say otherwise.
    wmem_default = "core/wmem_default", 212_992, 4608, INT;
    /// Largest SO_SNDBUF.
    wmem_max = "core/wmem_max", 212_992, 4608, INT;
    /// Smallest TCP receive buffer.
    tcp_rmem_min = "ipv4/tcp_rmem/0", 4096, 1, INT;
    /// TCP receive buffer at the start.
    tcp_rmem_default = "ipv4/tcp_rmem/1", 131_072, 1, INT;
    /// Largest TCP receive buffer by auto-tuning.
    tcp_rmem_max = "ipv4/tcp_rmem/2", 6_291_456, 1, INT;
    /// Smallest TCP send buffer.
    tcp_wmem_min = "ipv4/tcp_wmem/0", 4096, 1, INT;
    /// TCP send buffer at the start.
    tcp_wmem_default = "ipv4/tcp_wmem/1", 16_384, 1, INT;
    /// Largest TCP send buffer by auto-tuning.
    tcp_wmem_max = "ipv4/tcp_wmem/2", 4_194_304, 1, INT;
    /// Whether receive buffers are tuned.
    tcp_moderate_rcvbuf = "ipv4/tcp_moderate_rcvbuf", 1, 0, 1;
    /// Window scaling (RFC 7323).
    tcp_window_scaling = "ipv4/tcp_window_scaling", 1, 0, 1;
    /// Timestamps (RFC 7323).
    tcp_timestamps = "ipv4/tcp_timestamps", 1, 0, 2;
    /// Selective acknowledgements (RFC 2018).
    tcp_sack = "ipv4/tcp_sack", 1, 0, 1;
    /// Duplicate SACK (RFC 2883).
    tcp_dsack = "ipv4/tcp_dsack", 1, 0, 1;
    /// RACK's options; bit 0 turns it on.
    tcp_recovery = "ipv4/tcp_recovery", 1, 0, 255;
    /// Tail loss probes at 3 and 4.
    tcp_early_retrans = "ipv4/tcp_early_retrans", 3, 0, 4;
    /// F-RTO (RFC 5682).
    tcp_frto = "ipv4/tcp_frto", 2, 0, 2;
    /// 1 asks for ECN, 2 accepts it.
    tcp_ecn = "ipv4/tcp_ecn", 2, 0, 2;
    /// SYN retransmissions of connect(2).
    tcp_syn_retries = "ipv4/tcp_syn_retries", 6, 1, 127;
    /// Retransmissions of SYN-ACK.
    tcp_synack_retries = "ipv4/tcp_synack_retries", 5, 0, 255;
    /// Retransmissions before the connection is given up.
    tcp_retries2 = "ipv4/tcp_retries2", 15, 0, 255;
    /// Retransmissions before an orphan is given up.
    tcp_orphan_retries = "ipv4/tcp_orphan_retries", 0, 0, 255;
    /// Seconds that an orphan stays in FIN-WAIT-2.
    tcp_fin_timeout = "ipv4/tcp_fin_timeout", 60, 0, INT;
    /// Seconds until the first keepalive probe.
    tcp_keepalive_time = "ipv4/tcp_keepalive_time", 7200, 1, 32767;
    /// Seconds between keepalive probes.
    tcp_keepalive_intvl = "ipv4/tcp_keepalive_intvl", 75, 1, 32767;
    /// Keepalive probes without an answer.
    tcp_keepalive_probes = "ipv4/tcp_keepalive_probes", 9, 1, 127;
    /// Half-open connections of a listener.
    tcp_max_syn_backlog = "ipv4/tcp_max_syn_backlog", 512, 0, INT;
    /// Whether SYN cookies are sent: 1 when the queue is full, 2 always.
    tcp_syncookies = "ipv4/tcp_syncookies", 1, 0, 2;
    /// Whether an overflow of the accept queue resets.
    tcp_abort_on_overflow = "ipv4/tcp_abort_on_overflow", 0, 0, 1;
    /// Connections in TIME-WAIT.
    tcp_max_tw_buckets = "ipv4/tcp_max_tw_buckets", 16384, 0, INT;
    /// Closed connections that still have something to send.
    tcp_max_orphans = "ipv4/tcp_max_orphans", 16384, 0, INT;
    /// TIME-WAIT reuse for outgoing connections: 1 always, 2 over loopback.
    tcp_tw_reuse = "ipv4/tcp_tw_reuse", 2, 0, 2;
    /// Whether resets in TIME-WAIT are ignored (RFC 1337).
    tcp_rfc1337 = "ipv4/tcp_rfc1337", 0, 0, 1;
    /// Bit 0: clients, bit 1: servers, bit 2: without a cookie.
    tcp_fastopen = "ipv4/tcp_fastopen", 1, 0, INT;
    /// Seconds for which Fast Open is off after a connection that a middlebox seems to have broken. There is no such test.
    tcp_fastopen_blackhole_timeout = "ipv4/tcp_fastopen_blackhole_timeout_sec", 0, 0, 0;
    /// Forward acknowledgements: without effect, as in Linux since RACK is there.
    tcp_fack = "ipv4/tcp_fack", 0, 0, INT;
    /// Duplicates that mean a loss, until reordering is seen.
    tcp_reordering = "ipv4/tcp_reordering", 3, 1, INT;
    /// Most duplicates that reordering makes necessary.
    tcp_max_reordering = "ipv4/tcp_max_reordering", 300, 1, INT;
    /// The part of the window that one large segment may be, as a divisor.
    tcp_tso_win_divisor = "ipv4/tcp_tso_win_divisor", 3, 0, INT;
    /// Segments in one large segment at least.
    tcp_min_tso_segs = "ipv4/tcp_min_tso_segs", 2, 1, 65535;
    /// The pacing rate in slow start, in percent of the window for each round trip.
    tcp_pacing_ss_ratio = "ipv4/tcp_pacing_ss_ratio", 200, 0, 1000;
    /// The same after slow start.
    tcp_pacing_ca_ratio = "ipv4/tcp_pacing_ca_ratio", 120, 0, 1000;
    /// Whether slow start begins anew after an idle time.
    tcp_slow_start_after_idle = "ipv4/tcp_slow_start_after_idle", 1, 0, 1;
    /// Milliseconds between answers to one kind of invalid segment.
    tcp_invalid_ratelimit = "ipv4/tcp_invalid_ratelimit", 500, 0, INT;
    /// Smallest MSS that path MTU discovery may bring about.
    tcp_min_snd_mss = "ipv4/tcp_min_snd_mss", 48, 40, 65535;
    /// Smallest path MTU that ICMP may bring about.
    min_pmtu = "ipv4/route/min_pmtu", 552, 68, INT;
    /// Seconds that a path MTU is remembered.
    mtu_expires = "ipv4/route/mtu_expires", 600, 1, INT;
    /// Bytes of unsent data below which a socket is writable; -1 is no limit.
    tcp_notsent_lowat = "ipv4/tcp_notsent_lowat", u32::MAX as i64, 0, u32::MAX as i64;
    /// Milliseconds that a neighbour counts as reachable after a confirmation.
    neigh_base_reachable_ms = "ipv4/neigh/default/base_reachable_time_ms", 30_000, 1, INT;
    /// Milliseconds between solicitations.
    neigh_retrans_ms = "ipv4/neigh/default/retrans_time_ms", 1000, 1, INT;
    /// Seconds in DELAY.
    neigh_delay = "ipv4/neigh/default/delay_first_probe_time", 5, 0, INT;
    /// Unicast solicitations.
    neigh_ucast = "ipv4/neigh/default/ucast_solicit", 3, 0, INT;
    /// Multicast (broadcast) solicitations.
    neigh_mcast = "ipv4/neigh/default/mcast_solicit", 3, 0, INT;
    /// Neighbours above which the oldest are dropped.
    neigh_gc_thresh = "ipv4/neigh/default/gc_thresh3", 1024, 1, INT;
}

impl Sysctls {
    /// The ephemeral ports, lowest and highest.
    pub fn port_range(&self) -> (u16, u16) {
        let [low, high] =
            [&self.port_low, &self.port_high].map(|s| u16::try_from(s.get()).unwrap_or(u16::MAX));
        (low, high.max(low))
    }

    /// Whether addresses of a family that are not local may be bound.
    pub(crate) fn binds_nonlocal(&self, ip: std::net::IpAddr) -> bool {
        if ip.is_ipv4() { self.ip_nonlocal_bind.on() } else { self.ip6_nonlocal_bind.on() }
    }
}
