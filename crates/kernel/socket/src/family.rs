//! Protocol families: they make the sockets of socket(2).

use crate::net_ns::NetNamespace;
use crate::ops::SocketOps;
use crate::unix::UnixFamily;
use abi::{Errno, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::Caller;

/// AF_MAX.
const AF_MAX: i32 = 46;
/// SOCK_MAX.
const SOCK_MAX: i32 = 11;

/// Makes sockets of one family.
pub trait Family: Send + Sync {
    /// A socket of a type and protocol that socket(2) gave, in a network namespace.
    fn create(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>>;
    /// socketpair(2).
    fn pair(
        &self,
        _cx: &dyn Caller,
        _net: &Arc<NetNamespace>,
        _kind: i32,
        _protocol: i32,
    ) -> Result<[Arc<dyn SocketOps>; 2]> {
        Err(Errno::EOPNOTSUPP)
    }
    /// As the family of Unix sockets.
    fn as_unix(&self) -> Option<&UnixFamily> {
        None
    }
}

/// A family that is another one in the network namespaces that programs make: there is nothing of the host in those.
pub struct ByNamespace {
    /// In the namespace that the kernel began with; `None` for no such family.
    pub initial: Option<Arc<dyn Family>>,
    /// In all others.
    pub made: Arc<dyn Family>,
}

impl ByNamespace {
    fn of(&self, net: &NetNamespace) -> Result<&dyn Family> {
        match net.is_initial() {
            true => self.initial.as_deref().ok_or(Errno::EAFNOSUPPORT),
            false => Ok(&*self.made),
        }
    }
}

impl Family for ByNamespace {
    fn create(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<Arc<dyn SocketOps>> {
        self.of(net)?.create(cx, net, kind, protocol)
    }
    fn pair(
        &self,
        cx: &dyn Caller,
        net: &Arc<NetNamespace>,
        kind: i32,
        protocol: i32,
    ) -> Result<[Arc<dyn SocketOps>; 2]> {
        self.of(net)?.pair(cx, net, kind, protocol)
    }
}

/// The protocol families of a kernel, by AF_* number.
#[derive(Default)]
pub struct Families(BTreeMap<i32, Arc<dyn Family>>);

impl Families {
    /// Adds a family.
    pub fn add(&mut self, domain: i32, family: Arc<dyn Family>) {
        self.0.insert(domain, family);
    }

    /// The family of Unix sockets.
    pub fn unix(&self) -> Option<&UnixFamily> {
        self.0.get(&libc::AF_UNIX)?.as_unix()
    }

    /// The family that socket(2) asks for. EAFNOSUPPORT, EINVAL.
    pub fn find(&self, domain: i32, kind: i32) -> Result<&dyn Family> {
        if !(0..AF_MAX).contains(&domain) {
            return Err(Errno::EAFNOSUPPORT);
        }
        if !(0..SOCK_MAX).contains(&kind) {
            return Err(Errno::EINVAL);
        }
        self.0.get(&domain).map(|f| &**f).ok_or(Errno::EAFNOSUPPORT)
    }
}

/// The type without its flags, and the flags. EINVAL for unknown flags.
pub fn split_type(kind: i32) -> Result<(i32, i32)> {
    let flags = kind & !0xf;
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok((kind & 0xf, flags))
}
