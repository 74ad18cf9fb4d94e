//! `checkpoint`, `restore` and `clone`: a sandbox saved to an image, and back.
//!
//! The sandbox writes the files of an image ([`image_files`](crate::image_files)) to descriptors that this process opened. The file of metadata gets its name last, when everything is on the disk: what lacks it is no image.

use crate::create::create;
use crate::find::connect;
use crate::image_files::{ImageFiles, METADATA, PACKED, PAGES};
use crate::packed_pages::{without_name, write_packed};
use crate::ps::{self, running};
use crate::record::Record;
use crate::run::run;
use crate::{CreateOptions, Error, Result, RunOptions, Settings, pause, pod, pool};
use bundle::Pod;
use rustix::fs::{
    Advice, AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, fstat, memfd_create, mkdirat, openat, renameat,
    statat, unlinkat,
};
use sandbox::client::Client;
use spec::AfterCheckpoint;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the file of metadata is called until it is whole.
const UNFINISHED: &str = "metadata.unfinished";
/// What Podman looks for before it restores.
const INVENTORY: &str = "inventory.img";

/// How a checkpoint is made.
#[derive(Clone, Debug, Default)]
pub struct CheckpointOptions {
    /// Directory of the image.
    pub image: PathBuf,
    /// What becomes of the container.
    pub then: AfterCheckpoint,
    /// An empty file is beside those of the image by which Podman knows one.
    pub inventory: bool,
    /// Pages are compressed.
    pub compress: bool,
    /// Pages do not stay in the host's cache.
    pub direct: bool,
    /// Memory is left out that is marked by MADV_DONTDUMP or MADV_WIPEONFORK.
    pub exclude_dontdump: bool,
    /// It is made when a program of the container asks for it.
    pub when_asked: bool,
}

/// An image in the making. What was made of it goes when this is dropped before the end.
struct NewImage<'a> {
    dir: OwnedFd,
    path: &'a Path,
    made_dir: bool,
    made: Vec<&'static str>,
    whole: bool,
}

impl NewImage<'_> {
    fn begin(path: &Path) -> Result<NewImage<'_>> {
        let said = |what: &str, error| Error::from(format!("{what} {}: {error}", path.display()));
        let made_dir = match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(said("cannot make the directory", error)),
        };
        let dir = openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| said("cannot open the directory", error))?;
        let image = NewImage { dir, path, made_dir, made: Vec::new(), whole: false };
        if statat(&image.dir, METADATA, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(image.holds("an image"));
        }
        Ok(image)
    }

    fn holds(&self, what: &str) -> Error {
        format!("{} holds {what} already: give a directory without one", self.path.display()).into()
    }

    fn file(&mut self, name: &'static str) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                self.made.push(name);
                Ok(File::from(file))
            }
            Err(rustix::io::Errno::EXIST) => Err(self.holds(&format!("a file {name}"))),
            Err(error) => Err(format!("cannot make {name} in {}: {error}", self.path.display()).into()),
        }
    }

    fn finish(mut self, files: &[&File]) -> Result<()> {
        let written = |error: std::io::Error| format!("cannot write {}: {error}", self.path.display());
        for file in files {
            file.sync_all().map_err(written)?;
        }
        renameat(&self.dir, UNFINISHED, &self.dir, METADATA).map_err(|error| written(error.into()))?;
        self.whole = true;
        rustix::fs::fsync(&self.dir).map_err(|error| written(error.into()))?;
        Ok(())
    }
}

impl Drop for NewImage<'_> {
    fn drop(&mut self) {
        if self.whole {
            return;
        }
        for name in &self.made {
            let _ = unlinkat(&self.dir, *name, AtFlags::empty());
        }
        if self.made_dir {
            // Another process may have put something there.
            let _ = unlinkat(CWD, self.path, AtFlags::REMOVEDIR);
        }
    }
}

