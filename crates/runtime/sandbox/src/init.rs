//! Pid 1 of the sandbox.
//!
//! It is there so that the sentry is not pid 1 (an init of a pid namespace may
//! not create siblings, which is how guest processes come to be), and so that
//! the end of the sentry ends everything else: when pid 1 ends, the kernel
//! kills the namespace.

use crate::{launch::arguments, role};
use confine::filter::{Arg, RUST_RUNTIME, Rule, allow_when};
use confine::{privileges, root};
use hostsys::spawn::{Namespaces, Program, spawn};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{WaitOptions, wait};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Beside the Rust run-time's own.
const RULES: &[Rule] = &[allow_when(
    libc::SYS_wait4,
    &[&[Arg::Is(0, u32::MAX), Arg::Is(2, 0)]],
    "waiting for the sentry, reaping",
)];

/// Runs pid 1. `channel` is passed on to the sentry, `exe` is our own executable.
/// Returns the sentry's exit status, or 128 and the signal that ended it.
pub fn run(channel: OwnedFd, exe: OwnedFd) -> io::Result<i32> {
    privileges::die_with_parent()?;
    // A parent that ended before that call has closed its end.
    let mut polled = [PollFd::new(&channel, PollFlags::empty())];
    poll(&mut polled, Some(&Default::default()))?;
    if polled[0].revents().contains(PollFlags::HUP) {
        return Ok(0);
    }
    // Away from the caller's terminal: its signals are for the command line alone.
    rustix::process::setsid().ok();
    // The sentry reads its own memory map once, before any guest exists, and has no /proc for that.
    let own = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", own, Mode::empty())?;
    root::enter_empty()?;

    let args = arguments(role::BOOT);
    let fds = [stdin(), stdout(), stderr(), channel.as_fd(), proc.as_fd()];
    let program =
        Program { exe: exe.as_fd(), args: &args, env: &[], fds: &fds, namespaces: Namespaces::NONE };
    let sentry = spawn(&program, |_| Ok(()))?;
    drop((channel, exe, proc));

    privileges::keep_only(CapabilitySet::empty())?;
    privileges::undumpable()?;
    privileges::die_with_parent()?;
    confine::filter::install(&confine::filter::compile(&[RUST_RUNTIME, RULES])?)?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == sentry.pid => {
                let signal = status.terminating_signal().map(|signo| 128 + signo);
                return Ok(status.exit_status().or(signal).unwrap_or(128));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
