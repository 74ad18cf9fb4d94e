//! Which users of the host a sandbox has.

use crate::{Result, Settings};
use bundle::{IdRange, Prepared};
use confine::ids::{Mapping, Maps};

/// The mapping that the configuration asks for, or the one that follows from the caller's user.
pub(crate) fn mapping(settings: &Settings, prepared: &Prepared) -> Result<Mapping> {
    let user = rustix::process::geteuid();
    let caller = if settings.is_rootless() { Mapping::CallerAsRoot } else { Mapping::Identity };
    let Some(maps) = &prepared.id_maps else { return Ok(caller) };
    let ranges = |list: &[IdRange]| -> Vec<_> {
        list.iter().map(|range| (range.inside, range.outside, range.count)).collect()
    };
    let (uids, gids) = (ranges(&maps.uids), ranges(&maps.gids));
    // What an ordinary user may write without help.
    if !user.is_root() && uids == [(0, user.as_raw(), 1)] {
        return Ok(Mapping::CallerAsRoot);
    }
    match Maps::new(&uids, &gids) {
        Some(maps) => Ok(Mapping::Listed(maps)),
        None => Err("linux.uidMappings or gidMappings has too many ranges; join some of them".into()),
    }
}
