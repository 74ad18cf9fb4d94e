//! `ringfence pool`.

use super::list::ListFormat;
use crate::output::say;
use clap::{Args, Subcommand};
use lifecycle::{PoolOptions, Result, Settings};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Pool {
    #[command(subcommand)]
    pub(crate) command: PoolCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Keep a pool, until SIGTERM or SIGINT; its sandboxes end with it, those that were taken do not
    Serve(Serve),
    /// List the pools
    List(PoolList),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directory of the bundle that the sandboxes are made from
    #[arg(long, short = 'b', value_name = "DIR", default_value = ".")]
    bundle: PathBuf,
    /// How many sandboxes wait
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    size: u16,
    /// Name for the pool
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct PoolList {
    /// Form of the output
    #[arg(long, short = 'f', value_enum, default_value_t = ListFormat::Table)]
    format: ListFormat,
}

pub(crate) fn pool(settings: &Settings, args: &Pool) -> Result<()> {
    match &args.command {
        PoolCommand::Serve(Serve { bundle, size, name }) => {
            let options = PoolOptions { name: name.clone(), bundle: bundle.clone(), size: (*size).into() };
            lifecycle::serve_pool(settings, &options, || log::info!("the pool is full"))
        }
        PoolCommand::List(args) => list(settings, args.format),
    }
}

fn list(settings: &Settings, format: ListFormat) -> Result<()> {
    let pools = lifecycle::pools(settings)?;
    if format == ListFormat::Json {
        return say(serde_json::to_string(&pools)?);
    }
    let row = |[name, size, ready, taken, bundle]: [&str; 5]| {
        say(format_args!("{name:<20} {size:<6} {ready:<6} {taken:<8} {bundle}"))
    };
    row(["NAME", "SIZE", "READY", "TAKEN", "BUNDLE"])?;
    for p in &pools {
        let [size, ready, taken] = [p.size as u64, p.ready as u64, p.taken].map(|n| n.to_string());
        row([&p.name, &size, &ready, &taken, &p.bundle.to_string_lossy()])?;
    }
    Ok(())
}
