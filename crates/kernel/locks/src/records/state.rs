//! The locks on a file as plain data, for a checkpoint.

use super::{Kind, Owner, Range, existing, locks_of, release_with};
use abi::Result;
use std::sync::Arc;
use vfs::Caller;
use vfs::file::OpenFile;

/// The locks on a file as plain data. Owners have their identities of before. Threads that wait for a lock ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LocksState {
    /// Record locks, by first byte.
    pub records: Vec<Range>,
    /// flock(2) locks, by open file ([`OpenFile::id`]).
    pub flocks: Vec<(u64, Kind)>,
}

/// The locks on the inode of an open file as plain data.
pub fn state(file: &OpenFile) -> LocksState {
    let Some(locks) = existing(file) else { return LocksState::default() };
    let mut records: Vec<Range> =
        locks.records.lock().of.values().flat_map(|m| m.values().copied()).collect();
    records.sort_by_key(|range| (range.start, range.end));
    let mut flocks = locks.flocks.lock().held.clone();
    flocks.sort_by_key(|(id, _)| *id);
    LocksState { records, flocks }
}

/// Takes the locks of plain data for a file that has none, on the host as well where others outside can lock it. `find`
/// gives the owner of now for one of before, and an open file of the inode that it has; what has no owner any more is
/// left out. EAGAIN when a process outside has a lock that stands in the way, ENOLCK when there are too many.
pub fn restore(
    cx: &dyn Caller,
    saved: &LocksState,
    find: impl Fn(Owner) -> Option<(Owner, Arc<OpenFile>)>,
) -> Result<()> {
    for range in &saved.records {
        let Some((owner, file)) = find(range.owner) else { continue };
        let locks = locks_of(&file)?;
        release_with(&file, &locks);
        locks.records.lock().take(cx, &file, Range { owner, ..*range })?;
    }
    for (id, kind) in &saved.flocks {
        let Some((_, file)) = find(Owner::File(*id)) else { continue };
        let locks = locks_of(&file)?;
        release_with(&file, &locks);
        let mut flocks = locks.flocks.lock();
        let shared = !flocks.held.is_empty();
        flocks.host.lock(&file, *kind, shared)?;
        flocks.held.push((file.id, *kind));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{TO_END, flock, set, test};
    use abi::Errno;
    use caller::Failure;
    use vfs::InodeRef;
    use vfs::file::PathOnly;
    use vfs::inode::{InternalFs, InternalInode};
    use vfs::testing::TestCaller;

    fn inode() -> InodeRef {
        Arc::new(InternalInode::new(7, InternalFs::Pipe, 0o600, 0, 0))
    }

    fn open(inode: &InodeRef) -> Arc<OpenFile> {
        OpenFile::new(None, Some(inode.clone()), Arc::new(PathOnly::default()), libc::O_RDWR)
    }

    #[test]
    fn state_and_back() {
        let cx = TestCaller::root().with_pid(9);
        let (before, after) = (inode(), inode());
        let old = [open(&before), open(&before)];
        let lock = |file: &OpenFile, owner, kind, start, end| {
            set(&cx, file, owner, Some(kind), start, end, false).expect("free")
        };
        lock(&old[0], Owner::Posix(1), Kind::Exclusive, 10, 19);
        lock(&old[0], Owner::Posix(1), Kind::Shared, 20, TO_END);
        lock(&old[1], Owner::File(old[1].id), Kind::Exclusive, 0, 4);
        flock(&cx, &old[0], Some(Kind::Shared), false).expect("free");
        flock(&cx, &old[1], Some(Kind::Shared), false).expect("free");
        let saved = state(&old[0]);
        assert_eq!((saved.records.len(), saved.flocks.len()), (3, 2));

        let new = [open(&after), open(&after)];
        let find = |owner| match owner {
            Owner::Posix(1) => Some((Owner::Posix(2), new[0].clone())),
            Owner::File(id) => {
                let file = new.iter().zip(&old).find(|(_, old)| old.id == id)?.0;
                Some((Owner::File(file.id), file.clone()))
            }
            _ => None,
        };
        restore(&cx, &saved, find).expect("free");
        let again = state(&new[1]);
        let shape =
            |s: &LocksState| s.records.iter().map(|r| (r.kind, r.start, r.end, r.pid)).collect::<Vec<_>>();
        assert_eq!(shape(&again), shape(&saved));
        // The holder may go on, and others are refused.
        let other = open(&after);
        assert_eq!(test(&new[0], Owner::Posix(2), Kind::Exclusive, 5, TO_END), Ok(None));
        let found = test(&other, Owner::Posix(3), Kind::Shared, 5, TO_END).expect("asked");
        assert_eq!(found.map(|r| (r.start, r.end, r.pid)), Some((10, 19, 9)));
        assert_eq!(flock(&cx, &other, Some(Kind::Exclusive), false), Err(Failure::Errno(Errno::EAGAIN)));
        // Locks end with their files.
        drop(new);
        assert_eq!(state(&other).flocks, []);
        assert_eq!(state(&other).records.len(), 2);
        // Owners that are gone are left out.
        restore(&cx, &saved, |_| None).expect("nothing to do");
    }
}
