//! Content that goes into an image and comes back.

use super::*;
use crate::content::Content;
use crate::storage::Storage;
use crate::{ContentState, FileStore, Memfds, Node};
use hostsys::page_file::PageFile;
use image::Extent;
use std::os::fd::OwnedFd;

const PAGE: u64 = 4096;

fn memory_file() -> OwnedFd {
    hostsys::memfd::create(c"test", 0, false).unwrap()
}

fn node(f: &OpenFile) -> &Node {
    f.inode.as_ref().and_then(Node::of).unwrap()
}

/// Size, blocks, and the places where data and holes begin.
fn shape(f: &Arc<OpenFile>) -> (u64, u64, Vec<u64>) {
    let a = f.inode.as_ref().unwrap().attr().unwrap();
    let mut places = vec![0];
    for whence in [libc::SEEK_DATA, libc::SEEK_HOLE].into_iter().cycle() {
        let seek = f.ops.as_seek().unwrap();
        let Ok(at) = seek.seek_special(&root(), f, *places.last().unwrap() as i64, whence) else { break };
        places.push(at);
    }
    (a.size, a.blocks, places)
}

/// Saves `f`, restores it to `to`, and compares.
fn comes_back(f: &Arc<OpenFile>, to: &Arc<OpenFile>) -> ContentState {
    let fd = Arc::new(memory_file());
    let sink = PageFile::create(fd.clone());
    let saved = node(f).content_state(&root(), &sink).unwrap().unwrap();
    sink.finish().unwrap();
    let pages = PageFile::checked(fd, sink.sums()).unwrap();
    node(to).restore_content(&root(), &saved, &pages).unwrap();
    assert_eq!(shape(to), shape(f));
    let read = |f: &Arc<OpenFile>, at: u64| {
        let mut buf = vec![9; 3 * PAGE as usize];
        let n = f.ops.read(&root(), f, &mut buf, at).unwrap();
        buf.truncate(n);
        buf
    };
    for at in (0..saved.size).step_by(3 * PAGE as usize) {
        assert_eq!(read(f, at), read(to, at), "at {at:#x}");
    }
    saved
}

fn write(f: &Arc<OpenFile>, at: u64, bytes: &[u8]) {
    assert_eq!(f.ops.write(&root(), f, bytes, at).unwrap(), bytes.len());
}

/// A page, a page of zeros, holes, and an end in the middle of a page.
fn fill(f: &Arc<OpenFile>, far: u64) {
    write(f, 5, b"begin");
    write(f, 3 * PAGE, &[0; PAGE as usize]);
    write(f, 7 * PAGE - 1, b"across");
    write(f, far * PAGE, b"end");
}

#[test]
fn content_on_the_heap_and_in_memory() {
    let e = env();
    for far in [9, 700] {
        let open = |name| e.open(&format!("/{name}{far}"), libc::O_CREAT | libc::O_RDWR).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(open);
        fill(&a, far);
        let saved = comes_back(&a, &b);
        assert_eq!(saved.size, far * PAGE + 3);
        assert_eq!(saved.pages.iter().map(|e| e.len).sum::<u64>(), 5 * PAGE);
        // A mapped file lives in memory.
        let request = MapRequest { prot: 3, shared: true, offset: 0, len: PAGE };
        b.ops.map(&root(), &b, &request).unwrap();
        comes_back(&b, &c);
    }
}

#[test]
fn content_on_disk() {
    let disk = FileStore::new(memory_file());
    let storage = Storage::new(&crate::MemFiles::new(None), Some(disk), None);
    let [mut a, mut b] = [Content::empty(), Content::empty()];
    for (at, text) in [(5, "begin"), (7 * PAGE - 1, "across"), (700 * PAGE, "end")] {
        a.write(&root(), &storage, text.as_bytes(), Some(at)).unwrap();
    }
    let fd = Arc::new(memory_file());
    let sink = PageFile::create(fd.clone());
    let saved = a.state(&root(), &sink).unwrap().unwrap();
    sink.finish().unwrap();
    b.restore(&root(), &storage, &saved, &PageFile::checked(fd, sink.sums()).unwrap()).unwrap();
    assert_eq!(a.size_and_blocks(), b.size_and_blocks());
    let mut read = [0; 6];
    assert_eq!((b.read(&root(), &mut read, 7 * PAGE - 1).unwrap(), &read), (6, b"across"));
    assert_eq!(b.seek(&root(), 7 * PAGE + PAGE, true), Ok(700 * PAGE));
}

#[test]
fn seals_come_back() {
    let memfds = Memfds::new(&crate::MemFiles::new(None));
    let [a, b] = [0, 1].map(|_| memfds.memfd(&root(), b"x", 2).unwrap());
    fill(&a, 9);
    let seals = libc::F_SEAL_WRITE as u32 | libc::F_SEAL_GROW as u32;
    crate::add_seals(&a, seals).unwrap();
    comes_back(&a, &b);
    assert_eq!(crate::get_seals(&b), Ok(seals));
    assert_eq!(b.ops.write(&root(), &b, b"x", 0), Err(Errno::EPERM));
}

#[test]
fn unsound_content_is_refused() {
    let pages = PageFile::create(Arc::new(memory_file()));
    image::PageSink::reserve(&pages, 8 * PAGE).unwrap();
    pages.finish().unwrap();
    let e = env();
    let f = e.open("/f", libc::O_CREAT | libc::O_RDWR).unwrap();
    let sound = || ContentState {
        size: 2 * PAGE,
        pages: vec![Extent { at: PAGE, len: PAGE, offset: 0 }],
        ..ContentState::default()
    };
    let refused = |change: &dyn Fn(&mut ContentState)| {
        let mut s = sound();
        change(&mut s);
        assert_eq!(node(&f).restore_content(&root(), &s, &pages), Err(Errno::EINVAL), "{s:?}");
    };
    refused(&|s| s.size = u64::MAX);
    refused(&|s| s.size = 1 << 63);
    refused(&|s| s.size = PAGE);
    refused(&|s| s.seals = 1 << 20);
    refused(&|s| s.pages[0].len = 0);
    refused(&|s| s.pages[0].offset = 8 * PAGE);
    node(&f).restore_content(&root(), &sound(), &pages).unwrap();
    assert_eq!(node(&f).restore_content(&root(), &sound(), &pages), Err(Errno::EINVAL));
}
