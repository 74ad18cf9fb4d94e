//! Pid 1 of the sandbox.
//!
//! It exists for two reasons. The sentry must not be pid 1, because an init of a PID namespace may not create siblings,
//! and guest processes are made as siblings. And the end of the sentry must end everything else: when pid 1 ends, the
//! host kernel kills the namespace. To the host it is the container's process. It ends with the container's exit
//! status. As long as it lives it holds the gofer and the lock that says that the container lives. The host finds the
//! container's files in its mount namespace, where no other process of the sandbox is (see `view`).

use crate::figures::Figures;
use crate::logging::Format;
use crate::messages::LifeMessage;
use crate::{launch::arguments, role, view};
use channel::Channel;
use confine::filter::{Arg, RUST_RUNTIME, Rule, allow, allow_when};
use confine::privileges;
use hostsys::signals::SignalFd;
use hostsys::spawn::{Groups, Namespaces, Program, spawn};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{WaitOptions, set_parent_process_death_signal, wait};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What every process needs that stands for a container on the host, beside the Rust run-time's own.
pub(crate) const STANDING: &[Rule] = &[
    allow(libc::SYS_poll, "waiting for the sentry, the gofer and the command line"),
    allow(libc::SYS_ppoll, "waiting for the sentry, the gofer and the command line"),
    allow(libc::SYS_read, "what signals have arrived"),
    allow(libc::SYS_write, "the exit status, into the file it holds the lock of"),
    allow_when(
        libc::SYS_prctl,
        &[&[Arg::Is(0, libc::PR_SET_PDEATHSIG as u32), Arg::IsLong(1, 0)]],
        "outliving the command line",
    ),
];

/// For the sentry's C library: no `rep movsb`, which takes 30 times as long on some processors where the destination is
/// just ahead of the source in its page. See docs/performance.md.
const COPIES: &std::ffi::CStr = c"GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x40000000";

const RULES: &[Rule] = &[
    allow_when(libc::SYS_wait4, &[&[Arg::Is(2, 0)], &[Arg::Is(2, libc::WNOHANG as u32)]], "reaping"),
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Is(3, libc::MSG_NOSIGNAL as u32), Arg::IsLong(4, 0)]],
        "the command line",
    ),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)]], "the command line"),
];

/// What pid 1 is started with, from descriptor 3 on.
pub struct Inherited {
    /// Passed on to the sentry.
    pub channel: OwnedFd,
    /// Our own executable.
    pub exe: OwnedFd,
    /// Leads to the gofer, which lives for as long as this is open.
    pub gofer: OwnedFd,
    /// Leads to the command line, with which this process ends unless told otherwise.
    pub life: OwnedFd,
    /// The file with the lock that says that the container lives, or any other.
    pub alive: OwnedFd,
    /// The file for a report of the sentry's death.
    pub crash: OwnedFd,
    /// The form of the log.
    pub format: Format,
}

