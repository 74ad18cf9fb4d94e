//! A connection with a daemon in the test: good and bad answers, the end of the connection, waits that end.

use crate::conn::{Call, Connection, Terms};
use crate::wire::{self, EntryOut, Listed, OutHeader, RawAttr, Room, Written, op};
use abi::Errno;
use caller::quota::Kind;
use caller::{HasCredentials, Identity, Limits};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use vfs::testing::TestCaller;
use wait::Events;
use zerocopy::{FromBytes, IntoBytes};

fn connection(cx: &TestCaller) -> (Arc<Connection>, u64) {
    let terms = Terms {
        clock: cx.resources().clock,
        user_ns: cx.creds().user_ns.clone(),
        pid_ns: cx.pid_ns(),
        user: 0,
        group: 0,
        allow_other: false,
        default_permissions: false,
        max_read: u32::MAX,
        _charge: cx.quotas().account(0).charge(Kind::FuseConnections, 1).unwrap(),
    };
    let conn = Connection::new(terms);
    let device = conn.add_device();
    (conn, device)
}

/// The next request: its operation, its number and what follows.
fn next(conn: &Connection, device: u64) -> (u32, u64, Vec<u8>) {
    let mut buf = vec![0; 1 << 20];
    let n = loop {
        match conn.read(device, &mut buf) {
            Err(Errno::EAGAIN) => thread::sleep(Duration::from_millis(1)),
            n => break n.unwrap(),
        }
    };
    let (h, body) = wire::InHeader::read_from_prefix(&buf[..n]).unwrap();
    assert_eq!(h.len as usize, n);
    (h.opcode, h.unique, body.to_vec())
}

fn reply(conn: &Connection, device: u64, unique: u64, body: &[u8]) -> abi::Result<()> {
    conn.answer(device, unique, Ok(body), wire::OUT_HEADER + body.len())
}

fn ready(cx: &TestCaller) -> (Arc<Connection>, u64) {
    let (conn, device) = connection(cx);
    let (opcode, unique, _) = next(&conn, device);
    assert_eq!(opcode, op::INIT);
    let out = wire::InitOut { major: 7, minor: 31, max_write: 1 << 17, ..wire::InitOut::default() };
    reply(&conn, device, unique, out.as_bytes()).unwrap();
    (conn, device)
}

#[test]
fn requests_and_answers() {
    let cx = TestCaller::root();
    let (conn, device) = ready(&cx);
    let asked = conn.clone();
    let asker = thread::spawn(move || {
        let cx = TestCaller::root();
        asked.call(&cx, Call::bare(op::READLINK, 5, Room::up_to(10)))
    });
    let (opcode, unique, body) = next(&conn, device);
    assert_eq!((opcode, body.len()), (op::READLINK, 0));
    assert_eq!(reply(&conn, device + 1, unique, b"x"), Err(Errno::ENOENT));
    assert_eq!(reply(&conn, device, unique + 2, b"x"), Err(Errno::ENOENT));
    reply(&conn, device, unique, b"target").unwrap();
    assert_eq!(reply(&conn, device, unique, b"target"), Err(Errno::ENOENT));
    assert_eq!(asker.join().unwrap(), Ok(b"target".to_vec()));
}

#[test]
fn a_wrong_length_is_an_error_for_both() {
    let cx = TestCaller::root();
    let (conn, device) = ready(&cx);
    let asked = conn.clone();
    let asker = thread::spawn(move || {
        let cx = TestCaller::root();
        asked.call(&cx, Call::bare(op::STATFS, 1, Room::of::<wire::StatfsOut>()))
    });
    let (_, unique, _) = next(&conn, device);
    assert_eq!(reply(&conn, device, unique, b"short"), Err(Errno::EINVAL));
    assert_eq!(asker.join().unwrap(), Err(Errno::EIO));
}

#[test]
fn the_end_of_a_connection() {
    let cx = TestCaller::root();
    let (conn, device) = ready(&cx);
    let asked = conn.clone();
    let asker = thread::spawn(move || {
        let cx = TestCaller::root();
        asked.call(&cx, Call::bare(op::STATFS, 1, Room::of::<wire::StatfsOut>()))
    });
    next(&conn, device);
    conn.remove_device(device);
    assert_eq!(asker.join().unwrap(), Err(Errno::ECONNABORTED));
    assert_eq!(conn.call(&cx, Call::bare(op::STATFS, 1, Room::NONE)), Err(Errno::ENOTCONN));
    assert_eq!(conn.read(device, &mut [0; 9000]), Err(Errno::ENODEV));
    assert_eq!(conn.poll(), Events::ERR);
}

