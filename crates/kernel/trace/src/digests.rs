//! Digests of executables. Reading a large program takes longer than starting it, so they are kept by the file's identity.

use abi::Result;
use lock_order::Mutex;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::collections::HashMap;

/// Most files whose digests are kept.
const MAX_FILES: usize = 1024;

/// Bytes read at a time.
const PIECE: usize = 256 << 10;

/// What tells one content of one file from another: a file system sets ctime whenever the content changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// mtime and ctime, in seconds and nanoseconds.
    pub times: [(i64, i64); 2],
}

/// A kind of digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

/// The digests that are known.
#[derive(Default)]
pub struct Digests {
    known: Mutex<HashMap<(Identity, Kind), Vec<u8>>>,
}

impl Digests {
    /// The digest of a file with `read(buffer, offset)`, which gives 0 at its end. Reads it when the digest is not known.
    /// `file`: what tells this content from others; nothing when another one could have the same.
    pub fn of(
        &self,
        file: Option<Identity>,
        kind: Kind,
        read: impl FnMut(&mut [u8], u64) -> Result<usize>,
    ) -> Result<Vec<u8>> {
        let known = |file| self.known.lock().get(&(file, kind)).cloned();
        if let Some(digest) = file.and_then(known) {
            return Ok(digest);
        }
        let digest = match kind {
            Kind::Sha1 => compute::<Sha1>(read)?,
            Kind::Sha256 => compute::<Sha256>(read)?,
        };
        let Some(file) = file else { return Ok(digest) };
        let mut known = self.known.lock();
        if known.len() >= MAX_FILES {
            known.clear();
        }
        known.insert((file, kind), digest.clone());
        Ok(digest)
    }
}

fn compute<D: Digest>(mut read: impl FnMut(&mut [u8], u64) -> Result<usize>) -> Result<Vec<u8>> {
    let mut state = D::new();
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    loop {
        let n = read(&mut buffer, at)?;
        if n == 0 {
            return Ok(state.finalize().to_vec());
        }
        state.update(buffer.get(..n).unwrap_or_default());
        at += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::Errno;

    fn identity(size: u64) -> Identity {
        Identity { dev: 1, ino: 2, size, times: [(0, 0); 2] }
    }

    #[test]
    fn a_file_is_read_once() {
        let digests = Digests::default();
        let mut reads = 0;
        let mut of = |kind, text: &'static [u8]| {
            let read = |buffer: &mut [u8], at: u64| {
                reads += 1;
                let rest = &text[at as usize..];
                buffer[..rest.len()].copy_from_slice(rest);
                Ok(rest.len())
            };
            digests.of(Some(identity(3)), kind, read).unwrap()
        };
        assert_eq!(of(Kind::Sha256, b"abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(of(Kind::Sha1, b"abc")[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert_eq!(of(Kind::Sha256, b"other")[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(reads, 4);
        assert_eq!(digests.of(Some(identity(4)), Kind::Sha1, |_, _| Err(Errno::EIO)), Err(Errno::EIO));
        // A file that may have changed is read each time.
        let empty = digests.of(None, Kind::Sha256, |_, _| Ok(0)).unwrap();
        assert_eq!(empty[..4], [0xe3, 0xb0, 0xc4, 0x42]);
    }
}
