//! The process that writes back: beside the sandbox, with the rights for one directory.
//!
//! It starts in namespaces of its own, moves into a tree that holds only the directory, keeps the capabilities that
//! owners, modes and devices need, and enters a seccomp filter. Then it waits for streams of changes on its socket,
//! carries out each, and answers. It ends when the socket is closed. An incomplete stream changes nothing.
//!
//! An answer is a byte (0: done, 1: not), the length of a text and the text: what was left out, or why it was not done.

use crate::proof::Proof;
use crate::recover::{Repair, begin, recover};
use crate::skipped::Skipped;
use crate::{apply, filter, stage};
use abi::Errno;
use channel::Channel;
use confine::hidden::{hidden_below, hide, prepare};
use confine::privileges;
use confine::root::{Stage, reference};
use hostsys::mounts::{MountAttrs, make_private, set_attributes};
use overlay_diff::{Reader, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, mkdirat};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What writing back takes: the owner and mode of any file, devices, capabilities of files.
const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SETFCAP);

/// Name of the directory in the process's root.
const ROOT: &str = "root";
/// Longest text of an answer.
const TEXT_MAX: usize = 1000;
/// Bytes that are read at once.
const BUFFER: usize = 256 << 10;

/// What it is told first: the directory, whether all that is mounted below is none of the container's, and whether what gives rights
/// on the host is written back.
type Order = (Vec<u8>, bool, bool);
/// What it answers.
type Answer = Result<Repair, String>;

/// Has the process at the other end take a directory, and finish what an earlier write-back has left there. Does not
/// wait for it any longer once `stop` can be read: Interrupted. What is below a mount of the host is not written to;
/// with `alone` no other mount is seen at all. Unless `privileged`, devices, set-ID bits and capabilities of files are left out.
pub fn set_up(
    channel: &Channel,
    root: &Path,
    alone: bool,
    privileged: bool,
    stop: Option<BorrowedFd<'_>>,
) -> io::Result<Repair> {
    channel.send::<Order>(&(root.as_os_str().as_bytes().to_vec(), alone, privileged), &[])?;
    if let Some(stop) = stop {
        let mut fds = [PollFd::new(channel, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        if fds[0].revents().is_empty() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "ended by a signal"));
        }
    }
    match channel.recv::<Answer>()? {
        Some((told, _)) => told.map_err(io::Error::other),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process that writes back has ended")),
    }
}

/// Runs the process: `channel` leads to the one that started it, `stream` to the sentry.
pub fn serve(channel: &Channel, stream: OwnedFd, proof: &Proof) -> io::Result<()> {
    rustix::process::setsid().ok();
    let Some(((path, alone, privileged), _)) = channel.recv::<Order>()? else { return Ok(()) };
    let path = PathBuf::from(OsString::from_vec(path));
    let root = match enter(&path, alone) {
        Ok(root) => root,
        Err(error) => return channel.send::<Answer>(&Err(format!("{}: {error}", path.display())), &[]),
    };
    let repaired = recover(&root, proof, &|| awaited(channel));
    let repaired = repaired.map_err(|error| format!("{}: {error}", path.display()));
    let usable = repaired.is_ok();
    channel.send::<Answer>(&repaired, &[])?;
    hostsys::heap::shrink();
    if usable { wait(&root, stream, proof, privileged) } else { Ok(()) }
}

/// Fails with EINTR when the other end has gone.
fn awaited(channel: &Channel) -> abi::Result<()> {
    let mut fds = [PollFd::new(channel, PollFlags::empty())];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Errno::EINTR),
        Err(error) => Err(Errno::from_raw(error.raw_os_error())),
    }
}

/// Makes the directory everything that there is, gives up all else, and opens it.
fn enter(path: &Path, alone: bool) -> io::Result<OwnedFd> {
    let mounts = mountinfo::parse(&std::fs::read("/proc/self/mountinfo")?);
    // A mount inherited from the host's namespace can only be copied together with what is mounted on it.
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(CWD, path, flags)?;
    let attrs = MountAttrs::NOSUID | MountAttrs::NODEV | MountAttrs::NOEXEC | MountAttrs::NOSYMFOLLOW;
    set_attributes(mount.as_fd(), attrs, true)?;
    make_private(mount.as_fd())?;
    let stage = Stage::new()?;
    mkdirat(stage.dir(), ROOT, Mode::from_raw_mode(0o555))?;
    move_mount(&mount, "", stage.dir(), ROOT, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let points = hidden_below(&mounts, path, alone);
    if !points.is_empty() {
        prepare(&stage)?;
        hide(&stage, ROOT, path, &points)?;
    }
    let root = reference(stage.dir(), ROOT)?;
    stage.enter()?;
    // Directories below each other stay open while they are filled.
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    // Modes are set as they come.
    rustix::process::umask(Mode::empty());
    privileges::keep_only(CAPABILITIES)?;
    privileges::undumpable()?;
    confine::filter::install(&confine::filter::compile(&[confine::filter::RUST_RUNTIME, filter::RULES])?)?;
    Ok(root)
}

/// Takes one stream after the other until the socket is closed.
fn wait(root: &OwnedFd, stream: OwnedFd, proof: &Proof, privileged: bool) -> io::Result<()> {
    let mut to = File::from(stream.try_clone()?);
    let mut from = BufReader::with_capacity(BUFFER, File::from(stream));
    while !from.fill_buf()?.is_empty() {
        let mut reader = Reader::new(&mut from);
        let done = write_back(root, proof, privileged, &mut reader);
        if done.is_err() {
            // The other end goes on writing until all is said.
            drain(&mut reader)?;
        }
        answer(&mut to, &done)?;
    }
    Ok(())
}

/// Reads the rest of a stream.
fn drain<R: io::Read>(reader: &mut Reader<R>) -> io::Result<()> {
    if reader.is_over() {
        return Ok(());
    }
    while !matches!(reader.next_record()?, Record::End | Record::Abort) {}
    Ok(())
}

/// Carries out one stream.
pub(crate) fn write_back<R: io::Read>(
    root: &OwnedFd,
    proof: &Proof,
    privileged: bool,
    reader: &mut Reader<R>,
) -> io::Result<Skipped> {
    let mut staging = begin(root, proof, &|| Ok(()))?;
    let staged =
        stage::all(&staging, privileged, reader).and_then(|staged| staging.complete().map(|()| staged));
    let Ok((mut skipped, own)) = staged else {
        // Nothing has changed.
        let removed = staging.remove();
        return staged.map(|(skipped, _)| skipped).inspect_err(|_| drop(removed));
    };
    apply::all(&staging, &mut skipped)?;
    staging.times = own.unwrap_or(staging.times);
    staging.remove()?;
    Ok(skipped)
}

fn answer(to: &mut impl Write, done: &io::Result<Skipped>) -> io::Result<()> {
    let (status, text) = match done {
        Ok(skipped) => (0, skipped.to_string()),
        Err(error) => (1, error.to_string()),
    };
    let text = &text.as_bytes()[..text.len().min(TEXT_MAX)];
    let mut bytes = vec![status];
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text);
    to.write_all(&bytes)
}
