//! Plain data to open files.
//!
//! In two steps, as files lead to processes and processes to files: [`FileRestorer::new`] makes all that processes are
//! made of, and [`FileRestorer::finish`], when processes are there, what refers to processes.

use super::find;
use super::mounts::{Belongs, Making, MountMap, SpaceRef, address};
use super::state::{ContextState, FileState, FilesState, InodeLocks, Kind};
use super::supers::{self, MakeSuper, Supers};
use abi::{Errno, Result};
use caller::Outcome;
use files::IoSignals;
use hostfs::Severed;
use image::PageSource;
use ipc::epoll::Epoll;
use ipc::eventfd::EventFd;
use ipc::fanotify::Fanotify;
use ipc::inotify::Inotify;
use ipc::pipe::{Pipe, fifo};
use ipc::ruleset::RulesetFile;
use ipc::signalfd::SignalFd;
use ipc::timerfd::TimerFd;
use landlock::{Domain, LandlockRestorer, Pool};
use locks::{leases, records};
use mounts::{FsContext, FsView, MountNs};
use mqueue::{Notification, NotificationState};
use nsproxy::{Ipc, Namespace, NsOps};
use pid::Pid;
use socket::unix::{Restored, UnixFamily};
use socket::{NetNamespace, SocketFile, SocketOps};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use task::ThreadGroup;
use task::pidfd::PidFd;
use tmpfs::Memfds;
use tty::{Devpts, MasterFile, Pty, SlaveFile};
use user_ns::UserNamespace;
use vfs::file::{PathOnly, PlaceState};
use vfs::{Caller, Dentry, FileOps, InodeRef, Mount, OpenFile, OpenFileState, Path, SuperBlock};

/// Finds a process by its number in the sandbox's own PID namespace.
pub type FindPid<'a> = &'a dyn Fn(i32) -> Option<Arc<Pid>>;

/// What the restored sandbox has already.
pub struct Given<'a> {
    /// The kernel as a caller ([`vfs::Internal`]).
    pub cx: &'a dyn Caller,
    /// Unix sockets.
    pub unix: &'a UnixFamily,
    /// Files of memfd_create(2).
    pub memfds: &'a Memfds,
    /// The file of pages.
    pub pages: &'a dyn PageSource,
    /// The mount namespace that a container (by index) begins with, built from its specification.
    pub namespace: &'a dyn Fn(u32) -> Option<Arc<MountNs>>,
    /// The mount of nsfs.
    pub nsfs: &'a Arc<Mount>,
    /// A user namespace by the number that it had.
    pub user: &'a dyn Fn(u64) -> Option<Arc<UserNamespace>>,
    /// A namespace of another kind than mounts, by the number that it had.
    pub space: &'a dyn Fn(u64) -> Option<Namespace>,
    /// Makes file systems that show a namespace, and plain ones.
    pub make: MakeSuper<'a>,
    /// Programs of the containers may mount.
    pub may_mount: bool,
    /// The capabilities that programs of the containers may have.
    pub capabilities: u64,
    /// A descriptor of a container (by index) with its place in the specification, standard streams first, as
    /// [`hostfs::Importer::first`] gave it.
    pub imported: &'a dyn Fn(u32, usize) -> Option<Arc<OpenFile>>,
    /// The terminal of a container (by index), which nothing has been opened of.
    pub console: &'a dyn Fn(u32) -> Option<Arc<Pty>>,
    /// The network namespace that had this inode number.
    pub net: &'a dyn Fn(u64) -> Option<Arc<NetNamespace>>,
    /// The socket of another family that had an inode with this number.
    pub socket: &'a dyn Fn(u64) -> Option<Arc<dyn SocketOps>>,
    /// The IPC namespace that had this inode number; it has no objects.
    pub ipc: &'a dyn Fn(u64) -> Option<Arc<Ipc>>,
    /// Numbers of processes, which must have been given out.
    pub pid: FindPid<'a>,
}

/// What the restored sandbox has when processes are there.
pub struct Late<'a> {
    /// A process by its number in the sandbox's own PID namespace.
    pub process: &'a dyn Fn(i32) -> Option<Arc<ThreadGroup>>,
    /// The identity of a descriptor table ([`files::FdTable::id`]) by that of before.
    pub table: &'a dyn Fn(u64) -> Option<u64>,
    /// What sends the signals of files.
    pub signals: Arc<dyn IoSignals>,
    /// What Landlock rules take together.
    pub landlock: Arc<Pool>,
}

