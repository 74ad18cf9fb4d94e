//! Open files to plain data.

use super::mounts::{Baseline, Belongs, MountState, NamespaceState, SpaceRef};
use super::state::{
    BoundState, ContextState, FileState, FilesState, InodeLocks, IpcNamespaceState, Kind, LandlockState,
    MountedTree, TerminalState,
};
use super::supers::{SuperKind, SuperState, is_plain, of_process};
use crate::Obstacle;
use abi::stat::{S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, major};
use container::Container;
use files::{FdTable, FdTableState};
use hostfs::{ImportedFile, Severed, SeveredState};
use image::PageSink;
use ipc::epoll::Epoll;
use ipc::eventfd::EventFd;
use ipc::fanotify::Fanotify;
use ipc::inotify::Inotify;
use ipc::pipe::{Pipe, PipeEnd, PipeState};
use ipc::ruleset::RulesetFile;
use ipc::signalfd::SignalFd;
use ipc::timerfd::TimerFd;
use landlock::LandlockSaver;
use locks::{leases, records};
use mounts::{FsContext, MountNs};
use mqueue::QueueFile;
use nsproxy::{Ipc, Namespace};
use pid::Pid;
use socket::SocketFile;
use socket::unix::{Addr, UnixFamily, UnixState};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use task::pidfd::PidFd;
use tmpfs::Memfds;
use tmpfs::state::Tree;
use tty::Pty;
use vfs::file::{PathOnly, PlaceState};
use vfs::mount::Origin;
use vfs::{Caller, InodeRef, Mount, OpenFile, Path, SuperBlock};

/// Major number of memory devices.
const MEMORY_DEVICES: u32 = 1;

/// An open file that was found, and what holds it, for messages.
struct Noted {
    file: Arc<OpenFile>,
    holder: String,
}

/// What is saved by others, and found by way of files.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// Notes a socket; whether the network's part of the image has it. It has no Unix sockets.
    pub network: &'a dyn Fn(&SocketFile) -> bool,
    /// Notes a namespace of another kind than mounts.
    pub space: &'a dyn Fn(&Namespace),
    /// Says what a file system is that shows a namespace; `None` for another one.
    pub shows: &'a dyn Fn(&Arc<SuperBlock>) -> Option<SuperKind>,
    /// The mount of nsfs.
    pub nsfs: &'a Arc<Mount>,
}

/// Collects the open files of a sandbox that stands still.
pub struct FileSaver<'a> {
    pub(super) cx: &'a dyn Caller,
    unix: &'a UnixFamily,
    memfds: &'a Memfds,
    around: Around<'a>,
    /// Terminals of containers, by index.
    consoles: Vec<(u32, Arc<Pty>)>,
    /// Terminals of sessions.
    sessions: Vec<Arc<Pty>>,
    began: Vec<NamespaceState>,
    /// File systems that containers began with, by address, and a mount of each.
    given: HashMap<usize, u64>,
    supers: Vec<Arc<SuperBlock>>,
    /// Their places, by address.
    places: HashMap<usize, usize>,
    namespaces: Vec<NamespaceState>,
    /// Mounts that the image has.
    mounts: HashSet<u64>,
    /// Mounts of places, which the image must have.
    wanted: Vec<(Arc<Mount>, String)>,
    /// File systems in memory, by device number: the place, and the root.
    roots: BTreeMap<u64, (Option<usize>, InodeRef)>,
    /// Files in memory that may have no name, by device number.
    loose: BTreeMap<u64, Vec<InodeRef>>,
    /// What the containers began with.
    pub(super) views: Vec<(u32, Arc<FsContext>)>,
    ipc: Vec<Arc<Ipc>>,
    /// Layers of domains.
    pub landlock: LandlockSaver,
    noted: Vec<Noted>,
    known: HashSet<u64>,
    obstacles: Vec<Obstacle>,
}

