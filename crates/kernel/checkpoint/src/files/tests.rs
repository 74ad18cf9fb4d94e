//! Each kind of file is saved, goes through CBOR, and is restored in a second kernel.

use super::*;
use crate::Obstacle;
use ::mounts::{FsContext, MountNs};
use image::{PageSink, PageSource};
use ipc::epoll::{Epoll, Event};
use ipc::eventfd::EventFd;
use ipc::inotify::Inotify;
use ipc::pipe::Pipe;
use ipc::signalfd::SignalFd;
use ipc::timerfd::TimerFd;
use lock_order::Mutex;
use locks::records;
use namei::{Lookup, OpenHow, Start};
use socket::unix::UnixFamily;
use std::io;
use tmpfs::{MemFiles, Memfds, Options, TmpFs};
use user_ns::UserNamespace;
use vfs::testing::TestCaller;
use vfs::{MountFlags, OpenFile};

/// A file of pages in memory.
#[derive(Default)]
struct Pages(Mutex<Vec<u8>>);

impl PageSink for Pages {
    fn reserve(&self, len: u64) -> io::Result<u64> {
        let mut file = self.0.lock();
        let end = file.len();
        file.resize(end + len as usize, 0);
        Ok(end as u64)
    }
    fn write(&self, offset: u64, pages: &[u8]) -> io::Result<()> {
        self.0.lock()[offset as usize..][..pages.len()].copy_from_slice(pages);
        Ok(())
    }
}

impl PageSource for Pages {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let file = self.0.lock();
        let from = file.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.lock().len() as u64
    }
}

/// A kernel with a root in memory.
struct World {
    cx: TestCaller,
    fs: Arc<FsContext>,
    unix: UnixFamily,
    memfds: Arc<Memfds>,
    memory: Arc<MemFiles>,
    nsfs: Arc<Mount>,
    baseline: Baseline,
    told: Arc<Told>,
}

/// Signals of files: owner, band and descriptor.
#[derive(Default)]
struct Told(Mutex<Vec<(i32, i64, i32)>>);

impl ::files::IoSignals for Told {
    fn send(&self, owner: &vfs::SignalOwner, _code: i32, band: i64, fd: i32) {
        self.0.lock().push((owner.id, band, fd));
    }
    fn urgent(&self, owner: &vfs::SignalOwner) {
        self.0.lock().push((owner.id, 0, 0));
    }
}

impl World {
    fn new() -> World {
        let cx = TestCaller::root();
        let memory = MemFiles::new(None);
        let (root, memfds) = (TmpFs::new(&memory, Options::default()), Memfds::new(&memory));
        let ns = MountNs::new(&cx.vfs, Mount::of(root, MountFlags::RELATIME, b"none"));
        let baseline = Baseline::of(&ns);
        let nsfs = nsproxy::NsFs::mount(&cx.vfs);
        World {
            fs: FsContext::new(ns),
            unix: UnixFamily::new(1 << 20),
            memfds,
            memory,
            nsfs,
            baseline,
            told: Arc::default(),
            cx,
        }
    }

    fn open(&self, path: &[u8], flags: i32) -> Arc<OpenFile> {
        let how = OpenHow::new(flags, if flags & libc::O_CREAT == 0 { 0 } else { 0o644 }, 0).expect("valid");
        namei::open::open_at(&self.cx, &self.fs.view(), &Start::Cwd, path, &how).expect("opened")
    }

    fn path(&self, path: &[u8]) -> Path {
        namei::walk::lookup(&self.cx, &self.fs.view(), &Start::Cwd, path, Lookup::empty()).expect("there")
    }

    fn save(
        &self,
        files: &[&Arc<OpenFile>],
        pages: &Pages,
    ) -> std::result::Result<FilesState, Vec<Obstacle>> {
        let network = |_: &socket::SocketFile| false;
        let around = Around { network: &network, space: &|_| (), shows: &|_| None, nsfs: &self.nsfs };
        let mut saver = FileSaver::new(&self.cx, &self.unix, &self.memfds, around);
        saver.namespace(&self.fs, 0, &self.baseline);
        for (fd, file) in files.iter().enumerate() {
            saver.note(file, &|| format!("descriptor {fd} of process 1 (test)"));
        }
        Ok(saver.check()?.finish(&self.cx, pages).expect("written"))
    }

