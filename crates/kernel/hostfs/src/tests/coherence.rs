//! Changes by other processes in a shared tree are seen, and so are our own changes by another path.

use super::*;
use caller::Failure;
use files::io;
use mounts::FsContext;
use namei::{Lookup, OpenHow, Start, attr, dir, link, open, rename, walk};
use rights::Credentials;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Another process, for which a shell stands: what this process does itself is told apart from what others do.
pub(super) struct Others {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Others {
    pub fn new() -> Others {
        let mut command = Command::new("/bin/sh");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Others { child, input, output: BufReader::new(output) }
    }

    /// Runs commands; returns when they are done.
    pub fn run(&mut self, commands: &str) {
        writeln!(self.input, "{{ {commands}; }} 2>/dev/null; echo done").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tree(home: &Arc<HostFiles>, dir: &HostPath, coherence: Coherence) -> Arc<FsContext> {
    let fd: OwnedFd = fs::File::open(dir).unwrap().into();
    let fs = HostFs::shared(home, hosttree::direct::Direct::at(fd), coherence, Outward::default()).unwrap();
    FsContext::new(mounts::testing::mount_ns(Mount::of(fs, MountFlags::empty(), b"host")))
}

/// What a path leads to: type and mode, size, links, modification.
fn seen(c: &FsContext, path: &str) -> Option<(u32, u64, u64, i64, i64)> {
    let a = attr::stat(&plain(), &c.view(), &Start::Cwd, path.as_bytes(), Lookup::empty()).ok()?;
    Some((a.mode, a.size, a.nlink, a.mtime.sec, a.mtime.nsec))
}

/// The same natively.
fn there(dir: &HostPath, path: &str) -> Option<(u32, u64, u64, i64, i64)> {
    let a = fs::symlink_metadata(dir.join(&path[1..])).ok()?;
    Some((a.mode(), a.size(), a.nlink(), a.mtime(), a.mtime_nsec()))
}

struct Listed(Vec<String>);

impl DirSink for Listed {
    fn entry(&mut self, _next: u64, e: &DirEntry) -> bool {
        self.0.push(format!("{}:{}:{}", String::from_utf8_lossy(&e.name), e.ino, e.kind));
        true
    }
}

/// The names of a directory, with inode numbers and types, in order.
fn listed(c: &FsContext, path: &str) -> Option<Vec<String>> {
    let dir = open(c, path, libc::O_DIRECTORY | libc::O_NOFOLLOW).ok()?;
    let mut names = Listed(Vec::new());
    dir::read(&plain(), &dir, &mut names).ok()?;
    // The next call says that this is the end.
    let n = names.0.len();
    dir::read(&plain(), &dir, &mut names).ok()?;
    assert_eq!(names.0.len(), n);
    let mut names = names.0.split_off(2);
    names.sort();
    Some(names)
}

/// The same natively.
fn listed_there(dir: &HostPath, path: &str) -> Option<Vec<String>> {
    use std::os::unix::fs::{DirEntryExt, FileTypeExt};
    let dir = dir.join(&path[1..]);
    if !fs::symlink_metadata(&dir).ok()?.is_dir() {
        return None;
    }
    let entry = |e: std::io::Result<fs::DirEntry>| {
        let (e, kind) = e.and_then(|e| e.file_type().map(|kind| (e, kind))).unwrap();
        assert!(!kind.is_socket() && !kind.is_fifo());
        let kind = if kind.is_dir() {
            libc::DT_DIR
        } else if kind.is_symlink() {
            libc::DT_LNK
        } else {
            libc::DT_REG
        };
        format!("{}:{}:{kind}", e.file_name().display(), e.ino())
    };
    let mut names: Vec<_> = fs::read_dir(&dir).ok()?.map(entry).collect();
    names.sort();
    Some(names)
}

/// Asks so often that directories are watched.
fn warm(c: &FsContext, paths: &[&str]) {
    for _ in 0..12 {
        paths.iter().for_each(|path| {
            let _ = stat(c, path);
        });
        paths.iter().for_each(|path| drop(open(c, path, 0)));
    }
}

#[test]
fn contents_that_are_not_reported_are_asked_for() {
    let t = Tmp::new("quiet");
    fs::write(t.0.join("f"), "one").unwrap();
    let home = HostFiles::new(&Arc::default());
    let c = tree(&home, &t.0, Coherence::Lagging);
    let mut others = Others::new();
    warm(&c, &["/f"]);
    let file = open(&c, "/f", libc::O_RDWR).unwrap();
    for round in 0..40 {
        io::write_at(&plain(), &file, b"ours", round).unwrap();
        // What others do, once our writes are no longer reported, would be missed if it were not asked for.
        others.run(&format!("echo theirs >> {}/f", t.0.display()));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(seen(&c, "/f"), there(&t.0, "/f"), "in round {round}");
        assert_eq!(seen(&c, "/f"), there(&t.0, "/f"), "again in round {round}");
    }
    drop(file);
    others.run(&format!("echo more >> {}/f", t.0.display()));
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(seen(&c, "/f"), there(&t.0, "/f"), "reported again");
}

#[test]
fn a_write_takes_set_id_bits_without_a_question() {
    let t = Tmp::new("setid");
    for (mode, coherence) in [(0o4755, Coherence::Strict), (0o6755, Coherence::Lagging)] {
        let c = tree(&HostFiles::new(&Arc::default()), &t.0, coherence);
        let others =
            |mode: u32| fs::set_permissions(t.0.join("f"), fs::Permissions::from_mode(mode)).unwrap();
        fs::write(t.0.join("f"), "one").unwrap();
        others(mode);
        warm(&c, &["/f"]);
        let file = open(&c, "/f", libc::O_RDWR).unwrap();
        io::write_at(&plain(), &file, b"two", 0).unwrap();
        // With CAP_FSETID, which a sentry never has in the host's first user namespace, they stay.
        assert_eq!(seen(&c, "/f"), there(&t.0, "/f"));
    }
}

#[test]
fn changes_by_others_are_seen_at_once() {
    let t = Tmp::new("others");
    fs::create_dir_all(t.0.join("a/b")).unwrap();
    fs::write(t.0.join("a/b/f"), "one").unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Strict);
    let paths = ["/a/b/f", "/a/b/new", "/a/b", "/a", "/a/c/f"];
    let mut others = Others::new();
    for commands in [
        "echo longer > a/b/f",
        "chmod 600 a/b/f",
        "touch -d 2001-01-01 a/b/f",
        "touch a/b/new",
        "mv a/b/new a/b/f",
        "rm a/b/f",
        "mkdir a/b/f",
        "rmdir a/b/f; ln -s new a/b/f",
        "mv a/b a/c",
        "mkdir a/b; echo again > a/b/f",
        "chmod 711 a/b",
        "ln a/c/f a/b/new",
        "rm -r a/b; mv a/c a/b",
    ] {
        warm(&c, &paths);
        others.run(&format!("cd {}; {commands}", t.0.display()));
        for path in paths {
            assert_eq!(seen(&c, path), there(&t.0, path), "{path} after {commands}");
        }
    }
}

#[test]
fn a_lagging_tree_follows_within_a_millisecond() {
    let t = Tmp::new("lagging");
    fs::write(t.0.join("f"), "one").unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Lagging);
    let mut others = Others::new();
    for i in 0..20 {
        warm(&c, &["/f", "/g"]);
        others.run(&format!("cd {}; echo {i} >> f; rm -f g; touch f{i}; mv f{i} g", t.0.display()));
        std::thread::sleep(std::time::Duration::from_millis(1));
        for path in ["/f", "/g"] {
            assert_eq!(seen(&c, path), there(&t.0, path));
        }
    }
}

#[test]
fn known_names_and_attributes_make_no_host_call() {
    let t = Tmp::new("known");
    fs::create_dir(t.0.join("d")).unwrap();
    fs::write(t.0.join("d/f"), "one").unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Lagging);
    warm(&c, &["/d/f", "/d/absent"]);
    // A change by another process would be noticed. A change by this process, past the kernel, is not. So the result
    // shows whether the host or the cache answered.
    fs::write(t.0.join("d/f"), "longer").unwrap();
    fs::write(t.0.join("d/absent"), "").unwrap();
    assert_eq!(stat(&c, "/d/f").unwrap().size, 3);
    assert_eq!(stat(&c, "/d/absent").err(), Some(Errno::ENOENT));
}