#[test]
fn another_protocol() {
    let cx = TestCaller::root();
    let (conn, device) = connection(&cx);
    let (_, unique, _) = next(&conn, device);
    reply(&conn, device, unique, wire::InitOut { major: 8, ..wire::InitOut::default() }.as_bytes()).unwrap();
    assert_eq!(conn.call(&cx, Call::bare(op::STATFS, 1, Room::NONE)), Err(Errno::ECONNREFUSED));
}

#[test]
fn an_interruption_reaches_the_daemon() {
    let cx = TestCaller::root();
    let (conn, device) = ready(&cx);
    let asked = conn.clone();
    let caller = TestCaller::root();
    let waiter = caller.waiter.clone();
    let asker = thread::spawn(move || {
        let cx = TestCaller { waiter, ..TestCaller::root() };
        asked.call(&cx, Call::bare(op::READLINK, 5, Room::up_to(10)))
    });
    let (_, unique, _) = next(&conn, device);
    caller.waiter.set_interrupted(true);
    let (opcode, number, body) = next(&conn, device);
    assert_eq!((opcode, number), (op::INTERRUPT, unique | 1));
    assert_eq!(wire::InterruptIn::read_from_bytes(&body).unwrap().unique, unique);
    // Once more, please.
    conn.answer(device, number, Err(Errno::EAGAIN), wire::OUT_HEADER).unwrap();
    assert_eq!(next(&conn, device).0, op::INTERRUPT);
    conn.answer(device, unique, Err(Errno::EINTR), wire::OUT_HEADER).unwrap();
    assert_eq!(asker.join().unwrap(), Err(Errno::EINTR));
    assert_eq!(conn.answer(device, number, Err(Errno::EAGAIN), wire::OUT_HEADER), Err(Errno::ENOENT));
}

#[test]
fn forgets_are_told_together_and_in_turn() {
    let cx = TestCaller::root();
    let (conn, device) = ready(&cx);
    conn.forget(7, 1);
    let (opcode, _, body) = next(&conn, device);
    assert_eq!((opcode, body.len()), (op::FORGET, 8));
    for node in 2..400 {
        conn.forget(node, 3);
    }
    conn.forget(wire::ROOT, 1);
    conn.tell(Call::bare(op::RELEASE, 9, Room::NONE));
    let ops: Vec<u32> = (0..4).map(|_| next(&conn, device).0).collect();
    assert_eq!(ops, [op::RELEASE, op::BATCH_FORGET, op::BATCH_FORGET, op::BATCH_FORGET]);
}

#[test]
fn very_many_forgets_come_first_and_fill_the_buffer() {
    let cx = TestCaller::root();
    let (conn, device) = ready(&cx);
    conn.tell(Call::bare(op::RELEASE, wire::ROOT, Room::NONE));
    conn.tell(Call::bare(op::RELEASE, wire::ROOT, Room::NONE));
    let all = 150_000;
    for node in 2..all + 2 {
        conn.forget(node, 1);
    }
    let mut told = 0;
    let mut ops = Vec::new();
    while told < all {
        let (opcode, _, body) = next(&conn, device);
        ops.push(opcode);
        if opcode == op::BATCH_FORGET {
            let (head, bodies) = wire::BatchForgetIn::read_from_prefix(&body).unwrap();
            assert_eq!(bodies.len(), head.count as usize * size_of::<wire::ForgetOne>());
            told += u64::from(head.count);
        }
    }
    assert_eq!(ops[..2], [op::BATCH_FORGET, op::BATCH_FORGET]);
    assert_eq!(ops.iter().filter(|&&opcode| opcode == op::RELEASE).count(), 1);
}

#[test]
fn headers_are_judged() {
    let header = |len: u32, error: i32, unique: u64| OutHeader { len, error, unique }.as_bytes().to_vec();
    assert_eq!(wire::written(b"short"), Err(Errno::EINVAL));
    assert_eq!(wire::written(&header(17, 0, 2)), Err(Errno::EINVAL));
    assert_eq!(wire::written(&header(16, 5, 2)), Err(Errno::EINVAL));
    assert_eq!(wire::written(&header(16, -512, 2)), Err(Errno::EINVAL));
    assert_eq!(wire::written(&header(16, i32::MIN, 2)), Err(Errno::EINVAL));
    assert_eq!(
        wire::written(&header(16, -2, 2)),
        Ok(Written::Reply { unique: 2, result: Err(Errno::ENOENT) })
    );
    assert_eq!(wire::written(&header(16, 3, 0)), Ok(Written::Notice { code: 3, body: b"" }));
}