impl<'a> FileSaver<'a> {
    /// Nothing yet.
    pub fn new(
        cx: &'a dyn Caller,
        unix: &'a UnixFamily,
        memfds: &'a Memfds,
        around: Around<'a>,
    ) -> FileSaver<'a> {
        FileSaver {
            cx,
            unix,
            memfds,
            around,
            consoles: Vec::new(),
            sessions: Vec::new(),
            began: Vec::new(),
            given: HashMap::new(),
            supers: Vec::new(),
            places: HashMap::new(),
            namespaces: Vec::new(),
            mounts: HashSet::new(),
            wanted: Vec::new(),
            roots: BTreeMap::new(),
            loose: BTreeMap::new(),
            views: Vec::new(),
            ipc: Vec::new(),
            landlock: LandlockSaver::default(),
            noted: Vec::new(),
            known: HashSet::new(),
            obstacles: Vec::new(),
        }
    }

    /// Notes a terminal that may be open nowhere: that of a session.
    pub fn terminal(&mut self, pty: &Arc<Pty>) {
        self.sessions.push(pty.clone());
    }

    /// Notes the mounts of a container, which began with `baseline`, and its terminal. All containers come before the first file.
    pub fn container(&mut self, container: &Container, baseline: &Baseline, console: Option<Arc<Pty>>) {
        self.consoles.extend(console.map(|pty| (container.index(), pty)));
        let Some(fs) = container.root_fs.lock().clone() else { return };
        self.namespace(&fs, container.index(), baseline);
    }

    pub(super) fn namespace(&mut self, fs: &Arc<FsContext>, container: u32, baseline: &Baseline) {
        let ns = fs.view().ns.clone();
        for (id, sb) in &baseline.supers {
            if let Some(sb) = sb.upgrade() {
                self.given.entry(Arc::as_ptr(&sb) as usize).or_insert(*id);
            }
        }
        self.views.push((container, fs.clone()));
        let belongs = Belongs::Container(container);
        self.began.push(NamespaceState { belongs, ..baseline.state.clone() });
        let top = ns.root.read().clone();
        self.tree_of(ns.id, belongs, &top);
    }

    /// Notes a mount namespace, and those that are files in it.
    fn mount_namespace(&mut self, ns: &Arc<MountNs>) {
        let mut todo = vec![ns.clone()];
        while let Some(ns) = todo.pop() {
            if self.namespaces.iter().any(|known| known.id == ns.id && known.belongs != Belongs::Nothing) {
                continue;
            }
            (self.around.space)(&Namespace::User(ns.user_ns().clone()));
            let owner = ns.user_ns().inum();
            let belongs = match ns.anonymous {
                None => Belongs::Made(owner, ns.counted_for()),
                Some(Origin::Nowhere) => Belongs::Descriptor(owner, None),
                Some(Origin::Namespace(id)) => Belongs::Descriptor(owner, Some(id)),
            };
            let top = ns.root.read().clone();
            todo.extend(self.tree_of(ns.id, belongs, &top));
        }
    }

    /// Notes a tree of mounts; gives the mount namespaces that are files in it.
    fn tree_of(&mut self, id: u64, belongs: Belongs, top: &Arc<Mount>) -> Vec<Arc<MountNs>> {
        let (mut mounts, mut more) = (Vec::new(), Vec::new());
        for mount in top.tree() {
            self.mounts.insert(mount.unique_id());
            let mut state = MountState::of(&mount, self.super_block(&mount.sb));
            if let Some(ns) = Namespace::of(&mount.root.inode) {
                state.space = Some(self.space(&ns));
                if let Namespace::Mount(ns) = ns {
                    more.push(ns);
                }
            } else if mount.root.is_unlinked() {
                self.refuse(format!("{} shows a file that was removed", state.named()));
            } else if of_process(mount.fs().kind(), &state.root) {
                self.refuse(format!("{} shows a process", state.named()));
            }
            if mount.mountpoint().is_some_and(|at| of_process(at.mount.fs().kind(), &state.point)) {
                self.refuse(format!("{} is on a file of a process", state.named()));
            }
            mounts.push(state);
        }
        if let Some(top) = mounts.first_mut() {
            top.parent = None;
        }
        self.namespaces.push(NamespaceState { id, belongs, mounts });
        more
    }

    /// Notes a namespace that a file is.
    fn space(&mut self, ns: &Namespace) -> SpaceRef {
        match ns {
            Namespace::Mount(ns) => SpaceRef::Mounts(ns.id),
            other => {
                (self.around.space)(other);
                SpaceRef::Other(other.inum())
            }
        }
    }

    /// The place of a file system.
    fn super_block(&mut self, sb: &Arc<SuperBlock>) -> usize {
        let supers = &mut self.supers;
        *self.places.entry(Arc::as_ptr(sb) as usize).or_insert_with(|| {
            supers.push(sb.clone());
            supers.len() - 1
        })
    }

    /// The trees of mounts that belong to nothing any more, and in which files are open.
    fn left_trees(&mut self) {
        for (mount, holder) in std::mem::take(&mut self.wanted) {
            if self.mounts.contains(&mount.unique_id()) {
                continue;
            }
            let mut top = mount.clone();
            while let Some(at) = top.mountpoint() {
                top = at.mount;
            }
            if top.ns().is_some() && top.ns_id() != 0 {
                let fstype = mount.fs().kind();
                self.refuse(format!("{holder} is in a mount of {fstype} in a namespace that no process has"));
                continue;
            }
            let more = self.tree_of(0, Belongs::Nothing, &top);
            more.iter().for_each(|ns| self.mount_namespace(ns));
        }
    }

    /// The file systems as plain data, with those that they stand upon.
    fn file_systems(&mut self) -> Vec<SuperState> {
        let mut all = Vec::new();
        while let Some(sb) = self.supers.get(all.len()).cloned() {
            let at = all.len();
            let fstype = sb.fs.kind();
            if let Some(dev) = Tree::dev(&sb.root.inode) {
                self.roots.insert(dev, (Some(at), sb.root.inode.clone()));
            }
            let kind = match self.kind_of_super(&sb) {
                Ok(kind) => kind,
                Err(what) => {
                    self.refuse(what);
                    SuperKind::Plain
                }
            };
            let user_ns = sb.user_ns();
            if let Some(ns) = user_ns {
                (self.around.space)(&Namespace::User(ns.clone()));
            }
            all.push(SuperState {
                kind,
                fstype: fstype.into(),
                flags: sb.flags().bits(),
                options: options(&sb),
                owner: user_ns.map_or(0, |ns| ns.inum()),
            });
        }
        all
    }

    fn kind_of_super(&mut self, sb: &Arc<SuperBlock>) -> Result<SuperKind, String> {
        let fstype = sb.fs.kind();
        if let Some(id) = self.given.get(&(Arc::as_ptr(sb) as usize)) {
            return Ok(SuperKind::Given(*id));
        }
        if fstype == "nsfs" {
            return Ok(SuperKind::Namespaces);
        }
        if is_plain(fstype) {
            return Ok(SuperKind::Plain);
        }
        if let Some(kind) = (self.around.shows)(sb) {
            return Ok(kind);
        }
        let mut number = |layer: &Arc<SuperBlock>| Ok(self.super_block(layer));
        let overlay = overlayfs::state(&sb.root.inode, &mut number);
        let Some(overlay) = overlay else {
            return Err(format!("a file system of the type {fstype} is mounted"));
        };
        let overlay = overlay?;
        if overlay.creds.confined {
            return Err("an overlay was mounted under Landlock".into());
        }
        Ok(SuperKind::Overlay(Box::new(overlay)))
    }

    /// Notes the objects of an IPC namespace.
    pub fn ipc(&mut self, ns: &Arc<Ipc>) {
        for file in ns.sysv.shm_files() {
            self.note(&file, &|| "a System V shared memory segment".into());
        }
        self.ipc.push(ns.clone());
    }

    /// Notes an open file; gives its identity. `holder` says what holds it: `descriptor 5 of process 12 (nginx)`.
    pub fn note(&mut self, file: &Arc<OpenFile>, holder: &dyn Fn() -> String) -> u64 {
        if self.known.insert(file.id) {
            self.noted.push(Noted { file: file.clone(), holder: holder() });
        }
        file.id
    }

    /// The descriptors of a process (`12 (nginx)`) as plain data, all noted.
    pub fn table(&mut self, table: &FdTable, process: &str) -> FdTableState {
        for (fd, file, _) in table.entries() {
            self.note(&file, &|| format!("descriptor {fd} of process {process}"));
        }
        table.state()
    }

    /// A place as plain data, which `holder` has.
    pub fn place(&mut self, path: &Path, holder: &dyn Fn() -> String) -> PlaceState {
        let state = PlaceState::of(path);
        self.check_place(path, &state, holder);
        state
    }

    /// Root, working directory and mask of a process (`12 (nginx)`) as plain data.
    pub fn context(&mut self, fs: &FsContext, process: &str) -> ContextState {
        let view = fs.view();
        self.mount_namespace(&view.ns);
        ContextState {
            root: self.place(&view.root, &|| format!("the root directory of process {process}")),
            cwd: self.place(&view.cwd, &|| format!("the working directory of process {process}")),
            umask: fs.umask(),
            namespace: view.ns.id,
        }
    }

    pub(super) fn refuse(&mut self, what: String) {
        self.obstacles.push(Obstacle { what });
    }

    pub(super) fn check_place(&mut self, path: &Path, state: &PlaceState, holder: &dyn Fn() -> String) {
        let shown = String::from_utf8_lossy(&path.display_absolute()).into_owned();
        let memfd = Arc::ptr_eq(&path.mount, self.memfds.mount());
        if !memfd {
            self.wanted.push((path.mount.clone(), holder()));
        }
        if let Some(dev) = Tree::dev(path.inode()).filter(|_| state.unlinked && state.gone.is_some()) {
            if memfd {
                self.roots.entry(dev).or_insert_with(|| (None, path.mount.sb.root.inode.clone()));
            }
            self.loose.entry(dev).or_default().push(path.inode().clone());
        } else if state.unlinked {
            self.refuse(format!("{} is {shown}, which was removed", holder()));
        } else if !self.leads_back(path, &state.path) {
            self.refuse(format!("{} is {shown}, and this name leads elsewhere by now", holder()));
        }
    }

    /// Whether the path of a place, in a file system that others change, still leads to the same object.
    fn leads_back(&self, path: &Path, names: &[u8]) -> bool {
        if !path.mount.fs().revalidate() {
            return true;
        }
        let found = super::find(self.cx, &path.mount, names);
        let number = |attr: abi::Result<abi::stat::Attr>| attr.ok().map(|attr| (attr.dev, attr.ino));
        found.is_ok_and(|found| number(found.attr()) == number(path.attr()))
    }

    /// Follows what the noted files lead to, and says what cannot be saved. To be called when all are noted.
    pub fn check(mut self) -> Result<CheckedFiles, Vec<Obstacle>> {
        let mut checked = CheckedFiles::default();
        let mut at = 0;
        loop {
            while let Some(noted) = self.noted.get(at) {
                let Noted { file, holder } = noted;
                let (file, holder) = (file.clone(), holder.clone());
                self.classify(&file, &holder, &mut checked);
                at += 1;
            }
            let saved = self.unix.state(self.noted.iter().map(|noted| &*noted.file));
            for file in &saved.in_flight {
                self.note(file, &|| "a descriptor in a message between Unix sockets".into());
            }
            if at == self.noted.len() {
                let sockets =
                    saved.confined.iter().map(|(place, domain)| (*place, self.landlock.domain(domain)));
                checked.landlock.sockets = sockets.collect();
                self.bound(&saved, &mut checked);
                checked.unix = saved.state;
                break;
            }
        }
        self.rules(&mut checked);
        self.left_trees();
        checked.supers = self.file_systems();
        self.trees(&mut checked);
        self.terminals(&mut checked);
        checked.locks = self.locks();
        if !self.obstacles.is_empty() {
            return Err(self.obstacles);
        }
        let objects = |ns: &Arc<Ipc>| IpcNamespaceState {
            inum: ns.inum,
            sysv: ns.sysv.state(),
            mqueue: ns.mqueue.state(self.noted.iter().map(|noted| &*noted.file)),
        };
        checked.ipc = self.ipc.iter().map(objects).collect();
        checked.remembered.extend(self.ipc.iter().flat_map(|ns| ns.sysv.doers()));
        (checked.began, checked.namespaces) = (self.began, self.namespaces);
        Ok(checked)
    }

    /// The locks on the noted files, each inode once.
    fn locks(&self) -> Vec<InodeLocks> {
        let now = self.cx.resources().clock.now();
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        for Noted { file, .. } in &self.noted {
            let Some(inode) = &file.inode else { continue };
            if !seen.insert(Arc::as_ptr(inode).cast::<()>() as usize) {
                continue;
            }
            let (locks, leases) = (records::state(file), leases::state(inode, now));
            if locks != records::LocksState::default() || !leases.is_empty() {
                all.push(InodeLocks { file: file.id, locks, leases });
            }
        }
        all
    }

    /// A file as plain data, or an obstacle.
    fn classify(&mut self, file: &Arc<OpenFile>, holder: &str, checked: &mut CheckedFiles) {
        match self.kind_of(file, holder, checked) {
            Ok(kind) => {
                let in_procfs = file.path.as_ref().is_some_and(|path| path.mount.fs().kind() == "proc");
                let notify = files::dnotify::state(file);
                checked.files.insert(file.id, FileState { open: file.state(), kind, in_procfs, notify });
            }
            Err(what) => self.refuse(format!("{holder}: {what}")),
        }
    }

    fn kind_of(
        &mut self,
        file: &Arc<OpenFile>,
        holder: &str,
        checked: &mut CheckedFiles,
    ) -> Result<Kind, String> {
        if Severed::is(file) {
            return severed(SeveredState::of(file));
        }
        match tty::pty_of(file).filter(|_| tty::is_hung(file)) {
            Some((_, true)) => return severed(SeveredState::terminal(file)),
            Some((pty, false)) => {
                return Err(format!("the master of /dev/pts/{} was hung up (TIOCVHANGUP)", pty.index));
            }
            None => {}
        }
        if let Some(tree) = ::mounts::detached::tree_of(file) {
            self.mount_namespace(&tree.clone());
            return Ok(Kind::Tree(tree.id));
        }
        if let Some(ns) = file.inode.as_ref().and_then(Namespace::of) {
            if let Namespace::Mount(ns) = &ns {
                self.mount_namespace(ns);
            }
            if let Some(path) = file.path.as_ref().filter(|path| !Arc::ptr_eq(&path.mount, self.around.nsfs))
            {
                self.wanted.push((path.mount.clone(), holder.to_owned()));
            }
            return Ok(Kind::Namespace(self.space(&ns)));
        }
        if let Some(path) = &file.path {
            if QueueFile::of(file).is_ok_and(QueueFile::is_removed) {
                self.wanted.push((path.mount.clone(), holder.to_owned()));
            } else {
                self.check_place(path, &PlaceState::of(path), &|| holder.to_owned());
            }
        }
        let ops = file.ops.as_any();
        if ops.is::<PathOnly>() {
            return if file.path.is_some() { Ok(Kind::PathOnly) } else { Err(unknown(file)) };
        }
        if let Some(end) = ops.downcast_ref::<PipeEnd>() {
            let attr = match &file.path {
                Some(_) => None,
                None => Some(file.attr().map_err(|_| "a pipe without attributes".to_owned())?),
            };
            return Ok(Kind::Pipe(checked.pipe(end.pipe()), end.state(), attr));
        }
        if let Some((sysv, id)) = sysv::shm::segment_in(file) {
            let ns = self.ipc.iter().find(|ns| Arc::ptr_eq(&ns.sysv, &sysv));
            let ns = ns.ok_or("shared memory of another IPC namespace")?;
            return Ok(Kind::Segment(ns.inum, id));
        }
        if let Ok(queue) = QueueFile::of(file) {
            let ns = self.ipc.iter().find(|ns| queue.is_in(&ns.mqueue));
            return Ok(Kind::Queue(ns.ok_or("a message queue of another IPC namespace")?.inum));
        }
        if let Some((pty, slave)) = tty::pty_of(file) {
            return Ok(Kind::Terminal(checked.terminal(&pty, !slave), !slave));
        }
        if let Some(state) = tun::file_state(file) {
            return state.map(Kind::Tun).map_err(|_| "a file of /dev/net/tun without its interface".into());
        }
        if procfs::shows_gone_memory(file) {
            return Err("the memory of a program that has ended".into());
        }
        if let Some(path) = &file.path {
            return at_place(file, path);
        }
        match ImportedFile::of(file) {
            Some(ImportedFile::First(state)) => return Ok(Kind::Imported(state)),
            Some(ImportedFile::Other) => return severed(SeveredState::of(file)),
            None => {}
        }
        if let Some(event) = ops.downcast_ref::<EventFd>() {
            return Ok(Kind::Event(event.state()));
        }
        if let Some(timer) = ops.downcast_ref::<TimerFd>() {
            return Ok(Kind::Timer(timer.state()));
        }
        if let Some(signals) = ops.downcast_ref::<SignalFd>() {
            return Ok(Kind::Signals(signals.state()));
        }
        if let Some(epoll) = ops.downcast_ref::<Epoll>() {
            return Ok(Kind::Epoll(epoll.state()));
        }
        if let Some(ruleset) = RulesetFile::of(file) {
            return Ok(Kind::Ruleset(self.landlock.ruleset(ruleset)));
        }
        if let Some(inotify) = Inotify::of(file) {
            return self.watches(inotify, holder);
        }
        if let Some(group) = Fanotify::of(file) {
            return self.marks(group, holder, checked);
        }
        if let Some(process) = ops.downcast_ref::<PidFd>() {
            let saved = process.saved(self.cx).ok_or("a descriptor of a process that has gone")?;
            return Ok(Kind::Process(saved));
        }
        if let Some(socket) = ops.downcast_ref::<SocketFile>() {
            let attr = file.attr().map_err(|_| "a socket without attributes".to_owned())?;
            let net = socket.net.inum;
            let noted = (self.around.network)(socket);
            return match socket.ops.domain() {
                libc::AF_UNIX => Ok(Kind::Unix(attr, net)),
                _ if noted => Ok(Kind::Network(attr, net)),
                _ => Err(unknown(file)),
            };
        }
        Err(unknown(file))
    }

    /// The files that Unix sockets are bound to: one in memory is known by its number, one of the host by the socket's
    /// address, which must lead there.
    fn bound(&mut self, saved: &socket::unix::Saved, checked: &mut CheckedFiles) {
        for socket in saved.state.sockets.iter().filter(|socket| socket.outside) {
            let name = socket.addr.as_ref().map(|addr| format!(" {addr:?}")).unwrap_or_default();
            self.refuse(format!("a Unix socket{name} is connected to a program outside the sandbox"));
        }
        let mut of_host = Vec::new();
        for inode in &saved.bound {
            match Tree::dev(inode) {
                Some(dev) => self.loose.entry(dev).or_default().push(inode.clone()),
                None => of_host.extend(inode.attr().map(|attr| (attr.dev, attr.ino))),
            }
        }
        for socket in &saved.state.sockets {
            let Some(object) = socket.place.filter(|object| of_host.contains(object)) else { continue };
            let Some(Addr::Path(path)) = &socket.addr else { continue };
            let leads = |(_, fs): &&(u32, Arc<FsContext>)| {
                super::look(self.cx, fs, path).is_ok_and(|attr| (attr.dev, attr.ino) == object)
            };
            match self.views.iter().find(leads).map(|(container, _)| *container) {
                Some(container) => checked.bound.push(BoundState { object, container, path: path.clone() }),
                None => {
                    let path = String::from_utf8_lossy(path).into_owned();
                    self.refuse(format!("a Unix socket is bound to {path}, which does not lead to it"));
                }
            }
        }
    }

    /// Terminals: those of the instances of devpts that are mounted.
    fn terminals(&mut self, checked: &mut CheckedFiles) {
        for pty in std::mem::take(&mut self.sessions) {
            checked.terminal(&pty, false);
        }
        let mut places: HashMap<u64, usize> = HashMap::new();
        for (at, sb) in self.supers.iter().enumerate().filter(|(_, sb)| sb.fs.kind() == "devpts") {
            places.entry(sb.root.inode.attr().map_or(0, |attr| attr.dev)).or_insert(at);
        }
        for (pty, master) in &checked.ptys {
            let console = self.consoles.iter().find(|(_, console)| Arc::ptr_eq(console, pty));
            let (served, container) = (console.is_some(), console.map_or(0, |(container, _)| *container));
            let name = format!("the terminal /dev/pts/{}", pty.index);
            let state = pty.state();
            let place = state.as_ref().and_then(|state| places.get(&state.attr.dev).copied());
            match (state, place) {
                (Some(pty), Some(sb)) => {
                    let hangs_up = !served && !*master;
                    checked.terminals.push(TerminalState { sb, pty, served, container, hangs_up });
                }
                _ => self
                    .obstacles
                    .push(Obstacle { what: format!("{name}, which is in no mount of a container") }),
            }
        }
    }

    /// Files in memory.
    fn trees(&mut self, checked: &mut CheckedFiles) {
        let roots = std::mem::take(&mut self.roots);
        for (dev, (sb, root)) in &roots {
            let loose = self.loose.remove(dev).unwrap_or_default();
            match Tree::of(self.cx, root, &loose) {
                Ok(tree) => checked.trees.push((*sb, tree)),
                Err(what) => self.refuse(what),
            }
        }
        if !self.loose.is_empty() {
            self.refuse("a removed file of a file system in memory that is not mounted".into());
        }
    }
}

