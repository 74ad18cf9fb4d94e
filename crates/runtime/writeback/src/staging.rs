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

use crate::disk::{self, failed};
use crate::proof::{Entry, Proof, STAGING};
use crate::remove::{Pace, remove};
use abi::Errno;
use hostsys::fs::{self as host, Access};
use overlay_diff::Meta;
use std::io;
use std::os::fd::OwnedFd;

pub(crate) const NEW: &[u8] = b"new";
pub(crate) const PART: &[u8] = b"journal.part";
pub(crate) const JOURNAL: &[u8] = b"journal";

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

/// An error of the host, while the directory is prepared.
pub(crate) fn named(error: Errno) -> io::Error {
    failed("cannot prepare the write-back in", STAGING.as_bytes(), error)
}

impl<'a> Staging<'a> {
    /// Makes the directory in a root, which is locked by `lock`.
    pub(crate) fn make(root: &OwnedFd, proof: &'a Proof, pace: Pace<'a>, lock: OwnedFd) -> io::Result<Self> {
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

    /// The directory `entry` that an interrupted write-back left in a root, which the caller has locked.
    pub(crate) fn interrupted(
        root: &OwnedFd,
        (dir, new): (OwnedFd, OwnedFd),
        entry: Entry,
        proof: &'a Proof,
        pace: Pace<'a>,
    ) -> io::Result<Self> {
        let root = root.try_clone()?;
        let times = meta_of(&root).map_err(named)?;
        Ok(Self { root, dir, new, times, pace, entry, proof, _lock: None })
    }

    /// Reads again what the root's own attributes are to be in the end.
    pub(crate) fn renew_times(&mut self) -> io::Result<()> {
        self.times = meta_of(&self.root).map_err(named)?;
        Ok(())
    }

    /// Whether all that is to be done is on disk.
    pub(crate) fn is_complete(&self) -> bool {
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
        remove(&self.root, &self.entry.name(), self.pace).map_err(named)?;
        disk::set_times(&self.root, &self.times).map_err(named)?;
        self.proof.clear()
    }
}
