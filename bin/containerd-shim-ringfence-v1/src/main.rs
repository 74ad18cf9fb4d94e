//! containerd's shim for Ringfence: `io.containerd.ringfence.v1`.
//!
//! containerd starts it with `start` for a new container or pod; that starts the shim that stays, which serves containerd's
//! task API and drives `ringfence` through its command line. `delete` cleans up after a shim that has died.

#![forbid(unsafe_code)]

mod console;
mod events;
mod exits;
mod metrics;
mod oom;
mod options;
mod process;
mod runtime;
mod service;
mod stdio;
mod task;
mod tasks;

use service::Service;

/// The name of the runtime that goes with the name of the program.
const RUNTIME: &str = "io.containerd.ringfence.v1";

fn main() {
    if std::env::args().skip(1).any(|arg| matches!(arg.as_str(), "-v" | "-version" | "--version")) {
        println!("containerd-shim-ringfence-v1 {}", env!("CARGO_PKG_VERSION"));
        return;
    }
    containerd_shim::run::<Service>(RUNTIME, None);
}
