//! `ringfence features`: the supported fields of a config.json, as JSON.

use crate::output::say;
use lifecycle::Result;

pub(crate) fn features() -> Result<()> {
    say(serde_json::to_string_pretty(&bundle::features())?)
}
