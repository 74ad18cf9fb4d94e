//! The host calls of the sentry; [`host_network`] has those that host mode adds.
//!
//! docs/security.md groups these calls; a rule without a need is to be removed.

mod host_network;

use ::seccomp::SockFilter;
use confine::filter::{Arg, RUST_RUNTIME, Rule, allow, allow_when, compile};
use hostsys::{fanotify, seccomp};
use spec::{Network, Overlay, PlatformName, SandboxSpec};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use stub::layout::INTERRUPT_SIGNAL;

/// What a filter depends on.
pub(crate) struct FilterNeeds {
    pub(crate) platform: PlatformName,
    /// Names and attributes of some directory of the host can be changed.
    pub(crate) changes: bool,
    /// Some directory of the host is shared with others outside.
    pub(crate) shares: bool,
    /// There are connections to Unix sockets of the host.
    pub(crate) unix: bool,
    /// There are trace sessions from the start.
    pub(crate) traced: bool,
    /// Command lines and containers may come later.
    pub(crate) listens: bool,
    /// The socket to the first command line.
    pub(crate) channel: i32,
    /// The private tmpfs with the contents of files in memory.
    pub(crate) backing: i32,
    pub(crate) network: Network,
}

/// Whether some directory of the host is shared with others outside.
pub(crate) fn shares(spec: &SandboxSpec) -> bool {
    let mut mounts = spec.mounts.iter().filter(|m| m.source_fd.is_some());
    spec.root.overlay.is_none() || mounts.any(|m| m.overlay.is_none())
}

impl FilterNeeds {
    /// Those of a sandbox.
    pub(crate) fn of(
        spec: &SandboxSpec,
        listens: bool,
        channel: BorrowedFd<'_>,
        backing: RawFd,
    ) -> FilterNeeds {
        let written = |readonly: bool, overlay: &Option<Overlay>| !readonly && overlay.is_none();
        let mounts = || spec.mounts.iter().filter(|m| m.source_fd.is_some());
        let changes = listens
            || written(spec.root.readonly, &spec.root.overlay)
            || mounts().any(|m| written(m.readonly, &m.overlay));
        let shares = listens || shares(spec);
        let unix = spec.socket_gofer.is_some();
        let (platform, network) = (spec.platform, spec.network);
        FilterNeeds {
            platform,
            changes,
            shares,
            unix,
            traced: !spec.trace.is_empty(),
            listens,
            channel: channel.as_raw_fd(),
            backing,
            network,
        }
    }

    fn compile(&self) -> io::Result<Vec<SockFilter>> {
        let platform = match self.platform {
            PlatformName::Systrap => SYSTRAP,
            PlatformName::Ptrace => PTRACE,
        };
        let mut tables = vec![RUST_RUNTIME, THREADS, FILES, WAITING, STUBS, platform];
        if self.changes {
            tables.push(CHANGES);
        }
        if self.shares {
            tables.push(WATCHES);
            tables.push(LOCKS);
        }
        if self.unix {
            tables.push(UNIX);
        }
        if self.traced {
            tables.push(TRACE);
        }
        if self.network == Network::Sandbox {
            tables.push(INTERFACES);
        }
        // The only socket there will be, else: its number stays.
        let fd = Arg::Is(0, self.channel as u32);
        let send = [fd, Arg::Is(3, libc::MSG_NOSIGNAL as u32), Arg::IsLong(4, 0)];
        let receive = [fd, Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)];
        let backing = [Arg::Is(0, self.backing as u32), Arg::Is(2, 0)];
        let (send, receive): ([&[Arg]; 1], [&[Arg]; 1]) = ([&send], [&receive]);
        let backing: [&[Arg]; 1] = [&backing];
        let first = [
            Rule { call: libc::SYS_sendto, when: &send, why: "the first command line" },
            Rule { call: libc::SYS_recvmsg, when: &receive, why: "the first command line" },
        ];
        let own = [Rule { call: libc::SYS_unlinkat, when: &backing, why: "files in memory that are gone" }];
        tables.push(&own);
        tables.push(if self.listens { LISTENING } else { &first });
        if let Network::Host { policed } = self.network {
            return host_network::with_rules(policed, |rules| {
                let all: Vec<&[Rule<'_>]> = tables.iter().copied().chain([rules]).collect();
                compile(&all)
            });
        }
        compile(&tables)
    }
}

