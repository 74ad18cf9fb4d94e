//! Trees go through the encoding of an image and come back as they were.

use super::*;
use crate::ContentState;
use crate::{MemFiles, Options, TmpFs};
use abi::Errno;
use image::{PageSink, PageSource};
use lock_order::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use vfs::testing::TestCaller;
use vfs::{FileSystem, InodeRef, NewNode, OpenFile, SetAttr, TimeSet};

/// A file of pages in memory.
#[derive(Default)]
struct Pages(Mutex<Vec<u8>>);

impl PageSink for Pages {
    fn reserve(&self, len: u64) -> io::Result<u64> {
        let mut file = self.0.lock();
        let end = file.len();
        file.resize(end + len as usize, 0);
        Ok(end as u64)
    }
    fn write(&self, offset: u64, pages: &[u8]) -> io::Result<()> {
        self.0.lock()[offset as usize..][..pages.len()].copy_from_slice(pages);
        Ok(())
    }
}

impl PageSource for Pages {
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let file = self.0.lock();
        let from = file.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.lock().len() as u64
    }
}

fn tree() -> Arc<TmpFs> {
    TmpFs::new(&MemFiles::new(None), Options::default())
}

fn make(cx: &TestCaller, dir: &InodeRef, name: &[u8], node: NewNode) -> InodeRef {
    dir.as_dir().expect("a directory").create(cx, name, &node, 0o640, 5, 6).expect("made")
}

fn open(cx: &TestCaller, inode: &InodeRef) -> Arc<OpenFile> {
    let ops = inode.open(cx, libc::O_RDWR).expect("opened");
    OpenFile::new(None, Some(inode.clone()), ops, libc::O_RDWR)
}

fn write(cx: &TestCaller, inode: &InodeRef, bytes: &[u8], at: u64) {
    let file = open(cx, inode);
    assert_eq!(file.ops.write(cx, &file, bytes, at), Ok(bytes.len()));
}

fn read(cx: &TestCaller, inode: &InodeRef, at: u64) -> Vec<u8> {
    let (file, mut buf) = (open(cx, inode), vec![0; 10]);
    let n = file.ops.read(cx, &file, &mut buf, at).expect("read");
    buf.truncate(n);
    buf
}

fn saved(cx: &TestCaller, fs: &TmpFs, others: &[InodeRef], pages: &Pages) -> TreeState {
    let state = Tree::of(cx, &fs.root(), others).expect("found").write(cx, pages).expect("written");
    let mut bytes = Vec::new();
    ciborium::into_writer(&state, &mut bytes).expect("encoded");
    let decoded: TreeState = ciborium::from_reader(&*bytes).expect("decoded");
    assert_eq!(decoded, state);
    decoded
}

fn back(
    cx: &TestCaller,
    state: &TreeState,
    pages: &Pages,
) -> std::result::Result<(Arc<TmpFs>, HashMap<u64, InodeRef>), String> {
    let fs = tree();
    let nodes = state.restore(cx, &fs.root(), &|_| false, pages)?;
    Ok((fs, nodes))
}

fn look(cx: &TestCaller, fs: &TmpFs, path: &[&[u8]]) -> InodeRef {
    path.iter().fold(fs.root(), |dir, name| dir.lookup(cx, name).expect("there"))
}

/// The attributes without the device, which may be another one.
fn attr(inode: &InodeRef) -> abi::stat::Attr {
    abi::stat::Attr { dev: 0, ..inode.attr().expect("known") }
}

