//! A group that reports what happens to watched objects in full: to which object, in which directory, under which name.
//!
//! The objects are named by their handles ([`super::Handle`]). A group needs no privilege. The host's kernel keeps at most
//! fs.fanotify.max_queued_events events; then it reports [`Report::Overflow`].

use super::{INFO_HEADER, INIT_FLAGS, KEY_HEADER, LARGEST, METADATA, word};
use crate::check;
use abi::{Errno, Result};
use libc::c_int;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Flags of the group.
pub const REPORT_FLAGS: u32 = INIT_FLAGS | libc::FAN_REPORT_FID;

/// FAN_RENAME: an old name, a new name, or both in one event.
pub const RENAME: u64 = 0x1000_0000;
/// Events about an object, whatever it is.
pub const OBJECT_MASK: u64 =
    libc::FAN_MODIFY | libc::FAN_ATTRIB | libc::FAN_CLOSE_WRITE | libc::FAN_DELETE_SELF | libc::FAN_MOVE_SELF;
/// All that is reported of a directory.
pub const DIRECTORY_MASK: u64 =
    OBJECT_MASK | libc::FAN_CREATE | libc::FAN_DELETE | RENAME | libc::FAN_EVENT_ON_CHILD | libc::FAN_ONDIR;

/// Types of the records that an event has: the object; its directory, or the directory alone.
const OBJECT: u8 = 1;
const DIRECTORY: [u8; 2] = [2, 3];
/// The old and the new name of a rename.
const OLD_NAME: u8 = 10;
const NEW_NAME: u8 = 12;
/// Bytes for events that are read at once.
const BUFFER: usize = 32 << 10;

/// A directory by its handle, and a name in it; `.` for the directory itself.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report<'a> {
    /// Events (FAN_*), several of one process in one report.
    Event {
        /// What they were, with FAN_ONDIR.
        mask: u64,
        /// This process caused them.
        own: bool,
        /// In which directory, to which name.
        entry: Option<Entry<'a>>,
        /// To which object, where that is not the directory.
        object: Option<&'a [u8]>,
    },
    /// A rename, with those of its names that are in marked directories.
    Rename {
        /// It was a directory's.
        dir: bool,
        /// This process caused it.
        own: bool,
        /// The old name.
        from: Option<Entry<'a>>,
        /// The new name.
        to: Option<Entry<'a>>,
    },
    /// There was more than the queue holds.
    Overflow,
}

/// A group.
#[derive(Debug)]
pub struct Reports {
    fd: OwnedFd,
    pid: u32,
}

impl AsFd for Reports {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Reports {
    /// A new group of this process. EMFILE when the user has too many (fs.fanotify.max_user_groups), ENOSYS or EPERM where
    /// the host has none for us.
    pub fn new() -> Result<Reports> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::fanotify_init(REPORT_FLAGS, libc::O_RDONLY as u32) }.into())?;
        // SAFETY: the kernel has just made the descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as c_int) };
        Ok(Reports { fd, pid: std::process::id() })
    }

    /// Reads what has happened, by way of `buf`, and tells it. True when there may be more.
    pub fn read(&self, buf: &mut Vec<u8>, mut told: impl FnMut(Report<'_>)) -> bool {
        buf.resize(BUFFER, 0);
        match crate::fs::read(&self.fd, buf) {
            Err(Errno::EINTR) => true,
            Ok(n) if n > 0 => {
                parse(&buf[..n], self.pid, &mut told);
                // The next event would have fit.
                n + LARGEST > buf.len()
            }
            Err(Errno::EAGAIN) => false,
            _ => {
                told(Report::Overflow);
                false
            }
        }
    }
}

