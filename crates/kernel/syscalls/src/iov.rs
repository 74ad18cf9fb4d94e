//! Guest buffers of reads and writes, and the memory they pass through.

use abi::{Errno, Result};
use files::io::MAX_RW;
use smallvec::SmallVec;
use socket::{Blocks, SocketOps};
use std::cell::Cell;
use task::Current;

/// UIO_MAXIOV.
pub const MAX_IOV: usize = 1024;
const PAGE: usize = abi::PAGE_SIZE as usize;
/// A transfer of a file that may be cut goes in pieces of this size.
pub const CHUNK: usize = 256 << 10;

/// Pieces of guest memory as one range of at most MAX_RW bytes.
pub struct Iov {
    parts: SmallVec<[(u64, usize); 8]>,
    /// Length of all.
    pub len: usize,
}

impl Iov {
    /// One buffer; EFAULT when it cannot lie in the address space, EINVAL when it is too long for any.
    pub fn one(c: &Current, at: u64, len: u64) -> Result<Iov> {
        c.check_range(at, len)?;
        if len > i64::MAX as u64 {
            return Err(Errno::EINVAL);
        }
        let len = usize::try_from(len).unwrap_or(MAX_RW).min(MAX_RW);
        Ok(Iov { parts: SmallVec::from_slice(&[(at, len)]), len })
    }

    /// An array of `struct iovec`.
    pub fn read(c: &Current, at: u64, count: u64) -> Result<Iov> {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        let raw: Vec<[u64; 2]> = c.read_array(at, count, MAX_IOV)?;
        if raw.iter().any(|r| r[1] > i64::MAX as u64) {
            return Err(Errno::EINVAL);
        }
        let mut iov = Iov { parts: SmallVec::new(), len: 0 };
        for [base, n] in raw {
            c.check_range(base, n)?;
            let n = usize::try_from(n).unwrap_or(MAX_RW).min(MAX_RW - iov.len);
            if n > 0 {
                iov.parts.push((base, n));
            }
            iov.len += n;
        }
        Ok(iov)
    }

    /// The only piece: address and length.
    pub fn single(&self) -> Option<(u64, usize)> {
        if let [part] = self.parts[..] { Some(part) } else { None }
    }

    /// The parts of pages that the pieces are: addresses and lengths.
    pub fn pages(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        self.parts.iter().flat_map(|&(at, len)| {
            let mut done = 0;
            std::iter::from_fn(move || {
                let from = at + done as u64;
                let n = (len - done).min(PAGE - from as usize % PAGE);
                done += n;
                (n > 0).then_some((from, n))
            })
        })
    }

    /// Fills `buf` from offset `from` on; stops at memory that cannot be read and says how far it got.
    pub fn gather(&self, c: &Current, from: usize, buf: &mut [u8]) -> usize {
        let mut done = 0;
        for (at, n) in self.slice(from, buf.len()) {
            let got = c.read_some(at, &mut buf[done..done + n]).unwrap_or(0);
            done += got;
            if got < n {
                break;
            }
        }
        done
    }

    /// Stores `data` from offset `from` on; stops at memory that cannot be written and says how far it got.
    pub fn scatter(&self, c: &mut Current, from: usize, data: &[u8]) -> usize {
        let mut done = 0;
        for (at, n) in self.slice(from, data.len()) {
            let put = c.write_some(at, &data[done..done + n]);
            done += put;
            if put < n {
                break;
            }
        }
        done
    }

    /// Stores blocks that a socket gave. What finds no place goes back; EFAULT when that is everything.
    pub fn store(&self, c: &mut Current, socket: &dyn SocketOps, mut blocks: Blocks) -> Result<usize> {
        let total: usize = blocks.iter().map(|block| block.len()).sum();
        if self.queue_blocks(c, &blocks, total) {
            return Ok(total);
        }
        let (mut done, only) = (0, blocks.len() == 1);
        for i in 0..blocks.len() {
            let mut stored = 0;
            for (at, n) in self.slice(done, blocks[i].len()) {
                let bytes = &blocks[i][stored..stored + n];
                let put = if only { c.write_some(at, bytes) } else { c.write_some_now(at, bytes) };
                stored += put;
                if put < n {
                    break;
                }
            }
            done += stored;
            if stored < blocks[i].len() {
                blocks[i].trim_front(stored);
                blocks.drain(..i);
                socket.put_back(blocks);
                break;
            }
        }
        if done == 0 && total > 0 { Err(Errno::EFAULT) } else { Ok(done) }
    }