/// Puts the calling thread, and with it all threads to come, under the filter.
pub(crate) fn install(needs: &FilterNeeds) -> io::Result<()> {
    confine::filter::install(&needs.compile()?)
}

const CLONE_THREAD: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;

/// One thread per guest thread, and a few of the kernel's own.
const THREADS: &[Rule] = &[
    allow_when(
        libc::SYS_clone,
        &[&[Arg::Bits(0, CLONE_THREAD, CLONE_THREAD), Arg::Bits(0, NEW_NAMESPACES, 0)]],
        "threads, never processes or namespaces",
    ),
    allow(libc::SYS_exit, "the end of a thread"),
    allow(libc::SYS_set_robust_list, "a thread's start"),
    allow(libc::SYS_rseq, "a thread's start"),
    allow_when(libc::SYS_prctl, &[&[Arg::Is(0, libc::PR_SET_NAME as u32)]], "a thread's name"),
    allow_when(libc::SYS_prctl, &[&[Arg::Is(0, PR_GET_AUXV)]], "rustix learns the page size"),
    allow(libc::SYS_sched_getaffinity, "the number of processors; a thread's stack bounds"),
    allow(libc::SYS_sched_yield, "locks"),
    allow_when(
        libc::SYS_sched_setaffinity,
        &[&[Arg::Is(0, 0)]],
        "a thread of the sentry keeps to its stub's CPU, or off it",
    ),
    allow(libc::SYS_getpriority, "the niceness with which the first process starts"),
    allow(libc::SYS_rt_sigaction, "handlers that interrupt a thread"),
    allow_when(
        libc::SYS_tgkill,
        &[&[Arg::Is(2, 0)], &[Arg::Is(2, INTERRUPT_SIGNAL)]],
        "interrupting a thread of a stub, or asking whether it is there",
    ),
    allow(libc::SYS_getrandom, "the guest's random numbers"),
    allow(libc::SYS_sysinfo, "the guest's sysinfo"),
    allow_when(
        libc::SYS_getrusage,
        &[&[Arg::Is(0, libc::RUSAGE_THREAD as u32)]],
        "blocks that a thread of the sentry has read and written",
    ),
    allow_when(libc::SYS_prlimit64, &[&[Arg::Is(0, 0), Arg::IsLong(2, 0)]], "reading the sentry's limits"),
    allow(libc::SYS_clock_getres, "the guest's clocks"),
    allow(libc::SYS_clock_gettime, "the guest's processor clocks"),
];

const NEW_NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

const PR_GET_AUXV: u32 = 0x4155_5856;
const WRITING: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
const NOFOLLOW: u64 = libc::O_NOFOLLOW as u64;

