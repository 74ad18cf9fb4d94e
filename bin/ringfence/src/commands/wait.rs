//! `ringfence wait`: waits for the end of a container and shows its exit status.

use super::id::Id;
use crate::output::say;
use lifecycle::{Result, Settings};

pub(crate) fn wait(settings: &Settings, args: &Id) -> Result<()> {
    let status = lifecycle::wait(settings, &args.id)?;
    say(serde_json::json!({ "id": args.id, "exitStatus": status }))
}
