//! Containers on disk: one directory each in the state directory.
//!
//! ```text
//! ROOT/ID/state.json     what the container is, in the form of the OCI runtime specification
//!         config.json    the configuration it was made from
//!         lock           held by a command while it changes the container
//!         alive          held by the container's pid 1; afterwards holds the exit status
//!         control.sock   leads to the sentry
//!         policies.json  what policies were loaded from, for `policy reload`
//!         crash          what the sentry wrote when it died, otherwise empty
//! ROOT/@crashes          such reports, kept
//! ```
//!
//! Locks are flock(2)s, which the kernel frees however their holder ends. So no process has to report the end of a
//! container: when `alive` is free, the container has ended. A directory that its maker left before the container was
//! complete, or that belonged to a container in the foreground, is a left-over that the next user of the id replaces.

use crate::record::{Record, Status};
use bundle::open_regular;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the control socket.
pub const SOCKET: &str = "control.sock";
/// Name of the record of policies.
pub(crate) const POLICIES: &str = "policies.json";
/// Longest state that is read.
const MAX_STATE: u64 = 8 << 20;
/// Directories on their way out begin with this, which no id does.
const GOING: char = '~';

/// A container's directory.
#[derive(Debug)]
pub struct Container {
    path: PathBuf,
}

/// The right to change a container, until dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held for its lock")] File);

/// A container in the making. Dropping it removes the directory, unless it was kept.
#[derive(Debug)]
pub struct Claim {
    container: Container,
    lock: Option<Lock>,
    alive: File,
    kept: bool,
}

/// Whether `id` can name a container: letters, digits and `_+-.`, not only dots.
pub fn valid_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+-.".contains(c);
    (1..=200).contains(&id.len()) && id.chars().all(allowed) && id.chars().any(|c| c != '.')
}

/// Claims an id. Errors are lines for the user.
pub fn claim(root: &Path, id: &str) -> Result<Claim, String> {
    if !valid_id(id) {
        return Err(format!("invalid container ID {id:?}: use at most 200 letters, digits and any of _+-."));
    }
    let hint = |error: io::Error| {
        format!("state directory {}: {error}; choose another with --root, or use --rootless", root.display())
    };
    DirBuilder::new().recursive(true).mode(0o711).create(root).map_err(hint)?;
    // Below /tmp another user may have made the directory first.
    let owner = fs::metadata(root).map_err(hint)?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(format!(
            "state directory {} belongs to user {owner}; choose another with --root",
            root.display()
        ));
    }
    sweep(root);
    let taken = || "container with given ID already exists".to_string();
    for _ in 0..100 {
        let container = Container { path: root.join(id) };
        match DirBuilder::new().mode(0o700).create(&container.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(hint(error)),
        }
        let lock = match container.try_lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(taken()),
            // Its user has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(hint(error)),
        };
        let left = container.read_raw().map_err(hint)?;
        if left.as_ref().is_some_and(|record| !record.foreground && record.state.status != Status::Creating) {
            return Err(taken());
        }
        let alive = open_lock(&container.path.join("alive")).map_err(hint)?;
        if flock(&alive, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(taken());
        }
        alive.set_len(0).map_err(hint)?;
        if let Some(left) = left {
            left.remove_stores();
        }
        for left in ["state.json", "state.tmp", "config.json", SOCKET, POLICIES] {
            let _ = fs::remove_file(container.path.join(left));
        }
        return Ok(Claim { container, lock: Some(lock), alive, kept: false });
    }
    Err(taken())
}

/// That there is no container of that name. Clients look for the words before the colon.
pub(crate) fn missing(id: &str) -> String {
    let hint = match id.starts_with("do-") {
        true => "; a command of \"do\" is found if it has a --name",
        false => "",
    };
    format!("container does not exist: {id}{hint}")
}

fn open_lock(path: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: not a regular file", path.display())))
        }
    }
}

