//! The counters that /proc/net/snmp, /proc/net/netstat and /proc/net/dev show.

use std::sync::atomic::{AtomicU64, Ordering};

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn bump(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts one; for gauges such as `CurrEstab`.
    pub fn drop_one(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes another counter's value.
    pub fn copy(&self, from: &Counter) {
        self.0.store(from.get(), Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $label:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $name {
            $(#[doc = concat!("`", $label, "`")] pub $field: Counter,)*
        }

        impl $name {
            /// Names, as the kernel's files print them, and values.
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$(($label, self.$field.get()),)*]
            }

            /// Takes values by their names. Unknown names are those of another version.
            pub(crate) fn restore(&self, values: &[(String, u64)]) {
                for (name, value) in values {
                    $(if name == $label {
                        self.$field.0.store(*value, Ordering::Relaxed);
                    })*
                }
            }

            /// Takes another one's values.
            pub fn copy(&self, from: &$name) {
                $(self.$field.copy(&from.$field);)*
            }
        }
    };
}

counters!(
    /// The `Ip` (and `Ip6`) row.
    Ip {
        in_receives = "InReceives",
        in_hdr_errors = "InHdrErrors",
        in_addr_errors = "InAddrErrors",
        forwarded = "ForwDatagrams",
        in_unknown_protos = "InUnknownProtos",
        in_discards = "InDiscards",
        in_delivers = "InDelivers",
        out_requests = "OutRequests",
        out_discards = "OutDiscards",
        out_no_routes = "OutNoRoutes",
        reasm_timeout = "ReasmTimeout",
        reasm_reqds = "ReasmReqds",
        reasm_oks = "ReasmOKs",
        reasm_fails = "ReasmFails",
        frag_oks = "FragOKs",
        frag_fails = "FragFails",
        frag_creates = "FragCreates",
    }
);

counters!(
    /// The `Icmp` (and `Icmp6`) row.
    Icmp {
        in_msgs = "InMsgs",
        in_errors = "InErrors",
        in_csum_errors = "InCsumErrors",
        in_echos = "InEchos",
        in_echo_reps = "InEchoReps",
        in_dest_unreachs = "InDestUnreachs",
        out_msgs = "OutMsgs",
        out_errors = "OutErrors",
        out_dest_unreachs = "OutDestUnreachs",
        out_time_excds = "OutTimeExcds",
        out_echos = "OutEchos",
        out_echo_reps = "OutEchoReps",
    }
);

counters!(
    /// The `Udp` (and `Udp6`) row.
    Udp {
        in_datagrams = "InDatagrams",
        no_ports = "NoPorts",
        in_errors = "InErrors",
        out_datagrams = "OutDatagrams",
        rcvbuf_errors = "RcvbufErrors",
        sndbuf_errors = "SndbufErrors",
        in_csum_errors = "InCsumErrors",
    }
);

counters!(
    /// The `Tcp` row and the part of `TcpExt` that the stack counts.
    Tcp {
        active_opens = "ActiveOpens",
        passive_opens = "PassiveOpens",
        attempt_fails = "AttemptFails",
        estab_resets = "EstabResets",
        curr_estab = "CurrEstab",
        in_segs = "InSegs",
        out_segs = "OutSegs",
        retrans_segs = "RetransSegs",
        in_errs = "InErrs",
        out_rsts = "OutRsts",
        in_csum_errors = "InCsumErrors",
        out_of_window_icmps = "OutOfWindowIcmps",
        listen_overflows = "ListenOverflows",
        listen_drops = "ListenDrops",
        syncookies_sent = "SyncookiesSent",
        syncookies_recv = "SyncookiesRecv",
        syncookies_failed = "SyncookiesFailed",
        tw_recycled = "TWRecycled",
        paws_estab = "PAWSEstab",
        min_ttl_drop = "TCPMinTTLDrop",
        delayed_acks = "DelayedACKs",
        timeouts = "TCPTimeouts",
        loss_probes = "TCPLossProbes",
        loss_probe_recovery = "TCPLossProbeRecovery",
        fast_retrans = "TCPFastRetrans",
        slow_start_retrans = "TCPSlowStartRetrans",
        spurious_rtos = "TCPSpuriousRTOs",
        undo_full = "TCPFullUndo",
        undo_dsack = "TCPDSACKUndo",
        dsack_recv = "TCPDSACKRecv",
        dsack_ofo_recv = "TCPDSACKOfoRecv",
        dsack_sent = "TCPDSACKOldSent",
        sack_recovery = "TCPSackRecovery",
        reno_recovery = "TCPRenoRecovery",
        sack_reorder = "TCPSACKReorder",
        sack_reneging = "TCPSACKReneging",
        ofo_queue = "TCPOFOQueue",
        challenge_ack = "TCPChallengeACK",
        abort_on_data = "TCPAbortOnData",
        abort_on_close = "TCPAbortOnClose",
        abort_on_timeout = "TCPAbortOnTimeout",
        abort_on_linger = "TCPAbortOnLinger",
        keepalives = "TCPKeepAlive",
        orig_data_sent = "TCPOrigDataSent",
        syn_retrans = "TCPSynRetrans",
        fast_open_active = "TCPFastOpenActive",
        fast_open_passive = "TCPFastOpenPassive",
    }
);

counters!(
    /// An interface's row of /proc/net/dev.
    Link {
        rx_bytes = "rx_bytes",
        rx_packets = "rx_packets",
        rx_errors = "rx_errors",
        rx_dropped = "rx_dropped",
        multicast = "multicast",
        tx_bytes = "tx_bytes",
        tx_packets = "tx_packets",
        tx_errors = "tx_errors",
        tx_dropped = "tx_dropped",
    }
);

/// All counters of a stack.
#[derive(Debug, Default)]
pub struct Counters {
    /// IPv4.
    pub ip: Ip,
    /// IPv6.
    pub ip6: Ip,
    /// ICMP.
    pub icmp: Icmp,
    /// ICMPv6.
    pub icmp6: Icmp,
    /// UDP over IPv4 and IPv6.
    pub udp: Udp,
    /// UDP-Lite over IPv4 and IPv6.
    pub udp_lite: Udp,
    /// TCP.
    pub tcp: Tcp,
}

impl Counters {
    /// The IP row of an address's family.
    pub fn ip_of(&self, address: std::net::IpAddr) -> &Ip {
        if address.is_ipv4() { &self.ip } else { &self.ip6 }
    }
}
