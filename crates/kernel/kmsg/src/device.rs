//! /dev/kmsg: a record with each read(2), a message with each write(2).

use crate::ring::{Log, TEXT_MAX};
use abi::{Errno, Result};
use caller::Outcome;
use rights::Cap;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::file::devices::Opened;
use vfs::{Caller, FileOps, InodeRef, OpenFile, Path, SeekOps};
use wait::{Events, WaitQueue};

/// Messages of programs: facility `user`, level `warning`.
const USER: u32 = 1 << 3;
const WARNING: u32 = 4;

struct Kmsg {
    log: Arc<Log>,
    /// Number of the record that is read next. The position of an open file is read by one thread at a time.
    next: AtomicU64,
}

/// What opens the device.
pub fn opener(log: Arc<Log>) -> impl Fn(&dyn Caller, &Path, &InodeRef, i32) -> Outcome<Opened> + Send + Sync {
    move |cx, _, _, flags| {
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
        if reads && !cx.creds().capable(Cap::SYSLOG) && !cx.creds().capable(Cap::SYS_ADMIN) {
            return Err(Errno::EPERM.into());
        }
        let (first, ..) = log.marks();
        Ok(Opened::Ops(Arc::new(Kmsg { log: log.clone(), next: AtomicU64::new(first) })))
    }
}

/// A record as the device shows it: priority, number, time, and the text with what cannot be printed as `\xNN`.
fn shown(number: u64, record: &crate::ring::Record) -> Vec<u8> {
    let mut out = format!("{},{number},{},-;", record.priority, record.time).into_bytes();
    for b in &record.text {
        match b {
            b'\\' | 0..32 | 127.. => out.extend_from_slice(format!("\\x{b:02x}").as_bytes()),
            _ => out.push(*b),
        }
    }
    out.push(b'\n');
    out
}

/// The priority in front of a text, `<N>`.
fn priority(text: &[u8]) -> (u32, &[u8]) {
    let number = || {
        let rest = text.strip_prefix(b"<")?;
        let end = rest.iter().position(|b| *b == b'>')?;
        let digits = std::str::from_utf8(rest.get(..end)?).ok()?;
        Some((digits.parse::<u32>().ok()?, rest.get(end + 1..)?))
    };
    match number() {
        // The kernel's own facility is not for programs.
        Some((n, rest)) if n >> 3 == 0 => (USER | n & 7, rest),
        Some((n, rest)) => (n & 0x7ff, rest),
        None => (USER | WARNING, text),
    }
}

impl FileOps for Kmsg {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        let next = self.next.load(Ordering::Relaxed);
        let record = match self.log.record(next) {
            Ok(record) => record.ok_or(Errno::EAGAIN)?,
            Err(e) => {
                self.next.store(self.log.marks().0, Ordering::Relaxed);
                return Err(e);
            }
        };
        let text = shown(next, &record);
        buf.get_mut(..text.len()).ok_or(Errno::EINVAL)?.copy_from_slice(&text);
        self.next.store(next + 1, Ordering::Relaxed);
        Ok(text.len())
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        if buf.len() > TEXT_MAX {
            return Err(Errno::EINVAL);
        }
        let (priority, text) = priority(buf);
        self.log.add(priority, text);
        Ok(buf.len())
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let next = self.next.load(Ordering::Relaxed);
        match self.log.record(next) {
            Ok(None) => Events::NONE,
            Ok(Some(_)) => Events::READABLE,
            Err(_) => Events::READABLE | Events::ERR | Events::PRI,
        }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.log.queue().clone())
    }
}

impl SeekOps for Kmsg {
    fn position_is_fixed(&self) -> bool {
        true
    }
    fn seeks_itself(&self, offset: i64, whence: i32) -> Option<Result<u64>> {
        let (first, cleared, end) = self.log.marks();
        let to = match (offset, whence) {
            (0, libc::SEEK_SET) => first,
            (0, libc::SEEK_DATA) => cleared,
            (0, libc::SEEK_END) => end,
            (0, _) => return Some(Err(Errno::EINVAL)),
            _ => return Some(Err(Errno::ESPIPE)),
        };
        self.next.store(to, Ordering::Relaxed);
        Some(Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_of_programs() {
        assert_eq!(priority(b"text"), (12, &b"text"[..]));
        assert_eq!(priority(b"<6>text"), (14, &b"text"[..]));
        assert_eq!(priority(b"<30>text"), (30, &b"text"[..]));
        assert_eq!(priority(b"<x>text"), (12, &b"<x>text"[..]));
    }
}
