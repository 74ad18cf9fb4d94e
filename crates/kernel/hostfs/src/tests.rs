//! Host trees and imported streams, in a temporary directory.

use crate::{Coherence, HostFiles, HostFs, Importer, Outward};
use abi::{Errno, Result};
use caller::Failure;
use files::io;
use mounts::FsContext;
use namei::{Lookup, OpenHow, Start, attr, dir, link, open, rename, walk};
use rights::{Cap, Credentials};
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path as HostPath, PathBuf};
use std::sync::Arc;
use vfs::testing::TestCaller;
use vfs::*;
use wait::{Events, Waiter};

mod coherence;

fn plain() -> TestCaller {
    let root = TestCaller::root();
    let mut c = Credentials::root(&root.vfs.resources.user_ns, Cap::ALL);
    c.fsuid = rustix_uid();
    TestCaller { creds: Arc::new(c), ..root }
}

fn rustix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").map_or(0, |m| m.uid())
}

struct Tmp(PathBuf);

impl Tmp {
    fn new(name: &str) -> Tmp {
        let p = std::env::temp_dir().join(format!("hostfs-{}-{name}", std::process::id()));
        fs::create_dir_all(&p).unwrap();
        Tmp(p)
    }
}

impl Drop for Tmp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn context(dir: &HostPath, exclusive: bool) -> Arc<FsContext> {
    context_of(&HostFiles::new(&Arc::default()), dir, exclusive)
}

fn context_of(home: &Arc<HostFiles>, dir: &HostPath, exclusive: bool) -> Arc<FsContext> {
    let fd: OwnedFd = fs::File::open(dir).unwrap().into();
    let fs = HostFs::new(home, hosttree::direct::Direct::at(fd), exclusive).unwrap();
    FsContext::new(mounts::testing::mount_ns(Mount::of(fs, MountFlags::empty(), b"host")))
}

fn open(c: &FsContext, p: &str, flags: i32) -> Result<Arc<OpenFile>> {
    let how = OpenHow::legacy(flags, 0o644).expect("valid flags");
    open::open_at(&plain(), &c.view(), &Start::Cwd, p.as_bytes(), &how).map_err(Failure::errno)
}

fn stat(c: &FsContext, p: &str) -> Result<abi::stat::Attr> {
    attr::stat(&plain(), &c.view(), &Start::Cwd, p.as_bytes(), Lookup::FOLLOW)
}

fn text(f: &OpenFile) -> String {
    let mut b = [0; 100];
    let n = io::read_at(&plain(), f, &mut b, 0).unwrap();
    String::from_utf8_lossy(&b[..n]).into()
}

