use super::*;
use abi::stat::{Attr, StatFs};
use abi::time::Timespec;

const KEY: Key = Key { dev: 7, ino: u64::MAX };
const RIGHTS: Rights = Rights { mode: 0o7777, uid: 1000, gid: u32::MAX };
const NAMED: Target<'_> = Target::Named { dir: 5, name: b"file", key: KEY };

fn all_changes() -> [Changes; 3] {
    let time = Timespec { sec: -1, nsec: 999_999_999 };
    let none = Changes::default();
    let all = Changes {
        mode: Some(0o644),
        uid: Some(1),
        gid: Some(2),
        size: Some(i64::MAX as u64),
        atime: SetTime::At(time),
        mtime: SetTime::At(time),
    };
    [none, all, Changes { size: Some(0), mtime: SetTime::Now, ..none }]
}

fn requests() -> Vec<Request<'static>> {
    let mut all = vec![
        Request::Attach { version: VERSION },
        Request::Channel,
        Request::Walk { dir: 1, path: b"a/b c/.x", keep: true },
        Request::Stat { dir: 1 },
        Request::OpenDirectory { dir: u64::MAX },
        Request::OpenAgain { access: Access::ReadWrite },
        Request::ReadLinkAgain,
        Request::Create { dir: 1, name: b"new", rights: RIGHTS },
        Request::CreateUnnamed { dir: 1, rights: RIGHTS },
        Request::Link { from: Source::Named { dir: 1, name: b"old" }, dir: 2, name: b"new" },
        Request::Link { from: Source::Descriptor, dir: 2, name: b"new" },
        Request::Unlink { dir: 1, name: b"..a", directory: true },
        Request::Rename { from_dir: 1, from: b"a", to_dir: 2, to: b"b", flags: 2 },
        Request::ReadLink { dir: 1, name: b"link" },
        Request::List { dir: 1, cookie: u64::MAX, attributes: true },
        Request::GetXattr { target: NAMED, name: b"user.x" },
        Request::SetXattr { target: Target::Directory(3), name: b"user.x", value: b"", flags: 1 },
        Request::SetXattr { target: NAMED, name: &[b'x'; MAX_NAME], value: &[1; MAX_VALUE], flags: 0 },
        Request::ListXattr { target: Target::Descriptor },
        Request::RemoveXattr { target: NAMED, name: b"user.x" },
        Request::StatFs { dir: 1 },
        Request::Mark { target: NAMED, mask: u64::MAX, remove: true },
        Request::Close { handles: Vec::new() },
        Request::Close { handles: (0..MAX_CLOSE as u64).collect() },
        Request::Look { dir: 1, places: false, names: vec![b"a"] },
        Request::Look { dir: 1, places: true, names: vec![&[b'x'; MAX_NAME]; MAX_LOOK] },
    ];
    for access in [Access::Place, Access::Read, Access::Write, Access::ReadWrite, Access::Directory] {
        all.push(Request::Open { dir: 1, name: b"a", access });
    }
    for kind in [Kind::Directory, Kind::Fifo, Kind::Socket, Kind::Whiteout, Kind::Symlink(b"/to/../x")] {
        all.push(Request::Make { dir: 1, name: b"a", kind, rights: RIGHTS });
    }
    for changes in all_changes() {
        all.push(Request::SetAttr { target: NAMED, changes });
        all.push(Request::SetAttr { target: Target::Descriptor, changes });
    }
    all
}

