//! User and group maps of a new user namespace, written by its parent.

use hostsys::spawn::{Groups, Namespaces, Program, spawn};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Which users exist in a new user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is one per start, and it is copied")]
pub enum Mapping {
    /// All that exist in the caller's, under the same numbers. The caller must be root there.
    Identity,
    /// Only the caller, as root.
    CallerAsRoot,
    /// These. The caller may map them: it is root, or they are its own.
    Listed(Maps),
}

/// Most ranges of one kind: plenty for what container engines write, and few enough to be copied.
const MAX_RANGES: usize = 16;

/// Ranges of users and groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    uids: [(u32, u32, u32); MAX_RANGES],
    gids: [(u32, u32, u32); MAX_RANGES],
}

impl Maps {
    /// From ranges of (first inside, first outside, count); `None` when there are too many.
    pub fn new(uids: &[(u32, u32, u32)], gids: &[(u32, u32, u32)]) -> Option<Self> {
        let mut maps = Self::default();
        maps.uids.get_mut(..uids.len())?.copy_from_slice(uids);
        maps.gids.get_mut(..gids.len())?.copy_from_slice(gids);
        Some(maps)
    }
}

/// Ranges in the form of /proc/PID/uid_map; unused ones have no members.
fn lines(ranges: &[(u32, u32, u32)]) -> String {
    let used = ranges.iter().filter(|(_, _, count)| *count != 0);
    used.map(|(inside, outside, count)| format!("{inside} {outside} {count}\n")).collect()
}

/// Writes the maps of process `pid`, which is in a user namespace made just now.
pub fn write_maps(pid: i32, mapping: Mapping) -> io::Result<()> {
    match mapping {
        Mapping::Identity => {
            for file in ["uid_map", "gid_map"] {
                let ours = fs::read_to_string(format!("/proc/self/{file}"))?;
                fs::write(format!("/proc/{pid}/{file}"), identity(&ours))?;
            }
        }
        Mapping::Listed(maps) => {
            fs::write(format!("/proc/{pid}/uid_map"), lines(&maps.uids))?;
            fs::write(format!("/proc/{pid}/gid_map"), lines(&maps.gids))?;
        }
        Mapping::CallerAsRoot => {
            // An unprivileged process may map its group only once setgroups(2) is off for good.
            fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
            fs::write(
                format!("/proc/{pid}/uid_map"),
                format!("0 {} 1\n", rustix::process::geteuid().as_raw()),
            )?;
            fs::write(
                format!("/proc/{pid}/gid_map"),
                format!("0 {} 1\n", rustix::process::getegid().as_raw()),
            )?;
        }
    }
    Ok(())
}

/// A user namespace with these maps, of ranges of (first inside, first outside, count). No process is in it.
pub fn namespace(uids: &[(u32, u32, u32)], gids: &[(u32, u32, u32)]) -> io::Result<OwnedFd> {
    // A process makes it, and ends without having run anything.
    let null = File::open("/dev/null")?;
    let groups = Groups::default();
    let program = Program {
        exe: null.as_fd(),
        args: &[],
        env: &[],
        fds: &[],
        namespaces: Namespaces::USER,
        groups: &groups,
    };
    let mut made = None;
    let spawned = spawn(&program, |pid, _| {
        fs::write(format!("/proc/{pid}/uid_map"), lines(uids))?;
        fs::write(format!("/proc/{pid}/gid_map"), lines(gids))?;
        made = Some(File::open(format!("/proc/{pid}/ns/user"))?);
        Err(io::ErrorKind::Interrupted.into())
    });
    match (made, spawned) {
        (Some(made), _) => Ok(made.into()),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Every range that exists in `map` (as /proc/self/uid_map shows it), under its own numbers.
fn identity(map: &str) -> String {
    let mut out = String::new();
    for line in map.lines() {
        let mut fields = line.split_whitespace();
        if let (Some(inside), Some(_), Some(count)) = (fields.next(), fields.next(), fields.next()) {
            out += &format!("{inside} {inside} {count}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_ranges() {
        let maps = Maps::new(&[(0, 1000, 1), (1, 100_000, 65536)], &[(0, 5, 7)]).unwrap();
        assert_eq!(lines(&maps.uids), "0 1000 1\n1 100000 65536\n");
        assert_eq!(lines(&maps.gids), "0 5 7\n");
        assert_eq!(Maps::new(&[(0, 0, 1); MAX_RANGES + 1], &[]), None);
    }

    #[test]
    fn every_range_keeps_its_numbers() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 1000 1\n1 100000 65536\n"), "0 0 1\n1 1 65536\n");
    }
}