/// Removes what a `delete` was killed over.
fn sweep(root: &Path) {
    let names = fs::read_dir(root).into_iter().flatten().flatten();
    for entry in names.filter(|entry| entry.file_name().to_string_lossy().starts_with(GOING)) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

impl Claim {
    /// The file with the lock that says that the container lives.
    pub fn alive(&self) -> BorrowedFd<'_> {
        self.alive.as_fd()
    }

    /// The directory.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// Moves the directory, with all that holds it, to where another claim was made; that one is given up.
    pub fn take_place_of(&mut self, mut other: Claim) -> io::Result<()> {
        renameat_with(CWD, &self.container.path, CWD, &other.container.path, RenameFlags::EXCHANGE)?;
        std::mem::swap(&mut self.container, &mut other.container);
        Ok(())
    }

    /// Lets other commands change the container while this one still holds it.
    pub fn unlock(&mut self) {
        self.lock = None;
    }

    /// Takes the right to change the container back, once nothing of it lives. False when another command has deleted
    /// it meanwhile: what remains to be done for the container was that command's to do.
    pub fn relock(&mut self) -> bool {
        if self.lock.is_none() && !self.kept {
            self.kept = !self.take_back();
        }
        !self.kept
    }

    fn take_back(&mut self) -> bool {
        if let Ok(Some(lock)) = self.container.try_lock() {
            self.lock = Some(lock);
            return true;
        }
        // `delete` holds the lock until no process says any more that the container lives. Then the id can be taken again.
        let _ = flock(&self.alive, FlockOperation::Unlock);
        self.lock = self.container.lock().ok();
        let free = flock(&self.alive, FlockOperation::NonBlockingLockExclusive).is_ok();
        let ours =
            matches!(self.container.read_raw(), Ok(left) if left.as_ref().is_none_or(|left| left.foreground));
        self.lock.is_some() && free && ours
    }

    /// Leaves the directory to the container.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.relock() {
            let _ = self.container.remove();
        }
    }
}

impl Container {
    /// The container of that name. Errors are lines for the user.
    pub fn find(root: &Path, id: &str) -> Result<(Self, Record), String> {
        if !valid_id(id) {
            return Err(missing(id));
        }
        let container = Self { path: root.join(id) };
        match container.read() {
            Ok(Some(record)) => Ok((container, record)),
            Ok(None) => Err(missing(id)),
            Err(error) => Err(format!("state of container {id:?}: {error}; remove it with delete --force")),
        }
    }

    /// A directory that need not hold a readable state.
    pub fn at(root: &Path, id: &str) -> Option<Self> {
        let container = Self { path: root.join(id) };
        (valid_id(id) && container.path.is_dir()).then_some(container)
    }

    /// Where the files are.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An open descriptor of the directory.
    pub fn dir(&self) -> io::Result<File> {
        File::open(&self.path)
    }

    /// Reads the state as it is now; `None` when there is none.
    pub fn read(&self) -> io::Result<Option<Record>> {
        let mut record = self.read_raw()?;
        if let Some(record) = record.as_mut().filter(|_| !self.is_alive()) {
            record.state.status = Status::Stopped;
            record.state.pid = 0;
        }
        Ok(record)
    }

    /// The state as it was written.
    fn read_raw(&self) -> io::Result<Option<Record>> {
        let mut text = String::new();
        match open_regular(&self.path.join("state.json")) {
            Ok(file) => file.take(MAX_STATE).read_to_string(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// Writes the state; readers see the old one or the new one.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let temporary = self.path.join("state.tmp");
        let written = fs::write(&temporary, serde_json::to_vec(record)?)
            .and_then(|()| fs::rename(&temporary, self.path.join("state.json")));
        written.map_err(|error| {
            // Half a file would only take room.
            let _ = fs::remove_file(&temporary);
            io::Error::new(
                error.kind(),
                format!("cannot write the state below {}: {error}", self.path.display()),
            )
        })
    }

    /// Whether the container's pid 1 lives, or the command that is about to start it.
    pub fn is_alive(&self) -> bool {
        match open_regular(&self.path.join("alive")) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_err(),
            // The file itself is lost, but the process that holds it may still be there.
            Err(_) => !self.holders().is_empty(),
        }
    }

    /// The processes that hold the lock which says that the container lives, its pid 1 among them. For when nothing
    /// else tells: all processes of the host are looked through.
    pub fn holders(&self) -> Vec<i32> {
        let Ok(alive) = self.path.canonicalize().map(|dir| dir.join("alive")) else { return Vec::new() };
        let lost = PathBuf::from(format!("{} (deleted)", alive.display()));
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| *pid != std::process::id() as i32 && holds_lock(*pid, &[&alive, &lost])).collect()
    }

