//! Names of options and control messages that libc lacks.

/// SO_RCVMARK.
pub(crate) const SO_RCVMARK: i32 = 75;

/// SO_DETACH_REUSEPORT_BPF.
pub(crate) const SO_DETACH_REUSEPORT_BPF: i32 = 68;

/// Options of RFC 2292.
pub(crate) const IPV6_2292PKTINFO: i32 = 2;
pub(crate) const IPV6_2292HOPOPTS: i32 = 3;
pub(crate) const IPV6_2292DSTOPTS: i32 = 4;
pub(crate) const IPV6_2292RTHDR: i32 = 5;
pub(crate) const IPV6_2292PKTOPTIONS: i32 = 6;
pub(crate) const IPV6_2292HOPLIMIT: i32 = 8;

/// The address that a packet was sent to, before redirections.
pub(crate) const IPV6_RECVORIGDSTADDR: i32 = 74;
pub(crate) const IPV6_ORIGDSTADDR: i32 = IPV6_RECVORIGDSTADDR;