/// Finds what was open before by its identity.
pub struct FileRestorer<'a> {
    given: Given<'a>,
    mounts: MountMap,
    /// Files in memory by device and inode number of before.
    objects: HashMap<(u64, u64), InodeRef>,
    /// Dentries of objects without a name.
    nameless: RefCell<HashMap<(u64, u64), Arc<Dentry>>>,
    files: HashMap<u64, Arc<OpenFile>>,
    pipes: Vec<Arc<Pipe>>,
    terminals: Vec<Terminal>,
    unix: Option<Restored>,
    /// Message queues, by the inode number that their IPC namespace had.
    queues: HashMap<u64, mqueue::Restored>,
    landlock: Option<LandlockRestorer>,
}

/// A terminal, the file system that shows it, and whether it hangs up.
type Terminal = (Arc<Devpts>, Arc<Pty>, bool);

/// An error of a file, for the user.
fn failed(what: &FileState, error: Errno) -> String {
    let place = what.open.place.as_ref().map(|place| name(place, error));
    let name = place.or_else(|| what.open.link.clone()).unwrap_or_else(|| format!("{:?}", what.kind));
    format!("open file {name}: {error:?}")
}

/// A place as the user knows it, and what is wrong with it where the error alone does not say so.
fn name(place: &PlaceState, error: Errno) -> String {
    let path = if place.shown.is_empty() { &place.path } else { &place.shown };
    let path = String::from_utf8_lossy(path);
    match error {
        Errno::ESTALE => format!("{path} was replaced by another file since the checkpoint"),
        _ => path.into_owned(),
    }
}

