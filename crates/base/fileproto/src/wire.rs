//! Fields of messages as bytes.

use crate::is_name;
use abi::stat::{Attr, StatFs};
use abi::time::Timespec;

const NSEC: i64 = 1_000_000_000;

/// What every message begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender of a request chooses it, and the reply has the same.
    pub sequence: u32,
    /// What is asked for ([`crate::operation`]); the reply has the same.
    pub operation: u16,
    /// Of a request: the processor on which the sender waits, plus one; 0 where that is not known. 0 in a reply.
    pub processor: u16,
}

/// Appends fields.
pub(crate) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn new(header: Header) -> Writer {
        let Header { sequence, operation, processor } = header;
        let mut w = Writer(Vec::with_capacity(64));
        w.u32(sequence);
        w.0.extend(operation.to_le_bytes());
        w.0.extend(processor.to_le_bytes());
        w
    }

    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub fn i64(&mut self, value: i64) {
        self.0.extend(value.to_le_bytes());
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.extend(bytes);
    }

    pub fn time(&mut self, time: Timespec) {
        self.i64(time.sec);
        self.i64(time.nsec);
    }

    pub fn attr(&mut self, attr: &Attr) {
        let Attr { dev, ino, mode, nlink, uid, gid, rdev, size, blksize, blocks, .. } = *attr;
        for value in [dev, ino, nlink, rdev, size, blocks] {
            self.u64(value);
        }
        for value in [mode, uid, gid, blksize] {
            self.u32(value);
        }
        for time in [attr.atime, attr.mtime, attr.ctime] {
            self.time(time);
        }
        self.u32(attr.btime.is_some().into());
        // Seconds and nanoseconds in 12 bytes, so that the whole is a multiple of eight.
        let btime = attr.btime.unwrap_or_default();
        self.i64(btime.sec);
        self.u32(btime.nsec as u32);
    }

    pub fn statfs(&mut self, s: &StatFs) {
        self.i64(s.f_type);
        self.i64(s.f_bsize);
        for value in [s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree] {
            self.u64(value);
        }
        for value in s.f_fsid {
            self.u32(value as u32);
        }
        for value in [s.f_namelen, s.f_frsize, s.f_flags] {
            self.i64(value);
        }
        for value in s.f_spare {
            self.i64(value);
        }
    }
}

/// Takes fields from the start of what is left.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The header of a message, and a reader of what follows.
    pub fn new(bytes: &'a [u8]) -> Option<(Header, Reader<'a>)> {
        let mut reader = Reader(bytes);
        let (sequence, operation, processor) = (reader.u32()?, reader.u16()?, reader.u16()?);
        (bytes.len() <= crate::MAX_MESSAGE).then_some((Header { sequence, operation, processor }, reader))
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub fn i64(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_le_bytes)
    }

    pub fn bool(&mut self) -> Option<bool> {
        match self.u32()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn bytes(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok().filter(|length| *length <= most)?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn name(&mut self) -> Option<&'a [u8]> {
        self.bytes(crate::MAX_NAME).filter(|name| is_name(name))
    }

    pub fn text(&mut self) -> Option<&'a [u8]> {
        self.bytes(crate::MAX_TEXT).filter(|text| crate::is_text(text))
    }

    pub fn time(&mut self) -> Option<Timespec> {
        let time = Timespec { sec: self.i64()?, nsec: self.i64()? };
        (0..NSEC).contains(&time.nsec).then_some(time)
    }

    pub fn mode(&mut self) -> Option<u32> {
        self.u32().filter(|mode| *mode <= 0o7777)
    }

    pub fn size(&mut self) -> Option<u64> {
        self.u64().filter(|size| i64::try_from(*size).is_ok())
    }

    pub fn attr(&mut self) -> Option<Attr> {
        let (dev, ino, nlink, rdev) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        let (size, blocks) = (self.size()?, self.u64()?);
        let mode = self.u32().filter(|mode| *mode <= 0o177777)?;
        let (uid, gid, blksize) = (self.u32()?, self.u32()?, self.u32()?);
        let (atime, mtime, ctime) = (self.time()?, self.time()?, self.time()?);
        let has_btime = self.bool()?;
        let btime = Timespec { sec: self.i64()?, nsec: self.u32()?.into() };
        let btime = match has_btime {
            true if btime.nsec < NSEC => Some(btime),
            false if btime == Timespec::default() => None,
            _ => return None,
        };
        Some(Attr {
            dev,
            ino,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blksize,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
        })
    }

    pub fn statfs(&mut self) -> Option<StatFs> {
        Some(StatFs {
            f_type: self.i64()?,
            f_bsize: self.i64()?,
            f_blocks: self.u64()?,
            f_bfree: self.u64()?,
            f_bavail: self.u64()?,
            f_files: self.u64()?,
            f_ffree: self.u64()?,
            f_fsid: [self.u32()? as i32, self.u32()? as i32],
            f_namelen: self.i64()?,
            f_frsize: self.i64()?,
            f_flags: self.i64()?,
            f_spare: [self.i64()?, self.i64()?, self.i64()?, self.i64()?],
        })
    }

    /// The end of a message: nothing is left.
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
