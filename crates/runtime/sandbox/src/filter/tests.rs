use super::*;

fn allows(needs: &FilterNeeds, nr: i64, args: [u64; 3]) -> bool {
    allows_all(needs, nr, [args[0], args[1], args[2], 0, 0, 0])
}

fn allows_all(needs: &FilterNeeds, nr: i64, args: [u64; 6]) -> bool {
    let program = ::seccomp::Program::new(&needs.compile().unwrap()).unwrap();
    program.run(&::seccomp::Data { nr: nr as i32, arch: ::seccomp::ARCH, ip: 0, args })
        == ::seccomp::RET_ALLOW
}

fn needs(changes: bool, listens: bool) -> FilterNeeds {
    FilterNeeds {
        traced: false,
        platform: PlatformName::Systrap,
        changes,
        shares: changes || listens,
        unix: HostUds::default(),
        listens,
        channel: 9,
        backing: 7,
        through_gofer: false,
        asks_gofers: false,
        network: Network::None,
    }
}

#[test]
fn the_tables_compile_and_say_why() {
    for platform in [PlatformName::Systrap, PlatformName::Ptrace] {
        for (changes, listens) in [(false, false), (true, false), (true, true)] {
            FilterNeeds { platform, ..needs(changes, listens) }.compile().unwrap();
        }
    }
    let all = [
        THREADS,
        OWN_THREADS,
        FILES,
        PATHS,
        CONTENTS,
        CHANGES,
        WATCHES,
        MARKS,
        GOFER,
        LOCKS,
        UNIX,
        INTERFACES,
        LISTENING,
        WAITING,
        STUBS,
        SYSTRAP,
        PTRACE,
    ]
    .concat();
    assert!(all.iter().all(|rule| !rule.why.is_empty()));
}

#[test]
fn nothing_of_the_host_changes_where_nothing_may_be_written() {
    for rule in CHANGES {
        let mode = u64::from(libc::S_IFREG);
        let args = [5, 0, mode, libc::AT_EMPTY_PATH as u64, 0, 0];
        assert!(!allows_all(&needs(false, false), rule.call, args), "{}", rule.call);
        assert!(allows_all(&needs(true, false), rule.call, args), "{}", rule.call);
    }
    let clone = |changes| allows(&needs(changes, false), libc::SYS_ioctl, [5, hostsys::fs::FICLONERANGE, 0]);
    assert_eq!((clone(false), clone(true)), (false, true));
    let unlink = |fd, flags| allows(&needs(false, false), libc::SYS_unlinkat, [fd, 0, flags]);
    assert!(unlink(7, 0) && !unlink(8, 0) && !unlink(7, libc::AT_REMOVEDIR as u64));
    let mknod = |kind: u32, device| {
        allows_all(&needs(true, false), libc::SYS_mknodat, [5, 0, kind.into(), device, 0, 0])
    };
    assert!(mknod(libc::S_IFCHR, 0) && !mknod(libc::S_IFCHR, 0x103) && !mknod(libc::S_IFCHR, 1 << 32));
    assert!(!mknod(libc::S_IFBLK, 0));
}

