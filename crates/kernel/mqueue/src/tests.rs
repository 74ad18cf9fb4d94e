use crate::{
    Attributes, MAX_BYTES, Mqueues, MqueuesState, Notification, NotificationState, QueueFile, QueueState,
};
use abi::Errno;
use caller::Failure;
use vfs::testing::TestCaller;

fn user(caps: u64) -> TestCaller {
    let rlimit = if caps == 0 { 819_200 } else { u64::MAX };
    TestCaller { rlimit, ..TestCaller::with_caps(caps).with_pid(7).interrupted() }
}

const NEW: i32 = libc::O_CREAT | libc::O_RDWR;

fn sized(maxmsg: i64, msgsize: i64) -> Option<Attributes> {
    Some(Attributes { maxmsg, msgsize, ..Attributes::default() })
}

#[test]
fn names_and_limits() {
    let (all, cx) = (Mqueues::new(33), user(0));
    let open =
        |name: &[u8], flags, a: Option<Attributes>| all.open(&cx, name, flags, 0o600, a.as_ref()).map(drop);
    assert_eq!(open(b"a", libc::O_RDWR, None), Err(Errno::ENOENT));
    assert_eq!(open(b"a", NEW, None), Ok(()));
    assert_eq!(open(b"a", NEW | libc::O_EXCL, None), Err(Errno::EEXIST));
    assert_eq!(open(b"a/b", NEW, None), Err(Errno::EACCES));
    assert_eq!(open(&[b'x'; 256], NEW, None), Err(Errno::ENAMETOOLONG));
    for (n, s) in [(0, 1), (1, 0), (-1, 1), (11, 1), (1, 8193)] {
        assert_eq!(open(b"b", NEW, sized(n, s)), Err(Errno::EINVAL), "{n} {s}");
    }
    // RLIMIT_MSGQUEUE: nine more queues of the default size, and what was taken is given back.
    let names: Vec<_> = (0..20).map(|i| format!("q{i}")).collect();
    let fit = names.iter().take_while(|n| open(n.as_bytes(), NEW, None).is_ok()).count();
    assert_eq!(open(b"more", NEW, None), Err(Errno::EMFILE));
    assert_eq!(fit, 8);
    assert_eq!(all.remove(&cx, b"a"), Ok(()));
    assert_eq!(all.remove(&cx, b"a"), Err(Errno::ENOENT));
    assert_eq!(open(b"more", NEW, None), Ok(()));
}

#[test]
fn highest_priority_first_then_oldest() {
    let (all, cx) = (Mqueues::new(33), user(0));
    let f = all.open(&cx, b"a", NEW | libc::O_NONBLOCK, 0o600, sized(4, 8).as_ref()).expect("opened");
    let q = QueueFile::of(&f).expect("a queue");
    for (text, priority) in [("one", 1), ("two", 2), ("uno", 1), ("dos", 2)] {
        q.send(&cx, &f, text.as_bytes(), priority, None).expect("sent");
    }
    assert_eq!(q.send(&cx, &f, b"x", 0, None), Err(Failure::Errno(Errno::EAGAIN)));
    assert_eq!(q.check_send(9), Err(Errno::EMSGSIZE));
    assert_eq!(q.receive(&cx, &f, 7, None), Err(Failure::Errno(Errno::EMSGSIZE)));
    let texts: Vec<_> = (0..4).map(|_| q.receive(&cx, &f, 8, None).expect("received")).collect();
    let want = [("two", 2), ("dos", 2), ("one", 1), ("uno", 1)];
    assert_eq!(texts, want.map(|(t, p)| (t.as_bytes().to_vec(), p)));
    assert_eq!(q.receive(&cx, &f, 8, None), Err(Failure::Errno(Errno::EAGAIN)));
}

