//! What the runtime may ask of a kernel that runs.

use metrics::Sample;
use overlay_diff::Purpose;
use spec::{
    AfterCheckpoint, Interfaces, ProcessInfo, ProcessSpec, Refusal, SandboxSpec, StartError, Target,
    WindowSize,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use trace_wire::session::{Session, Status};

/// Most files of earlier images that one image names.
pub const MAX_LAYERS: usize = 8;

/// What others may ask of a kernel about one of its containers. Called from any thread; none of the calls blocks for long.
pub trait Running: Send + Sync {
    /// Lets the first process run; an error when it was started before.
    fn start(&self) -> Result<(), StartError>;
    /// What there is in the container's network namespace by now, which the stack inside does not use: it is only shown. An error
    /// once the first process runs.
    fn show_network(&self, interfaces: Interfaces) -> Result<(), StartError>;
    /// Sends a signal. An invalid number is ignored; `false` when there was no receiver.
    fn signal(&self, signo: i32, to: Target) -> bool;
    /// Sets the size of the container's terminal (and so raises SIGWINCH); nothing without a terminal.
    fn resize(&self, size: WindowSize);
    /// Starts another process in the container.
    fn exec(&self, process: &ProcessSpec, stdio: Stdio) -> Result<Arc<dyn Executed>, StartError>;
    /// The processes there are, by process id.
    fn processes(&self) -> Vec<ProcessInfo>;
    /// The figures of the container; those of the sandbox as well for the container that the sandbox began with.
    fn metrics(&self) -> Vec<Sample>;
    /// What programs of the sandbox asked for and did not get.
    fn refusals(&self) -> Vec<Refusal>;
    /// The threads of the sandbox for the report of a crash: takes no lock that may be held.
    fn describe(&self) -> String;
    /// Says how many mappings the host lets the sentry have, which bounds the number of guest threads.
    fn bound_tasks(&self, mappings: u64);
    /// Unmaps files of the image that have not been read since the last call; true when some are still mapped.
    fn release_idle_files(&self) -> bool;
    /// How much memory there is for the container, in bytes.
    fn memory(&self) -> u64;
    /// Whether system calls are logged from now on.
    fn trace(&self, on: bool);
    /// Begins a trace session of the sandbox. `fds`: those of its sinks, in their order. `force`: one of the same name ends.
    fn trace_create(&self, session: Session, fds: Vec<OwnedFd>, force: bool) -> Result<(), StartError>;
    /// Ends a trace session, once its messages are sent.
    fn trace_delete(&self, name: &str) -> Result<(), StartError>;
    /// The trace sessions of the sandbox.
    fn trace_list(&self) -> Vec<Status>;
    /// Writes the processes to a pipe, as JSON: those of the container, or of all for the one that the sandbox began with.
    fn dump_processes(&self, to: OwnedFd) -> Result<(), StartError>;
    /// Writes a core file of a process, by its id in the container, to a pipe, in pieces; the process goes on. Gives its threads, and
    /// how many further ones did not come to a stop.
    fn guest_core(&self, pid: i32, to: OwnedFd) -> Result<(u32, u32), StartError>;
    /// Saves the sandbox to the files of metadata and pages. After an error it goes on in any case.
    ///
    /// With `spares` memory is left out that is marked by MADV_DONTDUMP or MADV_WIPEONFORK.
    fn checkpoint(&self, files: [OwnedFd; 2], then: AfterCheckpoint, spares: bool) -> Result<(), StartError>;
    /// The descriptors of the files of pages that the sandbox was restored from, if a clone may be given them: at most
    /// [`MAX_LAYERS`].
    fn layers(&self) -> Vec<i32>;
    /// As [`checkpoint`](Running::checkpoint) for a clone that is made at once; the sandbox goes on. `keeps`: the clone is given
    /// the files of [`layers`](Running::layers), and what is there need not be written.
    fn clone_to(&self, files: [OwnedFd; 2], keeps: bool) -> Result<(), StartError>;
    /// Waits until a program asks for a checkpoint; with `idle`, or until all programs have waited for a second. Calls `attending`
    /// once programs can ask. Looks at `gone` now and then, and gives up when that is true. What is returned is to be kept until
    /// the checkpoint is made: a program that has asked learns that there is none when it is dropped before.
    fn await_request(
        &self,
        idle: bool,
        attending: &dyn Fn(),
        gone: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Attending>, StartError>;
    /// Waits for the end of the next checkpoint, in the same way.
    fn await_checkpoint(&self, gone: &dyn Fn() -> bool) -> Result<(), StartError>;
    /// Makes another container in the same sandbox.
    fn add(&self, spec: SandboxSpec, fds: Vec<OwnedFd>) -> Result<Arc<dyn Running>, StartError>;
    /// Waits for the end of the first process, and then for all that is left of the container; its wait status.
    fn wait(&self) -> i32;
    /// Waits for the end of one process; its wait status, or `None` when there is no such process. `root`: `pid` is its id in the
    /// sandbox's first pid namespace, not in the container's.
    fn wait_process(&self, pid: i32, root: bool) -> Option<i32>;
    /// Ends the container.
    fn end(&self);
    /// Stops every process of the container, or lets them go on; false when that was so already.
    fn freeze(&self, on: bool) -> bool;
    /// Writes how the root differs from the layers below its overlay to a pipe, as records of crate `changes`, while the programs of
    /// the container rest.
    fn changes(&self, to: OwnedFd, purpose: Purpose) -> Result<(), StartError>;
    /// Has the changes of the root written to the layer below its overlay, while the programs of the container rest; says what was left
    /// out. An error where the container was not made for that.
    fn write_back(&self) -> Result<String, StartError>;
    /// Changes how many tasks the container may have; nothing for no limit.
    fn limit_tasks(&self, limit: Option<u32>);
    /// Connects to a port of the loopback addresses inside. `from` and `to` are pipes of what comes from outside and what goes
    /// there. What is returned passes bytes on until both directions are over.
    fn forward(&self, port: u16, from: OwnedFd, to: OwnedFd) -> Result<Box<dyn FnOnce() + Send>, StartError>;
}

/// See [`Running::await_request`].
pub trait Attending {}

impl Attending for task::notices::Attendance {}

/// A process started by [`Running::exec`].
pub trait Executed: Send + Sync {
    /// Its id in the container.
    fn pid(&self) -> i32;
    /// Sends it a signal.
    fn signal(&self, signo: i32);
    /// Sets the size of its terminal.
    fn resize(&self, size: WindowSize);
    /// Waits for its end and its last output; its wait status. To be called once.
    fn wait(&self) -> i32;
}

/// Standard streams of a process that is started in a container.
#[derive(Debug)]
pub enum Stdio {
    /// Standard input, output and error, and further descriptors numbered from 3.
    Files(Vec<OwnedFd>),
    /// The user's terminal, in raw mode, and its size.
    Terminal(OwnedFd, WindowSize),
}

/// Called once by the kernel when the first process is ready to be started.
pub type OnReady = Box<dyn FnOnce(Arc<dyn Running>) + Send>;
