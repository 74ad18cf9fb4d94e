//! Figures of the sandbox's processes, which pid 1 reads from a procfs of its own for the sentry. The sentry has no
//! procfs, as links in one lead to files of the host. See `hostsys::figures`.

use confine::filter::{Arg, Rule};
use hostsys::figures;
use hostsys::pagemap::PAGEMAP_SCAN;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Linux's O_LARGEFILE, which the C library has as 0 and rustix sets.
const LARGE: u64 = 0o100_000;

/// How long the sentry waits for an answer. After that it asks no more.
const PATIENCE: Duration = Duration::from_secs(2);

/// The side that answers.
pub(crate) struct Figures {
    procfs: OwnedFd,
    socket: OwnedFd,
}

impl Figures {
    /// Also gives the side that asks. Needs CAP_SYS_ADMIN over the PID namespace, whose procfs is mounted nowhere.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let fs = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // Processes alone, none of the files that tell of the host.
        fsconfig_set_string(fs.as_fd(), "subset", "pid")?;
        fsconfig_create(fs.as_fd())?;
        let attrs = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_RDONLY;
        let procfs = fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attrs)?;
        let (asks, socket) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // A stopped pid 1 must not stop what programs do inside.
        set_socket_timeout(&asks, Timeout::Recv, Some(PATIENCE))?;
        Ok((Self { procfs, socket }, asks))
    }

    /// Answers one request; false when there will be no other.
    pub(crate) fn answer(&self) -> bool {
        figures::answer(self.socket.as_fd(), self.procfs.as_fd()).unwrap_or(false)
    }

    /// Readable when there is a request.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What the process may open: files below its procfs, to read them, and not through a link as the last name.
    pub(crate) fn with_rules<T>(this: Option<&Self>, f: impl FnOnce(&[Rule<'_>]) -> T) -> T {
        let Some(this) = this else { return f(&[]) };
        let (fd, flags) = (this.procfs.as_raw_fd() as u32, u64::from(figures::FLAGS.bits()));
        let when = [Arg::Is(0, fd), Arg::Bits(2, !LARGE & u64::from(u32::MAX), flags)];
        let when: [&[Arg]; 1] = [&when];
        let scan: [&[Arg]; 1] = [&[Arg::Is(1, PAGEMAP_SCAN as u32)]];
        f(&[
            Rule { call: libc::SYS_openat, when: &when, why: "figures of the sandbox's processes" },
            Rule {
                call: libc::SYS_ioctl,
                when: &scan,
                why: "pages of the sandbox's processes, for a checkpoint",
            },
        ])
    }
}