    fn given<'a>(&'a self, pages: &'a Pages, ns: &'a dyn Fn(u32) -> Option<Arc<MountNs>>) -> Given<'a> {
        Given {
            cx: &self.cx,
            unix: &self.unix,
            memfds: &self.memfds,
            pages,
            namespace: ns,
            nsfs: &self.nsfs,
            user: &|_| Some(UserNamespace::initial()),
            space: &|_| None,
            make: &|saved| match saved.fstype.as_str() {
                "tmpfs" => Ok(vfs::SuperBlock::new(TmpFs::new(
                    &MemFiles::new(None),
                    Options::parse(saved.options.as_bytes()).map_err(|error| error.to_string())?,
                ))),
                other => Err(other.into()),
            },
            may_mount: true,
            capabilities: 0,
            imported: &|_, _| None,
            console: &|_| None,
            net: &|_| None,
            socket: &|_| None,
            ipc: &|_| None,
            pid: &|_| None,
        }
    }

    fn restore<'a>(
        &'a self,
        saved: &FilesState,
        pages: &'a Pages,
        ns: &'a dyn Fn(u32) -> Option<Arc<MountNs>>,
    ) -> FileRestorer<'a> {
        let mut all = FileRestorer::new(self.given(pages, ns), saved).expect("restored");
        let signals = self.told.clone();
        let landlock = Arc::default();
        let late = Late { process: &|_| None, table: &|id| Some(id + 1000), signals, landlock };
        all.refer(saved, &late).expect("finished");
        all.finish(saved, &late).expect("finished");
        all
    }
}

/// Through the encoding of an image.
fn encoded<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).expect("encoded");
    ciborium::from_reader(&*bytes).expect("decoded")
}

/// Saves files of one kernel and gives those of another.
fn moved(from: &World, to: &World, files: &[&Arc<OpenFile>]) -> Vec<Arc<OpenFile>> {
    let pages = Pages::default();
    let saved = from.save(files, &pages).expect("no obstacle");
    let decoded = encoded(&saved);
    assert_eq!(decoded, saved);
    let ns = |_| Some(to.fs.view().ns.clone());
    let all = to.restore(&decoded, &pages, &ns);
    files.iter().map(|file| all.file(file.id).expect("restored")).collect()
}

fn read(world: &World, file: &Arc<OpenFile>) -> abi::Result<Vec<u8>> {
    let mut buf = [0; 100];
    let pos = *file.pos.lock();
    let n = file.ops.read(&world.cx, file, &mut buf, pos)?;
    Ok(buf[..n].to_vec())
}

fn write(world: &World, file: &Arc<OpenFile>, bytes: &[u8]) {
    assert_eq!(file.ops.write(&world.cx, file, bytes, 0), Ok(bytes.len()));
}

#[test]
fn pipes_keep_content_and_ends() {
    let (one, two) = (World::new(), World::new());
    let (r, w) = Pipe::pair(&one.cx, libc::O_NONBLOCK).expect("made");
    write(&one, &w, b"before");
    let files = moved(&one, &two, &[&r, &w]);
    let [r, w] = &files[..] else { panic!("two files") };
    assert_eq!((read(&two, r), r.nonblocking()), (Ok(b"before".to_vec()), true));
    assert_eq!(read(&two, r), Err(Errno::EAGAIN));
    write(&two, w, b"after");
    assert_eq!(read(&two, r), Ok(b"after".to_vec()));
    // The last writer goes: the end.
    let r = r.clone();
    drop(files);
    assert_eq!(read(&two, &r), Ok(Vec::new()));
}

#[test]
fn descriptors_of_events_keep_their_state() {
    let (one, two) = (World::new(), World::new());
    let event = EventFd::create(&one.cx, 3, libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK).expect("made");
    let timer = TimerFd::create(&one.cx, libc::CLOCK_MONOTONIC, 0).expect("made");
    let signals = SignalFd::create(&one.cx, abi::SigSet(5), 0).expect("made");
    let files = moved(&one, &two, &[&event, &timer, &signals]);
    assert_eq!(read(&two, &files[0]), Ok(1_u64.to_ne_bytes().to_vec()));
    let event: &EventFd = files[0].ops.as_any().downcast_ref().expect("an eventfd");
    assert_eq!((event.state().count, files[0].nonblocking()), (2, true));
    assert_eq!(TimerFd::of(&files[1]).map(|timer| timer.state().schedule.next), Ok(None));
    assert_eq!(SignalFd::of(&files[2]).map(|signals| signals.state().mask.0), Ok(5));
}

