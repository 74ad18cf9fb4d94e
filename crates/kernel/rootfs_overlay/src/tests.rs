//! The overlay over directories of the host.

use crate::{FileStore, Upper};
use abi::{Errno, Result};
use caller::Failure;
use files::io;
use hostfs::HostFs;
use mounts::FsContext;
use namei::{Lookup, OpenHow, Start, attr, dir, link, open, rename, walk, xattr};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::testing::TestCaller;
use vfs::*;

mod checkpoint;

struct Env {
    dir: PathBuf,
    fs: Arc<FsContext>,
}

impl Drop for Env {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// An environment over these directories below one temporary directory, the uppermost first, which `fill` makes.
fn over(name: &str, layers: &[&str], fill: impl Fn(&Path)) -> Env {
    with(name, layers, Upper::default(), fill)
}

fn with(name: &str, layers: &[&str], upper: Upper, fill: impl Fn(&Path)) -> Env {
    let dir = std::env::temp_dir().join(format!("overlay-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    fill(&dir);
    let files = hostfs::HostFiles::new(&Arc::default());
    let layer = |name: &&str| {
        let fd: OwnedFd = fs::File::open(dir.join(name)).unwrap().into();
        HostFs::new(&files, hosttree::direct::Direct::at(fd), true).unwrap() as Arc<dyn FileSystem>
    };
    let layers: Vec<_> = layers.iter().map(layer).collect();
    let fs = crate::new(&tmpfs::MemFiles::new(None), upper, &layers).unwrap();
    Env { dir, fs: FsContext::new(mounts::testing::mount_ns(Mount::of(fs, MountFlags::empty(), b"overlay"))) }
}

fn env(name: &str) -> Env {
    over(name, &["."], fill)
}

fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("d/sub")).unwrap();
    fs::write(dir.join("d/f"), "lower").unwrap();
    fs::write(dir.join("d/g"), "other").unwrap();
    fs::write(dir.join("d/sub/x"), "x").unwrap();
    fs::hard_link(dir.join("d/f"), dir.join("link")).unwrap();
    fs::write(dir.join("big"), vec![5; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("d/f", dir.join("sym")).unwrap();
}

impl Env {
    fn open(&self, p: &str, flags: i32) -> Result<Arc<OpenFile>> {
        let how = OpenHow::legacy(flags, 0o644).expect("valid flags");
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
    fn entries(&self, p: &str) -> Vec<DirEntry> {
        struct Entries(Vec<DirEntry>);
        impl DirSink for Entries {
            fn entry(&mut self, _n: u64, e: &DirEntry) -> bool {
                self.0.push(e.clone());
                true
            }
        }
        let f = self.open(p, libc::O_DIRECTORY).unwrap();
        let mut all = Entries(Vec::new());
        dir::read(&TestCaller::root(), &f, &mut all).unwrap();
        all.0.retain(|e| e.name != b"." && e.name != b"..");
        all.0
    }
    fn names(&self, p: &str) -> Vec<String> {
        let name = |e: &DirEntry| String::from_utf8_lossy(&e.name).into();
        let mut names: Vec<String> = self.entries(p).iter().map(name).collect();
        names.sort();
        names
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

/// Three layers: `a` uppermost.
fn three(name: &str) -> Env {
    over(name, &["a", "b", "c"], |dir| {
        for (file, text) in [
            ("a/etc/own", "a"),
            ("b/etc/own", "b"),
            ("b/etc/middle", "b"),
            ("c/etc/low", "c"),
            ("c/etc/gone", "c"),
            ("c/opt/x", "c"),
            ("b/opt/y", "b"),
            ("b/file", "b"),
            ("c/file/inner", "c"),
            ("c/dir", "c"),
            ("a/dir/inner", "a"),
        ] {
            fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
            fs::write(dir.join(file), text).unwrap();
        }
        whiteout(&dir.join("b/etc/gone"));
        let opaque = std::ffi::CString::new(dir.join("b/opt").to_str().unwrap()).unwrap();
        rustix::fs::setxattr(&opaque, c"trusted.overlay.opaque", b"y", rustix::fs::XattrFlags::empty())
            .unwrap();
    })
}

fn whiteout(at: &Path) {
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, at, kind, rustix::fs::Mode::empty(), 0).unwrap();
}

#[test]
fn layers_are_merged() {
    let e = three("merge");
    assert_eq!(e.names("/"), ["dir", "etc", "file", "opt"]);
    assert_eq!(e.names("/etc"), ["low", "middle", "own"]);
    assert_eq!(e.text("/etc/own").unwrap(), "a");
    assert_eq!(e.text("/etc/middle").unwrap(), "b");
    assert_eq!(e.text("/etc/low").unwrap(), "c");
    assert_eq!(e.stat("/etc/gone").err(), Some(Errno::ENOENT), "a whiteout hides");
    assert_eq!(e.names("/opt"), ["y"], "an opaque directory is not merged");
    assert_eq!(e.stat("/opt/x").err(), Some(Errno::ENOENT));
    assert_eq!(e.text("/file").unwrap(), "b", "a file hides a directory");
    assert_eq!(e.names("/dir"), ["inner"], "a directory hides a file");
}

#[test]
fn merged_directories_change_as_one() {
    let e = three("change");
    e.unlink("/etc/own").unwrap();
    assert_eq!(e.names("/etc"), ["low", "middle"], "what it hid does not show");
    e.open("/etc/gone", libc::O_CREAT).unwrap();
    assert_eq!(e.stat("/etc/gone").unwrap().size, 0);
    e.rename("/etc", "/moved").unwrap();
    assert_eq!(e.names("/moved"), ["gone", "low", "middle"]);
    assert_eq!(e.text("/moved/low").unwrap(), "c");
    assert_eq!(e.stat("/etc").err(), Some(Errno::ENOENT));
    e.fs.view().root.mount.fs().trim();
    assert_eq!(e.names("/moved"), ["gone", "low", "middle"]);
}

#[test]
fn a_listing_shows_the_numbers_of_stat() {
    let e = three("numbers");
    for name in e.entries("/etc") {
        let shown = e.stat(&format!("/etc/{}", String::from_utf8_lossy(&name.name))).unwrap();
        assert_eq!(shown.ino, name.ino);
    }
}

#[test]
fn an_overlay_has_a_layer() {
    let memory = tmpfs::MemFiles::new(None);
    assert_eq!(crate::new(&memory, Upper::default(), &[]).err(), Some(Errno::EINVAL));
}

#[test]
fn a_file_of_the_host_keeps_the_data() {
    let file = hostsys::fs::memfd("store").unwrap();
    let blocks = || hostsys::fs::stat(&file).unwrap().blocks;
    let upper = Upper {
        store: Some(FileStore::new(file.try_clone().unwrap())),
        size: Some(4 << 20),
        hidden: Some(b".store".to_vec()),
    };
    let e = with("store", &["."], upper, |dir| {
        fill(dir);
        fs::write(dir.join(".store.1"), "").unwrap();
    });
    let cx = TestCaller::root();
    assert_eq!(e.names("/"), ["big", "d", "link", "sym"]);
    assert_eq!(e.stat("/.store.1").err(), Some(Errno::ENOENT));
    let f = e.open("/d/new", libc::O_CREAT | libc::O_RDWR).unwrap();
    io::write_at(&cx, &f, &[7; 3 * 4096], 0).unwrap();
    let w = e.open("/d/f", libc::O_RDWR).unwrap();
    io::write_at(&cx, &w, b"UP", 0).unwrap();
    assert_eq!(e.text("/link").unwrap(), "UPwer");
    assert_eq!((blocks(), e.stat("/d/new").unwrap().blocks), (32, 24));
    // A mapping has a file of its own; the store's blocks stay, for the host to count.
    let req = MapRequest { prot: 3, shared: true, offset: 0, len: 4096 };
    assert!(matches!(f.ops.map(&cx, &f, &req), Ok(Mapping::Host { .. })));
    let mut b = [0; 4096];
    io::read_at(&cx, &f, &mut b, 8192).unwrap();
    assert_eq!((b, blocks()), ([7; 4096], 32));
    // 4 MiB in all, of which 3 are this file's.
    let big = e.open("/big", libc::O_RDWR).unwrap();
    io::write_at(&cx, &big, b"!", 0).unwrap();
    let more = e.open("/more", libc::O_CREAT | libc::O_RDWR).unwrap();
    let (mut at, full) = (0, vec![1; 64 << 10]);
    let error = loop {
        match io::write_at(&cx, &more, &full, at) {
            Ok((n, _)) => at += n as u64,
            Err(e) => break e,
        }
    };
    assert_eq!((error, at), (Errno::ENOSPC, (1 << 20) - 4 * 4096));
    drop((f, w, big, more));
    for name in ["/d/new", "/d/f", "/link", "/big", "/more"] {
        e.unlink(name).unwrap();
    }
    e.fs.view().root.mount.fs().trim();
    assert_eq!(blocks(), 0, "freed blocks are holes");
}

#[test]
fn inodes_with_several_names_are_forgotten_until_they_change() {
    let e = env("forgotten");
    let cx = TestCaller::root();
    let root = e.fs.view().root.inode().clone();
    let both = || {
        let one = root.lookup(&cx, b"d").unwrap().lookup(&cx, b"f").unwrap();
        let two = root.lookup(&cx, b"link").unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        one
    };
    let forgotten = Arc::downgrade(&both());
    root.fs().trim();
    assert!(forgotten.upgrade().is_none());
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    both().set_attr(&cx, &set).unwrap();
    root.fs().trim();
    assert_eq!(root.lookup(&cx, b"link").unwrap().perm().unwrap().mode & 0o777, 0o600);
    assert_eq!(both().perm().unwrap().mode & 0o777, 0o600);
    // One that is in use under one name is the same under the other.
    let e = env("forgotten-used");
    let root = e.fs.view().root.inode().clone();
    let used = root.lookup(&cx, b"link").unwrap();
    root.fs().trim();
    let other = root.lookup(&cx, b"d").unwrap().lookup(&cx, b"f").unwrap();
    assert!(Arc::ptr_eq(&used, &other));
}

mod changes_of {
    use super::*;
    use overlay_diff::{Purpose, Reader, Record, State, Writer};

    /// Makes directories and changes files.
    impl Env {
        fn mkdir(&self, p: &str) {
            namei::dir::mkdir(&TestCaller::root(), &self.fs.view(), &Start::Cwd, p.as_bytes(), 0o755)
                .unwrap();
        }
        fn put(&self, p: &str, text: &[u8]) {
            let f = self.open(p, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC).unwrap();
            io::write_at(&TestCaller::root(), &f, text, 0).unwrap();
        }
        fn chmod(&self, p: &str, mode: u32) {
            let view = self.fs.view();
            let at = walk::lookup(&TestCaller::root(), &view, &Start::Cwd, p.as_bytes(), Lookup::FOLLOW);
            attr::chmod(&TestCaller::root(), &at.unwrap(), mode).unwrap();
        }

        /// The records in short, checked by a reader.
        fn told(&self, purpose: Purpose) -> Vec<String> {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes);
            let root = self.fs.view().root.inode().clone();
            tmpfs::walk::tell(&TestCaller::root(), &root, purpose, &mut |record| {
                writer.write(record).map_err(|_| Errno::EIO)
            })
            .unwrap();
            let mut reader = Reader::new(&bytes[..]);
            let mut lines = Vec::new();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            loop {
                lines.push(match reader.next_record().unwrap() {
                    Record::Node(node) => {
                        let state = match node.state {
                            State::Kept => "kept",
                            State::Changed => "changed",
                            State::Rewritten { shared: false } => "rewritten",
                            State::Rewritten { shared: true } => "shared",
                            State::New if node.hides => "hides",
                            State::New => "new",
                            State::Link => "link",
                        };
                        format!("{state} {}", text(node.name))
                    }
                    Record::Data { bytes, .. } => format!("= {}", bytes.len()),
                    Record::Xattr { name, .. } => format!("@ {}", text(name)),
                    Record::Removed { name } => format!("gone {}", text(name)),
                    Record::Up => "up".into(),
                    Record::End => return lines,
                    Record::Abort | Record::Omitted { .. } => panic!(),
                });
            }
        }
    }

    #[test]
    fn nothing_has_changed() {
        let e = env("told-nothing");
        assert_eq!(e.text("/d/f").unwrap(), "lower");
        assert_eq!(e.told(Purpose::Layer), ["kept "]);
    }

    #[test]
    fn what_is_in_place_is_named_and_the_rest_is_told() {
        let e = env("told");
        e.chmod("/d/g", 0o600);
        e.put("/d/f", b"UPPER");
        e.put("/n", b"new");
        e.rename("/d/sub", "/moved").unwrap();
        e.unlink("/big").unwrap();
        let expected = |link: &str, content: &str| -> Vec<String> {
            let d = ["changed ", "gone big", "changed d", "shared f", "= 5", "changed g"];
            let rest = ["gone sub", "up", link, "new moved", "new x", "= 1", "up", "new n", "= 3"];
            let all = d.into_iter().chain([content]).chain(rest);
            all.filter(|line| !line.is_empty()).map(String::from).collect()
        };
        // The second name of d/f has not been looked up.
        assert_eq!(e.told(Purpose::Layer), expected("", "= 5"));
        e.stat("/link").unwrap();
        assert_eq!(e.told(Purpose::Layer), expected("link link", "= 5"));
        assert_eq!(e.told(Purpose::WriteBack), expected("link link", ""));
        assert!(!e.told(Purpose::List).iter().any(|line| line.starts_with('=')));
    }

    #[test]
    fn what_is_elsewhere_does_not_need_the_layers_any_more() {
        let e = env("settled");
        let held = e.open("/d/g", 0).unwrap();
        e.unlink("/d/g").unwrap();
        e.rename("/d/sub", "/moved").unwrap();
        e.rename("/d/f", "/f").unwrap();
        e.told(Purpose::WriteBack);
        // The changes are written: the image has neither.
        fs::remove_dir_all(e.dir.join("d")).unwrap();
        fs::create_dir_all(e.dir.join("d/sub")).unwrap();
        fs::write(e.dir.join("d/g"), "another").unwrap();
        fs::write(e.dir.join("d/sub/late"), "late").unwrap();
        let mut b = [0; 8];
        let n = io::read_at(&TestCaller::root(), &held, &mut b, 0).unwrap();
        assert_eq!(&b[..n], b"other");
        assert_eq!((e.text("/moved/x").unwrap(), e.text("/f").unwrap()), ("x".into(), "lower".into()));
        assert_eq!(e.names("/moved"), ["x"]);
        assert_eq!(e.text("/moved/late").unwrap_err(), Errno::ENOENT);
        e.fs.view().root.inode().fs().trim();
        assert_eq!(e.text("/moved/x").unwrap(), "x");
    }

    #[test]
    fn names_that_were_written_back_can_go() {
        let e = env("written-back");
        e.put("/d/fresh", b"x");
        e.told(Purpose::WriteBack);
        fs::write(e.dir.join("d/fresh"), "x").unwrap();
        assert_eq!(e.text("/d/fresh").unwrap(), "x");
        e.unlink("/d/fresh").unwrap();
        assert_eq!(e.text("/d/fresh").unwrap_err(), Errno::ENOENT);
        assert_eq!(e.names("/d"), ["f", "g", "sub"]);
        assert_eq!(e.told(Purpose::List), ["kept ", "changed d", "gone fresh", "up"]);
    }

    #[test]
    fn a_directory_that_was_replaced_hides_the_old_one() {
        let e = env("replaced");
        e.rename("/d", "/away").unwrap();
        e.mkdir("/d");
        e.put("/d/g", b"");
        let told = e.told(Purpose::List);
        let expected = [
            "changed ", "new away", "new f", "new g", "new sub", "new x", "up", "up", "hides d", "new g",
            "up",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn plain_trees_have_no_changes() {
        let fs = tmpfs::TmpFs::new(&tmpfs::MemFiles::new(None), tmpfs::Options::default());
        let none = tmpfs::walk::tell(&TestCaller::root(), &fs.root(), Purpose::List, &mut |_| Ok(()));
        assert_eq!(none.unwrap_err(), Errno::EOPNOTSUPP);
    }
}
