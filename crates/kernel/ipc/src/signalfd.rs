//! signalfd(2): pending signals as data.
//!
//! The pending signals are those of the calling thread, not of the descriptor: see `Caller::signals`. A checkpoint
//! keeps the mask.

use abi::{Errno, Result, SigInfo, SigSet, Signal};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Caller, FileOps, OpenFile};
use wait::{Events, WaitQueue};

/// Size of `struct signalfd_siginfo`.
const RECORD: usize = 128;

/// The object behind a signalfd.
pub struct SignalFd {
    mask: AtomicU64,
}

/// A signalfd as plain data, for a checkpoint. Whether it blocks is the open file's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SignalFdState {
    /// The signals that it reads.
    pub mask: SigSet,
}

impl From<SignalFdState> for SignalFd {
    fn from(s: SignalFdState) -> SignalFd {
        SignalFd { mask: AtomicU64::new(s.mask.minus(SigSet::UNBLOCKABLE).0) }
    }
}

impl SignalFd {
    /// As plain data.
    pub fn state(&self) -> SignalFdState {
        SignalFdState { mask: self.mask() }
    }

    /// signalfd4(2) with fd -1.
    pub fn create(cx: &dyn Caller, mask: SigSet, flags: i32) -> Result<Arc<OpenFile>> {
        if flags & !(libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let ops = Arc::new(SignalFd::from(SignalFdState { mask }));
        let keep = flags & libc::SFD_NONBLOCK;
        Ok(OpenFile::new(None, Some(cx.vfs().anonymous_inode()), ops, libc::O_RDWR | keep))
    }

    /// The object behind an open file; EINVAL when it is something else.
    pub fn of(file: &OpenFile) -> Result<&SignalFd> {
        file.ops.as_any().downcast_ref().ok_or(Errno::EINVAL)
    }

    /// signalfd4(2) with an existing descriptor: a new mask.
    pub fn set_mask(&self, cx: &dyn Caller, mask: SigSet) {
        self.mask.store(mask.minus(SigSet::UNBLOCKABLE).0, Ordering::SeqCst);
        if let Some(s) = cx.signals() {
            s.wait_queue().notify(Events::READABLE);
        }
    }

    fn mask(&self) -> SigSet {
        SigSet(self.mask.load(Ordering::SeqCst))
    }
}

/// `struct signalfd_siginfo` of a signal.
fn record(i: &SigInfo) -> [u8; RECORD] {
    let mut r = [0; RECORD];
    let mut put = |at: usize, b: &[u8]| r[at..at + b.len()].copy_from_slice(b);
    put(0, &i.signo.to_ne_bytes());
    put(4, &i.errno.to_ne_bytes());
    put(8, &i.code.to_ne_bytes());
    let (low, high) = (i.fields[0] as u32, (i.fields[0] >> 32) as u32);
    let pid_uid = |put: &mut dyn FnMut(usize, &[u8])| {
        put(12, &low.to_ne_bytes());
        put(16, &high.to_ne_bytes());
    };
    let value = |put: &mut dyn FnMut(usize, &[u8])| {
        put(44, &(i.fields[1] as u32).to_ne_bytes());
        put(48, &i.fields[1].to_ne_bytes());
    };
    // Kernel-made signals (positive codes other than SI_KERNEL) have a layout of their own.
    match (Signal::new(i.signo), i.code) {
        (_, libc::SI_TIMER) => {
            put(24, &low.to_ne_bytes());
            put(32, &high.to_ne_bytes());
            value(&mut put);
        }
        (Some(Signal::SIGCHLD), 1..=6) => {
            pid_uid(&mut put);
            put(40, &(i.fields[1] as u32).to_ne_bytes());
            put(56, &i.fields[2].to_ne_bytes());
            put(64, &i.fields[3].to_ne_bytes());
        }
        (Some(Signal::SIGIO), 1..=6) => {
            put(28, &low.to_ne_bytes());
            put(20, &(i.fields[1] as u32).to_ne_bytes());
        }
        (
            Some(Signal::SIGSEGV | Signal::SIGBUS | Signal::SIGFPE | Signal::SIGILL | Signal::SIGTRAP),
            1..=100,
        ) => put(72, &i.fields[0].to_ne_bytes()),
        (_, i32::MIN..=-1) => {
            pid_uid(&mut put);
            value(&mut put);
        }
        _ => pid_uid(&mut put),
    }
    r
}

impl FileOps for SignalFd {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        if buf.len() < RECORD {
            return Err(Errno::EINVAL);
        }
        let source = cx.signals().ok_or(Errno::EAGAIN)?;
        let mut done = 0;
        for slot in buf.chunks_exact_mut(RECORD) {
            let Some(i) = source.dequeue(self.mask()) else { break };
            slot.copy_from_slice(&record(&i));
            done += RECORD;
        }
        if done == 0 { Err(Errno::EAGAIN) } else { Ok(done) }
    }
    fn poll(&self, cx: &dyn Caller, _file: &OpenFile) -> Events {
        match cx.signals() {
            Some(s) if !s.peek(self.mask()).is_empty() => Events::IN,
            _ => Events::NONE,
        }
    }
    fn wait_queue(&self, cx: &dyn Caller) -> Option<WaitQueue> {
        // Without signals: a queue that never fires.
        Some(cx.signals().map(|s| s.wait_queue()).unwrap_or_default())
    }
    fn fdinfo(&self) -> String {
        format!("sigmask:\t{:016x}\n", self.mask().0)
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:[signalfd]".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caller::SignalSource;
    use lock_order::Mutex;
    use vfs::testing::TestCaller;

    struct Fake(Mutex<Vec<SigInfo>>, WaitQueue);
    impl SignalSource for Fake {
        fn dequeue(&self, mask: SigSet) -> Option<SigInfo> {
            let mut v = self.0.lock();
            let i = v.iter().position(|s| Signal::new(s.signo).is_some_and(|s| mask.has(s)))?;
            Some(v.remove(i))
        }
        fn peek(&self, mask: SigSet) -> SigSet {
            let mut out = SigSet::EMPTY;
            self.0.lock().iter().filter_map(|s| Signal::new(s.signo)).for_each(|s| out.add(s));
            out.intersect(mask)
        }
        fn wait_queue(&self) -> WaitQueue {
            self.1.clone()
        }
    }

    #[test]
    fn state_and_back() {
        let state = SignalFdState { mask: SigSet::of(Signal::SIGUSR2) };
        assert_eq!(SignalFd::from(state).state(), state);
    }

    #[test]
    fn reads_the_threads_signals() {
        let mut cx = TestCaller::with_caps(0);
        let f = SignalFd::create(&cx, SigSet::of(Signal::SIGUSR1), 0).unwrap();
        let mut buf = [0; 300];
        assert_eq!(f.ops.read(&cx, &f, &mut buf, 0), Err(Errno::EAGAIN));
        let src = Arc::new(Fake(Mutex::default(), WaitQueue::new()));
        cx.signals = Some(src.clone());
        src.0.lock().push(SigInfo::user(Signal::SIGUSR2, 0, 5, 6));
        assert_eq!(f.ops.poll(&cx, &f), Events::NONE);
        src.0.lock().push(SigInfo::queue(Signal::SIGUSR1, -1, 5, 6, 77));
        assert_eq!(f.ops.poll(&cx, &f), Events::IN);
        assert_eq!(f.ops.read(&cx, &f, &mut buf[..100], 0), Err(Errno::EINVAL));
        assert_eq!(f.ops.read(&cx, &f, &mut buf, 0), Ok(128));
        assert_eq!((buf[0], buf[12], buf[16], buf[44], buf[48]), (10, 5, 6, 77, 77));
    }
}
