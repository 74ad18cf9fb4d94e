//! Trace points as they go over a socket: the format that consumers of sandbox events already read.
//!
//! - [`points`] names the points and the fields that a session may ask for;
//! - [`messages`] has a type for each message, generated from `proto/`;
//! - [`packet`] puts a message behind its header, and takes it apart again;
//! - [`json`] writes a message as JSON, and knows the names of its fields;
//! - [`config`] reads the JSON of a session;
//! - [`session`] is a session as the command line hands it to the kernel;
//! - [`ask`] is what goes over the channel to programs that a policy asks.
//!
//! Everything here is plain data. The kernel's side is the crate `trace`, the other side `trace_sinks`.

#![forbid(unsafe_code)]

pub mod ask;
pub mod config;
pub mod json;
pub mod packet;
pub mod points;
pub mod session;

/// The generated messages, a module for each package.
#[allow(missing_docs, clippy::all, reason = "generated from proto/, which holds the descriptions")]
pub mod messages {
    include!(concat!(env!("OUT_DIR"), "/messages/mod.rs"));
}

pub use messages::common::MessageType;
/// A message of any type.
pub use protobuf::MessageFull as Message;

/// Version of the protocol, told in the handshake.
pub const VERSION: u32 = 1;