    /// Waits for the end of the container; its exit status, 137 when no process was left to write it down.
    pub fn wait_end(&self) -> io::Result<u8> {
        let mut file = open_regular(&self.path.join("alive"))?;
        while let Err(error) = flock(&file, FlockOperation::LockShared) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text.trim().parse().unwrap_or(137))
    }

    /// Waits for the right to change the container. NotFound when it was removed meanwhile.
    pub fn lock(&self) -> io::Result<Lock> {
        self.lock_as(FlockOperation::LockExclusive)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn try_lock(&self) -> io::Result<Option<Lock>> {
        self.lock_as(FlockOperation::NonBlockingLockExclusive)
    }

    fn lock_as(&self, how: FlockOperation) -> io::Result<Option<Lock>> {
        let path = self.path.join("lock");
        let file = open_lock(&path)?;
        loop {
            match flock(&file, how) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Ok(None),
            }
        }
        // A former holder may have removed the directory between our open and our lock.
        match fs::metadata(&path)?.ino() == file.metadata()?.ino() {
            true => Ok(Some(Lock(file))),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Removes the directory. To be called with the lock held.
    pub fn remove(&self) -> io::Result<()> {
        let (Some(root), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Ok(()) };
        let going = root.join(format!("{GOING}{}.{}", name.to_string_lossy(), std::process::id()));
        match fs::rename(&self.path, &going) {
            Ok(()) => fs::remove_dir_all(&going),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Whether a process holds an exclusive flock(2) on one of these files.
fn holds_lock(pid: i32, files: &[&Path]) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.into_iter().any(|entry| {
        let named = fs::read_link(entry.path()).is_ok_and(|link| files.contains(&link.as_path()));
        let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy());
        named && fs::read_to_string(info).is_ok_and(|info| info.contains("FLOCK  ADVISORY  WRITE"))
    })
}

/// All containers, by id.
pub fn list(root: &Path) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    match fs::read_dir(root) {
        Ok(entries) => {
            for entry in entries {
                let name = entry?.file_name();
                let container = name.to_str().and_then(|id| Container::at(root, id));
                // One that is being made or removed is not listed.
                records.extend(container.and_then(|container| container.read().ok().flatten()));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    records.sort_by(|a: &Record, b: &Record| a.state.id.cmp(&b.state.id));
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;

    #[test]
    fn ids_are_checked() {
        assert!(valid_id("a-b_c.1+2"));
        for bad in ["", ".", "..", "a/b", "a b", "ä", "~x"] {
            assert!(!valid_id(bad), "{bad}");
        }
    }

    #[test]
    fn an_id_is_claimed_once() {
        let dir = std::env::temp_dir().join(format!("ringfence-state-{}", std::process::id()));
        let first = claim(&dir, "x").unwrap();
        assert_eq!(claim(&dir, "x").unwrap_err(), "container with given ID already exists");
        first.container().write(&record("x", Status::Running, true)).unwrap();
        assert_eq!(list(&dir).unwrap().len(), 1);
        assert_eq!(Container::find(&dir, "x").unwrap().1, record("x", Status::Running, true));
        drop(first);
        assert!(Container::find(&dir, "x").unwrap_err().contains("container does not exist"));

        // What a killed holder leaves is taken over, unless it is a container that was to stay.
        for (status, foreground, free) in
            [(Status::Running, true, true), (Status::Creating, false, true), (Status::Created, false, false)]
        {
            let claimed = claim(&dir, "x").unwrap();
            claimed.container().write(&record("x", status, foreground)).unwrap();
            claimed.keep();
            let again = claim(&dir, "x");
            assert_eq!(again.is_ok(), free, "{status}");
        }
        let (left, record) = Container::find(&dir, "x").unwrap();
        assert_eq!((record.state.status, record.state.pid), (Status::Stopped, 0));
        assert_eq!(left.wait_end().unwrap(), 137);
        let _lock = left.lock().unwrap();
        left.remove().unwrap();
        assert!(list(&dir).unwrap().is_empty());
        fs::remove_dir(&dir).unwrap();
    }
}
