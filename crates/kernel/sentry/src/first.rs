//! What a checkpoint takes of a container, and the threads that a container begins with, from its building until it is started.

use crate::console::Console;
use crate::errors::other;
use crate::tracing;
use abi::{SigInfo, Signal};
use checkpoint::files::Baseline;
use container::Container;
use lock_order::Mutex;
use spec::{ProcessSpec, StartError};
use std::sync::Arc;
use task::{Current, SI_HOST};

/// Wait status of a container with a first process that could not run.
pub(crate) const NOT_STARTED: i32 = 128 << 8;

enum State {
    /// Other containers of the image have to come first. `started`: it is to run then.
    Awaited { started: bool },
    /// That of the first process, and others if they come from a checkpoint.
    Waits(Vec<Current>),
    /// They run, or have run.
    Runs,
}

/// A container as a checkpoint takes it.
pub(crate) struct Member {
    pub(crate) container: Arc<Container>,
    /// Its name in the pod; empty where it has none.
    pub(crate) name: String,
    /// The mounts that it began with.
    pub(crate) baseline: Baseline,
    pub(crate) console: Option<Arc<Console>>,
    pub(crate) first: Arc<First>,
}

/// The threads that a container begins with.
pub(crate) struct First {
    container: Arc<Container>,
    process: ProcessSpec,
    state: Mutex<State>,
}

impl First {
    /// Threads that are there.
    pub(crate) fn new(
        container: &Arc<Container>,
        process: &ProcessSpec,
        threads: Vec<Current>,
    ) -> Arc<First> {
        First::with(container, process, State::Waits(threads))
    }

    /// Threads that [`First::come`].
    pub(crate) fn awaited(container: &Arc<Container>, process: &ProcessSpec) -> Arc<First> {
        First::with(container, process, State::Awaited { started: false })
    }

    fn with(container: &Arc<Container>, process: &ProcessSpec, state: State) -> Arc<First> {
        let (container, process) = (container.clone(), process.clone());
        Arc::new(First { container, process, state: Mutex::new(state) })
    }

    /// Whether `start` was called.
    pub(crate) fn is_started(&self) -> bool {
        matches!(*self.state.lock(), State::Awaited { started: true } | State::Runs)
    }

    /// Whether the threads run.
    pub(crate) fn runs(&self) -> bool {
        matches!(*self.state.lock(), State::Runs)
    }

    /// Whether there are no threads yet.
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(*self.state.lock(), State::Awaited { .. })
    }

    /// Lets the threads run, now or when they are there.
    pub(crate) fn start(&self) -> Result<(), StartError> {
        let mut state = self.state.lock();
        let threads = match &mut *state {
            State::Waits(threads) => std::mem::take(threads),
            State::Awaited { started } if !*started => {
                *started = true;
                return Ok(());
            }
            _ => return Err(other("cannot start a container that has already been started".into())),
        };
        *state = State::Runs;
        drop(state);
        self.run(threads)
    }

    /// The threads are there.
    pub(crate) fn come(&self, threads: Vec<Current>) -> Result<(), StartError> {
        // One that was to end meanwhile runs, and ends before its first instruction.
        let over = self.container.is_over();
        if over {
            let kernel = threads.first().map(|thread| thread.kernel().clone());
            let kill = SigInfo::new(Signal::SIGKILL, SI_HOST);
            kernel.iter().for_each(|kernel| kernel.signal_container(&self.container, kill, |_| true));
        }
        let mut state = self.state.lock();
        if !over && !matches!(*state, State::Awaited { started: true }) {
            *state = State::Waits(threads);
            return Ok(());
        }
        *state = State::Runs;
        drop(state);
        self.run(threads)
    }

    fn run(&self, threads: Vec<Current>) -> Result<(), StartError> {
        if let Some(thread) = threads.first() {
            tracing::container_starts(thread, &self.process);
        }
        for thread in threads {
            task::start(thread).map_err(|e| {
                // No other code will end a container that never ran.
                self.container.finish(NOT_STARTED);
                other(format!("cannot start the first process: the host has no thread left ({e})"))
            })?;
        }
        Ok(())
    }
}