/// Runs pid 1. Returns the sentry's exit status, or 128 and the signal that ended it.
pub fn run(inherited: Inherited) -> io::Result<i32> {
    let Inherited { channel, exe, gofer, life, alive, crash, format } = inherited;
    privileges::die_with_parent()?;
    let life = Channel::from_fd(life);
    // A parent that ended before that call has closed its end.
    if hung_up(&life)? {
        return Ok(0);
    }
    // Away from the caller's terminal: its signals are for the command line alone.
    rustix::process::setsid().ok();

    let args = arguments(role::BOOT, format);
    // Where procfs cannot be mounted, as in some containers, the sentry gets a socket without another end.
    let (figures, asks) = match Figures::new() {
        Ok((figures, asks)) => (Some(figures), asks),
        Err(error) => {
            log::debug!("the sentry does not learn what the host counts of its processes: {error}");
            (None, no_other_end()?)
        }
    };
    let fds = [stdin(), stdout(), stderr(), channel.as_fd(), asks.as_fd(), crash.as_fd()];
    // It leaves the host's files by itself.
    let program = Program {
        exe: exe.as_fd(),
        args: &args,
        env: &[COPIES.into()],
        fds: &fds,
        namespaces: Namespaces::MOUNT,
        groups: &Groups::default(),
    };
    let children = SignalFd::new(&[libc::SIGCHLD])?;
    let sentry = spawn(&program, |_, _| Ok(()))?;
    drop((channel, exe, asks));

    if !view::enter_as_told(&life)? {
        return Ok(0);
    }
    privileges::keep_only(CapabilitySet::empty())?;
    privileges::undumpable()?;
    privileges::die_with_parent()?;
    let filter = Figures::with_rules(figures.as_ref(), |own| {
        confine::filter::compile(&[RUST_RUNTIME, STANDING, RULES, own])
    })?;
    confine::filter::install(&filter)?;
    life.send(&LifeMessage::Shown, &[])?;
    hostsys::heap::shrink();
    hostsys::image::forget_start();
    let (status, signal) = attend(&children, sentry.pid, &gofer, life, figures)?;
    if let Some(text) = signal.and_then(crate::crash::end_by) {
        let _ = rustix::io::write(&crash, text.as_bytes());
    }
    // Only a container with a state directory has a reader for it.
    let _ = rustix::io::write(&alive, format!("{status}\n").as_bytes());
    Ok(status)
}

/// A socket that nothing answers on.
fn no_other_end() -> io::Result<OwnedFd> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    Ok(socketpair(AddressFamily::UNIX, kind, flags, None)?.0)
}

pub(crate) fn hung_up(channel: &Channel) -> io::Result<bool> {
    let mut polled = [PollFd::new(channel, PollFlags::empty())];
    poll(&mut polled, Some(&Default::default()))?;
    Ok(polled[0].revents().contains(PollFlags::HUP))
}

/// Waits for the end of the sentry, of the gofer, or of the command line while that still matters. Answers the sentry's
/// questions meanwhile. Gives the exit status, and the signal that has ended the sentry.
fn attend(
    children: &SignalFd,
    sentry: i32,
    gofer: &OwnedFd,
    life: Channel,
    mut figures: Option<Figures>,
) -> io::Result<(i32, Option<i32>)> {
    let mut life = Some(life);
    loop {
        let mut fds = vec![PollFd::new(children, PollFlags::IN), PollFd::new(gofer, PollFlags::empty())];
        let waits = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let asked = figures.as_ref().map(|figures| waits(figures.socket()));
        let told = life.as_ref().map(|life| waits(life.as_fd()));
        let (asked_at, told_at) = (fds.len(), fds.len() + usize::from(asked.is_some()));
        let (is_asked, is_told) = (asked.is_some(), told.is_some());
        fds.extend(asked.into_iter().chain(told));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready[0] {
            while children.read()?.is_some() {}
            if let Some(status) = reap(sentry)? {
                return Ok(status);
            }
        }
        if ready[1] {
            // Without it the container's mounts are no longer held together.
            return Ok((128, None));
        }
        if is_asked && ready[asked_at] && !figures.as_ref().is_some_and(Figures::answer) {
            figures = None;
        }
        if is_told
            && ready[told_at]
            && let Some(channel) = life.take()
        {
            match channel.recv() {
                Ok(Some((LifeMessage::Detach, _))) => {
                    set_parent_process_death_signal(None)?;
                    let _ = channel.send(&LifeMessage::Detached, &[]);
                }
                _ => return Ok((128, None)),
            }
        }
    }
}

/// Reaps every child that has ended; the sentry's status if it is among them, and the signal that ended it.
fn reap(sentry: i32) -> io::Result<Option<(i32, Option<i32>)>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == sentry => {
                let signal = status.terminating_signal();
                let code = status.exit_status().or(signal.map(|signo| 128 + signo)).unwrap_or(128);
                return Ok(Some((code, signal)));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}
