//! eventfd(2): a counter with readiness. Lock rank: leaf. A checkpoint keeps count and mode.

use abi::{Errno, Result};
use lock_order::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Caller, FileOps, OpenFile, StreamOps};
use wait::{Events, WaitQueue};

/// The counter behind an eventfd.
pub struct EventFd {
    count: Mutex<u64>,
    semaphore: bool,
    /// What /proc/PID/fdinfo tells eventfds apart by.
    id: AtomicU64,
    queue: WaitQueue,
}

/// An eventfd as plain data, for a checkpoint. Whether it blocks is the open file's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EventFdState {
    /// The counter.
    pub count: u64,
    /// EFD_SEMAPHORE: a read takes one.
    pub semaphore: bool,
}

impl From<EventFdState> for EventFd {
    fn from(s: EventFdState) -> EventFd {
        EventFd {
            count: Mutex::new(s.count),
            semaphore: s.semaphore,
            id: AtomicU64::new(0),
            queue: WaitQueue::new(),
        }
    }
}

impl EventFd {
    /// As plain data.
    pub fn state(&self) -> EventFdState {
        EventFdState { count: *self.count.lock(), semaphore: self.semaphore }
    }

    /// eventfd2(2): `flags` EFD_SEMAPHORE, EFD_NONBLOCK; EFD_CLOEXEC is the descriptor's.
    pub fn create(cx: &dyn Caller, initial: u32, flags: i32) -> Result<Arc<OpenFile>> {
        if flags & !(libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let semaphore = flags & libc::EFD_SEMAPHORE != 0;
        let ops = Arc::new(EventFd::from(EventFdState { count: initial.into(), semaphore }));
        let keep = flags & libc::EFD_NONBLOCK;
        let file = OpenFile::new(None, Some(cx.vfs().anonymous_inode()), ops.clone(), libc::O_RDWR | keep);
        ops.identify(&file);
        Ok(file)
    }

    /// Takes its number from its open file.
    pub fn identify(&self, file: &OpenFile) {
        self.id.store(file.id & i32::MAX as u64, Ordering::Relaxed);
    }

    /// Adds to the counter without blocking, as a driver does; saturates at the value that poll(2) reports as an error.
    pub fn signal(&self, n: u64) {
        let mut c = self.count.lock();
        *c = c.saturating_add(n);
        drop(c);
        self.queue.notify(Events::READABLE);
    }
}

impl FileOps for EventFd {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_stream(&self) -> Option<&dyn StreamOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if buf.len() < 8 {
            return Err(Errno::EINVAL);
        }
        let mut c = self.count.lock();
        if *c == 0 {
            return Err(Errno::EAGAIN);
        }
        let v = if self.semaphore { 1 } else { *c };
        *c -= v;
        drop(c);
        buf[..8].copy_from_slice(&v.to_ne_bytes());
        self.queue.notify(Events::WRITABLE);
        Ok(8)
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        let v = u64::from_ne_bytes(buf.try_into().map_err(|_| Errno::EINVAL)?);
        if v == u64::MAX {
            return Err(Errno::EINVAL);
        }
        let mut c = self.count.lock();
        if u64::MAX - *c <= v {
            return Err(Errno::EAGAIN);
        }
        *c += v;
        drop(c);
        self.queue.notify(Events::READABLE);
        Ok(8)
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let c = *self.count.lock();
        let mut e = Events::NONE;
        if c > 0 {
            e |= Events::IN;
        }
        if c == u64::MAX {
            e |= Events::ERR;
        }
        if c < u64::MAX - 1 {
            e |= Events::OUT;
        }
        e
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.queue.clone())
    }
    fn fdinfo(&self) -> String {
        let c = *self.count.lock();
        let id = self.id.load(Ordering::Relaxed);
        format!("eventfd-count: {c:16x}\neventfd-id: {id}\neventfd-semaphore: {}\n", self.semaphore as i32)
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[eventfd]".into())
    }
}

impl StreamOps for EventFd {
    fn writes_all(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::testing::TestCaller;

    #[test]
    fn state_and_back() {
        let state = EventFdState { count: 7, semaphore: true };
        assert_eq!(EventFd::from(state).state(), state);
    }

    #[test]
    fn counts() {
        let cx = TestCaller::with_caps(0);
        for (flags, reads) in [(0, vec![5]), (libc::EFD_SEMAPHORE, vec![1; 5])] {
            let f = EventFd::create(&cx, 2, flags).unwrap();
            assert_eq!(f.ops.write(&cx, &f, &3u64.to_ne_bytes(), 0), Ok(8));
            let mut b = [0; 8];
            for r in reads {
                assert_eq!(f.ops.poll(&cx, &f), Events::IN | Events::OUT);
                assert_eq!(f.ops.read(&cx, &f, &mut b, 0), Ok(8));
                assert_eq!(u64::from_ne_bytes(b), r);
            }
            assert_eq!(f.ops.read(&cx, &f, &mut b, 0), Err(Errno::EAGAIN));
            assert_eq!(f.ops.write(&cx, &f, &(u64::MAX - 1).to_ne_bytes(), 0), Ok(8));
            assert_eq!(f.ops.poll(&cx, &f), Events::IN);
            assert_eq!(f.ops.write(&cx, &f, &1u64.to_ne_bytes(), 0), Err(Errno::EAGAIN));
            assert_eq!(f.ops.write(&cx, &f, &u64::MAX.to_ne_bytes(), 0), Err(Errno::EINVAL));
            assert_eq!(f.ops.write(&cx, &f, &[0; 7], 0), Err(Errno::EINVAL));
        }
    }
}
