//! `ringfence`: runs containers under a kernel of its own.
//!
//! The same executable serves as the command line and, started by itself, as
//! each of the sandbox's processes (see the `sandbox` crate).

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod logs;
mod mistakes;
mod output;
mod runsc;
mod values;

use clap::CommandFactory;
use cli::{Cli, Command};
use lifecycle::Result;
use sandbox::role;
use std::process::ExitCode;

/// Exit status when one of the sandbox's processes fails.
const INTERNAL_ERROR: u8 = 128;
/// Exit status for a command line that makes no sense.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    if let Some(status) = internal_role() {
        return status;
    }
    hostsys::signals::keep_ends_of_children();
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    let started = logs::start(cli.global.log.as_deref(), cli.global.log_format, cli.global.debug)
        .map(|()| cli.global.without.warn());
    match started.and_then(|()| dispatch(&cli)) {
        Ok(status) => ExitCode::from(status),
        // The reader has what it wanted.
        Err(error) if error.status() == 0 => ExitCode::SUCCESS,
        Err(error) => {
            logs::tell(cli.global.log.as_deref(), cli.global.log_format, error.message());
            ExitCode::from(error.status())
        }
    }
}

fn dispatch(cli: &Cli) -> Result<u8> {
    let mut settings = cli.global.settings();
    if let Some(file) = cli.global.pod_init_config.as_ref().filter(|_| cli.command.makes_sandboxes()) {
        settings.trace.push(commands::trace::read(file, "--pod-init-config")?);
    }
    if let Some(policy) = cli.global.policy.as_ref().filter(|_| cli.command.makes_sandboxes()) {
        let (log, key) = (cli.global.policy_log.as_deref(), cli.global.policy_key.as_deref());
        settings.trace.push(commands::policy_session::begin_with(policy, log, key, &settings.trace)?);
    }
    let settings = &settings;
    let grammar = Cli::command;
    match &cli.command {
        Command::Do(_) if cli.global.overlay2 == Some(bundle::Overlay2::default()) => {
            return Err(mistakes::usage(
                "--overlay2=none: do never writes to the host's files; share what it may change with --volume".into(),
            ));
        }
        Command::Do(args) => return commands::do_::run(settings, args),
        Command::Run(args) => return commands::run::run(settings, args),
        Command::Exec(args) => return commands::exec::exec(settings, args),
        Command::Restore(args) => return commands::checkpoint::restore(settings, args),
        Command::Create(args) => commands::create::create(settings, args),
        Command::Start(args) => commands::start::start(settings, args),
        Command::Spec(args) => commands::spec::spec(args),
        Command::Features => commands::features::features(),
        Command::Install(args) => commands::install::install(args, cli::check_global_flags),
        Command::Uninstall(args) => commands::install::uninstall(args),
        Command::List(args) => commands::list::list(settings, args),
        Command::State(args) => commands::state::state(settings, args),
        Command::Ps(args) => commands::ps::ps(settings, args),
        Command::Kill(args) => commands::kill::kill(settings, args),
        Command::Wait(args) => commands::wait::wait(settings, args),
        Command::Delete(args) => commands::delete::delete(settings, args),
        Command::Pause(args) => commands::pause::pause(settings, args),
        Command::Resume(args) => commands::resume::resume(settings, args),
        Command::Update(args) => commands::update::update(settings, args),
        Command::Events(args) => commands::events::events(settings, args),
        Command::Snapshot(args) => commands::do_snapshot::snapshot(args),
        Command::Session(args) => commands::session::session(args),
        Command::Undo(args) => commands::session::undo(args),
        Command::Branch(args) => commands::session::branch(args),
        Command::PortForward(args) => commands::port_forward::port_forward(settings, args),
        Command::Pool(args) => commands::pool::pool(settings, args),
        Command::Overlay(args) => commands::overlay::overlay(settings, args),
        Command::Policy(args) => commands::policy::policy(settings, args),
        Command::Debug(args) => commands::debug::run(settings, args),
        Command::Trace(args) => commands::trace::trace(settings, args),
        Command::ExportMetrics(args) => commands::metrics::export(settings, args),
        Command::MetricMetadata(args) => commands::metrics::metadata(args),
        Command::MetricServer(args) => {
            commands::metrics::serve(settings, cli.global.metric_server.as_deref(), args)
        }
        Command::Usage(args) => commands::usage::usage(settings, args),
        Command::Flags => commands::about::flags(&grammar()),
        Command::CpuFeatures => commands::about::cpu_features(),
        Command::Syscalls(args) => commands::syscalls::syscalls(args),
        Command::Version => commands::about::version(&grammar()),
        Command::Completions(args) => commands::shell::completions(args, grammar()),
        Command::Man(args) => commands::shell::man(args, grammar()),
        Command::Checkpoint(args) => commands::checkpoint::checkpoint(settings, args),
        Command::Clone(args) => commands::checkpoint::clone(settings, args),
    }?;
    Ok(0)
}

/// Runs one of the sandbox's processes, if that is what this process was started as.
fn internal_role() -> Option<ExitCode> {
    let name = std::env::args().nth(1)?;
    let format = sandbox::launch::format_of(std::env::args());
    let outcome = match name.as_str() {
        role::GOFER => {
            sandbox::logging::start(format, None);
            hostsys::inherited::take(3)
                .and_then(|socket| gofer::serve(&channel::Channel::from_fd(socket)))
                .map(|()| 0)
        }
        role::NET_GOFER => {
            sandbox::logging::start(format, None);
            let take = hostsys::inherited::take;
            take(3).and_then(|channel| netgofer::serve(channel, take(4)?)).map(|()| 0)
        }
        role::WRITE_BACK => {
            let take = hostsys::inherited::take;
            // The last but one is only held.
            take(5)
                .and_then(|_alive| {
                    let proof = writeback::Proof::from_fd(take(6)?);
                    writeback::serve(&channel::Channel::from_fd(take(3)?), take(4)?, &proof)
                })
                .map(|()| 0)
        }
        role::MEMBER => inherited_by_member().and_then(sandbox::member::run),
        role::INIT => inherited_by_init(format).and_then(sandbox::init::run),
        role::ATTEND => {
            // Without a terminal there is no second descriptor.
            let console = hostsys::inherited::take(4).ok();
            hostsys::inherited::take(3).and_then(|channel| sandbox::client::attend(channel, console))
        }
        role::TRACE_SINK => {
            let take = hostsys::inherited::take;
            // As many further ones as its sink needs.
            let files = (5..7).map_while(|fd| take(fd).ok());
            take(3)
                .and_then(|socket| trace_sinks::serve(socket, take(4)?, files, syscalls::trace_points()))
                .map(|()| 0)
        }
        role::BOOT => {
            sandbox::logging::start(format, None);
            let take = hostsys::inherited::take;
            let build = profile::own_build_id();
            take(3).and_then(|channel| sandbox::boot::run(channel, take(4)?, take(5)?, build.as_deref()))
        }
        _ => return None,
    };
    Some(match outcome {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => {
            logs::complain_as(format, &format!("{name}: {error}"));
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

fn inherited_by_init(format: sandbox::logging::Format) -> std::io::Result<sandbox::init::Inherited> {
    let take = hostsys::inherited::take;
    let (channel, exe, gofer, life, alive) = (take(3)?, take(4)?, take(5)?, take(6)?, take(7)?);
    Ok(sandbox::init::Inherited { channel, exe, gofer, life, alive, crash: take(8)?, format })
}
