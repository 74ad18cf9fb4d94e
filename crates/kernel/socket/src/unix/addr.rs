//! `struct sockaddr_un`, and the table of bound addresses.

use super::sock::Sock;
use abi::{Errno, Result};
use lock_order::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// Bytes of `sun_path`.
const PATH_LEN: usize = 108;

/// An address of the family.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Addr {
    /// Family only: bind(2) chooses a name.
    Unnamed,
    /// A name in the file tree, without its NUL.
    Path(Vec<u8>),
    /// A name in the abstract namespace, without the leading NUL.
    Abstract(Vec<u8>),
}

impl Addr {
    /// From a program's bytes; EINVAL for a bad length or another family.
    pub fn parse(b: &[u8]) -> Result<Addr> {
        if b.len() < 2 || b.len() > 2 + PATH_LEN || u16::from_ne_bytes([b[0], b[1]]) != libc::AF_UNIX as u16 {
            return Err(Errno::EINVAL);
        }
        let name = &b[2..];
        Ok(match name.split_first() {
            None => Addr::Unnamed,
            Some((0, rest)) => Addr::Abstract(rest.to_vec()),
            Some(_) => Addr::Path(name.split(|&c| c == 0).next().unwrap_or_default().to_vec()),
        })
    }

    /// As getsockname(2) shows it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut v = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
        match self {
            Addr::Unnamed => {}
            Addr::Path(p) => {
                v.extend_from_slice(p);
                v.push(0);
            }
            Addr::Abstract(n) => {
                v.push(0);
                v.extend_from_slice(n);
            }
        }
        v
    }

    /// As /proc/net/unix shows it.
    pub fn shown(&self) -> Vec<u8> {
        match self {
            Addr::Unnamed => Vec::new(),
            Addr::Path(p) => p.clone(),
            Addr::Abstract(n) => {
                let printable = n.iter().map(|&byte| if byte == 0 { b'@' } else { byte });
                std::iter::once(b'@').chain(printable).collect()
            }
        }
    }
}

/// What hangs on the inode of a bound socket.
pub(super) struct Bound(pub Weak<Sock>);

/// Sockets by network namespace and name.
type Named = HashMap<(u64, Vec<u8>), Weak<Sock>>;

/// The abstract namespace: names without files. See unix(7).
#[derive(Default)]
pub(super) struct AbstractNames {
    sockets: Mutex<Named>,
    /// The next name that autobind tries.
    next: AtomicU32,
}

impl AbstractNames {
    /// Takes a name; EADDRINUSE while another socket has it.
    pub fn claim(&self, name: &[u8], sock: &Arc<Sock>) -> Result<()> {
        let mut t = self.sockets.lock();
        let key = (sock.net, name.to_vec());
        if t.get(&key).is_some_and(|w| w.strong_count() > 0) {
            return Err(Errno::EADDRINUSE);
        }
        t.insert(key, Arc::downgrade(sock));
        Ok(())
    }

    /// Takes a free name of five hexadecimal digits (autobind).
    pub fn claim_any(&self, sock: &Arc<Sock>) -> Result<Vec<u8>> {
        for _ in 0..1 << 20 {
            let n = self.next.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & 0xfffff;
            let name = format!("{n:05x}").into_bytes();
            if self.claim(&name, sock).is_ok() {
                return Ok(name);
            }
        }
        Err(Errno::ENOSPC)
    }

    /// The number that made the last name of autobind.
    pub fn last(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Names of autobind begin after this number.
    pub fn set_last(&self, last: u32) {
        self.next.store(last, Ordering::Relaxed);
    }

    /// Gives a name back, if `sock` has it.
    pub fn release(&self, name: &[u8], sock: &Sock) {
        let mut t = self.sockets.lock();
        let key = (sock.net, name.to_vec());
        if t.get(&key).is_some_and(|w| std::ptr::eq(w.as_ptr(), sock)) {
            t.remove(&key);
        }
    }

    /// The socket with a name in a network namespace.
    pub fn find(&self, net: u64, name: &[u8]) -> Option<Arc<Sock>> {
        self.sockets.lock().get(&(net, name.to_vec())).and_then(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let un = |name: &[u8]| [&1u16.to_ne_bytes()[..], name].concat();
        assert_eq!(Addr::parse(&un(b"")), Ok(Addr::Unnamed));
        assert_eq!(Addr::parse(&un(b"/a/b\0junk")), Ok(Addr::Path(b"/a/b".to_vec())));
        assert_eq!(Addr::parse(&un(b"/a/b")).unwrap().bytes(), un(b"/a/b\0"));
        assert_eq!(Addr::parse(&un(b"\0x\0y")).unwrap().bytes(), un(b"\0x\0y"));
        assert_eq!(Addr::parse(&un(b"\0x\0\xff")).unwrap().shown(), b"@x@\xff");
        assert_eq!(Addr::parse(&un(&[1; 109])), Err(Errno::EINVAL));
        assert_eq!(Addr::parse(&[1]), Err(Errno::EINVAL));
        assert_eq!(Addr::parse(&[2, 0, 1]), Err(Errno::EINVAL));
    }
}
