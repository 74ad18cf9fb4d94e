//! Every operation, and its errors.

use super::*;
use abi::stat::{S_IFIFO, S_IFREG, S_IFSOCK};
use abi::time::Timespec;
use fileproto::{Changes, Entry, Found, Kind, SetTime, Source, VERSION};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

#[test]
fn a_connection_begins_with_the_root() {
    let tree = Tree::new();
    let Reply::Attached { version, root, attr, statfs } = tree.ask(Request::Attach { version: VERSION })
    else {
        panic!()
    };
    assert_eq!((version, root, attr.ino), (VERSION, ROOT, fs::metadata(tree.path("")).unwrap().ino()));
    assert!(statfs.f_namelen > 0 && tree.ask(Request::StatFs { dir: ROOT }) != Reply::Done);
    assert_eq!(tree.fails(Request::Attach { version: 2 }), libc::EPROTONOSUPPORT);
    assert_eq!(tree.attr(Request::Stat { dir: ROOT }).ino, attr.ino);
}

#[test]
fn walks_tell_attributes_as_far_as_they_come() {
    let tree = Tree::new();
    let (attrs, errno, handle) = tree.walk(ROOT, "a/b/c", false);
    assert_eq!((attrs.len(), errno, handle), (3, 0, 0));
    assert_eq!(attrs[1].ino, fs::metadata(tree.path("a/b")).unwrap().ino());
    let (attrs, errno, handle) = tree.walk(ROOT, "a/b", true);
    assert_eq!((attrs.len(), errno), (2, 0));
    assert_eq!(tree.attr(Request::Stat { dir: handle }), attrs[1]);
    assert_eq!(tree.walk(handle, "c", false).0.len(), 1);
    for (path, there, error) in [
        ("none", 0, libc::ENOENT),
        ("a/none/c", 1, libc::ENOENT),
        ("a/file/x", 2, libc::ENOTDIR),
        ("link/b", 1, libc::ENOTDIR),
        ("out/secret", 1, libc::ENOTDIR),
        ("a/file", 2, 0),
        ("link", 1, 0),
    ] {
        for keep in [false, true] {
            let (attrs, errno, handle) = tree.walk(ROOT, path, keep);
            assert_eq!((attrs.len(), errno, handle), (there, error, 0), "{path}");
        }
    }
    assert!(tree.walk(ROOT, "link", true).0[0].is_symlink());
    assert_eq!(tree.fails(Request::Walk { dir: 99, path: b"a", keep: false }), libc::EBADF);
    assert_eq!(tree.fails(Request::Stat { dir: 0 }), libc::EBADF);
    assert_eq!(tree.ask(Request::Close { handles: vec![handle, 99, ROOT] }), Reply::Done);
    assert_eq!(tree.fails(Request::Stat { dir: handle }), libc::EBADF);
    assert_eq!(tree.attr(Request::Stat { dir: ROOT }).mode & 0o170000, 0o040000);
}

