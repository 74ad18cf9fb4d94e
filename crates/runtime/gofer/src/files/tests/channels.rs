//! Sockets and threads.

use super::*;
use std::time::Duration;

/// A request on a channel; `None` when the other end is closed.
fn ask(channel: &OwnedFd, request: &Request<'_>) -> Option<(Reply, Option<OwnedFd>)> {
    one_fd::send(channel, &request.encode(3), None).ok()?;
    let mut buffer = vec![0; MAX_MESSAGE];
    let packet = one_fd::receive(channel, &mut buffer).ok().filter(|packet| packet.len != 0)?;
    Some((Reply::decode(&buffer[..packet.len], 3, request.operation()).unwrap(), packet.fd))
}

/// A gofer's thread for the trees' connections; it ends with the other end of the pair.
fn gofer(tree: &Tree, trees: usize) -> (Vec<OwnedFd>, OwnedFd, thread::JoinHandle<usize>) {
    let mut files = Files::default();
    let root = place(&tree.path(""));
    let ends = (0..trees).map(|_| files.start(&root, Options::default()).unwrap()).collect();
    let (stop, stopped) = pair().unwrap();
    let thread = thread::spawn(move || {
        assert_eq!(files.run(&[stopped.as_fd()]).unwrap(), [true]);
        files.first.len()
    });
    (ends, stop, thread)
}

#[test]
fn threads_begin_with_the_first_requests() {
    let tree = Tree::new();
    let (ends, stop, thread) = gofer(&tree, 3);
    for end in &ends[..2] {
        for _ in 0..2 {
            let (reply, fd) = ask(end, &Request::Attach { version: fileproto::VERSION }).unwrap();
            assert!(matches!(reply, Reply::Attached { .. }) && fd.is_none());
        }
    }
    let (_, fd) = ask(&ends[0], &open("a", Access::Place)).unwrap();
    assert!(host_stat(&fd.unwrap()).is_dir());
    drop(stop);
    assert_eq!(thread.join().unwrap(), 1, "one has not asked");
    // Their threads go on.
    assert!(ask(&ends[1], &Request::StatFs { dir: ROOT }).is_some());
}

/// Whatever processor the sentry names, its request is answered.
#[test]
fn any_processor_may_be_named() {
    let tree = Tree::new();
    let (ends, stop, thread) = gofer(&tree, 1);
    let request = Request::Attach { version: fileproto::VERSION };
    for processor in [0, 1, 2, 1000, 1024, 1025, 4096, u16::MAX] {
        one_fd::send(&ends[0], &request.encode_on(3, processor), None).unwrap();
        let mut buffer = vec![0; MAX_MESSAGE];
        let packet = one_fd::receive(&ends[0], &mut buffer).unwrap();
        let reply = Reply::decode(&buffer[..packet.len], 3, request.operation());
        assert!(matches!(reply, Some(Reply::Attached { .. })), "{processor}: {reply:?}");
    }
    drop(stop);
    thread.join().unwrap();
}

/// A sentry that asks on and leaves the descriptors of the replies is given no more.
#[test]
fn descriptors_must_be_taken() {
    let tree = Tree::new();
    let (ends, stop, thread) = gofer(&tree, 1);
    let look = Request::Look { dir: ROOT, places: false, names: vec![b"a"] };
    for _ in 0..3 {
        one_fd::send(&ends[0], &look.encode(3), None).unwrap();
    }
    (0..3).for_each(|_| assert!(one_fd::receive(&ends[0], &mut [0; 1000]).unwrap().len > 0));
    let open = open("a", Access::Place).encode(3);
    (0..2).for_each(|_| one_fd::send(&ends[0], &open, None).unwrap());
    assert!(one_fd::receive(&ends[0], &mut [0; 1000]).unwrap().fd.is_some());
    let mut buffer = [0; 1000];
    // Unless the first one was taken before the second question was looked at.
    let end = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        assert!(std::time::Instant::now() < end);
        match one_fd::receive(&ends[0], &mut buffer) {
            Ok(packet) if packet.len > 0 => {
                let _ = (one_fd::send(&ends[0], &open, None), one_fd::send(&ends[0], &open, None));
            }
            _ => break,
        }
    }
    drop(stop);
    thread.join().unwrap();
}

