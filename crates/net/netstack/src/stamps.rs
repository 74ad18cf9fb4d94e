//! Flags and moments of `SO_TIMESTAMPING`: what is recorded of sent data
//! (Documentation/networking/timestamping.rst). Constants of Linux.

/// When the device took it.
pub const TX_SOFTWARE: u32 = 1 << 1;
/// Software timestamps are reported at all.
pub const SOFTWARE: u32 = 1 << 4;
/// Timestamps are told apart by a number.
pub const OPT_ID: u32 = 1 << 7;
/// When it was given to the device's queue.
pub const TX_SCHED: u32 = 1 << 8;
/// When it was acknowledged.
pub const TX_ACK: u32 = 1 << 9;
/// A timestamp comes without the data.
pub const OPT_TSONLY: u32 = 1 << 11;
/// The number counts what was written, not what is acknowledged, from the option on.
pub const OPT_ID_TCP: u32 = 1 << 16;
/// Bytes of a segment or a datagram that a timestamp shows.
pub const SHOWN: usize = 2048;
/// All that ask for something to be recorded.
pub const TX: u32 = TX_SOFTWARE | TX_SCHED | TX_ACK;

/// What was recorded (`SCM_TSTAMP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Moment {
    /// The device took the data.
    Sent = 0,
    /// The data was given to the device's queue.
    Scheduled = 1,
    /// The peer has the data.
    Acknowledged = 2,
}
