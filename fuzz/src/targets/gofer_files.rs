//! What a sentry asks of a gofer about files. Whatever it asks, nothing beside the tree changes.
//!
//! The first byte of an input has the connection's options. Then requests follow: as bytes with their length before
//! them, or put together from names that are there and numbers of the input.

use super::{Bytes, outcome};
use abi::time::Timespec;
use fileproto::{
    Access, Changes, Found, Handle, Header, Key, Kind, MAX_MESSAGE, Reply, Request, Rights, SetTime, Source,
    Target, header,
};
use gofer::fuzz::Files;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub(super) const WORDS: &[&str] =
    &["a", "file", "out", "secret", "a/b", "user.a", "..", "\u{1}\0\0\0\0\0\0\0"];

/// Most requests of an input.
const MOST: usize = 24;
/// Names in the tree, in what is beside it, and others.
const NAMES: [&[u8]; 8] = [b"a", b"b", b"file", b"out", b"secret", b"new", b"other", b"up"];
const PATHS: [&[u8]; 6] = [b"a", b"a/b", b"a/b/file", b"out", b"out/secret", b"up/outside"];
const XATTRS: [&[u8]; 5] =
    [b"user.a", b"system.posix_acl_access", b"security.capability", b"trusted.a", b"system.other"];
const TEXTS: [&[u8]; 4] = [b"..", b"../outside/secret", b"/", b"file"];

/// A directory of this process for the tree of an input.
fn scratch() -> PathBuf {
    let shm = Path::new("/dev/shm");
    let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    base.join(format!("ringfence-fuzz-files-{}", std::process::id()))
}

/// What must not change.
fn outside() -> Vec<(Vec<u8>, u32, u32, u64, i64, i64)> {
    let dir = scratch();
    let facts = |path: PathBuf| {
        let m = fs::symlink_metadata(&path).expect("it is still there");
        let text = if m.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        (text, m.mode(), m.uid(), m.nlink(), m.ctime(), m.ctime_nsec())
    };
    let there = ["outside", "outside/dir", "outside/secret"].map(|name| facts(dir.join(name)));
    let names = |dir: &Path| fs::read_dir(dir).map_or(0, Iterator::count) as u64;
    let counts = [names(&dir), names(&dir.join("outside")), names(&dir.join("outside/dir"))];
    let counts = counts.map(|count| (Vec::new(), 0, 0, count, 0, 0));
    there.into_iter().chain(counts).collect()
}

/// One input at a time: there is one directory.
static TURN: Mutex<()> = Mutex::new(());

/// A tree and what is beside it, which are gone with it.
struct Tree(PathBuf);

impl Tree {
    fn new() -> std::io::Result<Tree> {
        let dir = scratch();
        fs::create_dir_all(dir.join("outside/dir"))?;
        fs::write(dir.join("outside/secret"), "secret")?;
        let root = dir.join("root");
        fs::create_dir_all(root.join("a/b"))?;
        fs::write(root.join("file"), "content")?;
        fs::write(root.join("a/b/file"), "content")?;
        symlink("../outside", root.join("out"))?;
        symlink("..", root.join("up"))?;
        Ok(Tree(root))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let dir = scratch();
        if fs::remove_dir_all(&dir).is_err() {
            open_up(&self.0);
            fs::remove_dir_all(&dir).expect("the tree can be removed");
        }
    }
}

