//! net.ipv4.ping_group_range: groups as the user namespace of the reader and the writer numbers them.

use super::SysctlView;
use abi::{Errno, Result};

const LOW: &str = "ipv4/ping_group_range/low";
const HIGH: &str = "ipv4/ping_group_range/high";
/// No group is in it.
const NONE: (i64, i64) = (1, 0);

fn shown(k: &SysctlView) -> [u32; 2] {
    let sysctls = &k.ns.net.stack().sysctls;
    [LOW, HIGH].map(|name| {
        let group = sysctls.by_name(name).and_then(|setting| u32::try_from(setting.get()).ok());
        k.user_ns.show_group(group.unwrap_or(0))
    })
}

/// As a text.
pub(super) fn get(k: &SysctlView) -> String {
    let [low, high] = shown(k);
    format!("{low}\t{high}")
}

/// Sets one end or both: EINVAL for a group that the namespace does not map. Ends in the wrong order mean no group.
pub(super) fn set(k: &SysctlView, text: &str) -> Result<()> {
    let mut range = shown(k);
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || words.len() > range.len() {
        return Err(Errno::EINVAL);
    }
    for (end, word) in range.iter_mut().zip(words) {
        *end = word.parse().map_err(|_| Errno::EINVAL)?;
    }
    let group = |number| k.user_ns.group(number).filter(|group| *group != u32::MAX).ok_or(Errno::EINVAL);
    let (low, high) = (group(range[0])?, group(range[1])?);
    let ordered = range[0] <= range[1] && low <= high;
    let (low, high) = if ordered { (low.into(), high.into()) } else { NONE };
    let sysctls = &k.ns.net.stack().sysctls;
    for (name, value) in [(LOW, low), (HIGH, high)] {
        sysctls.by_name(name).ok_or(Errno::EINVAL)?.set(value)?;
    }
    Ok(())
}