#[test]
fn an_epoll_watches_the_restored_files() {
    let (one, two) = (World::new(), World::new());
    let epoll = Epoll::create(&one.cx);
    let event = EventFd::create(&one.cx, 0, 0).expect("made");
    let wanted = Event { events: libc::EPOLLIN as u32, data: 7 };
    Epoll::of(&epoll).expect("an epoll").add(&one.cx, 5, &event, wanted).expect("added");
    let files = moved(&one, &two, &[&epoll, &event]);
    let restored = Epoll::of(&files[0]).expect("an epoll");
    let items = restored.state().items;
    assert_eq!((items.len(), items[0].file, items[0].fd, items[0].event.data), (1, files[1].id, 5, 7));
    write(&two, &files[1], &1_u64.to_ne_bytes());
    assert!(files[0].ops.poll(&two.cx, &files[0]).intersects(wait::Events::IN));
}

#[test]
fn files_are_opened_again_where_they_are() {
    let (one, two) = (World::new(), World::new());
    let made = one.open(b"/data", libc::O_CREAT | libc::O_RDWR | libc::O_APPEND);
    *made.pos.lock() = 4;
    write(&one, &made, b"12345678");
    let root = one.open(b"/", libc::O_RDONLY | libc::O_DIRECTORY);
    let path = one.open(b"/data", libc::O_PATH);
    let files = moved(&one, &two, &[&made, &root, &path]);
    assert_eq!((read(&two, &files[0]), files[0].flags()), (Ok(b"5678".to_vec()), made.flags()));
    assert!(files[1].path.as_ref().is_some_and(|path| *path == two.path(b"/")));
    assert!(files[2].path_only());
}

#[test]
fn removed_files_and_memfds_stay_open() {
    let (one, two) = (World::new(), World::new());
    let gone = one.open(b"/gone", libc::O_CREAT | libc::O_RDWR);
    write(&one, &gone, b"removed");
    namei::link::unlink(&one.cx, &one.fs.view(), &Start::Cwd, b"/gone").expect("removed");
    let memfd = one.memfds.memfd(&one.cx, b"name", 2).expect("made");
    write(&one, &memfd, b"in memory");
    tmpfs::add_seals(&memfd, 4).expect("sealed");
    let files = moved(&one, &two, &[&gone, &memfd]);
    assert_eq!(read(&two, &files[0]), Ok(b"removed".to_vec()));
    assert_eq!((read(&two, &files[1]), tmpfs::get_seals(&files[1])), (Ok(b"in memory".to_vec()), Ok(4)));
    let shown = |file: &Arc<OpenFile>| file.path.as_ref().expect("has one").display_link(&two.path(b"/"));
    assert_eq!(shown(&files[0]), b"/gone (deleted)");
    assert_eq!(shown(&files[1]), memfd.path.as_ref().expect("has one").display_link(&one.path(b"/")));
    assert_eq!(
        namei::walk::lookup(&two.cx, &two.fs.view(), &Start::Cwd, b"/gone", Lookup::empty()).err(),
        Some(Errno::ENOENT)
    );
}

#[test]
fn locks_stay_with_their_owners() {
    let (one, two) = (World::new(), World::new());
    let made = one.open(b"/data", libc::O_CREAT | libc::O_RDWR);
    let lock = Some(records::Kind::Exclusive);
    records::set(&one.cx, &made, records::Owner::Posix(5), lock, 10, 19, false).expect("free");
    records::flock(&one.cx, &made, lock, false).expect("free");
    let files = moved(&one, &two, &[&made]);
    let other = two.open(b"/data", libc::O_RDWR);
    assert_eq!(records::flock(&two.cx, &other, lock, false), Err(caller::Failure::Errno(Errno::EAGAIN)));
    let mine = records::Owner::Posix(1005);
    assert_eq!(records::test(&other, mine, records::Kind::Exclusive, 0, 100), Ok(None));
    let found = records::test(&other, records::Owner::Posix(5), records::Kind::Exclusive, 0, 100);
    assert_eq!(found.map(|range| range.map(|range| (range.start, range.end))), Ok(Some((10, 19))));
    drop(files);
    assert_eq!(records::flock(&two.cx, &other, lock, false), Ok(()));
}