/// The container's files, through the directories that the gofer opened; memory files; standard streams.
const FILES: &[Rule] = &[
    allow_when(libc::SYS_openat, &[&[Arg::Bits(2, NOFOLLOW, NOFOLLOW)]], "files, never through a link"),
    allow_when(
        libc::SYS_openat,
        &[&[Arg::Is(0, libc::AT_FDCWD as u32), Arg::Bits(2, WRITING, 0)]],
        "what libraries look for by absolute path: the root is empty, so nothing is found",
    ),
    allow(libc::SYS_openat2, "files below a directory, without links"),
    allow(libc::SYS_read, "file data"),
    allow(libc::SYS_write, "file data"),
    allow(libc::SYS_readv, "file data"),
    allow(libc::SYS_writev, "file data"),
    allow(libc::SYS_pread64, "file data"),
    allow(libc::SYS_pwrite64, "file data"),
    allow(libc::SYS_preadv, "file data"),
    allow(libc::SYS_pwritev, "file data"),
    allow(libc::SYS_preadv2, "file data"),
    allow(libc::SYS_pwritev2, "file data"),
    allow(libc::SYS_lseek, "holes"),
    allow(libc::SYS_fstat, "attributes"),
    allow(libc::SYS_newfstatat, "attributes"),
    allow(libc::SYS_statx, "attributes"),
    allow(libc::SYS_fstatfs, "attributes of a file system"),
    allow(libc::SYS_getdents64, "directories"),
    allow(libc::SYS_readlinkat, "links"),
    allow(libc::SYS_faccessat2, "permissions"),
    allow(libc::SYS_ftruncate, "sizes"),
    allow(libc::SYS_fallocate, "sizes"),
    allow(libc::SYS_fsync, "durability"),
    allow(libc::SYS_fdatasync, "durability"),
    allow(libc::SYS_fgetxattr, "extended attributes"),
    allow(libc::SYS_flistxattr, "extended attributes"),
    allow(451, "cachestat(2) of files that the guest has open; counts pages"),
    allow(libc::SYS_memfd_create, "contents of in-memory files, shared memory"),
    allow_when(
        libc::SYS_mmap,
        &[&[Arg::Bits(2, libc::PROT_EXEC as u64, 0)]],
        "memory, contents of in-memory files, files of the image that are read often; never executable",
    ),
    allow_when(
        libc::SYS_fcntl,
        &[
            &[Arg::Is(1, libc::F_GETFL as u32)],
            &[Arg::Is(1, libc::F_SETFL as u32)],
            &[Arg::Is(1, libc::F_GETFD as u32)],
            &[Arg::Is(1, libc::F_SETFD as u32)],
            &[Arg::Is(1, libc::F_DUPFD_CLOEXEC as u32)],
            &[Arg::Is(1, libc::F_ADD_SEALS as u32)],
            &[Arg::Is(1, libc::F_GET_SEALS as u32)],
        ],
        "flags of descriptors; seals of shared memory",
    ),
    allow_when(
        libc::SYS_ioctl,
        &[
            &[Arg::Is(1, libc::TCGETS as u32)],
            &[Arg::Is(1, libc::TCSETS as u32)],
            &[Arg::Is(1, libc::TCSETSW as u32)],
            &[Arg::Is(1, libc::TCSETSF as u32)],
            &[Arg::Is(1, libc::TIOCGWINSZ as u32)],
            &[Arg::Is(1, libc::TIOCSWINSZ as u32)],
            &[Arg::Is(1, libc::FIONREAD as u32)],
            &[Arg::Is(1, libc::TCGETS2 as u32)],
            &[Arg::Is(1, libc::TCSETS2 as u32)],
            &[Arg::Is(1, libc::TCSETSW2 as u32)],
            &[Arg::Is(1, libc::TCSETSF2 as u32)],
            &[Arg::Is(1, libc::TCSBRK as u32)],
            &[Arg::Is(1, libc::TCSBRKP as u32)],
            &[Arg::Is(1, libc::TCXONC as u32)],
            &[Arg::Is(1, libc::TCFLSH as u32)],
            &[Arg::Is(1, libc::TIOCOUTQ as u32)],
        ],
        "standard streams that are terminals or pipes; never TIOCSTI",
    ),
];

