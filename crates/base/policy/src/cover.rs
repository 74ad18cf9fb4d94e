//! Rules that never match, because an earlier one matches all that they do.

use crate::policy::{Policy, RuleIndex};
use crate::rule::{Conditions, Rule};

/// Rules that earlier ones cover, with the earlier ones. What is listed never matches; not all such rules are found.
pub fn covered(policy: &Policy) -> Vec<(RuleIndex, Vec<RuleIndex>)> {
    let mut out = Vec::new();
    for (at, rule) in policy.rules().iter().enumerate() {
        let mut by = Vec::new();
        let earlier = &policy.rules()[..at];
        let all = rule.targets.iter().all(|target| {
            let covers = |earlier: &Rule| {
                let same = |own: &crate::rule::Target| {
                    own.point == target.point && (own.call.is_none() || own.call == target.call)
                };
                // A rule that only tries does not end the search.
                !earlier.dry_run && earlier.targets.iter().any(same) && wider(&earlier.when, &rule.when)
            };
            let found = earlier.iter().position(covers);
            by.extend(found.map(|index| index as RuleIndex));
            found.is_some()
        });
        if all {
            by.sort_unstable();
            by.dedup();
            out.push((at as RuleIndex, by));
        }
    }
    out
}

/// True when `wide` holds wherever `narrow` does.
fn wider(wide: &Conditions, narrow: &Conditions) -> bool {
    fn only<T>(wide: &Option<T>, narrow: &Option<T>, covers: impl Fn(&T, &T) -> bool) -> bool {
        match (wide, narrow) {
            (None, _) => true,
            (Some(wide), Some(narrow)) => covers(wide, narrow),
            (Some(_), None) => false,
        }
    }
    fn each<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
        narrow.iter().all(|narrow| wide.iter().any(|wide| covers(wide, narrow)))
    }
    /// Each exception of the wide one is an exception of the narrow one, too.
    fn not<T>(wide: &[T], narrow: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
        wide.iter().all(|wide| narrow.iter().any(|narrow| covers(narrow, wide)))
    }
    let ids =
        |wide: &Option<crate::ranges::Ranges>, narrow: &Option<crate::ranges::Ranges>| match (wide, narrow) {
            (None, _) => true,
            (Some(wide), Some(narrow)) => narrow.covers(wide),
            (Some(_), None) => false,
        };
    only(&wide.path, &narrow.path, |w, n| each(w, n, |w, n| w.covers(n)))
        && not(&wide.path_not, &narrow.path_not, |w, n| w.covers(n))
        && only(&wide.executable, &narrow.executable, |w, n| each(w, n, |w, n| w.covers(n)))
        && not(&wide.executable_not, &narrow.executable_not, |w, n| w.covers(n))
        && only(&wide.executable_sha256, &narrow.executable_sha256, |w, n| each(w, n, |w, n| w == n))
        && only(&wide.file_sha256, &narrow.file_sha256, |w, n| each(w, n, |w, n| w == n))
        && only(&wide.uid, &narrow.uid, |w, n| w.covers(n))
        && ids(&wide.uid_not, &narrow.uid_not)
        && only(&wide.gid, &narrow.gid, |w, n| w.covers(n))
        && ids(&wide.gid_not, &narrow.gid_not)
        && only(&wide.address, &narrow.address, |w, n| each(w, n, |w, n| w.covers(n)))
        && not(&wide.address_not, &narrow.address_not, |w, n| w.covers(n))
        && only(&wide.protocol, &narrow.protocol, |w, n| w.contains(*n))
        && wide.arguments.iter().all(|(_, w)| narrow.arguments.iter().any(|(_, n)| w.covers(n)))
        && only(&wide.access, &narrow.access, |w, n| w.contains(*n))
        && only(&wide.container, &narrow.container, |w, n| each(w, n, |w, n| w.1.covers(&n.1)))
        && only(&wide.new_in_layer, &narrow.new_in_layer, |w, n| w == n)
        && only(&wide.to_root, &narrow.to_root, |w, n| w == n)
        && wide.registers.iter().all(|wide| {
            let same =
                |narrow: &&crate::rule::Register| narrow.index == wide.index && narrow.mask == wide.mask;
            narrow.registers.iter().filter(same).any(|narrow| wide.values.covers(&narrow.values))
        })
}
