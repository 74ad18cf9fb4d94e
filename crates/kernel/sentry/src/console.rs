//! Connects the user's terminal with a pseudo-terminal of the sandbox.

use crate::boot::{install, other, text};
use crate::spec::{StartError, WindowSize};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use task::Current;

/// The container's terminal.
pub(crate) struct Console {
    pty: Arc<tty::ConsolePty>,
}

impl Console {
    /// Makes the terminal, gives it to the first process as controlling terminal and standard
    /// streams, and starts the two threads that carry bytes.
    pub(crate) fn open(c: &Current, host: OwnedFd, size: WindowSize) -> Result<Arc<Console>, StartError> {
        let fail = |e: abi::Errno| other(format!("terminal: {}", text(e)));
        let (pty, file) = tty::ConsolePty::open(c, &c.fs().view()).map_err(fail)?;
        pty.resize(size.rows, size.cols);
        for fd in 0..3 {
            install(c, &file, fd)?;
        }
        let input = std::fs::File::from(host);
        let output = input.try_clone().map_err(|e| other(format!("terminal: {e}")))?;
        carry(pty.clone(), input, output).map_err(|e| other(format!("terminal: {e}")))?;
        Ok(Arc::new(Console { pty }))
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

    /// Waits until all output has reached the user's terminal.
    pub(crate) fn drain(&self) {
        self.pty.drain();
    }
}

fn carry(
    pty: Arc<tty::ConsolePty>,
    mut input: std::fs::File,
    mut output: std::fs::File,
) -> std::io::Result<()> {
    let p = pty.clone();
    std::thread::Builder::new().name("console in".into()).spawn(move || {
        let mut b = [0; 4096];
        while let Ok(n) = input.read(&mut b) {
            if n == 0 {
                break;
            }
            p.feed(&b[..n]);
        }
        p.end_of_input();
    })?;
    std::thread::Builder::new().name("console out".into()).spawn(move || {
        let mut b = [0; 4096];
        loop {
            let n = pty.take_output(&mut b);
            if n == 0 {
                break;
            }
            if output.write_all(&b[..n]).is_err() {
                break;
            }
            pty.written(n);
        }
    })?;
    Ok(())
}