#[test]
fn every_type_with_its_attributes() {
    let (cx, fs, pages) = (TestCaller::root(), tree(), Pages::default());
    let root = fs.root();
    let dir = make(&cx, &root, b"dir", NewNode::Directory);
    let file = make(&cx, &dir, b"file", NewNode::Regular);
    write(&cx, &file, b"hello", 0);
    write(&cx, &file, b"far", 5 << 20);
    dir.as_dir().expect("a directory").link(&cx, b"again", &file).expect("linked");
    let link = make(&cx, &root, b"link", NewNode::Symlink(b"dir/file".to_vec()));
    let fifo = make(&cx, &root, b"fifo", NewNode::Fifo);
    let null = make(&cx, &root, b"null", NewNode::Char(0x103));
    file.xattrs().expect("has some").set_xattr(&cx, b"user.a", b"value", 0).expect("set");
    let when = TimeSet::At(Timespec { sec: 77, nsec: 5 });
    let set = SetAttr { mode: Some(0o4711), mtime: Some(when), ..SetAttr::default() };
    file.set_attr(&cx, &set).expect("set");
    let state = saved(&cx, &fs, &[], &pages);
    let (new, _) = back(&cx, &state, &pages).expect("restored");
    let all: [(&InodeRef, &[&[u8]]); 6] = [
        (&dir, &[b"dir"]),
        (&file, &[b"dir", b"file"]),
        (&file, &[b"dir", b"again"]),
        (&link, &[b"link"]),
        (&fifo, &[b"fifo"]),
        (&null, &[b"null"]),
    ];
    for (old, path) in all {
        assert_eq!(attr(&look(&cx, &new, path)), attr(old), "{path:?}");
    }
    let file = look(&cx, &new, &[b"dir", b"file"]);
    assert!(Arc::ptr_eq(&file, &look(&cx, &new, &[b"dir", b"again"])));
    let (start, hole, end) = (read(&cx, &file, 0), read(&cx, &file, 1 << 20), read(&cx, &file, 5 << 20));
    assert_eq!((&start[..5], hole, &*end), (&b"hello"[..], vec![0; 10], &b"far"[..]));
    assert_eq!(file.xattrs().expect("has some").get_xattr(&cx, b"user.a"), Ok(b"value".to_vec()));
    assert_eq!(look(&cx, &new, &[b"link"]).readlink(&cx), Ok(b"dir/file".to_vec()));
    // The same is charged, and numbers go on.
    let (old, now) = (fs.statfs().expect("known"), new.statfs().expect("known"));
    assert_eq!((now.f_bfree, now.f_ffree), (old.f_bfree, old.f_ffree));
    let (a, b) = (make(&cx, &root, b"next", NewNode::Fifo), make(&cx, &new.root(), b"next", NewNode::Fifo));
    assert_eq!(attr(&a).ino, attr(&b).ino);
    let again = saved(&cx, &new, &[], &Pages::default());
    assert_eq!(again.nodes.len(), state.nodes.len() + 1);
}

#[test]
fn files_without_a_name_stay_while_they_are_open() {
    let (cx, fs, pages) = (TestCaller::root(), tree(), Pages::default());
    let root = fs.root();
    let file = make(&cx, &root, b"file", NewNode::Regular);
    write(&cx, &file, b"kept", 0);
    root.as_dir().expect("a directory").unlink(&cx, b"file").expect("removed");
    let state = saved(&cx, &fs, std::slice::from_ref(&file), &pages);
    let (new, nodes) = back(&cx, &state, &pages).expect("restored");
    assert_eq!(new.root().lookup(&cx, b"file").err(), Some(Errno::ENOENT));
    let again = nodes.get(&attr(&file).ino).expect("there");
    assert_eq!((attr(again), read(&cx, again, 0)), (attr(&file), b"kept".to_vec()));
}

#[test]
fn what_was_built_and_is_gone_goes() {
    let (cx, fs, pages) = (TestCaller::root(), tree(), Pages::default());
    make(&cx, &fs.root(), b"kept", NewNode::Directory);
    let state = saved(&cx, &fs, &[], &pages);
    let new = tree();
    let (gone, point) = (b"gone", b"kept");
    make(&cx, &new.root(), gone, NewNode::Regular);
    let mounted = make(&cx, &new.root(), point, NewNode::Directory);
    let held = |inode: &InodeRef| Arc::ptr_eq(inode, &mounted);
    state.restore(&cx, &new.root(), &held, &pages).expect("restored");
    assert_eq!(new.root().lookup(&cx, gone).err(), Some(Errno::ENOENT));
    // A mount point stays the same object, whatever its number.
    assert!(Arc::ptr_eq(&look(&cx, &new, &[point]), &mounted));
}

