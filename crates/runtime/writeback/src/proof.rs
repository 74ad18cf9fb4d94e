//! The record of a write-back outside its root: the name of our directory in the root, and the key of the journal.
//!
//! A root may be written by a container, which can leave a directory and a journal there that look like ours. So
//! nothing in a root is taken for an interrupted write-back unless a file among the states of the containers says so.
//! That file exists as long as a container writes back to the root, or an interrupted write-back is unfinished:
//!
//! ```text
//! STATE/@write-back/HASH     of the root's path: number (8 bytes, 0 for nothing), key, path
//! ```
//!
//! A user of the file holds a shared lock on it. When these files are lost, what an interrupted write-back has left is
//! never carried out.

use crate::journal::KEY;
use hostsys::fs as host;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// Name of the directory in the root that a write-back is prepared in, if nothing else has that name.
pub const STAGING: &str = ".ringfence.commit";

/// The directory of these files; no container has that name.
const DIR: &str = "@write-back";
/// Bytes before the path.
const HEAD: usize = 8 + KEY;
/// The number of a directory without a number in its name.
const PLAIN: u64 = 1;

/// A write-back that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    number: u64,
    pub(crate) key: [u8; KEY],
}

impl Entry {
    /// The name of its directory in the root.
    pub(crate) fn name(&self) -> Vec<u8> {
        match self.number {
            PLAIN => STAGING.into(),
            number => format!("{STAGING}.{number:016x}").into_bytes(),
        }
    }
}

/// The file for one root.
#[derive(Debug)]
pub struct Proof {
    file: File,
}

impl AsFd for Proof {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn place(state_dir: &Path, root: &Path) -> PathBuf {
    let hash = Sha256::digest(root.as_os_str().as_bytes());
    let mut name = String::new();
    for byte in hash {
        let _ = write!(name, "{byte:02x}");
    }
    state_dir.join(DIR).join(name)
}

/// Whether a path still leads to an open file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(own), Ok(named)) = (fstat(file), stat(path)) else { return false };
    (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)
}

impl Proof {
    /// The file for a root, by its absolute path without links. Without `make` it may be missing.
    pub fn open(state_dir: &Path, root: &Path, make: bool) -> io::Result<Option<Proof>> {
        let path = place(state_dir, root);
        let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if make {
            flags |= OFlags::CREATE;
            DirBuilder::new().recursive(true).mode(0o700).create(state_dir.join(DIR))?;
        }
        loop {
            let file = match open(&path, flags, Mode::from_raw_mode(0o600)) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT) if !make => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockShared))?;
            // It may have been removed before it was locked.
            if !is_at(&file, &path) {
                continue;
            }
            if make {
                file.write_all_at(root.as_os_str().as_bytes(), HEAD as u64)?;
            }
            return Ok(Some(Proof { file }));
        }
    }

    /// The file that this process was given.
    pub fn from_fd(file: OwnedFd) -> Proof {
        Proof { file: File::from(file) }
    }

    /// The write-back that is under way.
    pub(crate) fn entry(&self) -> io::Result<Option<Entry>> {
        let mut head = [0; HEAD];
        if self.file.read_at(&mut head, 0)? < HEAD {
            return Ok(None);
        }
        let (mut number, mut key) = ([0; 8], [0; KEY]);
        number.copy_from_slice(&head[..8]);
        key.copy_from_slice(&head[8..]);
        let number = u64::from_le_bytes(number);
        Ok((number != 0).then_some(Entry { number, key }))
    }

    /// Begins one, in a directory with a number or without one.
    pub(crate) fn begin(&self, numbered: bool) -> io::Result<Entry> {
        let (mut number, mut key) = ([0; 8], [0; KEY]);
        getrandom(&mut number, GetRandomFlags::empty())?;
        getrandom(&mut key, GetRandomFlags::empty())?;
        let number = if numbered { u64::from_le_bytes(number).max(PLAIN + 1) } else { PLAIN };
        self.write(number, &key)?;
        Ok(Entry { number, key })
    }

    /// Says that nothing is under way.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.write(0, &[0; KEY])
    }

    fn write(&self, number: u64, key: &[u8; KEY]) -> io::Result<()> {
        let mut head = number.to_le_bytes().to_vec();
        head.extend(key);
        self.file.write_all_at(&head, 0)?;
        self.file.sync_all()
    }

    /// Whether a directory of the root that is called as one of ours without a number is there, and none of ours.
    pub fn is_foreign(proof: Option<&Proof>, root: impl AsFd) -> io::Result<bool> {
        let entry = proof.map(Proof::entry).transpose()?.flatten();
        let ours = entry.is_some_and(|entry| entry.number == PLAIN);
        Ok(!ours && host::stat_at(root, STAGING.as_bytes()).is_ok())
    }

    /// Whether there is something to be finished.
    pub fn is_under_way(&self) -> io::Result<bool> {
        Ok(self.entry()?.is_some())
    }

    /// Removes the files that are not in use and that describe no directory that is there.
    pub fn sweep(state_dir: &Path) {
        for file in fs::read_dir(state_dir.join(DIR)).into_iter().flatten().flatten() {
            let path = file.path();
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(opened) = open(&path, flags, Mode::empty()).map(File::from) else { continue };
            let free = flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok();
            if free && is_at(&opened, &path) && !(Proof { file: opened }).is_needed() {
                let _ = fs::remove_file(&path);
            }
        }
    }

    fn is_needed(&self) -> bool {
        let Ok(entry) = self.entry() else { return true };
        let Some(entry) = entry else { return false };
        let mut path = vec![0; libc::PATH_MAX as usize];
        let Ok(len) = self.file.read_at(&mut path, HEAD as u64) else { return true };
        let root = Path::new(OsStr::from_bytes(&path[..len]));
        root.join(OsStr::from_bytes(&entry.name())).symlink_metadata().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_root() {
        let dir = std::env::temp_dir().join(format!("write-back-proof-{}", std::process::id()));
        let root = dir.join("root");
        fs::create_dir_all(&root).unwrap();
        let open = |make| Proof::open(&dir, &root, make).unwrap();
        assert!(open(false).is_none());
        let proof = open(true).unwrap();
        assert_eq!(proof.entry().unwrap(), None);
        let entry = proof.begin(false).unwrap();
        assert_eq!(entry.name(), STAGING.as_bytes());
        fs::create_dir(root.join(STAGING)).unwrap();
        let here = fs::File::open(&root).unwrap();
        assert!(!Proof::is_foreign(Some(&proof), &here).unwrap());
        assert!(Proof::is_foreign(None, &here).unwrap());
        // Another handle sees the same; what is needed stays, and what is in use does.
        drop(proof);
        Proof::sweep(&dir);
        let proof = open(false).unwrap();
        assert_eq!(proof.entry().unwrap(), Some(entry.clone()));
        let numbered = proof.begin(true).unwrap();
        assert!(numbered.name().starts_with(b".ringfence.commit.") && numbered.key != entry.key);
        assert!(Proof::is_foreign(Some(&proof), &here).unwrap());
        proof.clear().unwrap();
        Proof::sweep(&dir);
        assert!(open(false).is_some());
        drop(proof);
        Proof::sweep(&dir);
        assert!(open(false).is_none());
        fs::remove_dir_all(&dir).unwrap();
    }
}
