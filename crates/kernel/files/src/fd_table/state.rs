//! A descriptor table as plain data, for a checkpoint.

use super::{FdTable, Inner, Slot};
use caller::quota::FileCount;
use std::sync::Arc;
use vfs::file::OpenFile;

/// A descriptor as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DescriptorState {
    /// Its number.
    pub fd: i32,
    /// The open file ([`OpenFile::id`]).
    pub file: u64,
    /// FD_CLOEXEC.
    pub cloexec: bool,
}

/// A descriptor table as plain data. Numbers that are reserved are free in it: the calls that reserved them start again.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FdTableState {
    /// Identity ([`FdTable::id`]), by which record locks refer to it. A restored table has another.
    pub id: u64,
    /// By number.
    pub descriptors: Vec<DescriptorState>,
    /// How many numbers there is room for (FDSize).
    pub size: usize,
}

impl FdTable {
    /// As plain data.
    pub fn state(&self) -> FdTableState {
        let descriptor = |(fd, file, cloexec): (i32, Arc<OpenFile>, bool)| {
            let file = file.id;
            DescriptorState { fd, file, cloexec }
        };
        FdTableState {
            id: self.id,
            descriptors: self.entries().into_iter().map(descriptor).collect(),
            size: self.inner.read().slots.len(),
        }
    }

    /// Back from plain data, for a sandbox with these files. `find` gives the open file with an identity; a descriptor of
    /// which there is none is closed.
    pub fn restore(
        files: Arc<FileCount>,
        saved: &FdTableState,
        find: impl Fn(u64) -> Option<Arc<OpenFile>>,
    ) -> Arc<FdTable> {
        let table = FdTable::with(files, Inner::default());
        table.fill(saved, find);
        table
    }

    /// Takes over the descriptors of plain data, for a table that has none.
    pub fn fill(&self, saved: &FdTableState, find: impl Fn(u64) -> Option<Arc<OpenFile>>) {
        let mut inner = Inner::default();
        inner.slots.resize_with(saved.size.min(self.files.nr_open() as usize), || Slot::Free);
        for one in &saved.descriptors {
            let slot = usize::try_from(one.fd).ok().and_then(|fd| inner.slots.get_mut(fd));
            if let Some((slot, file)) = slot.zip(find(one.file)) {
                file.count(&self.files);
                *slot = Slot::Used(file, one.cloexec);
            }
        }
        *self.inner.write() = inner;
    }

    /// Adds the descriptors of plain data that [`FdTable::restore`] found no files for.
    pub fn restore_rest(&self, saved: &FdTableState, find: impl Fn(u64) -> Option<Arc<OpenFile>>) {
        let mut inner = self.inner.write();
        for one in &saved.descriptors {
            let slot = usize::try_from(one.fd).ok().and_then(|fd| inner.slots.get_mut(fd));
            let Some(slot) = slot.filter(|slot| matches!(slot, Slot::Free)) else { continue };
            if let Some(file) = find(one.file) {
                file.count(&self.files);
                *slot = Slot::Used(file, one.cloexec);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caller::quota::Quotas;
    use vfs::file::PathOnly;
    use vfs::testing::TestCaller;

    #[test]
    fn state_and_back() {
        let (cx, quotas) = (TestCaller::root(), Quotas::unlimited());
        let file =
            || OpenFile::new(None, None, Arc::new(PathOnly::default()), libc::O_RDWR | libc::O_NONBLOCK);
        let table = FdTable::new(quotas.files.clone());
        let (a, b) = (file(), file());
        *a.pos.lock() = 7;
        a.owner.lock().set(vfs::file::F_OWNER_PID, 5, &cx.creds);
        table.install(a.clone(), false, 10).expect("free");
        table.install_at(&cx, 3, b.clone(), true, 10).expect("free");
        table.install_at(&cx, 5, a.clone(), true, 10).expect("free");
        let reserved = table.reserve(10).expect("free");
        let state = table.state();
        drop(reserved);
        // The files are made again first; descriptors that shared one share one again.
        let again = [&a, &b].map(|file| {
            let saved = file.state();
            let new = OpenFile::restore(&saved, None, None, Arc::new(PathOnly::default())).expect("restored");
            assert_ne!(new.id, file.id);
            assert_eq!(vfs::file::OpenFileState { id: saved.id, ..new.state() }, saved);
            (file.id, new)
        });
        let find = |id| again.iter().find(|(old, _)| *old == id).map(|(_, new)| new.clone());
        let restored = FdTable::restore(quotas.files.clone(), &state, find);
        assert_eq!((restored.numbers(), restored.size()), (vec![0, 3, 5], table.size()));
        assert_eq!([0, 3, 5].map(|fd| restored.cloexec(fd)), [Ok(false), Ok(true), Ok(true)]);
        let get = |fd| restored.get(fd).expect("open");
        assert!(Arc::ptr_eq(&get(0), &get(5)) && Arc::ptr_eq(&get(3), &again[1].1));
        assert_eq!((*get(5).pos.lock(), get(5).nonblocking(), get(5).owner.lock().id), (7, true, 5));
        // The lowest number that is free comes next, and a file that is missing leaves its number free.
        assert_eq!(restored.install(file(), false, 10), Ok(1));
        let without = FdTable::restore(quotas.files.clone(), &state, |id| find(id).filter(|_| id == b.id));
        // It may come later.
        without.restore_rest(&state, find);
        assert_eq!((without.numbers(), without.size()), (vec![0, 3, 5], table.size()));
        assert!(Arc::ptr_eq(&without.get(5).expect("open"), &again[0].1));
        let without = FdTable::restore(quotas.files.clone(), &state, |id| find(id).filter(|_| id == b.id));
        assert_eq!((without.numbers(), without.install(file(), false, 10)), (vec![3], Ok(0)));
    }
}
