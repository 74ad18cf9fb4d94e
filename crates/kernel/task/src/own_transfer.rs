//! Reads and writes of files that the guest thread makes by itself, when it resumes, by a descriptor that the platform lends to it.
//!
//! The call is answered beforehand, as if all bytes had been moved. When they cannot be (the file has become shorter, the disk is
//! full, the memory cannot be reached), what was foreseen is taken back, and the call is made again in the usual way.

use platform::Transfer;
use std::sync::Arc;
use vfs::{LentFd, OpenFile};

/// A transfer that has been foreseen.
pub(crate) struct OwnTransfer {
    file: Arc<OpenFile>,
    /// The file's position before and behind it.
    moved: Option<(u64, u64)>,
    _after: Option<Box<dyn Send>>,
}

impl OwnTransfer {
    /// The transfer `moves` of a file by the descriptor that `loan` lends. `positioned`: the caller advances the file's position
    /// by as much.
    pub(crate) fn new(file: &Arc<OpenFile>, loan: LentFd, moves: &Transfer, positioned: bool) -> OwnTransfer {
        let moved = positioned.then(|| (moves.offset, moves.offset + moves.len as u64));
        OwnTransfer { file: file.clone(), moved, _after: loan.after }
    }

    /// It could not be made: takes back what was foreseen.
    pub(crate) fn take_back(self) {
        if let Some((from, to)) = self.moved {
            let mut pos = self.file.pos.lock();
            if *pos == to {
                *pos = from;
            }
        }
    }
}
