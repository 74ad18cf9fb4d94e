//! The snapshots of `do`: images with names in a directory of the caller.
//!
//! ```text
//! DIR/NAME/command.json   what ran, and where: a sandbox of an image has the mounts of that command
//!          image/         see `image_files`
//!          lock           locked, shared, by each command that runs from it
//!          used           its time of change is that of the last use
//! DIR/~NUMBER-NAME        one that is being made, with its lock held, or removed
//!     ~lock               held by a command while it finds, makes or removes one
//! ```
//!
//! A snapshot appears under its name when it is whole. One that is in use is not removed.

use crate::directory::valid_id;
use crate::image_files::ImageFiles;
use crate::{Error, Result};
use bundle::{HostCommand, Overlay2};
use netgofer::Policy;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use serde::{Deserialize, Serialize};
use spec::{Network, PlatformName};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const COMMAND: &str = "command.json";
const IMAGE: &str = "image";
const LOCK: &str = "lock";
const USED: &str = "used";
const ALL_LOCK: &str = "~lock";
/// Snapshots on their way in begin with this, which no name does.
const COMING: char = '~';
/// How many bytes all snapshots may have together, where nothing else is said.
pub const SNAPSHOT_LIMIT: u64 = 10 << 30;

/// The command of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedCommand {
    /// The command.
    pub command: HostCommand,
    /// What lies over its root and volumes.
    pub overlay: Overlay2,
    /// Its network mode.
    pub network: Network,
    /// What it may reach there.
    pub allow_net: Option<Policy>,
    /// What runs it.
    pub platform: PlatformName,
}

/// A snapshot as `snapshot list` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Bytes that it takes on the disk.
    pub bytes: u64,
    /// When it was used last, in seconds since 1970.
    pub used: i64,
    /// Commands run from it.
    pub in_use: bool,
    /// Program and arguments.
    pub args: Vec<String>,
}

/// The directory of all snapshots.
#[derive(Clone, Debug)]
pub struct Snapshots {
    dir: PathBuf,
}

/// A snapshot that is being made; what there is of it goes when this is dropped before the end.
#[derive(Debug)]
pub struct NewSnapshot {
    all: Snapshots,
    name: String,
    path: PathBuf,
    _lock: File,
    limit: u64,
    whole: bool,
}

/// A snapshot in use.
#[derive(Debug)]
pub struct Snapshot {
    /// What ran.
    pub saved: SavedCommand,
    /// The image.
    pub image: ImageFiles,
    _lock: File,
}

/// A file that is locked, or nothing when another process has it.
pub(crate) fn lock(path: &Path, operation: FlockOperation) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    match flock(&file, operation) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The right to find, make and remove what is in a directory, until dropped; nothing where there is no directory.
pub(crate) fn lock_all(dir: &Path) -> io::Result<Option<File>> {
    match lock(&dir.join(ALL_LOCK), FlockOperation::LockExclusive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        held => held,
    }
}

/// Refuses a directory, if there is one, that another user made or may write to: what lies there says what is run, and where.
pub(crate) fn check_own(dir: &Path) -> Result<()> {
    let Ok(there) = fs::metadata(dir) else { return Ok(()) };
    match there.uid() == rustix::process::geteuid().as_raw() && there.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(format!("{} is not this user's alone: chown and chmod it", dir.display()).into()),
    }
}

fn valid(name: &str) -> Result<()> {
    match valid_id(name) {
        true => Ok(()),
        false => Err(format!("{name:?} is no name: use at most 200 letters, digits and any of _+-.").into()),
    }
}

impl Snapshots {
    /// In $XDG_CACHE_HOME, which is ~/.cache unless it is set; root's are in /var/cache.
    pub fn open() -> Result<Snapshots> {
        let absolute =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = absolute("XDG_CACHE_HOME").or_else(|| match rustix::process::geteuid().is_root() {
            true => Some("/var/cache".into()),
            false => absolute("HOME").map(|home| home.join(".cache")),
        });
        let cache = cache.ok_or("there is no directory for snapshots: set XDG_CACHE_HOME to one")?;
        let dir = cache.join("ringfence/snapshots");
        check_own(&dir)?;
        Ok(Snapshots { dir })
    }

