//! What programs asked of the kernel and did not get, for the report of `debug --coverage`. Noted where a request is
//! refused, so a request that is served costs nothing. Lock: a leaf. A checkpoint keeps nothing.

use lock_order::Mutex;
use std::collections::BTreeMap;

/// Most different requests that are kept.
const MOST: usize = 2000;
/// Longest text about one.
const LONGEST: usize = 120;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// An option of a socket.
    SocketOption,
    /// A kind of socket.
    Socket,
    /// A request of ioctl(2).
    Ioctl,
    /// A command of fcntl(2).
    Fcntl,
    /// An option of prctl(2).
    Prctl,
    /// A type of file system.
    FileSystem,
    /// A part of a system call that is there but for that part.
    Part,
    /// A file of procfs, sysfs or cgroup2.
    File,
    /// A file of procfs that always says the same.
    ConstantFile,
}

impl Asked {
    /// As the report names it.
    pub fn name(self) -> &'static str {
        match self {
            Asked::SocketOption => "socket options",
            Asked::Socket => "sockets",
            Asked::Ioctl => "ioctls",
            Asked::Fcntl => "fcntl commands",
            Asked::Prctl => "prctl options",
            Asked::FileSystem => "file systems",
            Asked::Part => "parts of system calls",
            Asked::File => "files",
            Asked::ConstantFile => "constant files",
        }
    }
}

/// Requests that were refused, and how often.
#[derive(Default)]
pub struct Coverage(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    of: BTreeMap<(Asked, String), u64>,
    /// Those of further ones.
    others: u64,
}

impl Coverage {
    /// A request was refused.
    pub fn note(&self, asked: Asked, mut what: String) {
        if let Some((cut, _)) = what.char_indices().nth(LONGEST) {
            what.truncate(cut);
        }
        let mut counts = self.0.lock();
        let full = counts.of.len() >= MOST;
        match counts.of.get_mut(&(asked, what.clone())) {
            Some(count) => *count += 1,
            None if full => counts.others += 1,
            None => drop(counts.of.insert((asked, what), 1)),
        }
    }

    /// The same for a name that is no text.
    pub fn note_bytes(&self, asked: Asked, what: &[u8]) {
        self.note(asked, String::from_utf8_lossy(what).into_owned());
    }

    /// All of them, and how often any other was.
    pub fn list(&self) -> (Vec<(Asked, String, u64)>, u64) {
        let counts = self.0.lock();
        let list = counts.of.iter().map(|((asked, what), count)| (*asked, what.clone(), *count));
        (list.collect(), counts.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_make_the_list_long() {
        let coverage = Coverage::default();
        for i in 0..3 * MOST {
            coverage.note(Asked::File, format!("{i}{}", "x".repeat(1000)));
            coverage.note(Asked::Prctl, "1".into());
        }
        let (list, others) = coverage.list();
        assert_eq!((list.len(), others), (MOST, 2 * MOST as u64 + 1));
        assert!(list.iter().all(|(_, what, _)| what.len() <= LONGEST));
        let prctl: Vec<_> = list.iter().filter(|(asked, ..)| *asked == Asked::Prctl).collect();
        assert_eq!(prctl, [&(Asked::Prctl, "1".into(), 3 * MOST as u64)]);
    }
}
