//! `ringfence features`: what a config.json may ask for, as JSON.

use crate::output::say;
use lifecycle::Result;

pub(crate) fn features() -> Result<()> {
    say(serde_json::to_string_pretty(&bundle::features())?)
}
