//! How long entries live without packets: the files nf_conntrack_*_timeout* of /proc/sys/net/netfilter, in seconds.

use std::sync::atomic::{AtomicU32, Ordering};

macro_rules! timeouts {
    ($($(#[$doc:meta])* $name:ident = $file:literal, $seconds:literal;)*) => {
        /// One of the times.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Timeout { $($(#[$doc])* $name,)* }

        impl Timeout {
            /// All, with file names (after `nf_conntrack_`) and defaults.
            pub const ALL: &'static [(Timeout, &'static str, u32)] = &[$((Timeout::$name, $file, $seconds),)*];
        }

        impl Default for Timeouts {
            fn default() -> Timeouts {
                Timeouts([$(AtomicU32::new($seconds),)*])
            }
        }

        /// The times of one namespace.
        #[derive(Debug)]
        pub struct Timeouts([AtomicU32; [$($seconds,)*].len()]);
    };
}

timeouts! {
    /// Protocols that are not listed.
    Generic = "generic_timeout", 600;
    /// ICMP queries.
    Icmp = "icmp_timeout", 30;
    /// ICMPv6 queries.
    Icmpv6 = "icmpv6_timeout", 30;
    /// UDP without an answer, or with one.
    Udp = "udp_timeout", 30;
    /// UDP in both directions for some time.
    UdpStream = "udp_timeout_stream", 120;
    /// A SYN was sent.
    SynSent = "tcp_timeout_syn_sent", 120;
    /// It was answered.
    SynRecv = "tcp_timeout_syn_recv", 60;
    /// The handshake is complete.
    Established = "tcp_timeout_established", 432_000;
    /// One side has ended.
    FinWait = "tcp_timeout_fin_wait", 120;
    /// The other has acknowledged that.
    CloseWait = "tcp_timeout_close_wait", 60;
    /// Both have ended.
    LastAck = "tcp_timeout_last_ack", 30;
    /// Both have acknowledged the end.
    TimeWait = "tcp_timeout_time_wait", 120;
    /// A reset.
    Close = "tcp_timeout_close", 10;
    /// Many retransmissions.
    MaxRetrans = "tcp_timeout_max_retrans", 300;
    /// Data without an acknowledgement.
    Unacknowledged = "tcp_timeout_unacknowledged", 300;
}

impl Timeouts {
    /// Seconds.
    pub fn get(&self, of: Timeout) -> u32 {
        self.0[of as usize].load(Ordering::Relaxed)
    }

    /// Changes the seconds.
    pub fn set(&self, of: Timeout, seconds: u32) {
        self.0[of as usize].store(seconds, Ordering::Relaxed);
    }
}
