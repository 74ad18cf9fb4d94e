//! A terminal with the sentry at its master end: the way from the user's terminal to the sandbox.

use crate::devpts::Devpts;
use crate::files::{MasterFile, SlaveFile};
use crate::pty::{JobControl, Pty};
use crate::termios::WinSize;
use abi::{Errno, Result};
use lock_order::{Condvar, Mutex};
use mounts::FsView;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vfs::{Caller, OpenFile};
use wait::{Events, Waiter};

/// Longest wait of `drain`.
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Progress {
    taken: u64,
    written: u64,
}

/// The master end.
pub struct ConsolePty {
    pty: Arc<Pty>,
    _master: MasterFile,
    /// Keeps the instance alive when it is not mounted (any more).
    _home: Arc<Devpts>,
    progress: Mutex<Progress>,
    moved: Condvar,
}

impl ConsolePty {
    /// A pair in the devpts instance at /dev/pts of `view`, or in a hidden instance where there is none. The file is
    /// the slave, opened for reading and writing; it is the controlling terminal of the caller's session, with the
    /// caller's group in the foreground.
    pub fn open(
        cx: &dyn Caller,
        view: &FsView,
        jobs: Arc<dyn JobControl>,
    ) -> Result<(Arc<ConsolePty>, Arc<OpenFile>)> {
        let console = ConsolePty::unused(cx, view, jobs)?;
        let pty = &console.pty;
        let ops = SlaveFile::open(pty, cx, libc::O_NOCTTY)?;
        let file = OpenFile::new(None, console._home.slave_inode(pty.index), ops, libc::O_RDWR);
        pty.take_session(cx);
        Ok((console, file))
    }

    /// The same without a file and a session, which a checkpoint gives it.
    pub fn unused(cx: &dyn Caller, view: &FsView, jobs: Arc<dyn JobControl>) -> Result<Arc<ConsolePty>> {
        let home = match Devpts::mounted(cx, view) {
            Some(home) => home,
            None => Devpts::new(jobs, cx, b"")?,
        };
        let pty = home.allocate(cx)?;
        pty.inner.lock().locked = false;
        Ok(Arc::new(ConsolePty {
            _master: MasterFile { pty: pty.clone() },
            pty,
            _home: home,
            progress: Mutex::default(),
            moved: Condvar::new(),
        }))
    }

    /// The pair.
    pub fn pty(&self) -> &Arc<Pty> {
        &self.pty
    }

    /// N of the container's /dev/pts/N.
    pub fn index(&self) -> u32 {
        self.pty.index
    }

    /// Types. Waits while the input queue is full; what is left when the terminal is hung up is lost.
    pub fn feed(&self, data: &[u8]) {
        let waiter = Waiter::new();
        let mut rest = data;
        while !rest.is_empty() {
            let n = waiter.wait_on(&self.pty.master_queue, Events::WRITABLE | Events::HUP, None, || {
                if self.pty.inner.lock().hung_up {
                    return Some(rest.len());
                }
                self.pty.type_in(rest).ok()
            });
            rest = &rest[n.unwrap_or(rest.len())..];
        }
    }

    /// The user's terminal has gone.
    pub fn end_of_input(&self) {
        self.pty.hang_up();
    }

    /// Waits for output and takes it; 0 once the terminal is hung up and all was taken.
    pub fn take_output(&self, buf: &mut [u8]) -> usize {
        let n = Waiter::new().wait_on(&self.pty.master_queue, Events::READABLE, None, || {
            match self.pty.take_output(buf) {
                Ok(n) => Some(n),
                Err(Errno::EAGAIN | Errno::EIO) if !self.pty.inner.lock().hung_up => None,
                Err(_) => Some(0),
            }
        });
        let n = n.unwrap_or(0);
        self.progress.lock().taken += n as u64;
        n
    }

    /// That much of what was taken has reached the user's terminal.
    pub fn written(&self, n: usize) {
        self.progress.lock().written += n as u64;
        self.moved.notify_all();
    }

    /// Waits, for a bounded time, until all output has been written.
    pub fn drain(&self) {
        let end = Instant::now() + DRAIN;
        while Instant::now() < end {
            // The terminal's lock comes before that of the progress.
            let empty = self.pty.output_empty();
            let mut p = self.progress.lock();
            if empty && p.written >= p.taken {
                return;
            }
            // Output that is about to be taken gives no notice here: look again soon.
            let soon = (Instant::now() + Duration::from_millis(5)).min(end);
            self.moved.wait_until(&mut p, soon);
        }
    }

    /// Foreground process group, when there is one.
    pub fn foreground(&self) -> Option<i32> {
        let p = self.pty.inner.lock().pgrp;
        (p > 0).then_some(p)
    }

    /// New window size; SIGWINCH for the foreground.
    pub fn resize(&self, rows: u16, cols: u16) {
        self.pty.resize(WinSize { row: rows, col: cols, xpixel: 0, ypixel: 0 });
    }
}
