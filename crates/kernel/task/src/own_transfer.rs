//! Reads and writes of files that the guest thread makes by itself, when it resumes, by a descriptor that the platform lends to it.
//!
//! The call is answered beforehand, as if all bytes had been moved. When they cannot be (the file has become shorter, the disk is
//! full, the memory cannot be reached), what was foreseen is taken back, and the call is made again in the usual way.

use crate::current::Current;
use crate::result::Restart;
use platform::Transfer;
use std::sync::Arc;
use vfs::{Loan, OpenFile};

/// A transfer that has been foreseen.
pub(crate) struct OwnTransfer {
    file: Arc<OpenFile>,
    /// The file's position before and behind it.
    moved: Option<(u64, u64)>,
    _after: Option<Box<dyn Send>>,
}

impl Current {
    /// Has the guest thread move bytes when it resumes. `positioned`: the caller advances the file's position by as much. False:
    /// the platform does not.
    pub fn transfer_by_itself(
        &mut self,
        file: &Arc<OpenFile>,
        loan: Loan,
        moves: &Transfer,
        positioned: bool,
    ) -> bool {
        if !self.ctx.move_file(&loan.fd, moves) {
            return false;
        }
        let moved = positioned.then(|| (moves.offset, moves.offset + moves.len as u64));
        self.own_transfer = Some(OwnTransfer { file: file.clone(), moved, _after: loan.after });
        true
    }

    /// The guest thread has resumed: what was foreseen has happened.
    pub(crate) fn settle_transfer(&mut self) {
        if self.own_transfer.is_some() {
            self.own_transfer = None;
        }
    }

    /// An action has failed: takes back what was foreseen of a transfer. False when there was none.
    pub(crate) fn take_back_transfer(&mut self) -> bool {
        let Some(own) = self.own_transfer.take() else { return false };
        if let Some((from, to)) = own.moved {
            let mut pos = own.file.pos.lock();
            if *pos == to {
                *pos = from;
            }
        }
        self.restart = Some(Restart::NoIntr);
        true
    }
}
