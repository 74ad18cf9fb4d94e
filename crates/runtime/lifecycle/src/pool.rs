//! Pools of sandboxes that are started and empty: `restore`, `clone` and `run` take one instead of starting it.
//!
//! ```text
//! ROOT/@pools/NAME/pool.sock   leads to the process that keeps the pool
//!                 /NAME.PID.N  directories of its sandboxes, as containers have them
//! ```
//!
//! One process keeps a pool ([`serve_pool`]) and ends its sandboxes when it ends. A sandbox of a pool has everything that its bundle
//! says: namespaces, control group, root, limits; its kernel waits for the rest. The directory of one that is taken becomes that
//! of the container. While its kernel is built, or restored from an image that takes long, the pool serves other commands; when
//! the command that has taken it goes away, it ends.

use crate::create::{NewContainer, Purpose, set_up};
use crate::directory;
use crate::image_files::ImageFiles;
use crate::record::Status;
use crate::{CreateOptions, Error, Result, RunOptions, Settings, caller, delete};
use channel::{Channel, accept, listen_in};
use hostsys::signals::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The directory of pools; no container has this name.
const POOLS: &str = "@pools";
/// Name of the socket of a pool.
const SOCKET: &str = "pool.sock";
/// How long the process that keeps a pool waits for a request after a connection, and a command for the connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits after a sandbox could not be started.
const PAUSE: Duration = Duration::from_secs(1);

/// How long sandboxes that are taken have the processor before others are started.
const SHORT: Duration = Duration::from_millis(100);

/// What a pool is.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Its name, of the form of a container's.
    pub name: String,
    /// Directory of the bundle that its sandboxes are made from.
    pub bundle: PathBuf,
    /// How many it holds.
    pub size: usize,
}

/// A pool, for users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// The bundle.
    pub bundle: PathBuf,
    /// How many sandboxes it holds when it is full.
    pub size: usize,
    /// How many it holds now.
    pub ready: usize,
    /// How many were taken.
    pub taken: u64,
}

/// To the process that keeps a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Request {
    /// Make a container of a sandbox. With its standard streams, and after them the files of an image, if it is restored.
    Take {
        /// Name of the container.
        id: String,
        /// Absolute path of its process ID's file.
        pid_file: Option<PathBuf>,
        /// TCP connections of the image with peers outside go on.
        keep_tcp: bool,
    },
    /// Tell how the pool is.
    Status,
}

/// From there.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Answer {
    /// The container runs.
    Taken,
    /// It does not.
    Failed { status: u8, message: String },
    /// How the pool is.
    Status(PoolStatus),
}

fn directory_of(settings: &Settings, name: &str) -> PathBuf {
    settings.state_dir().join(POOLS).join(name)
}

fn connect(dir: &Path) -> io::Result<Channel> {
    Channel::connect_within(File::open(dir)?.as_fd(), SOCKET, PATIENCE)
}

/// A pool that is kept. The sandboxes end before their directory goes.
struct Kept<'a> {
    settings: &'a Settings,
    options: &'a PoolOptions,
    /// Settings with the pool's directory in place of the state directory.
    inner: Settings,
    ready: VecDeque<NewContainer>,
    /// Those that are taken: their kernels are not ready yet.
    starting: Vec<Starting>,
    made: u64,
    taken: u64,
    dir: Dir,
}

/// A sandbox that becomes a container. It ends when this is dropped.
struct Starting {
    new: NewContainer,
    pid_file: Option<PathBuf>,
    /// The command that waits for it.
    client: Channel,
}

impl Starting {
    /// What there is to wait for: the sandbox's word, and the end of the command, which says nothing more.
    fn watched(&self) -> [PollFd<'_>; 2] {
        let sandbox: BorrowedFd<'_> = self.new.sandbox.as_fd();
        [PollFd::from_borrowed_fd(sandbox, PollFlags::IN), PollFd::new(&self.client, PollFlags::IN)]
    }

    /// Has the container run, and tells the command. The sandbox has something to say.
    fn go_on(self) -> io::Result<()> {
        let Starting { mut new, pid_file, client } = self;
        let mut start = || {
            new.await_ready()?;
            Ok(new.sandbox.start()?)
        };
        let started: Result<()> = start();
        let options = CreateOptions { pid_file, ..CreateOptions::default() };
        tell(&client, started.and_then(|()| new.settle(&options, Status::Running)))
    }
}

fn tell(client: &Channel, result: Result<()>) -> io::Result<()> {
    let answer = match result {
        Ok(()) => Answer::Taken,
        Err(error) => Answer::Failed { status: error.status(), message: error.message().into() },
    };
    client.send(&answer, &[])
}

/// A pool's directory, which goes when this is dropped.
struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join(SOCKET));
        let _ = fs::remove_dir(&self.0);
        // There may be other pools.
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

