//! Reads and writes that the stub makes by descriptors that are lent to it.

use super::SystrapContext;
use crate::actions::Job;
use crate::lent_fds::Turn;
use platform::Transfer;
use smallvec::SmallVec;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use stub::layout as l;

/// A transfer to be made, or under way.
pub(super) struct Lending {
    turn: Turn,
    moves: Transfer,
    /// The jobs have been handed over.
    begun: bool,
}

fn number(index: usize) -> u64 {
    l::LENT_FIRST + index as u64
}

impl SystrapContext {
    /// See [`platform::GuestMemory::move_file`].
    pub(super) fn lend(&mut self, fd: &Arc<OwnedFd>, moves: Transfer) -> bool {
        let inside = moves.addr.checked_add(moves.len as u64).is_some_and(|end| end <= self.inner.limits.max);
        if !inside || !self.inner.lends || self.lending.is_some() {
            return false;
        }
        let Some(turn) = self.thread.space.lent.turn(fd) else { return false };
        if turn.give {
            self.thread.grants.lock().lent = Some((fd.clone(), number(turn.index) as u32));
        }
        self.lending = Some(Lending { turn, moves, begun: false });
        true
    }

    /// Adds what there is to be moved.
    pub(super) fn lending_jobs(&mut self, jobs: &mut SmallVec<[Job; 2]>) {
        let Some(lending) = self.lending.as_mut().filter(|lending| !lending.begun) else { return };
        lending.begun = true;
        if lending.turn.give {
            jobs.push(Job::Give);
        }
        let Transfer { write, addr, len, offset } = lending.moves;
        let args = [number(lending.turn.index), addr, len as u64, offset, 0, 0];
        let nr = if write { libc::SYS_pwrite64 } else { libc::SYS_pread64 };
        jobs.push(Job::Transfer(nr as u64, args));
    }

    /// The guest has resumed, or an action has failed: the number is free for others.
    pub(super) fn lending_done(&mut self, well: bool) {
        if let Some(index) = self.closing.take() {
            self.thread.space.lent.closed(index);
        }
        let Some(lending) = self.lending.take() else { return };
        if lending.turn.give {
            self.thread.grants.lock().lent = None;
        }
        self.thread.space.lent.done(lending.turn, well);
    }

    /// Closes a descriptor that is no longer needed, with the next jobs.
    pub(super) fn look_for_close(&mut self) {
        if self.closing.is_none() {
            self.closing = self.thread.space.lent.to_close();
        }
    }

    pub(super) fn close_job(&mut self) -> Option<Job> {
        let index = self.closing?;
        Some(Job::Call(libc::SYS_close as u64, [number(index), 0, 0, 0, 0, 0]))
    }
}
