//! Signals of the calling process, received through a descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A signalfd(2) for signals that it also blocks in the calling thread.
#[derive(Debug)]
pub struct SignalFd {
    fd: OwnedFd,
}

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Signal number.
    pub signo: i32,
    /// Process that sent it; 0 when the kernel did, or from another pid namespace.
    pub pid: i32,
}

impl SignalFd {
    /// Blocks `signals` in the calling thread and receives them here. Call it before there are other threads.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data, initialised by sigemptyset; all pointers are to locals.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for &signo in signals {
                libc::sigaddset(&raw mut set, signo);
            }
            let rc = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            if rc != 0 {
                return Err(io::Error::from_raw_os_error(rc));
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: signalfd just returned this descriptor; it has no other owner.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// The next pending signal, if any. Never blocks.
    pub fn read(&self) -> io::Result<Option<Received>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        // SAFETY: the buffer is as long as stated, and any bytes make a valid signalfd_siginfo.
        let (n, info) = unsafe {
            let size = size_of::<libc::signalfd_siginfo>();
            (libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size), info.assume_init())
        };
        if n < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        Ok(Some(Received { signo: info.ssi_signo as i32, pid: info.ssi_pid as i32 }))
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Gives SIGCHLD its default meaning back. A caller that ignores it passes that on, and the host then forgets how
/// children of ours ended before we ask.
pub fn keep_ends_of_children() {
    // SAFETY: sets a default disposition; no memory is involved.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Whether a signal that asks a program to end (SIGTERM, SIGINT, SIGHUP, SIGQUIT) is pending because it is blocked.
pub fn asked_to_end() -> bool {
    // SAFETY: sigset_t is plain data, written by sigpending before it is read.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut set);
        let asking = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];
        asking.iter().any(|&signo| libc::sigismember(&raw const set, signo) == 1)
    }
}

/// Has these signals do nothing. Programs that are started from now on have their default meaning again.
pub fn overlook(signals: &[i32]) {
    extern "C" fn nothing(_: i32) {}
    for &signo in signals {
        // SAFETY: the handler touches nothing, so it may run at any moment; the action is plain data, initialised here.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signo, &raw const action, std::ptr::null_mut());
        }
    }
}

/// The signal that ends a host call of a thread that waits; see [`Interruptible`].
pub const INTERRUPT: i32 = libc::SIGURG;

/// A thread of this process of which another may end a call that waits (EINTR).
#[derive(Clone, Copy, Debug)]
pub struct Interruptible(i32);

impl Interruptible {
    /// The calling thread.
    pub fn this() -> Interruptible {
        extern "C" fn nothing(_: i32) {}
        // SAFETY: the handler touches nothing, so it may run at any moment; the action is plain data, initialised here.
        // Without SA_RESTART the call that it interrupts ends. Another thread may set the same action at the same time.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            libc::sigaction(INTERRUPT, &raw const action, std::ptr::null_mut());
        }
        Interruptible(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Ends the call in which the thread waits, if it does. The caller knows that the thread has not ended.
    pub fn interrupt(self) {
        let _ = crate::process::tgkill(std::process::id() as i32, self.0, INTERRUPT);
    }
}
