use crate::msg::{MSG_COPY, MSG_EXCEPT, Message};
use crate::sem::{Ask, SemBuf, UndoList};
use crate::{IPC_PRIVATE, IpcNamespace, IpcState};
use abi::Errno;
use caller::Failure;
use std::sync::Arc;
use user_ns::UserNamespace;
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

#[test]
fn state_and_back() {
    let (ns, me) = (namespace(), user(10));
    ns.limits.msgmnb.store(300, std::sync::atomic::Ordering::Relaxed);
    // Another sequence number than the first.
    for _ in 0..70 {
        let id = ns.msgget(&me, IPC_PRIVATE, 0o600).expect("made");
        ns.msg_remove(&me, id).expect("removed");
    }
    let queue = ns.msgget(&me, 5, CREAT | 0o640).expect("made");
    for (kind, text) in [(1, "one"), (2, "two"), (1, "uno")] {
        ns.msgsnd(&me, queue, message(kind, text), 0).expect("sent");
    }
    ns.msgrcv(&me, queue, 9, 1, 0).expect("received");
    let set = ns.semget(&me, 6, 3, CREAT | 0o600).expect("made");
    let nine = me.pid_ns.alloc().expect("free");
    let list = UndoList::new(ns.clone(), Arc::clone(&nine));
    let op = |num, op| SemBuf { num, op, flags: 0x1000 };
    ns.semop(&me, set, &[op(0, 4), op(2, 2)], None, || list.clone()).expect("made");
    let shm = ns.shmget(&me, 7, 5000, CREAT | 0o600).expect("made");
    let attached = ns.shm_open(&me, shm, 0).expect("opened");
    ns.shm_remove(&me, shm).expect("marked");

    let saved = ns.state();
    let undo = list.state();
    let segment = ns.shm_files().pop().expect("one");
    let find_file = |id| (id == segment.id).then(|| segment.clone());
    let find = |nr| me.pid_ns.find(nr);
    let memfds = || tmpfs::Memfds::new(&tmpfs::MemFiles::new(None));
    let none = IpcNamespace::restore(UserNamespace::initial(), memfds(), &saved, find, |_| None);
    assert_eq!(none.err(), Some(Errno::ENOENT));
    let again =
        IpcNamespace::restore(UserNamespace::initial(), memfds(), &saved, find, find_file).expect("restored");
    assert_eq!(again.state(), saved);
    let list = UndoList::restore(again.clone(), &undo, Arc::clone(&nine));
    assert_eq!(list.state(), undo);

    // Objects are found by their keys and IDs, and new ones get the IDs that would have come next.
    assert_eq!([again.msgget(&me, 5, 0), again.semget(&me, 6, 0, 0)], [Ok(queue), Ok(set)]);
    assert_eq!(again.msgget(&user(20), 5, 0o200), Err(Errno::EACCES));
    assert_eq!(again.msgget(&me, IPC_PRIVATE, 0), ns.msgget(&me, IPC_PRIVATE, 0));
    assert_eq!(again.msgrcv(&me, queue, 9, 1, 0), Ok(message(1, "uno")));
    assert_eq!(
        again.msgsnd(&me, queue, message(1, &"x".repeat(299)), libc::IPC_NOWAIT),
        Err(Errno::EAGAIN.into())
    );
    assert_eq!(again.msg_stat(&me, queue).map(|ds| (ds.qnum, ds.lspid, ds.qbytes)), Ok((1, 7, 300)));
    assert_eq!(again.sem_values(&me, set), Ok(vec![4, 0, 2]));
    drop(list);
    assert_eq!(again.sem_values(&me, set), Ok(vec![0, 0, 0]));
    assert_eq!(again.sem_ask(&me, set, 0, Ask::Pid), Ok(nine.nr()));
    // The segment is there until the last of its mappings, which are made again, is gone.
    let file = again.shm_file(&attached.file.state(), shm).expect("there");
    assert_eq!(crate::shm::segment_of(&file), Some(shm));
    let mapped = files::MappedFile::new(file);
    again.shm_settle();
    assert_eq!(again.shm_stat(&me, shm).map(|ds| (ds.nattch, ds.segsz)), Ok((1, 5000)));
    drop(mapped);
    assert_eq!(again.shm_stat(&me, shm).map(drop), Err(Errno::EINVAL));
    // What is given back can be taken again.
    again.msg_remove(&me, queue).expect("removed");
    again.sem_remove(&me, set).expect("removed");
    let counters = [&again.msg_bytes, &again.sems, &again.undo_bytes];
    assert_eq!(counters.map(|n| n.load(std::sync::atomic::Ordering::Relaxed)), [0, 0, 0]);
}

#[test]
fn hostile_states() {
    let (ns, me) = (namespace(), user(10));
    ns.shmget(&me, 7, 5000, CREAT | 0o600).expect("made");
    ns.semget(&me, 6, 3, CREAT | 0o600).expect("made");
    ns.msgget(&me, 5, CREAT | 0o600).expect("made");
    let segment = ns.shm_files().pop().expect("one");
    let good = ns.state();
    let fill = |saved: &IpcState| namespace().fill(saved, |_| None, |_| Some(segment.clone()));
    assert_eq!(fill(&good), Ok(()));
    let bad = |change: fn(&mut IpcState)| {
        let mut saved = good.clone();
        change(&mut saved);
        fill(&saved)
    };
    let changes: [fn(&mut IpcState); 11] = [
        |s| s.shm.objects[0].size = u64::MAX,
        |s| s.shm.objects[0].size = 0,
        |s| s.shm.objects[0].size = 8193,
        |s| s.shm.objects[0].perm.id = -1,
        |s| s.shm.position.0 = usize::MAX,
        |s| s.shm.position.1 = i32::MAX,
        |s| s.sem.objects[0].sems[0].value = -1,
        |s| s.sem.objects[0].sems[0].value = i32::MAX,
        |s| s.sem.objects[0].sems.clear(),
        |s| s.sem.objects[0].undo = vec![(1, vec![0; 4])],
        |s| s.msg.objects.extend(s.msg.objects.clone()),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        assert_eq!(bad(change), Err(Errno::EINVAL), "{n}");
    }
}