#[test]
fn names_in_a_working_directory_are_known() {
    let t = Tmp::new("working");
    fs::create_dir_all(t.0.join("outer/d")).unwrap();
    fs::write(t.0.join("outer/d/f"), "one").unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Lagging);
    let dir = open(&c, "/outer/d", libc::O_DIRECTORY).unwrap();
    let size = || {
        let start = Start::File(dir.clone());
        attr::stat(&plain(), &c.view(), &start, b"f", Lookup::empty()).unwrap().size
    };
    for _ in 0..12 {
        assert_eq!(size(), 3);
    }
    fs::write(t.0.join("outer/d/f"), "longer").unwrap();
    assert_eq!(size(), 3, "nobody asked the host");
    let mut others = Others::new();
    others.run(&format!("cd {}; chmod 600 outer/d/f; chmod 711 outer/d", t.0.display()));
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert_eq!(size(), 6);
    assert_eq!(stat(&c, "/outer/d").unwrap().mode & 0o777, 0o711);
}

#[test]
fn names_of_a_watched_directory_are_known() {
    let t = Tmp::new("names");
    fs::create_dir(t.0.join("d")).unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Lagging);
    warm(&c, &["/d/absent"]);
    let make = |name: &str| drop(open(&c, name, libc::O_CREAT | libc::O_WRONLY).unwrap());
    make("/d/one");
    // A change by this process past the kernel shows whether the host or the cache answered.
    fs::write(t.0.join("d/unseen"), "").unwrap();
    assert_eq!(stat(&c, "/d/unseen").err(), Some(Errno::ENOENT));
    let names = || {
        let listed = listed(&c, "/d").unwrap();
        listed.iter().map(|e| e.split(':').next().unwrap().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(), "one");
    make("/d/two");
    rename::rename(&plain(), &c.view(), &Start::Cwd, b"/d/one", &Start::Cwd, b"/d/three", 0).unwrap();
    dir::mkdir(&plain(), &c.view(), &Start::Cwd, b"/d/four", 0o755).unwrap();
    link::link(&plain(), &c.view(), &Start::Cwd, b"/d/two", Lookup::empty(), &Start::Cwd, b"/d/five")
        .unwrap();
    link::unlink(&plain(), &c.view(), &Start::Cwd, b"/d/two").unwrap();
    assert_eq!(names(), "five four three");
    // Another case of letters may be the same name on such directories.
    assert!(stat(&c, "/d/UNSEEN").is_err());
    Others::new().run(&format!("cd {}; touch d/six", t.0.display()));
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert_eq!(names(), "five four six three unseen");
}

