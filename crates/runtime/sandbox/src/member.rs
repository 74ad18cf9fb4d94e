//! A container in another one's sandbox: the process that stands for it on the host.
//!
//! The sentry is the other container's. Like init, this process holds the gofer's socket, the lock that says that the
//! container lives, and the connection to the command line. Over one more socket the sentry reports how the container
//! ended. When either end of that socket is closed, the other side ends as well, so neither the container nor this
//! process can be left over.

use crate::init::{STANDING, hung_up};
use crate::launch::{HostHandles, Sandbox, Starter, in_network};
use crate::logging::Sink;
use crate::messages::{Event, LifeMessage, Request, exit_code};
use crate::{role, terminal, view};
use channel::Channel;
use confine::filter::{Arg, RUST_RUNTIME, Rule, allow_when};
use confine::ids::Mapping;
use confine::privileges;
use hostsys::signals::SignalFd;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::set_parent_process_death_signal;
use rustix::thread::CapabilitySet;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long the sandbox may take to set the container up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Exit status of a container that ended with its sandbox.
const KILLED: i32 = 128 + libc::SIGKILL;

/// Beside those of every process that stands for a container.
const RULES: &[Rule] = &[
    allow_when(libc::SYS_ioctl, &[&[Arg::Is(1, libc::TIOCGWINSZ as u32)]], "the size of the terminal"),
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Is(3, libc::MSG_NOSIGNAL as u32), Arg::IsLong(4, 0)]],
        "the command line, the sentry",
    ),
    allow_when(
        libc::SYS_recvmsg,
        &[&[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)]],
        "the command line, the sentry",
    ),
];

/// As [`launch`](crate::launch::launch), for a container that joins the sandbox with its control socket in `dir`.
/// `console` is its terminal if no command line stays to watch the terminal's size.
pub fn join(
    log: &Sink,
    mapping: Mapping,
    handles: HostHandles<'_>,
    sandbox: (BorrowedFd<'_>, &str),
    console: Option<BorrowedFd<'_>>,
) -> io::Result<Sandbox> {
    let channel = Channel::connect(sandbox.0, sandbox.1)?;
    channel.set_patience(Some(PATIENCE))?;
    let mut starter = Starter::new(log, mapping, (handles.groups, handles.joined))?;
    let (gofer, to_gofer) = starter.gofer()?;
    let (watch, sentry_end) = Channel::pair()?;
    let (life, member_end) = Channel::pair()?;
    let null = starter.null()?;
    let alive = handles.alive.unwrap_or(null.as_fd());
    let mut inherited = vec![watch.as_fd(), to_gofer.as_fd(), member_end.as_fd(), alive];
    inherited.extend(console);
    let init = in_network(handles.network, |namespaces| starter.start(role::MEMBER, &inherited, namespaces))?;
    Ok(Sandbox {
        channel,
        init,
        gofer,
        net_gofer: None,
        net_end: Cell::default(),
        life,
        member: Some(Cell::new(Some(sentry_end))),
        view: Cell::default(),
        view_state: Cell::default(),
    })
}

/// What the process is started with, from descriptor 3 on.
pub struct Inherited {
    /// Leads to the sentry.
    pub watch: OwnedFd,
    /// Leads to the gofer, which lives for as long as this is open.
    pub gofer: OwnedFd,
    /// Leads to the command line, with which this process ends unless told otherwise.
    pub life: OwnedFd,
    /// The file with the lock that says that the container lives, or any other.
    pub alive: OwnedFd,
    /// The container's terminal.
    pub console: Option<OwnedFd>,
}

/// Runs the process; its exit status is the container's.
pub fn run(inherited: Inherited) -> io::Result<i32> {
    let Inherited { watch, gofer, life, alive, console } = inherited;
    privileges::die_with_parent()?;
    let (watch, life) = (Channel::from_fd(watch), Channel::from_fd(life));
    // A parent that ended before that call has closed its end.
    if hung_up(&life)? {
        return Ok(0);
    }
    rustix::process::setsid().ok();
    let window = console.map(take_terminal).transpose()?.flatten();
    if !view::enter_as_told(&life)? {
        return Ok(0);
    }
    privileges::keep_only(CapabilitySet::empty())?;
    privileges::undumpable()?;
    privileges::die_with_parent()?;
    confine::filter::install(&confine::filter::compile(&[RUST_RUNTIME, STANDING, RULES])?)?;
    life.send(&LifeMessage::Shown, &[])?;
    hostsys::heap::shrink();
    hostsys::image::forget_start();
    let status = attend(&watch, &gofer, life, window)?;
    let _ = rustix::io::write(&alive, format!("{status}\n").as_bytes());
    Ok(status)
}

/// Makes a terminal this process's, so that the process receives changes of its size; `None` for the terminal of
/// another session.
fn take_terminal(tty: OwnedFd) -> io::Result<Option<(OwnedFd, SignalFd)>> {
    match rustix::process::ioctl_tiocsctty(&tty) {
        Ok(()) => Ok(Some((tty, SignalFd::new(&[libc::SIGWINCH, libc::SIGHUP])?))),
        Err(rustix::io::Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the end of the container, of the sandbox, of the gofer, or of the command line while that still matters.
fn attend(
    watch: &Channel,
    gofer: &OwnedFd,
    life: Channel,
    window: Option<(OwnedFd, SignalFd)>,
) -> io::Result<i32> {
    let mut life = Some(life);
    loop {
        let mut fds = vec![PollFd::new(watch, PollFlags::IN), PollFd::new(gofer, PollFlags::empty())];
        fds.extend(window.as_ref().map(|(_, signals)| PollFd::new(signals, PollFlags::IN)));
        fds.extend(life.as_ref().map(|life| PollFd::new(life, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            return Ok(match watch.recv() {
                Ok(Some((Event::Exited { status }, _))) => exit_code(status).into(),
                _ => KILLED,
            });
        }
        if ready[1] {
            // Without it the container's mounts are no longer held together.
            return Ok(128);
        }
        if let Some((tty, signals)) = &window
            && ready[2]
        {
            while let Some(received) = signals.read()? {
                if received.signo == libc::SIGWINCH {
                    let _ = watch.send(&Request::Resize { size: terminal::size(tty) }, &[]);
                }
            }
        }
        if life.is_some() && ready.last() == Some(&true) {
            match life.take().map(|channel| (channel.recv(), channel)) {
                Some((Ok(Some((LifeMessage::Detach, _))), channel)) => {
                    set_parent_process_death_signal(None)?;
                    let _ = channel.send(&LifeMessage::Detached, &[]);
                }
                _ => return Ok(128),
            }
        }
    }
}
