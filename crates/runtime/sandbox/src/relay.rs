//! The command line in the foreground: signals and window sizes in, the exit status out.

use crate::launch::Sandbox;
use crate::messages::{Event, Request, exit_code};
use crate::terminal;
use hostsys::signals::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spec::{StartError, Target};
use std::io;
use std::os::fd::OwnedFd;

/// Time after the start after which this process gives back the memory that only the start needed. Doing it at once would slow
/// down the end of a container that lives for milliseconds.
const SETTLED: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The exit status: the program's own, or 128 and the signal that ended it.
    Exited(u8),
    /// It never ran.
    NotStarted(StartError),
    /// One of the sandbox's own processes ended before the container did: which, and how.
    Lost(String),
}

/// Blocks every signal that a user or a supervisor may send, to be passed on by [`run`].
/// Call it before [`launch`](crate::launch::launch), so that none is lost.
pub fn block_signals() -> io::Result<SignalFd> {
    let synchronous = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    let own = [
        libc::SIGCHLD,
        libc::SIGPIPE,
        libc::SIGABRT,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGURG,
    ];
    let signals: Vec<i32> = (1..=31)
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
        .filter(|signo| ![libc::SIGKILL, libc::SIGSTOP].contains(signo))
        .filter(|signo| !synchronous.contains(signo) && !own.contains(signo))
        .collect();
    SignalFd::new(&signals)
}

/// Passes signals on until the sandbox ends. `console` is the user's terminal, if the container has it.
/// `on_start` is called when the first process is about to run.
pub fn run(
    mut sandbox: Sandbox,
    signals: &SignalFd,
    console: Option<&OwnedFd>,
    mut on_start: impl FnMut(),
) -> io::Result<Outcome> {
    let mut outcome = None;
    let mut open = true;
    let (mut started, mut settled) = (false, false);
    loop {
        let events = if open { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&sandbox.init.child.pidfd, PollFlags::IN),
            PollFd::new(&sandbox.gofer.child.pidfd, PollFlags::IN),
            PollFd::new(&sandbox.channel, events),
        ];
        // A closed channel would report a hang-up for ever.
        let watched = if open { &mut fds[..] } else { &mut fds[..3] };
        match poll(watched, if started && !settled { Some(&SETTLED) } else { None }) {
            Ok(0) => {
                hostsys::heap::shrink();
                hostsys::image::forget_start();
                settled = true;
                continue;
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let ready = [0, 1, 2, 3].map(|i: usize| !fds[i].revents().is_empty());
        if open && ready[3] {
            match sandbox.channel.recv()? {
                Some((Event::Started, _)) => {
                    on_start();
                    started = true;
                }
                Some((Event::Ready | Event::Done | Event::Refused(_), _)) => {}
                Some((Event::Failed(error), _)) => outcome = Some(Outcome::NotStarted(crate::shown(error))),
                Some((
                    Event::Executed { .. }
                    | Event::Processes { .. }
                    | Event::Metrics { .. }
                    | Event::Refusals { .. }
                    | Event::Cored { .. }
                    | Event::Layers { .. }
                    | Event::WrittenBack { .. }
                    | Event::TraceSessions { .. },
                    _,
                )) => {
                    log::warn!("unexpected event");
                }
                // Of one that could not be started its end says nothing new.
                Some((Event::Exited { status }, _)) => {
                    outcome.get_or_insert(Outcome::Exited(exit_code(status)));
                }
                None => open = false,
            }
            continue;
        }
        if ready[1] {
            let status = sandbox.init.wait()?;
            if sandbox.init.signal == Some(libc::SIGKILL) {
                // The container was killed as a whole: by `kill`, or by the host for want of memory.
                return Ok(outcome.unwrap_or(Outcome::Exited(128 + libc::SIGKILL as u8)));
            }
            if sandbox.member.is_some() {
                return Ok(outcome.unwrap_or(Outcome::Exited(status as u8)));
            }
            return Ok(outcome.unwrap_or_else(|| lost(status)));
        }
        if ready[2] {
            // Without it the container's mounts are no longer held together.
            let status = sandbox.gofer.wait()?;
            return Ok(
                outcome.unwrap_or_else(|| Outcome::Lost(format!("the gofer ended with status {status}")))
            );
        }
        if ready[0] {
            while let Some(received) = signals.read()? {
                let request = match (received.signo, console) {
                    (libc::SIGWINCH, Some(tty)) => Request::Resize { size: terminal::size(tty) },
                    (signo, _) => Request::Signal { signo, to: Target::Foreground },
                };
                // The sandbox may be gone already; its end is then the next thing seen.
                let _ = sandbox.channel.send(&request, &[]);
            }
        }
    }
}

/// What the sentry's end means, which nothing announced.
fn lost(status: i32) -> Outcome {
    const KILLED: i32 = 128 + libc::SIGKILL;
    const TOO_LARGE: i32 = 128 + libc::SIGXFSZ;
    match status {
        KILLED => {
            log::warn!(
                "the sandbox was killed, most likely because its programs and files in memory reached its memory limit"
            );
            Outcome::Exited(KILLED as u8)
        }
        TOO_LARGE => Outcome::Lost(
            "it may not have files in memory that large: raise the file size limit (ulimit -f)".into(),
        ),
        _ => Outcome::Lost(format!("the sentry ended with status {status}")),
    }
}