#[test]
fn a_new_file_has_times_and_links() {
    for coherence in [Coherence::Strict, Coherence::Lagging] {
        let t = Tmp::new("made");
        let c = tree(&HostFiles::new(&Arc::default()), &t.0, coherence);
        warm(&c, &["/absent"]);
        let link = |from: &str, to: &str| {
            let (from, to) = (from.as_bytes(), to.as_bytes());
            link::link(&plain(), &c.view(), &Start::Cwd, from, Lookup::empty(), &Start::Cwd, to)
        };
        let unlink = |name: &str| link::unlink(&plain(), &c.view(), &Start::Cwd, name.as_bytes());
        for i in 0..8 {
            let name = format!("/f{i}");
            let f = open(&c, &name, libc::O_CREAT | libc::O_RDWR).unwrap();
            let attr = f.attr().unwrap();
            assert_eq!((attr.mtime.sec, attr.mtime.nsec), there(&t.0, &name).map(|a| (a.3, a.4)).unwrap());
            assert_eq!(seen(&c, &name), there(&t.0, &name));
            io::write_at(&plain(), &f, b"text", 0).unwrap();
            assert_eq!(seen(&c, &name), there(&t.0, &name));
            // The next file may get the inode number of one that is still open.
            unlink(&name).unwrap();
        }
        drop(open(&c, "/one", libc::O_CREAT | libc::O_WRONLY).unwrap());
        link("/one", "/two").unwrap();
        unlink("/one").unwrap();
        assert_eq!(unlink("/one"), Err(Errno::ENOENT));
        assert_eq!(seen(&c, "/two"), there(&t.0, "/two"));
        link("/two", "/three").unwrap();
        Others::new().run(&format!("cd {}; rm two; mkdir two", t.0.display()));
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(unlink("/two"), Err(Errno::EISDIR));
        assert_eq!(link("/one", "/four"), Err(Errno::ENOENT));
        unlink("/three").unwrap();
        assert_eq!(listed(&c, "/"), listed_there(&t.0, "/"));
    }
}

#[test]
fn rights_that_we_set_are_known() {
    let t = Tmp::new("known-rights");
    fs::write(t.0.join("f"), "public").unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Lagging);
    let cx = user(12_345);
    (0..12).for_each(|_| opens(&c, &cx, "/f").unwrap());
    let f = open(&c, "/f", libc::O_RDWR).unwrap();
    // The user is in the file's group.
    for mode in [0o600, 0o640, 0o604, 0o4640, 0o2600, 0o755] {
        attr::fchmod(&plain(), &f, mode).unwrap();
        assert_eq!(opens(&c, &cx, "/f").is_ok(), mode & 0o040 != 0, "{mode:o}");
        io::write_at(&plain(), &f, b"more", 0).unwrap();
        assert_eq!(stat(&c, "/f").unwrap().mode & 0o7777, there(&t.0, "/f").unwrap().0 & 0o7777);
    }
    Others::new().run(&format!("cd {}; chmod 600 f", t.0.display()));
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert_eq!(opens(&c, &cx, "/f"), Err(Errno::EACCES));
    attr::fchown(&plain(), &f, 12_345, 12_345).unwrap();
    opens(&c, &cx, "/f").unwrap();
}

