//! An entrance for the fuzzer: a daemon that answers with the input, and a program that uses its file system.

use crate::conn::{Connection, Terms};
use crate::device;
use crate::fs::FuseFs;
use crate::wire::{self, InHeader, init, op};
use abi::{Errno, Result};
use caller::quota::Kind;
use caller::{HasCredentials, Identity, Limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tmpfs::MemFiles;
use vfs::testing::TestCaller;
use vfs::{DirEntry, DirSink, FileSystem, InodeRef, NewNode, OpenFile, SetAttr, TimeSet};
use wait::Events;
use zerocopy::{FromBytes, IntoBytes};

/// The answers, one after the other; zeros when there are no more.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(n.min(self.0.len()));
        self.0 = later;
        now
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }
}

/// Bytes of an answer that has the form which the operation wants.
fn usual(opcode: u32) -> usize {
    match opcode {
        op::LOOKUP | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK => size_of::<wire::EntryOut>(),
        op::CREATE => size_of::<wire::EntryOut>() + size_of::<wire::OpenOut>(),
        op::GETATTR | op::SETATTR => size_of::<wire::AttrOut>(),
        op::OPEN | op::OPENDIR => size_of::<wire::OpenOut>(),
        op::STATFS => size_of::<wire::StatfsOut>(),
        op::WRITE | op::LSEEK | op::COPY_FILE_RANGE => 8,
        _ => 0,
    }
}

/// Counts of look-ups by node.
type Counts = BTreeMap<u64, u64>;

/// Answers until the connection ends. Gives the look-ups that the kernel has to forget, and those that it has forgotten.
fn daemon(
    conn: &Connection,
    fs: &std::sync::Weak<FuseFs>,
    number: u64,
    mut script: Script<'_>,
) -> (Counts, Counts) {
    let (mut given, mut forgotten) = (Counts::new(), Counts::new());
    let mut buf = vec![0; 1 << 20];
    loop {
        let n = match conn.read(number, &mut buf) {
            Ok(n) => n,
            Err(Errno::EAGAIN) => {
                thread::sleep(Duration::from_micros(20));
                continue;
            }
            Err(_) => return (given, forgotten),
        };
        let Ok((h, body)) = InHeader::read_from_prefix(&buf[..n]) else {
            unreachable!("the kernel cut a header")
        };
        assert_eq!(h.len as usize, n, "a length that is not that of the message");
        match h.opcode {
            op::INTERRUPT => continue,
            op::FORGET => {
                *forgotten.entry(h.nodeid).or_default() +=
                    u64::from_le_bytes(body.try_into().unwrap_or_default());
                continue;
            }
            op::BATCH_FORGET => {
                for one in body[8..].chunks_exact(16) {
                    let Ok(one) = wire::ForgetOne::read_from_bytes(one) else { continue };
                    *forgotten.entry(one.nodeid).or_default() += one.nlookup;
                }
                continue;
            }
            _ => {}
        }
        // An answer without a request.
        let (kind, len) = (script.byte(), usize::from(script.byte()));
        if kind & 0x40 != 0 {
            let _ = device::notice(fs, i32::from(kind & 7), script.take(len));
        }
        let answered = match kind & 7 {
            0 => conn.answer(number, h.unique, Err(Errno::from_raw(len as i32)), wire::OUT_HEADER),
            1 => {
                let bytes = script.take(len);
                match wire::written(bytes) {
                    Ok(wire::Written::Reply { unique, result }) => {
                        conn.answer(number, unique, result, bytes.len())
                    }
                    Ok(wire::Written::Notice { code, body }) => {
                        device::notice(fs, code, body).and(Err(Errno::EAGAIN))
                    }
                    Err(e) => Err(e),
                }
            }
            _ => {
                let mut bytes =
                    script.take(if usual(h.opcode) == 0 { len } else { usual(h.opcode) }).to_vec();
                bytes.resize(bytes.len().max(usual(h.opcode)), 0);
                let done = conn.answer(number, h.unique, Ok(&bytes), wire::OUT_HEADER + bytes.len());
                if done.is_ok() {
                    count(&mut given, h.opcode, &bytes);
                }
                done
            }
        };
        if answered.is_err() {
            // The request may wait still.
            let _ = conn.answer(number, h.unique, Err(Errno::EIO), wire::OUT_HEADER);
        }
    }
}

fn count(given: &mut Counts, opcode: u32, bytes: &[u8]) {
    let mut one = |entry: &wire::EntryOut| {
        if !matches!(entry.nodeid, 0 | wire::ROOT) {
            *given.entry(entry.nodeid).or_default() += 1;
        }
    };
    match opcode {
        op::READDIRPLUS => {
            for listed in wire::listed(bytes, true).map_while(Result::ok) {
                if let Some(entry) = listed.entry.filter(|_| !matches!(listed.name, b"." | b"..")) {
                    one(&entry);
                }
            }
        }
        op::LOOKUP | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK | op::CREATE => {
            if let Ok((entry, _)) = wire::EntryOut::read_from_prefix(bytes) {
                one(&entry);
            }
        }
        _ => {}
    }
}

struct Names(usize);

impl DirSink for Names {
    fn entry(&mut self, _next: u64, e: &DirEntry) -> bool {
        assert!(!e.name.contains(&b'/') && !e.name.is_empty(), "a name that is none");
        self.0 += 1;
        self.0 < 100
    }
}

