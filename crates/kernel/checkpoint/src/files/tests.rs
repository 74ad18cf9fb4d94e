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
        World {
            cx,
            fs: FsContext::new(ns),
            unix: UnixFamily::new(1 << 20),
            memfds,
            baseline,
            told: Arc::default(),
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
        let mut saver = FileSaver::new(&self.cx, &self.unix, &self.memfds, &network);
        saver.namespace(&self.fs, 0, &self.baseline);
        for (fd, file) in files.iter().enumerate() {
            saver.note(file, &|| format!("descriptor {fd} of process 1 (test)"));
        }
        Ok(saver.check()?.finish(&self.cx, pages).expect("written"))
    }

    fn restore<'a>(
        &'a self,
        saved: &FilesState,
        pages: &'a Pages,
        ns: &'a dyn Fn(u32) -> Option<Arc<MountNs>>,
    ) -> FileRestorer<'a> {
        let given = Given {
            cx: &self.cx,
            unix: &self.unix,
            memfds: &self.memfds,
            pages,
            namespace: ns,
            imported: &[],
            console: None,
            net: &|_| None,
            socket: &|_| None,
            ipc: &|_| None,
            pid: &|_| None,
        };
        let mut all = FileRestorer::new(given, saved).expect("restored");
        let signals = self.told.clone();
        let late = Late { process: &|_| None, table: &|id| Some(id + 1000), signals };
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

#[test]
fn what_cannot_be_saved_is_named() {
    let one = World::new();
    let watch = ipc::inotify::Inotify::open(&one.cx, 0).expect("made");
    let (r, _w) = Pipe::pair(&one.cx, 0).expect("made");
    let found = one.save(&[&r, &watch], &Pages::default()).expect_err("an obstacle");
    let words = ["descriptor 1 of process 1 (test): anon_inode:inotify, which cannot be saved"];
    assert_eq!(found.iter().map(|one| &*one.what).collect::<Vec<_>>(), words);
}

#[test]
fn mounts_of_programs_are_named() {
    let one = World::new();
    let dir = one.path(b"/");
    namei::dir::create_in(&one.cx, &dir, b"mnt", &vfs::NewNode::Directory, 0o755).expect("made");
    let fs = TmpFs::new(&MemFiles::new(None), Options::default());
    let ns = one.fs.view().ns.clone();
    ns.mount(&one.path(b"/mnt"), vfs::SuperBlock::new(fs), MountFlags::empty(), b"mine").expect("mounted");
    let found = one.save(&[], &Pages::default()).expect_err("an obstacle");
    assert_eq!(found[0].what, "the mount of tmpfs at /mnt was made by a program");
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