/// A file of a kind that no image has.
struct Strange;

impl vfs::FileOps for Strange {
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:strange".into())
    }
}

#[test]
fn what_cannot_be_saved_is_named() {
    let one = World::new();
    let inode = vfs::FileLayer::vfs(&one.cx).anonymous_inode();
    let strange = OpenFile::new(None, Some(inode), Arc::new(Strange), libc::O_RDONLY);
    let (r, _w) = Pipe::pair(&one.cx, 0).expect("made");
    let found = one.save(&[&r, &strange], &Pages::default()).expect_err("an obstacle");
    let words = ["descriptor 1 of process 1 (test): anon_inode:strange, which cannot be saved"];
    assert_eq!(found.iter().map(|one| &*one.what).collect::<Vec<_>>(), words);
}

/// A directory.
fn make_dir(world: &World, at: &Path, name: &[u8]) {
    namei::dir::create_in(&world.cx, at, name, &vfs::NewNode::Directory, 0o755).expect("made");
}

/// Mounts a new file system in memory, made with these options.
fn mount(world: &World, at: &[u8], options: &[u8], flags: MountFlags) -> Arc<Mount> {
    let fs = TmpFs::new(&world.memory, Options::parse(options).expect("valid"));
    let ns = world.fs.view().ns.clone();
    ns.mount(&world.path(at), vfs::SuperBlock::new(fs), flags, b"mine").expect("mounted")
}

/// A line of mountinfo, without numbers.
type Shown = (Vec<u8>, Vec<u8>, u32, String, (u32, u32), bool);

fn shown(ns: &MountNs) -> Vec<Shown> {
    let of = |mount: &Arc<Mount>| {
        let share = mount.share();
        let peers = [share.group, share.master].map(|group| group.map_or(0, |group| group.id));
        let root = Path::display_in_fs(&mount.root);
        let (flags, options) = (mount.own_flags().bits(), mount.fs().options());
        let place = mount.root_path().display_absolute();
        (place, root, flags, options, (peers[0], peers[1]), mount.is_locked())
    };
    let top = ns.root.read().clone();
    top.tree().iter().map(of).collect()
}

/// A world with mounts of programs in it: one on another, a bind mount of a part, groups, and a file open in one.
fn with_mounts() -> (World, Arc<OpenFile>) {
    let one = World::new();
    make_dir(&one, &one.path(b"/"), b"mnt");
    make_dir(&one, &one.path(b"/"), b"bind");
    mount(&one, b"/mnt", b"size=1m,mode=750", MountFlags::NOSUID | MountFlags::RELATIME);
    make_dir(&one, &one.path(b"/mnt"), b"inner");
    make_dir(&one, &one.path(b"/mnt/inner"), b"part");
    let open = one.open(b"/mnt/inner/file", libc::O_CREAT | libc::O_RDWR);
    write(&one, &open, b"inside");
    let ns = one.fs.view().ns.clone();
    let creds = rights::Credentials::root(&one.cx.creds.user_ns, u64::MAX);
    let shared = |at: &[u8], kind| ns.propagate(&creds, &one.path(at).mount, kind, false).expect("done");
    shared(b"/mnt", vfs::mount::Propagation::Shared);
    ns.bind(&one.path(b"/mnt/inner"), &one.path(b"/bind"), false).expect("bound");
    shared(b"/bind", vfs::mount::Propagation::Slave);
    mount(&one, b"/mnt/inner/part", b"", MountFlags::RDONLY);
    (one, open)
}

#[test]
fn mounts_of_programs_are_made_again() {
    let ((one, open), two) = (with_mounts(), World::new());
    let before = shown(&one.fs.view().ns);
    assert_eq!(before.len(), 5);
    let files = moved(&one, &two, &[&open]);
    assert_eq!(shown(&two.fs.view().ns), before);
    assert_eq!(files[0].path.as_ref().expect("has one").display_absolute(), b"/mnt/inner/file");
    *files[0].pos.lock() = 0;
    assert_eq!(read(&two, &files[0]), Ok(b"inside".to_vec()));
    // Events pass as before.
    mount(&two, b"/mnt/inner/part", b"", MountFlags::empty());
    assert_eq!(shown(&two.fs.view().ns).len(), 7);
}