/// The options of a file system, in the numbers of the user namespace that owns it.
fn options(sb: &SuperBlock) -> String {
    let Some(devpts) = tty::Devpts::of(&sb.root.inode) else { return sb.fs.options() };
    let ns = sb.user_ns();
    let user = |id: u32| ns.map_or(id, |ns| ns.show_user(id));
    let group = |id: u32| ns.map_or(id, |ns| ns.show_group(id));
    let (uid, gid) = devpts.owner();
    let [mode, ptmxmode, max] = devpts.numbers();
    let owner = [uid.map(|id| format!("uid={},", user(id))), gid.map(|id| format!("gid={},", group(id)))];
    let owner: String = owner.into_iter().flatten().collect();
    format!("{owner}mode={mode:o},ptmxmode={ptmxmode:o},max={max}")
}

fn severed(state: abi::Result<SeveredState>) -> Result<Kind, String> {
    state.map(Kind::Severed).map_err(|error| format!("a stream without attributes: {error}"))
}

/// What an open file without a plain form is, in words.
fn unknown(file: &OpenFile) -> String {
    match file.ops.link_name() {
        Some(name) => format!("{name}, which cannot be saved"),
        None => "a file that cannot be saved".into(),
    }
}

/// A file that is opened again where it is.
fn at_place(file: &OpenFile, path: &Path) -> Result<Kind, String> {
    let shown = || String::from_utf8_lossy(&path.display_absolute()).into_owned();
    let fstype = path.mount.fs().kind();
    match path.kind() {
        S_IFREG | S_IFDIR if matches!(fstype, "nsfs" | "fuse" | "erofs") => {
            Err(format!("{} of {fstype}, which cannot be saved", shown()))
        }
        S_IFREG | S_IFDIR => Ok(Kind::Place),
        S_IFCHR => {
            let rdev = file.inode.as_ref().and_then(|inode| inode.attr().ok()).map_or(0, |attr| attr.rdev);
            if major(rdev) == MEMORY_DEVICES {
                Ok(Kind::Place)
            } else {
                Err(format!("the device {}", shown()))
            }
        }
        S_IFIFO => Err(format!("the FIFO {}, which is open outside", shown())),
        S_IFLNK => Err(format!("the link {}", shown())),
        _ => Err(format!("{}, which cannot be saved", shown())),
    }
}

