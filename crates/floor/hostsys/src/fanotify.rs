//! Watches for changes that other processes make in directories. See fanotify(7).
//!
//! A group needs no privilege. It reports names below marked directories by the directory's file handle, and says which events
//! are the reader's own.

use crate::{check, last};
use abi::{Errno, Result};
use libc::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

mod reports;

pub use reports::{DIRECTORY_MASK, Entry, OBJECT_MASK, RENAME, REPORT_FLAGS, Report, Reports};

/// Flags of the group.
pub const INIT_FLAGS: u32 = libc::FAN_CLASS_NOTIF
    | libc::FAN_CLOEXEC
    | libc::FAN_NONBLOCK
    | libc::FAN_REPORT_DIR_FID
    | libc::FAN_REPORT_NAME;

/// What is told of a marked directory: names and attributes in it, and of itself.
pub const MASK: u64 = libc::FAN_ATTRIB
    | libc::FAN_MODIFY
    | libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_DELETE_SELF
    | libc::FAN_MOVE_SELF
    | libc::FAN_EVENT_ON_CHILD
    | libc::FAN_ONDIR;

/// The same without changes of contents, which cost the writer about 0.4 us each.
pub const NAMES_MASK: u64 = MASK & !libc::FAN_MODIFY;

/// Flags that set and remove the events that a mark of a file keeps from the marks of its directory; the kernel leaves them in
/// place when the file is written to.
pub const IGNORE_FLAGS: [u32; 2] = [
    libc::FAN_MARK_ADD | libc::FAN_MARK_IGNORED_MASK | libc::FAN_MARK_IGNORED_SURV_MODIFY,
    libc::FAN_MARK_REMOVE | libc::FAN_MARK_IGNORED_MASK,
];

/// Flags of the calls that ask for a handle: it need not be good for opening (AT_HANDLE_FID).
pub const HANDLE_FLAGS: c_int = libc::AT_EMPTY_PATH | 0x200;

/// MAX_HANDLE_SZ.
const MAX_HANDLE: usize = 128;
/// File system id, `handle_bytes` and `handle_type`, which stand before a handle's bytes in an event.
const KEY_HEADER: usize = 16;
/// An event with the longest name and the longest handle.
const LARGEST: usize = 512;
/// `struct fanotify_event_metadata`.
const METADATA: usize = 24;
/// `struct fanotify_event_info_header`.
const INFO_HEADER: usize = 4;

/// What a directory is called in events: its file system's id and its handle.
pub type Handle = Box<[u8]>;

/// Something that another process did.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// In a directory, or to it.
    In {
        /// The directory's handle.
        directory: &'a [u8],
        /// The name; empty or `.` for the directory itself.
        name: &'a [u8],
        /// What was done (FAN_*); several things of one process come together.
        mask: u64,
    },
    /// There was more than the queue holds.
    Overflow,
}

/// A notification group.
#[derive(Debug)]
pub struct Group {
    fd: OwnedFd,
    pid: i32,
    _last: Option<LastReference>,
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Group {
    /// A new group of this process. EMFILE when the user has too many (fs.fanotify.max_user_groups), ENOSYS or EPERM where the
    /// host has none for us.
    pub fn new() -> Result<Group> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::fanotify_init(INIT_FLAGS, libc::O_RDONLY as u32) }.into())?;
        // SAFETY: the kernel has just made the descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as c_int) };
        let last = LastReference::new(&fd).ok();
        Ok(Group { fd, pid: std::process::id() as i32, _last: last })
    }

    /// Has changes of the content of an open file reported no longer, or again.
    pub fn ignore_content(&self, file: impl AsFd, ignore: bool) -> Result<()> {
        let [set, remove] = IGNORE_FLAGS;
        set_mark(self.as_fd(), file, if ignore { set } else { remove }, libc::FAN_MODIFY)
    }

    /// Takes back all marks.
    pub fn flush(&self) -> Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: a null path is allowed, nothing else is passed by pointer.
        let done =
            unsafe { libc::fanotify_mark(fd, libc::FAN_MARK_FLUSH, 0, libc::AT_FDCWD, std::ptr::null()) };
        check(done.into()).map(drop)
    }

    /// Reads what has happened since it was called last, by way of `buf`; tells what others did.
    pub fn drain(&self, buf: &mut [u8], mut told: impl FnMut(Change<'_>)) {
        loop {
            match crate::fs::read(&self.fd, buf) {
                Err(Errno::EINTR) => {}
                Ok(n) if n > 0 => {
                    changes(&buf[..n], self.pid, &mut told);
                    // The next event would have fit.
                    if n + LARGEST < buf.len() {
                        return;
                    }
                }
                // Nothing more; or a group that does not work, which is as bad as a lost event.
                Err(Errno::EAGAIN) => return,
                _ => return told(Change::Overflow),
            }
        }
    }
}

