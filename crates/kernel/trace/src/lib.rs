//! Trace sessions: which points are watched, and the sinks that their messages go to.
//!
//! [`Tracer`] belongs to a kernel. Code at a point asks it whether a session wants the point: one load of an atomic, and
//! nothing else while none does. If one does, the code builds a message with the fields that the session asked for and
//! gives it to [`Tracer::emit`]. Each sink has a queue of bounded size and a thread of its own ([`sink`]), so that a
//! consumer that is slow, stuck or gone never holds a guest thread up: what does not fit is dropped, and counted.
//!
//! Neighbours: `trace_wire` below has the messages and the names; `task`, `exec` and `syscalls` above have the points.
//! Locks: the list of sessions and the queues are leaves. A checkpoint keeps no session: its sinks belong to the host.

#![forbid(unsafe_code)]

pub mod digests;
mod queue;
mod sink;
mod tracer;

pub use sink::{Reconnect, Sink, Socket};
pub use tracer::{Session, Subscription, Tracer, call};