impl<'a> FileRestorer<'a> {
    /// Makes the files of plain data, but for those of processes. The error is a sentence for the user.
    pub fn new(given: Given<'a>, saved: &FilesState) -> std::result::Result<FileRestorer<'a>, String> {
        let (mounts, supers, objects) = file_systems(&given, saved)?;
        let terminals = terminals(&given, &supers, saved)?;
        let pipe = |saved| Pipe::restore(given.cx, saved).map_err(|error| format!("pipe: {error:?}"));
        let pipes = saved.pipes.iter().map(pipe).collect::<std::result::Result<_, _>>()?;
        let unix = sockets(&given, &objects, saved)?;
        let files = HashMap::new();
        let (unix, queues, nameless) = (Some(unix), HashMap::new(), RefCell::default());
        let mut all = FileRestorer {
            given,
            mounts,
            objects,
            nameless,
            files,
            pipes,
            terminals,
            unix,
            queues,
            landlock: None,
        };
        for one in saved.files.iter().filter(|one| !is_late(one)) {
            let file = all.open(one).map_err(|error| failed(one, error))?;
            all.files.insert(one.open.id, file);
        }
        for one in &saved.ipc {
            let ns = (all.given.ipc)(one.inum).ok_or("an IPC namespace that is not there")?;
            ns.sysv
                .fill(&one.sysv, all.given.pid, |id| all.file(id))
                .map_err(|error| format!("System V IPC: {error:?}"))?;
        }
        Ok(all)
    }

    /// The open file that had this identity.
    pub fn file(&self, id: u64) -> Option<Arc<OpenFile>> {
        self.files.get(&id).cloned()
    }

    /// The place of plain data. Links are not followed, and nothing is checked: it was reached already.
    pub fn path(&self, saved: &PlaceState) -> Result<Path> {
        let cx = self.given.cx;
        let Some(gone) = &saved.gone else {
            let mount = self.mounts.get(saved.mount).ok_or(Errno::ENOENT)?;
            let found = if saved.unlinked { Err(Errno::ENOENT) } else { find(cx, mount, &saved.path) }?;
            let top = Arc::ptr_eq(&found.dentry, &mount.sb.root);
            if let Some(object) = &saved.object
                && found.mount.fs().is_of_host()
                && !object.is(&found.attr()?, top)
            {
                return Err(Errno::ESTALE);
            }
            return if self.mounts.masks.hide(&found) { Err(Errno::EPERM) } else { Ok(found) };
        };
        let inode = self.objects.get(&gone.object).ok_or(Errno::ENOENT)?.clone();
        // The files of memfd_create(2) are on no mount that was saved.
        let mount = self.mounts.get(saved.mount).unwrap_or_else(|| self.given.memfds.mount()).clone();
        let dir = gone.dir.as_ref().and_then(|dir| find(cx, &mount, dir).ok()).filter(Path::is_dir);
        // All that is open of it has one dentry: the end of the last use is the end of the object.
        let mut nameless = self.nameless.borrow_mut();
        let dentry = nameless.entry(gone.object).or_insert_with(|| match dir {
            Some(dir) => Dentry::gone(&dir.dentry, &gone.name, inode),
            None => Dentry::detached(cx.vfs().dcache(), inode, &gone.name),
        });
        dentry.linkable.store(gone.linkable, Ordering::Relaxed);
        Ok(Path { mount, dentry: dentry.clone() })
    }

    /// Root, working directory and mask of a process.
    pub fn context(&self, saved: &ContextState) -> std::result::Result<Arc<FsContext>, String> {
        let ns = self.mounts.namespace(saved.namespace).ok_or("its mount namespace is not there")?.clone();
        let dir = |place: &PlaceState| {
            let found =
                self.path(place).and_then(|path| if path.is_dir() { Ok(path) } else { Err(Errno::ENOTDIR) });
            found.map_err(|error| format!("{}: {error:?}", name(place, error)))
        };
        let view = FsView { root: dir(&saved.root)?, cwd: dir(&saved.cwd)?, ns, anew: false };
        Ok(FsContext::with_view(view, saved.umask & 0o777))
    }

    /// Makes the files that refer to processes, which have no threads yet, and objects that others refer to.
    pub fn refer(&mut self, saved: &FilesState, late: &Late<'_>) -> std::result::Result<(), String> {
        for one in &saved.ipc {
            let ns = (self.given.ipc)(one.inum).ok_or("an IPC namespace that is not there")?;
            let queues = ns.mqueue.fill(&one.mqueue, |state| self.notification(state, late));
            let queues = queues.map_err(|error| format!("message queues: {error:?}"))?;
            if self.queues.insert(one.inum, queues).is_some() {
                return Err("an IPC namespace is there twice".into());
            }
        }
        let landlock = self.layers(&saved.landlock, &late.landlock);
        let landlock = landlock.map_err(|error| format!("Landlock rules: {error:?}"))?;
        for (place, layers) in &saved.landlock.sockets {
            let domain = landlock.domain(layers);
            let unix = self.unix.as_ref().ok_or("Unix sockets are restored already")?;
            domain
                .and_then(|domain| unix.confine(*place, domain))
                .map_err(|error| format!("a Unix socket under Landlock: {error:?}"))?;
        }
        self.landlock = Some(landlock);
        for one in saved.files.iter().filter(|one| is_late(one) && !shows_process(one)) {
            let file = match &one.kind {
                Kind::Process(state) => (late.process)(state.process).ok_or(Errno::ESRCH).and_then(|group| {
                    let (inode, fd) = PidFd::restore(self.given.cx, state, group);
                    OpenFile::restore(&one.open, None, Some(inode), Arc::new(fd))
                }),
                _ => self.open(one),
            };
            let file = file.map_err(|error| failed(one, error))?;
            self.files.insert(one.open.id, file);
        }
        Ok(())
    }

    /// Makes the files that show processes, which must have their threads, and what files hold of other files: items of epolls,
    /// messages of Unix sockets, locks.
    pub fn finish(&mut self, saved: &FilesState, late: &Late<'_>) -> std::result::Result<(), String> {
        for one in saved.files.iter().filter(|one| shows_process(one)) {
            let file = self.open(one).map_err(|error| failed(one, error))?;
            self.files.insert(one.open.id, file);
        }
        for one in &saved.files {
            let Kind::Epoll(state) = &one.kind else { continue };
            let Some(file) = self.files.get(&one.open.id) else { continue };
            let epoll: &Epoll = file.ops.as_any().downcast_ref().ok_or_else(|| failed(one, Errno::EINVAL))?;
            epoll.restore(self.given.cx, state, |id| self.file(id)).map_err(|error| failed(one, error))?;
        }
        for one in &saved.locks {
            self.lock(one, late).map_err(|error| format!("locks on a file: {error:?}"))?;
        }
        if let Some(unix) = self.unix.take() {
            unix.fill(&saved.unix, self.given.pid, |id| self.file(id))
                .map_err(|error| format!("messages of Unix sockets: {error:?}"))?;
        }
        // What was done until here is told to no program.
        for one in &saved.files {
            let Some(file) = self.files.get(&one.open.id) else { continue };
            self.signals(one, file, late).map_err(|error| failed(one, error))?;
        }
        Ok(())
    }

    /// The Landlock domain with layers of these places.
    pub fn domain(&self, layers: &[usize]) -> Option<Arc<Domain>> {
        self.landlock.as_ref()?.domain(layers).ok()
    }

    /// A process or thread by its number of before.
    pub(super) fn process(&self, nr: i32) -> Option<Arc<Pid>> {
        (self.given.pid)(nr)
    }

    /// What a file tells of: O_ASYNC, SIGURG, F_NOTIFY, watches, marks.
    fn signals(&self, one: &FileState, file: &Arc<OpenFile>, late: &Late<'_>) -> Result<()> {
        let cx = self.given.cx;
        files::fasync::restore(cx, file, &one.open, &late.signals)?;
        self.watch(&one.kind, file)?;
        match one.notify {
            Some(wish) => {
                files::dnotify::set(cx, file, wish.bits, files::fasync::teller(&late.signals, wish.fd))
            }
            None => Ok(()),
        }
    }

    /// What tells a process of a message; `None` when the process or its socket is gone.
    fn notification(&self, saved: &NotificationState, late: &Late<'_>) -> Option<Notification> {
        let group = (late.process)(saved.pid)?;
        let socket = match saved.message {
            Some((file, cookie)) => Some((self.file(file)?, cookie)),
            None => None,
        };
        let asked = (saved.how, saved.signo, saved.value);
        task::message_notification(&group, asked, socket.as_ref()).ok()
    }

    /// Gives sessions their terminals. To be called when the processes are in the tree.
    pub fn attach_terminals(&self) {
        for (_, pty, hangs_up) in &self.terminals {
            pty.restore_session();
            if *hangs_up {
                pty.hang_up();
            }
        }
    }

    fn lock(&self, one: &InodeLocks, late: &Late<'_>) -> Result<()> {
        let whole = |range: &records::Range| range.start <= range.end && range.end <= i64::MAX as u64;
        if !one.locks.records.iter().all(whole) {
            return Err(Errno::EINVAL);
        }
        records::restore(self.given.cx, &one.locks, |owner| match owner {
            records::Owner::Posix(table) => {
                Some((records::Owner::Posix((late.table)(table)?), self.file(one.file)?))
            }
            records::Owner::File(id) => {
                let file = self.file(id)?;
                Some((records::Owner::File(file.id), file))
            }
            records::Owner::Outside => None,
        })?;
        if one.leases.is_empty() {
            return Ok(());
        }
        let file = self.file(one.file).ok_or(Errno::EINVAL)?;
        let inode = file.inode.as_ref().ok_or(Errno::EINVAL)?;
        leases::restore(inode, &one.leases, self.given.cx.resources().clock.now(), |lease| {
            Some((self.file(lease.file)?, files::fasync::teller(&late.signals, lease.fd)))
        })
    }

    fn open(&self, one: &FileState) -> Result<Arc<OpenFile>> {
        let saved = &one.open;
        match &one.kind {
            Kind::Place => self.reopen(saved),
            Kind::PathOnly => {
                let path = self.path(saved.place.as_ref().ok_or(Errno::EINVAL)?)?;
                let inode = path.inode().clone();
                let ops = Arc::new(PathOnly::of(&inode)?);
                OpenFile::restore(saved, Some(path), Some(inode), ops)
            }
            Kind::Imported(state) => {
                let new = (self.given.imported)(state.container, state.index).ok_or(Errno::EBADF)?;
                hostfs::restore_imported(state, saved, &new)
            }
            Kind::Severed(state) => Severed::restore(state, saved),
            Kind::Pipe(at, end, attr) => {
                let pipe = self.pipes.get(*at).ok_or(Errno::EINVAL)?;
                let (path, inode) = match (attr, &saved.place) {
                    (Some(attr), _) => (None, pipe.restore_inode(*attr)),
                    (None, Some(place)) => {
                        let path = self.path(place)?;
                        let inode = path.inode().clone();
                        fifo::attach(&inode, pipe)?;
                        (Some(path), inode)
                    }
                    (None, None) => return Err(Errno::EINVAL),
                };
                OpenFile::restore(saved, path, Some(inode), pipe.restore_end(*end))
            }
            Kind::Terminal(at, master) => {
                let (home, pty, _) = self.terminals.get(*at).ok_or(Errno::EINVAL)?;
                let path = saved.place.as_ref().map(|place| self.path(place)).transpose()?;
                let inode = match &path {
                    Some(path) => path.inode().clone(),
                    None => home.slave_inode(pty.index).ok_or(Errno::ENOENT)?,
                };
                let ops = if *master { MasterFile::restore(pty) } else { SlaveFile::restore(pty) };
                OpenFile::restore(saved, path, Some(inode), ops)
            }
            Kind::Event(state) => {
                let ops = Arc::new(EventFd::from(*state));
                self.anonymous(saved, ops.clone()).inspect(|file| ops.identify(file))
            }
            Kind::Tun(state) => {
                let file = self.reopen(saved)?;
                tun::restore_file(&file, state)?;
                Ok(file)
            }
            Kind::Timer(state) => {
                self.anonymous(saved, TimerFd::restore(*state, &self.given.cx.resources().timers)?)
            }
            Kind::Signals(state) => self.anonymous(saved, Arc::new(SignalFd::from(*state))),
            Kind::Epoll(_) => {
                let new = Epoll::create(self.given.cx);
                OpenFile::restore(saved, None, new.inode.clone(), new.ops.clone())
            }
            Kind::Process(_) => Err(Errno::EINVAL),
            Kind::Inotify(state, _) => self.anonymous(saved, Inotify::restore(self.given.cx, state)?),
            Kind::Fanotify(state, ..) => {
                let process = (self.given.pid)(state.process).ok_or(Errno::EINVAL)?;
                self.anonymous(saved, Fanotify::restore(self.given.cx, state, &process)?)
            }
            Kind::Ruleset(place) => {
                let landlock = self.landlock.as_ref().ok_or(Errno::EINVAL)?;
                self.anonymous(saved, Arc::new(RulesetFile(landlock.ruleset(*place)?)))
            }
            Kind::Segment(ns, id) => {
                let ns = (self.given.ipc)(*ns).ok_or(Errno::ENOENT)?;
                ns.sysv.shm_file(saved, *id)
            }
            Kind::Queue(ns) => {
                let queues = self.queues.get(ns).ok_or(Errno::ENOENT)?;
                if let Some(place) = saved.place.as_ref().filter(|_| queues.is_removed(saved)) {
                    let mount = self.mounts.get(place.mount).ok_or(Errno::ENOENT)?;
                    let named = place.gone.as_ref().map_or(&place.path, |gone| &gone.name);
                    let name = named.rsplit(|&b| b == b'/').next().unwrap_or_default();
                    return queues.open_removed(saved, mount, name);
                }
                let path = saved.place.as_ref().map(|place| self.path(place)).transpose()?;
                queues.open(saved, path)
            }
            Kind::Namespace(space) => self.space(saved, *space),
            Kind::Tree(id) => {
                let ns = self.mounts.namespace(*id).filter(|ns| ns.is_anonymous()).ok_or(Errno::ENOENT)?;
                ::mounts::detached::restore(saved, ns)
            }
            Kind::Unix(attr, net) => {
                let ops = self.unix.as_ref().and_then(|unix| unix.socket(attr.ino)).ok_or(Errno::ENOENT)?;
                let net = (self.given.net)(*net).ok_or(Errno::ENOENT)?;
                SocketFile::restore(&net, ops, *attr, saved)
            }
            Kind::Network(attr, net) => {
                let ops = (self.given.socket)(attr.ino).ok_or(Errno::ENOENT)?;
                let net = (self.given.net)(*net).ok_or(Errno::ENOENT)?;
                SocketFile::restore(&net, ops, *attr, saved)
            }
        }
    }

    /// A namespace as a file.
    fn space(&self, saved: &OpenFileState, space: SpaceRef) -> Result<Arc<OpenFile>> {
        let ns = match space {
            SpaceRef::Mounts(id) => Namespace::Mount(self.mounts.namespace(id).ok_or(Errno::ENOENT)?.clone()),
            SpaceRef::Other(inum) => (self.given.space)(inum).ok_or(Errno::ENOENT)?,
        };
        let place = saved.place.as_ref().and_then(|place| self.mounts.get(place.mount));
        let path = match place {
            Some(mount) => mount.root_path(),
            None => ns.path(self.given.nsfs),
        };
        let inode = path.inode().clone();
        let ops: Arc<dyn FileOps> =
            if saved.flags & libc::O_PATH != 0 { Arc::new(PathOnly::default()) } else { Arc::new(NsOps(ns)) };
        OpenFile::restore(saved, Some(path), Some(inode), ops)
    }

    /// A file on the inode that all anonymous descriptors share.
    fn anonymous(&self, saved: &OpenFileState, ops: Arc<dyn FileOps>) -> Result<Arc<OpenFile>> {
        OpenFile::restore(saved, None, Some(self.given.cx.vfs().anonymous_inode()), ops)
    }

    /// Opens again what is at a place.
    fn reopen(&self, saved: &OpenFileState) -> Result<Arc<OpenFile>> {
        let path = self.path(saved.place.as_ref().ok_or(Errno::EINVAL)?)?;
        let writes = saved.flags & libc::O_PATH == 0 && saved.flags & libc::O_ACCMODE != libc::O_RDONLY;
        // A mount with files that are open for writing does not become read-only; the bundle's own may have been so from the start.
        if writes && !self.given.may_mount && path.kind() == libc::S_IFREG {
            vfs::access::writable_mount(&path)?;
        }
        let file = now(namei::opening::open_again(self.given.cx, path, saved.flags))?;
        OpenFile::restore(saved, file.path.clone(), file.inode.clone(), file.ops.clone())
    }
}

/// What refers to processes by itself, or by its place in procfs.
fn is_late(one: &FileState) -> bool {
    match &one.kind {
        Kind::Process(_) | Kind::Segment(..) | Kind::Queue(_) | Kind::Ruleset(_) => true,
        _ => shows_process(one),
    }
}

/// What refers to a process by its place in procfs.
fn shows_process(one: &FileState) -> bool {
    let of_process = |place: &PlaceState| place.path.get(1).is_some_and(u8::is_ascii_digit);
    matches!(one.kind, Kind::Place | Kind::PathOnly)
        && one.open.place.as_ref().is_some_and(|place| of_process(place) && one.in_procfs)
}

/// Nothing waits for a restore.
fn now<T>(outcome: Outcome<T>) -> Result<T> {
    outcome.map_err(|failure| match failure {
        caller::Failure::Errno(error) => error,
        _ => Errno::EAGAIN,
    })
}

/// Terminals, without open files.
fn terminals(
    given: &Given<'_>,
    supers: &Supers,
    saved: &FilesState,
) -> std::result::Result<Vec<Terminal>, String> {
    let mut all = Vec::new();
    for one in &saved.terminals {
        let name = || format!("terminal /dev/pts/{}", one.pty.index);
        let served = match one.served {
            true => {
                let console = (given.console)(one.container);
                Some(console.ok_or("the container has a terminal in the image: give it one")?)
            }
            false => None,
        };
        let sb = supers.get(one.sb).ok_or_else(|| format!("{}: no file system", name()))?;
        let home = Devpts::of(&sb.root.inode).ok_or_else(|| format!("{}: no devpts", name()))?;
        let pty = home.restore(given.cx, &one.pty, served.as_ref(), given.pid);
        let pty = pty.map_err(|error| format!("{}: {error:?}", name()))?;
        all.push((home, pty, one.hangs_up));
    }
    Ok(all)
}

type Objects = HashMap<(u64, u64), InodeRef>;

/// Mounts, file systems, and the files in memory.
fn file_systems(
    given: &Given<'_>,
    saved: &FilesState,
) -> std::result::Result<(MountMap, Supers, Objects), String> {
    let (mut mounts, mut supers, mut before) = (MountMap::default(), Supers::default(), HashMap::new());
    for one in &saved.began {
        let Belongs::Container(container) = one.belongs else {
            return Err("the mounts of a container are those of another namespace".into());
        };
        let ns = (given.namespace)(container)
            .ok_or_else(|| format!("the image has a container {container}, and there is none"))?;
        mounts.add(one, &ns)?;
        before.insert(one.id, ns.root.read().clone().tree());
        one.mounts.iter().filter_map(|mount| mounts.get(mount.id)).for_each(|mount| supers.add_bundle(mount));
        if !given.may_mount {
            let own: Vec<_> = one.mounts.iter().filter_map(|mount| mounts.get(mount.id)).cloned().collect();
            own.iter().for_each(|mount| mounts.masks.add(mount));
        }
        let now = saved.namespaces.iter().find(|now| now.id == one.id && now.belongs == one.belongs);
        let now = now.ok_or_else(|| format!("container {container} has no mounts"))?;
        let places = |ns: &super::NamespaceState| -> BTreeMap<u64, (Option<u64>, Vec<u8>)> {
            ns.mounts.iter().map(|mount| (mount.id, (mount.parent, mount.point.clone()))).collect()
        };
        if !given.may_mount && places(one) != places(now) {
            return Err(
                "the image has other mounts than the container, and its programs may not mount".into()
            );
        }
        mounts.detach(one, now);
    }
    let mut objects = HashMap::new();
    let held = mounts.held();
    let mut trees: HashMap<Option<usize>, &super::MountedTree> =
        saved.trees.iter().map(|one| (one.sb, one)).collect();
    if trees.len() != saved.trees.len() {
        return Err("files in memory are there twice".into());
    }
    let mut fill = |one: &super::MountedTree, sb: &Arc<SuperBlock>| {
        let held = |inode: &InodeRef| held.contains(&address(inode));
        let nodes = one.tree.restore(given.cx, &sb.root.inode, &held, given.pages)?;
        // Names that were looked up lead to what was there before.
        sb.root.shrink(false);
        objects.extend(nodes.into_iter().map(|(ino, inode)| ((one.tree.dev, ino), inode)));
        Ok::<_, String>(())
    };
    if let Some(one) = trees.remove(&None) {
        fill(one, &given.memfds.mount().sb)?;
    }
    let making = supers::Making {
        cx: given.cx,
        mount: &|id| mounts.get(id).cloned(),
        nsfs: given.nsfs,
        user: given.user,
        make: given.make,
        may_mount: given.may_mount,
        capabilities: given.capabilities,
    };
    supers.make(&saved.supers, &making, &mut |at, sb| match trees.remove(&Some(at)) {
        Some(one) => fill(one, sb),
        None => Ok(()),
    })?;
    if !trees.is_empty() {
        return Err("files in memory without a file system".into());
    }
    let making = Making {
        cx: given.cx,
        saved: &saved.namespaces,
        supers: &supers,
        nsfs: given.nsfs,
        user: given.user,
        space: given.space,
        may_mount: given.may_mount,
    };
    mounts.make(&making, &before)?;
    Ok((mounts, supers, objects))
}

/// The Unix sockets, without messages.
fn sockets(
    given: &Given<'_>,
    objects: &Objects,
    saved: &FilesState,
) -> std::result::Result<Restored, String> {
    let mut of_host: Objects = HashMap::new();
    for one in &saved.bound {
        let ns = (given.namespace)(one.container).ok_or("a Unix socket in an unknown container")?;
        let there = super::found(given.cx, &FsContext::new(ns), &one.path)
            .map_err(|error| format!("Unix socket {}: {error}", String::from_utf8_lossy(&one.path)))?;
        of_host.insert(one.object, there.inode().clone());
    }
    let inode = |object: (u64, u64)| objects.get(&object).or_else(|| of_host.get(&object)).cloned();
    let mut state = saved.unix.clone();
    for socket in &mut state.sockets {
        socket.net = (given.net)(socket.net).ok_or("a Unix socket in an unknown network namespace")?.inum;
    }
    given.unix.restore(&state, given.pid, inode).map_err(|error| format!("Unix sockets: {error:?}"))
}
