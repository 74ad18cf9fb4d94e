//! Connects the user's terminal with a pseudo-terminal of the sandbox.

use crate::errors::{other, text};
use crate::process::install;
use mounts::FsView;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use spec::{StartError, WindowSize};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use task::{Current, Kernel};

/// The terminal of one process: the container's first one, or one of `exec`. It ends with that process, as a terminal
/// ends with the leader of its session: the holder of the other side of the user's terminal then sees the hang-up.
/// Dropping it ends it as well.
pub(crate) struct Console {
    pty: Arc<tty::ConsolePty>,
    /// Readable once the user's terminal is no longer read.
    over: Arc<OwnedFd>,
}

impl Console {
    /// Makes the terminal, gives it to the first process as controlling terminal and standard
    /// streams, and starts the two threads that carry bytes.
    pub(crate) fn open(c: &Current, host: OwnedFd, size: WindowSize) -> Result<Arc<Console>, StartError> {
        let fail = |e: abi::Errno| other(format!("terminal: {}", text(e)));
        let (pty, file) =
            tty::ConsolePty::open(c, &c.fs().view(), task::Jobs::of(c.kernel())).map_err(fail)?;
        pty.resize(size.rows, size.cols);
        for fd in 0..3 {
            install(c, &file, fd)?;
        }
        let console = Console::of(pty)?;
        console.serve(host)?;
        Ok(Arc::new(console))
    }

    /// A terminal that a checkpoint gives its state, and that no process has yet. [`Console::serve`] follows.
    pub(crate) fn unused(
        kernel: &Arc<Kernel>,
        view: &FsView,
        size: WindowSize,
    ) -> Result<Arc<Console>, StartError> {
        let cx = vfs::Internal::new(&kernel.vfs);
        let pty = tty::ConsolePty::unused(&cx, view, task::Jobs::of(kernel))
            .map_err(|e| other(format!("terminal: {}", text(e))))?;
        pty.resize(size.rows, size.cols);
        Ok(Arc::new(Console::of(pty)?))
    }

    fn of(pty: Arc<tty::ConsolePty>) -> Result<Console, StartError> {
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| other(format!("terminal: {}", std::io::Error::from(e))))?;
        Ok(Console { pty, over: Arc::new(over) })
    }

    /// Starts the two threads that carry bytes to and from the user's terminal.
    pub(crate) fn serve(&self, host: OwnedFd) -> Result<(), StartError> {
        let failed = |e: std::io::Error| other(format!("terminal: {e}"));
        let input = std::fs::File::from(host);
        let output = input.try_clone().map_err(failed)?;
        self.carry(input, output).map_err(failed)
    }

    /// The pair.
    pub(crate) fn pty(&self) -> &Arc<tty::Pty> {
        self.pty.pty()
    }

    /// N of the container's /dev/pts/N.
    pub(crate) fn index(&self) -> u32 {
        self.pty.index()
    }

    /// Foreground process group, when there is one.
    pub(crate) fn foreground(&self) -> Option<i32> {
        self.pty.foreground()
    }

    /// New window size; raises SIGWINCH.
    pub(crate) fn resize(&self, size: WindowSize) {
        self.pty.resize(size.rows, size.cols);
    }

    /// The process has ended: its last output goes to the user's terminal, for a bounded time, and then the terminal
    /// is given up.
    pub(crate) fn finish(&self) {
        self.pty.drain();
        self.end();
    }

    fn end(&self) {
        self.pty.end_of_input();
        // Full is as good as written.
        let _ = rustix::io::write(&self.over, &1_u64.to_ne_bytes());
    }

    /// Starts the two threads that carry bytes. Each holds the user's terminal open for as long as it runs.
    fn carry(&self, mut input: std::fs::File, mut output: std::fs::File) -> std::io::Result<()> {
        let (pty, over) = (self.pty.clone(), self.over.clone());
        std::thread::Builder::new().name("console in".into()).spawn(move || {
            let mut b = [0; 4096];
            while readable(&input, &over)
                && let Ok(n) = input.read(&mut b)
                && n != 0
            {
                pty.feed(&b[..n]);
            }
            pty.end_of_input();
        })?;
        let pty = self.pty.clone();
        std::thread::Builder::new().name("console out".into()).spawn(move || {
            let mut b = [0; 4096];
            loop {
                let n = pty.take_output(&mut b);
                if n == 0 || output.write_all(&b[..n]).is_err() {
                    break;
                }
                pty.written(n);
            }
        })?;
        Ok(())
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until there is something to read; false when it is time to end.
fn readable(input: &std::fs::File, over: &OwnedFd) -> bool {
    loop {
        let mut fds =
            [PollFd::new(input, PollFlags::IN), PollFd::from_borrowed_fd(over.as_fd(), PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => return fds[1].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
