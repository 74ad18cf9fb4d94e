//! A terminal for a container in the foreground if its caller has one, but not as standard input and output both
//! (`ringfence run ID >file`): bytes are copied between the standard streams and a new terminal, as other runtimes do.

use crate::{console, terminal};
use rustix::termios::isatty;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Builder;
use std::time::Duration;

/// Bytes that are copied at a time.
const PIECE: usize = 16 << 10;
/// How long the last of the output may take: of `exec`, a process that goes on in the background keeps the terminal open.
const LAST: Duration = Duration::from_secs(1);

/// Copies that go on in threads of their own.
pub struct Copies {
    over: Receiver<()>,
}

impl Copies {
    /// Begins to copy, unless standard input and output are terminals. Gives the end for the container, of the size of the
    /// user's terminal.
    pub fn begin(users: impl AsFd) -> io::Result<Option<(OwnedFd, Copies)>> {
        if isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout()) {
            return Ok(None);
        }
        let (master, slave) = console::pair(terminal::size(users))?;
        let (mut typed, mut shown) = (File::from(master.try_clone()?), File::from(master));
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
        let (mut input, mut output) = (own(rustix::stdio::stdin())?, own(rustix::stdio::stdout())?);
        let (done, over) = channel();
        let thread = |name: &str| Builder::new().name(name.into()).stack_size(64 << 10);
        thread("terminal in").spawn(move || copy(&mut input, &mut typed))?;
        thread("terminal out").spawn(move || {
            copy(&mut shown, &mut output);
            // The container is not to wait for a reader that is gone.
            copy(&mut shown, &mut io::sink());
            let _ = done.send(());
        })?;
        Ok(Some((slave, Copies { over })))
    }

    /// Waits for the last of the output, once the container has ended.
    pub fn finish(self) {
        let _ = self.over.recv_timeout(LAST);
    }
}

/// Passes bytes on as they come, until an end, or an error: a terminal without processes is one.
fn copy(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = vec![0; PIECE];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if to.write_all(buffer.get(..length).unwrap_or_default()).is_err() {
            return;
        }
    }
}
