//! Programs that choose sockets of a dump (INET_DIAG_REQ_BYTECODE): checked once, then run for each socket.

use abi::Errno;
use netstack::rows::Row;
use std::net::{IpAddr, SocketAddr};

/// INET_DIAG_BC_*.
const NOP: u8 = 0;
const JMP: u8 = 1;
const S_GE: u8 = 2;
const S_LE: u8 = 3;
const D_GE: u8 = 4;
const D_LE: u8 = 5;
const AUTO: u8 = 6;
const S_COND: u8 = 7;
const D_COND: u8 = 8;
const DEV_COND: u8 = 9;
const MARK_COND: u8 = 10;
const S_EQ: u8 = 11;
const D_EQ: u8 = 12;
/// Length of an instruction, and of `struct inet_diag_hostcond` without the address.
const OP: usize = 4;
const HOST: usize = 8;

/// A program that has been checked.
pub(super) struct Filter<'a>(&'a [u8]);

/// What a program looks at beside the row.
pub(super) struct Subject {
    /// Interface that the socket is bound to.
    pub(super) device: u32,
    pub(super) mark: u32,
}

fn half(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_ne_bytes).into()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes)
}

/// Bytes of an instruction with what belongs to it.
fn length(program: &[u8], admin: bool) -> Result<usize, Errno> {
    match program[0] {
        NOP | JMP => Ok(OP),
        // Whether bind(2) named the port is not kept.
        AUTO => Err(Errno::EOPNOTSUPP),
        S_GE | S_LE | D_GE | D_LE => Ok(2 * OP),
        S_EQ | D_EQ => Ok(2 * OP),
        DEV_COND => Ok(OP + 4),
        MARK_COND if !admin => Err(Errno::EPERM),
        MARK_COND => Ok(OP + 8),
        S_COND | D_COND => {
            let (family, bits) = match program.get(OP..OP + HOST) {
                Some(host) => (i32::from(host[0]), host[1]),
                None => return Err(Errno::EINVAL),
            };
            let bytes = match family {
                libc::AF_UNSPEC => 0,
                libc::AF_INET => 4,
                libc::AF_INET6 => 16,
                _ => return Err(Errno::EINVAL),
            };
            if usize::from(bits) > 8 * bytes { Err(Errno::EINVAL) } else { Ok(OP + HOST + bytes) }
        }
        _ => Err(Errno::EINVAL),
    }
}

