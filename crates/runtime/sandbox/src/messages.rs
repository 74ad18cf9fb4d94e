//! The messages between the command line and the sandbox.
//!
//! A guest may have taken over the sentry. So the command line only uses what it reads here as a number, or shows it
//! with control characters removed.

use crate::view::View;
use metrics::Sample;
use overlay_diff::Purpose;
use serde::{Deserialize, Serialize};
use spec::{AfterCheckpoint, ProcessInfo, Refusal, StartError, Target, WindowSize};
use trace_wire::session::Status;

/// From the command line to the sentry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Descriptors; with the first message, before all others, the memfd that
    /// holds the specification. The sandbox is set up with the `last` one.
    Descriptors {
        /// No more follow.
        last: bool,
    },
    /// With a socket on which further connections are accepted. Before the last [`Request::Descriptors`].
    Listen,
    /// With the socket to the network gofer. Before the last [`Request::Descriptors`].
    NetworkGofer,
    /// With the handles of a network namespace that was taken over. Before the last [`Request::Descriptors`].
    Links,
    /// Make another container in the sandbox: with a socket on which connections about it are accepted and one that
    /// it lives by. [`Request::Descriptors`] follow as for the first container; from then on the connection is about
    /// the new one.
    Container,
    /// What there is in the network namespace by now, in a memfd, which is only shown. Before [`Request::Start`].
    Network,
    /// To a sandbox of a pool, which has all its [`Request::Descriptors`]: build the container. With its standard streams, and
    /// after them the image of a checkpoint, if it is to be restored: metadata, pages, and pages of earlier images.
    Take {
        /// Name of the container.
        id: String,
        /// TCP connections of the image with peers outside go on.
        keep_tcp: bool,
    },
    /// Let the first process run.
    Start,
    /// A signal.
    Signal {
        /// Its number.
        signo: i32,
        /// The processes that it is for; on a connection that started a process, that process.
        to: Target,
    },
    /// The user's terminal has a new size.
    Resize {
        /// The size.
        size: WindowSize,
    },
    /// Start another process: a memfd with its specification, then its standard streams and further
    /// descriptors, or its terminal. From then on the connection is the process's: when it is closed the process is killed.
    Exec {
        /// Size of the terminal, if that is what was passed.
        terminal: Option<WindowSize>,
    },
    /// How many tasks the container may have; nothing for no limit. Answered with [`Event::Done`].
    LimitTasks {
        /// The limit.
        limit: Option<u32>,
    },
    /// Stop every process of the container, or let them go on.
    Freeze {
        /// Stop.
        on: bool,
    },
    /// Tell how the root differs from the layers below its overlay: with a pipe that takes the records. Answered when all are
    /// written.
    Changes {
        /// What they are for.
        purpose: Purpose,
    },
    /// Write the changes of the root to the layer below its overlay. Answered with [`Event::WrittenBack`].
    WriteBack,
    /// Connect to a port inside: with a pipe of what comes from outside and one of what goes there. From then on the connection is
    /// the forwarded one's.
    Forward {
        /// The port.
        port: u16,
    },
    /// Tell what processes there are.
    Processes,
    /// Tell the figures of the container, and of the sandbox if the container is its first. Answered with [`Event::Metrics`].
    Metrics,
    /// Send what programs asked for and did not get.
    Refusals,
    /// Wait for the end of a process. Answered with [`Event::Exited`].
    Wait {
        /// Its id.
        pid: i32,
        /// Which is that of the sandbox's first pid namespace, not the container's.
        root: bool,
    },
    /// Begin a trace session: a memfd with it, then the descriptors of its sinks. Answered with [`Event::Done`].
    TraceCreate {
        /// One of the same name ends.
        force: bool,
        /// It ends with the connection, on which nothing else is asked.
        attached: bool,
    },
    /// End a trace session. Answered with [`Event::Done`], once its messages are sent.
    TraceDelete {
        /// Its name.
        name: String,
    },
    /// Tell what trace sessions there are.
    TraceList,
    /// Write the processes as JSON: with a pipe that takes it. Answered when all is written.
    TraceProcfs,
    /// Write a core file of a process, which goes on: with a pipe that takes pieces. Answered with [`Event::Cored`].
    GuestCore {
        /// Its id in the container.
        pid: i32,
    },
    /// Save the sandbox: with the file of metadata and that of pages, both open for reading and writing and empty. Answered with
    /// [`Event::Done`] when all is written.
    Checkpoint {
        /// What becomes of it.
        then: AfterCheckpoint,
        /// Memory is left out that is marked by MADV_DONTDUMP or MADV_WIPEONFORK.
        #[serde(default)]
        spares: bool,
    },
    /// Tell which files of pages the sandbox was restored from. Answered with [`Event::Layers`].
    Layers,
    /// As [`Request::Checkpoint`] for a clone that is made at once: without checksums. It goes on.
    Clone {
        /// The clone is given the files of [`Event::Layers`]: pages that are in them are named, not written.
        keeps: bool,
    },
    /// Wait until a program asks for a checkpoint. Answered with [`Event::Done`] when programs can ask, and once more when one has.
    Attend {
        /// Or until all programs wait.
        idle: bool,
    },
    /// Wait for the end of the next checkpoint. Answered with [`Event::Done`] then.
    AwaitCheckpoint,
    /// What to log from now on.
    Log {
        /// More than warnings.
        debug: bool,
        /// System calls.
        strace: bool,
    },
}

/// From the sentry.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The first process is set up and waits to be started.
    Ready,
    /// It is about to run.
    Started,
    /// It, or the process of this connection, could not be started.
    Failed(StartError),
    /// The process of this connection runs.
    Executed {
        /// Its id in the container.
        pid: i32,
    },
    /// The first process, or that of the connection, has ended, with this wait status.
    Exited {
        /// As wait4(2) reports it.
        status: i32,
    },
    /// Some of the processes.
    Processes {
        /// In the order of their ids.
        list: Vec<ProcessInfo>,
        /// No more follow.
        last: bool,
    },
    /// Some of the figures.
    Metrics {
        /// In the order in which they were read.
        samples: Vec<Sample>,
        /// No more follow.
        last: bool,
    },
    /// Some of the requests that were refused.
    Refusals {
        /// By kind.
        list: Vec<Refusal>,
        /// No more follow.
        last: bool,
    },
    /// The changes of the root are in the layer below.
    WrittenBack {
        /// What was left out.
        left: String,
    },
    /// The core file is written.
    Cored {
        /// Threads in it.
        threads: u32,
        /// Threads that did not come to a stop.
        missing: u32,
    },
    /// The files of pages that the sandbox was restored from.
    Layers {
        /// Their descriptors in the sentry.
        fds: Vec<i32>,
    },
    /// The trace sessions of the sandbox.
    TraceSessions {
        /// In the order in which they began.
        list: Vec<Status>,
    },
    /// Any other request was carried out.
    Done,
    /// It was not.
    Refused(String),
}

/// Between the command line and the processes that live as long as the container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum LifeMessage {
    /// What init is to show to the host; nothing if there is no view. Comes first, once.
    Show(Option<View>),
    /// That is done, and init is confined.
    Shown,
    /// The command line is going to leave: the container outlives it.
    Detach,
    /// That is settled.
    Detached,
}

/// The exit status that stands for a wait status, as shells form it.
pub(crate) fn exit_code(status: i32) -> u8 {
    let code =
        if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    (code & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        assert_eq!(exit_code(0), 0);
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(libc::SIGKILL), 137);
        assert_eq!(exit_code(libc::SIGSEGV | 0x80), 139);
    }
}