#[test]
fn a_sentry_with_a_gofer_makes_no_call_with_a_path() {
    let paths = [
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_creat,
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_statfs,
        libc::SYS_access,
        libc::SYS_faccessat,
        libc::SYS_faccessat2,
        libc::SYS_readlink,
        libc::SYS_readlinkat,
        libc::SYS_mkdir,
        libc::SYS_mkdirat,
        libc::SYS_mknod,
        libc::SYS_mknodat,
        libc::SYS_symlink,
        libc::SYS_symlinkat,
        libc::SYS_link,
        libc::SYS_linkat,
        libc::SYS_unlink,
        libc::SYS_unlinkat,
        libc::SYS_rmdir,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_chmod,
        libc::SYS_fchmodat,
        hostsys::fs::FCHMODAT2,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_fchownat,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
        libc::SYS_utimensat,
        libc::SYS_truncate,
        libc::SYS_chdir,
        libc::SYS_fchdir,
        libc::SYS_chroot,
        libc::SYS_getxattr,
        libc::SYS_fgetxattr,
        libc::SYS_setxattr,
        libc::SYS_fsetxattr,
        libc::SYS_listxattr,
        libc::SYS_flistxattr,
        libc::SYS_removexattr,
        libc::SYS_fremovexattr,
        libc::SYS_name_to_handle_at,
        libc::SYS_open_by_handle_at,
        libc::SYS_inotify_add_watch,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_pivot_root,
        libc::SYS_swapon,
        libc::SYS_acct,
        libc::SYS_getdents64,
        libc::SYS_fchmod,
        libc::SYS_fchown,
    ];
    for platform in [PlatformName::Systrap, PlatformName::Ptrace] {
        for (changes, listens) in [(false, false), (true, false), (true, true)] {
            let gofer =
                FilterNeeds { platform, through_gofer: true, asks_gofers: true, ..needs(changes, listens) };
            let nofollow = libc::O_NOFOLLOW as u64;
            for call in paths {
                for args in [[0, 0, 0], [7, 0x1000, 0], [7, 0x1000, nofollow], [libc::AT_FDCWD as u64, 0, 0]]
                {
                    assert!(!allows(&gofer, call, args), "{call}");
                }
            }
            let mark = |flags: u32, mask| {
                allows_all(&gofer, libc::SYS_fanotify_mark, [9, flags.into(), mask, 5, 0, 0])
            };
            assert!(
                !mark(libc::FAN_MARK_ADD, fanotify::MASK) && !mark(libc::FAN_MARK_ADD, fanotify::NAMES_MASK)
            );
            assert_eq!(mark(fanotify::IGNORE_FLAGS[0], libc::FAN_MODIFY), changes || listens);
            let (send, receive) = (libc::MSG_NOSIGNAL as u64, libc::MSG_CMSG_CLOEXEC as u64);
            assert!(allows(&gofer, libc::SYS_sendmsg, [20, 0, send]));
            assert!(allows(&gofer, libc::SYS_recvmsg, [20, 0, receive]));
            assert!(!allows(&gofer, libc::SYS_sendmsg, [20, 0, 0]));
        }
    }
    assert!(allows(&needs(true, true), libc::SYS_openat2, [5, 0, 0]));
}

#[test]
fn watches_are_of_open_directories_and_without_privilege() {
    let shared = needs(true, false);
    let mark = |flags: u32, mask, path| {
        allows_all(&shared, libc::SYS_fanotify_mark, [9, flags.into(), mask, 5, path, 0])
    };
    assert!(mark(libc::FAN_MARK_ADD, fanotify::MASK, 0) && mark(libc::FAN_MARK_FLUSH, 0, 0));
    assert!(mark(libc::FAN_MARK_ADD, fanotify::NAMES_MASK, 0));
    for flags in [libc::FAN_MARK_ADD, libc::FAN_MARK_REMOVE] {
        let all = fanotify::DIRECTORY_MASK;
        assert!(mark(flags, all, 0) && mark(flags, fanotify::OBJECT_MASK, 0));
        assert!(!mark(flags, all | libc::FAN_ACCESS_PERM, 0) && !mark(flags, all, 0x1000));
    }
    for flags in fanotify::IGNORE_FLAGS {
        assert!(mark(flags, libc::FAN_MODIFY, 0) && !mark(flags, fanotify::MASK, 0));
    }
    assert!(!mark(libc::FAN_MARK_ADD, fanotify::MASK, 0x1000));
    assert!(!mark(libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT, fanotify::MASK, 0));
    assert!(!mark(libc::FAN_MARK_ADD, fanotify::MASK | libc::FAN_OPEN_PERM, 0));
    let init = |flags| allows(&shared, libc::SYS_fanotify_init, [u64::from(flags), 0, 0]);
    assert!(init(fanotify::INIT_FLAGS) && !init(fanotify::INIT_FLAGS | libc::FAN_CLASS_CONTENT));
    assert!(init(fanotify::REPORT_FLAGS) && !init(fanotify::REPORT_FLAGS | libc::FAN_UNLIMITED_QUEUE));
    for rule in WATCHES.iter().filter(|rule| rule.call != libc::SYS_fstatfs) {
        assert!(!allows(&needs(false, false), rule.call, [0, 0, 0]));
    }
}

