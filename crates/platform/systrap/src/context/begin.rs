//! Guest threads that run before their sentry threads do.

use super::{ProcessGone, SystrapContext};
use crate::actions::{Encoder, Job};
use platform::{Action, Exit, Interrupt};
use smallvec::SmallVec;

/// The most of what is queued that may go along, and bytes of each write.
const MOST: (usize, usize) = (4, 64);

impl SystrapContext {
    /// See [`platform::Context::begin`].
    pub(super) fn start_early(&mut self) -> bool {
        let quiet =
            self.begun.is_none() && self.xstate.is_none() && self.framed.is_none() && self.lending.is_none();
        let brief = |action: &Action| matches!(action, Action::Write { data, .. } if data.len() <= MOST.1);
        let fits = self.copy.is_none() && self.queue.len() <= MOST.0 && self.queue.iter().all(brief);
        if !quiet || !fits || self.thread.interrupted() {
            return false;
        }
        let jobs: SmallVec<[Job; 4]> = self.queue.iter().cloned().map(Job::Action).collect();
        if self.first_invalid(&jobs).is_some() {
            return false;
        }
        self.queue.clear();
        let mut encoder = Encoder::new(&jobs, self.thread.index);
        // No action names a descriptor.
        let _ = encoder.fill(&self.thread.slot, None);
        self.begun = Some(encoder.in_round());
        self.let_run();
        true
    }

    /// The first exit of a guest thread that has begun to run, after so many actions.
    pub(super) fn first_exit(&mut self, actions: usize) -> Result<Exit, ProcessGone> {
        let mut encoder = Encoder::of_round(actions);
        match self.next_exit(&mut encoder, 0)? {
            Some(exit) => Ok(exit),
            None => self.enter(&mut encoder, 0, Vec::new()),
        }
    }

    /// Stops a guest thread that has begun to run, whose sentry thread could not be started.
    pub(super) fn stop_early(&mut self) -> Result<(), ProcessGone> {
        let Some(actions) = self.begun.take() else { return Ok(()) };
        self.thread.interrupt();
        self.first_exit(actions).map(drop)
    }
}