/// Tells what events say. What cannot be understood counts as lost.
fn parse(mut events: &[u8], own: u32, told: &mut impl FnMut(Report<'_>)) {
    while !events.is_empty() {
        let len = word(events, 0).unwrap_or(0) as usize;
        let Some(event) = events.get(..len).filter(|event| event.len() >= METADATA) else {
            return told(Report::Overflow);
        };
        events = &events[len..];
        told(report(event, own).unwrap_or(Report::Overflow));
    }
}

fn report(event: &[u8], own: u32) -> Option<Report<'_>> {
    let mask = u64::from(word(event, 8)?);
    let own = word(event, 20)? == own;
    if mask & libc::FAN_Q_OVERFLOW != 0 {
        return None;
    }
    let (mut entry, mut object, mut from, mut to) = (None, None, None, None);
    let mut infos = event.get(METADATA..)?;
    while !infos.is_empty() {
        let len = usize::from(u16::from_ne_bytes(infos.get(2..4)?.try_into().ok()?));
        let info = infos.get(..len).filter(|info| info.len() > INFO_HEADER + KEY_HEADER)?;
        infos = &infos[len..];
        let end = INFO_HEADER + KEY_HEADER + word(info, INFO_HEADER + 8)? as usize;
        let key = info.get(INFO_HEADER..end)?;
        let name = info.get(end..)?.split(|byte| *byte == 0).next()?;
        match info[0] {
            OBJECT => object = Some(key),
            kind if DIRECTORY.contains(&kind) => entry = Some((key, name)),
            OLD_NAME => from = Some((key, name)),
            NEW_NAME => to = Some((key, name)),
            _ => {}
        }
    }
    if mask & RENAME != 0 {
        return Some(Report::Rename { dir: mask & libc::FAN_ONDIR != 0, own, from, to });
    }
    (entry.is_some() || object.is_some()).then_some(Report::Event { mask, own, entry, object })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanotify::{mark, unmark};
    use std::fs;

    fn told(group: &Reports) -> Vec<String> {
        let mut all = Vec::new();
        let text = |entry: Option<Entry<'_>>| {
            entry.map_or("-".into(), |(_, name)| String::from_utf8_lossy(name).into_owned())
        };
        let mut buf = Vec::new();
        while group.read(&mut buf, |report| match report {
            Report::Event { mask, own, entry, object } => {
                all.push(format!("{mask:x} {own} {} {}", text(entry), object.is_some()));
            }
            Report::Rename { from, to, .. } => all.push(format!("{} to {}", text(from), text(to))),
            Report::Overflow => all.push("lost".into()),
        }) {}
        all
    }

    #[test]
    fn reports_say_what_happened_to_what() {
        let dir = std::env::temp_dir().join(format!("reports-{}", std::process::id()));
        fs::create_dir_all(dir.join("other")).unwrap();
        // Not by this process: one that another test is starting would hold the file open for a moment, and tell its end.
        let run = |script: &str| {
            let mut shell = std::process::Command::new("/bin/sh");
            assert!(shell.args(["-c", script]).current_dir(&dir).status().unwrap().success());
        };
        run("echo x >f");
        let group = Reports::new().unwrap();
        mark(&group, fs::File::open(&dir).unwrap(), DIRECTORY_MASK).unwrap();
        let file = fs::File::open(dir.join("f")).unwrap();
        mark(&group, &file, OBJECT_MASK).unwrap();
        run("echo y >>f; mv f g; mv g other; mkdir d");
        fs::write(dir.join("other/g"), "mine").unwrap();
        assert_eq!(
            told(&group),
            [
                "a false f true",
                "f to g",
                "800 false - true",
                "g to -",
                "800 false - true",
                "40000100 false d false",
                "a true g true"
            ]
        );
        unmark(&group, &file, OBJECT_MASK).unwrap();
        fs::write(dir.join("other/g"), "again").unwrap();
        assert!(told(&group).is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn garbage_counts_as_lost() {
        for len in 1..96 {
            let mut bytes = vec![0xff; len];
            for _ in 0..2 {
                let mut lost = false;
                parse(&bytes, 1, &mut |report| lost |= report == Report::Overflow);
                assert!(lost);
                if len < METADATA {
                    break;
                }
                bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
                bytes[8..12].fill(1);
            }
        }
    }
}