/// Changes of names and attributes of the host's files.
const CHANGES: &[Rule] = &[
    allow(libc::SYS_mkdirat, "changes of a writable bind mount"),
    allow_when(
        libc::SYS_mknodat,
        &[
            &[Arg::Bits(2, libc::S_IFMT as u64, 0)],
            &[Arg::Bits(2, libc::S_IFMT as u64, libc::S_IFREG as u64)],
            &[Arg::Bits(2, libc::S_IFMT as u64, libc::S_IFIFO as u64)],
            &[Arg::Bits(2, libc::S_IFMT as u64, libc::S_IFSOCK as u64)],
            &[Arg::Bits(2, libc::S_IFMT as u64, libc::S_IFCHR as u64), Arg::IsLong(3, 0)],
        ],
        "changes of a writable bind mount, never a device, but overlayfs's whiteouts (0:0, which nothing drives)",
    ),
    allow(libc::SYS_symlinkat, "changes of a writable bind mount"),
    allow(libc::SYS_linkat, "changes of a writable bind mount"),
    allow(libc::SYS_unlinkat, "changes of a writable bind mount"),
    allow(libc::SYS_renameat2, "changes of a writable bind mount"),
    allow(libc::SYS_fchmod, "changes of a writable bind mount"),
    allow_when(
        libc::SYS_ioctl,
        &[&[Arg::Is(1, hostsys::fs::FICLONERANGE as u32)]],
        "files that share blocks, both in directories of the host",
    ),
    allow(libc::SYS_fchmodat, "changes of a writable bind mount"),
    allow_when(
        hostsys::fs::FCHMODAT2,
        &[&[Arg::Is(3, libc::AT_EMPTY_PATH as u32)]],
        "changes of a writable bind mount, never by a name",
    ),
    allow(libc::SYS_fchown, "changes of a writable bind mount"),
    allow(libc::SYS_fchownat, "changes of a writable bind mount"),
    allow(libc::SYS_utimensat, "changes of a writable bind mount"),
    allow(libc::SYS_fsetxattr, "changes of a writable bind mount"),
    allow(libc::SYS_fremovexattr, "changes of a writable bind mount"),
];

/// Being told what others change in directories, which are open already.
const WATCHES: &[Rule] = &[
    allow_when(
        libc::SYS_fanotify_init,
        &[
            &[Arg::Is(0, fanotify::INIT_FLAGS), Arg::Is(1, libc::O_RDONLY as u32)],
            &[Arg::Is(0, fanotify::REPORT_FLAGS), Arg::Is(1, libc::O_RDONLY as u32)],
        ],
        "groups without privileges, for events of names, and of what programs inside watch",
    ),
    allow_when(
        libc::SYS_fanotify_mark,
        &[
            &[Arg::Is(1, libc::FAN_MARK_ADD), Arg::IsLong(2, fanotify::MASK), Arg::IsLong(4, 0)],
            &[Arg::Is(1, libc::FAN_MARK_ADD), Arg::IsLong(2, fanotify::NAMES_MASK), Arg::IsLong(4, 0)],
            &[Arg::Is(1, fanotify::IGNORE_FLAGS[0]), Arg::IsLong(2, libc::FAN_MODIFY), Arg::IsLong(4, 0)],
            &[Arg::Is(1, fanotify::IGNORE_FLAGS[1]), Arg::IsLong(2, libc::FAN_MODIFY), Arg::IsLong(4, 0)],
            &[Arg::Is(1, libc::FAN_MARK_FLUSH), Arg::IsLong(2, 0), Arg::IsLong(4, 0)],
            &[Arg::Is(1, libc::FAN_MARK_ADD), Arg::Bits(2, !fanotify::DIRECTORY_MASK, 0), Arg::IsLong(4, 0)],
            &[
                Arg::Is(1, libc::FAN_MARK_REMOVE),
                Arg::Bits(2, !fanotify::DIRECTORY_MASK, 0),
                Arg::IsLong(4, 0),
            ],
        ],
        "marks of a descriptor, never of a path; never permission events, mounts or file systems",
    ),
    allow_when(
        libc::SYS_name_to_handle_at,
        &[&[Arg::Is(4, fanotify::HANDLE_FLAGS as u32)]],
        "what events call a directory; nothing may open by it",
    ),
    allow(libc::SYS_fstatfs, "the same"),
];

/// Locks on files of directories that others outside use. All of them belong to descriptions that the sentry opened itself,
/// and end with it. Helping threads wait for locks; a signal ends the wait.
const LOCKS: &[Rule] = &[
    allow_when(
        libc::SYS_fcntl,
        &[
            &[Arg::Is(1, libc::F_OFD_SETLK as u32)],
            &[Arg::Is(1, libc::F_OFD_SETLKW as u32)],
            &[Arg::Is(1, libc::F_OFD_GETLK as u32)],
        ],
        "record locks on files of a bind mount",
    ),
    allow_when(
        libc::SYS_flock,
        &[
            &[Arg::Is(1, (libc::LOCK_SH | libc::LOCK_NB) as u32)],
            &[Arg::Is(1, (libc::LOCK_EX | libc::LOCK_NB) as u32)],
            &[Arg::Is(1, (libc::LOCK_UN | libc::LOCK_NB) as u32)],
            &[Arg::Is(1, libc::LOCK_SH as u32)],
            &[Arg::Is(1, libc::LOCK_EX as u32)],
        ],
        "flock(2) on files of a bind mount",
    ),
];

