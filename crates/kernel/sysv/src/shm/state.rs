//! A segment of shared memory as plain data, for a checkpoint.

use super::{Segment, State};
use crate::ids::Object;
use crate::{Doer, IpcNamespace, Perm, nr};
use abi::{Errno, Result, page_up};
use lock_order::Mutex;
use std::sync::Arc;
use vfs::{OpenFile, OpenFileState};

/// A segment as plain data. Its content is kept with the file; the number of mappings follows from the address spaces.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SegmentState {
    /// Its ID, key, owner and mode.
    pub perm: Perm,
    /// Size in bytes.
    pub size: u64,
    /// The open file that it is made of ([`OpenFile::id`]).
    pub file: u64,
    /// The processes that made it and that attached or detached it last, by numbers in the sandbox's own PID namespace.
    pub doers: [Option<i32>; 2],
    /// Times of the last shmat(2), the last shmdt(2) and the last change.
    pub times: [i64; 3],
    /// IPC_RMID was called: it goes with its last mapping.
    pub removed: bool,
    /// SHM_LOCK.
    pub locked: bool,
}

impl Segment {
    pub(crate) fn doers(&self) -> [Doer; 2] {
        [self.creator.clone(), self.state.lock().last.clone()]
    }

    pub(crate) fn state(&self) -> SegmentState {
        let s = self.state.lock();
        SegmentState {
            perm: s.perm,
            size: self.size,
            file: self.file.id,
            doers: [nr(&self.creator), nr(&s.last)],
            times: [s.atime, s.dtime, s.ctime],
            removed: s.removed,
            locked: s.locked,
        }
    }

    /// Back from plain data, without mappings. EINVAL when the file has another length.
    pub(crate) fn restore(
        saved: &SegmentState,
        file: Arc<OpenFile>,
        find: impl Fn(i32) -> Doer,
    ) -> Result<Segment> {
        // It is mapped for writing whatever its file says.
        if !file.writable() || saved.size == 0 || page_up(saved.size) != Some(file.attr()?.size) {
            return Err(Errno::EINVAL);
        }
        let [creator, last] = saved.doers.map(|pid| pid.and_then(&find));
        let [atime, dtime, ctime] = saved.times;
        let (perm, removed, locked) = (saved.perm, saved.removed, saved.locked);
        let state = State { perm, atime, dtime, ctime, last, removed, locked };
        Ok(Segment { size: saved.size, creator, file, nattch: Arc::default(), state: Mutex::new(state) })
    }
}

impl IpcNamespace {
    /// The files that segments are made of, to be kept as open files are.
    pub fn shm_files(&self) -> Vec<Arc<OpenFile>> {
        self.shm.lock().iter().map(|(_, segment)| segment.file.clone()).collect()
    }

    /// What restored address spaces map of a segment that they have attached; permissions are not checked again. EINVAL,
    /// EIDRM when there is none with this ID.
    pub fn shm_file(self: &Arc<Self>, saved: &OpenFileState, id: i32) -> Result<Arc<OpenFile>> {
        let seg = self.shm.lock().find(id)?;
        let ops = Arc::new(self.attached(&seg, id));
        OpenFile::restore(saved, seg.file.path.clone(), seg.file.inode.clone(), ops)
    }

    /// Ends the removed segments that no restored address space has attached.
    pub fn shm_settle(&self) {
        let ids: Vec<i32> = self.shm.lock().iter().map(|(_, segment)| segment.perm().id).collect();
        ids.into_iter().for_each(|id| self.shm_detached(id));
    }
}
