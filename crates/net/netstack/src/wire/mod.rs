//! Wire formats: headers as plain structures, read from bytes and written as bytes.
//!
//! A reader returns `None` for what is too short or contradicts itself; it never indexes beyond what was checked.

pub mod eth;
pub mod extension;
pub mod icmp;
pub mod ip;
pub mod ipv6;
pub mod seq;
pub mod tcp;
pub mod udp;

/// Protocol numbers (RFC 790 and successors).
pub mod proto {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// IPv6: no next header.
    pub const NONE: u8 = 59;
    /// IPv6: fragment header.
    pub const FRAGMENT: u8 = 44;
    /// IPv6: hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// IPv6: routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6: destination options.
    pub const DEST_OPTIONS: u8 = 60;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
    /// A raw socket that only sends.
    pub const RAW: u8 = 255;
}