#[test]
fn agreements_are_bounded() {
    let out = wire::InitOut {
        major: 7,
        minor: 99,
        flags: u32::MAX,
        max_write: u32::MAX,
        max_pages: u16::MAX,
        ..wire::InitOut::default()
    };
    let agreed = wire::agree(out.as_bytes()).unwrap();
    assert_eq!((agreed.minor, agreed.max_pages), (wire::MINOR, wire::MAX_PAGES));
    assert_eq!(agreed.max_write, wire::MAX_PAGES * wire::PAGE);
    assert_eq!(agreed.flags & !wire::init::OFFERED, 0);
    let little = wire::InitOut { max_write: 1, max_pages: 0, ..out };
    assert_eq!(wire::agree(little.as_bytes()).unwrap().max_write, wire::PAGE);
    for n in 0..24 {
        assert_eq!(wire::agree(&out.as_bytes()[..n]), None);
    }
    assert_eq!(wire::agree(wire::InitOut { minor: 3, ..out }.as_bytes()), None);
}

#[test]
fn attributes_are_judged() {
    let file = RawAttr { mode: 0o100644, ..RawAttr::default() };
    assert_eq!(file.check(), Ok(()));
    assert_eq!(RawAttr { mode: 0o644, ..file }.check(), Err(Errno::EIO));
    assert_eq!(RawAttr { mode: 0o170644, ..file }.check(), Err(Errno::EIO));
    assert_eq!(RawAttr { size: 1 << 63, ..file }.check(), Err(Errno::EIO));
    for rdev in [0, 0x103, 0x1234_5678, 0x000f_ff00] {
        assert_eq!(wire::raw_device(wire::device(rdev)), rdev);
    }
}

fn dirent(namelen: u32, name: &[u8]) -> Vec<u8> {
    let mut bytes = wire::Dirent { ino: 5, off: 1, namelen, kind: 8 }.as_bytes().to_vec();
    bytes.extend_from_slice(name);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[test]
fn listings_are_judged() {
    let both = [dirent(1, b"a"), dirent(9, b"ninebytes")].concat();
    let names: Vec<_> = wire::listed(&both, false).map(|e| e.unwrap().name.to_vec()).collect();
    assert_eq!(names, [b"a".to_vec(), b"ninebytes".to_vec()]);
    let first = |bytes: &[u8]| wire::listed(bytes, false).next().map(|e| e.map(|_| ()));
    assert_eq!(first(&dirent(3, b"a/b")), Some(Err(Errno::EIO)));
    assert_eq!(first(&dirent(3, b"a\0b")), Some(Err(Errno::EIO)));
    assert_eq!(first(&dirent(0, b"")), Some(Err(Errno::EIO)));
    assert_eq!(first(&dirent(u32::MAX, b"x")), Some(Err(Errno::EIO)));
    assert_eq!(first(&dirent(4000, b"x")), None);
    assert_eq!(first(b"cut off"), None);
    let mut plus = EntryOut { nodeid: 3, ..EntryOut::default() }.as_bytes().to_vec();
    plus.extend(dirent(5, b"plus!"));
    plus.resize(plus.len().next_multiple_of(8), 0);
    let found: Vec<Listed<'_>> = wire::listed(&plus, true).map(Result::unwrap).collect();
    assert_eq!((found.len(), found[0].name, found[0].entry.unwrap().nodeid), (1, &b"plus!"[..], 3));
}

#[test]
fn a_node_is_forgotten_after_its_requests_are_answered() {
    let cx = TestCaller::root();
    let (conn, device) = ready(&cx);
    // Requests without a thread that waits.
    conn.tell(Call::bare(op::RELEASE, 5, Room::NONE));
    conn.tell(Call::new(op::RENAME, 6, &wire::RenameIn { newdir: 5 }, Room::NONE));
    conn.forget(5, 2);
    conn.forget(7, 1);
    conn.forget(5, 1);
    let first = [next(&conn, device), next(&conn, device), next(&conn, device)];
    let release = first.iter().find(|m| m.0 == op::RELEASE).unwrap();
    let rename = first.iter().find(|m| m.0 == op::RENAME).unwrap();
    // 7 is not named by any request.
    assert!(first.iter().any(|m| m.0 == op::FORGET));
    let mut buf = vec![0; 1 << 20];
    assert_eq!(conn.read(device, &mut buf), Err(Errno::EAGAIN));
    reply(&conn, device, release.1, b"").unwrap();
    assert_eq!(conn.read(device, &mut buf), Err(Errno::EAGAIN));
    reply(&conn, device, rename.1, b"").unwrap();
    let (opcode, _, body) = next(&conn, device);
    assert_eq!((opcode, wire::ForgetIn::read_from_bytes(&body).unwrap().nlookup), (op::FORGET, 3));
}