#[test]
fn mounts_that_a_program_moved_changed_or_took_away() {
    let world = || {
        let mut world = World::new();
        for name in [&b"a"[..], b"b", b"c"] {
            make_dir(&world, &world.path(b"/"), name);
        }
        mount(&world, b"/a", b"size=64k", MountFlags::empty());
        mount(&world, b"/b", b"size=128k", MountFlags::empty());
        world.baseline = Baseline::of(&world.fs.view().ns);
        world
    };
    let (one, two) = (world(), world());
    let ns = one.fs.view().ns.clone();
    ns.move_mount(&one.path(b"/a"), &one.path(b"/c"), ::mounts::mount_ns::Placing::Above).expect("moved");
    ns.umount(&one.path(b"/b"), ::mounts::mount_ns::Unmount::Detach).expect("unmounted");
    ns.remount(&one.path(b"/c").mount, MountFlags::NOEXEC).expect("changed");
    let before = shown(&ns);
    moved(&one, &two, &[]);
    assert_eq!(shown(&two.fs.view().ns), before);
    assert_eq!(two.fs.view().ns.count(), 2);
}

#[test]
fn a_namespace_and_a_detached_tree_come_back() {
    let ((one, _), two) = (with_mounts(), World::new());
    let ns = one.fs.view().ns.clone();
    let (copy, _) = ns.copy(&one.cx, &one.cx.creds.user_ns).expect("copied");
    let tree = ::mounts::detached::open_copy(&one.cx, &ns, &one.path(b"/mnt"), true).expect("opened");
    let file = nsproxy::Namespace::Mount(copy.clone()).path(&one.nsfs);
    let ops = Arc::new(nsproxy::NsOps(nsproxy::Namespace::Mount(copy.clone())));
    let inode = file.inode().clone();
    let file = OpenFile::new(Some(file), Some(inode), ops, libc::O_RDONLY);
    let files = moved(&one, &two, &[&tree, &file]);
    let of = |file: &Arc<OpenFile>| ::mounts::detached::tree_of(file).expect("a tree").clone();
    assert_eq!(shown(&of(&files[0])), shown(&of(&tree)));
    let again: &nsproxy::NsOps = files[1].ops.as_any().downcast_ref().expect("a namespace");
    let nsproxy::Namespace::Mount(again) = &again.0 else { panic!("a mount namespace") };
    assert_eq!((shown(again), again.id), (shown(&copy), copy.id));
    // Peers are peers across namespaces.
    mount(&two, b"/mnt/inner/part", b"", MountFlags::empty());
    assert_eq!(shown(again).len(), shown(&copy).len() + 2);
}

#[test]
fn trees_of_mounts_that_cannot_be() {
    let (one, open) = with_mounts();
    let pages = Pages::default();
    let saved = one.save(&[&open], &pages).expect("no obstacle");
    let refused = |change: &dyn Fn(&mut FilesState), may_mount: bool| {
        let two = World::new();
        let mut bad = saved.clone();
        change(&mut bad);
        let ns = |container| (container == 0).then(|| two.fs.view().ns.clone());
        let given = Given { may_mount, ..two.given(&pages, &ns) };
        assert!(FileRestorer::new(given, &bad).is_err());
    };
    fn mounts(s: &mut FilesState) -> &mut Vec<MountState> {
        &mut s.namespaces[0].mounts
    }
    refused(&|s| s.began.clear(), true);
    refused(&|s| s.began[0].belongs = Belongs::Container(7), true);
    refused(&|s| s.began[0].belongs = Belongs::Nothing, true);
    refused(&|s| s.namespaces.clear(), true);
    refused(&|s| s.namespaces.push(s.namespaces[0].clone()), true);
    refused(&|s| mounts(s).clear(), true);
    refused(&|s| mounts(s).reverse(), true);
    refused(&|s| mounts(s)[1].parent = None, true);
    refused(&|s| mounts(s)[1].parent = Some(mounts(s)[1].id), true);
    refused(&|s| mounts(s)[2].parent = Some(77), true);
    refused(&|s| mounts(s)[2].id = mounts(s)[1].id, true);
    refused(&|s| mounts(s)[1].sb = 99, true);
    refused(&|s| mounts(s)[1].point = b"/none".to_vec(), true);
    refused(&|s| mounts(s)[1].point = b"/../mnt".to_vec(), true);
    refused(&|s| mounts(s)[2].point = mounts(s)[1].point.clone(), true);
    refused(&|s| mounts(s)[1].root = b"/inner/file".to_vec(), true);
    refused(&|s| mounts(s)[1].peers = (1, 1), true);
    refused(&|s| mounts(s)[1].peers = (1, 9), true);
    refused(&|s| mounts(s)[1].peers = (u32::MAX, 0), true);
    refused(&|s| mounts(s)[1].space = Some(SpaceRef::Other(5)), true);
    refused(&|s| mounts(s)[1].space = Some(SpaceRef::Mounts(s.began[0].id + 9)), true);
    refused(&|s| s.supers[1].fstype = "ext4".into(), true);
    refused(&|s| s.supers[1].options = "size=x".into(), true);
    refused(&|s| s.supers[1].kind = SuperKind::Given(12345), true);
    refused(&|s| s.trees[0].sb = Some(55), true);
    refused(&|s| s.trees.push(s.trees[0].clone()), true);
    let circle = |s: &mut FilesState| {
        (mounts(s)[1].peers, mounts(s)[2].peers) = ((1, 2), (2, 1));
    };
    refused(&circle, true);
    let overlay = |s: &mut FilesState| {
        let layer = overlayfs::LayerState { fs: 1, top: b"/".to_vec(), mount: (0, Vec::new()) };
        s.supers[1].kind = SuperKind::Overlay(Box::new(overlayfs::OverlayState {
            upper: None,
            lower: vec![layer.clone(), layer],
            work: None,
            creds: rights::Credentials::root(&UserNamespace::initial(), 0).state(),
            userxattr: false,
            volatile: false,
            options: String::new(),
            next: (1, 1),
        }));
    };
    refused(&overlay, true);
    // Where programs may not mount there are no mounts of theirs.
    refused(&|_| (), false);
}

