use crate::msg::{MSG_COPY, MSG_EXCEPT, Message};
use crate::sem::{Ask, SemBuf, UndoList};
use crate::{IPC_PRIVATE, IpcNamespace};
use abi::Errno;
use std::sync::Arc;
use user_ns::UserNamespace;
use vfs::Failure;
use vfs::testing::TestCaller;

fn user(id: u32) -> TestCaller {
    TestCaller::user(id).with_pid(7).interrupted()
}

const CREAT: i32 = libc::IPC_CREAT;

fn message(kind: i64, text: &str) -> Message {
    Message { kind, text: text.as_bytes().to_vec() }
}

fn namespace() -> Arc<IpcNamespace> {
    IpcNamespace::new(UserNamespace::initial(), tmpfs::Memfds::new(&tmpfs::MemFiles::new(None)))
}

#[test]
fn keys_ids_and_permissions() {
    let ns = namespace();
    assert_eq!(ns.msgget(&user(10), 5, 0), Err(Errno::ENOENT));
    let id = ns.msgget(&user(10), 5, CREAT | 0o640).expect("made");
    assert_eq!(ns.msgget(&user(10), 5, CREAT), Ok(id));
    assert_eq!(ns.msgget(&user(10), 5, CREAT | libc::IPC_EXCL), Err(Errno::EEXIST));
    assert_eq!(ns.msgget(&user(20), 5, 0o400), Err(Errno::EACCES));
    assert_eq!(ns.msgget(&user(20), 5, 0), Ok(id));
    assert_ne!(ns.msgget(&user(10), IPC_PRIVATE, 0), ns.msgget(&user(10), IPC_PRIVATE, 0));
    assert_eq!(ns.msg_remove(&user(20), id), Err(Errno::EPERM));
    assert_eq!(ns.msg_remove(&user(10), id), Ok(()));
    assert_eq!(ns.msg_remove(&user(10), id), Err(Errno::EINVAL));
    assert_eq!(ns.msg_stat(&user(10), -1).map(|_| ()), Err(Errno::EINVAL));
}

#[test]
fn an_index_used_again_gives_another_id() {
    let ns = namespace();
    let first = ns.semget(&user(10), IPC_PRIVATE, 1, 0o600).expect("made");
    ns.sem_remove(&user(10), first).expect("removed");
    for _ in 0..63 {
        let id = ns.semget(&user(10), IPC_PRIVATE, 1, 0o600).expect("made");
        ns.sem_remove(&user(10), id).expect("removed");
    }
    let again = ns.semget(&user(10), IPC_PRIVATE, 1, 0o600).expect("made");
    assert_eq!((again % 32768, again != first), (first % 32768, true));
    assert_eq!(ns.sem_stat(&user(10), first).map(|_| ()), Err(Errno::EIDRM));
}

#[test]
fn messages_by_type() {
    let ns = namespace();
    let q = ns.msgget(&user(10), IPC_PRIVATE, 0o600).expect("made");
    for (k, t) in [(3, "three"), (1, "one"), (2, "two"), (1, "uno")] {
        ns.msgsnd(&user(10), q, message(k, t), 0).expect("sent");
    }
    let take = |kind, flags| ns.msgrcv(&user(10), q, 100, kind, flags | libc::IPC_NOWAIT);
    assert_eq!(take(1, MSG_COPY), Ok(message(1, "one")));
    assert_eq!(take(-2, 0), Ok(message(1, "one")));
    assert_eq!(take(1, MSG_EXCEPT), Ok(message(3, "three")));
    assert_eq!(take(9, 0), Err(Failure::Errno(Errno::ENOMSG)));
    assert_eq!(ns.msgrcv(&user(10), q, 1, 0, 0), Err(Failure::Errno(Errno::E2BIG)));
    assert_eq!(take(0, 0), Ok(message(2, "two")));
    assert_eq!(take(i64::MIN, 0), Ok(message(1, "uno")));
    assert_eq!(ns.msgrcv(&user(10), q, 1, 0, 0), Err(Failure::Interrupted));
}

