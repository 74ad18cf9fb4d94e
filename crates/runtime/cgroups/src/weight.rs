//! The share of the processors that a group has beside its neighbours: `cpu.shares` in cgroup v1, `cpu.weight` in v2.

use crate::files::number;
use crate::groups::Groups;
use crate::{Result, files};
use std::ops::RangeInclusive;

fn file(groups: &Groups) -> &'static str {
    if groups.v2() { "cpu.weight" } else { "cpu.shares" }
}

/// What the kernel takes.
fn range(groups: &Groups) -> RangeInclusive<u64> {
    if groups.v2() { 1..=10_000 } else { 2..=262_144 }
}

/// The group's weight; `None` without the controller.
pub(crate) fn get(groups: &Groups) -> Option<u64> {
    let weight = number(&groups.dir("cpu").ok()?.join(file(groups)));
    range(groups).contains(&weight).then_some(weight)
}

/// Sets it, as near to `weight` as the kernel takes, and returns what was set; `None` if it is that already.
pub(crate) fn set(groups: &Groups, weight: u64) -> Result<Option<u64>> {
    let range = range(groups);
    let weight = weight.clamp(*range.start(), *range.end());
    if get(groups) == Some(weight) {
        return Ok(None);
    }
    files::write("cpu", &groups.dir("cpu")?.join(file(groups)), &weight.to_string())?;
    Ok(Some(weight))
}
