//! Requests and neighbours that mean harm.

use super::*;
use fileproto::{Changes, Kind, MAX_COMPONENTS, SetTime, Source};
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::{Duration, Instant};

/// One request of every kind, and how it is answered.
pub(super) fn everything(ask: impl Fn(Request<'_>, Option<OwnedFd>) -> (Reply, Option<OwnedFd>)) {
    let make = |name, kind| Request::Make { dir: ROOT, name, kind, rights: rights(0o1753) };
    let Reply::Walked { attrs, handle, .. } =
        ask(Request::Walk { dir: ROOT, path: b"a", keep: true }, None).0
    else {
        panic!()
    };
    let key = Key { dev: attrs[0].dev, ino: attrs[0].ino };
    let named = Target::Named { dir: ROOT, name: b"a", key };
    let changes = Changes { mode: Some(0o755), atime: SetTime::Now, ..Changes::default() };
    let owner = Changes { uid: Some(attrs[0].uid), gid: Some(attrs[0].gid), ..Changes::default() };
    ask(Request::Create { dir: ROOT, name: b"made", rights: rights(0o4600) }, None);
    for kind in [Kind::Directory, Kind::Fifo, Kind::Socket, Kind::Whiteout, Kind::Symlink(b"x")] {
        ask(make(b"other", kind), None);
        ask(open("other", Access::Read), None);
        ask(Request::ReadLink { dir: ROOT, name: b"other" }, None);
        ask(Request::Unlink { dir: ROOT, name: b"other", directory: kind == Kind::Directory }, None);
    }
    let file = || ask(open("made", Access::ReadWrite), None).1;
    for target in [named, Target::Directory(handle), Target::Descriptor] {
        let size = Changes { size: Some(5), ..Changes::default() };
        for changes in [changes, owner, size] {
            let reply = ask(Request::SetAttr { target, changes }, file()).0;
            assert!(matches!(reply, Reply::Attr(_) | Reply::Failed(libc::EISDIR)), "{reply:?}");
        }
        ask(Request::SetXattr { target, name: b"user.x", value: b"x", flags: 0 }, file());
        ask(Request::GetXattr { target, name: b"user.x" }, file());
        ask(Request::ListXattr { target }, file());
        ask(Request::RemoveXattr { target, name: b"user.x" }, file());
        let group = hostsys::fanotify::Reports::new().ok();
        let group = group.and_then(|group| group.as_fd().try_clone_to_owned().ok());
        ask(Request::Mark { target, mask: hostsys::fanotify::MASK, remove: false }, group);
    }
    for access in [Access::Place, Access::Read, Access::Write, Access::ReadWrite, Access::Directory] {
        ask(open("made", access), None);
    }
    let made = file().and_then(|fd| hostsys::fs::identity(fd).ok()).expect("it was made");
    let target = Target::Named { dir: ROOT, name: b"made", key: Key { dev: made.dev, ino: made.ino } };
    ask(Request::SetAttr { target, changes: Changes { size: Some(9), ..changes } }, None);
    ask(Request::ListXattr { target }, None);
    let unnamed = ask(Request::CreateUnnamed { dir: ROOT, rights: rights(0o600) }, None).1;
    ask(Request::Link { from: Source::Descriptor, dir: ROOT, name: b"named" }, unnamed);
    for name in [&b"named"[..], b"second"] {
        ask(Request::Unlink { dir: ROOT, name, directory: false }, None);
    }
    for request in [
        Request::Attach { version: 1 },
        Request::Walk { dir: ROOT, path: b"a/b", keep: false },
        Request::Stat { dir: handle },
        Request::StatFs { dir: ROOT },
        Request::OpenDirectory { dir: handle },
        Request::Link { from: Source::Named { dir: ROOT, name: b"made" }, dir: ROOT, name: b"second" },
        Request::Rename { from_dir: ROOT, from: b"second", to_dir: handle, to: b"third", flags: 0 },
        Request::List { dir: ROOT, cookie: 0, attributes: true },
        Request::List { dir: ROOT, cookie: 1, attributes: false },
        Request::Unlink { dir: handle, name: b"third", directory: false },
        Request::SetAttr { target: Target::Named { dir: handle, name: b"none", key }, changes },
        Request::Close { handles: vec![handle] },
    ] {
        ask(request, None);
    }
}

#[test]
fn every_request_is_answered() {
    let tree = Tree::new();
    everything(|request, descriptor| tree.send(&request, descriptor));
}

#[test]
fn names_that_are_none_end_the_connection() {
    let tree = Tree::new();
    for name in [&b".."[..], b".", b"", b"a/b", b"/", b"../outside", b"a\0"] {
        let request = Request::Open { dir: ROOT, name, access: Access::Read };
        assert!(tree.connection.answer(&request.encode(1), None).is_none());
        let request = Request::Walk { dir: ROOT, path: &[name, b"/.."].concat(), keep: true };
        assert!(tree.connection.answer(&request.encode(1), None).is_none());
    }
    let deep = vec!["a"; MAX_COMPONENTS].join("/");
    assert_eq!(tree.walk(ROOT, &deep, true).1, libc::ENOENT);
    assert!(tree.connection.answer(b"", None).is_none());
}

/// A program beside exchanges a directory with a link to a directory outside, while walks and other requests go
/// through its name: none of them reaches what is outside.
#[test]
fn a_racer_leads_nothing_outside() {
    let tree = Tree::new();
    fs::create_dir(tree.path("swap")).unwrap();
    fs::write(tree.path("swap/secret"), "inside!!").unwrap();
    symlink("../outside", tree.path("trap")).unwrap();
    let outside = fs::metadata(tree.dir.join("outside")).unwrap().ino();
    let secret = fs::metadata(tree.dir.join("outside/secret")).unwrap().ino();
    let root = place(&tree.path(""));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                hostsys::fs::rename_at(&root, b"swap", &root, b"trap", libc::RENAME_EXCHANGE).unwrap();
            }
        });
        let (mut came, mut refused) = (0, 0);
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            let (attrs, errno, handle) = tree.walk(ROOT, "swap/secret", false);
            assert!(attrs.iter().all(|attr| ![outside, secret].contains(&attr.ino)), "{attrs:?}");
            assert!([0, libc::ENOTDIR].contains(&errno) && handle == 0);
            let (_, _, handle) = tree.walk(ROOT, "swap", true);
            if handle == 0 {
                refused += 1;
                continue;
            }
            came += 1;
            let (reply, fd) =
                tree.send(&Request::Open { dir: handle, name: b"secret", access: Access::Read }, None);
            assert!(
                matches!(reply, Reply::Opened(attr) if attr.ino != secret && attr.size == 8),
                "{reply:?}"
            );
            drop(fd);
            if let Reply::Opened(attr) = tree.send(&open("swap", Access::Directory), None).0 {
                assert_ne!(attr.ino, outside);
            }
            let changes = Changes { mode: Some(0o700), ..Changes::default() };
            let attr = tree.walk(ROOT, "swap", false).0[0];
            let target =
                Target::Named { dir: ROOT, name: b"swap", key: Key { dev: attr.dev, ino: attr.ino } };
            match tree.ask(Request::SetAttr { target, changes }) {
                Reply::Attr(attr) => assert_ne!(attr.ino, outside),
                other => {
                    assert!(matches!(other, Reply::Failed(libc::ESTALE | libc::EOPNOTSUPP)), "{other:?}")
                }
            }
            tree.ask(Request::Close { handles: vec![handle] });
        }
        stop.store(true, Ordering::Relaxed);
        assert!(came > 0 && refused > 0, "{came} {refused}");
    });
    assert_eq!(fs::read(tree.dir.join("outside/secret")).unwrap(), b"secret");
    assert_ne!(fs::metadata(tree.dir.join("outside")).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn handles_are_bounded() {
    let tree = Tree::new();
    let dirs = tree.connection.dir(ROOT).unwrap();
    {
        let mut handles = tree.connection.handles.write().unwrap();
        // One descriptor stands for many: the limit of the process of the tests may be lower.
        for handle in 100..100 + MAX_HANDLES as u64 - 1 {
            handles.open.insert(handle, dirs.clone());
        }
        handles.last = 100 + MAX_HANDLES as u64;
    }
    let last = tree.handle("a");
    let (attrs, errno, handle) = tree.walk(ROOT, "a/b", true);
    assert_eq!((attrs.len(), errno, handle), (2, libc::EMFILE, 0));
    assert_eq!(tree.walk(ROOT, "a/b", false).1, 0);
    tree.ask(Request::Close { handles: (100..200).collect() });
    assert!(tree.handle("a/b") > last, "numbers are not used again");
}

#[test]
fn random_requests_are_answered_or_end_the_connection() {
    let tree = Tree::new();
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32
    };
    for _ in 0..20_000 {
        let length = next() % 64;
        let mut bytes: Vec<u8> = (0..length).map(|_| (next() % 3) as u8).collect();
        if bytes.len() >= 8 {
            let number = (next() % 24) as u8;
            bytes[4..8].copy_from_slice(&[number, 0, 0, 0]);
        }
        if let Some((reply, _)) = tree.connection.answer(&bytes, None) {
            let Header { sequence, operation, .. } = header(&bytes).unwrap();
            assert!(Reply::decode(&reply, sequence, operation).is_some());
        }
    }
}
