//! containerd's shim for Ringfence: `io.containerd.ringfence.v1`.
//!
//! containerd starts it with `start` for a new container or pod; that starts the shim that stays, which serves containerd's
//! task API and drives `ringfence` through its command line. `delete` cleans up after a shim that has died.

#![forbid(unsafe_code)]

mod address;
mod console;
mod events;
mod exit_signal;
mod exits;
mod flags;
mod info;
mod metrics;
mod oom;
mod options;
mod process;
mod rootfs;
mod runtime;
mod service;
mod shim_log;
mod stdio;
mod task;
mod tasks;
mod time;

/// The name of the runtime that goes with the name of the program.
const RUNTIME: &str = "io.containerd.ringfence.v1";

const HELP: &str = "\
containerd's shim for Ringfence. containerd starts it; users name the runtime: ctr run --runtime io.containerd.ringfence.v1

usage: containerd-shim-ringfence-v1 [FLAGS] [start | delete]

  -namespace NAME       containerd's namespace of the container
  -id ID                the container
  -bundle DIR           its bundle
  -address SOCKET       containerd
  -publish-binary FILE  program that publishes events
  -socket SOCKET        to serve on
  -debug                log more
  -info                 say what the runtime can do, as containerd reads it
  -v                    show the version

docs/ and README.md of Ringfence say how containerd's configuration names the runtime and its options.
";

fn main() {
    if let Err(why) = run() {
        eprintln!("{RUNTIME}: {why}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let flags = flags::parse(std::env::args().skip(1)).map_err(|error| format!("{error}; see --help"))?;
    if flags.info {
        return info::tell();
    }
    if flags.version {
        println!("containerd-shim-ringfence-v1 {}", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    if flags.help {
        print!("{HELP}");
        return Ok(());
    }
    if flags.namespace.is_empty() {
        return Err("-namespace is missing, which containerd gives when it starts a shim; see --help".into());
    }
    service::run(&flags)
}