fn replies() -> Vec<(u16, Reply)> {
    let time = Timespec { sec: i64::MIN, nsec: 1 };
    let plain = Attr { dev: 1, ino: 2, mode: 0o100644, nlink: 3, uid: 4, gid: 5, rdev: 6, ..Attr::default() };
    let attr = Attr { size: 7, blksize: 8, blocks: 9, atime: time, mtime: time, btime: Some(time), ..plain };
    let statfs =
        StatFs { f_type: -1, f_bsize: 4096, f_blocks: u64::MAX, f_fsid: [-1, 2], ..StatFs::default() };
    let entry = |name: &[u8], attr| Entry { ino: 3, kind: 8, name: name.to_vec(), attr };
    let entries = vec![entry(b"a", None), entry(&[b'x'; MAX_NAME], Some(attr)), entry(b"...", Some(plain))];
    vec![
        (operation::ATTACH, Reply::Attached { version: VERSION, root: 1, attr, statfs }),
        (
            operation::WALK,
            Reply::Walked { own: attr, attrs: vec![attr; MAX_COMPONENTS], errno: 0, handle: 9 },
        ),
        (operation::WALK, Reply::Walked { own: attr, attrs: Vec::new(), errno: 2, handle: 0 }),
        (operation::STAT, Reply::Attr(plain)),
        (operation::MAKE, Reply::Attr(attr)),
        (operation::SET_ATTR, Reply::Attr(attr)),
        (operation::OPEN, Reply::Opened(attr)),
        (operation::OPEN_DIRECTORY, Reply::Opened(attr)),
        (operation::OPEN_AGAIN, Reply::Opened(attr)),
        (operation::READ_LINK_AGAIN, Reply::Link { attr, text: vec![b'.'] }),
        (operation::CREATE, Reply::Opened(attr)),
        (operation::CREATE_UNNAMED, Reply::Opened(attr)),
        (operation::READ_LINK, Reply::Link { attr, text: vec![b'.'; MAX_TEXT] }),
        (operation::LIST, Reply::Entries { next: 4, entries }),
        (operation::LIST, Reply::Entries { next: 0, entries: Vec::new() }),
        (operation::GET_XATTR, Reply::Bytes(vec![0; MAX_VALUE])),
        (operation::LIST_XATTR, Reply::Bytes(b"user.x\0".to_vec())),
        (operation::MARK, Reply::Bytes(Vec::new())),
        (operation::STAT_FS, Reply::StatFs(statfs)),
        (operation::CHANNEL, Reply::Done),
        (operation::CLOSE, Reply::Done),
        (operation::LOOK, Reply::Looked(vec![Found::Object { attr, placed: true }; MAX_LOOK])),
        (
            operation::LOOK,
            Reply::Looked(vec![Found::Failed(2), Found::Object { attr: plain, placed: false }]),
        ),
        (operation::STAT, Reply::Failed(2)),
        (operation::CLOSE, Reply::Failed(4095)),
    ]
}

/// Lengths to cut a message to; long ones are cut near their ends and at some places.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (0..length).filter(move |cut| *cut < 512 || length - cut < 64 || cut % 509 == 0)
}

#[test]
fn requests_have_one_form() {
    for request in requests() {
        let bytes = request.encode(0x1234_5678);
        assert!(bytes.len() <= MAX_MESSAGE);
        let plain = Header { sequence: 0x1234_5678, operation: request.operation(), processor: 0 };
        assert_eq!(header(&bytes), Some(plain));
        assert_eq!(Request::decode(&bytes), Some((plain, request.clone())));
        let hinted = Header { processor: 0x201, ..plain };
        let with_hint = request.encode_on(hinted.sequence, hinted.processor);
        assert_eq!(Request::decode(&with_hint), Some((hinted, request.clone())));
        assert_eq!((&bytes[..6], &bytes[8..]), (&with_hint[..6], &with_hint[8..]));
        for cut in cuts(bytes.len()) {
            assert_eq!(Request::decode(&bytes[..cut]), None, "{request:?} {cut}");
        }
        for more in [&[0][..], &[0; 8], &[255; 4]] {
            assert_eq!(Request::decode(&[&bytes, more].concat()), None, "{request:?}");
        }
        for (at, value) in [(4, 0), (4, 26), (5, 1)] {
            let mut other = bytes.clone();
            other[at] = value;
            assert_eq!(Request::decode(&other), None, "{request:?} {at}");
        }
    }
}