/// Uses an object in all ways.
fn visit(cx: &TestCaller, inode: &InodeRef, out: &mut Vec<i32>) {
    let mut note = |r: Result<()>| out.push(r.map_or_else(Errno::raw, |()| 0));
    let kind = inode.kind();
    note(inode.refresh(cx));
    assert!(inode.attr().map_or(true, |attr| attr.file_type() == kind), "a type that changes");
    note(inode.statfs(cx).map(drop));
    note(inode.readlink(cx).map(drop));
    if let Ok(xattrs) = inode.xattrs() {
        note(xattrs.get_xattr(cx, b"user.a").map(|value| assert!(value.len() <= 65536)));
        note(xattrs.list_xattr(cx).map(drop));
        note(xattrs.set_xattr(cx, b"user.a", b"x", 0));
    }
    note(inode.set_attr(cx, &SetAttr { mode: Some(0o600), mtime: Some(TimeSet::Now), ..SetAttr::default() }));
    note(inode.ask_access(cx, 4));
    let opened = inode.open(cx, libc::O_RDWR);
    note(opened.as_ref().map(drop).map_err(|e| *e));
    let Ok(ops) = opened else { return };
    let file = OpenFile::new(None, Some(inode.clone()), ops, libc::O_RDWR);
    let mut buf = [0; 3000];
    note(file.ops.read(cx, &file, &mut buf, 5).map(|n| assert!(n <= buf.len())));
    note(file.ops.write(cx, &file, &buf, 5).map(|n| assert!(n <= buf.len())));
    for pos in [2, 100] {
        note(file.ops.read_dir(cx, &file, pos, &mut Names(0)).map(drop));
    }
    if let Some(seek) = file.ops.as_seek() {
        note(seek.seek_special(cx, &file, 3, libc::SEEK_HOLE).map(drop));
    }
    note(file.ops.allocate(cx, &file, 0, 0, 100));
    note(file.ops.sync(cx, &file, false));
    note(file.ops.flush(cx, &file));
}

fn program(cx: &TestCaller, root: &InodeRef, out: &mut Vec<i32>) {
    visit(cx, root, out);
    let mut found = Vec::new();
    for name in [&b"a"[..], b"b", b"a"] {
        match root.lookup(cx, name) {
            Ok(inode) => {
                visit(cx, &inode, out);
                found.push(inode);
            }
            Err(e) => out.push(e.raw()),
        }
    }
    let Ok(dir) = root.dir() else { return };
    for node in [NewNode::Regular, NewNode::Directory, NewNode::Symlink(b"x".to_vec()), NewNode::Fifo] {
        match dir.create(cx, b"new", &node, 0o600, 0, 0) {
            Ok(inode) => found.push(inode),
            Err(e) => out.push(e.raw()),
        }
    }
    if let Some(made) = dir.create_open(cx, b"new", 0o600, libc::O_RDWR) {
        out.push(made.map_or_else(Errno::raw, |_| 0));
    }
    if let Some(first) = found.first() {
        out.push(dir.link(cx, b"link", first).map_or_else(Errno::raw, |()| 0));
    }
    out.push(dir.rename(cx, b"a", root, b"b", 1).map_or_else(Errno::raw, |()| 0));
    out.push(dir.unlink(cx, b"a").map_or_else(Errno::raw, |()| 0));
    out.push(dir.rmdir(cx, b"b").map_or_else(Errno::raw, |()| 0));
}

/// The first byte chooses what is agreed, the rest are answers. Returns how the program's operations ended.
///
/// # Panics
/// When something is not as it must be.
pub fn run(input: &[u8]) -> Vec<i32> {
    let Some((choice, answers)) = input.split_first() else { return Vec::new() };
    let cx = TestCaller::root();
    let Some(charge) = cx.quotas().account(0).charge(Kind::FuseConnections, 1) else { return Vec::new() };
    let conn = Connection::new(Terms {
        clock: cx.resources().clock,
        user_ns: cx.creds().user_ns.clone(),
        pid_ns: cx.pid_ns(),
        user: 0,
        group: 0,
        allow_other: choice & 1 != 0,
        default_permissions: choice & 2 != 0,
        max_read: u32::MAX,
        _charge: charge,
    });
    let number = conn.add_device();
    let mut buf = vec![0; 1 << 20];
    let Ok(_) = conn.read(number, &mut buf) else { unreachable!("no FUSE_INIT") };
    let Ok((hello, _)) = InHeader::read_from_prefix(&buf[..]) else { unreachable!("no header") };
    let flags = init::OFFERED & if choice & 4 != 0 { u32::MAX } else { !init::DO_READDIRPLUS };
    let out = wire::InitOut { major: 7, minor: 31, flags, max_write: 4096, ..wire::InitOut::default() };
    let body = out.as_bytes();
    let begun = conn.answer(number, hello.unique, Ok(body), wire::OUT_HEADER + body.len());
    assert_eq!(begun, Ok(()), "FUSE_INIT");
    let fs = FuseFs::new(&conn, 1, libc::S_IFDIR | 0o755, None, String::new(), &MemFiles::new(None));
    let weak = Arc::downgrade(&fs);
    let mut ended = Vec::new();
    let (given, forgotten) = thread::scope(|scope| {
        let served = scope.spawn(|| daemon(&conn, &weak, number, Script(answers)));
        let root = fs.root();
        program(&cx, &root, &mut ended);
        drop(root);
        // Nothing is known any more: all of it is forgotten, which the daemon is to hear before the end.
        fs.trim();
        while conn.poll().intersects(Events::READABLE) {
            thread::sleep(Duration::from_micros(20));
        }
        conn.abort();
        match served.join() {
            Ok(counts) => counts,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    assert_eq!(given, forgotten, "look-ups that are given and forgotten");
    ended
}
