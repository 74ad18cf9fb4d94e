//! containerd's shim for Ringfence: `io.containerd.ringfence.v1`.
//!
//! containerd starts it with `start` for a new container or pod; that starts the shim that stays, which serves containerd's
//! task API and drives `ringfence` through its command line. `delete` cleans up after a shim that has died.

#![forbid(unsafe_code)]

mod console;
mod events;
mod exits;
mod info;
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

/// The library tells these mistakes in a form for programmers.
fn check_flags() -> Result<(), String> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let flags = containerd_shim::parse(&args).map_err(|error| match error {
        containerd_shim::Error::InvalidArgument(what) => what,
        error => error.to_string(),
    })?;
    if flags.namespace.is_empty() {
        return Err("-namespace is missing, which containerd gives when it starts a shim".into());
    }
    Ok(())
}

fn main() {
    let given = |names: &[&str]| std::env::args().skip(1).any(|arg| names.contains(&arg.as_str()));
    if given(&["-info", "--info"]) {
        if let Err(error) = info::tell() {
            eprintln!("{RUNTIME}: {error}");
            std::process::exit(1);
        }
        return;
    }
    if given(&["-v", "-version", "--version"]) {
        println!("containerd-shim-ringfence-v1 {}", env!("CARGO_PKG_VERSION"));
        return;
    }
    if given(&["-h", "-help", "--help"]) {
        print!("{HELP}");
        return;
    }
    if let Err(why) = check_flags() {
        eprintln!("{RUNTIME}: {why}; see --help");
        std::process::exit(1);
    }
    containerd_shim::run::<Service>(RUNTIME, None);
}
