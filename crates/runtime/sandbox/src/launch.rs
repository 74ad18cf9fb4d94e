//! The command line's side of a start.

use crate::messages::Request;
use crate::role;
use bundle::Prepared;
use channel::{Channel, MAX_FDS};
use confine::ids::{Mapping, write_maps};
use hostsys::spawn::{Child, Namespaces, Program, spawn};
use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, memfd_create, open, openat};
use rustix::process::{Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a sandbox is started with, beside the specification.
pub struct Files {
    /// Standard input, output and error of the container, unless it has a terminal.
    pub stdio: [OwnedFd; 3],
    /// The user's terminal.
    pub console: Option<OwnedFd>,
    /// Where our own processes log, as their standard error.
    pub log: OwnedFd,
}

/// A started sandbox. Dropping it ends all its processes and waits for them.
pub struct Sandbox {
    pub(crate) channel: Channel,
    pub(crate) init: Process,
    /// Ends with the sandbox.
    pub(crate) gofer: Process,
}

/// Starts a sandbox. Called while the process has one thread only: its children are killed when that thread ends.
pub fn launch(prepared: &Prepared, files: &Files, mapping: Mapping) -> io::Result<Sandbox> {
    let spec = sealed(&serde_json::to_vec(&prepared.spec)?)?;
    let exe = openat(CWD, "/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (to_gofer, gofer_end) = Channel::pair()?;
    let (to_boot, boot_end) = Channel::pair()?;

    let base = [null.as_fd(), null.as_fd(), files.log.as_fd()];
    let start = |role: &str, fds: &[BorrowedFd<'_>]| {
        let fds: Vec<_> = base.iter().chain(fds).copied().collect();
        start_role(exe.as_fd(), role, &fds, mapping)
    };
    let gofer = start(role::GOFER, &[gofer_end.as_fd()])?;
    let init = start(role::INIT, &[boot_end.as_fd(), exe.as_fd()])?;
    drop((gofer_end, boot_end));

    let trees = gofer::request(&to_gofer, &prepared.trees)?;
    let mut fds = vec![spec.as_fd()];
    fds.extend(trees.iter().map(AsFd::as_fd));
    match &files.console {
        Some(console) => fds.push(console.as_fd()),
        None => fds.extend(files.stdio.iter().map(AsFd::as_fd)),
    }
    let mut rest = fds.as_slice();
    while !rest.is_empty() {
        let (batch, tail) = rest.split_at(rest.len().min(MAX_FDS));
        rest = tail;
        to_boot.send(&Request::Descriptors { last: rest.is_empty() }, batch)?;
    }
    Ok(Sandbox { channel: to_boot, init, gofer: gofer.holding(to_gofer) })
}

/// The arguments for a role's process, which say nothing about the container.
pub(crate) fn arguments(role: &str) -> [CString; 2] {
    [c"ringfence".into(), CString::new(role).unwrap_or_default()]
}

fn start_role(
    exe: BorrowedFd<'_>,
    role: &str,
    fds: &[BorrowedFd<'_>],
    mapping: Mapping,
) -> io::Result<Process> {
    let args = arguments(role);
    let program = Program { exe, args: &args, env: &[], fds, namespaces: Namespaces::ALL };
    match spawn(&program, |pid| write_maps(pid, mapping)) {
        Ok(child) => Ok(Process { child, channel: None, waited: None }),
        Err(error) => {
            Err(io::Error::other(format!("cannot start the {role} process in new namespaces: {error}")))
        }
    }
}

/// A memfd that can no longer change.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create("spec", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file.into())
}

/// A child of ours, killed and waited for when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Open for as long as the process is to live.
    channel: Option<Channel>,
    waited: Option<i32>,
}

impl Process {
    fn holding(mut self, channel: Channel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Waits for the end. The exit status, or 128 and the signal.
    pub(crate) fn wait(&mut self) -> io::Result<i32> {
        if let Some(status) = self.waited {
            return Ok(status);
        }
        loop {
            match waitid(WaitId::PidFd(self.child.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Ok(status) => {
                    let code = status.as_ref().and_then(WaitIdStatus::exit_status);
                    let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal);
                    let status = code.or(signal.map(|s| 128 + s)).unwrap_or(128);
                    self.waited = Some(status);
                    return Ok(status);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.channel = None;
        if self.waited.is_none() {
            let _ = pidfd_send_signal(&self.child.pidfd, Signal::KILL);
            let _ = self.wait();
        }
    }
}
