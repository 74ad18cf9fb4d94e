//! The leases on a file as plain data, for a checkpoint.

use super::{Lease, Leases, Tell};
use abi::{Errno, Result};
use ktime::Ktime;
use std::sync::Arc;
use std::time::Duration;
use vfs::file::OpenFile;
use vfs::inode::InodeRef;

/// A lease as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LeaseState {
    /// The open file that has it ([`OpenFile::id`]).
    pub file: u64,
    /// F_RDLCK or F_WRLCK.
    pub kind: i32,
    /// What it has to become (F_RDLCK, F_UNLCK), and the time that is left until it is made so; `None` for ever.
    pub breaking: Option<(i32, Option<Duration>)>,
    /// The descriptor through which it was taken.
    #[serde(default)]
    pub fd: i32,
}

/// The leases on an inode as plain data, at the moment `now` of the kernel's clock. Threads that wait for their end ask again.
pub fn state(inode: &InodeRef, now: Ktime) -> Vec<LeaseState> {
    let Some(leases) = super::of(inode) else { return Vec::new() };
    let lease = |lease: &Lease| {
        let file = lease.file.upgrade()?.id;
        let left = |end: Ktime| end.since(now);
        let breaking = lease.breaking.map(|(target, end)| (target, end.map(left)));
        Some(LeaseState { file, kind: lease.kind, breaking, fd: lease.tell.fd() })
    };
    let list = leases.list.lock();
    list.iter().filter_map(lease).collect()
}

/// Gives an inode without leases those of plain data. `find` gives the open file of a lease, and the way to notify it; a lease
/// without its file is left out. EINVAL for an inode that can have none, and for leases that cannot be.
pub fn restore(
    inode: &InodeRef,
    saved: &[LeaseState],
    now: Ktime,
    find: impl Fn(&LeaseState) -> Option<(Arc<OpenFile>, Tell)>,
) -> Result<()> {
    let valid = |one: &LeaseState| {
        let target = one.breaking.is_none_or(|(target, _)| matches!(target, super::READ | super::NONE));
        matches!(one.kind, super::READ | super::WRITE) && target
    };
    if inode.kind() != libc::S_IFREG || !saved.iter().all(valid) {
        return Err(Errno::EINVAL);
    }
    let attachments = inode.attachments().ok_or(Errno::EINVAL)?;
    let leases = attachments.get_or(Leases::default);
    let lease = |one: &LeaseState| {
        let (file, tell) = find(one)?;
        let breaking = one.breaking.map(|(target, left)| (target, left.map(|left| now.plus(left))));
        Some(Lease { file: Arc::downgrade(&file), kind: one.kind, breaking, tell })
    };
    let restored: Vec<Lease> = saved.iter().filter_map(lease).collect();
    leases.list.lock().extend(restored);
    attachments.users().lease(&leases.queue);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::{break_for, get, set};
    use caller::{Failure, Limits};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use vfs::InodeRef;
    use vfs::file::PathOnly;
    use vfs::inode::{InternalFs, InternalInode};
    use vfs::testing::TestCaller;

    fn file() -> Arc<OpenFile> {
        let inode: InodeRef = Arc::new(InternalInode::new(7, InternalFs::Pipe, libc::S_IFREG | 0o600, 0, 0));
        OpenFile::new(None, Some(inode), Arc::new(PathOnly::default()), libc::O_RDONLY)
    }

    #[test]
    fn state_and_back() {
        let cx = TestCaller::root();
        let told = Arc::new(AtomicUsize::new(0));
        let tell = || -> Tell {
            let told = told.clone();
            Tell::new(3, move |_| {
                told.fetch_add(1, Ordering::Relaxed);
            })
        };
        let (old, new) = (file(), file());
        let inode = |file: &OpenFile| file.inode.clone().expect("given");
        let now = || cx.resources().clock.now();
        set(&cx, &old, libc::F_RDLCK, tell()).expect("nobody writes");
        assert_eq!(
            state(&inode(&old), now()),
            [LeaseState { file: old.id, kind: libc::F_RDLCK, breaking: None, fd: 3 }]
        );
        let again = Err(Failure::Errno(Errno::EAGAIN));
        assert_eq!(break_for(&cx, &inode(&old), true, true), again);
        let saved = state(&inode(&old), now());
        let left = saved[0].breaking.and_then(|(_, left)| left).expect("a time limit");
        assert!(left <= Duration::from_secs(45) && left > Duration::from_secs(30), "{left:?}");

        restore(&inode(&new), &saved, now(), |one| (one.file == old.id).then(|| (new.clone(), tell())))
            .expect("restored");
        assert_eq!(get(&new), libc::F_UNLCK);
        // The holder was told already.
        assert_eq!((break_for(&cx, &inode(&new), true, true), told.load(Ordering::Relaxed)), (again, 1));
        set(&cx, &new, libc::F_UNLCK, tell()).expect("given back");
        assert_eq!(break_for(&cx, &inode(&new), true, true), Ok(()));
        restore(&inode(&new), &saved, now(), |_| None).expect("restored");
        assert_eq!(state(&inode(&new), now()), []);
        let hostile =
            [LeaseState { kind: 7, ..saved[0] }, LeaseState { breaking: Some((-1, None)), ..saved[0] }];
        for one in hostile {
            assert_eq!(restore(&inode(&new), &[one], now(), |_| None), Err(Errno::EINVAL));
        }
    }
}