#[test]
fn replies_have_one_form() {
    for (operation, reply) in replies() {
        let bytes = reply.encode(9, operation);
        assert!(bytes.len() <= MAX_MESSAGE);
        assert_eq!(Reply::decode(&bytes, 9, operation), Some(reply.clone()));
        assert_eq!(Reply::decode(&bytes, 8, operation), None);
        assert_eq!(Reply::decode(&bytes, 9, operation + 1), None);
        for cut in cuts(bytes.len()) {
            assert_eq!(Reply::decode(&bytes[..cut], 9, operation), None, "{reply:?} {cut}");
        }
        for more in [&[0][..], &[0; 8], &[255; 4]] {
            assert_eq!(Reply::decode(&[&bytes, more].concat(), 9, operation), None, "{reply:?}");
        }
        for errno in [4096, -1] {
            let bytes = Reply::Failed(errno).encode(9, operation);
            assert_eq!(Reply::decode(&bytes, 9, operation), None);
        }
    }
}

#[test]
fn bad_names_are_refused() {
    let long = [b'a'; MAX_NAME + 1];
    for name in [&b""[..], b".", b"..", b"/", b"a/", b"/a", b"a/b", b"a\0", &long] {
        let of = |request: Request<'_>| assert_eq!(Request::decode(&request.encode(1)), None, "{request:?}");
        let target = Target::Named { dir: 1, name, key: KEY };
        of(Request::Open { dir: 1, name, access: Access::Read });
        of(Request::Create { dir: 1, name, rights: RIGHTS });
        of(Request::Make { dir: 1, name, kind: Kind::Fifo, rights: RIGHTS });
        of(Request::Link { from: Source::Named { dir: 1, name }, dir: 1, name: b"a" });
        of(Request::Link { from: Source::Descriptor, dir: 1, name });
        of(Request::Unlink { dir: 1, name, directory: false });
        of(Request::Rename { from_dir: 1, from: name, to_dir: 1, to: b"a", flags: 0 });
        of(Request::Rename { from_dir: 1, from: b"a", to_dir: 1, to: name, flags: 0 });
        of(Request::ReadLink { dir: 1, name });
        of(Request::SetAttr { target, changes: Changes::default() });
        of(Request::GetXattr { target, name: b"user.x" });
        of(Request::ListXattr { target });
        of(Request::Mark { target, mask: 0, remove: false });
        let entries = vec![Entry { ino: 1, kind: 0, name: name.to_vec(), attr: None }];
        let bytes = Reply::Entries { next: 0, entries }.encode(1, operation::LIST);
        assert_eq!(Reply::decode(&bytes, 1, operation::LIST), None);
    }
    let deep = vec!["a"; MAX_COMPONENTS + 1].join("/");
    let long = vec!["a".repeat(255); 16].join("/") + "/b";
    for path in ["", "/", "a/", "/a", "a//b", "a/../b", "a/./b", ".", "..", "a\0", &deep, &long] {
        let request = Request::Walk { dir: 1, path: path.as_bytes(), keep: false };
        assert_eq!(Request::decode(&request.encode(1)), None, "{path:?}");
    }
    assert!(is_path(&deep.as_bytes()[2..]) && is_path(&long.as_bytes()[2..]));
}

