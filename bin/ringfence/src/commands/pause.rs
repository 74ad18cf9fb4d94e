//! `ringfence pause`: stops all processes of a container for a while.

use super::id::Id;
use lifecycle::{Result, Settings};

pub(crate) fn pause(settings: &Settings, args: &Id) -> Result<()> {
    lifecycle::pause(settings, &args.id)
}
