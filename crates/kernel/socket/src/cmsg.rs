//! Control messages as bytes. Pure. See cmsg(3), unix(7).

use crate::ops::{Ancillary, Ucred};
use abi::{Errno, Result};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of `struct cmsghdr`.
pub const HEADER: usize = 16;
/// Most descriptors in one message (SCM_MAX_FD).
pub const MAX_RIGHTS: usize = 253;

/// A control message that a program sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cmsg {
    /// SCM_RIGHTS.
    Rights(Vec<i32>),
    /// SCM_CREDENTIALS.
    Credentials(Ucred),
    /// Another one, which only the family understands.
    Other(Ancillary),
}

const fn align(n: usize) -> usize {
    (n + 7) & !7
}

/// Takes a control buffer apart.
pub fn parse(buf: &[u8]) -> Result<Vec<Cmsg>> {
    let mut out = Vec::new();
    let mut rest = buf;
    while rest.len() >= HEADER {
        let (len, tail) = u64::read_from_prefix(rest).map_err(|_| Errno::EINVAL)?;
        let (kind, _) = <[i32; 2]>::read_from_prefix(tail).map_err(|_| Errno::EINVAL)?;
        let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        if len < HEADER || len > rest.len() {
            return Err(Errno::EINVAL);
        }
        let body = &rest[HEADER..len];
        match kind {
            [libc::SOL_SOCKET, libc::SCM_RIGHTS] => {
                let fds: Vec<i32> =
                    body.chunks_exact(4).map(|c| i32::from_ne_bytes([c[0], c[1], c[2], c[3]])).collect();
                if fds.len() > MAX_RIGHTS {
                    return Err(Errno::EINVAL);
                }
                out.push(Cmsg::Rights(fds));
            }
            [libc::SOL_SOCKET, libc::SCM_CREDENTIALS] => {
                let c = Ucred::read_from_bytes(body).map_err(|_| Errno::EINVAL)?;
                out.push(Cmsg::Credentials(c));
            }
            [level, kind] => out.push(Cmsg::Other(Ancillary { level, kind, data: body.to_vec() })),
        }
        rest = rest.get(align(len)..).unwrap_or_default();
    }
    Ok(out)
}

/// A control buffer under construction, bounded by what the receiver has room for.
pub struct Writer {
    /// The bytes so far, padding included.
    pub out: Vec<u8>,
    room: usize,
    /// Something did not fit: MSG_CTRUNC.
    pub truncated: bool,
}

impl Writer {
    /// For a buffer of `room` bytes.
    pub fn new(room: usize) -> Writer {
        Writer { out: Vec::new(), room, truncated: false }
    }

    /// How many descriptors fit in one SCM_RIGHTS message now.
    pub fn rights_room(&self) -> usize {
        (self.room - self.out.len()).saturating_sub(HEADER) / 4
    }

    /// Appends a message, cut short when it does not fit.
    pub fn put(&mut self, level: i32, kind: i32, body: &[u8]) {
        let left = self.room - self.out.len();
        if left < HEADER {
            self.truncated = true;
            return;
        }
        let len = (HEADER + body.len()).min(left);
        self.truncated |= len < HEADER + body.len();
        self.out.extend_from_slice((len as u64).as_bytes());
        self.out.extend_from_slice([level, kind].as_bytes());
        self.out.extend_from_slice(&body[..len - HEADER]);
        let padded = align(self.out.len()).min(self.room);
        self.out.resize(padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_bad_input() {
        let cred = Ucred { pid: 1, uid: 2, gid: 3 };
        let mut w = Writer::new(100);
        w.put(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, cred.as_bytes());
        assert_eq!(w.rights_room(), (100 - 32 - 16) / 4);
        w.put(libc::SOL_SOCKET, libc::SCM_RIGHTS, [7i32, 8, 9].as_bytes());
        assert!(!w.truncated);
        assert_eq!(parse(&w.out), Ok(vec![Cmsg::Credentials(cred), Cmsg::Rights(vec![7, 8, 9])]));
        assert_eq!(parse(&w.out[..40]), Err(Errno::EINVAL).or(Ok(vec![Cmsg::Credentials(cred)])));
        let mut bad = w.out.clone();
        bad[0] = 15;
        assert_eq!(parse(&bad), Err(Errno::EINVAL));
        bad[0] = 200;
        assert_eq!(parse(&bad), Err(Errno::EINVAL));
        let mut w = Writer::new(20);
        w.put(libc::SOL_SOCKET, libc::SCM_RIGHTS, [7i32, 8].as_bytes());
        assert!(w.truncated);
        assert_eq!((w.out.len(), w.out[0]), (20, 20));
    }
}
