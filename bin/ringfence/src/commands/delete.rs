//! `ringfence delete`: removes what a container holds.

use clap::Args;
use lifecycle::{Result, Settings};

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The container's name
    pub(crate) id: String,
    /// End it first if it runs
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
}

pub(crate) fn delete(settings: &Settings, args: &Delete) -> Result<()> {
    lifecycle::delete(settings, &args.id, args.force)
}