fn host_stat(fd: &OwnedFd) -> Attr {
    hostsys::fs::stat(fd).unwrap()
}

#[test]
fn channels_are_counted() {
    let tree = Tree::new();
    let (ends, _stop, _thread) = gofer(&tree, 1);
    let first = &ends[0];
    let more = |from: &OwnedFd| match ask(from, &Request::Channel).unwrap() {
        (Reply::Done, Some(channel)) => Ok(channel),
        (Reply::Failed(errno), None) => Err(errno),
        other => panic!("{other:?}"),
    };
    let mut channels: Vec<OwnedFd> = (1..MAX_CHANNELS).map(|_| more(first).unwrap()).collect();
    for _ in 0..100 {
        assert_eq!(more(first).unwrap_err(), libc::EMFILE);
        assert_eq!(more(&channels[3]).unwrap_err(), libc::EMFILE);
    }
    // A handle is the same on all of them, and they answer at the same time.
    let Some((Reply::Walked { handle, .. }, _)) =
        ask(first, &Request::Walk { dir: ROOT, path: b"a", keep: true })
    else {
        panic!()
    };
    thread::scope(|scope| {
        for channel in &channels {
            scope.spawn(move || {
                for _ in 0..200 {
                    let walk = Request::Walk { dir: handle, path: b"b/c", keep: false };
                    assert!(matches!(ask(channel, &walk), Some((Reply::Walked { errno: 0, .. }, _))));
                }
            });
        }
    });
    channels.pop();
    // Its thread sees the end a little later.
    let again = (0..500).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        more(first).ok()
    });
    assert!(again.is_some());
}

#[test]
fn garbage_ends_the_whole_connection() {
    let tree = Tree::new();
    let good = Request::Stat { dir: ROOT };
    let mut long = Request::StatFs { dir: ROOT }.encode(1);
    long.resize(MAX_MESSAGE + 1, 0);
    for garbage in [&b"x"[..], &[0; 8], &good.encode(1)[..15], &long] {
        let (ends, _stop, _thread) = gofer(&tree, 2);
        let (_, second) = ask(&ends[0], &Request::Channel).unwrap();
        let second = second.unwrap();
        assert!(ask(&second, &good).is_some());
        one_fd::send(&second, garbage, None).unwrap();
        assert_eq!(one_fd::receive(&second, &mut [0; 64]).map(|packet| packet.len).unwrap_or(0), 0);
        assert!(ask(&ends[0], &good).is_none());
        assert!(ask(&ends[1], &good).is_some(), "that of another tree goes on");
    }
}

#[test]
fn too_many_descriptors_are_an_error() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let tree = Tree::new();
    let (ends, _stop, _thread) = gofer(&tree, 1);
    let file = File::open(tree.path("a/file")).unwrap();
    let fds = [file.as_fd(); 5];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let request = Request::Stat { dir: ROOT };
    let bytes = request.encode(1);
    sendmsg(&ends[0], &[io::IoSlice::new(&bytes)], &mut control, SendFlags::empty()).unwrap();
    let mut buffer = [0; 64];
    let packet = one_fd::receive(&ends[0], &mut buffer).unwrap();
    let reply = Reply::decode(&buffer[..packet.len], 1, request.operation());
    assert_eq!(reply, Some(Reply::Failed(libc::EMFILE)));
    assert!(matches!(ask(&ends[0], &request), Some((Reply::Attr(_), None))));
}