#[test]
fn files_are_locked_where_others_use_them() {
    for shares in [false, true] {
        let needs = needs(shares, false);
        let fcntl = |cmd: i32| allows(&needs, libc::SYS_fcntl, [5, cmd as u64, 0]);
        assert_eq!((fcntl(libc::F_OFD_SETLK), fcntl(libc::F_OFD_GETLK)), (shares, shares));
        assert_eq!(fcntl(libc::F_OFD_SETLKW), shares);
        assert!(!fcntl(libc::F_SETLKW) && !fcntl(libc::F_SETLK) && !fcntl(libc::F_SETLEASE));
        let flock = |op: i32| allows(&needs, libc::SYS_flock, [5, op as u64, 0]);
        assert_eq!((flock(libc::LOCK_EX | libc::LOCK_NB), flock(libc::LOCK_EX)), (shares, shares));
        // LOCK_MAND
        assert!(!flock(32));
    }
}

#[test]
fn messages_go_over_the_sockets_there_are() {
    let (send, receive) = (libc::MSG_NOSIGNAL as u64, libc::MSG_CMSG_CLOEXEC as u64);
    for (fd, listens, allowed) in [(9, false, true), (8, false, false), (8, true, true)] {
        let sends = |to| allows_all(&needs(false, listens), libc::SYS_sendto, [fd, 0, 0, send, to, 0]);
        assert_eq!((sends(0), sends(0x1000)), (allowed, false));
        assert!(!allows(&needs(false, listens), libc::SYS_sendmsg, [fd, 0, send]));
        assert_eq!(allows(&needs(false, listens), libc::SYS_recvmsg, [fd, 0, receive]), allowed);
    }
    assert!(!allows(&needs(false, false), libc::SYS_accept4, [8, 0, 0]));
    assert!(!allows(&needs(true, true), libc::SYS_sendto, [9, 0, 0]));
}

#[test]
fn the_hosts_sockets_are_used_and_not_made() {
    let host = |policed| FilterNeeds { network: Network::Host { policed }, ..needs(true, true) };
    let send = |needs: &FilterNeeds, flags: i32, to| {
        allows_all(needs, libc::SYS_sendto, [5, 0, 0, flags as u64, to, 0])
    };
    for policed in [false, true] {
        let needs = host(policed);
        for call in
            [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_socketpair]
        {
            assert!(!allows(&needs, call, [2, 1, 0]), "{call}");
        }
        assert!(send(&needs, libc::MSG_MORE | libc::MSG_NOSIGNAL, 0));
        assert!(!send(&needs, libc::MSG_NOSIGNAL, 0x1000));
        assert!(!send(&needs, libc::MSG_NOSIGNAL | libc::MSG_FASTOPEN, 0));
        assert_eq!(allows(&needs, libc::SYS_sendmsg, [5, 0, libc::MSG_NOSIGNAL as u64]), !policed);
        assert!(!allows(&needs, libc::SYS_sendmsg, [5, 0, libc::MSG_FASTOPEN as u64]));
        assert!(!allows(&needs, libc::SYS_sendmmsg, [5, 0, 1]));
        let sets =
            |level: i32, name: i32| allows(&needs, libc::SYS_setsockopt, [5, level as u64, name as u64]);
        assert!(sets(libc::IPPROTO_TCP, libc::TCP_NODELAY));
        assert!(!sets(libc::IPPROTO_TCP, libc::TCP_ULP) && !sets(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER));
        assert_eq!(sets(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP), !policed);
    }
    let none = needs(true, true);
    for call in [libc::SYS_setsockopt, libc::SYS_getsockname, libc::SYS_shutdown] {
        assert!(!allows(&none, call, [5, 6, 1]), "{call}");
    }
}

