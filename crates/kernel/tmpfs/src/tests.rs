//! vfs semantics on a tmpfs, without a kernel.

use crate::{Options, TmpFs};
use abi::stat::Attr;
use abi::{Errno, Result};
use caller::{Failure, Quotas};
use files::{FdTable, io};
use locks::records::{self, Kind, Owner};
use mounts::mount_ns::Unmount;
use mounts::{FsContext, MountNs};
use namei::{Lookup, OpenHow, Start, attr, dir, link, open, rename, walk};
use rights::{Cap, Credentials};
use std::sync::Arc;
use vfs::mount::Propagation;
use vfs::testing::TestCaller;
use vfs::*;

mod saved;
mod walking;

fn root() -> TestCaller {
    TestCaller::root()
}

fn user(id: u32) -> TestCaller {
    TestCaller::user(id)
}

struct Env {
    cx: TestCaller,
    fs: Arc<FsContext>,
    memory: Arc<crate::MemFiles>,
}

fn env() -> Env {
    env_of(Options::default())
}

fn env_of(options: Options) -> Env {
    let memory = crate::MemFiles::new(None);
    let m = Mount::of(TmpFs::new(&memory, options), MountFlags::empty(), b"none");
    Env { cx: root(), fs: FsContext::new(mounts::testing::mount_ns(m)), memory }
}

