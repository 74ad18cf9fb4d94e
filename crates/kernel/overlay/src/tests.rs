//! The overlay over a directory of the host.

use abi::{Errno, Result};
use hostfs::HostFs;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use vfs::testing::TestCaller;
use vfs::*;

struct Env {
    dir: PathBuf,
    fs: Arc<FsContext>,
}

impl Drop for Env {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn env(name: &str) -> Env {
    let dir = std::env::temp_dir().join(format!("overlay-{}-{name}", std::process::id()));
    fs::create_dir_all(dir.join("d/sub")).unwrap();
    fs::write(dir.join("d/f"), "lower").unwrap();
    fs::write(dir.join("d/g"), "other").unwrap();
    fs::write(dir.join("d/sub/x"), "x").unwrap();
    fs::hard_link(dir.join("d/f"), dir.join("link")).unwrap();
    fs::write(dir.join("big"), vec![5; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("d/f", dir.join("sym")).unwrap();
    let fd: OwnedFd = fs::File::open(&dir).unwrap().into();
    let lower = HostFs::new(&hostfs::HostFiles::new(), fd, true).unwrap();
    let fs = crate::new(&tmpfs::MemFiles::new(None), lower).unwrap();
    Env { dir, fs: FsContext::new(vfs::testing::mount_ns(Mount::of(fs, MountFlags::empty(), b"overlay"))) }
}

impl Env {
    fn open(&self, p: &str, flags: i32) -> Result<Arc<OpenFile>> {
        let how = OpenHow::legacy(flags, 0o644);
        open::open_at(&TestCaller::root(), &self.fs.view(), &Start::Cwd, p.as_bytes(), &how)
            .map_err(Failure::errno)
    }
    fn stat(&self, p: &str) -> Result<abi::stat::Attr> {
        attr::stat(&TestCaller::root(), &self.fs.view(), &Start::Cwd, p.as_bytes(), Lookup::FOLLOW)
    }
    fn text(&self, p: &str) -> Result<String> {
        let f = self.open(p, 0)?;
        let mut b = [0; 64];
        let n = io::read_at(&TestCaller::root(), &f, &mut b, 0)?;
        Ok(String::from_utf8_lossy(&b[..n]).into())
    }
    fn unlink(&self, p: &str) -> Result<()> {
        link::unlink(&TestCaller::root(), &self.fs.view(), &Start::Cwd, p.as_bytes())
    }
    fn rename(&self, a: &str, b: &str) -> Result<()> {
        rename::rename(
            &TestCaller::root(),
            &self.fs.view(),
            &Start::Cwd,
            a.as_bytes(),
            &Start::Cwd,
            b.as_bytes(),
            0,
        )
    }
    fn names(&self, p: &str) -> Vec<String> {
        struct Names(Vec<String>);
        impl DirSink for Names {
            fn entry(&mut self, _n: u64, e: &DirEntry) -> bool {
                self.0.push(String::from_utf8_lossy(&e.name).into());
                true
            }
        }
        let f = self.open(p, libc::O_DIRECTORY).unwrap();
        let mut n = Names(Vec::new());
        dir::read(&TestCaller::root(), &f, &mut n).unwrap();
        n.0.retain(|n| n != "." && n != "..");
        n.0.sort();
        n.0
    }
}

#[test]
fn copy_up_keeps_identity_and_readers() {
    let e = env("copyup");
    let reader = e.open("/d/f", 0).unwrap();
    let before = e.stat("/d/f").unwrap();
    let w = e.open("/d/f", libc::O_RDWR).unwrap();
    io::write_at(&TestCaller::root(), &w, b"UPPER", 0).unwrap();
    let after = e.stat("/link").unwrap();
    assert_eq!((before.dev, before.ino, before.nlink), (after.dev, after.ino, after.nlink));
    let mut b = [0; 5];
    io::read_at(&TestCaller::root(), &reader, &mut b, 0).unwrap();
    assert_eq!(&b, b"UPPER");
    assert_eq!(e.text("/link").unwrap(), "UPPER", "hard links stay links");
    assert_eq!(fs::read(e.dir.join("d/f")).unwrap(), b"lower", "the image is untouched");
}

#[test]
fn truncating_open_and_large_files() {
    let e = env("large");
    let f = e.open("/d/g", libc::O_WRONLY | libc::O_TRUNC).unwrap();
    io::write_at(&TestCaller::root(), &f, b"n", 0).unwrap();
    assert_eq!(e.text("/d/g").unwrap(), "n");
    let f = e.open("/big", libc::O_RDWR).unwrap();
    io::write_at(&TestCaller::root(), &f, b"!", 1 << 20).unwrap();
    let mut b = [0; 3];
    io::read_at(&TestCaller::root(), &f, &mut b, (1 << 20) - 1).unwrap();
    assert_eq!(b, [5, b'!', 5]);
    assert_eq!(e.stat("/big").unwrap().size, 3 << 20);
    let req = MapRequest { prot: 3, shared: true, offset: 0, len: 4096 };
    assert!(matches!(f.ops.map(&TestCaller::root(), &f, &req), Ok(Mapping::Host { .. })));
}

#[test]
fn whiteouts_and_merged_listings() {
    let e = env("whiteout");
    assert_eq!(e.names("/d"), ["f", "g", "sub"]);
    e.unlink("/d/f").unwrap();
    e.open("/d/new", libc::O_CREAT).unwrap();
    assert_eq!(e.names("/d"), ["g", "new", "sub"]);
    assert_eq!(e.stat("/d/f").err(), Some(Errno::ENOENT));
    assert_eq!(e.stat("/sym").err(), Some(Errno::ENOENT));
    assert_eq!(e.stat("/link").unwrap().nlink, 1);
    e.open("/d/f", libc::O_CREAT).unwrap();
    assert_eq!(e.stat("/d/f").unwrap().size, 0);
    assert_eq!(e.names("/d"), ["f", "g", "new", "sub"]);
    let rmdir = |p: &str| link::rmdir(&TestCaller::root(), &e.fs.view(), &Start::Cwd, p.as_bytes());
    assert_eq!(rmdir("/d/sub"), Err(Errno::ENOTEMPTY));
    e.unlink("/d/sub/x").unwrap();
    rmdir("/d/sub").unwrap();
    dir::mkdir(&TestCaller::root(), &e.fs.view(), &Start::Cwd, b"/d/sub", 0o755).unwrap();
    assert!(e.names("/d/sub").is_empty(), "a new directory does not show the old one's names");
}

#[test]
fn lower_directories_can_be_renamed() {
    let e = env("rename");
    e.rename("/d", "/moved").unwrap();
    assert_eq!(e.stat("/d").err(), Some(Errno::ENOENT));
    assert_eq!(e.text("/moved/f").unwrap(), "lower");
    assert_eq!(e.names("/moved/sub"), ["x"]);
    e.rename("/moved/sub/x", "/moved/y").unwrap();
    assert_eq!(e.text("/moved/y").unwrap(), "x");
    assert_eq!(e.names("/"), ["big", "link", "moved", "sym"]);
}

#[test]
fn attributes_change_without_copying() {
    let e = env("attr");
    let p = walk::lookup(&TestCaller::root(), &e.fs.view(), &Start::Cwd, b"/big", Lookup::FOLLOW).unwrap();
    attr::chmod(&TestCaller::root(), &p, 0o600).unwrap();
    attr::chown(&TestCaller::root(), &p, 7, 8).unwrap();
    xattr::set(&TestCaller::root(), p.inode(), b"user.a", b"1", 0).unwrap();
    let a = e.stat("/big").unwrap();
    assert_eq!((a.mode, a.uid, a.gid), (0o100600, 7, 8));
    assert_eq!(xattr::list(&TestCaller::root(), p.inode()).unwrap(), b"user.a\0");
}

#[test]
fn trimming_keeps_what_changed() {
    let e = env("trim");
    e.stat("/d/sub/x").unwrap();
    e.unlink("/d/g").unwrap();
    let f = e.open("/d/f", libc::O_WRONLY).unwrap();
    io::write_at(&TestCaller::root(), &f, b"UP", 0).unwrap();
    drop(f);
    let ino = e.stat("/d/sub/x").unwrap().ino;
    e.fs.view().root.mount.fs().trim();
    assert_eq!(e.stat("/d/sub/x").unwrap().ino, ino);
    assert_eq!(e.stat("/d/g").err(), Some(Errno::ENOENT));
    assert_eq!(e.text("/d/f").unwrap(), "UPwer");
    assert_eq!(e.names("/d"), ["f", "sub"]);
}

#[test]
fn removing_a_new_name_needs_no_whiteout() {
    let e = env("new");
    e.open("/d/n", libc::O_CREAT).unwrap();
    e.unlink("/d/n").unwrap();
    e.unlink("/d/f").unwrap();
    e.open("/d/f", libc::O_CREAT).unwrap();
    e.unlink("/d/f").unwrap();
    assert_eq!(e.names("/d"), ["g", "sub"]);
    e.fs.view().root.mount.fs().trim();
    assert_eq!(e.names("/d"), ["g", "sub"]);
}
