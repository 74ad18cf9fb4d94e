//! The host calls of a gofer that serves files, beside its others.

use confine::filter::{Arg, Rule, allow, allow_when};
use hostsys::fanotify;

const EMPTY_PATH: u32 = libc::AT_EMPTY_PATH as u32;
const PAIR: u32 = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u32;
/// SIGCANCEL and SIGSETXID are this one and the next.
const FIRST_REAL_TIME: u32 = 32;
const TYPE: u64 = libc::S_IFMT as u64;
const WRITING: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;
const OTHER_EVENTS: u64 = !(fanotify::MASK | fanotify::DIRECTORY_MASK);

/// Channels and what changes nothing; [`confine::filter::THREADS`] has the rest of their threads.
pub(crate) const RULES: &[Rule] = &[
    allow(libc::SYS_poll, "waiting for first requests"),
    allow(libc::SYS_ppoll, "waiting for first requests"),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)]], "requests"),
    allow_when(libc::SYS_sendmsg, &[&[Arg::Is(2, libc::MSG_NOSIGNAL as u32)]], "replies"),
    allow_when(
        libc::SYS_ioctl,
        &[&[Arg::Is(1, libc::TIOCOUTQ as u32)]],
        "whether the sentry has taken a reply with descriptors",
    ),
    allow_when(
        libc::SYS_socketpair,
        &[&[Arg::Is(0, libc::AF_UNIX as u32), Arg::Is(1, PAIR), Arg::Is(2, 0)]],
        "a channel; no other sockets",
    ),
    allow_when(
        libc::SYS_fcntl,
        &[&[Arg::Is(1, libc::F_DUPFD_CLOEXEC as u32)]],
        "the root of a connection's tree",
    ),
    allow_when(libc::SYS_unshare, &[&[Arg::IsLong(0, libc::CLONE_FS as u64)]], "a thread's own umask"),
    allow(libc::SYS_umask, "the same"),
    allow(libc::SYS_capget, "capabilities take effect in the threads that serve files alone"),
    allow(libc::SYS_capset, "the same"),
    allow_when(
        libc::SYS_rt_sigaction,
        &[&[Arg::Is(0, FIRST_REAL_TIME)], &[Arg::Is(0, FIRST_REAL_TIME + 1)]],
        "signals that the C library uses among threads",
    ),
    allow_when(libc::SYS_sched_setaffinity, &[&[Arg::Is(0, 0)]], "a thread goes where the sentry's waits"),
    allow(libc::SYS_clock_gettime, "when an object was made"),
    allow(libc::SYS_openat2, "objects in a directory, without links"),
    allow_when(
        libc::SYS_openat,
        &[&[Arg::Is(0, libc::AT_FDCWD as u32), Arg::Bits(2, WRITING, 0)]],
        "what the allocator looks for in /proc when it gives memory back: the root has only the trees",
    ),
    allow_when(
        libc::SYS_statx,
        &[&[Arg::Is(2, EMPTY_PATH)], &[Arg::Is(2, libc::AT_SYMLINK_NOFOLLOW as u32)]],
        "attributes, never through a link",
    ),
    allow(libc::SYS_fstatfs, "attributes of a file system"),
    allow(libc::SYS_getdents64, "listings"),
    allow(libc::SYS_lseek, "a listing that goes on"),
    allow(libc::SYS_readlinkat, "the text of a link"),
    allow(libc::SYS_fgetxattr, "extended attributes"),
    allow(libc::SYS_flistxattr, "extended attributes"),
    allow_when(
        libc::SYS_fanotify_mark,
        &[
            &[Arg::Is(1, libc::FAN_MARK_ADD), Arg::Bits(2, OTHER_EVENTS, 0), Arg::IsLong(4, 0)],
            &[Arg::Is(1, libc::FAN_MARK_REMOVE), Arg::Bits(2, OTHER_EVENTS, 0), Arg::IsLong(4, 0)],
        ],
        "marks of a descriptor in the sentry's group; never permission events, mounts or file systems",
    ),
    allow_when(
        libc::SYS_name_to_handle_at,
        &[&[Arg::Is(4, fanotify::HANDLE_FLAGS as u32)]],
        "what events call an object; nothing may open by it",
    ),
];

/// Changes, for trees that may be written to.
pub(crate) const CHANGES: &[Rule] = &[
    allow(libc::SYS_mkdirat, "a directory"),
    allow_when(
        libc::SYS_mknodat,
        &[
            &[Arg::Bits(2, TYPE, libc::S_IFIFO as u64)],
            &[Arg::Bits(2, TYPE, libc::S_IFSOCK as u64)],
            &[Arg::Bits(2, TYPE, libc::S_IFCHR as u64), Arg::IsLong(3, 0)],
        ],
        "FIFOs and sockets, never a device, but overlayfs's whiteouts (0:0, which nothing drives)",
    ),
    allow(libc::SYS_symlinkat, "a symbolic link"),
    allow_when(
        libc::SYS_linkat,
        &[&[Arg::Is(4, 0)], &[Arg::Is(4, EMPTY_PATH)]],
        "a name, never through a link",
    ),
    allow(libc::SYS_unlinkat, "the removal of a name"),
    allow(libc::SYS_renameat2, "another name"),
    allow(libc::SYS_ftruncate, "sizes"),
    allow(libc::SYS_fchmod, "modes"),
    allow(libc::SYS_fchmodat, "modes of FIFOs and sockets that were just made, before Linux 6.6"),
    allow_when(hostsys::fs::FCHMODAT2, &[&[Arg::Is(3, EMPTY_PATH)]], "modes, never by a name"),
    allow(libc::SYS_fchown, "owners"),
    allow_when(libc::SYS_fchownat, &[&[Arg::Is(4, EMPTY_PATH)]], "owners, never by a name"),
    allow_when(
        libc::SYS_utimensat,
        &[&[Arg::IsLong(1, 0), Arg::Is(3, 0)], &[Arg::Is(3, EMPTY_PATH)]],
        "times, never by a name",
    ),
    allow(libc::SYS_fsetxattr, "extended attributes"),
    allow(libc::SYS_fremovexattr, "extended attributes"),
];
