//! The memory that bytes pass through on their way to an open file.

use crate::iov::Scratch;
use caller::Failure;
use files::io;
use socket::{Buf, Pool, SocketFile};
use task::Current;
use vfs::OpenFile;
use vfs::notify::{self, event};
use vfs::retry::retry;
use wait::Events;

/// Shortest transfer that uses the blocks of a socket.
pub const BLOCKS: usize = 4 << 10;
/// Bytes of the largest block.
const LARGEST: usize = 64 << 10;

/// Memory for bytes that are written: a block where the file is a socket that keeps blocks, or else the thread's buffer.
pub struct Outgoing {
    scratch: Scratch,
    pool: Option<Pool>,
    block: Option<Buf>,
}

impl Outgoing {
    /// For `len` bytes or more to a file, a piece at a time.
    pub fn to(f: &OpenFile, len: usize) -> Outgoing {
        let socket = SocketFile::of(f).ok().filter(|_| len >= BLOCKS);
        let pool = socket.and_then(|socket| socket.ops.pool()).cloned();
        Outgoing { scratch: Scratch::new(), pool, block: None }
    }

    /// Bytes of the largest piece, of those that the caller would move at once.
    pub fn most(&self, wanted: usize) -> usize {
        if self.pool.is_some() { wanted.min(LARGEST) } else { wanted }
    }

    /// Room for `n` bytes.
    pub fn get(&mut self, n: usize) -> &mut [u8] {
        match &self.pool {
            Some(pool) => &mut self.block.insert(pool.get(n)).tail()[..n],
            None => self.scratch.get(n),
        }
    }

    /// The first `n` bytes of the room, and the block that they are.
    pub fn filled(&mut self, n: usize) -> (&[u8], Option<&Buf>) {
        match &mut self.block {
            Some(block) => {
                block.truncate(0);
                block.grow(n);
                (block, Some(block))
            }
            None => (self.scratch.get(n), None),
        }
    }

    /// Writes the first `n` bytes of the room to a stream, or as much as it takes without waiting. Says how much was written,
    /// also when an error ended it.
    pub fn write(
        &mut self,
        c: &Current,
        f: &OpenFile,
        n: usize,
        nowait: bool,
    ) -> (usize, Result<(), Failure>) {
        let (bytes, block) = self.filled(n);
        let (Some(block), Ok(socket)) = (block, SocketFile::of(f)) else {
            return send_all(c, f, bytes, nowait);
        };
        let mut sent = 0;
        loop {
            match attempt(c, f, Events::WRITABLE, nowait, || socket.write_block(&c.caller(), f, block, sent))
            {
                Ok(n) => sent += n,
                Err(e) => return (sent, Err(e)),
            }
            notify::by_file(c, f, event::MODIFY);
            if sent >= block.len() {
                return (sent, Ok(()));
            }
        }
    }
}

/// Writes all of `buf` to a stream, or as much as it takes without waiting. Says how much was written,
/// also when an error ended it.
pub fn send_all(c: &Current, f: &OpenFile, buf: &[u8], nowait: bool) -> (usize, Result<(), Failure>) {
    let mut sent = 0;
    loop {
        let rest = &buf[sent..];
        match attempt(c, f, Events::WRITABLE, nowait, || io::write_at(c, f, rest, 0)) {
            Ok((n, _)) => sent += n,
            Err(e) => return (sent, Err(e)),
        }
        if sent == buf.len() || !f.ops.writes_all() {
            return (sent, Ok(()));
        }
    }
}

/// One attempt, or as many as it takes.
pub fn attempt<T>(
    c: &Current,
    f: &OpenFile,
    mask: Events,
    nowait: bool,
    mut op: impl FnMut() -> abi::Result<T>,
) -> Result<T, Failure> {
    if nowait {
        return op().map_err(Failure::Errno);
    }
    retry(c, f, mask, op)
}
