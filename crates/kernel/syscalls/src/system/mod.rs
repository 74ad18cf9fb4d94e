//! The system as a whole: names, the log, programs of bpf(2).

pub(crate) mod bpf;
pub(crate) mod misc;
pub(crate) mod syslog;