impl Kept<'_> {
    /// Starts one sandbox more.
    fn fill(&mut self) -> Result<()> {
        self.made += 1;
        let create = CreateOptions {
            // What an earlier pool of this name has started may still be in its control group.
            id: format!("{}.{}.{}", self.options.name, std::process::id(), self.made),
            bundle: self.options.bundle.clone(),
            own_group: true,
            pooled: true,
            ..CreateOptions::default()
        };
        let new = set_up(&self.inner, &create, Purpose::RunDetached)?;
        self.ready.push_back(new);
        Ok(())
    }

    fn status(&self) -> PoolStatus {
        let PoolOptions { name, bundle, size } = self.options.clone();
        PoolStatus { name, bundle, size, ready: self.ready.len(), taken: self.taken }
    }

    fn serve(&mut self, client: Channel) -> io::Result<()> {
        client.set_patience(Some(PATIENCE))?;
        match client.recv()? {
            Some((Request::Status, _)) => client.send(&Answer::Status(self.status()), &[]),
            Some((Request::Take { id, pid_file, keep_tcp }, fds)) => match self.take(&id, fds, keep_tcp) {
                Ok(new) => {
                    self.starting.push(Starting { new, pid_file, client });
                    Ok(())
                }
                Err(error) => tell(&client, Err(error)),
            },
            None => Ok(()),
        }
    }

    /// Lets go of what has something new of the sandboxes that are starting, which were polled in their order; whether there was one.
    fn attend(&mut self, woken: &[bool]) -> bool {
        for (n, woken) in woken.chunks(2).enumerate().rev() {
            let [sandbox, client] = *woken else { continue };
            if client {
                // Its command has gone: this ends the sandbox.
                drop(self.starting.remove(n));
            } else if sandbox && let Err(error) = self.starting.remove(n).go_on() {
                log::warn!("a request to the pool: {error}");
            }
        }
        woken.contains(&true)
    }

    /// Has a sandbox become a container; its kernel is not ready yet.
    fn take(&mut self, id: &str, fds: Vec<OwnedFd>, keep_tcp: bool) -> Result<NewContainer> {
        let mut fds = fds.into_iter();
        let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
            return Err("standard streams are missing".into());
        };
        let image: Vec<_> = fds.collect();
        let place = directory::claim(&self.settings.state_dir(), id)?;
        let stdio = [stdin, stdout, stderr];
        let mut tries = self.options.size + 3;
        let mut new = loop {
            tries -= 1;
            if tries == 0 {
                return Err("the sandboxes of the pool end as soon as they have started".into());
            }
            let new = match self.ready.pop_front() {
                Some(new) => new,
                None => {
                    self.fill()?;
                    continue;
                }
            };
            // One that has ended meanwhile is of no use to anyone.
            match new.sandbox.take(id, &stdio, &image, keep_tcp) {
                Ok(()) => break new,
                Err(error) => log::warn!("a sandbox of the pool has ended: {error}"),
            }
        };
        self.taken += 1;
        new.claim.take_place_of(place)?;
        new.record.state.id = id.into();
        new.record.state.created = sandbox::logging::timestamp();
        Ok(new)
    }
}