impl Env {
    fn open_as(&self, cx: &TestCaller, p: &str, flags: i32) -> Result<Arc<OpenFile>> {
        let how = OpenHow::legacy(flags, 0o644).expect("valid flags");
        open::open_at(cx, &self.fs.view(), &Start::Cwd, p.as_bytes(), &how).map_err(Failure::errno)
    }
    fn open(&self, p: &str, flags: i32) -> Result<Arc<OpenFile>> {
        self.open_as(&self.cx, p, flags)
    }
    fn mkdir(&self, p: &str) -> Result<()> {
        dir::mkdir(&self.cx, &self.fs.view(), &Start::Cwd, p.as_bytes(), 0o755)
    }
    fn symlink(&self, t: &str, p: &str) -> Result<()> {
        dir::symlink(&self.cx, &self.fs.view(), t.as_bytes(), &Start::Cwd, p.as_bytes())
    }
    fn stat(&self, p: &str) -> Result<Attr> {
        attr::stat(&self.cx, &self.fs.view(), &Start::Cwd, p.as_bytes(), Lookup::FOLLOW)
    }
    fn rename(&self, a: &str, b: &str, flags: u32) -> Result<()> {
        let s = Start::Cwd;
        rename::rename(&self.cx, &self.fs.view(), &s, a.as_bytes(), &s, b.as_bytes(), flags)
    }
    fn unlink(&self, p: &str) -> Result<()> {
        link::unlink(&self.cx, &self.fs.view(), &Start::Cwd, p.as_bytes())
    }
    fn rmdir(&self, p: &str) -> Result<()> {
        link::rmdir(&self.cx, &self.fs.view(), &Start::Cwd, p.as_bytes())
    }
    fn link(&self, a: &str, b: &str) -> Result<()> {
        let (v, s) = (self.fs.view(), Start::Cwd);
        link::link(&self.cx, &v, &s, a.as_bytes(), Lookup::empty(), &s, b.as_bytes())
    }
    fn path(&self, p: &str) -> Result<Path> {
        walk::lookup(&self.cx, &self.fs.view(), &Start::Cwd, p.as_bytes(), Lookup::FOLLOW)
    }
    fn names(&self, p: &str) -> Vec<String> {
        let f = self.open(p, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
        struct Names(Vec<String>);
        impl DirSink for Names {
            fn entry(&mut self, _n: u64, e: &DirEntry) -> bool {
                self.0.push(String::from_utf8_lossy(&e.name).into());
                true
            }
        }
        let mut n = Names(Vec::new());
        dir::read(&self.cx, &f, &mut n).unwrap();
        n.0
    }
}

const CREAT: i32 = libc::O_CREAT | libc::O_RDWR;

fn memfds() -> Arc<crate::Memfds> {
    crate::Memfds::new(&crate::MemFiles::new(None))
}

#[test]
fn create_write_read() {
    let e = env();
    let f = e.open("/a", CREAT).unwrap();
    assert_eq!(io::write_at(&e.cx, &f, b"hello", 3), Ok((5, 8)));
    let mut b = [9; 16];
    assert_eq!(io::read_at(&e.cx, &f, &mut b, 0), Ok(8));
    assert_eq!(&b[..8], b"\0\0\0hello");
    assert_eq!(e.stat("/a").unwrap().size, 8);
    assert_eq!(e.stat("/a").unwrap().mode, 0o100644);
    assert_eq!(e.open("/a", CREAT | libc::O_EXCL).err(), Some(Errno::EEXIST));
    assert_eq!(e.open("/b", libc::O_RDONLY).err(), Some(Errno::ENOENT));
    assert_eq!(e.open("/a/", libc::O_RDONLY).err(), Some(Errno::ENOTDIR));
    assert_eq!(e.open("/b/", CREAT).err(), Some(Errno::EISDIR));
    assert_eq!(e.open("/", libc::O_RDWR).err(), Some(Errno::EISDIR));
    assert_eq!(e.open("/a/b", CREAT).err(), Some(Errno::ENOTDIR));
    assert_eq!(e.open("/a", libc::O_DIRECTORY).err(), Some(Errno::ENOTDIR));
}

#[test]
fn holes_and_large_files() {
    let e = env();
    let f = e.open("/a", CREAT).unwrap();
    io::write_at(&e.cx, &f, b"x", 3 << 20).unwrap();
    assert_eq!(io::seek(&e.cx, &f, 0, libc::SEEK_DATA), Ok(3 << 20));
    assert_eq!(io::seek(&e.cx, &f, 0, libc::SEEK_HOLE), Ok(0));
    assert!(e.stat("/a").unwrap().blocks <= 8);
    attr::ftruncate(&e.cx, &f, 10000).unwrap();
    assert_eq!(io::seek(&e.cx, &f, 0, libc::SEEK_DATA), Err(Errno::ENXIO));
    let g = e.open("/b", CREAT).unwrap();
    io::write_at(&e.cx, &g, &[7; 10000], 0).unwrap();
    g.ops.allocate(&e.cx, &g, 3, 4096, 4096).unwrap();
    assert_eq!(io::seek(&e.cx, &g, 0, libc::SEEK_HOLE), Ok(4096));
    assert_eq!(io::seek(&e.cx, &g, 4096, libc::SEEK_DATA), Ok(8192));
    let req = MapRequest { prot: 3, shared: true, offset: 0, len: 4096 };
    assert!(matches!(g.ops.map(&e.cx, &g, &req), Ok(Mapping::Host { .. })));
    let mut b = [1; 3];
    io::read_at(&e.cx, &g, &mut b, 4095).unwrap();
    assert_eq!(b, [7, 0, 0]);
}

#[test]
fn readers_map_a_sealable_file_only_if_they_could_write_it() {
    let e = env();
    let owner = memfds().memfd(&e.cx, b"m", 2).unwrap();
    io::write_at(&e.cx, &owner, b"x", 0).unwrap();
    let reader = user(5);
    let inode = owner.inode.clone().unwrap();
    let ops = inode.open(&reader, libc::O_RDONLY).unwrap();
    let file = OpenFile::new(owner.path.clone(), Some(inode.clone()), ops, libc::O_RDONLY);
    let map = |shared| {
        let req = MapRequest { prot: 1, shared, offset: 0, len: 4096 };
        file.ops.map(&reader, &file, &req).map(drop)
    };
    assert_eq!((map(true), map(false)), (Ok(()), Ok(())));
    inode.set_attr(&e.cx, &SetAttr { mode: Some(0o444), ..SetAttr::default() }).unwrap();
    assert_eq!((map(true), map(false)), (Err(Errno::ENODEV), Err(Errno::ENODEV)));
    crate::add_seals(&owner, 16).unwrap();
    assert_eq!((map(true), map(false)), (Ok(()), Ok(())));
}

#[test]
fn symlinks() {
    let e = env();
    e.mkdir("/d").unwrap();
    e.open("/d/f", CREAT).unwrap();
    e.symlink("d", "/l").unwrap();
    e.symlink("/l/f", "/m").unwrap();
    e.symlink("loop", "/loop").unwrap();
    e.symlink("/d/new", "/dangling").unwrap();
    assert_eq!(e.stat("/m").unwrap().ino, e.stat("/d/f").unwrap().ino);
    assert_eq!(e.stat("/loop").err(), Some(Errno::ELOOP));
    assert_eq!(e.open("/m", libc::O_NOFOLLOW).err(), Some(Errno::ELOOP));
    assert_eq!(e.open("/dangling", CREAT | libc::O_EXCL).err(), Some(Errno::EEXIST));
    e.open("/dangling", CREAT).unwrap();
    assert!(e.stat("/d/new").is_ok());
    assert!(e.stat("/l/").unwrap().is_dir());
    assert_eq!(e.stat("/m/").err(), Some(Errno::ENOTDIR));
    assert_eq!(e.stat("/l/../d/f").unwrap().ino, e.stat("/d/f").unwrap().ino);
    assert_eq!(e.path("/m").unwrap().display(&e.fs.view().root), b"/d/f");
    let v = e.fs.view();
    let at = |s: &str, l| walk::lookup(&e.cx, &v, &Start::Cwd, s.as_bytes(), l).map(drop);
    assert_eq!(at("m", Lookup::FOLLOW | Lookup::BENEATH), Err(Errno::EXDEV));
    assert_eq!(at("l/f", Lookup::BENEATH), Ok(()));
    assert_eq!(at("l/f", Lookup::NO_SYMLINKS), Err(Errno::ELOOP));
    assert_eq!(at("../d", Lookup::BENEATH), Err(Errno::EXDEV));
    assert_eq!(at("../../d/f", Lookup::IN_ROOT), Ok(()));
}

#[test]
fn renames() {
    let e = env();
    e.mkdir("/a").unwrap();
    e.mkdir("/a/b").unwrap();
    e.mkdir("/c").unwrap();
    e.open("/a/b/f", CREAT).unwrap();
    assert_eq!(e.rename("/a", "/a/b/x", 0), Err(Errno::EINVAL));
    assert_eq!(e.rename("/a/b", "/a", 0), Err(Errno::ENOTEMPTY));
    e.rename("/a/b", "/c/b2", 0).unwrap();
    assert!(e.stat("/c/b2/f").is_ok());
    assert_eq!(e.stat("/a/b").err(), Some(Errno::ENOENT));
    assert_eq!((e.stat("/a").unwrap().nlink, e.stat("/c").unwrap().nlink), (2, 3));
    e.open("/g", CREAT).unwrap();
    assert_eq!(e.rename("/g", "/c", 0), Err(Errno::EISDIR));
    assert_eq!(e.rename("/c", "/g", 0), Err(Errno::ENOTDIR));
    assert_eq!(e.rename("/g", "/c/b2/f", 1), Err(Errno::EEXIST));
    e.rename("/g", "/c/b2/f", 2).unwrap();
    e.rename("/g", "/c", 2).unwrap();
    assert!(e.stat("/g/b2/f").is_ok());
    e.link("/c", "/c2").unwrap();
    e.rename("/c", "/c2", 0).unwrap();
    assert!(e.stat("/c").is_ok(), "renaming onto another link does nothing");
    assert_eq!(e.rmdir("/g"), Err(Errno::ENOTEMPTY));
}

#[test]
fn unlinked_files_and_directories() {
    let e = env();
    let f = e.open("/a", CREAT).unwrap();
    e.link("/a", "/b").unwrap();
    assert_eq!(f.attr().unwrap().nlink, 2);
    e.unlink("/a").unwrap();
    e.unlink("/b").unwrap();
    assert_eq!(f.attr().unwrap().nlink, 0);
    assert_eq!(f.path.as_ref().unwrap().display(&e.fs.view().root), b"/a (deleted)");
    e.mkdir("/d").unwrap();
    let d = e.path("/d").unwrap();
    e.fs.set_cwd(d);
    e.rmdir("/d").unwrap();
    assert_eq!(e.open("x", CREAT).err(), Some(Errno::ENOENT));
    assert_eq!(e.mkdir("x").err(), Some(Errno::ENOENT));
    assert!(e.stat("..").is_ok());
    assert_eq!(e.unlink("/"), Err(Errno::EISDIR));
}

#[test]
fn unnamed_files_get_a_name() {
    let e = env();
    let f = e.open("/", libc::O_TMPFILE | libc::O_RDWR).unwrap();
    assert_eq!(f.attr().unwrap().nlink, 0);
    let v = e.fs.view();
    link::link(&e.cx, &v, &Start::File(f.clone()), b"", Lookup::EMPTY_PATH, &Start::Cwd, b"/n").unwrap();
    assert_eq!(e.stat("/n").unwrap().nlink, 1);
    assert_eq!(f.path.as_ref().unwrap().display(&v.root), b"/n");
    let g = e.open("/", libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL).unwrap();
    let r = link::link(&e.cx, &v, &Start::File(g), b"", Lookup::EMPTY_PATH, &Start::Cwd, b"/m");
    assert_eq!(r, Err(Errno::ENOENT));
}

#[test]
fn permissions() {
    let e = env();
    e.mkdir("/d").unwrap();
    e.open("/d/f", CREAT).unwrap();
    let u = user(1000);
    assert!(e.open_as(&u, "/d/f", libc::O_RDONLY).is_ok());
    assert_eq!(e.open_as(&u, "/d/f", libc::O_RDWR).err(), Some(Errno::EACCES));
    assert_eq!(e.open_as(&u, "/d/g", CREAT).err(), Some(Errno::EACCES));
    attr::chmod(&e.cx, &e.path("/d").unwrap(), 0o700).unwrap();
    assert_eq!(e.open_as(&u, "/d/f", libc::O_RDONLY).err(), Some(Errno::EACCES));
    let p = e.path("/d/f").unwrap();
    assert_eq!(attr::chmod(&u, &p, 0o777), Err(Errno::EPERM));
    attr::chown(&e.cx, &p, 1000, 1000).unwrap();
    attr::chmod(&u, &p, 0o6755).unwrap();
    attr::chown(&u, &p, attr::KEEP, 1000).unwrap();
    assert_eq!(p.attr().unwrap().mode, 0o100755, "set-id bits go with chown");
}

#[test]
fn directory_offsets_are_stable() {
    let e = env();
    e.mkdir("/d").unwrap();
    for i in 0..100 {
        e.open(&format!("/d/{i}"), CREAT).unwrap();
    }
    let f = e.open("/d", libc::O_RDONLY).unwrap();
    struct Few(Vec<String>, usize);
    impl DirSink for Few {
        fn entry(&mut self, _n: u64, e: &DirEntry) -> bool {
            if self.0.len() == self.1 {
                return false;
            }
            self.0.push(String::from_utf8_lossy(&e.name).into());
            true
        }
    }
    let mut seen = Vec::new();
    loop {
        let mut s = Few(Vec::new(), 7);
        dir::read(&e.cx, &f, &mut s).unwrap();
        if s.0.is_empty() {
            break;
        }
        for n in s.0.iter().filter(|n| !n.starts_with('.')) {
            e.unlink(&format!("/d/{n}")).unwrap();
            e.open(&format!("/d/new{n}"), CREAT).unwrap();
        }
        seen.extend(s.0);
    }
    assert_eq!(seen.len(), 102, "every old entry once, no new one");
}

#[test]
fn mounts() {
    let e = env();
    e.mkdir("/m").unwrap();
    e.mkdir("/n").unwrap();
    let ns = e.fs.view().ns.clone();
    let sb = SuperBlock::new(TmpFs::new(&e.memory, Options::default()));
    ns.mount(&e.path("/m").unwrap(), sb, MountFlags::empty(), b"t").unwrap();
    e.mkdir("/m/x").unwrap();
    e.open("/m/x/f", CREAT).unwrap();
    assert_ne!(e.stat("/m").unwrap().dev, e.stat("/").unwrap().dev);
    assert_eq!(e.stat("/m/..").unwrap().ino, e.stat("/").unwrap().ino);
    assert_eq!(e.path("/m/x/f").unwrap().display(&e.fs.view().root), b"/m/x/f");
    assert_eq!(e.rename("/m/x", "/y", 0), Err(Errno::EXDEV));
    assert_eq!(e.rmdir("/m"), Err(Errno::EBUSY));
    ns.bind(&e.path("/m/x").unwrap(), &e.path("/n").unwrap(), false).unwrap();
    assert!(e.stat("/n/f").is_ok());
    assert_eq!(e.path("/n/f").unwrap().display(&e.fs.view().root), b"/n/f");
    let n = e.path("/n").unwrap();
    ns.remount(&n.mount, MountFlags::RDONLY).unwrap();
    drop(n);
    assert_eq!(e.open("/n/g", CREAT).err(), Some(Errno::EROFS));
    assert!(e.open("/m/x/g", CREAT).is_ok());
    let f = e.open("/n/f", libc::O_RDONLY).unwrap();
    assert_eq!(ns.umount(&e.path("/n").unwrap(), Unmount::Idle), Err(Errno::EBUSY));
    drop(f);
    assert_eq!(ns.umount(&e.path("/n").unwrap(), Unmount::Idle), Ok(()));
    assert_eq!(e.stat("/n/f").err(), Some(Errno::ENOENT));
    let (copy, map) = ns.copy(&root(), ns.user_ns()).unwrap();
    assert_eq!((copy.mounts().len(), map.len()), (2, 2));
    assert_eq!(ns.umount(&e.path("/m").unwrap(), Unmount::Detach), Ok(()));
    assert_eq!((ns.mounts().len(), copy.mounts().len()), (1, 2));
}

#[test]
fn pivot_root_swaps() {
    let e = env();
    e.mkdir("/new").unwrap();
    let ns = e.fs.view().ns.clone();
    let sb = SuperBlock::new(TmpFs::new(&crate::MemFiles::new(None), Options::default()));
    ns.mount(&e.path("/new").unwrap(), sb, MountFlags::empty(), b"t").unwrap();
    e.mkdir("/new/old").unwrap();
    let (new, old, root) = (e.path("/new").unwrap(), e.path("/new/old").unwrap(), e.fs.view().root.clone());
    ns.pivot_root(&new, &old, &root).unwrap();
    e.fs.set_root(new.clone());
    e.fs.set_cwd(new);
    assert!(e.stat("/old/new").is_ok());
    assert_eq!(e.stat("/new").err(), Some(Errno::ENOENT));
    ns.umount(&e.path("/old").unwrap(), Unmount::Detach).unwrap();
    assert_eq!(e.names("/old"), [".", ".."]);
}

#[test]
fn descriptor_tables() {
    let e = env();
    let t = FdTable::new(Quotas::unlimited().files.clone());
    let f = e.open("/a", CREAT).unwrap();
    assert_eq!(t.install(f.clone(), false, 4), Ok(0));
    let slot = t.reserve_from(0, 4).unwrap();
    assert_eq!(slot.fd(), 1);
    assert_eq!(t.get(1).err(), Some(Errno::EBADF));
    assert_eq!(t.install(f.clone(), true, 4), Ok(2));
    drop(slot);
    assert_eq!(t.install(f.clone(), true, 4), Ok(1));
    assert_eq!(t.install(f.clone(), true, 4), Ok(3));
    assert_eq!(t.install(f.clone(), true, 4), Err(Errno::EMFILE));
    t.close(&e.cx, 2).unwrap();
    assert_eq!(t.close(&e.cx, 2), Err(Errno::EBADF));
    assert_eq!(t.reserve_from(3, 10).unwrap().fd(), 4);
    let c = t.fork_copy().unwrap();
    t.close_on_exec(&e.cx);
    assert_eq!((t.numbers(), c.numbers()), (vec![0], vec![0, 1, 3]));
    t.install_at(&e.cx, 7, f.clone(), false, 10).unwrap();
    assert_eq!(t.install_at(&e.cx, 10, f.clone(), false, 10), Err(Errno::EBADF));
    t.close_range(&e.cx, 1, u32::MAX);
    assert_eq!(t.numbers(), [0]);
}

#[test]
fn record_locks() {
    let e = env();
    let f = e.open("/a", CREAT).unwrap();
    let (a, b) = (Owner::Posix(1001), Owner::Posix(1002));
    let set = |o, k, s, l| records::set(&e.cx, &f, o, k, s, l, false);
    set(a, Some(Kind::Exclusive), 0, 99).unwrap();
    assert_eq!(set(b, Some(Kind::Shared), 50, 60), Err(Failure::Errno(Errno::EAGAIN)));
    set(a, None, 40, 69).unwrap();
    set(b, Some(Kind::Shared), 50, 60).unwrap();
    let hit = records::test(&f, b, Kind::Exclusive, 0, records::TO_END).unwrap().unwrap();
    assert_eq!((hit.start, hit.end, hit.pid), (0, 39, 1));
    assert_eq!(records::test(&f, a, Kind::Shared, 0, 99), Ok(None));
    let g = e.open("/a", libc::O_RDWR).unwrap();
    records::flock(&e.cx, &f, Some(Kind::Exclusive), false).unwrap();
    assert!(records::flock(&e.cx, &g, Some(Kind::Shared), false).is_err());
    drop(f);
    records::flock(&e.cx, &g, Some(Kind::Shared), false).unwrap();
}

#[test]
fn limits() {
    let e = env_of(Options::parse(b"size=16k,nr_inodes=3,mode=700").unwrap());
    assert_eq!(e.path("/").unwrap().mount.fs().options(), "size=16k,nr_inodes=3,mode=700");
    let f = e.open("/a", CREAT).unwrap();
    assert_eq!(io::write_at(&e.cx, &f, &[1; 20000], 0), Ok((16384, 16384)));
    assert_eq!(io::write_at(&e.cx, &f, &[1; 1], 16384), Err(Errno::ENOSPC));
    e.open("/b", CREAT).unwrap();
    assert_eq!(e.open("/c", CREAT).err(), Some(Errno::ENOSPC));
    e.unlink("/b").unwrap();
    e.open("/c", CREAT).unwrap();
    attr::ftruncate(&e.cx, &f, 0).unwrap();
    assert_eq!(io::write_at(&e.cx, &f, &[1; 5], 0), Ok((5, 5)));
    assert!(Options::parse(b"bogus").is_err());
}

#[test]
fn memfd_seals() {
    let e = env();
    let f = memfds().memfd(&e.cx, b"x", 2).unwrap();
    io::write_at(&e.cx, &f, b"abc", 0).unwrap();
    assert_eq!(f.path.as_ref().unwrap().display(&e.fs.view().root), b"/memfd:x (deleted)");
    let req = MapRequest { prot: 3, shared: true, offset: 0, len: 4096 };
    f.ops.map(&e.cx, &f, &req).unwrap();
    crate::add_seals(&f, 2 | 8).unwrap();
    assert_eq!(crate::get_seals(&f), Ok(10));
    assert_eq!(io::write_at(&e.cx, &f, b"abc", 0), Err(Errno::EPERM));
    assert_eq!(attr::ftruncate(&e.cx, &f, 1), Err(Errno::EPERM));
    assert!(f.ops.map(&e.cx, &f, &req).is_err());
    assert_eq!(crate::add_seals(&e.open("/a", CREAT).unwrap(), 2), Err(Errno::EPERM));
}

#[test]
fn deep_trees_do_not_recurse() {
    let e = env();
    for _ in 0..20_000 {
        e.mkdir("d").unwrap();
        let d = e.path("d").unwrap();
        e.fs.set_cwd(d);
    }
    drop(e);
}

#[test]
fn watches_hear_of_changes() {
    use vfs::notify::{self, Listener, Watch, event};
    #[derive(Default)]
    struct Log(std::sync::Mutex<Vec<(i32, u32, String)>>);
    impl Listener for Log {
        fn event(&self, watch: i32, mask: u32, _cookie: u32, name: &[u8]) {
            self.0.lock().unwrap().push((watch, mask, String::from_utf8_lossy(name).into()));
        }
        fn gone(&self, _watch: i32) {}
    }
    let e = env();
    e.mkdir("/d").unwrap();
    let log = Arc::new(Log::default());
    let to: std::sync::Weak<dyn Listener> = Arc::downgrade(&log) as _;
    let dir = e.path("/d").unwrap();
    let w = Watch::new(&dir.dentry, 1, event::ALL, to);
    assert!(notify::add(dir.inode(), w.clone()));
    let f = e.open("/d/f", CREAT).unwrap();
    io::write_at(&e.cx, &f, b"x", 0).unwrap();
    drop(f);
    e.rename("/d/f", "/d/g", 0).unwrap();
    e.unlink("/d/g").unwrap();
    let seen: Vec<_> = log.0.lock().unwrap().iter().map(|(_, m, n)| (*m, n.clone())).collect();
    let want = [
        (event::CREATE, "f"),
        (event::OPEN, "f"),
        (event::MODIFY, "f"),
        (event::CLOSE_WRITE, "f"),
        (event::MOVED_FROM, "f"),
        (event::MOVED_TO, "g"),
        (event::DELETE, "g"),
    ];
    assert_eq!(seen, want.map(|(m, n)| (m, n.to_string())));
    notify::remove(dir.inode(), &w);
}

#[test]
fn umount_and_those_that_begin_to_use_the_mount() {
    let e = env();
    e.mkdir("/m").unwrap();
    let view = e.fs.view();
    let sb = SuperBlock::new(TmpFs::new(&e.memory, Options::default()));
    view.ns.mount(&e.path("/m").unwrap(), sb, MountFlags::empty(), b"t").unwrap();
    let top = e.path("/m").unwrap();
    let umount = || view.ns.umount(&top, Unmount::Idle);
    let hold = || walk::lookup_held(&e.cx, &view, &Start::Cwd, b"/m", Lookup::FOLLOW).unwrap();
    let (place, held) = hold();
    assert!(place == top);
    assert_eq!(umount(), Err(Errno::EBUSY));
    // It can be used again after an attempt that failed.
    drop((hold(), held));
    assert_eq!(umount(), Ok(()));
    // A walk that begins now finds the directory below. A thread that is in the mount already, by a working directory
    // that it has just given up, goes on there.
    assert!(hold().0 != top);
    let inside = walk::lookup_held(&e.cx, &view, &Start::At(top.clone()), b".", Lookup::FOLLOW).unwrap();
    assert!(inside.0 == top);
}

#[test]
fn names_that_came_and_went_leave_nothing() {
    let e = env();
    e.mkdir("/t").unwrap();
    for i in 0..20_000 {
        e.open(&format!("/t/{i}"), CREAT).unwrap();
        e.unlink(&format!("/t/{i}")).unwrap();
    }
    assert!(e.path("/t").unwrap().dentry.cached_names() < 2000);
}

/// Runs on a thread with the smallest stack: nothing may recurse over what a guest builds.
fn on_a_small_stack(f: impl FnOnce() + Send + 'static) {
    let t = std::thread::Builder::new().stack_size(64 << 10).spawn(f).unwrap();
    t.join().unwrap();
}

/// Root where the namespace belongs.
fn owner(ns: &MountNs) -> Credentials {
    Credentials::root(ns.user_ns(), Cap::ALL)
}

const DEEP: usize = 99_000;

/// A namespace with mounts on top of each other.
fn stacked() -> (Arc<MountNs>, Path) {
    let root =
        Mount::of(TmpFs::new(&crate::MemFiles::new(None), Options::default()), MountFlags::empty(), b"root");
    let fs = TmpFs::new(&crate::MemFiles::new(None), Options::default());
    let ns = mounts::testing::mount_ns(root.clone());
    let sb = SuperBlock::new(fs);
    let mut at = root.root_path();
    let first = ns.mount(&at, sb.clone(), MountFlags::empty(), b"t").unwrap().root_path();
    at = first.clone();
    for _ in 1..DEEP {
        at = ns.mount(&at, sb.clone(), MountFlags::empty(), b"t").unwrap().root_path();
    }
    (ns, first)
}

#[test]
fn many_stacked_mounts_are_copied_unmounted_and_dropped() {
    on_a_small_stack(|| {
        let (ns, first) = stacked();
        let (copy, _) = ns.copy(&root(), ns.user_ns()).unwrap();
        assert_eq!(copy.mounts().len(), DEEP + 1);
        drop(copy);
        assert_eq!(ns.umount(&first, Unmount::Detach), Ok(()));
        assert_eq!(ns.mounts().len(), 1);
        drop(ns);
        drop(stacked());
    });
}

#[test]
fn many_nested_file_systems_are_dropped() {
    on_a_small_stack(|| {
        let cx = root();
        let top = Mount::of(
            TmpFs::new(&crate::MemFiles::new(None), Options::default()),
            MountFlags::empty(),
            b"root",
        );
        let ns = mounts::testing::mount_ns(top);
        let fs = FsContext::new(ns.clone());
        for _ in 0..2000 {
            dir::mkdir(&cx, &fs.view(), &Start::Cwd, b"a", 0o755).unwrap();
            let at = walk::lookup(&cx, &fs.view(), &Start::Cwd, b"a", Lookup::FOLLOW).unwrap();
            let m = ns.mount(
                &at,
                SuperBlock::new(TmpFs::new(&crate::MemFiles::new(None), Options::default())),
                MountFlags::empty(),
                b"t",
            );
            fs.set_cwd(m.unwrap().root_path());
        }
        drop((fs, ns));
    });
}

#[test]
fn deep_directories_are_found_moved_and_dropped() {
    on_a_small_stack(|| {
        let e = env();
        e.mkdir("/other").unwrap();
        for _ in 0..DEEP {
            e.mkdir("a").unwrap();
            let p = e.path("a").unwrap();
            e.fs.set_cwd(p);
        }
        let deep = e.fs.view().cwd.clone();
        assert_eq!(deep.display(&e.fs.view().root).len(), 2 * DEEP);
        assert_eq!(e.rename("/a", "../b", 0), Err(Errno::EINVAL));
        assert_eq!(e.rename("../a", "/other/a", 0), Ok(()));
        e.fs.set_cwd(e.fs.view().root.clone());
        drop(deep);
        drop(e);
    });
}

#[test]
fn a_long_chain_of_groups_passes_events() {
    on_a_small_stack(|| {
        const GROUPS: usize = 3000;
        let cx = root();
        let files = crate::MemFiles::new(None);
        let new = || SuperBlock::new(TmpFs::new(&files, Options::default()));
        let top = Mount::of(TmpFs::new(&files, Options::default()), MountFlags::empty(), b"root");
        let ns = mounts::testing::mount_ns(top);
        let fs = FsContext::new(ns.clone());
        let place = |path: &str| {
            let found = walk::lookup(&cx, &fs.view(), &Start::Cwd, path.as_bytes(), Lookup::FOLLOW);
            found.unwrap_or_else(|e| panic!("{path}: {e:?}"))
        };
        let mkdir = |path: &str| dir::mkdir(&cx, &fs.view(), &Start::Cwd, path.as_bytes(), 0o755).unwrap();
        mkdir("/0");
        let first = ns.mount(&place("/0"), new(), MountFlags::empty(), b"t").unwrap();
        mkdir("/0/x");
        ns.propagate(&owner(&ns), &first, Propagation::Shared, false).unwrap();
        // Each is a slave of the one before, and has slaves.
        for n in 1..GROUPS {
            mkdir(&format!("/{n}"));
            let m = ns.bind(&place(&format!("/{}", n - 1)), &place(&format!("/{n}")), false).unwrap();
            ns.propagate(&owner(&ns), &m, Propagation::Slave, false).unwrap();
            ns.propagate(&owner(&ns), &m, Propagation::Shared, false).unwrap();
        }
        ns.mount(&place("/0/x"), new(), MountFlags::empty(), b"t").unwrap();
        assert_eq!(ns.mounts().len(), 1 + 2 * GROUPS);
        let last = place(&format!("/{}/x", GROUPS - 1)).mount;
        assert_eq!(last.peer_group().unwrap().members().len(), 1);
        drop(last);
        assert_eq!(ns.umount(&place("/0/x"), Unmount::Idle), Ok(()));
        assert_eq!(ns.mounts().len(), 1 + GROUPS);
        let (copy, _) = ns.copy(&cx, ns.user_ns()).unwrap();
        assert_eq!(first.peer_group().unwrap().members().len(), 2);
        drop(copy);
        assert_eq!(first.peer_group().unwrap().members().len(), 1);
        drop((first, fs));
    });
}

#[test]
fn events_keep_the_bound_of_mounts() {
    let e = env();
    let ns = e.fs.view().ns.clone();
    let new = || SuperBlock::new(TmpFs::new(&crate::MemFiles::new(None), Options::default()));
    e.mkdir("/0").unwrap();
    let first = ns.mount(&e.path("/0").unwrap(), new(), MountFlags::empty(), b"t").unwrap();
    e.mkdir("/0/x").unwrap();
    ns.propagate(&owner(&ns), &first, Propagation::Shared, false).unwrap();
    // 2, 4, 8, ... mounts: each bind of the tree onto itself doubles it.
    let mut failed = None;
    for _ in 0..40 {
        let at = e.path("/0/x").unwrap();
        if let Err(error) = ns.bind(&first.root_path(), &at, true) {
            failed = Some(error);
            break;
        }
        e.mkdir("/0/x/x").ok();
    }
    assert_eq!(failed, Some(Errno::ENOSPC));
    let many = ns.mounts().len();
    assert!(many <= 100_000);
    assert_eq!(ns.umount(&first.root_path(), Unmount::Detach), Ok(()));
    assert_eq!(ns.mounts().len(), 1);
}
