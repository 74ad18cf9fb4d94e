//! Tests of internal state: nodes in use, and bounds. The behaviour is tested against Linux in tests/diff.

use crate::config::KNOWN;
use abi::{Errno, Result};
use caller::Limits;
use caller::quota::Kind;
use mounts::fstypes::Request;
use mounts::testing::TestPathCaller;
use mounts::{FsContext, FsTypes, MountNs, PathCaller, View};
use namei::{OpenHow, Start};
use std::sync::Arc;
use tmpfs::{MemFiles, Options, TmpFs};
use vfs::testing::TestCaller;
use vfs::{DirEntry, DirSink, FileSystem, Mount, MountFlags, NewNode, SuperBlock};

struct Setup {
    cx: TestPathCaller,
    types: FsTypes,
    fs: Arc<FsContext>,
}

fn make(cx: &(dyn PathCaller + 'static), request: &Request) -> Result<Arc<SuperBlock>> {
    crate::mount(cx, request)
}

impl Setup {
    /// `/l`, `/u`, `/w` and `/m` of a tmpfs.
    fn new() -> Setup {
        let caller = TestCaller::root();
        let fs: Arc<dyn FileSystem> = TmpFs::new(&MemFiles::new(None), Options::default());
        let fs = FsContext::new(MountNs::new(&caller.vfs, Mount::of(fs, MountFlags::empty(), b"root")));
        let (cx, types) = (TestPathCaller { caller, fs: Some(fs.clone()) }, FsTypes::default());
        types.register_with("overlay", KNOWN, make);
        let setup = Setup { cx, types, fs };
        for dir in ["l", "u", "w", "m"] {
            setup.mkdir(dir);
        }
        setup
    }

    fn view(&self) -> View {
        self.fs.view()
    }

    fn mkdir(&self, path: &str) {
        namei::dir::mkdir(&self.cx, &self.view(), &Start::Cwd, path.as_bytes(), 0o755).unwrap();
    }

    fn make(&self, path: &str) {
        let node = NewNode::Regular;
        namei::dir::mknod(&self.cx, &self.view(), &Start::Cwd, path.as_bytes(), &node, 0o644).unwrap();
    }

    fn mount(&self, options: &str) -> Result<Arc<SuperBlock>> {
        mounts::fs_config::create(&self.types, &self.cx, "overlay", options.as_bytes())
    }

    fn open(&self, path: &str, flags: i32) -> Result<Arc<vfs::OpenFile>> {
        let how = OpenHow::legacy(flags, 0o644).expect("valid flags");
        namei::open::open_at(&self.cx, &self.view(), &Start::Cwd, path.as_bytes(), &how)
            .map_err(|e| e.errno())
    }
}

struct Count(usize);

impl DirSink for Count {
    fn entry(&mut self, _next: u64, _e: &DirEntry) -> bool {
        self.0 += 1;
        true
    }
}

#[test]
fn nothing_is_left_behind() {
    let s = Setup::new();
    s.make("l/f");
    let account = s.cx.quotas().account(0);
    let sb = s.mount("lowerdir=l,upperdir=u,workdir=w").unwrap();
    assert_eq!(account.used(Kind::Mounts), 3);
    let core = Arc::downgrade(&sb.fs);
    namei::walk::find(&s.cx, &sb.root, b"f", false).unwrap();
    drop(sb);
    assert!(core.upgrade().is_none());
    assert_eq!(account.used(Kind::Mounts), 0);
}

#[test]
fn listings_are_shared_and_counted() {
    let s = Setup::new();
    for i in 0..1000 {
        s.make(&format!("l/{i}"));
        s.make(&format!("u/{i}x"));
    }
    let sb = s.mount("lowerdir=l,upperdir=u,workdir=w").unwrap();
    let at = namei::walk::lookup(&s.cx, &s.view(), &Start::Cwd, b"m", namei::Lookup::empty()).unwrap();
    s.view().ns.mount(&at, sb, MountFlags::empty(), b"o").unwrap();
    let account = s.cx.quotas().account(0);
    let read = |file: &Arc<vfs::OpenFile>| {
        let mut n = Count(0);
        namei::dir::read(&s.cx, file, &mut n).unwrap();
        n.0
    };
    let (a, b) = (s.open("m", libc::O_RDONLY).unwrap(), s.open("m", libc::O_RDONLY).unwrap());
    assert_eq!((read(&a), read(&b)), (2002, 2002));
    let one = account.used(Kind::Listings);
    assert!((2000 * 96..400_000).contains(&one), "{one}");
    s.make("m/new");
    *b.pos.lock() = 0;
    assert_eq!(read(&b), 2003);
    assert!(account.used(Kind::Listings) > one);
    drop((a, b));
    assert_eq!(account.used(Kind::Listings), 0);
    assert_eq!(s.open("m/none", libc::O_RDONLY).err(), Some(Errno::ENOENT));
}
