//! `ringfence usage`: memory of a sandbox on the host.

use super::id::Id;
use crate::output::say;
use lifecycle::{Result, Settings};

pub(crate) fn usage(settings: &Settings, args: &Id) -> Result<()> {
    let usage = lifecycle::usage(settings, &args.id)?;
    say(serde_json::json!({
        "id": args.id,
        "kernel": usage.kernel,
        "processes": usage.processes,
        "init": usage.init,
        "total": usage.kernel + usage.processes + usage.init,
    }))
}
