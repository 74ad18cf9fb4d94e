//! The user's terminal while a container has it.

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use spec::WindowSize;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

/// The settings to restore. The guard or the panic hook takes them, whichever runs first.
static SAVED: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// Keeps the terminal raw; dropping it puts the old settings back.
pub struct RawMode(());

impl RawMode {
    /// Puts a terminal into raw mode. The old settings come back on drop, and on a panic.
    pub fn enter(tty: impl AsFd) -> io::Result<Self> {
        let old = tcgetattr(&tty)?;
        let mut raw = old.clone();
        raw.make_raw();
        let kept = tty.as_fd().try_clone_to_owned()?;
        *SAVED.lock().unwrap_or_else(|e| e.into_inner()) = Some((kept, old));
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            hook(info);
        }));
        tcsetattr(&tty, OptionalActions::Now, &raw)?;
        Ok(Self(()))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    // A panic while the lock is held must not hang here.
    if let Ok(mut saved) = SAVED.try_lock()
        && let Some((tty, old)) = saved.take()
    {
        let _ = tcsetattr(&tty, OptionalActions::Drain, &old);
    }
}

/// Size of a terminal; zero when it is none or does not say.
pub fn size(tty: impl AsFd) -> WindowSize {
    tcgetwinsize(tty)
        .map_or(WindowSize::default(), |size| WindowSize { rows: size.ws_row, cols: size.ws_col })
}

/// The terminal that a container with one is connected to: the first standard stream that is a
/// terminal open for reading and writing.
pub fn of_standard_streams() -> Option<OwnedFd> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let usable = |fd: &rustix::fd::BorrowedFd<'_>| {
        isatty(fd)
            && rustix::fs::fcntl_getfl(fd)
                .is_ok_and(|flags| flags & rustix::fs::OFlags::ACCMODE == rustix::fs::OFlags::RDWR)
    };
    streams.into_iter().find(usable)?.try_clone_to_owned().ok()
}

/// Whether standard input, output and error are all terminals.
pub fn interactive() -> bool {
    isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout()) && isatty(rustix::stdio::stderr())
}
