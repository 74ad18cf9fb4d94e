//! An overlay is saved and comes back over the same layers.

use super::*;
use image::{PageSink, PageSource};
use lock_order::Mutex;
use std::io::{self as std_io, ErrorKind};
use tmpfs::state::{Tree, TreeState};

/// A file of pages in memory.
#[derive(Default)]
struct Pages(Mutex<Vec<u8>>);

impl PageSink for Pages {
    fn reserve(&self, len: u64) -> std_io::Result<u64> {
        let mut file = self.0.lock();
        let end = file.len();
        file.resize(end + len as usize, 0);
        Ok(end as u64)
    }
    fn write(&self, offset: u64, pages: &[u8]) -> std_io::Result<()> {
        self.0.lock()[offset as usize..][..pages.len()].copy_from_slice(pages);
        Ok(())
    }
}

impl PageSource for Pages {
    fn read(&self, offset: u64, buf: &mut [u8]) -> std_io::Result<()> {
        let file = self.0.lock();
        let from = file.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.lock().len() as u64
    }
}

/// The layers of an environment under a new overlay.
fn again(env: &Env) -> Arc<FsContext> {
    let files = hostfs::HostFiles::new(&Arc::default());
    let fd: OwnedFd = fs::File::open(&env.dir).unwrap().into();
    let layer = HostFs::new(&files, hosttree::direct::Direct::at(fd), true).unwrap() as Arc<dyn FileSystem>;
    let fs = crate::new(&tmpfs::MemFiles::new(None), Upper::default(), &[layer]).unwrap();
    FsContext::new(mounts::testing::mount_ns(Mount::of(fs, MountFlags::empty(), b"overlay")))
}

fn root(fs: &FsContext) -> InodeRef {
    fs.view().root.inode().clone()
}

fn saved(fs: &FsContext, others: &[InodeRef]) -> (TreeState, Pages) {
    let (cx, pages) = (TestCaller::root(), Pages::default());
    let tree = Tree::of(&cx, &root(fs), others).expect("found");
    (tree.write(&cx, &pages).expect("written"), pages)
}

/// Saves the environment, and makes it one of a second overlay over the same layers.
fn moved(mut env: Env, others: &[InodeRef]) -> (Env, std::collections::HashMap<u64, InodeRef>) {
    let (state, pages) = saved(&env.fs, others);
    let new = again(&env);
    let nodes = state.restore(&TestCaller::root(), &root(&new), &|_| false, &pages).expect("restored");
    new.view().root.dentry.shrink(false);
    env.fs = new;
    (env, nodes)
}

#[test]
fn what_is_as_in_the_layers_is_not_saved() {
    let e = env("checkpoint-clean");
    assert_eq!(e.text("/d/sub/x").unwrap(), "x");
    e.names("/d");
    let (state, pages) = saved(&e.fs, &[]);
    assert_eq!((state.nodes.len(), pages.len()), (1, 0));
}

#[test]
fn changes_come_back_over_the_layers() {
    let e = env("checkpoint-changes");
    let write = |path: &str, text: &[u8]| {
        let file = e.open(path, libc::O_RDWR | libc::O_CREAT).unwrap();
        io::write_at(&TestCaller::root(), &file, text, 0).unwrap();
    };
    write("/d/f", b"UPPER");
    write("/new", b"made here");
    write("/d/sub/y", b"beside x");
    e.unlink("/d/g").unwrap();
    e.unlink("/sym").unwrap();
    write("/sym", b"a file now");
    let cx = TestCaller::root();
    attr::chmod(&cx, &walk::lookup(&cx, &e.fs.view(), &Start::Cwd, b"/big", Lookup::empty()).unwrap(), 0o600)
        .unwrap();
    let paths = ["/d", "/d/f", "/link", "/new", "/d/sub", "/d/sub/x", "/d/sub/y", "/sym", "/big"];
    // Times of access of files that are as in the layers are not kept.
    let attrs = |e: &Env| {
        paths.map(|path| abi::stat::Attr {
            dev: 0,
            atime: abi::time::Timespec::default(),
            ..e.stat(path).unwrap()
        })
    };
    let names = (e.names("/"), e.names("/d"));
    let before = attrs(&e);
    let (e, _) = moved(e, &[]);
    for (now, before) in attrs(&e).iter().zip(&before) {
        assert_eq!(now, before);
    }
    assert_eq!((e.names("/"), e.names("/d")), names);
    assert_eq!((e.text("/d/f").unwrap(), e.text("/new").unwrap()), ("UPPER".into(), "made here".into()));
    assert_eq!((e.text("/d/sub/x").unwrap(), e.text("/d/sub/y").unwrap()), ("x".into(), "beside x".into()));
    assert_eq!((e.text("/link").unwrap(), e.text("/sym").unwrap()), ("UPPER".into(), "a file now".into()));
    assert_eq!(e.stat("/d/g").err(), Some(Errno::ENOENT));
    // A second time, from what was restored.
    let before = attrs(&e);
    let (e, _) = moved(e, &[]);
    assert_eq!((e.text("/new").unwrap(), e.stat("/d/g").err()), ("made here".into(), Some(Errno::ENOENT)));
    assert_eq!(attrs(&e), before);
}

#[test]
fn renamed_directories_take_what_they_have_below() {
    let e = env("checkpoint-rename");
    e.rename("/d/sub", "/moved").unwrap();
    e.unlink("/link").unwrap();
    let (e, _) = moved(e, &[]);
    assert_eq!((e.text("/moved/x").unwrap(), e.names("/moved")), ("x".into(), vec!["x".to_owned()]));
    assert_eq!((e.stat("/d/sub").err(), e.names("/d")), (Some(Errno::ENOENT), vec!["f".into(), "g".into()]));
}

#[test]
fn removed_files_that_are_open_keep_what_is_below() {
    let e = env("checkpoint-open");
    let file = e.open("/d/g", 0).unwrap();
    let inode = file.inode.clone().unwrap();
    let number = inode.attr().unwrap().ino;
    e.unlink("/d/g").unwrap();
    let (e, nodes) = moved(e, std::slice::from_ref(&inode));
    let (cx, again) = (TestCaller::root(), nodes.get(&number).expect("there").clone());
    let again = OpenFile::new(None, Some(again.clone()), again.open(&cx, 0).unwrap(), 0);
    let mut text = [0; 5];
    assert_eq!(io::read_at(&cx, &again, &mut text, 0), Ok(5));
    assert_eq!((&text, e.stat("/d/g").err()), (b"other", Some(Errno::ENOENT)));
}

#[test]
fn other_layers_are_refused() {
    let e = env("checkpoint-other");
    let file = e.open("/d/f", libc::O_RDWR).unwrap();
    io::write_at(&TestCaller::root(), &file, b"UPPER", 0).unwrap();
    let (state, pages) = saved(&e.fs, &[]);
    fs::rename(e.dir.join("d"), e.dir.join("elsewhere")).unwrap();
    let new = again(&e);
    let refused = state.restore(&TestCaller::root(), &root(&new), &|_| false, &pages).map(drop);
    let refused = refused.expect_err("refused");
    assert!(refused.starts_with("d of the layers below: "), "{refused}");
}