    /// Has several blocks go along with the answer, if they are small enough.
    fn queue_blocks(&self, c: &mut Current, blocks: &Blocks, total: usize) -> bool {
        let Some((addr, _)) = self.single().filter(|_| blocks.len() > 1) else { return false };
        if !c.mm.writable(addr, total as u64) {
            return false;
        }
        let Some(area) = c.ctx.copy_area(addr, total).filter(|area| area.size() == total) else {
            return false;
        };
        let mut at = 0;
        for block in blocks {
            area.put(at, block);
            at += block.len();
        }
        let offset = area.offset();
        c.ctx.queue_copied(addr, offset, total);
        true
    }

    /// How many of the `len` bytes from offset `from` on lie in writable mappings, up to the first that does not.
    pub fn room(&self, c: &Current, from: usize, len: usize) -> usize {
        let parts: SmallVec<[(u64, usize); 8]> = self.slice(from, len).collect();
        c.mm.with_map(|m| {
            let mut room = 0;
            for (at, n) in parts {
                let writable = m.writable_from(at, n as u64) as usize;
                room += writable;
                if writable < n {
                    break;
                }
            }
            room
        })
    }

    /// True when the byte at offset `from` lies in a writable mapping.
    pub fn writable(&self, c: &Current, from: usize) -> bool {
        let Some((at, _)) = self.slice(from, 1).next() else { return true };
        c.mm.with_map(|m| {
            m.find(at).is_some_and(|v| v.prot & libc::PROT_WRITE != 0) && m.guarded(at, at + 1).is_empty()
        })
    }

    /// The addresses of bytes `from..from + len`.
    fn slice(&self, from: usize, len: usize) -> impl Iterator<Item = (u64, usize)> {
        cut(&self.parts, from, len)
    }
}

/// Pieces of `parts` that make up bytes `from..from + len` of the whole.
fn cut(parts: &[(u64, usize)], from: usize, len: usize) -> impl Iterator<Item = (u64, usize)> {
    let (mut skip, mut left) = (from, len);
    parts.iter().filter_map(move |&(at, n)| {
        let s = skip.min(n);
        skip -= s;
        let take = (n - s).min(left);
        left -= take;
        (take > 0).then_some((at + s as u64, take))
    })
}

thread_local! { static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) }; }

/// A buffer that the thread uses again and again. Its content is whatever the last user left. It starts at the boundary
/// of a page, where copies from and to other pages are fast.
pub struct Scratch(Vec<u8>);

impl Scratch {
    /// The thread's buffer, or a fresh one when that is in use.
    pub fn new() -> Scratch {
        Scratch(SPARE.take())
    }

    /// `n` bytes.
    pub fn get(&mut self, n: usize) -> &mut [u8] {
        if self.0.len() < n + PAGE {
            self.0.resize(n + PAGE, 0);
        }
        let start = self.0.as_ptr().align_offset(PAGE).min(PAGE);
        &mut self.0[start..start + n]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.len() <= CHUNK + PAGE {
            SPARE.set(std::mem::take(&mut self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces() {
        let parts = [(100, 10), (200, 0), (300, 5), (400, 20)];
        let all = |f, n| cut(&parts, f, n).collect::<Vec<_>>();
        assert_eq!(all(0, 35), [(100, 10), (300, 5), (400, 20)]);
        assert_eq!(all(3, 8), [(103, 7), (300, 1)]);
        assert_eq!(all(10, 6), [(300, 5), (400, 1)]);
        assert_eq!(all(12, 2), [(302, 2)]);
        assert_eq!(all(35, 5), []);
        assert_eq!(all(4, 0), []);
    }
}