/// A second reference to a group, which the host's kernel drops from a thread of its own some time after this process has ended.
///
/// The last reference to a group with marks is dropped only after a grace period of the host (`synchronize_srcu`, 3 to 28 ms), and
/// a process that drops it while it ends is waited for as long. The reference is a message that a socket has received, together
/// with the socket's own descriptor: once both ends are closed, only the collector of such circles in the host's kernel
/// (unix_gc) can free it, which runs on a work queue since Linux 6.9.
#[derive(Debug)]
struct LastReference {
    _ends: [OwnedFd; 2],
}

impl LastReference {
    fn new(group: &OwnedFd) -> std::io::Result<LastReference> {
        use rustix::net::{
            AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
            sendmsg, socketpair,
        };
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // A process that ends closes its descriptors by number; the group is to be the first.
        let above = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(&fd, group.as_raw_fd() + 1);
        let (a, b) = (above(a)?, above(b)?);
        let fds = [group.as_fd(), b.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&a, &[std::io::IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
        Ok(LastReference { _ends: [a, b] })
    }
}

/// Has a group report the events of `mask` of an object that is open for reading, and returns what events call it. EOPNOTSUPP,
/// ENODEV, EXDEV where its file system has no handles, ENOSPC when the user has too many marks.
pub fn mark(group: impl AsFd, object: impl AsFd, mask: u64) -> Result<Handle> {
    set_mark(group, &object, libc::FAN_MARK_ADD, mask)?;
    handle(object)
}

/// Has a group report the events of `mask` no longer.
pub fn unmark(group: impl AsFd, object: impl AsFd, mask: u64) -> Result<()> {
    set_mark(group, object, libc::FAN_MARK_REMOVE, mask)
}

fn set_mark(group: impl AsFd, object: impl AsFd, flags: u32, mask: u64) -> Result<()> {
    let (group, object) = (group.as_fd().as_raw_fd(), object.as_fd().as_raw_fd());
    // SAFETY: a null path stands for the descriptor itself.
    check(unsafe { libc::fanotify_mark(group, flags, mask, object, std::ptr::null()) }.into()).map(drop)
}

/// The handle of an open file as events have it.
fn handle(file: impl AsFd) -> Result<Handle> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `stat` has room for what the call writes.
    check(unsafe { libc::fstatfs(file.as_fd().as_raw_fd(), stat.as_mut_ptr()) }.into())?;
    // SAFETY: zeroed and then filled in by the call.
    let id = unsafe { std::mem::transmute::<libc::fsid_t, [u8; 8]>(stat.assume_init().f_fsid) };
    if id == [0; 8] {
        return Err(Errno::ENODEV);
    }
    #[repr(C, align(8))]
    struct Room([u8; 8 + MAX_HANDLE]);
    let mut room = Room([0; 8 + MAX_HANDLE]);
    room.0[..4].copy_from_slice(&(MAX_HANDLE as u32).to_ne_bytes());
    let mut mount: c_int = 0;
    let empty: *const c_char = c"".as_ptr();
    // SAFETY: `room` is a `struct file_handle` with as many bytes behind it as it says.
    let done = unsafe {
        libc::name_to_handle_at(
            file.as_fd().as_raw_fd(),
            empty,
            room.0.as_mut_ptr().cast(),
            &raw mut mount,
            HANDLE_FLAGS,
        )
    };
    if done < 0 {
        return Err(last());
    }
    let len = u32::from_ne_bytes([room.0[0], room.0[1], room.0[2], room.0[3]]) as usize;
    let handle = room.0.get(..8 + len).ok_or(Errno::EOVERFLOW)?;
    Ok([&id, handle].concat().into())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Tells what events of other processes than `own` are about. What cannot be understood counts as lost.
fn changes(mut events: &[u8], own: i32, told: &mut impl FnMut(Change<'_>)) {
    while !events.is_empty() {
        let len = word(events, 0).unwrap_or(0) as usize;
        let Some(event) = events.get(..len).filter(|event| event.len() >= METADATA) else {
            return told(Change::Overflow);
        };
        events = &events[len..];
        if word(event, 20) == Some(own as u32) {
            continue;
        }
        // Both halves of the mask are there: the event is long enough.
        let mask = u64::from(word(event, 8).unwrap_or(0)) | u64::from(word(event, 12).unwrap_or(0)) << 32;
        match directory(event) {
            Some((directory, name)) if mask & libc::FAN_Q_OVERFLOW == 0 => {
                told(Change::In { directory, name, mask })
            }
            _ => told(Change::Overflow),
        }
    }
}

/// File system id and handle of the directory that an event is about, and the name in it.
fn directory(event: &[u8]) -> Option<(&[u8], &[u8])> {
    let info = event.get(METADATA..)?;
    let known = [libc::FAN_EVENT_INFO_TYPE_DFID_NAME, libc::FAN_EVENT_INFO_TYPE_DFID];
    if !known.contains(info.first()?) {
        return None;
    }
    let bytes = word(info, INFO_HEADER + 8)? as usize;
    let end = INFO_HEADER + KEY_HEADER + bytes;
    let name = info.get(end..)?.split(|c| *c == 0).next().unwrap_or_default();
    Some((info.get(INFO_HEADER..end)?, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct Dir(PathBuf);

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn dir(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("fanotify-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn run(script: &str) {
        assert!(std::process::Command::new("/bin/sh").args(["-c", script]).status().unwrap().success());
    }

    fn told(group: &Group) -> Vec<Handle> {
        let mut all = Vec::new();
        group.drain(&mut vec![0; 8192], |change| match change {
            Change::In { directory, .. } => all.push(directory.into()),
            Change::Overflow => panic!("lost"),
        });
        all
    }

    #[test]
    fn others_changes_are_told_and_our_own_are_not() {
        let dir = dir("own");
        let group = Group::new().unwrap();
        let key = mark(&group, fs::File::open(&dir.0).unwrap(), MASK).unwrap();
        fs::write(dir.0.join("mine"), "x").unwrap();
        fs::rename(dir.0.join("mine"), dir.0.join("ours")).unwrap();
        assert!(told(&group).is_empty());
        run(&format!("echo y > {}/ours", dir.0.display()));
        assert_eq!(told(&group).first(), Some(&key));
        run(&format!("chmod 700 {}", dir.0.display()));
        assert_eq!(told(&group), [key], "of itself");
        group.flush().unwrap();
        run(&format!("touch {}/more", dir.0.display()));
        assert!(told(&group).is_empty());
    }

    #[test]
    fn contents_are_reported_where_they_are_asked_for() {
        let dir = dir("contents");
        let (write, file) = (format!("echo y >> {}/file", dir.0.display()), dir.0.join("file"));
        fs::write(&file, "x").unwrap();
        let open = fs::File::open(&file).unwrap();
        for contents in [false, true] {
            let group = Group::new().unwrap();
            let key = mark(&group, fs::File::open(&dir.0).unwrap(), if contents { MASK } else { NAMES_MASK })
                .unwrap();
            run(&write);
            assert_eq!(told(&group).first(), contents.then_some(&key));
            group.ignore_content(&open, true).unwrap();
            run(&write);
            run(&write);
            assert!(told(&group).is_empty());
            run(&format!("chmod 600 {}", file.display()));
            assert_eq!(told(&group).first(), Some(&key), "attributes are");
            group.ignore_content(&open, false).unwrap();
            run(&write);
            assert_eq!(told(&group).first(), contents.then_some(&key));
        }
    }

    #[test]
    fn too_much_is_lost_loudly() {
        let dir = dir("flood");
        let group = Group::new().unwrap();
        mark(&group, fs::File::open(&dir.0).unwrap(), MASK).unwrap();
        let most = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
        let most: usize = most.trim().parse().unwrap();
        // The same name again would be one event with the last.
        let name = |i: usize| dir.0.join(i.to_string());
        fs::write(name(0), "").unwrap();
        for i in 0..most + 1 {
            fs::rename(name(i), name(i + 1)).unwrap();
        }
        let mut lost = false;
        group.drain(&mut vec![0; 65536], |change| lost |= change == Change::Overflow);
        assert!(lost);
    }

    #[test]
    fn garbage_counts_as_lost() {
        for len in 0..64 {
            let mut bytes = vec![0xff; len];
            let mut lost = len == 0;
            changes(&bytes, 1, &mut |change| lost |= change == Change::Overflow);
            assert!(lost);
            if len >= METADATA {
                bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
                let mut lost = false;
                changes(&bytes, 1, &mut |change| lost |= change == Change::Overflow);
                assert!(lost);
            }
        }
    }
}
