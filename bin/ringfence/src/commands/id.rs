//! The only argument of many commands.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Id {
    /// The container's name
    pub(crate) id: String,
}
