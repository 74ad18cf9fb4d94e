//! A connection on a scratch directory.

mod channels;
mod hostile;
mod operations;

use super::*;
use abi::stat::Attr;
use fileproto::{Access, Key, Rights, Target};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory with `root`, which is served, and `outside` beside it.
struct Tree {
    dir: PathBuf,
    connection: Arc<Connection>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// An O_PATH descriptor of a directory.
fn place(path: &Path) -> OwnedFd {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

impl Tree {
    fn new() -> Tree {
        Tree::with(Options { fifos: false, readonly: false })
    }

    fn with(options: Options) -> Tree {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("gofer-files-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join("root/a/b/c")).unwrap();
        fs::create_dir_all(dir.join("outside")).unwrap();
        fs::write(dir.join("outside/secret"), "secret").unwrap();
        fs::write(dir.join("root/a/file"), "content").unwrap();
        std::os::unix::fs::symlink("../outside", dir.join("root/out")).unwrap();
        std::os::unix::fs::symlink("a", dir.join("root/link")).unwrap();
        let connection =
            Arc::new(Connection::new(place(&dir.join("root")), options, OwnFiles::find().ok().map(Arc::new)));
        Tree { dir, connection }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join("root").join(name)
    }

    fn send(&self, request: &Request<'_>, descriptor: Option<OwnedFd>) -> (Reply, Option<OwnedFd>) {
        let (reply, mut fds) = self.send_all(request, descriptor);
        assert!(fds.len() <= 1);
        (reply, fds.pop())
    }

    fn send_all(&self, request: &Request<'_>, descriptor: Option<OwnedFd>) -> (Reply, Vec<OwnedFd>) {
        let (bytes, fds) = self.connection.answer(&request.encode(7), descriptor).expect("it is a request");
        assert!(bytes.len() <= MAX_MESSAGE);
        (Reply::decode(&bytes, 7, request.operation()).expect("it is a reply"), fds)
    }

    fn ask(&self, request: Request<'_>) -> Reply {
        self.send(&request, None).0
    }

    /// The error of a request.
    fn fails(&self, request: Request<'_>) -> i32 {
        match self.send(&request, None) {
            (Reply::Failed(errno), None) => errno,
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn opened(&self, request: Request<'_>) -> (Attr, OwnedFd) {
        match self.send(&request, None) {
            (Reply::Opened(attr), Some(fd)) => (attr, fd),
            other => panic!("{request:?}: {other:?}"),
        }
    }

    fn attr(&self, request: Request<'_>) -> Attr {
        match self.ask(request) {
            Reply::Attr(attr) => attr,
            other => panic!("{other:?}"),
        }
    }

    fn walk(&self, dir: Handle, path: &str, keep: bool) -> (Vec<Attr>, i32, Handle) {
        match self.ask(Request::Walk { dir, path: path.as_bytes(), keep }) {
            Reply::Walked { attrs, errno, handle, .. } => (attrs, errno as i32, handle),
            other => panic!("{other:?}"),
        }
    }

    fn handle(&self, path: &str) -> Handle {
        let (_, errno, handle) = self.walk(ROOT, path, true);
        assert_eq!(errno, 0, "{path}");
        assert_ne!(handle, 0);
        handle
    }

    /// The object with a name in the root, as it is.
    fn named<'a>(&self, name: &'a str) -> Target<'a> {
        let attr = self.walk(ROOT, name, false).0[0];
        Target::Named { dir: ROOT, name: name.as_bytes(), key: Key { dev: attr.dev, ino: attr.ino } }
    }
}

/// What new objects get in these tests: the owner that they have anyway.
fn rights(mode: u32) -> Rights {
    Rights { mode, uid: u32::MAX, gid: u32::MAX }
}

fn open(name: &str, access: Access) -> Request<'_> {
    Request::Open { dir: ROOT, name: name.as_bytes(), access }
}
