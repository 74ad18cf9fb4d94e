//! Ancillary data of TCP sockets: the error queue of `MSG_ZEROCOPY` and `SO_TIMESTAMPING`, and TCP_INQ. See recvmsg(2), tcp(7).

use crate::control::stamp;
use abi::{Errno, Result};
use ktime::Clock;
use netstack::stamps;
use netstack::tcp::State;
use netstack::tcp::notices::Notice;
use socket::{Ancillary, Control, Received};

/// TCP_CM_INQ.
const INQ: i32 = 36;
/// SO_EE_ORIGIN_TIMESTAMPING, SO_EE_ORIGIN_ZEROCOPY and SO_EE_CODE_ZEROCOPY_COPIED.
const OF_TIMESTAMPING: u8 = 4;
const OF_ZEROCOPY: u8 = 5;
const COPIED: u8 = 1;
/// Bytes of a `struct sockaddr_in` and a `struct sockaddr_in6`, which are zero here.
const SOCKADDR: (usize, usize) = (16, 28);
/// SOF_TIMESTAMPING_RX_SOFTWARE and SOF_TIMESTAMPING_OPT_CMSG: data that is received has no timestamps, so they have no effect.
const WITHOUT_EFFECT: u32 = 1 << 3 | 1 << 10;

/// The flags of SO_TIMESTAMPING that can be obeyed: EINVAL for numbers of a socket that has none yet, EOPNOTSUPP for other flags.
pub(crate) fn flags(value: i32, state: State) -> Result<u32> {
    let flags = value as u32;
    let known = stamps::TX | stamps::SOFTWARE | stamps::OPT_ID | stamps::OPT_TSONLY | stamps::OPT_ID_TCP;
    if flags & stamps::OPT_ID_TCP != 0 && flags & stamps::OPT_ID == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & stamps::OPT_ID != 0 && matches!(state, State::Closed | State::Listen) {
        return Err(Errno::EINVAL);
    }
    if flags & !(known | WITHOUT_EFFECT) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(flags)
}

/// A message of the error queue.
pub(crate) fn received(
    clock: &Clock,
    (v6, timestamping): (bool, u32),
    notice: &Notice,
    buf: &mut [u8],
) -> Received {
    let (mut other, mut len, mut full) = (Vec::new(), 0, 0);
    match notice {
        Notice::Zerocopy(first, last) => other.push(error(v6, 0, (OF_ZEROCOPY, COPIED), *first, *last)),
        Notice::Stamp { moment, id, at, data } => {
            full = data.len();
            len = full.min(buf.len());
            buf[..len].copy_from_slice(&data[..len]);
            if timestamping & stamps::SOFTWARE != 0 {
                other.push(stamp(clock, *at));
            }
            let moment = *moment as u32;
            other.push(error(v6, libc::ENOMSG as u32, (OF_TIMESTAMPING, 0), moment, *id));
        }
    }
    let cut = if len < full { libc::MSG_TRUNC } else { 0 };
    let control = Control { other, ..Control::default() };
    Received { len, full: len, addr: None, flags: cut | libc::MSG_ERRQUEUE, control }
}

/// A `struct sock_extended_err` without an offender.
fn error(v6: bool, errno: u32, (origin, code): (u8, u8), info: u32, data: u32) -> Ancillary {
    let mut out = errno.to_ne_bytes().to_vec();
    out.extend([origin, 0, code, 0]);
    out.extend(info.to_ne_bytes());
    out.extend(data.to_ne_bytes());
    let (level, kind, offender) = match v6 {
        true => (libc::SOL_IPV6, libc::IPV6_RECVERR, SOCKADDR.1),
        false => (libc::SOL_IP, libc::IP_RECVERR, SOCKADDR.0),
    };
    out.resize(out.len() + offender, 0);
    Ancillary { level, kind, data: out }
}

/// TCP_INQ: what is left to read.
pub(crate) fn left(bytes: usize) -> Ancillary {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    Ancillary { level: libc::SOL_TCP, kind: INQ, data: bytes.to_ne_bytes().to_vec() }
}
