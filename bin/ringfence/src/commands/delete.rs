//! `ringfence delete`: removes what a container holds.

use clap::Args;
use lifecycle::{Result, Settings};

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The containers' names
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// End it first if it runs
    #[arg(long, short = 'f')]
    pub(crate) force: bool,
}

pub(crate) fn delete(settings: &Settings, args: &Delete) -> Result<()> {
    // The others go, whatever is the matter with one.
    let failed: Vec<_> =
        args.ids.iter().filter_map(|id| lifecycle::delete(settings, id, args.force).err()).collect();
    match failed.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        several => {
            let lines: Vec<_> = several.iter().map(ToString::to_string).collect();
            Err(lines.join("; ").into())
        }
    }
}
