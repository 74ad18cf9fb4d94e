//! The directory in the root that a write-back is prepared in.
//!
//! ```text
//! .ringfence.commit/new/N     objects as they will be, by number
//!                   journal.part   what is to be done with them, while that is found out
//!                   journal   the same when it is complete
//! ```
//!
//! Until `journal` has its name, nothing in the root has changed, and recovery only removes the directory. From then on
//! all operations are on disk, and recovery carries them out again from the beginning. The root is locked as long as a
//! write-back works on it.
//!
//! A directory is ours when the root's [`Proof`] says so, and its journal when it has the codes of the key there. One
//! that is not stays as it is: its name is avoided.

use crate::disk::failed;
use crate::proof::{Entry, Proof};
use crate::stage::Skipped;
use crate::{apply, disk};
use abi::Errno;
use hostsys::fs::{self as host, Access};
use overlay_diff::Meta;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;

/// Its name in the root, if nothing else has that.
pub const STAGING: &str = ".ringfence.commit";
pub(crate) const NEW: &[u8] = b"new";
pub(crate) const PART: &[u8] = b"journal.part";
pub(crate) const JOURNAL: &[u8] = b"journal";

/// Says whether to go on: EINTR when the result is no longer awaited.
pub(crate) type Pace<'a> = &'a dyn Fn() -> abi::Result<()>;

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

/// A write-back in the making, or one that was interrupted.
pub(crate) struct Staging<'a> {
    pub(crate) root: OwnedFd,
    pub(crate) dir: OwnedFd,
    pub(crate) new: OwnedFd,
    /// What the root's own attributes are to be in the end.
    pub(crate) times: Meta,
    pub(crate) pace: Pace<'a>,
    pub(crate) entry: Entry,
    proof: &'a Proof,
    /// The root, locked, unless the caller holds the lock.
    _lock: Option<OwnedFd>,
}

/// Attributes of an object, to be given to it again.
fn meta_of(fd: &OwnedFd) -> abi::Result<Meta> {
    let a = host::stat(fd)?;
    let time = |t: abi::time::Timespec| (t.sec, t.nsec as u32);
    let (atime, mtime) = (time(a.atime), time(a.mtime));
    Ok(Meta { mode: a.mode, uid: a.uid, gid: a.gid, rdev: 0, size: 0, atime, mtime })
}

fn named(error: Errno) -> io::Error {
    failed("cannot prepare the write-back in", STAGING.as_bytes(), error)
}

fn lock(root: &OwnedFd) -> io::Result<OwnedFd> {
    let open = host::open_self(root).map_err(named)?;
    flock(&open, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        io::Error::new(io::ErrorKind::ResourceBusy, "another write-back to this directory is under way")
    })?;
    Ok(open)
}

impl<'a> Staging<'a> {
    /// Begins in a root. What an earlier one has left is finished first.
    pub(crate) fn begin(root: &OwnedFd, proof: &'a Proof, pace: Pace<'a>) -> io::Result<Self> {
        let lock = lock(root)?;
        recover_locked(root, proof, pace)?;
        let times = meta_of(root).map_err(named)?;
        let mut entry = proof.begin(false)?;
        match host::mkdir_at(root, &entry.name(), 0o700) {
            // What has the name is not ours.
            Err(Errno::EEXIST) => {
                entry = proof.begin(true)?;
                host::mkdir_at(root, &entry.name(), 0o700).map_err(named)?;
            }
            made => made.map_err(named)?,
        }
        let dir = host::open_within(root, &entry.name(), Access::Directory).map_err(named)?;
        host::mkdir_at(&dir, NEW, 0o700).map_err(named)?;
        let new = host::open_within(&dir, NEW, Access::Directory).map_err(named)?;
        Ok(Self { root: root.try_clone()?, dir, new, times, pace, entry, proof, _lock: Some(lock) })
    }

    /// Whether all that is to be done is on disk.
    fn is_complete(&self) -> bool {
        host::stat_at(&self.dir, JOURNAL).is_ok()
    }

    /// Says that all that is to be done is on disk.
    pub(crate) fn complete(&self) -> io::Result<()> {
        rustix::fs::syncfs(&self.dir)?;
        host::rename_at(&self.dir, PART, &self.dir, JOURNAL, 0).map_err(named)?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    /// Removes the directory; what the root looked like before it was there comes back.
    pub(crate) fn remove(&self) -> io::Result<()> {
        // First what says that there is something to do: after a stop in the middle nothing is.
        match host::unlink_at(&self.dir, JOURNAL, false) {
            Ok(()) => rustix::fs::fsync(&self.dir)?,
            Err(Errno::ENOENT) => {}
            Err(error) => return Err(named(error)),
        }
        apply::remove(&self.root, &self.entry.name(), self.pace).map_err(named)?;
        disk::set_times(&self.root, &self.times).map_err(named)?;
        self.proof.clear()
    }
}

/// The one that was left in a root. The error is what a directory of ours cannot have.
fn left(root: &OwnedFd, entry: &Entry) -> abi::Result<Option<(OwnedFd, OwnedFd)>> {
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
    let (dir, new) = match left(root, &entry) {
        Ok(Some(open)) => open,
        Ok(None) => {
            proof.clear()?;
            return Ok(Repair::Nothing);
        }
        // A link, a file or a mount.
        Err(Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV) => return damaged(),
        Err(error) => return Err(named(error)),
    };
    let root = root.try_clone()?;
    let times = meta_of(&root).map_err(named)?;
    let mut staging = Staging { root, dir, new, times, pace, entry: entry.clone(), proof, _lock: None };
    let mut done = Repair::TakenBack;
    if staging.is_complete() {
        let mut skipped = Skipped::default();
        match apply::all(&staging, &mut skipped) {
            Ok(()) => done = Repair::Finished(skipped.to_string()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return damaged(),
            Err(error) => return Err(error),
        }
    }
    staging.times = meta_of(&staging.root).map_err(named)?;
    staging.remove()?;
    Ok(done)
}
