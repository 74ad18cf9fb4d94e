//! The gofer: the process that owns a container's view of the host's files.
//!
//! It runs in namespaces of its own, builds a tree of nothing but the
//! container's directories, moves into it, and hands out one descriptor per
//! directory. From then on it holds no capability, sits under a seccomp filter
//! that lets it wait and end, and ends when its socket is closed.
//!
//! [`serve`] is the gofer's side, [`request`] the side of the process that needs the trees.

#![forbid(unsafe_code)]

mod again;
mod files;
mod filter;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod places;
mod sockets;
mod tree;

use again::{Opener, OwnFiles};
use bundle::HostTree;
use channel::{Channel, MAX_FDS};
use confine::privileges;
use confine::root::private_tmpfs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use serde::{Deserialize, Serialize};
use spec::HostUds;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Descriptors that there is room for from the start where files are served.
const DESCRIPTORS: u32 = 8192;

/// What is sent to a gofer.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    trees: Vec<HostTree>,
    /// What it is to do for the sandbox later.
    wanted: Wanted,
    /// Copies of the trees' mounts follow, in their order.
    cloned: bool,
}

/// What a gofer does for a sandbox beside building its trees.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// With Unix sockets in the trees.
    pub sockets: HostUds,
    /// It serves the trees' files by the protocol `fileproto`. Otherwise the sandbox gets the directories themselves.
    pub files: Option<Files>,
    /// It opens files of the trees once more that the sandbox has open.
    pub opens: bool,
}

/// How files are served.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Files {
    /// FIFOs are opened for reading and writing.
    pub fifos: bool,
}

/// Some of the copies that were announced; more follow unless `last`.
#[derive(Debug, Serialize, Deserialize)]
struct Clones {
    last: bool,
}

/// What it may be told after that.
#[derive(Debug, Serialize, Deserialize)]
enum LaterRequest {
    /// To outlive the process that started it. The socket alone decides from then on.
    Detach,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// Some of the descriptors, in order; more follow unless `last`.
    Trees { last: bool },
    /// Why there are none.
    Failed(String),
    /// It no longer ends with its parent.
    Detached,
}

/// Has the gofer at the other end live as long as a process holds that end, also after the process that started the
/// gofer has ended.
pub fn detach(channel: &Channel) -> io::Result<()> {
    channel.send(&LaterRequest::Detach, &[])?;
    match channel.recv()? {
        Some((Reply::Detached, _)) => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gofer ended")),
    }
}

/// Asks the gofer at the other end for descriptors of `trees`, in their order. Where it serves their files, each is a channel of
/// its protocol (`fileproto`), and one more leads to an empty tree in memory. Where it is to do something with Unix sockets in the
/// trees, one more is the socket for that (`netproto::unix`). Where it is to open files once more, the last one is a channel for
/// that alone. A gofer with `other_users` than the caller
/// may not be able to reach the trees; it gets them from the caller if that one may copy mounts. Of mounts that map owners it
/// always gets the caller's copies.
pub fn request(
    channel: &Channel,
    trees: &[HostTree],
    wanted: Wanted,
    other_users: bool,
) -> io::Result<Vec<OwnedFd>> {
    // In the namespaces of the gofer no mount of the host can be copied without those below it.
    let alone = |tree: &HostTree| tree.overlay.is_some() || !tree.recursive && !tree.is_file;
    let clones = match trees.iter().any(|tree| tree.id_map.is_some()) {
        true => Some(tree::clone_all(trees)?),
        // The caller has the rights that an overlay of the host takes, if anything has.
        false if other_users || trees.iter().any(alone) => tree::clone_all(trees).ok(),
        false => None,
    };
    channel.send(&Request { trees: trees.to_vec(), wanted, cloned: clones.is_some() }, &[])?;
    if let Some(clones) = &clones {
        let clones: Vec<_> = clones.iter().map(AsFd::as_fd).collect();
        send_all(channel, &clones, |last| Clones { last })?;
    }
    let more = [wanted.files.is_some(), wanted.sockets.any(), wanted.opens];
    let expected = trees.len() + more.into_iter().filter(|wanted| *wanted).count();
    let mut fds = Vec::new();
    loop {
        match channel.recv()? {
            Some((Reply::Trees { last }, batch)) => {
                fds.extend(batch);
                if last && fds.len() == expected {
                    return Ok(fds);
                }
                if last || fds.len() > expected {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong number of descriptors"));
                }
            }
            Some((Reply::Failed(message), _)) => return Err(io::Error::other(message)),
            Some((Reply::Detached, _)) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "unexpected answer"));
            }
            None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the gofer ended")),
        }
    }
}

