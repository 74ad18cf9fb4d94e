//! `overlay`: the changes of a container to a root under an overlay.

use crate::directory::{Container, Lock};
use crate::find::connect;
use crate::ps::running;
use crate::record::Record;
use crate::{Error, Result, Settings, id_maps, sandbox_log};
use bundle::Prepared;
use hostsys::signals::SignalFd;
use overlay_diff::Purpose;
use rustix::pipe::{PipeFlags, pipe_with};
use sandbox::launch::{Destination, WriteBack};
use sandbox::logging::Sink;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use writeback::{Change, Omissions, Proof, Repair, STAGING};

/// Signals that end a command.
const ENDING: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Tells each name that has changed, as an absolute path.
pub fn overlay_diff(
    settings: &Settings,
    id: &str,
    tell: &mut dyn FnMut(Change, &[u8]) -> io::Result<()>,
) -> Result<()> {
    with_changes(settings, id, Purpose::List, |from| writeback::list(from, tell))
}

/// Writes the changes as a layer of an image; says what a layer cannot hold.
pub fn overlay_export(settings: &Settings, id: &str, to: &mut dyn Write) -> Result<Omissions> {
    with_changes(settings, id, Purpose::Layer, |from| writeback::pack(from, to))
}

/// Writes the changes to the directory below the overlay of a container that was made for that; says what was left out.
pub fn overlay_commit(settings: &Settings, id: &str) -> Result<String> {
    let (container, _lock, record) = locked(settings, id)?;
    if record.is_frozen() {
        return Err(
            "container is paused: its changes were written back when it was, if it was made for that".into(),
        );
    }
    Ok(connect(&container)?.write_back()?)
}

/// A running container, and the right to change it: its programs rest meanwhile, and `pause` and `resume` have them
/// rest and go on as well.
fn locked(settings: &Settings, id: &str) -> Result<(Container, Lock, Record)> {
    let (container, _) = running(settings, id)?;
    let lock = container.lock()?;
    let (container, record) = running(settings, id)?;
    Ok((container, lock, record))
}

/// Puts a process into the container's control groups.
type Join<'a> = &'a mut dyn FnMut(i32) -> io::Result<()>;

/// Starts the process that writes back, if the container has one.
pub(crate) fn start(
    settings: &Settings,
    prepared: &Prepared,
    log: &Sink,
    alive: BorrowedFd<'_>,
    join: Join<'_>,
) -> Result<Option<WriteBack>> {
    let Some(root) = prepared.trees.first().filter(|_| prepared.writes_back()) else { return Ok(None) };
    let told = |error: io::Error| Error::from(format!("--overlay2: commit: {error}"));
    let state_dir = settings.state_dir();
    Proof::sweep(&state_dir);
    let proof = Proof::open(&state_dir, &root.path, true).map_err(told)?;
    let proof = proof.ok_or("--overlay2: commit: the state directory has gone")?;
    let mapping = id_maps::mapping(settings, prepared)?;
    let to = Destination {
        root: &root.path,
        alone: !root.recursive,
        privileged: prepared.writes_privileged,
        proof: &proof,
        alive: Some(alive),
        stop: None,
    };
    Ok(Some(WriteBack::start(log, mapping, &to, join).map_err(told)?))
}

/// Finishes, or takes back, a write-back to the container's root that was interrupted. What a root holds counts only
/// as far as the state directory says that it was left by one: a container may have put the like there. A signal ends
/// it for a caller in the foreground, which has those blocked.
pub(crate) fn repair(
    settings: &Settings,
    prepared: &Prepared,
    foreground: bool,
    join: Join<'_>,
) -> Result<()> {
    let Some(tree) = prepared.trees.first().filter(|tree| !tree.is_file) else { return Ok(()) };
    let (root, state_dir) = (tree.path.display(), settings.state_dir());
    let proof = Proof::open(&state_dir, &tree.path, false)?;
    if File::open(&tree.path).is_ok_and(|dir| Proof::is_foreign(proof.as_ref(), dir).unwrap_or(false)) {
        log::warn!(
            "{root}/{STAGING} is ignored: nothing in {} says that a write-back has left it. If one was interrupted and \
             that directory was lost since, the root may be half changed: make it anew; otherwise remove {STAGING}",
            state_dir.display()
        );
    }
    let Some(proof) = proof else { return Ok(()) };
    if !proof.is_under_way()? {
        return Ok(());
    }
    if prepared.spec.root.readonly {
        log::warn!("an interrupted write-back to {root} is not finished: the container's root is read-only");
        return Ok(());
    }
    let told = |error: io::Error| {
        Error::from(format!(
            "an interrupted write-back to {root} cannot be finished: {error}; mend that, or make the root anew"
        ))
    };
    let stop = if foreground { Some(SignalFd::new(&ENDING)?) } else { None };
    let log = sandbox_log::open(settings, &prepared.spec.id, "repair", false)?;
    let mapping = id_maps::mapping(settings, prepared)?;
    let to = Destination {
        root: &tree.path,
        alone: !tree.recursive,
        // What is staged has been masked already.
        privileged: true,
        proof: &proof,
        alive: None,
        stop: stop.as_ref().map(AsFd::as_fd),
    };
    let mut process = WriteBack::start(&log, mapping, &to, join).map_err(told)?;
    drop(process.stream());
    match &process.repaired {
        Repair::Nothing => {}
        Repair::TakenBack => {
            log::warn!("an interrupted write-back to {root} had changed nothing, and is removed")
        }
        Repair::Finished(left) if left.is_empty() => {
            log::warn!("an interrupted write-back to {root} is finished");
        }
        Repair::Finished(left) => {
            log::warn!("an interrupted write-back to {root} is finished without: {left}");
        }
        Repair::Damaged(name) => log::warn!(
            "{root}/{name} is not as an interrupted write-back has left it: it is not carried out any further, and \
             the root may be half changed; make it anew, or remove {name}"
        ),
    }
    process.wait();
    Ok(())
}

/// Has the container's sentry tell the changes to `read`.
fn with_changes<T>(
    settings: &Settings,
    id: &str,
    purpose: Purpose,
    read: impl FnOnce(&mut dyn io::Read) -> io::Result<T>,
) -> Result<T> {
    let (container, _lock, record) = locked(settings, id)?;
    if record.is_frozen() {
        return Err("container is paused: its kernel does not answer; resume it first".into());
    }
    let client = connect(&container)?;
    let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
    let telling = client.changes(to, purpose)?;
    let mut from = BufReader::with_capacity(256 << 10, File::from(from));
    let done = read(&mut from);
    // With this end closed the sentry is not left waiting.
    drop(from);
    match (telling.finish(), done) {
        (Ok(()), done) => Ok(done?),
        // It had nothing to tell, and says why.
        (Err(error), Err(ended)) if ended.kind() == io::ErrorKind::UnexpectedEof => Err(error.into()),
        (Err(_), Err(error)) => Err(error.into()),
        (Err(error), Ok(_)) => Err(error.into()),
    }
}