#[test]
fn paths_out_of_an_image_stay_below_the_mount() {
    let one = World::new();
    let mount = one.path(b"/").mount;
    for bad in [&b"/.."[..], b"/.", &[b'a'; 300], b"a\0b"] {
        assert_eq!(find(&one.cx, &mount, bad).map(drop), Err(Errno::EINVAL));
    }
    assert_eq!(find(&one.cx, &mount, b"/none").map(drop), Err(Errno::ENOENT));
}

#[test]
fn terminals_keep_both_ends_and_their_places() {
    struct NoJobs;
    impl tty::JobControl for NoJobs {
        fn signal_pgrp(&self, _pgid: i32, _sig: abi::Signal) {}
        fn signal_process(&self, _pid: i32, _sig: abi::Signal) {}
        fn pgrp_in_session(&self, _pgid: i32, _sid: i32) -> bool {
            false
        }
        fn session_of(&self, _pgid: i32) -> Option<i32> {
            None
        }
        fn is_orphaned(&self, _pgid: i32) -> bool {
            false
        }
        fn terminal(&self, _sid: i32) -> Option<Arc<tty::Pty>> {
            None
        }
        fn set_terminal(&self, _sid: i32, _tty: Option<Arc<tty::Pty>>) {}
    }
    let world = || {
        let mut world = World::new();
        let jobs: Arc<dyn tty::JobControl> = Arc::new(NoJobs);
        tty::register(&world.cx.vfs.devices, &jobs);
        namei::dir::create_in(&world.cx, &world.path(b"/"), b"pts", &vfs::NewNode::Directory, 0o755)
            .expect("made");
        let fs = tty::Devpts::new(jobs, &world.cx, b"ptmxmode=666").expect("made");
        let ns = world.fs.view().ns.clone();
        ns.mount(&world.path(b"/pts"), vfs::SuperBlock::new(fs), MountFlags::empty(), b"devpts")
            .expect("mounted");
        world.baseline = Baseline::of(&ns);
        world
    };
    let (one, two) = (world(), world());
    let master = one.open(b"/pts/ptmx", libc::O_RDWR | libc::O_NOCTTY);
    let (pty, _) = tty::pty_of(&master).expect("a terminal");
    let hidden = one.save(&[], &Pages::default()).map(drop);
    assert_eq!(hidden, Ok(()));
    // TIOCSPTLCK is what unlockpt(3) does.
    struct Zero;
    impl caller::UserMemory for Zero {
        fn copy_in(&mut self, _addr: u64, buf: &mut [u8]) -> Result<()> {
            buf.fill(0);
            Ok(())
        }
        fn copy_out(&mut self, _addr: u64, _data: &[u8]) -> Result<()> {
            Ok(())
        }
    }
    assert_eq!(master.ops.ioctl(&one.cx, &master, &mut Zero, 0x4004_5431, 0), Ok(0));
    let slave = one.open(b"/pts/0", libc::O_RDWR | libc::O_NOCTTY);
    assert_eq!(master.ops.write(&one.cx, &master, b"typed\n", 0), Ok(6));
    drop(pty);
    let files = moved(&one, &two, &[&master, &slave]);
    assert_eq!(read(&two, &files[1]), Ok(b"typed\n".to_vec()));
    assert_eq!(read(&two, &files[0]), Ok(b"typed\r\n".to_vec()));
    let shown = files[1].path.as_ref().expect("has one").display_absolute();
    assert_eq!(shown, b"/pts/0");
    assert!(files[1].path.as_ref().is_some_and(|path| *path == two.path(b"/pts/0")));
}