/// All operations under the filter; a call that it does not allow kills the process of the test.
#[test]
fn the_filter_allows_what_is_needed() {
    let tree = Tree::new();
    let mut files = Files::default();
    let root = place(&tree.path(""));
    let end = files.start(&root, Options { fifos: true, readonly: false }).unwrap();
    let (stop, stopped) = pair().unwrap();
    let thread = thread::spawn(move || {
        // Unlike in a gofer's root, the allocator finds what it looks for.
        let proc = [confine::filter::allow(libc::SYS_read, "/proc/sys/vm/overcommit_memory")];
        let tables = [
            confine::filter::RUST_RUNTIME,
            confine::filter::THREADS,
            crate::filter::RULES,
            RULES,
            CHANGES,
            &proc,
        ];
        confine::filter::install(&confine::filter::compile(&tables).unwrap()).unwrap();
        let _ = files.start(&root, Options::default()).unwrap();
        files.run(&[stopped.as_fd()]).unwrap();
    });
    let (_, second) = ask(&end, &Request::Channel).unwrap();
    for channel in [&end, &second.unwrap()] {
        super::hostile::everything(|request, descriptor| {
            one_fd::send(channel, &request.encode(3), descriptor.as_ref().map(AsFd::as_fd)).unwrap();
            let mut buffer = vec![0; MAX_MESSAGE];
            let packet = one_fd::receive(channel, &mut buffer).unwrap();
            (Reply::decode(&buffer[..packet.len], 3, request.operation()).unwrap(), packet.fd)
        });
    }
    drop(stop);
    thread.join().unwrap();
}

#[test]
fn rules_allow_no_more() {
    use seccomp::{ARCH, Data, Program, RET_ALLOW};
    let tables =
        [confine::filter::RUST_RUNTIME, confine::filter::THREADS, crate::filter::RULES, RULES, CHANGES];
    let code = confine::filter::compile(&tables).unwrap();
    let program = Program::new(&code).unwrap();
    let allows =
        |nr: i64, args: [u64; 6]| program.run(&Data { nr: nr as i32, arch: ARCH, ip: 0, args }) == RET_ALLOW;
    let thread = 0x003d_0f00;
    assert!(allows(libc::SYS_clone, [thread, 0, 0, 0, 0, 0]));
    assert!(!allows(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]));
    assert!(!allows(libc::SYS_clone, [thread | libc::CLONE_NEWUSER as u64, 0, 0, 0, 0, 0]));
    let pair = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
    assert!(allows(libc::SYS_socketpair, [libc::AF_UNIX as u64, pair, 0, 1, 0, 0]));
    assert!(!allows(libc::SYS_socketpair, [libc::AF_INET as u64, pair, 0, 1, 0, 0]));
    assert!(!allows(libc::SYS_socketpair, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, 1, 0, 0]));
    let device = |mode: u32, dev| allows(libc::SYS_mknodat, [4, 1, mode.into(), dev, 0, 0]);
    assert!(device(libc::S_IFCHR, 0) && !device(libc::S_IFCHR, 1) && !device(libc::S_IFBLK, 0));
    let mark = |flags: u32, mask, path| allows(libc::SYS_fanotify_mark, [5, flags.into(), mask, 6, path, 0]);
    let mask = hostsys::fanotify::MASK;
    assert!(mark(libc::FAN_MARK_ADD, mask, 0) && mark(libc::FAN_MARK_REMOVE, mask, 0));
    assert!(!mark(libc::FAN_MARK_ADD, mask, 1) && !mark(libc::FAN_MARK_ADD, libc::FAN_ACCESS_PERM, 0));
    assert!(!mark(libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT, mask, 0));
    assert!(!mark(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, mask, 0));
    let open = |dir: i32, flags: i32| allows(libc::SYS_openat, [dir as u64, 1, flags as u64, 0, 0, 0]);
    assert!(open(libc::AT_FDCWD, libc::O_CLOEXEC) && !open(5, libc::O_CLOEXEC));
    assert!(!open(libc::AT_FDCWD, libc::O_WRONLY) && !open(libc::AT_FDCWD, libc::O_CREAT));
    assert!(!allows(libc::SYS_linkat, [3, 1, 4, 1, libc::AT_SYMLINK_FOLLOW as u64, 0]));
    assert!(!allows(libc::SYS_statx, [3, 1, 0, 0, 1, 0]));
    assert!(!allows(libc::SYS_fchownat, [3, 1, 0, 0, 0, 0]));
    for call in [
        libc::SYS_open,
        libc::SYS_socket,
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_execve,
        libc::SYS_fanotify_init,
        libc::SYS_open_by_handle_at,
        libc::SYS_ioctl,
        libc::SYS_mount,
        libc::SYS_ptrace,
        libc::SYS_chdir,
        libc::SYS_memfd_create,
    ] {
        assert!(!allows(call, [4, 0, 0, 0, 0, 0]), "{call}");
    }
}