#[test]
fn sealed_files_stay_sealed() {
    let (cx, pages) = (TestCaller::root(), Pages::default());
    let memfds = crate::Memfds::new(&MemFiles::new(None));
    let file = memfds.memfd(&cx, b"name", 2).expect("made");
    assert_eq!(file.ops.write(&cx, &file, b"sealed", 0), Ok(6));
    crate::add_seals(&file, 8).expect("sealed");
    let inode = file.inode.clone().expect("has one");
    let fs = super::super::node::Node::of(&inode).expect("in memory").fs.clone();
    let state = saved(&cx, &fs, std::slice::from_ref(&inode), &pages);
    let (_, nodes) = back(&cx, &state, &pages).expect("restored");
    let again = open(&cx, nodes.get(&attr(&inode).ino).expect("there"));
    assert_eq!(crate::get_seals(&again), Ok(8));
    assert_eq!(again.ops.write(&cx, &again, b"x", 0), Err(Errno::EPERM));
}

#[test]
fn hostile_trees_are_refused() {
    let (cx, fs, pages) = (TestCaller::root(), tree(), Pages::default());
    let dir = make(&cx, &fs.root(), b"dir", NewNode::Directory);
    let file = make(&cx, &dir, b"file", NewNode::Regular);
    write(&cx, &file, b"hello", 0);
    let good = saved(&cx, &fs, &[], &pages);
    let refused = |change: &dyn Fn(&mut TreeState)| {
        let mut state = good.clone();
        change(&mut state);
        assert_ne!(state, good);
        back(&cx, &state, &pages).map(drop).expect_err("refused")
    };
    fn entries(state: &mut TreeState, at: usize) -> &mut Vec<EntryState> {
        match &mut state.nodes[at].body {
            BodyState::Dir(dir) => &mut dir.entries,
            _ => panic!("a directory"),
        }
    }
    assert_eq!(good.nodes.iter().map(|node| node.ino).collect::<Vec<_>>(), [1, 2, 3]);
    refused(&|state| state.root = 3);
    refused(&|state| state.root = 9);
    refused(&|state| state.nodes[1].ino = 1);
    refused(&|state| state.nodes[1].below = true);
    refused(&|state| state.nodes[2].mode = libc::S_IFDIR);
    refused(&|state| entries(state, 0)[0].name = b"..".to_vec());
    refused(&|state| entries(state, 0)[0].name = b"a/b".to_vec());
    refused(&|state| entries(state, 0)[0].offset = u64::MAX);
    refused(&|state| entries(state, 0)[0].offset = 0);
    refused(&|state| entries(state, 0)[0].hides = true);
    refused(&|state| entries(state, 0)[0].node = None);
    // Directories in circles.
    refused(&|state| entries(state, 1)[0].node = Some(1));
    refused(&|state| entries(state, 1)[0].node = Some(2));
    let twice = |state: &mut TreeState| {
        let first = entries(state, 1)[0].clone();
        entries(state, 1).push(first);
    };
    refused(&twice);
    let pages_of = |state: &mut TreeState, change: &dyn Fn(&mut ContentState)| match &mut state.nodes[2].body
    {
        BodyState::File(Some(content)) => change(content),
        _ => panic!("a file"),
    };
    refused(&|state| pages_of(state, &|content| content.size = u64::MAX));
    refused(&|state| pages_of(state, &|content| content.pages[0].offset = 1 << 40));
    refused(&|state| pages_of(state, &|content| content.pages[0].at = 4096));
    refused(&|state| pages_of(state, &|content| content.pages[0].len = 1));
    refused(&|state| state.nodes[2].body = BodyState::File(None));
}