#[test]
fn a_file_that_was_open_is_opened_without_a_host_call() {
    let t = Tmp::new("warm");
    fs::write(t.0.join("f"), "one").unwrap();
    let home = HostFiles::new(&Arc::default());
    let c = tree(&home, &t.0, Coherence::Lagging);
    warm(&c, &["/f"]);
    // As above.
    fs::rename(t.0.join("f"), t.0.join("g")).unwrap();
    assert_eq!(text(&open(&c, "/f", 0).unwrap()), "one");
    assert!(home.release_idle());
    home.release_idle();
    assert!(open(&c, "/f", 0).is_err());
    fs::rename(t.0.join("g"), t.0.join("f")).unwrap();
    warm(&c, &["/f"]);
    let mut others = Others::new();
    others.run(&format!("cd {}; echo two > g; mv g f", t.0.display()));
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert_eq!(text(&open(&c, "/f", 0).unwrap()), "two\n");
    // An object that cannot be found any more is not kept.
    let links = |name: &str| {
        fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter(|fd| {
                fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| to.starts_with(t.0.join(name)))
            })
            .count()
    };
    assert_eq!(links("f"), 1);
    link::unlink(&plain(), &c.view(), &Start::Cwd, b"/f").unwrap();
    assert_eq!(links("f"), 0);
}

/// A caller without privileges and with this user ID.
fn user(uid: u32) -> TestCaller {
    let root = TestCaller::root();
    let mut creds = Credentials::root(&root.vfs.resources.user_ns, 0);
    (creds.uid, creds.euid, creds.suid, creds.fsuid) = (uid, uid, uid, uid);
    TestCaller { creds: Arc::new(creds), ..root }
}

fn opens(c: &FsContext, cx: &TestCaller, path: &str) -> Result<()> {
    let how = OpenHow::legacy(0, 0).expect("valid flags");
    open::open_at(cx, &c.view(), &Start::Cwd, path.as_bytes(), &how).map(drop).map_err(Failure::errno)
}

#[test]
fn rights_changed_by_another_name_count() {
    let t = Tmp::new("rights");
    fs::create_dir(t.0.join("elsewhere")).unwrap();
    fs::write(t.0.join("f"), "public").unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Strict);
    let cx = user(12_345);
    for _ in 0..12 {
        opens(&c, &cx, "/f").unwrap();
    }
    let mut others = Others::new();
    others.run(&format!("cd {}; ln f elsewhere/g; chmod 600 elsewhere/g", t.0.display()));
    assert_eq!(opens(&c, &cx, "/f"), Err(Errno::EACCES));
}

#[test]
fn rights_changed_by_way_of_another_tree_count() {
    for coherence in [Coherence::Strict, Coherence::Lagging] {
        let t = Tmp::new("trees");
        fs::create_dir_all(t.0.join("a")).unwrap();
        fs::create_dir_all(t.0.join("b")).unwrap();
        fs::write(t.0.join("a/f"), "public").unwrap();
        let home = HostFiles::new(&Arc::default());
        let (one, two) = (tree(&home, &t.0, coherence), tree(&home, &t.0, coherence));
        let by_two = open(&two, "/a/f", libc::O_RDWR).unwrap();
        rename::rename(&plain(), &one.view(), &Start::Cwd, b"/a/f", &Start::Cwd, b"/b/f", 0).unwrap();
        let cx = user(12_345);
        for _ in 0..12 {
            opens(&one, &cx, "/b/f").unwrap();
        }
        attr::fchmod(&plain(), &by_two, 0o600).unwrap();
        assert_eq!(opens(&one, &cx, "/b/f"), Err(Errno::EACCES), "{coherence:?}");
    }
}

#[test]
fn an_exchanged_name_gets_no_rights() {
    let t = Tmp::new("exchanged");
    fs::write(t.0.join("own"), "").unwrap();
    fs::write(t.0.join("victim"), "").unwrap();
    let c = tree(&HostFiles::new(&Arc::default()), &t.0, Coherence::Strict);
    warm(&c, &["/own", "/victim"]);
    let own = walk::lookup(&plain(), &c.view(), &Start::Cwd, b"/own", Lookup::FOLLOW).unwrap();
    let before = fs::metadata(t.0.join("victim")).unwrap();
    Others::new().run(&format!("cd {}; mv own x; mv victim own", t.0.display()));
    assert!(attr::chmod(&plain(), &own, 0o4777).is_err());
    let after = fs::metadata(t.0.join("own")).unwrap();
    assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
}