#[test]
fn several_names_at_once() {
    let tree = Tree::new();
    fs::write(tree.path("file"), "12345").unwrap();
    let names = vec![&b"file"[..], b"none", b"a", b"out"];
    for places in [false, true] {
        let request = Request::Look { dir: ROOT, places, names: names.clone() };
        let (Reply::Looked(found), fds) = tree.send_all(&request, None) else { panic!() };
        let [
            Found::Object { attr: file, placed },
            Found::Failed(libc::ENOENT),
            Found::Object { attr: dir, placed: false },
            Found::Object { attr: link, placed: false },
        ] = found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((file.size, placed, fds.len()), (5, places, usize::from(places)));
        assert!(dir.is_dir() && link.is_symlink());
        for fd in fds {
            assert_eq!(hostsys::fs::stat(&fd).unwrap(), file);
            assert_eq!(File::from(fd).read(&mut [0]).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }
    assert_eq!(tree.fails(Request::Look { dir: 99, places: true, names }), libc::EBADF);
}

#[test]
fn objects_are_opened_by_their_type() {
    let tree = Tree::new();
    let dir = tree.handle("a");
    let file = |access| Request::Open { dir, name: b"file", access };
    let (attr, fd) = tree.opened(file(Access::Read));
    assert_eq!((attr.size, attr.file_type()), (7, S_IFREG));
    let mut text = String::new();
    File::from(fd).read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    File::from(tree.opened(file(Access::Write)).1).write_all(b"C").unwrap();
    File::from(tree.opened(file(Access::ReadWrite)).1).write_all_at(b"T", 6).unwrap();
    assert_eq!(fs::read_to_string(tree.path("a/file")).unwrap(), "ContenT");
    for (name, access, errno) in [
        ("a", Access::Read, libc::EISDIR),
        ("a", Access::Write, libc::EISDIR),
        ("link", Access::Read, libc::ELOOP),
        ("none", Access::Read, libc::ENOENT),
        ("none", Access::Place, libc::ENOENT),
    ] {
        assert_eq!(tree.fails(open(name, access)), errno, "{name} {access:?}");
    }
    assert!([libc::ENOTDIR, libc::ELOOP].contains(&tree.fails(open("link", Access::Directory))));
    assert_eq!(tree.fails(file(Access::Directory)), libc::ENOTDIR);
    assert!(tree.opened(open("link", Access::Place)).0.is_symlink());
    assert!(tree.opened(open("a", Access::Directory)).0.is_dir());
    let (attr, fd) = tree.opened(Request::OpenDirectory { dir });
    assert!(attr.is_dir());
    File::from(fd).sync_all().unwrap();
}

#[test]
fn fifos_are_opened_where_that_was_asked_for() {
    for fifos in [false, true] {
        let tree = Tree::with(Options { fifos, readonly: false });
        let make = |name, kind| Request::Make { dir: ROOT, name, kind, rights: rights(0o640) };
        let attr = tree.attr(make(b"fifo", Kind::Fifo));
        assert_eq!((attr.file_type(), attr.mode & 0o7777), (S_IFIFO, 0o640));
        assert_eq!(tree.attr(make(b"socket", Kind::Socket)).file_type(), S_IFSOCK);
        assert_eq!(tree.fails(make(b"fifo", Kind::Fifo)), libc::EEXIST);
        for access in [Access::Read, Access::ReadWrite, Access::Write] {
            assert_eq!(tree.fails(open("socket", access)), libc::ENXIO);
            if fifos && access != Access::Write {
                assert_eq!(tree.opened(open("fifo", access)).0.file_type(), S_IFIFO);
            } else {
                // For writing because of the missing reader.
                assert_eq!(tree.fails(open("fifo", access)), libc::ENXIO);
            }
        }
        assert_eq!(tree.opened(open("fifo", Access::Place)).0.file_type(), S_IFIFO);
        let target = tree.named("fifo");
        assert_eq!(tree.fails(Request::ListXattr { target }), libc::EOPNOTSUPP);
        // As overlayfs needs it; not every host lets the user of the tests.
        match tree.ask(make(b"gone", Kind::Whiteout)) {
            Reply::Attr(attr) => {
                assert_eq!((attr.mode & 0o170000, attr.rdev), (libc::S_IFCHR, 0));
                assert_eq!(tree.fails(open("gone", Access::Read)), libc::ENXIO);
            }
            other => assert_eq!(other, Reply::Failed(libc::EPERM)),
        }
    }
}

#[test]
fn objects_are_made() {
    let tree = Tree::new();
    let create = |mode| Request::Create { dir: ROOT, name: b"new", rights: rights(mode) };
    let (attr, fd) = tree.opened(create(0o4707));
    assert_eq!(attr.mode, libc::S_IFREG | 0o4707);
    let mut file = File::from(fd);
    file.write_all(b"x").unwrap();
    file.rewind().unwrap();
    assert_eq!(file.read(&mut [0; 4]).unwrap(), 1);
    assert_eq!(tree.fails(create(0o600)), libc::EEXIST);
    for mode in [0o1777, 0] {
        let name: &[u8] = if mode == 0 { b"closed" } else { b"dir" };
        let made = tree.attr(Request::Make { dir: ROOT, name, kind: Kind::Directory, rights: rights(mode) });
        assert_eq!(made.mode, libc::S_IFDIR | mode);
    }
    let link = Kind::Symlink(b"../outside/secret");
    let made = tree.attr(Request::Make { dir: ROOT, name: b"l", kind: link, rights: rights(0o777) });
    assert!(made.is_symlink());
    let Reply::Link { attr, text } = tree.ask(Request::ReadLink { dir: ROOT, name: b"l" }) else { panic!() };
    assert_eq!((attr, &text[..]), (made, &b"../outside/secret"[..]));
    assert_eq!(tree.fails(Request::ReadLink { dir: ROOT, name: b"a" }), libc::EINVAL);
    assert_eq!(tree.fails(Request::ReadLink { dir: ROOT, name: b"none" }), libc::ENOENT);
    // A dangling link is in the way as any other name.
    assert_eq!(tree.fails(Request::Create { dir: ROOT, name: b"l", rights: rights(0o600) }), libc::EEXIST);
    if fs::metadata(tree.path("")).unwrap().uid() == 0 {
        let owned = Rights { mode: 0o600, uid: 12, gid: 34 };
        let (attr, _) = tree.opened(Request::Create { dir: ROOT, name: b"owned", rights: owned });
        assert_eq!((attr.uid, attr.gid, attr.mode & 0o7777), (12, 34, 0o600));
        let kind = Kind::Symlink(b"x");
        let attr = tree.attr(Request::Make { dir: ROOT, name: b"ownedlink", kind, rights: owned });
        assert_eq!((attr.uid, attr.gid), (12, 34));
    }
}

#[test]
fn names_are_made_and_removed() {
    let tree = Tree::new();
    let dir = tree.handle("a");
    let link = |from, name| Request::Link { from, dir: ROOT, name };
    let file = Source::Named { dir, name: b"file" };
    assert_eq!(tree.ask(link(file, b"second")), Reply::Done);
    assert_eq!(tree.fails(link(file, b"second")), libc::EEXIST);
    assert_eq!(fs::metadata(tree.path("second")).unwrap().nlink(), 2);
    assert_eq!(tree.ask(link(Source::Named { dir: ROOT, name: b"out" }, b"out2")), Reply::Done);
    assert!(fs::symlink_metadata(tree.path("out2")).unwrap().is_symlink());
    assert_eq!(tree.fails(link(Source::Named { dir: ROOT, name: b"a" }, b"x")), libc::EPERM);
    assert_eq!(tree.fails(link(Source::Descriptor, b"x")), libc::EBADF);
    let null = File::open("/dev/null").unwrap();
    let (reply, _) = tree.send(&link(Source::Descriptor, b"x"), Some(null.into()));
    assert_eq!(reply, Reply::Failed(libc::EINVAL));
    if let (Reply::Opened(_), Some(fd)) =
        tree.send(&Request::CreateUnnamed { dir: ROOT, rights: rights(0o640) }, None)
    {
        File::from(fd.try_clone().unwrap()).write_all(b"unnamed").unwrap();
        match tree.send(&link(Source::Descriptor, b"named"), Some(fd)).0 {
            Reply::Done => assert_eq!(fs::read(tree.path("named")).unwrap(), b"unnamed"),
            // Linux before 6.10 without CAP_DAC_READ_SEARCH.
            other => assert_eq!(other, Reply::Failed(libc::ENOENT)),
        }
    }
    let unlink = |name, directory| Request::Unlink { dir: ROOT, name, directory };
    assert_eq!(tree.fails(unlink(b"a", false)), libc::EISDIR);
    assert_eq!(tree.fails(unlink(b"a", true)), libc::ENOTEMPTY);
    assert_eq!(tree.fails(unlink(b"second", true)), libc::ENOTDIR);
    assert_eq!(tree.fails(unlink(b"none", false)), libc::ENOENT);
    assert_eq!(tree.ask(unlink(b"out2", false)), Reply::Done);
    assert_eq!(tree.ask(unlink(b"second", false)), Reply::Done);
    assert!(!tree.path("second").exists() && tree.path("a/file").exists());
}

#[test]
fn objects_are_renamed() {
    let tree = Tree::new();
    let dir = tree.handle("a");
    let rename = |from: &'static [u8], to: &'static [u8], flags| Request::Rename {
        from_dir: dir,
        from,
        to_dir: ROOT,
        to,
        flags,
    };
    assert_eq!(tree.ask(rename(b"file", b"moved", 0)), Reply::Done);
    assert_eq!(tree.fails(rename(b"file", b"moved", 0)), libc::ENOENT);
    assert_eq!(tree.fails(rename(b"b", b"moved", libc::RENAME_NOREPLACE)), libc::EEXIST);
    assert_eq!(tree.fails(rename(b"b", b"moved", 0)), libc::ENOTDIR);
    assert_eq!(tree.ask(rename(b"b", b"moved", libc::RENAME_EXCHANGE)), Reply::Done);
    assert!(tree.path("moved/c").is_dir() && tree.path("a/b").is_file());
    assert_eq!(tree.fails(rename(b"b", b"moved", 1 << 30)), libc::EINVAL);
    let into = Request::Rename { from_dir: ROOT, from: b"a", to_dir: dir, to: b"x", flags: 0 };
    assert_eq!(tree.fails(into), libc::EINVAL);
    // A handle stands for its directory wherever that is.
    fs::rename(tree.path("a"), tree.path("z")).unwrap();
    assert_eq!(tree.walk(dir, "b", false).1, 0);
}

#[test]
fn names_stay_on_their_file_system() {
    let tree = Tree::new();
    let shm = Path::new("/dev/shm");
    let Ok(other) = fs::metadata(shm) else { return };
    if other.dev() == fs::metadata(&tree.dir).unwrap().dev() {
        return;
    }
    let all = Tree {
        dir: tree.path("none"),
        connection: Arc::new(Connection::new(place(Path::new("/")), Options::default(), None)),
    };
    let path = tree.path("a");
    let from_dir = all.handle(path.strip_prefix("/").unwrap().to_str().unwrap());
    let to_dir = all.handle("dev/shm");
    let to = b"gofer-files";
    assert_eq!(all.fails(Request::Rename { from_dir, from: b"file", to_dir, to, flags: 0 }), libc::EXDEV);
    let from = Source::Named { dir: from_dir, name: b"file" };
    assert_eq!(all.fails(Request::Link { from, dir: to_dir, name: to }), libc::EXDEV);
}

#[test]
fn directories_are_listed_piece_by_piece() {
    let tree = Tree::new();
    let dir = tree.handle("a/b");
    let count = 3000;
    for n in 0..count {
        let name = format!("a/b/{n}-{}", "x".repeat(n % 200));
        fs::write(tree.path(&name), "").unwrap();
    }
    for (attributes, restart) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut names, mut cookie, mut pieces) = (Vec::new(), 0, 0);
        loop {
            if restart {
                tree.connection.listings().clear();
            }
            let Reply::Entries { next, entries } = tree.ask(Request::List { dir, cookie, attributes }) else {
                panic!()
            };
            for Entry { ino, kind, name, attr } in entries {
                assert_eq!(attr.is_some(), attributes);
                let file = name != b"c";
                assert_eq!(kind, if file { libc::DT_REG } else { libc::DT_DIR });
                assert!(attr.is_none_or(|attr| attr.ino == ino && attr.is_dir() != file));
                names.push(name);
            }
            pieces += 1;
            cookie = next;
            if next == 0 {
                break;
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count + 1);
        assert!(pieces > 3, "{pieces}");
        assert!(tree.connection.listings().is_empty());
    }
    let small = tree.handle("a/b/c");
    let none = Reply::Entries { next: 0, entries: Vec::new() };
    assert_eq!(tree.ask(Request::List { dir: small, cookie: 0, attributes: true }), none);
    // Listings that are left alone are let go of.
    for _ in 0..3 * MAX_LISTINGS {
        assert_ne!(tree.ask(Request::List { dir, cookie: 0, attributes: true }), none);
    }
    assert_eq!(tree.connection.listings().len(), MAX_LISTINGS);
    tree.ask(Request::Close { handles: vec![dir] });
    assert!(tree.connection.listings().is_empty());
    let gone = tree.handle("a/b/c");
    fs::remove_dir(tree.path("a/b/c")).unwrap();
    assert_eq!(tree.fails(Request::List { dir: gone, cookie: 0, attributes: true }), libc::ENOENT);
}

#[test]
fn removal_while_listing_misses_nothing() {
    let tree = Tree::new();
    let dir = tree.handle("a/b/c");
    for n in 0..5000 {
        fs::write(tree.path(&format!("a/b/c/{n:064}")), "").unwrap();
    }
    let (mut cookie, mut removed) = (0, 0);
    loop {
        let Reply::Entries { next, entries } = tree.ask(Request::List { dir, cookie, attributes: false })
        else {
            panic!()
        };
        for Entry { name, .. } in entries {
            assert_eq!(tree.ask(Request::Unlink { dir, name: &name, directory: false }), Reply::Done);
            removed += 1;
        }
        cookie = next;
        if next == 0 {
            break;
        }
    }
    assert_eq!(removed, 5000);
}

#[test]
fn attributes_are_set() {
    let tree = Tree::new();
    fs::write(tree.path("file"), "content").unwrap();
    let at = Timespec { sec: 1_000_000, nsec: 5 };
    let all = Changes {
        mode: Some(0o604),
        size: Some(3),
        atime: SetTime::At(at),
        mtime: SetTime::At(at),
        ..Changes::default()
    };
    let set = |target, changes| Request::SetAttr { target, changes };
    let attr = tree.attr(set(tree.named("file"), all));
    assert_eq!((attr.mode & 0o7777, attr.size, attr.atime, attr.mtime), (0o604, 3, at, at));
    let now = Changes { mtime: SetTime::Now, ..Changes::default() };
    let attr = tree.attr(set(tree.named("file"), now));
    assert!(attr.mtime > at && attr.atime == at);
    // By the descriptor of the message.
    let file = || OwnedFd::from(File::options().write(true).read(true).open(tree.path("file")).unwrap());
    let (Reply::Attr(attr), None) = tree.send(&set(Target::Descriptor, all), Some(file())) else { panic!() };
    assert_eq!((attr.size, attr.mtime), (3, at));
    assert_eq!(tree.fails(set(Target::Descriptor, all)), libc::EBADF);
    let (_, place) = tree.opened(open("file", Access::Place));
    assert_eq!(tree.send(&set(Target::Descriptor, all), Some(place)).0, Reply::Failed(libc::EBADF));
    let null = OwnedFd::from(File::open("/dev/null").unwrap());
    assert_eq!(tree.send(&set(Target::Descriptor, all), Some(null)).0, Reply::Failed(libc::EINVAL));
    // Other files that the sentry has open.
    for other in [hostsys::fs::memfd("other").unwrap(), File::open("/proc/self/status").unwrap().into()] {
        assert_eq!(tree.send(&set(Target::Descriptor, all), Some(other)).0, Reply::Failed(libc::EINVAL));
    }
    // Directories.
    let dir = tree.handle("a");
    let mode = Changes { mode: Some(0o711), atime: SetTime::At(at), ..Changes::default() };
    for target in [Target::Directory(dir), tree.named("a")] {
        fs::set_permissions(tree.path("a"), fs::Permissions::from_mode(0o755)).unwrap();
        let attr = tree.attr(set(target, mode));
        assert_eq!((attr.mode & 0o7777, attr.atime), (0o711, at));
        assert_eq!(tree.fails(set(target, Changes { size: Some(0), ..mode })), libc::EISDIR);
    }
    // Links have no mode and no size, and those of what they lead to stay.
    let times = Changes { mtime: SetTime::At(at), ..Changes::default() };
    assert_eq!(tree.attr(set(tree.named("link"), times)).mtime, at);
    assert_eq!(tree.fails(set(tree.named("link"), mode)), libc::EOPNOTSUPP);
    assert_eq!(tree.fails(set(tree.named("link"), Changes { size: Some(0), ..times })), libc::EINVAL);
    assert_ne!(tree.walk(ROOT, "a", false).0[0].mtime, at);
    // Another object than expected.
    let Target::Named { key, .. } = tree.named("a") else { panic!() };
    let other = Target::Named { dir: ROOT, name: b"file", key };
    assert_eq!(tree.fails(set(other, times)), libc::ESTALE);
    assert_eq!(tree.fails(Request::ListXattr { target: other }), libc::ESTALE);
    let none = Target::Named { dir: ROOT, name: b"none", key };
    assert_eq!(tree.fails(set(none, times)), libc::ENOENT);
    if attr.uid == 0 {
        let owner = Changes { uid: Some(5), gid: Some(6), ..Changes::default() };
        for name in ["file", "a", "link"] {
            let attr = tree.attr(set(tree.named(name), owner));
            assert_eq!((attr.uid, attr.gid), (5, 6));
        }
        let owner = Changes { uid: Some(7), gid: Some(u32::MAX), ..Changes::default() };
        let attr = tree.attr(set(tree.named("file"), owner));
        assert_eq!((attr.uid, attr.gid), (7, 6));
    }
}

#[test]
fn extended_attributes_are_those_that_have_no_other_meaning() {
    let tree = Tree::new();
    fs::write(tree.path("file"), "").unwrap();
    let set = |target, name, value, flags| Request::SetXattr { target, name, value, flags };
    let file = tree.named("file");
    if tree.ask(set(file, b"user.a", b"1", 0)) == Reply::Failed(libc::EOPNOTSUPP) {
        return;
    }
    let create = libc::XATTR_CREATE as u32;
    assert_eq!(tree.fails(set(file, b"user.a", b"1", create)), libc::EEXIST);
    assert_eq!(tree.fails(set(file, b"user.a", b"1", u32::MAX)), libc::EINVAL);
    assert_eq!(tree.ask(Request::GetXattr { target: file, name: b"user.a" }), Reply::Bytes(b"1".to_vec()));
    let dir = Target::Directory(tree.handle("a"));
    for target in [file, dir, tree.named("a")] {
        tree.ask(set(target, b"user.b", &[7; 100], 0));
        let value = Reply::Bytes(vec![7; 100]);
        assert_eq!(tree.ask(Request::GetXattr { target, name: b"user.b" }), value);
        for (name, errno) in [
            (&b"trusted.x"[..], libc::EPERM),
            (b"security.selinux", libc::EPERM),
            (b"system.other", libc::EOPNOTSUPP),
            (b"odd", libc::EPERM),
        ] {
            assert_eq!(tree.fails(set(target, name, b"x", 0)), errno);
            assert_eq!(tree.fails(Request::RemoveXattr { target, name }), errno);
        }
    }
    let Reply::Bytes(names) = tree.ask(Request::ListXattr { target: file }) else { panic!() };
    let mut names: Vec<_> = names.split(|c| *c == 0).filter(|name| name.starts_with(b"user.")).collect();
    names.sort();
    assert_eq!(names, [b"user.a", b"user.b"]);
    assert_eq!(tree.ask(Request::RemoveXattr { target: file, name: b"user.a" }), Reply::Done);
    assert_eq!(tree.fails(Request::GetXattr { target: file, name: b"user.a" }), libc::ENODATA);
    let (_, fd) = tree.opened(open("file", Access::Read));
    let get = Request::GetXattr { target: Target::Descriptor, name: b"user.b" };
    assert_eq!(tree.send(&get, Some(fd)).0, Reply::Bytes(vec![7; 100]));
    assert_eq!(tree.fails(Request::ListXattr { target: tree.named("link") }), libc::EOPNOTSUPP);
    // Version 2; user, group and others, each with an ID of -1.
    let entry = |tag: u16, bits: u16| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &[255; 4]].concat();
    let acl = [&2u32.to_le_bytes()[..], &entry(1, 6), &entry(4, 4), &entry(32, 0)].concat();
    let acl = tree.ask(set(file, b"system.posix_acl_access", &acl, 0));
    assert!([Reply::Done, Reply::Failed(libc::EOPNOTSUPP)].contains(&acl));
}