#[test]
fn packet_sockets_are_bound_and_not_made() {
    for (network, allowed) in [(Network::Sandbox, true), (Network::None, false)] {
        let needs = FilterNeeds { network, ..needs(true, true) };
        let bind = |length: u64| allows(&needs, libc::SYS_bind, [5, 0x1000, length]);
        assert_eq!((bind(20), bind(16), bind(110)), (allowed, false, false));
        for call in [libc::SYS_socket, libc::SYS_connect, libc::SYS_listen, libc::SYS_setsockopt] {
            assert!(!allows(&needs, call, [2, 1, 0]), "{call}");
        }
    }
}

#[test]
fn unix_sockets_of_the_host_are_used_and_not_made() {
    let with = FilterNeeds { unix: HostUds { open: true, create: false }, ..needs(true, false) };
    for call in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4] {
        assert!(!allows(&with, call, [1, 1, 0]), "{call}");
    }
    let send = |to| allows_all(&with, libc::SYS_sendto, [5, 0, 0, libc::MSG_NOSIGNAL as u64, to, 0]);
    assert!(send(0) && !send(0x1000) && !allows(&with, libc::SYS_sendmsg, [5, 0, 0]));
    assert!(allows(&with, libc::SYS_recvmsg, [5, 0, (libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK) as u64]));
    assert!(!allows(&with, libc::SYS_recvmsg, [5, 0, libc::MSG_OOB as u64]));
    assert!(allows(&with, libc::SYS_shutdown, [5, 1, 0]));
    assert!(!allows(&needs(true, true), libc::SYS_shutdown, [5, 1, 0]));
    let with = FilterNeeds { unix: HostUds { open: false, create: true }, ..needs(true, false) };
    assert!(allows(&with, libc::SYS_listen, [5, 9, 0]) && allows(&with, libc::SYS_accept4, [5, 0, 0]));
    for call in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind] {
        assert!(!allows(&with, call, [1, 1, 0]), "{call}");
    }
    let option = |name: i32| allows(&with, libc::SYS_getsockopt, [5, libc::SOL_SOCKET as u64, name as u64]);
    assert!(option(libc::SO_PEERCRED) && !option(libc::SO_PEERSEC));
}

#[test]
fn what_is_told_outside_goes_to_no_address() {
    for with in [needs(true, true), FilterNeeds { traced: true, ..needs(true, false) }] {
        let send = |flags, to| allows_all(&with, libc::SYS_sendto, [5, 0, 0, flags as u64, to, 0]);
        assert!(send(libc::MSG_NOSIGNAL, 0) && send(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT, 0));
        assert!(!send(0, 0) && !send(libc::MSG_NOSIGNAL | libc::MSG_OOB, 0));
        assert!(!send(libc::MSG_NOSIGNAL, 0x1000));
        assert!(allows(&with, libc::SYS_shutdown, [5, libc::SHUT_RDWR as u64, 0]));
        assert!(!allows(&with, libc::SYS_shutdown, [5, libc::SHUT_WR as u64, 0]));
    }
    assert!(!allows(&needs(true, false), libc::SYS_shutdown, [5, libc::SHUT_RDWR as u64, 0]));
}

#[test]
fn signals_and_advice_are_those_that_are_used() {
    let all = needs(true, true);
    for (signal, allowed) in
        [(0, true), (INTERRUPT_SIGNAL, true), (libc::SIGKILL as u32, false), (libc::SIGSTOP as u32, false)]
    {
        assert_eq!(allows(&all, libc::SYS_tgkill, [4, 4, signal.into()]), allowed, "{signal}");
    }
    assert!(allows(&all, libc::SYS_madvise, [0, 4096, libc::MADV_DONTNEED as u64]));
    assert!(!allows(&all, libc::SYS_madvise, [0, 4096, libc::MADV_HWPOISON as u64]));
}
