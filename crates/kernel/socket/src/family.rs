//! Protocol families: which socket(2) makes.

use crate::ops::SocketOps;
use abi::{Errno, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::Caller;

/// AF_MAX.
const AF_MAX: i32 = 46;
/// SOCK_MAX.
const SOCK_MAX: i32 = 11;

/// Makes sockets of one family.
pub trait Family: Send + Sync {
    /// A socket of a type and protocol that socket(2) gave.
    fn create(&self, cx: &dyn Caller, kind: i32, protocol: i32) -> Result<Arc<dyn SocketOps>>;
    /// socketpair(2).
    fn pair(&self, _cx: &dyn Caller, _kind: i32, _protocol: i32) -> Result<[Arc<dyn SocketOps>; 2]> {
        Err(Errno::EOPNOTSUPP)
    }
}

static FAMILIES: RwLock<BTreeMap<i32, Arc<dyn Family>>> = RwLock::new(BTreeMap::new());

/// Adds a family.
pub fn register(domain: i32, family: Arc<dyn Family>) {
    FAMILIES.write().insert(domain, family);
}

fn find(domain: i32, kind: i32) -> Result<Arc<dyn Family>> {
    if !(0..AF_MAX).contains(&domain) {
        return Err(Errno::EAFNOSUPPORT);
    }
    if !(0..SOCK_MAX).contains(&kind) {
        return Err(Errno::EINVAL);
    }
    FAMILIES.read().get(&domain).cloned().ok_or(Errno::EAFNOSUPPORT)
}

/// The type without its flags, and the flags. EINVAL for unknown flags.
pub fn split_type(kind: i32) -> Result<(i32, i32)> {
    let flags = kind & !0xf;
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok((kind & 0xf, flags))
}

/// socket(2), with the type's flags taken off.
pub fn create(cx: &dyn Caller, domain: i32, kind: i32, protocol: i32) -> Result<Arc<dyn SocketOps>> {
    find(domain, kind)?.create(cx, kind, protocol)
}

/// socketpair(2), likewise.
pub fn pair(cx: &dyn Caller, domain: i32, kind: i32, protocol: i32) -> Result<[Arc<dyn SocketOps>; 2]> {
    find(domain, kind)?.pair(cx, kind, protocol)
}
