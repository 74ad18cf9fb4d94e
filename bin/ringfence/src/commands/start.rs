//! `ringfence start`: starts a container that was created.

use super::id::Id;
use lifecycle::{Result, Settings};

pub(crate) fn start(settings: &Settings, args: &Id) -> Result<()> {
    lifecycle::start(settings, &args.id)
}