/// Gives directories a mode with which they can be removed.
fn open_up(dir: &Path) {
    let _ = fs::set_permissions(dir, Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

pub(super) fn run(input: &[u8]) -> u64 {
    let mut bytes = Bytes(input);
    let options = bytes.byte();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let tree = Tree::new().expect("a tree");
    let before = outside();
    let root = rustix::fs::openat(
        rustix::fs::CWD,
        &tree.0,
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let files = Files::new(root.expect("a tree"), options & 1 != 0, options & 6 == 6);
    let mut came = Vec::new();
    while !bytes.0.is_empty() && came.len() < MOST {
        let which = bytes.byte();
        let descriptor = descriptor(&tree.0, which & 7);
        let raw;
        let message = if which & 8 == 0 {
            let length = usize::from(bytes.byte()) | usize::from(bytes.byte()) << 8;
            let (message, rest) = bytes.0.split_at(length.min(bytes.0.len()));
            bytes.0 = rest;
            message
        } else {
            raw = request(&mut bytes).encode(5);
            &raw
        };
        let Some((reply, fds)) = files.answer(message, descriptor) else {
            assert!(Request::decode(message).is_none(), "what can be decoded is answered");
            came.push((0, -1));
            break;
        };
        came.push(check(message, &reply, fds));
    }
    drop(files);
    assert_eq!(outside(), before, "nothing beside the tree changes");
    drop(tree);
    outcome((options & 7, came))
}

/// Operation and error of a request.
fn check(request: &[u8], reply: &[u8], mut fds: Vec<OwnedFd>) -> (u16, i32) {
    assert!(reply.len() <= MAX_MESSAGE);
    let Header { sequence, operation, .. } = header(request).expect("it was answered");
    let reply = Reply::decode(reply, sequence, operation).expect("it is a reply");
    let gives = match &reply {
        Reply::Opened(_) => 1,
        Reply::Done => usize::from(operation == fileproto::operation::CHANNEL),
        Reply::Looked(found) => {
            found.iter().filter(|one| matches!(one, Found::Object { placed: true, .. })).count()
        }
        _ => 0,
    };
    assert_eq!(fds.len(), gives, "{reply:?}");
    if let Reply::Looked(_) = reply {
        let is_file = |fd: &OwnedFd| hostsys::fs::stat(fd).is_ok_and(|attr| attr.file_type() == 0o100000);
        assert!(fds.iter().all(is_file), "places are of regular files");
    }
    if let (Some(fd), Reply::Opened(attr)) = (fds.pop(), &reply) {
        let mut text = [0; 6];
        // O_PATH descriptors, directories and FIFOs are not read from.
        let is_read = attr.file_type() == 0o100000 && File::from(fd).read_at(&mut text, 0).is_ok();
        assert!(!is_read || text != *b"secret", "only files of the tree are opened");
    }
    match reply {
        Reply::Failed(errno) => (operation, errno),
        Reply::Walked { errno, attrs, .. } => (operation, errno as i32 + 1000 * attrs.len() as i32),
        _ => (operation, 0),
    }
}

/// What goes along with a request.
fn descriptor(tree: &Path, which: u8) -> Option<OwnedFd> {
    let open = |name: &str, write| {
        let file = File::options().read(true).write(write).open(tree.join(name));
        file.ok().map(OwnedFd::from)
    };
    match which {
        0 => open("file", true),
        1 => open("a/b/file", false),
        2 => open("a", false),
        3 => File::open("/dev/null").ok().map(OwnedFd::from),
        4 => hostsys::fs::memfd("sent").ok(),
        5 => hostsys::fanotify::Reports::new().ok().and_then(|group| group.as_fd().try_clone_to_owned().ok()),
        _ => None,
    }
}

fn one<T: Copy>(bytes: &mut Bytes<'_>, of: &[T]) -> T {
    of[usize::from(bytes.byte()) % of.len()]
}

/// The root, a handle that the walks before may have got, or another number.
fn handle(bytes: &mut Bytes<'_>) -> Handle {
    match bytes.byte() % 16 {
        0 => bytes.long(),
        n => Handle::from(n / 3),
    }
}

fn target(bytes: &mut Bytes<'_>) -> Target<'static> {
    match bytes.byte() % 4 {
        0 => Target::Descriptor,
        1 => Target::Directory(handle(bytes)),
        _ => {
            let (dir, name) = (handle(bytes), one(bytes, &NAMES));
            let there = String::from_utf8_lossy(one(bytes, &PATHS));
            let object = fs::symlink_metadata(scratch().join("root").join(&*there)).ok();
            let key = object.map_or((1, 1), |object| (object.dev(), object.ino()));
            Target::Named { dir, name, key: Key { dev: key.0, ino: key.1 } }
        }
    }
}

fn rights(bytes: &mut Bytes<'_>) -> Rights {
    let mut id = || [u32::MAX, 0, 1, 65534][usize::from(bytes.byte()) % 4];
    let (uid, gid) = (id(), id());
    Rights { mode: bytes.word() & 0o7777, uid, gid }
}

fn changes(bytes: &mut Bytes<'_>) -> Changes {
    let given = bytes.byte();
    let rights = rights(bytes);
    let size = bytes.word();
    let time = match bytes.byte() % 3 {
        0 => SetTime::Keep,
        1 => SetTime::Now,
        _ => {
            SetTime::At(Timespec { sec: bytes.long() as i64, nsec: i64::from(bytes.word() % 1_000_000_000) })
        }
    };
    Changes {
        mode: (given & 1 != 0).then_some(rights.mode),
        uid: (given & 2 != 0).then_some(rights.uid),
        gid: (given & 4 != 0).then_some(rights.gid),
        size: (given & 8 != 0).then_some(size.into()),
        atime: time,
        mtime: if given & 16 != 0 { time } else { SetTime::Keep },
    }
}

fn request(bytes: &mut Bytes<'_>) -> Request<'static> {
    let access = [Access::Place, Access::Read, Access::Write, Access::ReadWrite, Access::Directory];
    let kinds =
        [Kind::Directory, Kind::Fifo, Kind::Socket, Kind::Whiteout, Kind::Symlink(one(bytes, &TEXTS))];
    let (dir, name) = (handle(bytes), one(bytes, &NAMES));
    match bytes.byte() % 26 {
        0 => Request::Attach { version: bytes.word() % 3 },
        1 => Request::Channel,
        2 => Request::Stat { dir },
        3 => Request::OpenDirectory { dir },
        4 => Request::Create { dir, name, rights: rights(bytes) },
        5 => Request::CreateUnnamed { dir, rights: rights(bytes) },
        6 => Request::Make { dir, name, kind: one(bytes, &kinds), rights: rights(bytes) },
        7 => {
            let named = Source::Named { dir: handle(bytes), name: one(bytes, &NAMES) };
            Request::Link { from: one(bytes, &[named, Source::Descriptor]), dir, name }
        }
        8 => Request::Unlink { dir, name, directory: bytes.byte() & 1 != 0 },
        9 | 10 => {
            let (to_dir, to) = (handle(bytes), one(bytes, &NAMES));
            Request::Rename { from_dir: dir, from: name, to_dir, to, flags: one(bytes, &[0, 0, 1, 2, 4, 99]) }
        }
        11 => Request::ReadLink { dir, name },
        12 => {
            Request::List { dir, cookie: one(bytes, &[0, 0, 1, 1 << 40]), attributes: bytes.byte() & 1 != 0 }
        }
        13 | 14 => Request::SetAttr { target: target(bytes), changes: changes(bytes) },
        15 => Request::GetXattr { target: target(bytes), name: one(bytes, &XATTRS) },
        16 => {
            let (name, value) = (one(bytes, &XATTRS), one(bytes, &TEXTS));
            Request::SetXattr { target: target(bytes), name, value, flags: bytes.word() % 4 }
        }
        17 => Request::ListXattr { target: target(bytes) },
        18 => Request::RemoveXattr { target: target(bytes), name: one(bytes, &XATTRS) },
        19 => Request::Mark { target: target(bytes), mask: bytes.long(), remove: bytes.byte() & 1 != 0 },
        20 => Request::Close { handles: vec![dir] },
        21 => Request::Open { dir, name, access: one(bytes, &access) },
        22 => Request::Look { dir, places: bytes.byte() & 1 != 0, names: vec![name, one(bytes, &NAMES)] },
        23 => Request::OpenAgain { access: one(bytes, &access) },
        24 => Request::ReadLinkAgain,
        _ => Request::Walk { dir, path: one(bytes, &PATHS), keep: bytes.byte() & 1 != 0 },
    }
}
