//! Begins a write-back to a root, after an interrupted one has been finished or taken back.
//!
//! Invariant: the root is locked with flock(2) as long as a write-back works on it.

use crate::apply::all as apply;
use crate::proof::{Entry, Proof};
use crate::remove::Pace;
use crate::skipped::Skipped;
use crate::staging::{NEW, Staging, named};
use abi::Errno;
use hostsys::fs::{self as host, Access};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;

/// What has become of an interrupted write-back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repair {
    /// There was none.
    Nothing,
    /// It had changed nothing, and has been removed.
    TakenBack,
    /// It has been finished; what could not be done.
    Finished(String),
    /// Its journal, or the directory of this name, is not as it was left. It is not looked at again.
    Damaged(String),
}

fn lock(root: &OwnedFd) -> io::Result<OwnedFd> {
    let open = host::open_self(root).map_err(named)?;
    flock(&open, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        io::Error::new(io::ErrorKind::ResourceBusy, "another write-back to this directory is under way")
    })?;
    Ok(open)
}

/// Begins in a root. What an earlier write-back has left is finished first.
pub(crate) fn begin<'a>(root: &OwnedFd, proof: &'a Proof, pace: Pace<'a>) -> io::Result<Staging<'a>> {
    let lock = lock(root)?;
    recover_locked(root, proof, pace)?;
    Staging::make(root, proof, pace, lock)
}

/// The one that was left in a root. The error is what a directory of ours cannot have.
fn open_interrupted(root: &OwnedFd, entry: &Entry) -> abi::Result<Option<(OwnedFd, OwnedFd)>> {
    let dir = match host::open_within(root, &entry.name(), Access::Directory) {
        Ok(dir) => dir,
        Err(Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    match host::mkdir_at(&dir, NEW, 0o700) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error),
    }
    let new = host::open_within(&dir, NEW, Access::Directory)?;
    Ok(Some((dir, new)))
}

/// Finishes, or takes back, what an interrupted write-back has left in a root.
pub(crate) fn recover(root: &OwnedFd, proof: &Proof, pace: Pace<'_>) -> io::Result<Repair> {
    if proof.entry()?.is_none() {
        return Ok(Repair::Nothing);
    }
    let _lock = lock(root)?;
    recover_locked(root, proof, pace)
}

fn recover_locked(root: &OwnedFd, proof: &Proof, pace: Pace<'_>) -> io::Result<Repair> {
    let Some(entry) = proof.entry()? else { return Ok(Repair::Nothing) };
    let damaged = || {
        proof.clear()?;
        Ok(Repair::Damaged(entry.name().escape_ascii().to_string()))
    };
    let open = match open_interrupted(root, &entry) {
        Ok(Some(open)) => open,
        Ok(None) => {
            proof.clear()?;
            return Ok(Repair::Nothing);
        }
        // A link, a file or a mount.
        Err(Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV) => return damaged(),
        Err(error) => return Err(named(error)),
    };
    let mut staging = Staging::interrupted(root, open, entry.clone(), proof, pace)?;
    let mut done = Repair::TakenBack;
    if staging.is_complete() {
        let mut skipped = Skipped::default();
        match apply(&staging, &mut skipped) {
            Ok(()) => done = Repair::Finished(skipped.to_string()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return damaged(),
            Err(error) => return Err(error),
        }
    }
    staging.renew_times()?;
    staging.remove()?;
    Ok(done)
}