    fn wrong(&self, error: io::Error) -> Error {
        format!("snapshots in {}: {error}", self.dir.display()).into()
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| self.wrong(error))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| valid_id(name)).collect();
        names.sort();
        Ok(names)
    }

    /// All snapshots, by name. One that is removed meanwhile is left out.
    pub fn list(&self) -> Result<Vec<SnapshotInfo>> {
        Ok(self.names()?.iter().filter_map(|name| self.info(name)).collect())
    }

    fn info(&self, name: &str) -> Option<SnapshotInfo> {
        let _all = lock_all(&self.dir).ok()??;
        let path = self.dir.join(name);
        let saved = read_command(&path).ok()?;
        let used = fs::metadata(path.join(USED)).ok()?.mtime();
        let in_use = lock(&path.join(LOCK), FlockOperation::NonBlockingLockExclusive).ok()?.is_none();
        Some(SnapshotInfo { name: name.into(), bytes: size(&path), used, in_use, args: saved.command.args })
    }

    /// Removes a snapshot.
    pub fn delete(&self, name: &str) -> Result<()> {
        valid(name)?;
        if !self.dir.join(name).is_dir() {
            return Err(missing(name));
        }
        match self.remove(name).map_err(|error| self.wrong(error))? {
            true => Ok(()),
            false => Err(format!("the snapshot {name} is in use: end the commands that run from it").into()),
        }
    }

    /// Removes a snapshot unless it is in use.
    fn remove(&self, name: &str) -> io::Result<bool> {
        let _all = lock_all(&self.dir)?;
        let path = self.dir.join(name);
        if !path.is_dir() {
            // Another command has done so.
            return Ok(true);
        }
        let Some(lock) = lock(&path.join(LOCK), FlockOperation::NonBlockingLockExclusive)? else {
            return Ok(false);
        };
        // No command finds half of it.
        let going = self.dir.join(format!("{COMING}{}-{name}", std::process::id()));
        fs::rename(&path, &going)?;
        fs::remove_dir_all(&going)?;
        drop(lock);
        Ok(true)
    }

    /// Begins a snapshot. Others are removed at its end, those used longest ago first, until all have `limit` bytes together.
    pub fn begin(&self, name: &str, limit: u64) -> Result<NewSnapshot> {
        valid(name)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir).map_err(|error| self.wrong(error))?;
        if self.dir.join(name).exists() {
            return Err(
                format!("there is a snapshot {name} already: ringfence snapshot delete {name}").into()
            );
        }
        let _all = lock_all(&self.dir).map_err(|error| self.wrong(error))?;
        self.sweep();
        let path = self.dir.join(format!("{COMING}{}-{name}", std::process::id()));
        let make = || -> io::Result<File> {
            DirBuilder::new().mode(0o700).create(&path)?;
            let held = lock(&path.join(LOCK), FlockOperation::NonBlockingLockExclusive)?;
            held.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        };
        let lock = make().map_err(|error| self.wrong(error))?;
        Ok(NewSnapshot { all: self.clone(), name: name.into(), path, _lock: lock, limit, whole: false })
    }

    /// Removes what commands that were killed have left. None is at work on one that has no lock: all are locked out.
    fn sweep(&self) {
        let names = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let coming = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(COMING);
        for entry in names.filter(|entry| coming(entry) && entry.path().is_dir()) {
            let held = lock(&entry.path().join(LOCK), FlockOperation::NonBlockingLockExclusive);
            if !matches!(held, Ok(None)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Has a snapshot in use from now on.
    pub fn take(&self, name: &str) -> Result<Snapshot> {
        valid(name)?;
        let all = lock_all(&self.dir).map_err(|error| self.wrong(error))?;
        let path = self.dir.join(name);
        if !path.is_dir() {
            return Err(missing(name));
        }
        let wrong = |error: io::Error| Error::from(format!("snapshot {name}: {error}"));
        let held = lock(&path.join(LOCK), FlockOperation::NonBlockingLockShared).map_err(wrong)?;
        let (Some(lock), Ok(saved)) = (held, read_command(&path)) else { return Err(missing(name)) };
        drop(all);
        let image = ImageFiles::open(&path.join(IMAGE))?;
        touch(&path.join(USED)).map_err(wrong)?;
        Ok(Snapshot { saved, image, _lock: lock })
    }

    /// Removes snapshots until all have `limit` bytes together, but for one.
    fn shrink(&self, limit: u64, keep: &str) -> Result<()> {
        let mut all = self.list()?;
        all.sort_by_key(|one| one.used);
        let mut bytes: u64 = all.iter().map(|one| one.bytes).sum();
        for one in all.iter().filter(|one| one.name != keep) {
            if bytes <= limit {
                break;
            }
            if self.remove(&one.name).map_err(|error| self.wrong(error))? {
                log::warn!("removed the snapshot {}, to keep all below the limit", one.name);
                bytes -= one.bytes;
            }
        }
        Ok(())
    }
}

fn missing(name: &str) -> Error {
    format!("there is no snapshot {name}: see ringfence snapshot list").into()
}

fn read_command(path: &Path) -> io::Result<SavedCommand> {
    Ok(serde_json::from_slice(&fs::read(path.join(COMMAND))?)?)
}

/// Says that a file is used now.
fn touch(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    file.set_modified(SystemTime::now())
}

/// Bytes on the disk.
fn size(path: &Path) -> u64 {
    let blocks = |path: PathBuf| fs::metadata(path).map_or(0, |file| file.blocks() * 512);
    let files = fs::read_dir(path.join(IMAGE)).into_iter().flatten().flatten();
    files.map(|entry| blocks(entry.path())).sum::<u64>() + blocks(path.join(COMMAND))
}

impl NewSnapshot {
    /// Where its image is to be made.
    pub(crate) fn image(&self) -> PathBuf {
        self.path.join(IMAGE)
    }

    /// It gets its name.
    pub(crate) fn finish(mut self, saved: &SavedCommand) -> Result<()> {
        let mut write = || -> io::Result<()> {
            let file =
                OpenOptions::new().create_new(true).write(true).mode(0o600).open(self.path.join(COMMAND))?;
            serde_json::to_writer(&file, saved)?;
            file.sync_all()?;
            touch(&self.path.join(USED))?;
            let name = self.all.dir.join(&self.name);
            renameat_with(CWD, &self.path, CWD, &name, RenameFlags::NOREPLACE)?;
            self.whole = true;
            File::open(&self.all.dir)?.sync_all()
        };
        write().map_err(|error| format!("cannot make the snapshot {}: {error}", self.name))?;
        self.all.shrink(self.limit, &self.name)
    }
}

impl Drop for NewSnapshot {
    fn drop(&mut self) {
        if !self.whole {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_files::{METADATA, PAGES};
    use crate::testing::StateDir;

    fn saved() -> SavedCommand {
        let command = HostCommand { args: vec!["true".into()], ..HostCommand::default() };
        let overlay = Overlay2::default();
        let (network, platform) = (Network::None, PlatformName::default());
        SavedCommand { command, overlay, network, allow_net: None, platform }
    }

    fn make(all: &Snapshots, name: &str, bytes: usize, limit: u64) {
        let new = all.begin(name, limit).unwrap();
        fs::create_dir(new.image()).unwrap();
        fs::write(new.image().join(METADATA), b"").unwrap();
        fs::write(new.image().join(PAGES), vec![1; bytes]).unwrap();
        new.finish(&saved()).unwrap();
    }

    #[test]
    fn the_one_used_longest_ago_goes_first_and_none_in_use() {
        let dir = StateDir::new("snapshots");
        let all = Snapshots { dir: dir.0.join("s") };
        assert!(all.list().unwrap().is_empty());
        let names = || all.list().unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>();
        let age = |name: &str, seconds| {
            let file = File::options().write(true).open(all.dir.join(name).join(USED)).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(seconds)).unwrap();
        };
        for (name, seconds) in [("a", 30), ("b", 20), ("c", 10)] {
            make(&all, name, 1 << 20, 100 << 20);
            age(name, seconds);
        }
        assert!(all.begin("a", 0).unwrap_err().message().contains("already"));
        let held = all.take("b").unwrap();
        age("b", 40);
        assert!(all.delete("b").unwrap_err().message().contains("in use"));
        assert!(all.list().unwrap().iter().all(|one| one.in_use == (one.name == "b")));
        make(&all, "d", 1 << 20, (3 << 20) + (1 << 19));
        assert_eq!(names(), ["b", "c", "d"]);
        drop(held);
        all.delete("b").unwrap();
        assert!(all.delete("b").unwrap_err().message().contains("there is no snapshot b"));
        assert!(all.take("b").unwrap_err().message().contains("there is no snapshot b"));
        assert!(all.delete("../c").unwrap_err().message().contains("is no name"));
        assert_eq!(names(), ["c", "d"]);
    }

    #[test]
    fn a_directory_that_others_write_to_is_refused() {
        let dir = StateDir::new("snapshots-others");
        let path = dir.0.join("s");
        check_own(&path).unwrap();
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        check_own(&path).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(check_own(&path).unwrap_err().message().contains("is not this user's alone"));
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let dir = StateDir::new("snapshots-unfinished");
        let all = Snapshots { dir: dir.0.join("s") };
        let new = all.begin("x", 0).unwrap();
        fs::create_dir(new.image()).unwrap();
        assert!(all.list().unwrap().is_empty());
        drop(new);
        let left = || fs::read_dir(&all.dir).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count();
        assert_eq!(left(), 0);
        let killed = all.begin("y", 0).unwrap();
        let path = killed.path.clone();
        fs::rename(&path, all.dir.join("~1-y")).unwrap();
        drop(killed);
        drop(all.begin("z", 0).unwrap());
        assert_eq!(left(), 0);
    }

    #[test]
    fn commands_at_once_take_nothing_from_each_other() {
        let dir = StateDir::new("snapshots-race");
        let all = Snapshots { dir: dir.0.join("s") };
        make(&all, "kept", 10, 1 << 30);
        // A sandbox's process number is not another one's here: each thread has names of its own.
        std::thread::scope(|scope| {
            for n in 0..4 {
                let all = &all;
                scope.spawn(move || {
                    for round in 0..50 {
                        let name = format!("n{n}.{round}");
                        make(all, &name, 10, 1 << 30);
                        drop(all.take("kept").unwrap());
                        assert!(all.list().unwrap().iter().any(|one| one.name == name));
                        all.delete(&name).unwrap();
                    }
                });
            }
        });
        assert_eq!(all.names().unwrap(), ["kept"]);
    }
}