#[test]
fn values_out_of_bounds_are_refused() {
    let of = |request: Request<'_>| assert_eq!(Request::decode(&request.encode(1)), None, "{request:?}");
    of(Request::Create { dir: 1, name: b"a", rights: Rights { mode: 0o10000, ..RIGHTS } });
    of(Request::Make { dir: 1, name: b"a", kind: Kind::Symlink(b""), rights: RIGHTS });
    of(Request::Make { dir: 1, name: b"a", kind: Kind::Symlink(&[b'a'; MAX_TEXT + 1]), rights: RIGHTS });
    of(Request::GetXattr { target: NAMED, name: b"" });
    of(Request::GetXattr { target: NAMED, name: b"a\0b" });
    of(Request::SetXattr { target: NAMED, name: b"a", value: &[0; MAX_VALUE + 1], flags: 0 });
    of(Request::Close { handles: vec![1; MAX_CLOSE + 1] });
    of(Request::Look { dir: 1, places: true, names: Vec::new() });
    of(Request::Look { dir: 1, places: true, names: vec![b"a"; MAX_LOOK + 1] });
    of(Request::Look { dir: 1, places: true, names: vec![b"a", b"a/b"] });
    for changes in [
        Changes { mode: Some(0o100644), ..Changes::default() },
        Changes { size: Some(1 << 63), ..Changes::default() },
        Changes { atime: SetTime::At(Timespec { sec: 0, nsec: 1_000_000_000 }), ..Changes::default() },
        Changes { mtime: SetTime::At(Timespec { sec: 0, nsec: -1 }), ..Changes::default() },
    ] {
        of(Request::SetAttr { target: NAMED, changes });
    }
    let reply = |operation, reply: Reply| {
        assert_eq!(Reply::decode(&reply.encode(1, operation), 1, operation), None, "{reply:?}");
    };
    let attr = Attr::default();
    reply(operation::STAT, Reply::Attr(Attr { mode: 1 << 16, ..attr }));
    reply(operation::STAT, Reply::Attr(Attr { size: 1 << 63, ..attr }));
    let bad = Timespec { sec: 0, nsec: 1_000_000_000 };
    reply(operation::STAT, Reply::Attr(Attr { mtime: bad, ..attr }));
    reply(operation::STAT, Reply::Attr(Attr { btime: Some(bad), ..attr }));
    reply(
        operation::WALK,
        Reply::Walked { own: attr, attrs: vec![attr; MAX_COMPONENTS + 1], errno: 0, handle: 0 },
    );
    reply(operation::WALK, Reply::Walked { own: attr, attrs: vec![attr], errno: 24, handle: 1 });
    reply(operation::READ_LINK, Reply::Link { attr, text: Vec::new() });
    reply(operation::GET_XATTR, Reply::Bytes(vec![0; MAX_VALUE + 1]));
    let statfs = StatFs::default();
    reply(operation::ATTACH, Reply::Attached { version: 1, root: 0, attr, statfs });
}

#[test]
fn lists_fill_a_message() {
    let name = |n: usize| format!("{n:0255}").into_bytes();
    let attr = Some(Attr::default());
    let entry = |n| Entry { ino: 1, kind: 1, name: name(n), attr };
    assert_eq!(entry(1).size(), MAX_ENTRY);
    let count = (MAX_MESSAGE - HEADER - 4 - 12) / MAX_ENTRY;
    let full = |count| Reply::Entries { next: 1, entries: (0..count).map(entry).collect() };
    let bytes = full(count).encode(1, operation::LIST);
    assert_eq!(Reply::decode(&bytes, 1, operation::LIST), Some(full(count)));
    let more = full(count + 1).encode(1, operation::LIST);
    assert!(more.len() > MAX_MESSAGE && Reply::decode(&more, 1, operation::LIST).is_none());
    assert_eq!(Reply::Attr(Attr::default()).encode(1, operation::STAT).len(), HEADER + 4 + ATTR);
    assert_eq!(Reply::StatFs(StatFs::default()).encode(1, operation::STAT_FS).len(), HEADER + 4 + STATFS);
}

#[test]
fn random_bytes_do_no_harm() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let good: Vec<_> = requests().iter().map(|request| request.encode(1)).collect();
    let replies: Vec<_> = replies().iter().map(|(operation, reply)| reply.encode(1, *operation)).collect();
    let check = |bytes: &[u8]| {
        if let Some((header, request)) = Request::decode(bytes) {
            assert_eq!(request.encode_on(header.sequence, header.processor), bytes);
        }
        for operation in operation::ATTACH..=operation::READ_LINK_AGAIN {
            if let Some(reply) = Reply::decode(bytes, 1, operation) {
                assert_eq!(reply.encode(1, operation), bytes);
            }
        }
    };
    for _ in 0..20_000 {
        let mut bytes: Vec<u8> = (0..next() % 200).map(|_| next() as u8).collect();
        check(&bytes);
        let header = [1, 0, 0, 0, (next() % 25) as u8, 0, 0, 0];
        let length = bytes.len().min(8);
        bytes[..length].copy_from_slice(&header[..length]);
        check(&bytes);
        for messages in [&good, &replies] {
            let mut bytes = messages[next() as usize % messages.len()].clone();
            if bytes.len() < 5000 {
                let at = next() as usize % bytes.len();
                bytes[at] = next() as u8;
                check(&bytes);
            }
        }
    }
}