#[test]
fn exclusive_trees_are_cached_and_read_only() {
    let t = Tmp::new("exclusive");
    fs::create_dir_all(t.0.join("a/b")).unwrap();
    fs::write(t.0.join("a/b/f"), "hello").unwrap();
    std::os::unix::fs::symlink("b/f", t.0.join("a/l")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", t.0.join("abs")).unwrap();
    let c = context(&t.0, true);
    assert_eq!(text(&open(&c, "/a/l", 0).unwrap()), "hello");
    assert_eq!(open(&c, "/abs", 0).err(), Some(Errno::ENOENT), "links resolve inside the tree");
    assert_eq!(open(&c, "/x", libc::O_CREAT | libc::O_RDWR).err(), Some(Errno::EROFS));
    assert_eq!(stat(&c, "/gone").err(), Some(Errno::ENOENT));
    fs::write(t.0.join("gone"), "late").unwrap();
    assert_eq!(stat(&c, "/gone").err(), Some(Errno::ENOENT), "negative lookups stay");
}

#[test]
fn files_read_often_are_mapped() {
    let t = Tmp::new("mapped");
    let data: Vec<u8> = (0..30_000_u32).map(|i| (i / 7) as u8).collect();
    fs::write(t.0.join("f"), &data).unwrap();
    let home = HostFiles::new(&Arc::default());
    let c = context_of(&home, &t.0, true);
    let f = open(&c, "/f", 0).unwrap();
    let read = |off: usize, len: usize| {
        let mut b = vec![1; len];
        let n = io::read_at(&plain(), &f, &mut b, off as u64).unwrap();
        b.truncate(n);
        b
    };
    for i in 0..100 {
        assert_eq!(read(i * 299, 4096), data[i * 299..(i * 299 + 4096).min(30_000)]);
    }
    let calls = || {
        let text = fs::read_to_string("/proc/thread-self/io").unwrap();
        text.lines().find_map(|l| l.strip_prefix("syscr: ")).unwrap().parse::<u64>().unwrap()
    };
    let (before, own) = (calls(), calls());
    for _ in 0..100 {
        assert_eq!(read(29_000, 4096), data[29_000..]);
    }
    assert!(calls() - own <= own - before, "no host calls");
    assert_eq!(read(30_000, 10), b"");
    assert_eq!(read(1 << 40, 10), b"");
    // A process breaks the promise that the tree does not change.
    fs::OpenOptions::new().write(true).open(t.0.join("f")).unwrap().set_len(5000).unwrap();
    assert_eq!(read(0, 100), data[..100]);
    assert_eq!(read(8192, 100), b"");
    assert_eq!(read(4990, 100), data[4990..5000]);
    // A file that is not read any more loses its mapping.
    assert!(home.release_idle());
    assert!(!home.release_idle() && !HostFiles::new(&Arc::default()).release_idle());
}

#[test]
fn shared_trees_are_asked_again() {
    let t = Tmp::new("shared");
    fs::create_dir(t.0.join("d")).unwrap();
    let c = context(&t.0, false);
    assert_eq!(stat(&c, "/d/f").err(), Some(Errno::ENOENT));
    fs::write(t.0.join("d/f"), "one").unwrap();
    assert_eq!(stat(&c, "/d/f").unwrap().size, 3);
    let f = open(&c, "/d/f", libc::O_RDWR).unwrap();
    io::write_at(&plain(), &f, b"ONE two", 0).unwrap();
    assert_eq!(fs::read(t.0.join("d/f")).unwrap(), b"ONE two");
    rename::rename(&plain(), &c.view(), &Start::Cwd, b"/d", &Start::Cwd, b"/e", 0).unwrap();
    assert_eq!(text(&open(&c, "/e/f", 0).unwrap()), "ONE two");
    let g = open(&c, "/e/g", libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND).unwrap();
    io::write_at(&plain(), &g, b"ab", 0).unwrap();
    assert_eq!(io::write_at(&plain(), &g, b"cd", 0), Ok((2, 4)));
    link::unlink(&plain(), &c.view(), &Start::Cwd, b"/e/g").unwrap();
    assert_eq!(g.attr().unwrap().nlink, 0);
    assert!(!t.0.join("e/g").exists());
    dir::mkdir(&plain(), &c.view(), &Start::Cwd, b"/n", 0o750).unwrap();
    assert_eq!(stat(&c, "/n").unwrap().mode, 0o40750);
    let n = t.0.join("n").display().to_string();
    coherence::Others::new().run(&format!("rmdir {n}; echo now a file > {n}"));
    assert_eq!(stat(&c, "/n").unwrap().mode & 0o170000, 0o100000);
}

#[test]
fn a_swapped_link_is_not_followed() {
    let t = Tmp::new("swap");
    fs::create_dir(t.0.join("d")).unwrap();
    fs::write(t.0.join("d/f"), "mine").unwrap();
    let c = context(&t.0, false);
    let d = walk::lookup(&plain(), &c.view(), &Start::Cwd, b"/d", Lookup::FOLLOW).unwrap();
    fs::rename(t.0.join("d"), t.0.join("old")).unwrap();
    std::os::unix::fs::symlink("/etc", t.0.join("d")).unwrap();
    let at = Start::At(d);
    let r = open::open_at(&plain(), &c.view(), &at, b"passwd", &OpenHow::legacy(0, 0).expect("valid flags"))
        .map(drop);
    assert!(r.is_err(), "neither the link nor /etc");
}

#[test]
fn pipes_do_not_block_and_notify() {
    let (r, mut w) = std::io::pipe().unwrap();
    let home = HostFiles::new(&Arc::default());
    let f = Importer::new(&home).import(OwnedFd::from(r), 0, 0).unwrap();
    let mut b = [0; 8];
    assert_eq!(f.ops.read(&plain(), &f, &mut b, 0), Err(Errno::EAGAIN));
    let waiter = Waiter::new();
    let t = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        w.write_all(b"hi").unwrap();
    });
    let q = f.ops.wait_queue(&plain()).unwrap();
    let n = waiter.wait_on(&q, Events::IN, None, || f.ops.read(&plain(), &f, &mut b, 0).ok());
    assert_eq!(n, Ok(2));
    t.join().unwrap();
    assert_eq!(f.ops.read(&plain(), &f, &mut b, 0), Ok(0), "the writer is gone");
}

#[test]
fn descriptors_of_one_file_share_its_position() {
    let t = Tmp::new("shared-position");
    let out = fs::File::create(t.0.join("out")).unwrap();
    let again = out.try_clone().unwrap();
    let third = out.try_clone().unwrap();
    let home = HostFiles::new(&Arc::default());
    let mut importer = Importer::new(&home);
    let a = importer.import(out.into(), 0, 0).unwrap();
    let b = importer.import(again.into(), 0, 0).unwrap();
    assert!(Arc::ptr_eq(&a, &b));
    // Those of another process are another open file, wherever its position is.
    let c = Importer::new(&home).import(third.into(), 0, 0).unwrap();
    assert!(!Arc::ptr_eq(&a, &c));
}