/// Files of which all can be saved.
#[derive(Default)]
pub struct CheckedFiles {
    began: Vec<NamespaceState>,
    supers: Vec<SuperState>,
    namespaces: Vec<NamespaceState>,
    files: BTreeMap<u64, FileState>,
    pipes: Vec<PipeState>,
    /// Places in `pipes` by address.
    places: HashMap<usize, usize>,
    locks: Vec<InodeLocks>,
    /// Terminals, and whether a master of each is open.
    ptys: Vec<(Arc<Pty>, bool)>,
    terminals: Vec<TerminalState>,
    trees: Vec<(Option<usize>, Tree)>,
    bound: Vec<BoundState>,
    unix: UnixState,
    ipc: Vec<IpcNamespaceState>,
    pub(super) landlock: LandlockState,
    /// Processes that objects remember, which may have ended.
    pub(super) remembered: Vec<Arc<Pid>>,
}

impl CheckedFiles {
    fn pipe(&mut self, pipe: &Arc<Pipe>) -> usize {
        let pipes = &mut self.pipes;
        *self.places.entry(Arc::as_ptr(pipe) as usize).or_insert_with(|| {
            pipes.push(pipe.state());
            pipes.len() - 1
        })
    }

    fn terminal(&mut self, pty: &Arc<Pty>, master: bool) -> usize {
        let known = self.ptys.iter().position(|(one, _)| Arc::ptr_eq(one, pty));
        let at = known.unwrap_or_else(|| {
            self.ptys.push((pty.clone(), false));
            self.ptys.len() - 1
        });
        if let Some((_, has_master)) = self.ptys.get_mut(at) {
            *has_master |= master;
        }
        at
    }

    /// Processes that objects remember, which may have ended.
    pub fn remembered(&self) -> &[Arc<Pid>] {
        &self.remembered
    }

    /// Bytes of the files in memory, about.
    pub fn bytes(&self) -> u64 {
        self.trees.iter().map(|(_, tree)| tree.bytes()).sum()
    }

    /// As plain data; the content of files in memory goes to `pages`. The error is a sentence for the user.
    pub fn finish(self, cx: &dyn Caller, pages: &dyn PageSink) -> Result<FilesState, String> {
        let trees = self.trees.into_iter().map(|(sb, tree)| {
            let tree = tree.write(cx, pages).map_err(|error| format!("files in memory: {error}"))?;
            Ok(MountedTree { sb, tree })
        });
        Ok(FilesState {
            began: self.began,
            supers: self.supers,
            namespaces: self.namespaces,
            files: self.files.into_values().collect(),
            trees: trees.collect::<Result<_, String>>()?,
            terminals: self.terminals,
            pipes: self.pipes,
            locks: self.locks,
            bound: self.bound,
            unix: self.unix,
            ipc: self.ipc,
            landlock: self.landlock,
        })
    }
}