/// A small generator: the tests need no better one.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// One change of a random kind, as a command line.
fn change(random: &mut Random) -> String {
    let dirs = ["a", "b", "a/s", "b/s"];
    let name =
        |random: &mut Random| format!("{}/{}", dirs[random.below(4)], ["x", "y", "z"][random.below(3)]);
    let (one, two) = (name(random), name(random));
    match random.below(8) {
        0 => format!("echo {one} >> {one}"),
        1 => format!("rm -f {one}"),
        2 => format!("mv -T {one} {two}"),
        3 => format!("ln {one} {two}"),
        4 => format!("chmod {} {one}", [600, 644, 755][random.below(3)]),
        5 => format!("mv -T {} b/t; mv -T b/t a/s", dirs[2 + random.below(2)]),
        6 => "mkdir -p a/s b/s".to_string(),
        _ => format!("ln -sfn {one} {two}"),
    }
}

/// The same change by way of the tree; errors are as good as successes.
fn change_inside(c: &FsContext, random: &mut Random) {
    let dirs = ["/a", "/b", "/a/s", "/b/s"];
    let name =
        |random: &mut Random| format!("{}/{}", dirs[random.below(4)], ["x", "y", "z"][random.below(3)]);
    let (one, two) = (name(random), name(random));
    let (cx, view) = (plain(), c.view());
    match random.below(8) {
        0 => {
            if let Ok(f) = open(c, &one, libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW) {
                let _ = io::write_at(&cx, &f, one.as_bytes(), 0);
            }
        }
        1 => drop(link::unlink(&cx, &view, &Start::Cwd, one.as_bytes())),
        2 => drop(rename::rename(&cx, &view, &Start::Cwd, one.as_bytes(), &Start::Cwd, two.as_bytes(), 0)),
        3 => {
            let to = &Start::Cwd;
            let _ = link::link(&cx, &view, to, one.as_bytes(), Lookup::empty(), to, two.as_bytes());
        }
        4 => {
            if let Ok(p) = walk::lookup(&cx, &view, &Start::Cwd, one.as_bytes(), Lookup::FOLLOW) {
                let _ = attr::chmod(&cx, &p, [0o600, 0o644, 0o755][random.below(3)]);
            }
        }
        5 => drop(rename::rename(&cx, &view, &Start::Cwd, b"/a/s", &Start::Cwd, b"/b/s", 0)),
        6 => drop(dir::mkdir(&cx, &view, &Start::Cwd, b"/a/s", 0o755)),
        _ => drop(dir::symlink(&cx, &view, b"x", &Start::Cwd, one.as_bytes())),
    }
}

/// Others, and some trees of one directory, change it at random; after each change all of it is compared with the directory.
fn model(name: &str, trees: usize, rounds: usize) {
    let t = Tmp::new(name);
    fs::create_dir_all(t.0.join("a/s")).unwrap();
    fs::create_dir_all(t.0.join("b/s")).unwrap();
    let home = HostFiles::new(&Arc::default());
    let trees: Vec<_> = (0..trees).map(|_| tree(&home, &t.0, Coherence::Strict)).collect();
    let mut others = Others::new();
    others.run(&format!("cd {}", t.0.display()));
    let mut random = Random(std::process::id().into());
    for round in 0..rounds {
        match random.below(trees.len() + 1) {
            0 => others.run(&change(&mut random)),
            tree => change_inside(&trees[tree - 1], &mut random),
        }
        for (i, tree) in trees.iter().enumerate() {
            for dir in ["/a", "/b", "/a/s", "/b/s"] {
                assert_eq!(listed(tree, dir), listed_there(&t.0, dir), "{dir} of tree {i}, round {round}");
            }
        }
        for dir in ["/a", "/b", "/a/s", "/b/s"] {
            for name in ["", "/x", "/y", "/z"] {
                let path = format!("{dir}{name}");
                for (i, tree) in trees.iter().enumerate() {
                    assert_eq!(seen(tree, &path), there(&t.0, &path), "{path} in tree {i}, round {round}");
                }
            }
        }
    }
}

#[test]
fn one_tree_and_others_agree() {
    model("alone", 1, 2000);
}

#[test]
fn two_trees_and_others_agree() {
    model("both", 2, 1000);
}
