//! What the sentry asks of the host.
//!
//! docs/security.md groups these calls; a rule without a need is to be removed.

use confine::filter::{Arg, RUST_RUNTIME, Rule, allow, allow_when, compile};
use hostsys::seccomp;
use sentry::spec::PlatformName;
use std::io;

/// Puts the calling thread, and with it all threads to come, under the filter.
pub(crate) fn install(platform: PlatformName) -> io::Result<()> {
    let platform = match platform {
        PlatformName::Systrap => SYSTRAP,
        PlatformName::Ptrace => PTRACE,
    };
    confine::filter::install(&compile(&[RUST_RUNTIME, THREADS, FILES, WAITING, STUBS, platform])?)
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
    allow(libc::SYS_tgkill, "interrupting a thread of the sentry or of a stub"),
    allow(libc::SYS_getrandom, "the guest's random numbers"),
    allow(libc::SYS_sysinfo, "the guest's sysinfo"),
    allow_when(libc::SYS_prlimit64, &[&[Arg::Is(0, 0), Arg::IsLong(2, 0)]], "reading the sentry's limits"),
    allow(libc::SYS_clock_getres, "the guest's clocks"),
    allow(libc::SYS_clock_gettime, "the guest's processor clocks"),
    allow(libc::SYS_madvise, "giving memory back"),
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
    allow(libc::SYS_mkdirat, "changes of a writable bind mount"),
    allow_when(
        libc::SYS_mknodat,
        &[
            &[Arg::Bits(2, libc::S_IFMT as u64, 0)],
            &[Arg::Bits(2, libc::S_IFMT as u64, libc::S_IFREG as u64)],
            &[Arg::Bits(2, libc::S_IFMT as u64, libc::S_IFIFO as u64)],
            &[Arg::Bits(2, libc::S_IFMT as u64, libc::S_IFSOCK as u64)],
        ],
        "changes of a writable bind mount, never a device",
    ),
    allow(libc::SYS_symlinkat, "changes of a writable bind mount"),
    allow(libc::SYS_linkat, "changes of a writable bind mount"),
    allow(libc::SYS_unlinkat, "changes of a writable bind mount"),
    allow(libc::SYS_renameat2, "changes of a writable bind mount"),
    allow(libc::SYS_fchmod, "changes of a writable bind mount"),
    allow(libc::SYS_fchmodat, "changes of a writable bind mount"),
    allow(libc::SYS_fchown, "changes of a writable bind mount"),
    allow(libc::SYS_fchownat, "changes of a writable bind mount"),
    allow(libc::SYS_utimensat, "changes of a writable bind mount"),
    allow(libc::SYS_fgetxattr, "extended attributes"),
    allow(libc::SYS_fsetxattr, "extended attributes"),
    allow(libc::SYS_flistxattr, "extended attributes"),
    allow(libc::SYS_fremovexattr, "extended attributes"),
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
    allow(libc::SYS_accept4, "the control socket"),
    allow_when(libc::SYS_sendmsg, &[&[Arg::Is(2, libc::MSG_NOSIGNAL as u32)]], "the control socket"),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)]], "the control socket"),
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

    #[test]
    fn the_tables_compile_and_say_why() {
        for platform in [SYSTRAP, PTRACE] {
            let program = compile(&[RUST_RUNTIME, THREADS, FILES, WAITING, STUBS, platform]).unwrap();
            // BPF programs end at 4096 instructions.
            assert!(program.len() < 4096, "{}", program.len());
        }
        assert!([THREADS, FILES, WAITING].concat().iter().all(|rule| !rule.why.is_empty()));
    }
}
