//! `ringfence state`: a container's state as JSON.

use super::id::Id;
use crate::output::say;
use lifecycle::{Result, Settings};

pub(crate) fn state(settings: &Settings, args: &Id) -> Result<()> {
    say(serde_json::to_string_pretty(&lifecycle::state(settings, &args.id)?)?)
}
