//! `ringfence`: runs containers under a kernel of its own.
//!
//! The same executable serves as the command line and, started by itself, as
//! each of the sandbox's processes (see the `sandbox` crate).

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod container;
mod logs;
mod names;
mod pod;
mod record;
mod start_hooks;

use cli::{Cli, Command, Global};
use sandbox::role;
use std::io::Write;
use std::process::ExitCode;

/// Exit status when ringfence itself fails: outside what programs commonly use, as runsc has it.
const INTERNAL_ERROR: u8 = 128;
/// Exit status for a command line that makes no sense.
const USAGE_ERROR: u8 = 2;

/// A failure: the exit status and one line for the user.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    message: String,
}

impl Failure {
    pub(crate) fn with_status(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// The line for the user.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl<T: std::fmt::Display> From<T> for Failure {
    fn from(message: T) -> Self {
        Self { status: INTERNAL_ERROR, message: message.to_string() }
    }
}

/// Writes a line to standard output; one that nobody takes is an error, not a panic.
pub(crate) fn say(line: impl std::fmt::Display) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{line}").map_err(|error| format!("standard output: {error}").into())
}

fn main() -> ExitCode {
    if let Some(status) = internal_role() {
        return status;
    }
    hostsys::signals::keep_ends_of_children();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    match logs::start(&cli.global).and_then(|()| dispatch(&cli)) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            logs::report(&cli.global, &failure.message);
            ExitCode::from(failure.status)
        }
    }
}

fn dispatch(cli: &Cli) -> Result<u8, Failure> {
    let global: &Global = &cli.global;
    match &cli.command {
        Command::Do(args) => commands::do_::run(global, args),
        Command::Create(args) => commands::create::create(global, args),
        Command::Start(args) => commands::create::start(global, args),
        Command::Run(args) => commands::create::run(global, args),
        Command::Exec(args) => commands::exec::run(global, args),
        Command::Spec(args) => commands::spec::run(args),
        Command::Features => commands::spec::features(),
        Command::Install(args) => commands::install::install(args),
        Command::Uninstall(args) => commands::install::uninstall(args),
        Command::List(args) => commands::inspect::list(global, args),
        Command::State(args) => commands::inspect::state(global, args),
        Command::Ps(args) => commands::inspect::ps(global, args),
        Command::Kill(args) => commands::end::kill(global, args),
        Command::Wait(args) => commands::end::wait(global, args),
        Command::Delete(args) => commands::end::delete(global, args),
        Command::Pause(args) => commands::resources::pause(global, args),
        Command::Resume(args) => commands::resources::resume(global, args),
        Command::Update(args) => commands::resources::update(global, args),
        Command::Events(args) => commands::resources::events(global, args),
        Command::Checkpoint(_) => Err("checkpoint is not supported yet".into()),
        Command::Restore(_) => Err("restore is not supported yet".into()),
        Command::Debug(args) => commands::debug::run(global, args),
    }
}

/// Runs one of the sandbox's processes, if that is what this process was started as.
fn internal_role() -> Option<ExitCode> {
    let name = std::env::args().nth(1)?;
    let outcome = match name.as_str() {
        role::GOFER => hostsys::inherited::take(3)
            .and_then(|socket| gofer::serve(&channel::Channel::from_fd(socket)))
            .map(|()| 0),
        role::MEMBER => inherited_by_member().and_then(sandbox::member::run),
        role::INIT => inherited_by_init().and_then(sandbox::init::run),
        role::ATTEND => {
            // Without a terminal there is no second descriptor.
            let console = hostsys::inherited::take(4).ok();
            hostsys::inherited::take(3).and_then(|channel| sandbox::client::attend(channel, console))
        }
        role::BOOT => {
            sandbox::logging::start(sandbox::logging::Format::Text, None);
            hostsys::inherited::take(3).and_then(sandbox::boot::run)
        }
        _ => return None,
    };
    Some(match outcome {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => {
            logs::complain(&format!("{name}: {error}"));
            ExitCode::from(INTERNAL_ERROR)
        }
    })
}

fn inherited_by_member() -> std::io::Result<sandbox::member::Inherited> {
    let take = hostsys::inherited::take;
    let (watch, gofer, life, alive) = (take(3)?, take(4)?, take(5)?, take(6)?);
    // Without a terminal there is no fifth descriptor.
    Ok(sandbox::member::Inherited { watch, gofer, life, alive, console: take(7).ok() })
}

fn inherited_by_init() -> std::io::Result<sandbox::init::Inherited> {
    let take = hostsys::inherited::take;
    let (channel, exe, gofer, life, alive) = (take(3)?, take(4)?, take(5)?, take(6)?, take(7)?);
    Ok(sandbox::init::Inherited { channel, exe, gofer, life, alive })
}