#[test]
fn all_messages_together_are_bounded() {
    let (all, cx) = (Mqueues::new(33), user(u64::MAX));
    let f = all.open(&cx, b"a", NEW | libc::O_NONBLOCK, 0o600, sized(65536, 8192).as_ref()).expect("opened");
    let q = QueueFile::of(&f).expect("a queue");
    let text = [0; 8192];
    let mut sent = 0;
    let end = loop {
        match q.send(&cx, &f, &text, 0, None) {
            Ok(()) => sent += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(end, Failure::Errno(Errno::ENOMEM));
    assert!(sent * 8192 <= MAX_BYTES);
    assert_eq!(all.remove(&cx, b"a"), Ok(()));
    drop(f);
    assert_eq!(all.bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[test]
fn state_and_back() {
    let (all, cx) = (Mqueues::new(33), user(0));
    let nonblocking = NEW | libc::O_NONBLOCK;
    let named = all.open(&cx, b"a", nonblocking, 0o600, sized(4, 8).as_ref()).expect("opened");
    let gone = all.open(&cx, b"b", nonblocking, 0o600, sized(2, 8).as_ref()).expect("opened");
    let queue = |file| QueueFile::of(file).expect("a queue");
    for (text, priority) in [("one", 1), ("two", 2), ("uno", 1)] {
        queue(&named).send(&cx, &named, text.as_bytes(), priority, None).expect("sent");
    }
    queue(&gone).send(&cx, &gone, b"x", 0, None).expect("sent");
    let wish = || Notification {
        pid: 7,
        how: libc::SIGEV_NONE,
        signo: 9,
        value: 5,
        message: None,
        tell: Box::new(|_| {}),
    };
    queue(&gone).notify(&cx, Some(wish())).expect("nobody else");
    all.remove(&cx, b"b").expect("removed");

    let saved = all.state([&*named, &*gone, &*gone]);
    assert_eq!((saved.named.len(), saved.unlinked.len()), (1, 1));
    let tell = |state: &NotificationState| ((state.pid, state.value) == (7, 5)).then(wish);
    let restored = Mqueues::new(34).fill(&saved, tell).expect("restored");
    let [named, gone] = [&named, &gone].map(|file| restored.open(&file.state(), None).expect("restored"));
    let mut again = restored.queues.state([&*named, &*gone]);
    assert_ne!(again.attr.dev, saved.attr.dev);
    again.attr.dev = saved.attr.dev;
    for state in again.named.values_mut().chain(&mut again.unlinked) {
        state.attr.dev = saved.attr.dev;
    }
    assert_eq!(again, saved);

    let again = Err(Failure::Errno(Errno::EAGAIN));
    let texts =
        [("two", 2), ("one", 1), ("uno", 1)].map(|(text, priority)| Ok((text.as_bytes().to_vec(), priority)));
    assert_eq!([(); 3].map(|()| queue(&named).receive(&cx, &named, 8, None)), texts);
    assert_eq!(queue(&named).receive(&cx, &named, 8, None), again);
    assert_eq!(queue(&gone).notify(&cx, Some(wish())), Err(Errno::EBUSY));
    assert_eq!(queue(&gone).receive(&cx, &gone, 8, None), Ok((b"x".to_vec(), 0)));
    // Names and what is counted are as before.
    let open = |name: &[u8]| restored.queues.open(&cx, name, libc::O_RDWR, 0, None).map(drop);
    assert_eq!([open(b"a"), open(b"b")], [Ok(()), Err(Errno::ENOENT)]);
    restored.queues.remove(&cx, b"a").expect("removed");
    let queues = restored.queues.clone();
    drop((named, gone, restored));
    assert_eq!(queues.bytes.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert!(queues.charged.lock().is_empty());
}

#[test]
fn hostile_states() {
    let (all, cx) = (Mqueues::new(33), user(0));
    let file = all.open(&cx, b"a", NEW, 0o600, sized(4, 8).as_ref()).expect("opened");
    QueueFile::of(&file).expect("a queue").send(&cx, &file, b"text", 1, None).expect("sent");
    let good = all.state([&*file]);
    let fill = |saved: &MqueuesState| Mqueues::new(34).fill(saved, |_| None).map(drop);
    assert_eq!(fill(&good), Ok(()));
    let changes: [fn(&mut QueueState); 8] = [
        |q| q.limits.0 = 0,
        |q| q.limits.1 = i64::MAX,
        |q| q.limits.1 = 3,
        |q| q.messages = vec![(0, Vec::new()); 5],
        |q| q.messages = vec![(u32::MAX, Vec::new())],
        |q| q.attr.mode = libc::S_IFDIR,
        |q| q.attr.ino = u64::MAX,
        |q| q.attr.ino = 1,
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let mut saved = good.clone();
        saved.named.values_mut().for_each(change);
        assert_eq!(fill(&saved), Err(Errno::EINVAL), "{n}");
    }
    let twice = MqueuesState { unlinked: good.named.values().cloned().collect(), ..good.clone() };
    let limits = MqueuesState { limits: [i64::MAX; 5], ..good.clone() };
    let numbers = MqueuesState { next_ino: u64::MAX, ..good };
    assert_eq!([twice, limits, numbers].map(|saved| fill(&saved)), [Err(Errno::EINVAL); 3]);
}