#[test]
fn objects_are_marked_in_the_senders_group() {
    use hostsys::fanotify::{MASK, Report, Reports};
    let tree = Tree::new();
    let Ok(reports) = Reports::new() else { return };
    let group = || Some(reports.as_fd().try_clone_to_owned().unwrap());
    let target = Target::Directory(tree.handle("a"));
    let mark = |mask, remove| Request::Mark { target, mask, remove };
    let handle = match tree.send(&mark(MASK, false), group()).0 {
        Reply::Bytes(handle) => handle,
        other => return assert!(matches!(other, Reply::Failed(_)), "{other:?}"),
    };
    assert!((17..=fileproto::MAX_FILE_HANDLE).contains(&handle.len()));
    fs::write(tree.path("a/new"), "x").unwrap();
    let mut told = Vec::new();
    let mut reports_told = |report: Report<'_>| {
        if let Report::Event { entry: Some((dir, name)), .. } = report {
            told.push((dir.to_vec(), name.to_vec()));
        }
    };
    reports.read(&mut Vec::new(), &mut reports_told);
    assert!(told.contains(&(handle, b"new".to_vec())), "{told:?}");
    assert!(matches!(tree.send(&mark(MASK, true), group()).0, Reply::Bytes(_)));
    let failed = Reply::Failed;
    assert_eq!(tree.send(&mark(MASK | libc::FAN_OPEN_PERM, false), group()).0, failed(libc::EINVAL));
    assert_eq!(tree.send(&mark(0, false), group()).0, failed(libc::EINVAL));
    assert_eq!(tree.send(&mark(MASK, false), None).0, failed(libc::EBADF));
    let file = OwnedFd::from(File::open(tree.path("a/new")).unwrap());
    assert_eq!(tree.send(&mark(MASK, false), Some(file)).0, failed(libc::EINVAL));
    let own = Request::Mark { target: Target::Descriptor, mask: MASK, remove: false };
    assert_eq!(tree.send(&own, group()).0, failed(libc::EINVAL));
    let link = Request::Mark { target: tree.named("link"), mask: MASK, remove: false };
    assert_eq!(tree.send(&link, group()).0, failed(libc::EOPNOTSUPP));
}

