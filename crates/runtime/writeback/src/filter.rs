//! The host calls of a write-back.

use confine::filter::{Arg, Rule, allow, allow_when};

/// MSG_CMSG_CLOEXEC and MSG_NOSIGNAL, the only flags used.
const RECV: u32 = libc::MSG_CMSG_CLOEXEC as u32;
const SEND: u32 = libc::MSG_NOSIGNAL as u32;

/// Beside the Rust run-time's own. The root holds the directory and nothing else, and no mount lets a device be
/// opened, a link be followed or a program run.
pub(crate) const RULES: &[Rule] = &[
    allow_when(
        libc::SYS_sendto,
        &[&[Arg::Is(0, 3), Arg::Is(3, SEND), Arg::IsLong(4, 0)]],
        "what became of the setting up",
    ),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Is(0, 3), Arg::Is(2, RECV)]], "the setting up"),
    allow(libc::SYS_ppoll, "whether anybody waits for the setting up"),
    allow(libc::SYS_read, "the changes"),
    allow(libc::SYS_write, "content; answers"),
    allow(libc::SYS_pread64, "content"),
    allow(libc::SYS_pwrite64, "content"),
    allow(libc::SYS_lseek, "holes"),
    allow(libc::SYS_ftruncate, "sizes"),
    allow(libc::SYS_openat, "the journal"),
    allow(libc::SYS_openat2, "files below a directory, without links"),
    allow(libc::SYS_statx, "attributes"),
    allow(libc::SYS_fstat, "attributes"),
    allow(libc::SYS_newfstatat, "attributes"),
    allow(libc::SYS_getdents64, "directories that are removed"),
    allow(libc::SYS_mkdirat, "new objects"),
    allow(libc::SYS_mknodat, "new objects"),
    allow(libc::SYS_symlinkat, "new objects"),
    allow(libc::SYS_linkat, "new names"),
    allow(libc::SYS_renameat2, "new names"),
    allow(libc::SYS_renameat, "new names"),
    allow(libc::SYS_unlinkat, "names that are gone"),
    allow(libc::SYS_fchmod, "attributes"),
    allow(libc::SYS_fchmodat, "attributes"),
    allow(hostsys::fs::FCHMODAT2, "attributes"),
    allow(libc::SYS_fchown, "attributes"),
    allow(libc::SYS_fchownat, "attributes"),
    allow(libc::SYS_utimensat, "attributes"),
    allow(libc::SYS_fgetxattr, "extended attributes"),
    allow(libc::SYS_flistxattr, "extended attributes"),
    allow(libc::SYS_fsetxattr, "extended attributes"),
    allow(libc::SYS_fremovexattr, "extended attributes"),
    allow(libc::SYS_fsync, "durability"),
    allow(libc::SYS_syncfs, "durability"),
    allow(libc::SYS_flock, "one write-back at a time"),
    allow(libc::SYS_getrandom, "keys of tables; keys of journals"),
    allow_when(
        libc::SYS_fcntl,
        &[&[Arg::Is(1, libc::F_DUPFD_CLOEXEC as u32)]],
        "a second descriptor of a directory",
    ),
];
