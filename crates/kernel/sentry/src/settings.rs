//! Settings of a container and of a process that a specification names: host name, clocks, scheduling as recorded, and HOME.

use crate::errors::{other, text};
use abi::time::Timespec;
use files::io;
use mounts::FsView;
use namei::open::open_at;
use namei::{OpenHow, Start};
use nsproxy::{Offsets, Uts};
use spec::{ProcessSpec, SandboxSpec, StartError};
use std::sync::atomic::Ordering;
use task::Current;
use vfs::Internal;

/// Most of /etc/passwd that is read: it is the container's.
const MAX_PASSWD: usize = 1 << 20;

/// Records what the guest may ask back.
pub(crate) fn apply(c: &Current, p: &ProcessSpec) {
    if let Some(priority) = p.io_priority {
        c.task.scheduling.ioprio.store(priority, Ordering::Relaxed);
    }
    if let Some(scheduler) = p.scheduler {
        *c.task.scheduling.policy.lock() = (scheduler.policy, scheduler.priority);
        if let Some(nice) = scheduler.nice {
            c.task.scheduling.nice.store(nice, Ordering::Relaxed);
        }
    }
}

/// The names that a container of its own starts with.
pub(crate) fn uts(spec: &SandboxSpec) -> Uts {
    let domainname = if spec.domainname.is_empty() { "(none)".into() } else { spec.domainname.clone() };
    Uts::new(spec.hostname.clone(), domainname)
}

/// What the clocks of a container are ahead of the host's.
pub(crate) fn offsets(spec: &SandboxSpec) -> Result<Offsets, StartError> {
    let [monotonic, boottime] = spec.time_offsets.map(|(sec, nsec)| Timespec { sec, nsec: i64::from(nsec) });
    let offsets = Offsets { monotonic, boottime };
    match offsets.check(|clock| hostsys::clock::gettime_ns(clock).unwrap_or(0)) {
        Ok(()) => Ok(offsets),
        Err(error) => Err(other(format!("time offsets: {}", text(error)))),
    }
}

/// The environment, with HOME if it is to be there. An empty one is none, as with runc.
pub(crate) fn environment(cx: &Internal, p: &ProcessSpec, view: &FsView) -> Vec<String> {
    let mut env = p.env.clone();
    if p.set_home && !env.iter().any(|entry| entry.strip_prefix("HOME=").is_some_and(|home| !home.is_empty()))
    {
        env.retain(|entry| entry != "HOME=");
        let passwd = read(cx, view, b"/etc/passwd").unwrap_or_default();
        env.push(format!("HOME={}", home(&passwd, p.uid).unwrap_or("/")));
    }
    env
}

/// The home directory of a user.
fn home(passwd: &str, uid: u32) -> Option<&str> {
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|fields| fields.len() >= 6 && fields[2].parse() == Ok(uid))?;
    Some(user[5]).filter(|home| !home.is_empty())
}

fn read(cx: &Internal, view: &FsView, path: &[u8]) -> Option<String> {
    let how = OpenHow::legacy(libc::O_RDONLY | libc::O_NONBLOCK, 0).ok()?;
    let file = open_at(cx, view, &Start::Cwd, path, &how).ok()?;
    if vfs::file::file_kind(&file) != libc::S_IFREG {
        return None;
    }
    let (mut text, mut buffer) = (Vec::new(), vec![0; 16 << 10]);
    while text.len() < MAX_PASSWD {
        match io::read_at(cx, &file, &mut buffer, text.len() as u64) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&buffer[..n]),
            Err(_) => return None,
        }
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbad line\nme:x:1000:1000::/home/me:/bin/sh\nno:x:5:5:::\n";
        assert_eq!(
            [0, 1000, 5, 7].map(|uid| home(passwd, uid)),
            [Some("/root"), Some("/home/me"), None, None]
        );
    }
}
