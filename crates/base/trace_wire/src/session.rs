//! A session as the command line hands it to the kernel: numbers instead of names, and descriptors beside it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its name; no two sessions of a sandbox share one.
    pub name: String,
    /// The only container that it is about; nothing for all of the sandbox.
    pub container: Option<String>,
    /// What it asks for.
    pub points: Vec<Request>,
    /// Where the messages go.
    pub sinks: Vec<Sink>,
}

/// A point of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`Point::index`](crate::points::Point::index).
    pub point: u32,
    /// Bits of [`OptionalFields`](crate::points::OptionalFields).
    pub optional: u32,
    /// Bits of [`ContextFields`](crate::points::ContextFields).
    pub context: u32,
}

/// Where messages go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sink {
    /// Nowhere. For measuring.
    Null,
    /// A connected SOCK_SEQPACKET socket. Two descriptors come along: the socket, if `connected`, and a channel over which a
    /// process outside sends another one for each message that asks for it, if `reconnects`.
    Socket {
        /// What lists call it: `remote` or `file`.
        kind: String,
        /// There is a socket.
        connected: bool,
        /// There is a channel.
        reconnects: bool,
        /// How a full socket is dealt with.
        retry: Retry,
    },
    /// Rules that the kernel asks before operations act. If `log`, two descriptors come along: a SOCK_SEQPACKET socket for
    /// decisions, and a file whose first 8 bytes are the number of decisions that the log could not be written with. If `asks`,
    /// then the channel to the process that asks programs. See [`crate::ask`].
    Policy {
        /// The file, which was checked outside.
        text: String,
        /// Decisions are recorded. The socket does not block. A packet is a header as in [`crate::packet`] with message
        /// type 0, and a decision as JSON.
        log: bool,
        /// A rule or the default asks a program outside.
        asks: bool,
    },
}

/// What happens when the consumer does not keep up and its socket is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// How often a packet is tried again before it counts as dropped.
    pub retries: u32,
    /// The first wait before another try.
    pub backoff: Duration,
    /// The waits double up to this.
    pub backoff_max: Duration,
}

/// A session as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// The only container that it is about.
    pub container: Option<String>,
    /// Its sinks.
    pub sinks: Vec<SinkStatus>,
}

/// A sink as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkStatus {
    /// What it is.
    pub kind: String,
    /// Points that were sent.
    pub sent: u64,
    /// Points that were dropped.
    pub dropped: u64,
    /// Whether a consumer is connected; always for those that have none.
    pub connected: bool,
    /// Of a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyStatus>,
}

/// A policy as a list shows it. `sent` and `dropped` of its sink are lines of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// Its rules.
    pub rules: u32,
    /// Decisions other than `allow`, by the name of the action that was taken; `ask` is counted as what was answered.
    pub decisions: BTreeMap<String, u64>,
    /// Decisions that were not acted on, because of a dry run.
    pub dry_run: u64,
    /// Decisions that were sent, and that the log's file did not take.
    #[serde(default)]
    pub unwritten: u64,
    /// Questions, and those of them without an answer in time.
    pub asked: u64,
    /// See `asked`.
    pub unanswered: u64,
}