#[test]
fn signals_of_files() {
    let (from, to) = (World::new(), World::new());
    let old = from.told.clone() as Arc<dyn ::files::IoSignals>;
    let (reader, writer) = Pipe::pair(&from.cx, 0).expect("made");
    let owner = |file: &OpenFile| file.owner.lock().set(vfs::file::F_OWNER_PID, 77, &from.cx.creds);
    owner(&reader);
    ::files::fasync::set_status(&from.cx, &reader, libc::O_ASYNC, 5, || old.clone()).expect("set");
    let leased = from.open(b"/f", libc::O_CREAT | libc::O_RDONLY);
    owner(&leased);
    locks::leases::set(&from.cx, &leased, libc::F_RDLCK, ::files::fasync::teller(&old, 6)).expect("leased");
    let dir = from.open(b"/", libc::O_RDONLY | libc::O_DIRECTORY);
    // DN_CREATE, DN_DELETE.
    let bits = 4 | 8;
    owner(&dir);
    ::files::dnotify::set(&from.cx, &dir, bits, ::files::fasync::teller(&old, 7)).expect("watched");

    let files = moved(&from, &to, &[&reader, &writer, &leased, &dir]);
    assert_ne!(files[0].flags() & libc::O_ASYNC, 0);
    assert_eq!(locks::leases::get(&files[2]), libc::F_RDLCK);
    assert_eq!(*to.told.0.lock(), []);
    files[1].ops.write(&to.cx, &files[1], b"x", 0).expect("written");
    let inode = files[2].inode.as_ref().expect("a file");
    locks::leases::break_for(&to.cx, inode, true, true).expect_err("leased");
    drop(to.open(b"/new", libc::O_CREAT | libc::O_RDONLY));
    drop(to.open(b"/newer", libc::O_CREAT | libc::O_RDONLY));
    assert_eq!(*to.told.0.lock(), [(77, 0x41, 5), (77, 0x441, 6), (77, 0x441, 7)]);
    assert_eq!(*from.told.0.lock(), []);
}

#[test]
fn watches_and_their_events() {
    let (from, to) = (World::new(), World::new());
    for world in [&from, &to] {
        drop(world.open(b"/f", libc::O_CREAT | libc::O_RDONLY));
    }
    let inotify = Inotify::open(&from.cx, libc::O_NONBLOCK).expect("made");
    let instance = Inotify::of(&inotify).expect("inotify");
    let mask = vfs::notify::event::CREATE;
    assert_eq!(instance.add(&from.path(b"/f"), mask), Ok(1));
    assert_eq!(instance.add(&from.path(b"/"), mask), Ok(2));
    drop(from.open(b"/new", libc::O_CREAT | libc::O_RDONLY));

    let files = moved(&from, &to, &[&inotify]);
    drop(to.open(b"/newer", libc::O_CREAT | libc::O_RDONLY));
    let mut buf = [0; 256];
    assert_eq!(files[0].ops.read(&to.cx, &files[0], &mut buf, 0), Ok(64));
    assert_eq!(
        (&buf[..4], &buf[16..20], &buf[32..36]),
        (&[2, 0, 0, 0][..], &b"new\0"[..], &[2, 0, 0, 0][..])
    );
    assert_eq!(&buf[48..54], b"newer\0");
    assert_eq!(Inotify::of(&files[0]).expect("inotify").remove(1), Ok(()));
}