/// Connections to Unix sockets of the host, which a gofer has made.
const UNIX: &[Rule] = &[
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Is(3, libc::MSG_NOSIGNAL as u32), Arg::IsLong(4, 0)]],
        "data to a connection; the gofer",
    ),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Bits(2, !RECEIVE, 0)]], "data from a connection; the gofer"),
    allow(libc::SYS_shutdown, "one direction of a connection"),
];
const RECEIVE: u64 = (libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK | libc::MSG_TRUNC) as u64;

/// The stack inside uses interfaces of the container's network namespace. Its sockets there were made outside.
const INTERFACES: &[Rule] = &[allow_when(
    libc::SYS_bind,
    &[&[Arg::Is(2, size_of::<libc::sockaddr_ll>() as u32)]],
    "a packet socket takes an interface",
)];

/// Sinks of trace sessions.
const TRACE: &[Rule] = &[
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Bits(3, TELLING, libc::MSG_NOSIGNAL as u64), Arg::IsLong(4, 0)]],
        "messages to a consumer; never to an address",
    ),
    allow_when(
        libc::SYS_recvmsg,
        &[&[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)]],
        "another connection to a consumer",
    ),
    allow_when(libc::SYS_shutdown, &[&[Arg::Is(1, libc::SHUT_RDWR as u32)]], "the end of a policy that asks"),
];
/// Flags of sendto(2) but the one that may be there or not.
const TELLING: u64 = !libc::MSG_DONTWAIT as u32 as u64;

/// Further command lines, and further containers that send their sockets later.
const LISTENING: &[Rule] = &[
    allow(libc::SYS_accept4, "the control socket"),
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Bits(3, TELLING, libc::MSG_NOSIGNAL as u64), Arg::IsLong(4, 0)]],
        "the control socket; never to an address",
    ),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)]], "the control socket"),
    allow_when(libc::SYS_shutdown, &[&[Arg::Is(1, libc::SHUT_RDWR as u32)]], "the end of a policy that asks"),
];

/// Waiting for standard streams, timers and each other.
const WAITING: &[Rule] = &[
    allow(libc::SYS_poll, "standard streams"),
    allow(libc::SYS_ppoll, "standard streams"),
    allow(libc::SYS_epoll_create1, "standard streams"),
    allow(libc::SYS_epoll_ctl, "standard streams"),
    allow(libc::SYS_epoll_wait, "standard streams"),
    allow(libc::SYS_epoll_pwait, "standard streams"),
    allow(libc::SYS_eventfd2, "waking a thread that waits for descriptors"),
    allow(libc::SYS_nanosleep, "short waits"),
    allow(libc::SYS_clock_nanosleep, "the guest's timers"),
];

/// What both platforms need: the same stub, with the same filter.
const STUBS: &[Rule] = &[allow_when(
    libc::SYS_ioctl,
    &[
        &[Arg::Is(1, seccomp::NOTIF_RECV as u32)],
        &[Arg::Is(1, seccomp::NOTIF_SEND as u32)],
        &[Arg::Is(1, seccomp::NOTIF_ID_VALID as u32)],
        &[Arg::Is(1, seccomp::NOTIF_ADDFD as u32)],
        &[Arg::Is(1, seccomp::NOTIF_SET_FLAGS as u32)],
    ],
    "user notifications of the stubs: receive, answer, check, add a descriptor, wake-up mode",
)];

/// The systrap platform.
const SYSTRAP: &[Rule] = &[
    allow(libc::SYS_process_vm_readv, "guest memory"),
    allow(libc::SYS_process_vm_writev, "guest memory"),
    allow(libc::SYS_pidfd_open, "the end of a stub"),
    allow(libc::SYS_pidfd_send_signal, "ending a stub"),
    allow(libc::SYS_waitid, "the end of a stub"),
];