/// Runs the gofer until the other end of `channel` is closed. The process is
/// single-threaded and in user, mount, pid, network, ipc and uts namespaces of its own.
pub fn serve(channel: &Channel) -> io::Result<()> {
    privileges::die_with_parent()?;
    rustix::process::setsid().ok();
    let Some((Request { trees, wanted, cloned }, _)) = channel.recv()? else { return Ok(()) };
    let clones = if cloned { Some(receive_clones(channel)?) } else { None };
    let own = OwnFiles::find();
    let (fds, mounts) = match tree::build(&trees, clones) {
        Ok(built) => built,
        Err(error) => return channel.send(&Reply::Failed(error), &[]),
    };
    let own = own.inspect_err(|error| log::warn!("gofer: files cannot be opened once more: {error}")).ok();
    let socket = |wanted: bool| match wanted {
        true => sockets::pair().map(|(theirs, ours)| (Some(theirs), Some(ours))),
        false => Ok((None, None)),
    };
    let (their_sockets, mut our_sockets) = socket(wanted.sockets.any())?;
    let (their_opener, our_opener) = socket(wanted.opens)?;
    let (mut served, ends, mut opener) = match wanted.files {
        Some(files) => {
            let (served, ends) = serve_files(&trees, &fds, files, own)?;
            (served, ends, None)
        }
        None => (
            files::Files::default(),
            Vec::new(),
            our_opener.zip(own).map(|(end, own)| (end, Opener::new(own, mounts))),
        ),
    };
    confine(wanted)?;
    let given = if ends.is_empty() { &fds } else { &ends };
    let all: Vec<_> = given.iter().chain(&their_sockets).chain(&their_opener).map(AsFd::as_fd).collect();
    send_all(channel, &all, |last| Reply::Trees { last })?;
    drop((their_sockets, their_opener, ends));
    hostsys::heap::shrink();
    hostsys::image::forget_start();
    // The descriptors stay open: with them the mounts stay in this namespace for as long as the container lives.
    loop {
        if our_sockets.is_some() || opener.is_some() || wanted.files.is_some() {
            let mut ends = vec![channel.as_fd()];
            ends.extend(our_sockets.as_ref().map(AsFd::as_fd));
            ends.extend(opener.as_ref().map(|(end, _)| end.as_fd()));
            let ready = served.run(&ends)?;
            let at = 1 + usize::from(our_sockets.is_some());
            // A sentry that is gone, or talks nonsense, gets no more.
            if let Some((end, open)) = opener.as_mut().filter(|_| ready.get(at) == Some(&true)) {
                if !open.serve(end).unwrap_or(false) {
                    opener = None;
                }
                continue;
            }
            if let Some(end) = our_sockets.as_ref().filter(|_| ready.get(1) == Some(&true)) {
                if !sockets::serve(end, &fds, wanted.sockets).unwrap_or(false) {
                    our_sockets = None;
                }
                continue;
            }
        }
        let Some((LaterRequest::Detach, _)) = channel.recv()? else { return Ok(()) };
        rustix::process::set_parent_process_death_signal(None)?;
        channel.send(&Reply::Detached, &[])?;
    }
}

/// Sends descriptors, as many at a time as a message takes.
fn send_all<T: Serialize>(
    channel: &Channel,
    fds: &[BorrowedFd<'_>],
    message: impl Fn(bool) -> T,
) -> io::Result<()> {
    let mut rest = fds;
    loop {
        let (batch, tail) = rest.split_at(rest.len().min(MAX_FDS));
        rest = tail;
        channel.send(&message(rest.is_empty()), batch)?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn receive_clones(channel: &Channel) -> io::Result<Vec<OwnedFd>> {
    let mut clones = Vec::new();
    loop {
        let Some((Clones { last }, batch)) = channel.recv()? else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        clones.extend(batch);
        if last {
            return Ok(clones);
        }
    }
}

/// The connections by which files are served, and the sandbox's ends of them.
fn serve_files(
    trees: &[HostTree],
    fds: &[OwnedFd],
    Files { fifos }: Files,
    own: Option<OwnFiles>,
) -> io::Result<(files::Files, Vec<OwnedFd>)> {
    let (mut served, mut ends) = (files::Files::new(own), Vec::new());
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    if let Some(any) = fds.first() {
        // As many directories as a sandbox keeps.
        hostsys::process::reserve_descriptors(any.as_fd(), DESCRIPTORS);
    }
    for (tree, fd) in trees.iter().zip(fds) {
        ends.push(served.start(fd, files::Options { fifos, readonly: tree.readonly })?);
    }
    ends.push(served.start(&private_tmpfs()?, files::Options::default())?);
    Ok((served, ends))
}

fn confine(Wanted { sockets, files, opens }: Wanted) -> io::Result<()> {
    let none = CapabilitySet::empty();
    let mut kept = if sockets.create { CapabilitySet::DAC_OVERRIDE } else { none };
    if opens {
        kept |= again::CAPABILITIES;
    }
    if files.is_some() {
        kept = privileges::FOR_FILES;
    }
    privileges::keep_only(kept)?;
    // They take effect for the calls that need them alone: names of sockets, files that are opened once more, and the threads that
    // serve files.
    set_capabilities(None, CapabilitySets { effective: none, permitted: kept, inheritable: none })?;
    // A name is for no other program before the kernel inside has given it its mode.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
    privileges::undumpable()?;
    // Dropping capabilities does not undo this, but a change of credentials might have: once more.
    privileges::die_with_parent()?;
    let mut tables = vec![confine::filter::RUST_RUNTIME, filter::RULES];
    if opens {
        tables.push(again::RULES);
    }
    if sockets.any() {
        tables.push(sockets::RULES);
    }
    if sockets.create {
        tables.push(sockets::NAMING);
    }
    if files.is_some() {
        tables.extend([confine::filter::THREADS, files::RULES, files::CHANGES]);
    }
    confine::filter::install(&confine::filter::compile(&tables)?)
}

/// Runs `call` with capabilities in effect, as far as they are permitted.
fn with_capabilities<T>(more: CapabilitySet, call: impl FnOnce() -> abi::Result<T>) -> abi::Result<T> {
    let failed = |errno: rustix::io::Errno| abi::Errno::from_raw(errno.raw_os_error());
    let usual = capabilities(None).map_err(failed)?;
    let effective = usual.effective | (usual.permitted & more);
    set_capabilities(None, CapabilitySets { effective, ..usual }).map_err(failed)?;
    let done = call();
    set_capabilities(None, usual).map_err(failed)?;
    done
}
