//! The parts that a container or process inherits from the process that starts it: standard streams, descriptors,
//! resource limits.

use crate::{Error, Result, Settings};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::copies::Copies;
use sandbox::{console, terminal};
use spec::{ProcessSpec, RlimitSpec, WindowSize};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The host's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The standard streams of this process.
pub(crate) fn stdio() -> io::Result<[OwnedFd; 3]> {
    let clone = |fd: BorrowedFd<'_>| fd.try_clone_to_owned();
    Ok([clone(rustix::stdio::stdin())?, clone(rustix::stdio::stdout())?, clone(rustix::stdio::stderr())?])
}

/// Standard streams that lead nowhere.
pub(crate) fn no_stdio() -> io::Result<[OwnedFd; 3]> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok([null.try_clone()?, null.try_clone()?, null])
}

/// Streams of programs that run beside the one that has the standard streams: no input as long as the descriptor that comes with
/// them is open, and errors alone.
pub(crate) fn output_alone() -> io::Result<([OwnedFd; 3], OwnedFd)> {
    let (input, open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let error = || rustix::stdio::stderr().try_clone_to_owned();
    Ok(([input, error()?, error()?], open))
}

/// A descriptor of the caller, and the number that it gets inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedFd {
    /// In the caller.
    pub outside: i32,
    /// In the container.
    pub inside: i32,
}

/// The descriptors that the caller passed beside the standard streams, in the order of their numbers inside: as
/// `--preserve-fds` counts them, then those of `--pass-fd`.
pub(crate) fn preserved(count: u32, passed: &[PassedFd]) -> Result<Vec<OwnedFd>> {
    let counted = (0..count as i32).map(|n| (3 + n, format!("--preserve-fds {count}")));
    let mut named = passed.to_vec();
    named.sort_by_key(|fd| fd.inside);
    for (fd, expected) in named.iter().zip(3 + count as i32..) {
        if fd.inside != expected {
            return Err(format!(
                "--pass-fd {}:{}: the numbers inside follow each other, from 3 or the last of --preserve-fds on; use {expected}",
                fd.outside, fd.inside
            )
            .into());
        }
    }
    let named = named.iter().map(|fd| (fd.outside, format!("--pass-fd {}:{}", fd.outside, fd.inside)));
    counted
        .chain(named)
        .map(|(fd, flag)| {
            hostsys::inherited::take(fd).map_err(|error| format!("{flag}: descriptor {fd}: {error}").into())
        })
        .collect()
}

/// The caller's own terminal, for a container in the foreground that wants one.
pub(crate) fn own_terminal() -> Result<OwnedFd> {
    terminal::of_standard_streams().ok_or_else(|| {
        Error::from(
            "process.terminal is true, but no standard stream is a terminal; \
             set it to false, or name a --console-socket",
        )
    })
}

/// The same for what `--tty` asks for.
pub(crate) fn check_tty(socket: Option<&Path>, detached: bool) -> Result<()> {
    if socket.is_some() || detached || terminal::of_standard_streams().is_some() {
        return Ok(());
    }
    Err("--tty: no standard stream is a terminal; leave it out, or name a --console-socket".into())
}

/// The terminal of a container or process: a new one, with its other end sent to `socket`, or the caller's own.
pub(crate) fn terminal(
    wanted: bool,
    socket: Option<&Path>,
    size: WindowSize,
    detached: bool,
) -> Result<Option<OwnedFd>> {
    match (wanted, socket) {
        (true, Some(socket)) => match console::open(socket, size) {
            Ok(tty) => Ok(Some(tty)),
            Err(error) => Err(format!("console socket {}: {error}", socket.display()).into()),
        },
        (true, None) if detached => {
            Err("cannot allocate tty if ringfence will detach without setting console socket".into())
        }
        (true, None) => own_terminal().map(Some),
        (false, Some(_)) => {
            Err("cannot use console socket if ringfence will not detach or allocate tty".into())
        }
        (false, None) => Ok(None),
    }
}

/// A terminal for a process if standard input or output is not the user's terminal, and the copies between these and it.
pub(crate) fn copies(console: Option<&OwnedFd>) -> Result<(Option<OwnedFd>, Option<Copies>)> {
    Ok(match console {
        Some(users) => Copies::begin(users)?.unzip(),
        None => (None, None),
    })
}

/// This process has the limit on descriptors that those of a sandbox are to have, until this is dropped.
pub(crate) struct Limited(Rlimit);

impl Drop for Limited {
    fn drop(&mut self) {
        // Without the privilege this process keeps it, and needs no more.
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

/// Sets the limit that processes which are started from now on get, if one was chosen.
pub(crate) fn limit_descriptors(settings: &Settings) -> Result<Option<Limited>> {
    let Some(most) = settings.descriptors else { return Ok(None) };
    let before = getrlimit(Resource::Nofile);
    let most = before.maximum.map_or(most, |hard| hard.min(most));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("--fdlimit {most}: {error}"))?;
    Ok(Some(Limited(before)))
}

/// The caller's resource limits.
pub fn limits() -> Vec<RlimitSpec> {
    // In the order of their numbers.
    let resources = [
        Resource::Cpu,
        Resource::Fsize,
        Resource::Data,
        Resource::Stack,
        Resource::Core,
        Resource::Rss,
        Resource::Nproc,
        Resource::Nofile,
        Resource::Memlock,
        Resource::As,
        Resource::Locks,
        Resource::Sigpending,
        Resource::Msgqueue,
        Resource::Nice,
        Resource::Rtprio,
        Resource::Rttime,
    ];
    let spec = |(number, resource): (usize, &Resource)| {
        let limit = getrlimit(*resource);
        RlimitSpec {
            resource: number as u32,
            soft: limit.current.unwrap_or(u64::MAX),
            hard: limit.maximum.unwrap_or(u64::MAX),
        }
    };
    resources.iter().enumerate().map(spec).collect()
}

/// Gives a process the caller's limits where its configuration names none, as a child of the caller would have them.
pub(crate) fn inherit_limits(process: &mut ProcessSpec) {
    for limit in limits() {
        if process.rlimits.iter().all(|known| known.resource != limit.resource) {
            process.rlimits.push(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbered_as_the_kernel_does() {
        let nofile = &limits()[libc::RLIMIT_NOFILE as usize];
        assert_eq!(nofile.resource, libc::RLIMIT_NOFILE);
        assert_eq!(nofile.soft, getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    }

    #[test]
    fn a_console_socket_needs_a_terminal() {
        let size = WindowSize::default();
        let refused = |wanted, socket: Option<&str>, detached| {
            terminal(wanted, socket.map(Path::new), size, detached).unwrap_err().message().to_string()
        };
        assert!(refused(false, Some("/s"), true).contains("will not detach or allocate tty"));
        assert!(refused(true, None, true).contains("without setting console socket"));
        assert!(refused(true, Some("/nonexistent"), true).starts_with("console socket /nonexistent: "));
        assert!(terminal(false, None, size, true).unwrap().is_none());
    }
}