/// The ptrace platform: its guest processes are children of the sentry.
const PTRACE: &[Rule] = &[
    allow(libc::SYS_ptrace, "running guest code"),
    allow_when(libc::SYS_tgkill, &[&[Arg::Is(2, libc::SIGKILL as u32)]], "ending a guest process"),
    allow(libc::SYS_process_vm_readv, "guest memory"),
    allow(libc::SYS_process_vm_writev, "guest memory"),
    allow(libc::SYS_pidfd_open, "the end of a guest process"),
    allow(libc::SYS_pidfd_send_signal, "ending a guest process"),
    allow(libc::SYS_wait4, "stops of guest processes"),
    allow(libc::SYS_waitid, "stops of guest processes"),
];

#[cfg(test)]
mod tests {
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
            unix: false,
            listens,
            channel: 9,
            backing: 7,
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
            THREADS, FILES, CHANGES, WATCHES, LOCKS, UNIX, INTERFACES, LISTENING, WAITING, STUBS, SYSTRAP,
            PTRACE,
        ]
        .concat();
        assert!(all.iter().all(|rule| !rule.why.is_empty()));
    }

    #[test]
    fn nothing_of_the_host_changes_where_nothing_may_be_written() {
        for rule in CHANGES {
            let mode = u64::from(libc::S_IFREG);
            let request = if rule.call == libc::SYS_ioctl { hostsys::fs::FICLONERANGE } else { 0 };
            let args = [5, request, mode, libc::AT_EMPTY_PATH as u64, 0, 0];
            assert!(!allows_all(&needs(false, false), rule.call, args), "{}", rule.call);
            assert!(allows_all(&needs(true, false), rule.call, args), "{}", rule.call);
        }
        let unlink = |fd, flags| allows(&needs(false, false), libc::SYS_unlinkat, [fd, 0, flags]);
        assert!(unlink(7, 0) && !unlink(8, 0) && !unlink(7, libc::AT_REMOVEDIR as u64));
        let mknod = |kind: u32, device| {
            allows_all(&needs(true, false), libc::SYS_mknodat, [5, 0, kind.into(), device, 0, 0])
        };
        assert!(mknod(libc::S_IFCHR, 0) && !mknod(libc::S_IFCHR, 0x103) && !mknod(libc::S_IFCHR, 1 << 32));
        assert!(!mknod(libc::S_IFBLK, 0));
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
            assert!(
                !sets(libc::IPPROTO_TCP, libc::TCP_ULP) && !sets(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER)
            );
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
        let with = FilterNeeds { unix: true, ..needs(true, false) };
        for call in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4]
        {
            assert!(!allows(&with, call, [1, 1, 0]), "{call}");
        }
        let send = |to| allows_all(&with, libc::SYS_sendto, [5, 0, 0, libc::MSG_NOSIGNAL as u64, to, 0]);
        assert!(send(0) && !send(0x1000) && !allows(&with, libc::SYS_sendmsg, [5, 0, 0]));
        assert!(allows(&with, libc::SYS_recvmsg, [5, 0, (libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK) as u64]));
        assert!(!allows(&with, libc::SYS_recvmsg, [5, 0, libc::MSG_OOB as u64]));
        assert!(allows(&with, libc::SYS_shutdown, [5, 1, 0]));
        assert!(!allows(&needs(true, true), libc::SYS_shutdown, [5, 1, 0]));
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
        for (signal, allowed) in [
            (0, true),
            (INTERRUPT_SIGNAL, true),
            (libc::SIGKILL as u32, false),
            (libc::SIGSTOP as u32, false),
        ] {
            assert_eq!(allows(&all, libc::SYS_tgkill, [4, 4, signal.into()]), allowed, "{signal}");
        }
        assert!(allows(&all, libc::SYS_madvise, [0, 4096, libc::MADV_DONTNEED as u64]));
        assert!(!allows(&all, libc::SYS_madvise, [0, 4096, libc::MADV_HWPOISON as u64]));
    }
}