impl<'a> Filter<'a> {
    /// Checks a program: every instruction is whole, and leads forward to another one or to the end.
    pub(super) fn new(program: &'a [u8], admin: bool) -> Result<Filter<'a>, Errno> {
        let mut starts = Vec::new();
        let mut at = 0;
        while at < program.len() {
            let rest = &program[at..];
            if rest.len() < OP {
                return Err(Errno::EINVAL);
            }
            let (len, yes) = (length(rest, admin)?, usize::from(rest[1]));
            if len > rest.len() || yes < len || !yes.is_multiple_of(4) || yes > rest.len() + 4 {
                return Err(Errno::EINVAL);
            }
            starts.push(at);
            at += yes;
        }
        // The end is a place to go to; four bytes beyond it is a refusal.
        let leads = |at: usize| at >= program.len() || starts.binary_search(&at).is_ok();
        for at in &starts {
            let no = half(program, at + 2);
            if program[*at] != NOP && (no < OP || !no.is_multiple_of(4) || !leads(at + no)) {
                return Err(Errno::EINVAL);
            }
        }
        if at == program.len() { Ok(Filter(program)) } else { Err(Errno::EINVAL) }
    }

    /// Whether a socket is one of those asked for.
    pub(super) fn accepts(&self, row: &Row, subject: &Subject) -> bool {
        let mut at = 0;
        while let Some(op) = self.0.get(at..).filter(|rest| rest.len() >= OP) {
            let operand = half(op, OP + 2);
            let (own, other) = (usize::from(row.local.port()), usize::from(row.remote.port()));
            let yes = match op[0] {
                NOP => true,
                S_GE => own >= operand,
                S_LE => own <= operand,
                D_GE => other >= operand,
                D_LE => other <= operand,
                S_EQ => own == operand,
                D_EQ => other == operand,
                S_COND => matches(op, row.local, row.v6),
                D_COND => matches(op, row.remote, row.v6),
                DEV_COND => word(op, OP) == subject.device,
                MARK_COND => subject.mark & word(op, OP + 4) == word(op, OP),
                _ => false,
            };
            // Both were checked to lead forward.
            at += if yes { usize::from(op[1]).max(OP) } else { half(op, 2).max(OP) };
        }
        at == self.0.len()
    }
}

/// A condition on an address and port.
fn matches(op: &[u8], address: SocketAddr, v6: bool) -> bool {
    let (family, bits, port) = (i32::from(op[OP]), usize::from(op[OP + 1]), word(op, OP + 4));
    if port != u32::MAX && port != u32::from(address.port()) {
        return false;
    }
    let wanted = op.get(OP + HOST..).unwrap_or_default();
    let own = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let has = match address.ip() {
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) if family == libc::AF_INET => v4.octets().to_vec(),
            _ => v6.octets().to_vec(),
        },
        IpAddr::V4(v4) if v6 && family != libc::AF_INET => v4.to_ipv6_mapped().octets().to_vec(),
        IpAddr::V4(v4) => v4.octets().to_vec(),
    };
    if family != libc::AF_UNSPEC && family != own && !(family == libc::AF_INET && has.len() == 4) {
        return false;
    }
    let bit = |bytes: &[u8], n: usize| bytes.get(n / 8).map(|byte| byte >> (7 - n % 8) & 1);
    (0..bits).all(|n| bit(&has, n) == bit(wanted, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netstack::rows::Timer;
    use std::time::Duration;

    fn row() -> Row {
        Row {
            v6: false,
            local: "10.1.2.3:80".parse().unwrap(),
            remote: "10.9.9.9:4000".parse().unwrap(),
            state: 1,
            tx: 0,
            rx: 0,
            timer: (Timer::Off, Duration::ZERO),
            retransmits: 0,
            uid: 0,
            probes: 0,
            inode: 1,
            drops: 0,
        }
    }

    fn accepts(program: &[u8]) -> Result<bool, Errno> {
        let subject = Subject { device: 0, mark: 7 };
        Filter::new(program, true).map(|filter| filter.accepts(&row(), &subject))
    }

    fn port(code: u8, port: u16) -> Vec<u8> {
        let mut out = vec![code, 8, 12, 0, 0, 0];
        out.extend(port.to_ne_bytes());
        out
    }

    #[test]
    fn ports_and_prefixes() {
        assert_eq!(accepts(&port(S_GE, 80)), Ok(true));
        assert_eq!(accepts(&port(S_GE, 81)), Ok(false));
        assert_eq!(accepts(&port(D_EQ, 4000)), Ok(true));
        let host = |bits: u8, last: u8| {
            let mut out = vec![S_COND, 16, 20, 0, libc::AF_INET as u8, bits, 0, 0, 0xff, 0xff, 0xff, 0xff];
            out.extend([10, 1, 2, last]);
            accepts(&out)
        };
        assert_eq!([host(24, 9), host(32, 9), host(32, 3)], [Ok(true), Ok(false), Ok(true)]);
        assert_eq!(host(33, 3), Err(Errno::EINVAL));
    }

    /// No program makes the loop go on for ever, or look beyond its end.
    #[test]
    fn nonsense_is_refused() {
        for program in [&[S_GE][..], &[S_GE, 4, 8, 0], &[JMP, 0, 0, 0], &[99, 4, 4, 0], &[JMP, 4, 2, 0]] {
            assert_eq!(accepts(program), Err(Errno::EINVAL), "{program:?}");
        }
        for seed in 0..20_000u32 {
            let bytes: Vec<u8> =
                (0..seed % 40).map(|n| (seed.wrapping_mul(2_654_435_761) >> (n % 24)) as u8 & 0x1f).collect();
            let _ = accepts(&bytes);
        }
    }
}
