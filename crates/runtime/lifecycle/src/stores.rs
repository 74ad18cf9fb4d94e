//! The files that overlays keep data in. They are made before a container and removed with it.
//!
//! The sandbox opens no file of the host, so they are opened here and passed. The host frees a file without a name. A
//! file with a name is in a directory that the container sees, so that disk usage of that directory counts it. It is
//! removed with the container.

use crate::{Error, Result};
use bundle::StorePlace;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, ftruncate, open, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Files that belong to a container in the making. Dropping it removes them, unless it was kept.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    named: Vec<PathBuf>,
}

impl Stores {
    /// Makes the files at `places`; their descriptors are in that order.
    pub(crate) fn make(places: &[StorePlace]) -> Result<(Stores, Vec<OwnedFd>)> {
        let mut stores = Stores::default();
        let mut fds = Vec::new();
        for place in places {
            let made = match &place.name {
                Some(name) => stores.named(&place.dir, name),
                None => unnamed(&place.dir),
            };
            let fd = made.and_then(|fd| punches(&fd).map(|()| fd));
            fds.push(fd.map_err(|error| {
                let dir = place.dir.display();
                match error {
                    Errno::OPNOTSUPP => Error::from(format!(
                        "--overlay2: the file system of {dir} cannot free parts of a file; use memory, or dir= elsewhere"
                    )),
                    error => Error::from(format!("--overlay2: file in {dir}: {}", std::io::Error::from(error))),
                }
            })?);
        }
        Ok((stores, fds))
    }

    fn named(&mut self, dir: &Path, name: &str) -> rustix::io::Result<OwnedFd> {
        let dir_fd = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // What a host that crashed has left. Something else of that name is the image's, and stays.
        if let Ok(left) = statat(&dir_fd, name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(left.st_mode) == FileType::RegularFile
        {
            unlinkat(&dir_fd, name, AtFlags::empty())?;
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&dir_fd, name, flags, Mode::from_raw_mode(0o600))?;
        self.named.push(dir.join(name));
        Ok(fd)
    }

    /// The files to be removed later.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.named.clone()
    }

    /// Leaves the files to the container.
    pub(crate) fn keep(mut self) {
        self.named.clear();
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        remove(&self.named);
    }
}

/// Removes files of a container that has ended. Those on a file system that is no longer mounted went with it.
pub(crate) fn remove(paths: &[PathBuf]) {
    for path in paths {
        match unlinkat(CWD, path, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => log::warn!("{}: {}", path.display(), std::io::Error::from(error)),
        }
    }
}

fn unnamed(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(0o600);
    match open(dir, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {}
        made => return made,
    }
    // Made under a name and removed at once.
    let path = dir.join(format!("ringfence.filestore.{}", std::process::id()));
    let fd =
        open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)?;
    unlinkat(CWD, &path, AtFlags::empty())?;
    Ok(fd)
}

/// Whether parts of a file can be freed. Fails with EOPNOTSUPP.
fn punches(fd: &OwnedFd) -> rustix::io::Result<()> {
    debug_assert_eq!(fstat(fd).map(|stat| stat.st_size), Ok(0));
    ftruncate(fd, 4096)?;
    fallocate(fd, FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE, 0, 4096)?;
    ftruncate(fd, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;
    use std::fs;

    #[test]
    fn files_go_with_their_container() {
        let dir = StateDir::new("stores");
        let place = |name: Option<&str>| StorePlace { dir: dir.0.clone(), name: name.map(String::from) };
        let (stores, fds) = Stores::make(&[place(Some("a")), place(None)]).unwrap();
        assert_eq!((fds.len(), fs::read_dir(&dir.0).unwrap().count()), (2, 1));
        let paths = stores.paths();
        stores.keep();
        // A left-over is replaced; what is not a file of ours is not.
        drop(Stores::make(&[place(Some("a"))]).unwrap());
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
        remove(&paths);
        std::os::unix::fs::symlink("/etc/passwd", dir.0.join("a")).unwrap();
        let error = Stores::make(&[place(None), place(Some("a"))]).unwrap_err();
        assert!(error.message().contains("File exists"), "{error}");
        assert!(dir.0.join("a").is_symlink());
        let missing = StorePlace { dir: dir.0.join("none"), name: None };
        assert!(Stores::make(&[missing]).unwrap_err().message().contains("No such file"));
    }
}
