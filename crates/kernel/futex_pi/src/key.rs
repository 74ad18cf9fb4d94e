//! What a futex word is known by: a word of a shared mapping is the same word for every address space that maps it (Linux's
//! `union futex_key`).

use abi::{Errno, Result};
use mm::{Mm, VmaKind};
use std::sync::Arc;

/// The key of a futex word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Address space and address.
    Private(usize, u64),
    /// Anonymous shared mapping and offset.
    Anonymous(u64, u64),
    /// Device, inode and offset.
    File(u64, u64, u64),
}

/// The key of the futex word at `addr`, which is aligned and in the address space. `private`: FUTEX_PRIVATE_FLAG. EFAULT.
pub fn futex_key(mm: &Arc<Mm>, addr: u64, private: bool) -> Result<Key> {
    let own = Key::Private(Arc::as_ptr(mm) as usize, addr);
    if private {
        return Ok(own);
    }
    let found = mm.with_map(|m| m.find(addr).cloned()).ok_or(Errno::EFAULT)?;
    let offset = addr - found.start + found.offset;
    match (&found.kind, &found.file) {
        _ if !found.shared => Ok(own),
        (VmaKind::SharedAnon(id), _) => Ok(Key::Anonymous(*id, offset)),
        (_, Some(f)) => f.attr().map(|a| Key::File(a.dev, a.ino, offset)),
        _ => Ok(own),
    }
}
