//! A terminal: its master comes through a socket, and two threads copy between it and the client's FIFOs.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read, retry_on_intr, write};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// What the copying threads need of a stack.
const STACK: usize = 64 << 10;
/// How long the last output may take.
const LAST: Duration = Duration::from_secs(2);

/// Where `ringfence` sends a master to.
#[derive(Debug)]
pub(crate) struct Receiver {
    dir: PathBuf,
    listener: UnixListener,
}

impl Receiver {
    /// A socket in a directory of its own. That of the bundle may be too long for an address.
    pub(crate) fn new() -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..16 {
            let mut name = [0; 8];
            hostsys::fs::random(&mut name);
            let dir = std::env::temp_dir().join(format!("ringfence-pty-{:016x}", u64::from_ne_bytes(name)));
            match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => {
                    let listener = UnixListener::bind(dir.join("s"));
                    let listener = listener.inspect_err(|_| drop(std::fs::remove_dir(&dir)))?;
                    return Ok(Self { dir, listener });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join("s")
    }

    /// The master that was sent.
    pub(crate) fn receive(&self) -> io::Result<OwnedFd> {
        self.listener.set_nonblocking(true)?;
        let (socket, _) = self.listener.accept()?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        fds.flatten().next().ok_or_else(|| io::Error::other("no terminal was sent"))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A process's terminal.
#[derive(Debug)]
pub(crate) struct Console {
    master: Arc<OwnedFd>,
    /// Readable when the threads are to end, which they do when all output is copied.
    stop: Arc<OwnedFd>,
    output: Option<JoinHandle<()>>,
    input: Option<JoinHandle<()>>,
}

impl Console {
    /// Starts copying.
    pub(crate) fn new(master: OwnedFd, stdin: OwnedFd, stdout: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK)?;
        let master = Arc::new(master);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let thread = |name: &str, work: Box<dyn FnOnce() + Send>| {
            Builder::new().name(name.into()).stack_size(STACK).spawn(work)
        };
        let (from, until) = (master.clone(), stop.clone());
        let output = thread(
            "tty output",
            Box::new(move || {
                copy(from.as_fd(), stdout.as_fd(), until.as_fd());
                // The terminal is gone: input is not read any more.
                end(&until);
            }),
        )?;
        let (to, until) = (master.clone(), stop.clone());
        let input = thread("tty input", Box::new(move || copy(stdin.as_fd(), to.as_fd(), until.as_fd())));
        let input = input.inspect_err(|_| end(&stop))?;
        Ok(Self { master, stop, output: Some(output), input: Some(input) })
    }

    /// A descriptor that is readable once all output is copied: no process has the terminal open any more.
    pub(crate) fn all_copied(&self) -> Arc<OwnedFd> {
        self.stop.clone()
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(&*self.master, size)?)
    }
}

fn end(stop: &OwnedFd) {
    // Full is as good as written.
    let _ = write(stop, &1_u64.to_ne_bytes());
}

impl Drop for Console {
    /// The process has ended: waits for its last output.
    fn drop(&mut self) {
        let deadline = Instant::now() + LAST;
        while self.output.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        end(&self.stop);
        for thread in [self.output.take(), self.input.take()].into_iter().flatten() {
            let _ = thread.join();
        }
    }
}

/// Waits for one thing on a descriptor. False: it is time to end.
fn ready(fd: BorrowedFd<'_>, what: PollFlags, stop: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, what), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
    retry_on_intr(|| poll(&mut fds, None)).is_ok() && fds[1].revents().is_empty()
}

fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>, stop: BorrowedFd<'_>) {
    let mut buffer = [0; 8192];
    while ready(from, PollFlags::IN, stop) {
        let n = match read(from, &mut buffer) {
            Ok(0) => return,
            Ok(n) => n,
            Err(Errno::AGAIN | Errno::INTR) => continue,
            Err(_) => return,
        };
        let mut rest = &buffer[..n];
        while !rest.is_empty() {
            if !ready(to, PollFlags::OUT, stop) {
                return;
            }
            match write(to, rest) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}