#[test]
fn a_tree_that_is_read_only_is_not_changed() {
    let tree = Tree::with(Options { fifos: false, readonly: true });
    fs::write(tree.path("file"), "x").unwrap();
    let target = tree.named("file");
    let changes = Changes { mode: Some(0), ..Changes::default() };
    for request in [
        open("file", Access::Write),
        open("file", Access::ReadWrite),
        Request::Create { dir: ROOT, name: b"n", rights: rights(0o600) },
        Request::CreateUnnamed { dir: ROOT, rights: rights(0o600) },
        Request::Make { dir: ROOT, name: b"n", kind: Kind::Directory, rights: rights(0o700) },
        Request::Link { from: Source::Named { dir: ROOT, name: b"file" }, dir: ROOT, name: b"n" },
        Request::Unlink { dir: ROOT, name: b"file", directory: false },
        Request::Rename { from_dir: ROOT, from: b"file", to_dir: ROOT, to: b"n", flags: 0 },
        Request::SetAttr { target, changes },
        Request::SetXattr { target, name: b"user.x", value: b"", flags: 0 },
        Request::RemoveXattr { target, name: b"user.x" },
    ] {
        assert_eq!(tree.fails(request), libc::EROFS);
    }
    tree.opened(open("file", Access::Read));
}
