//! Stopping and continuing every process of a group.

use crate::files::{read, table, write};
use crate::groups::Groups;
use crate::{Error, Result};
use std::time::{Duration, Instant};

/// How long a group may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Freezes (or thaws) and waits until it is so.
pub(crate) fn set(groups: &Groups, frozen: bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let wanted = if frozen { "FROZEN" } else { "THAWED" };
    if groups.v2() {
        let dir = groups.dir("freezer")?;
        write("freezer", &dir.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
        while state(groups)? != frozen {
            if Instant::now() > deadline {
                let state = if frozen { "thawed" } else { "frozen" };
                return Err(Error::Freezer { path: dir.into(), wanted, state: state.into() });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        return Ok(());
    }
    let dir = groups.dir("freezer")?;
    let path = dir.join("freezer.state");
    let mut turn = 0u32;
    loop {
        // A group in which processes fork can stay FREEZING; thawing it for a moment helps.
        if frozen && turn % 50 == 49 {
            write("freezer", &path, "THAWED")?;
            std::thread::sleep(Duration::from_millis(10));
        }
        write("freezer", &path, wanted)?;
        let state = read("freezer", &path)?;
        if state == wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            // Half frozen is worse than not.
            if frozen {
                let _ = write("freezer", &path, "THAWED");
            }
            return Err(Error::Freezer { path: dir.into(), wanted, state });
        }
        std::thread::sleep(Duration::from_micros(u64::from(turn.min(100)) * 10));
        turn += 1;
    }
}

/// Whether the group is frozen.
pub(crate) fn state(groups: &Groups) -> Result<bool> {
    let dir = groups.dir("freezer")?;
    if groups.v2() {
        return Ok(table(&dir.join("cgroup.events")).get("frozen") == Some(&1));
    }
    Ok(read("freezer", &dir.join("freezer.state"))? != "THAWED")
}