/// Saves a running container to an image.
pub fn checkpoint(settings: &Settings, id: &str, options: &CheckpointOptions) -> Result<()> {
    let (container, _) = settings.find(id)?;
    // It stays until the checkpoint is made: without it the program that has asked learns that there is none.
    let mut attending = None;
    if options.when_asked {
        // A program that asks is to wait for no checkpoint that cannot be.
        drop(NewImage::begin(&options.image)?);
        let client = attending.insert(connect(&container)?);
        client.attend_requests(false)?;
        client.await_request()?;
    }
    let mut image = NewImage::begin(&options.image)?;
    if options.inventory {
        image.file(INVENTORY)?;
    }
    let metadata = image.file(UNFINISHED)?;
    let ends = options.then != AfterCheckpoint::GoesOn;
    let request = |client: &Client, pages: &File| {
        client.checkpoint(metadata.as_fd(), pages.as_fd(), options.then, options.exclude_dontdump)
    };
    let pages = if options.compress {
        let (raw, packed) = (without_name(&options.image)?, image.file(PACKED)?);
        save(settings, id, ends, |client| request(client, &raw))?;
        let wrong = |error| format!("cannot write {PACKED} in {}: {error}", options.image.display());
        write_packed(&raw, &packed).map_err(wrong)?;
        packed
    } else {
        let pages = image.file(PAGES)?;
        save(settings, id, ends, |client| request(client, &pages))?;
        pages
    };
    image.finish(&[&pages, &metadata])?;
    if options.direct {
        rustix::fs::fadvise(&pages, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Has a sandbox that goes on no further than this saved to a new directory.
pub(crate) fn save_and_end(client: &Client, dir: &Path) -> Result<()> {
    let mut image = NewImage::begin(dir)?;
    let metadata = image.file(UNFINISHED)?;
    let pages = image.file(PAGES)?;
    client.checkpoint(metadata.as_fd(), pages.as_fd(), AfterCheckpoint::Ends, false)?;
    image.finish(&[&pages, &metadata])
}

/// Has a running container saved by a request, after which it ends if `ends` is set.
fn save<T>(
    settings: &Settings,
    id: &str,
    ends: bool,
    request: impl FnOnce(&Client) -> std::result::Result<T, sandbox::client::Error>,
) -> Result<T> {
    let (container, _) = settings.find(id)?;
    let _lock = container.lock()?;
    let (container, record) = running(settings, id)?;
    let members = match record.pod() {
        Pod::Member(sandbox) => {
            return Err(format!(
                "{id} is a container in sandbox {sandbox:?}: save that, an image has all containers of a sandbox"
            )
            .into());
        }
        _ => pod::members(settings, &record),
    };
    if let Some(paused) = members.iter().find(|member| member.is_frozen()) {
        return Err(format!("container is paused: {}: resume it first", paused.state.id).into());
    }
    let client = connect(&container)?;
    let frozen = record.is_frozen().then(|| pause::groups_to_freeze(settings, &record, false)).flatten();
    if let Some(groups) = &frozen {
        // From here on the kernel inside keeps it paused, which is to do the work.
        client.freeze_thawed::<Error>(|| Ok(groups.thaw()?))?;
    }
    let written = members.iter().filter(|member| member.writes_back()).try_for_each(|member| {
        let (container, _) = settings.find(&member.state.id)?;
        write_back(&connect(&container)?, member)
    });
    let saved = written.and_then(|()| write_back(&client, &record)).and_then(|()| Ok(request(&client)?));
    if let Some(groups) = frozen.filter(|_| !ends || saved.is_err()) {
        groups.freeze()?;
        client.post_unfreeze()?;
    }
    let saved = saved?;
    if ends {
        container.wait_end()?;
    }
    Ok(saved)
}

/// Has what changed in a root that is written back written to the layer below.
fn write_back(client: &Client, record: &Record) -> Result<()> {
    if record.writes_back() {
        let left = client.write_back()?;
        if !left.is_empty() {
            log::warn!("written back without: {left}");
        }
    }
    Ok(())
}

/// How a container is restored.
#[derive(Clone, Debug, Default)]
pub struct RestoreOptions {
    /// As for `run`.
    pub run: RunOptions,
    /// Directory of the image.
    pub image: PathBuf,
    /// A pool to take the sandbox from.
    pub pool: Option<String>,
    /// The host reads all pages ahead.
    pub background: bool,
}

/// Makes a container from an image; in the foreground it stays until that ends, with its exit status.
pub fn restore(settings: &Settings, options: &RestoreOptions) -> Result<u8> {
    let mut options = options.clone();
    let image = ImageFiles::open(&options.image)?;
    if options.background {
        // It does not wait for the pages.
        rustix::fs::fadvise(&image.pages, 0, None, Advice::WillNeed)?;
    }
    options.run.create.image = Some(Arc::new(image));
    match &options.pool {
        Some(pool) => pool::take(settings, pool, &options.run).map(|()| 0),
        None => run(settings, &options.run),
    }
}

/// Sets a container up from an image; `start` lets it go on.
pub fn create_from(settings: &Settings, mut options: CreateOptions, image: &Path) -> Result<()> {
    options.image = Some(Arc::new(ImageFiles::open(image)?));
    create(settings, &options)
}

/// The files of pages that a sandbox was restored from, open for reading; none where that is not to be had, which costs a clone
/// copies of what is in them. `init` is the sandbox's pid 1.
///
/// The sandbox, which may be in a guest's hands, says which of its descriptors they are. It may read all of them: a file that it can
/// only write or name, such as a log, is not opened for it here.
fn layers(client: &Client, init: i32) -> Vec<OwnedFd> {
    let numbers = client.layers().unwrap_or_default();
    let Some(sentry) = ps::sentry(init).filter(|_| !numbers.is_empty()) else { return Vec::new() };
    let open = |number: &i32| {
        let path = format!("/proc/{sentry}/fd/{number}");
        let file = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        if !FileType::from_raw_mode(fstat(&file).ok()?.st_mode).is_file() {
            return None;
        }
        // The descriptor may be another file's by now: what is read is that of the file that was found.
        let there = FdInfo::read(&format!("/proc/{sentry}/fdinfo/{number}"))?;
        let found = FdInfo::read(&format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        if (there.mount, there.inode) != (found.mount, found.inode) || !there.reads_only() {
            return None;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
    };
    numbers.iter().map(open).collect::<Option<_>>().unwrap_or_default()
}

/// What /proc/PID/fdinfo/N says.
struct FdInfo {
    flags: u32,
    mount: u64,
    /// Linux 5.14 and later.
    inode: u64,
}

impl FdInfo {
    fn read(path: &str) -> Option<FdInfo> {
        FdInfo::parse(&std::fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<FdInfo> {
        let value = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
        Some(FdInfo {
            flags: u32::from_str_radix(value("flags:")?, 8).ok()?,
            mount: value("mnt_id:")?.parse().ok()?,
            inode: value("ino:")?.parse().ok()?,
        })
    }

    /// It is open for reading, and for nothing else.
    fn reads_only(&self) -> bool {
        let flags = OFlags::from_bits_retain(self.flags);
        !flags.contains(OFlags::PATH) && flags & OFlags::RWMODE == OFlags::RDONLY
    }
}

/// Makes further containers like a running one, which goes on: with its bundle or
/// those of a pool, and in its state.
pub fn clone(settings: &Settings, id: &str, new: &[String], pool: Option<&str>) -> Result<()> {
    let (_, record) = running(settings, id)?;
    let memory = |name| memfd_create(name, MemfdFlags::CLOEXEC).map_err(std::io::Error::from);
    let (metadata, pages) = (memory("metadata")?, memory("pages")?);
    let layers = save(settings, id, false, |client| {
        let layers = layers(client, record.state.pid);
        client.clone_to(metadata.as_fd(), pages.as_fd(), !layers.is_empty())?;
        Ok(layers)
    })?;
    let image = Arc::new(ImageFiles { metadata, pages, layers });
    for name in new {
        if let Some(pool) = pool {
            pool::make(settings, pool, name, None, Some(&image), false)?;
            continue;
        }
        let mut options = RunOptions { detach: true, ..RunOptions::default() };
        options.create.id.clone_from(name);
        options.create.bundle.clone_from(&record.state.bundle);
        options.create.image = Some(image.clone());
        options.create.own_group = true;
        run(settings, &options)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::StateDir;

    #[test]
    fn what_fails_leaves_no_image() {
        let dir = StateDir::new("checkpoint");
        let options = CheckpointOptions { image: dir.0.join("image"), ..CheckpointOptions::default() };
        let error = checkpoint(&dir.settings(), "missing", &options).unwrap_err();
        assert_eq!(error.message(), "container does not exist: missing");
        assert!(!options.image.exists());
        std::fs::create_dir(&options.image).unwrap();
        checkpoint(&dir.settings(), "missing", &options).unwrap_err();
        assert_eq!(std::fs::read_dir(&options.image).unwrap().count(), 0);
        let error = ImageFiles::open(&options.image).unwrap_err();
        assert!(error.message().contains("is no image of a checkpoint: metadata: "), "{error}");
    }

    #[test]
    fn what_is_open_for_reading_alone_is_a_layer() {
        let of = |flags: &str| FdInfo::parse(&format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t25\nino:\t7\n"));
        let good = of("02100000").unwrap();
        assert_eq!((good.mount, good.inode), (25, 7));
        assert!(good.reads_only());
        for flags in ["02100001", "02100002", "012100000"] {
            assert!(!of(flags).unwrap().reads_only(), "{flags}");
        }
        assert!(FdInfo::parse("flags:\t02100000\nmnt_id:\t25\n").is_none());
    }

    #[test]
    fn an_image_is_not_written_over() {
        let dir = StateDir::new("checkpoint-twice");
        for name in [METADATA, UNFINISHED, PAGES] {
            let image = dir.0.join(name);
            std::fs::create_dir(&image).unwrap();
            std::fs::write(image.join(name), "kept").unwrap();
            let begun = NewImage::begin(&image).and_then(|mut new| new.file(name));
            let error = begun.unwrap_err();
            assert!(error.message().contains("already: give a directory without"), "{error}");
            assert_eq!(std::fs::read_dir(&image).unwrap().count(), 1, "{name}");
            assert_eq!(std::fs::read(image.join(name)).unwrap(), b"kept");
        }
    }
}
