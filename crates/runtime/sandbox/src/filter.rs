//! The host calls of the sentry; [`host_network`] has those that host mode adds.
//!
//! docs/security.md groups these calls; a rule without a need is to be removed.

mod host_network;
#[cfg(test)]
mod tests;

use ::seccomp::SockFilter;
use confine::filter::{Arg, RUST_RUNTIME, Rule, THREADS, allow, allow_when, compile_without};
use hostsys::{fanotify, seccomp};
use spec::{HostUds, Network, Overlay, PlatformName, SandboxSpec};
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
    /// What programs may do with Unix sockets of the host.
    pub(crate) unix: HostUds,
    /// The gofer serves the files by its protocol.
    pub(crate) through_gofer: bool,
    /// That one or others are asked about files.
    pub(crate) asks_gofers: bool,
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
        let unix = spec.host_uds;
        let (platform, network) = (spec.platform, spec.network);
        FilterNeeds {
            platform,
            changes,
            shares,
            unix,
            through_gofer: spec.through_gofer,
            asks_gofers: spec.asks_gofers() || spec.opening_gofer.is_some(),
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
        let mut tables = vec![RUST_RUNTIME, THREADS, OWN_THREADS, FILES, WAITING, STUBS, platform];
        if self.changes {
            tables.push(CONTENTS);
        }
        if self.shares {
            tables.push(WATCHES);
            tables.push(LOCKS);
        }
        if self.asks_gofers {
            tables.push(GOFER);
        }
        if !self.through_gofer {
            tables.push(PATHS);
            if self.changes {
                tables.push(CHANGES);
            }
            if self.shares {
                tables.push(MARKS);
            }
        }
        if self.unix.any() {
            tables.push(UNIX);
        }
        if self.unix.create {
            tables.push(UNIX_NAMES);
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
        if !self.through_gofer {
            tables.push(&own);
        }
        let absent = if self.through_gofer { TRIED } else { &[] };
        tables.push(if self.listens { LISTENING } else { &first });
        if let Network::Host { policed } = self.network {
            return host_network::with_rules(policed, |rules| {
                let all: Vec<&[Rule<'_>]> = tables.iter().copied().chain([rules]).collect();
                compile_without(&all, absent)
            });
        }
        compile_without(&tables, absent)
    }
}

/// Puts the calling thread, and with it all threads to come, under the filter.
pub(crate) fn install(needs: &FilterNeeds) -> io::Result<()> {
    confine::filter::install(&needs.compile()?)
}

/// One thread per guest thread, and a few of the kernel's own.
const OWN_THREADS: &[Rule] = &[
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

const WRITING: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
const NOFOLLOW: u64 = libc::O_NOFOLLOW as u64;

/// Names and attributes of the container's files, through the directories that the gofer opened. None of these calls is there
/// when the gofer serves the files.
const PATHS: &[Rule] = &[
    allow_when(libc::SYS_openat, &[&[Arg::Bits(2, NOFOLLOW, NOFOLLOW)]], "files, never through a link"),
    allow_when(
        libc::SYS_openat,
        &[&[Arg::Is(0, libc::AT_FDCWD as u32), Arg::Bits(2, WRITING, 0)]],
        "what libraries look for by absolute path: the root is empty, so nothing is found",
    ),
    allow(libc::SYS_openat2, "files below a directory, without links"),
    allow(libc::SYS_newfstatat, "attributes"),
    allow(libc::SYS_statx, "attributes"),
    allow(libc::SYS_getdents64, "directories"),
    allow(libc::SYS_readlinkat, "links"),
    allow(libc::SYS_faccessat2, "permissions"),
    allow(libc::SYS_fgetxattr, "extended attributes"),
    allow(libc::SYS_flistxattr, "extended attributes"),
];

/// What only tries whether something is there, in the libraries that we use: it finds nothing.
const TRIED: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_stat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlink,
    libc::SYS_access,
];

/// Questions to the gofer about files, which it serves.
const GOFER: &[Rule] = &[
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Bits(3, TELLING, libc::MSG_NOSIGNAL as u64), Arg::IsLong(4, 0)]],
        "questions to the gofer",
    ),
    allow_when(
        libc::SYS_sendmsg,
        &[&[Arg::Bits(2, TELLING, libc::MSG_NOSIGNAL as u64)]],
        "questions to the gofer about an open file, which goes with them",
    ),
    allow_when(
        libc::SYS_recvmsg,
        &[
            &[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)],
            &[Arg::Is(2, (libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) as u32)],
        ],
        "its answers",
    ),
];

/// Data of the container's files; memory files; standard streams.
const FILES: &[Rule] = &[
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
    allow(libc::SYS_fstatfs, "attributes of a file system"),
    allow(libc::SYS_ftruncate, "sizes"),
    allow(libc::SYS_fallocate, "sizes"),
    allow(libc::SYS_fsync, "durability"),
    allow(libc::SYS_fdatasync, "durability"),
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

/// Changes of files of the host by their descriptors.
const CONTENTS: &[Rule] = &[allow_when(
    libc::SYS_ioctl,
    &[&[Arg::Is(1, hostsys::fs::FICLONERANGE as u32)]],
    "files that share blocks, both in directories of the host",
)];

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

/// Being told what others change in directories.
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
            &[Arg::Is(1, fanotify::IGNORE_FLAGS[0]), Arg::IsLong(2, libc::FAN_MODIFY), Arg::IsLong(4, 0)],
            &[Arg::Is(1, fanotify::IGNORE_FLAGS[1]), Arg::IsLong(2, libc::FAN_MODIFY), Arg::IsLong(4, 0)],
            &[Arg::Is(1, libc::FAN_MARK_FLUSH), Arg::IsLong(2, 0), Arg::IsLong(4, 0)],
        ],
        "no events of an open file's content; never by a path",
    ),
    allow(libc::SYS_fstatfs, "the kind of a file system"),
];

/// The marks for that, of directories that are open already.
const MARKS: &[Rule] = &[
    allow_when(
        libc::SYS_fanotify_mark,
        &[
            &[Arg::Is(1, libc::FAN_MARK_ADD), Arg::IsLong(2, fanotify::MASK), Arg::IsLong(4, 0)],
            &[Arg::Is(1, libc::FAN_MARK_ADD), Arg::IsLong(2, fanotify::NAMES_MASK), Arg::IsLong(4, 0)],
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

/// Unix sockets of the host with a name that programs inside bound. The gofer has made them.
const UNIX_NAMES: &[Rule] = &[
    allow(libc::SYS_listen, "a socket that the gofer gave its name"),
    allow(libc::SYS_accept4, "connections to it"),
    allow_when(
        libc::SYS_getsockopt,
        &[&[Arg::Is(1, libc::SOL_SOCKET as u32), Arg::Is(2, libc::SO_PEERCRED as u32)]],
        "the users of the other side",
    ),
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