#[test]
fn all_messages_together_are_bounded() {
    let ns = namespace();
    let mut sent = 0u64;
    let end = loop {
        let q = ns.msgget(&user(10), IPC_PRIVATE, 0o600).expect("made");
        let r = loop {
            match ns.msgsnd(&user(10), q, message(1, &"x".repeat(8192)), libc::IPC_NOWAIT) {
                Ok(()) => sent += 8192,
                Err(e) => break e,
            }
        };
        if r != Failure::Errno(Errno::EAGAIN) {
            break r;
        }
    };
    assert_eq!(end, Failure::Errno(Errno::ENOMEM));
    assert!(sent <= 64 << 20);
}

#[test]
fn semaphores_change_together_or_not_at_all() {
    let (ns, me) = (namespace(), user(10));
    let id = ns.semget(&me, IPC_PRIVATE, 3, 0o600).expect("made");
    let op = |num, op, flags| SemBuf { num, op, flags };
    let none = || unreachable!();
    let r = ns.semop(&me, id, &[op(0, 5, 0), op(1, -1, libc::IPC_NOWAIT as i16)], None, none);
    assert_eq!(r, Err(Failure::Errno(Errno::EAGAIN)));
    assert_eq!(ns.sem_values(&me, id), Ok(vec![0, 0, 0]));
    assert_eq!(ns.semop(&me, id, &[op(0, 5, 0), op(0, -2, 0), op(2, 0, 0)], None, none), Ok(()));
    assert_eq!(ns.sem_values(&me, id), Ok(vec![3, 0, 0]));
    assert_eq!(ns.semop(&me, id, &[op(1, -1, 0)], None, none), Err(Failure::Errno(Errno::EINTR)));
    assert_eq!(ns.sem_ask(&me, id, 1, Ask::Increase), Ok(0));
    assert_eq!(ns.semop(&me, id, &[op(3, 1, 0)], None, none), Err(Failure::Errno(Errno::EFBIG)));
    assert_eq!(ns.semop(&me, id, &[op(0, 32767, 0)], None, none), Err(Failure::Errno(Errno::ERANGE)));
    assert_eq!(ns.sem_ask(&me, id, 0, Ask::Pid), Ok(7));
}

#[test]
fn what_is_to_be_undone_is() {
    let (ns, me) = (namespace(), user(10));
    let id = ns.semget(&me, IPC_PRIVATE, 2, 0o600).expect("made");
    me.pid_ns.set_last(8);
    let nine = me.pid_ns.alloc().expect("free");
    let list = UndoList::new(ns.clone(), Arc::clone(&nine));
    let op = |num, op| SemBuf { num, op, flags: 0x1000 };
    ns.semop(&me, id, &[op(0, 4), op(1, 2)], None, || list.clone()).expect("made");
    ns.sem_set_value(&me, id, 1, 8).expect("set");
    drop(list);
    assert_eq!(ns.sem_values(&me, id), Ok(vec![0, 8]));
    assert_eq!(ns.sem_ask(&me, id, 0, Ask::Pid), Ok(9));
}

#[test]
fn adjustments_are_bounded_and_given_back() {
    let ns = namespace();
    let id = ns.semget(&user(10), IPC_PRIVATE, 32000, 0o600).expect("made");
    let op = [SemBuf { num: 0, op: 1, flags: 0x1000 }];
    let mut lists = Vec::new();
    let end = loop {
        let list = UndoList::new(ns.clone(), Arc::clone(&TestCaller::root().with_pid(9).pid));
        match ns.semop(&user(10), id, &op, None, || list.clone()) {
            Ok(()) => lists.push(list),
            Err(e) => break e,
        }
    };
    assert_eq!(end, Failure::Errno(Errno::ENOSPC));
    assert!((1000..1100).contains(&lists.len()), "{}", lists.len());
    drop(lists);
    assert_eq!(ns.sem_ask(&user(10), id, 0, Ask::Value), Ok(0));
    assert_eq!(ns.undo_bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}