/// Keeps a pool until this process is asked to end by SIGTERM, SIGINT or SIGHUP. `filled` is called when it is full for the
/// first time.
pub fn serve_pool(settings: &Settings, options: &PoolOptions, filled: impl FnOnce()) -> Result<()> {
    let PoolOptions { name, bundle, size } = options;
    if !directory::valid_id(name) || name.len() > 100 {
        return Err(format!("invalid name {name:?}: use at most 100 letters, digits and any of _+-.").into());
    }
    let signals = SignalFd::new(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let path = directory_of(settings, name);
    DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
    if connect(&path).is_ok() {
        return Err(format!("there is a pool {name} already").into());
    }
    let dir = Dir(path);
    let inner = Settings { root: Some(dir.0.clone()), ..settings.clone() };
    // What a process that was killed has left.
    for left in directory::list(&dir.0)? {
        delete(&inner, &left.state.id, true)?;
    }
    let _ = fs::remove_file(dir.0.join(SOCKET));
    let listener = listen_in(File::open(&dir.0)?.as_fd(), SOCKET)?;
    let options = PoolOptions { bundle: bundle.canonicalize()?, ..options.clone() };
    let mut pool = Kept {
        settings,
        options: &options,
        inner,
        ready: VecDeque::new(),
        starting: Vec::new(),
        made: 0,
        taken: 0,
        dir,
    };
    pool.fill()?;
    let mut filled = Some(filled);
    // No sandbox is started before.
    let mut next = Instant::now();
    loop {
        let full = pool.ready.len() >= *size;
        if let Some(filled) = filled.take_if(|_| full) {
            filled();
        }
        let timeout = (!full).then(|| next.saturating_duration_since(Instant::now()));
        let timeout = timeout.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut polled = vec![PollFd::new(&listener, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        polled.extend(pool.starting.iter().flat_map(Starting::watched));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let woken: Vec<bool> = polled.iter().map(|one| !one.revents().is_empty()).collect();
        let [asked, ends, starting @ ..] = &*woken else { continue };
        let (asked, ends) = (*asked, *ends);
        if ends && signals.read()?.is_some() {
            break;
        }
        if pool.attend(starting) && pool.starting.is_empty() {
            next = Instant::now();
        }
        if asked {
            let taken = pool.taken;
            if let Err(error) = accept(listener.as_fd()).and_then(|client| pool.serve(client)) {
                log::warn!("a request to the pool: {error}");
            }
            if pool.taken > taken {
                next = Instant::now() + SHORT;
            }
        }
        if pool.ready.len() < *size
            && Instant::now() >= next
            && let Err(error) = pool.fill()
        {
            log::warn!("cannot start a sandbox of the pool: {error}");
            next = Instant::now() + PAUSE;
        }
    }
    // First the sandboxes, then the directory.
    let Kept { ready, starting, dir, .. } = pool;
    drop((ready, starting));
    drop(dir);
    Ok(())
}

/// The pools of the state directory, by name.
pub fn pools(settings: &Settings) -> Result<Vec<PoolStatus>> {
    let mut all = Vec::new();
    let entries = match fs::read_dir(settings.state_dir().join(POOLS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        entries => entries?,
    };
    for entry in entries {
        // A directory without a process was left by one that was killed.
        let Ok(client) = connect(&entry?.path()) else { continue };
        client.send(&Request::Status, &[])?;
        if let Some((Answer::Status(status), _)) = client.recv()? {
            all.push(status);
        }
    }
    all.sort_by(|a: &PoolStatus, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Makes a container of a sandbox of a pool; it runs in the background.
pub fn take(settings: &Settings, pool: &str, options: &RunOptions) -> Result<()> {
    let create = &options.create;
    let own = [
        (!options.detach, "give --detach: its containers run in the background"),
        (
            create.console_socket.is_some(),
            "--console-socket needs a terminal, which its containers do not have",
        ),
        (create.preserve_fds > 0 || !create.pass_fds.is_empty(), "it takes no further descriptors"),
        (create.allow_net.is_some(), "give --allow-net to the pool"),
    ];
    if let Some((_, why)) = own.iter().find(|(refused, _)| *refused) {
        return Err(format!("--pool {pool}: {why}").into());
    }
    let pid_file = create.pid_file.as_ref().map(std::path::absolute).transpose()?;
    make(settings, pool, &create.id, pid_file, create.image.as_deref(), create.keep_tcp)
}

/// The same for one container after the other that are restored from an image.
pub(crate) fn make(
    settings: &Settings,
    pool: &str,
    id: &str,
    pid_file: Option<PathBuf>,
    image: Option<&ImageFiles>,
    keep_tcp: bool,
) -> Result<()> {
    let missing =
        |_| Error::from(format!("there is no pool {pool}: start one with \"ringfence pool serve\""));
    if !directory::valid_id(pool) {
        return Err(missing(io::ErrorKind::NotFound.into()));
    }
    let client = connect(&directory_of(settings, pool)).map_err(missing)?;
    let mut fds = Vec::from(caller::stdio()?);
    if let Some(image) = image {
        fds.extend(image.share()?);
    }
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    client.send(&Request::Take { id: id.into(), pid_file, keep_tcp }, &fds)?;
    match client.recv()? {
        Some((Answer::Taken, _)) => Ok(()),
        Some((Answer::Failed { status, message }, _)) => Err(Error::with_status(status, message)),
        _ => Err(format!("the pool {pool} has ended").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Container;
    use crate::testing::StateDir;

    #[test]
    fn a_pool_that_is_not_there_is_named() {
        let dir = StateDir::new("pool");
        let options = RunOptions { detach: true, ..RunOptions::default() };
        for name in ["none", "../x"] {
            let error = take(&dir.settings(), name, &options).unwrap_err();
            assert!(error.message().starts_with(&format!("there is no pool {name}: start one")), "{error}");
        }
        assert!(pools(&dir.settings()).unwrap().is_empty());
        let options = PoolOptions { name: "../x".into(), bundle: "/".into(), size: 1 };
        assert!(serve_pool(&dir.settings(), &options, || ()).is_err());
    }

    #[test]
    fn a_directory_takes_the_place_of_another() {
        let dir = StateDir::new("pool-place");
        let mut member = directory::claim(&dir.0.join(POOLS), "p.1").unwrap();
        fs::write(member.container().path().join("mark"), "").unwrap();
        let place = directory::claim(&dir.0, "box").unwrap();
        member.take_place_of(place).unwrap();
        assert!(dir.0.join("box/mark").exists() && !dir.0.join(POOLS).join("p.1").exists());
        assert!(directory::claim(&dir.0, "box").is_err());
        drop(member);
        assert!(Container::at(&dir.0, "box").is_none());
    }
}
