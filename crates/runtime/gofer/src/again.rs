//! Opening files once more: a descriptor of a file stays good when the file has lost its name, but for another use, such as
//! writing, the file must be opened again. A process can do that by its own /proc, which the sentry does not have.
//!
//! [`OwnFiles`] is a mount of this process's own directory of descriptors, /proc/self/fd, and of nothing else of /proc.
//! [`Opener`] serves a sentry that reaches its trees by itself; one that asks for all its files has a request for it
//! (`files`). The descriptor must have been opened through a mount of the trees: the sentry has other files open, of
//! which it may not get more than it was given.

use abi::Errno;
use abi::stat::{Attr, S_IFREG};
use abi::time::Timespec;
use confine::filter::{Arg, Rule, allow, allow_when};
use fileproto::{Access, Header, MAX_MESSAGE, Reply, Request};
use hostsys::fs as host;
use hostsys::one_fd;
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What a gofer that only opens files once more asks of the host.
pub(crate) const RULES: &[Rule] = &[
    allow(libc::SYS_poll, "waiting for requests"),
    allow(libc::SYS_ppoll, "waiting for requests"),
    allow_when(libc::SYS_recvmsg, &[&[Arg::Is(2, libc::MSG_CMSG_CLOEXEC as u32)]], "requests"),
    allow_when(libc::SYS_sendmsg, &[&[Arg::Is(2, libc::MSG_NOSIGNAL as u32)]], "answers with a descriptor"),
    allow(libc::SYS_openat2, "a file, by the gofer's own descriptor of it"),
    allow_when(libc::SYS_statx, &[&[Arg::Is(2, libc::AT_EMPTY_PATH as u32)]], "what a descriptor stands for"),
    allow(libc::SYS_capget, "capabilities take effect for that call alone"),
    allow(libc::SYS_capset, "capabilities take effect for that call alone"),
];

/// Rights for opening a file of any owner.
pub(crate) const CAPABILITIES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// The directory of this process's own descriptors.
pub(crate) struct OwnFiles(OwnedFd);

impl OwnFiles {
    /// To be called while /proc is there.
    pub(crate) fn find() -> io::Result<OwnFiles> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok(OwnFiles(open_tree(CWD, "/proc/self/fd", flags)?))
    }

    /// Opens the regular file of a descriptor once more.
    pub(crate) fn open_again(&self, file: &OwnedFd, access: Access) -> abi::Result<OwnedFd> {
        let access = match access {
            Access::Read => host::Access::Read,
            Access::Write => host::Access::Write,
            Access::ReadWrite => host::Access::ReadWrite,
            Access::Place | Access::Directory => return Err(Errno::EINVAL),
        };
        host::open_again(&self.0, file, access)
    }
}

/// Serves a sentry that reaches its trees by itself.
pub(crate) struct Opener {
    own: OwnFiles,
    /// The mounts of the trees.
    mounts: BTreeSet<u64>,
    buffer: Vec<u8>,
}

impl Opener {
    pub(crate) fn new(own: OwnFiles, mounts: BTreeSet<u64>) -> Opener {
        Opener { own, mounts, buffer: vec![0; MAX_MESSAGE] }
    }

    /// Serves one request; false when there are no more.
    pub(crate) fn serve(&mut self, end: &OwnedFd) -> io::Result<bool> {
        let failed = |errno: Errno| io::Error::from_raw_os_error(errno.raw());
        let packet = one_fd::receive(end, &mut self.buffer).map_err(failed)?;
        let bytes = self.buffer.get(..packet.len).filter(|_| packet.len != 0 && !packet.is_cut);
        let Some((Header { sequence, operation, .. }, request)) = bytes.and_then(Request::decode) else {
            return Ok(false);
        };
        let opened = match request {
            _ if packet.fd_is_lost => Err(Errno::EMFILE),
            Request::OpenAgain { access } => self.open(packet.fd, access),
            _ => Err(Errno::EPERM),
        };
        let (reply, fd) = match opened {
            Ok((attr, fd)) => (Reply::Opened(attr), Some(fd)),
            Err(errno) => (Reply::Failed(errno.raw()), None),
        };
        match one_fd::send(end, &reply.encode(sequence, operation), fd.as_ref().map(AsFd::as_fd)) {
            Ok(()) => Ok(true),
            Err(Errno::EPIPE) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn open(&self, file: Option<OwnedFd>, access: Access) -> abi::Result<(Attr, OwnedFd)> {
        let file = file.ok_or(Errno::EBADF)?;
        let (attr, mount) = host::identity_on_mount(&file)?;
        if attr.file_type() != S_IFREG || !self.mounts.contains(&mount) {
            return Err(Errno::EINVAL);
        }
        let opened = crate::with_capabilities(CAPABILITIES, || self.own.open_again(&file, access))?;
        Ok((told(attr), opened))
    }
}

/// Attributes within the bounds of a message.
pub(crate) fn told(attr: Attr) -> Attr {
    let time = |time: Timespec| Timespec { nsec: time.nsec.clamp(0, 999_999_999), ..time };
    Attr {
        size: attr.size.min(i64::MAX as u64),
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        btime: attr.btime.map(time),
        ..attr
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_without_a_name_is_opened_again_and_no_other_file() {
        let Ok(own) = OwnFiles::find() else { panic!("the tests run as root") };
        let path = std::env::temp_dir().join(format!("gofer-again-{}", std::process::id()));
        std::fs::write(&path, "one").unwrap();
        let file: OwnedFd = std::fs::File::open(&path).unwrap().into();
        std::fs::remove_file(&path).unwrap();
        let (_, mount) = host::identity_on_mount(&file).unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut opener = Opener::new(own, BTreeSet::from([mount]));
        let mut ask = |file: Option<&OwnedFd>, request: &Request<'_>| {
            one_fd::send(&ours, &request.encode(7), file.map(AsFd::as_fd)).unwrap();
            assert!(opener.serve(&theirs).unwrap());
            let mut bytes = [0; 512];
            let packet = one_fd::receive(&ours, &mut bytes).unwrap();
            (Reply::decode(&bytes[..packet.len], 7, request.operation()).unwrap(), packet.fd)
        };
        let writing = Request::OpenAgain { access: Access::ReadWrite };
        let (_, again) = ask(Some(&file), &writing);
        let again = std::fs::File::from(again.unwrap());
        again.write_all_at(b"two", 0).unwrap();
        let mut text = [0; 3];
        std::fs::File::from(file.try_clone().unwrap()).read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"two");
        let failed = |errno: Errno| Reply::Failed(errno.raw());
        assert_eq!(ask(None, &writing).0, failed(Errno::EBADF));
        let other: OwnedFd = std::fs::File::open("/proc/self/stat").unwrap().into();
        assert_eq!(ask(Some(&other), &writing).0, failed(Errno::EINVAL), "not of a tree");
        let dir: OwnedFd = std::fs::File::open(std::env::temp_dir()).unwrap().into();
        assert_eq!(ask(Some(&dir), &writing).0, failed(Errno::EINVAL), "a directory");
        let place = Request::OpenAgain { access: Access::Place };
        assert_eq!(ask(Some(&file), &place).0, failed(Errno::EINVAL));
        assert_eq!(ask(Some(&file), &Request::Stat { dir: 1 }).0, failed(Errno::EPERM));
        one_fd::send(&ours, b"nonsense", None).unwrap();
        assert!(!opener.serve(&theirs).unwrap());
    }
}
