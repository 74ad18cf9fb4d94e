//! runsc's hints about mounts of a pod, which are annotations: `dev.gvisor.spec.mount.NAME.KEY`.
//!
//! They have no effect here: a mount is made as the configuration has it. Containers of a pod see each other's changes in a
//! volume of the host without a hint. Each hint is named in a warning, so that none is passed over silently.

use std::collections::{BTreeMap, BTreeSet};

/// Where their names begin.
const HINTS: &str = "dev.gvisor.spec.mount.";

/// Adds a warning for each mount that has hints.
pub(crate) fn warn(annotations: &BTreeMap<String, String>, warnings: &mut Vec<String>) {
    let name = |key: &str| {
        let rest = key.strip_prefix(HINTS)?;
        Some(rest.rsplit_once('.').map_or(rest, |(name, _)| name).to_string())
    };
    let names: BTreeSet<String> = annotations.keys().filter_map(|key| name(key)).collect();
    for name in names {
        warnings.push(format!(
            "annotations: {HINTS}{name} is without effect: the mount is made as the configuration has it"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_for_a_mount() {
        let keys = ["cache.share", "cache.type", "a.b.source", "odd"].map(|key| format!("{HINTS}{key}"));
        let keys = keys.into_iter().chain(["dev.gvisor.spec.mounts".to_string()]);
        let mut warnings = Vec::new();
        warn(&keys.map(|key| (key, String::new())).collect(), &mut warnings);
        let named: Vec<_> = warnings.iter().map(|text| text.split(' ').nth(1).unwrap()).collect();
        assert_eq!(named, ["a.b", "cache", "odd"].map(|name| format!("{HINTS}{name}")));
    }
}
