//! Reads the start of a program, in kernel context.

use abi::Result;
use vfs::{Caller, OpenFile};

/// The start of a program, which nearly always holds all headers.
pub(crate) struct Head(Vec<u8>);

impl Head {
    pub(crate) fn read(cx: &dyn Caller, f: &OpenFile) -> Result<Head> {
        let mut b = vec![0; 1024];
        let n = read_file(cx, f, 0, &mut b)?;
        b.truncate(n);
        Ok(Head(b))
    }

    /// How many bytes were read: less than 1024 of a short file.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// As [`read_file`]. What comes after the file header counts as an access of its own, as Linux reads it.
    pub(crate) fn read_at(&self, cx: &dyn Caller, f: &OpenFile, off: u64, buf: &mut [u8]) -> Result<usize> {
        if off > 0 {
            vfs::notify::by_file(cx, f, vfs::notify::event::ACCESS);
        }
        let known = usize::try_from(off).ok().and_then(|o| self.0.get(o..o.checked_add(buf.len())?));
        match known {
            Some(b) => {
                buf.copy_from_slice(b);
                Ok(b.len())
            }
            None => read_file(cx, f, off, buf),
        }
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_file(cx: &dyn Caller, f: &OpenFile, off: u64, buf: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match f.ops.read(cx, f, &mut buf[done..], off + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}
