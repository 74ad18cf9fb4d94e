//! `ringfence run`: sets a container up and starts it.

use super::create::Create;
use clap::Args;
use lifecycle::{Result, RunOptions, Settings};

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) create: Create,
    /// Leave the container in the background
    #[arg(long, short = 'd')]
    pub(crate) detach: bool,
    /// Accepted as runc has it: no process of a container becomes the caller's child
    #[arg(long)]
    pub(crate) no_subreaper: bool,
    /// Keep the container's state after its end, for delete
    #[arg(long)]
    pub(crate) keep: bool,
    /// Take the sandbox from a pool, with the bundle of that; only with --detach
    #[arg(long, value_name = "POOL")]
    pub(crate) pool: Option<String>,
}

pub(crate) fn run(settings: &Settings, args: &Run) -> Result<u8> {
    let options = RunOptions { create: args.create.options(), detach: args.detach, keep: args.keep };
    match &args.pool {
        Some(pool) => lifecycle::take(settings, pool, &options).map(|()| 0),
        None => lifecycle::run(settings, &options),
    }
}
