//! `ringfence resume`: lets the processes of a paused container go on.

use super::id::Id;
use lifecycle::{Result, Settings};

pub(crate) fn resume(settings: &Settings, args: &Id) -> Result<()> {
    lifecycle::resume(settings, &args.id)
}
