//! The counters that /proc/net/snmp, /proc/net/netstat and /proc/net/dev show.

use crate::cast::Cast;
use crate::wire::icmp;
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
    /// Packets and bytes by their destination and their mark of congestion: the `IpExt` row and the like of IPv6.
    Traffic {
        in_mcast_pkts = "InMcastPkts",
        out_mcast_pkts = "OutMcastPkts",
        in_bcast_pkts = "InBcastPkts",
        out_bcast_pkts = "OutBcastPkts",
        in_octets = "InOctets",
        out_octets = "OutOctets",
        in_mcast_octets = "InMcastOctets",
        out_mcast_octets = "OutMcastOctets",
        in_bcast_octets = "InBcastOctets",
        out_bcast_octets = "OutBcastOctets",
        in_no_ect_pkts = "InNoECTPkts",
        in_ect1_pkts = "InECT1Pkts",
        in_ect0_pkts = "InECT0Pkts",
        in_ce_pkts = "InCEPkts",
        out_transmits = "OutTransmits",
    }
);

impl Traffic {
    /// A packet has come; `tos` is its traffic class.
    pub(crate) fn received(&self, len: usize, tos: u8) {
        self.in_octets.add(len as u64);
        [&self.in_no_ect_pkts, &self.in_ect1_pkts, &self.in_ect0_pkts, &self.in_ce_pkts]
            [usize::from(tos & 3)]
        .bump();
    }

    /// It is for this host.
    pub(crate) fn accepted(&self, cast: Cast, len: usize) {
        match cast {
            Cast::Multicast => count(&self.in_mcast_pkts, &self.in_mcast_octets, len),
            Cast::Broadcast => count(&self.in_bcast_pkts, &self.in_bcast_octets, len),
            _ => {}
        }
    }

    /// A packet leaves.
    pub(crate) fn sent(&self, cast: Cast, len: usize) {
        count(&self.out_transmits, &self.out_octets, len);
        match cast {
            Cast::Multicast => count(&self.out_mcast_pkts, &self.out_mcast_octets, len),
            Cast::Broadcast => count(&self.out_bcast_pkts, &self.out_bcast_octets, len),
            _ => {}
        }
    }
}

fn count(packets: &Counter, bytes: &Counter, len: usize) {
    packets.bump();
    bytes.add(len as u64);
}

/// Messages of ICMP by their type, those that a host sends or takes.
#[derive(Debug, Default)]
pub struct IcmpKinds {
    received: [Counter; KINDS],
    sent: [Counter; KINDS],
}

/// Types 0 to 18 of ICMP; 1 to 4, 128 to 137 and 143 of ICMPv6.
const KINDS: usize = 30;

fn slot(kind: u8) -> Option<usize> {
    match kind {
        0..=18 => Some(kind.into()),
        128..=137 => Some(usize::from(kind) - 128 + 19),
        143 => Some(KINDS - 1),
        _ => None,
    }
}

impl IcmpKinds {
    fn counter(of: &[Counter; KINDS], kind: u8) -> Option<&Counter> {
        slot(kind).and_then(|slot| of.get(slot))
    }

    /// A message of a type has come.
    pub(crate) fn note_received(&self, kind: u8) {
        if let Some(counter) = Self::counter(&self.received, kind) {
            counter.bump();
        }
    }

    /// A message of a type was sent.
    pub(crate) fn note_sent(&self, kind: u8) {
        if let Some(counter) = Self::counter(&self.sent, kind) {
            counter.bump();
        }
    }

    /// Messages of a type that have come.
    pub fn received(&self, kind: u8) -> u64 {
        Self::counter(&self.received, kind).map_or(0, Counter::get)
    }

    /// Messages of a type that were sent.
    pub fn sent(&self, kind: u8) -> u64 {
        Self::counter(&self.sent, kind).map_or(0, Counter::get)
    }

    /// The counts of all types, for a checkpoint.
    pub(crate) fn saved(&self) -> Vec<(String, u64)> {
        let of = |name: &str, counters: &[Counter; KINDS]| -> Vec<(String, u64)> {
            counters.iter().enumerate().map(|(n, counter)| (format!("{name}{n}"), counter.get())).collect()
        };
        [of("in", &self.received), of("out", &self.sent)].concat()
    }

    /// Takes what [`IcmpKinds::saved`] gave.
    pub(crate) fn restore(&self, values: &[(String, u64)]) {
        for (name, value) in values {
            let counter = match (name.strip_prefix("in"), name.strip_prefix("out")) {
                (Some(n), _) => n.parse().ok().and_then(|n: usize| self.received.get(n)),
                (_, Some(n)) => n.parse().ok().and_then(|n: usize| self.sent.get(n)),
                _ => None,
            };
            if let Some(counter) = counter {
                counter.0.store(*value, Ordering::Relaxed);
            }
        }
    }
}

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
    /// Packets and bytes of IPv4.
    pub traffic: Traffic,
    /// Packets and bytes of IPv6.
    pub traffic6: Traffic,
    /// Types of ICMP.
    pub icmp_kinds: IcmpKinds,
    /// Types of ICMPv6.
    pub icmp6_kinds: IcmpKinds,
    /// UDP over IPv4.
    pub udp: Udp,
    /// UDP over IPv6.
    pub udp6: Udp,
    /// UDP-Lite over IPv4.
    pub udp_lite: Udp,
    /// UDP-Lite over IPv6.
    pub udp_lite6: Udp,
    /// TCP.
    pub tcp: Tcp,
}

impl Counters {
    /// The IP row of an address's family.
    pub fn ip_of(&self, address: std::net::IpAddr) -> &Ip {
        if address.is_ipv4() { &self.ip } else { &self.ip6 }
    }

    /// The packets and bytes of an address's family.
    pub(crate) fn traffic_of(&self, address: std::net::IpAddr) -> &Traffic {
        if address.is_ipv4() { &self.traffic } else { &self.traffic6 }
    }

    /// The UDP or UDP-Lite row of an address's family.
    pub(crate) fn udp_of(&self, lite: bool, address: std::net::IpAddr) -> &Udp {
        match (lite, address.is_ipv4()) {
            (false, true) => &self.udp,
            (false, false) => &self.udp6,
            (true, true) => &self.udp_lite,
            (true, false) => &self.udp_lite6,
        }
    }

    /// Counts a message of ICMP or ICMPv6 that is sent.
    pub(crate) fn icmp_sent(&self, v6: bool, kind: u8) {
        let (counters, kinds) =
            if v6 { (&self.icmp6, &self.icmp6_kinds) } else { (&self.icmp, &self.icmp_kinds) };
        counters.out_msgs.bump();
        kinds.note_sent(kind);
        match (v6, kind) {
            (false, icmp::ECHO_REPLY) | (true, icmp::ECHO_REPLY6) => counters.out_echo_reps.bump(),
            (false, icmp::ECHO) | (true, icmp::ECHO6) => counters.out_echos.bump(),
            (false, icmp::UNREACHABLE) | (true, icmp::UNREACHABLE6) => counters.out_dest_unreachs.bump(),
            (false, icmp::TIME_EXCEEDED) | (true, icmp::TIME_EXCEEDED6) => counters.out_time_excds.bump(),
            _ => {}
        }
    }
}
