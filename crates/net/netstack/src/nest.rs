//! Which interfaces stand upon which: VLAN interfaces and bridges are above the interfaces that their frames leave by. The edges
//! make no loops, and no path is longer than [`MAX_NEST`].
//!
//! The stacks of one kernel share one graph, as a VLAN interface may be in another stack than the interface below it. The other end
//! of a veth pair is not below: its frames go through a queue. One lock, a leaf.

use abi::Errno;
use lock_order::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Interfaces on the longest path (`MAX_NEST_DEV`).
pub(crate) const MAX_NEST: usize = 8;

/// The graph.
#[derive(Debug, Default)]
pub(crate) struct Nest(Mutex<Edges>);

#[derive(Debug, Default)]
struct Edges {
    above: BTreeMap<u64, BTreeSet<u64>>,
    below: BTreeMap<u64, BTreeSet<u64>>,
}

impl Nest {
    /// Whether one more interface may stand upon this one: `EMLINK` if not.
    pub(crate) fn check_on_top(&self, lower: u64) -> Result<(), Errno> {
        let levels = levels(&self.0.lock().below, lower).0;
        if levels < MAX_NEST { Ok(()) } else { Err(Errno::EMLINK) }
    }
}

/// One interface stands upon another while this lives.
#[derive(Debug)]
pub(crate) struct Upon {
    nest: Arc<Nest>,
    lower: u64,
    upper: u64,
}

impl Upon {
    /// Puts an interface upon another; both are named by `Iface::id`. `EBUSY` for a loop, `EMLINK` for a path that
    /// would be too long.
    pub(crate) fn new(nest: &Arc<Nest>, lower: u64, upper: u64) -> Result<Upon, Errno> {
        let mut edges = nest.0.lock();
        if lower == upper {
            return Err(Errno::EBUSY);
        }
        // Levels count from 1; a loop cannot be among the levels of what is there.
        let (levels, met) = levels(&edges.above, upper);
        if met.contains(&lower) {
            return Err(Errno::EBUSY);
        }
        if levels + self::levels(&edges.below, lower).0 > MAX_NEST {
            return Err(Errno::EMLINK);
        }
        edges.above.entry(lower).or_default().insert(upper);
        edges.below.entry(upper).or_default().insert(lower);
        Ok(Upon { nest: nest.clone(), lower, upper })
    }
}

impl Drop for Upon {
    fn drop(&mut self) {
        let mut edges = self.nest.0.lock();
        let Edges { above, below } = &mut *edges;
        for (way, from, to) in [(above, self.lower, self.upper), (below, self.upper, self.lower)] {
            if let Some(ends) = way.get_mut(&from) {
                ends.remove(&to);
                if ends.is_empty() {
                    way.remove(&from);
                }
            }
        }
    }
}

/// The interfaces on the longest path from one on, and all that are met on the way.
fn levels(way: &BTreeMap<u64, BTreeSet<u64>>, from: u64) -> (usize, BTreeSet<u64>) {
    let (mut met, mut level, mut levels) = (BTreeSet::new(), BTreeSet::from([from]), 0);
    // Without loops each level is reached by longer paths only, so this ends.
    while !level.is_empty() && levels <= MAX_NEST {
        levels += 1;
        level = level.iter().filter_map(|one| way.get(one)).flatten().copied().collect();
        met.extend(&level);
    }
    (levels, met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_and_long_paths_are_refused() {
        let nest = Arc::<Nest>::default();
        let upon = |lower, upper| Upon::new(&nest, lower, upper);
        let mut chain: Vec<Upon> = (1..8).map(|n| upon(n, n + 1).unwrap()).collect();
        assert_eq!(upon(8, 9).unwrap_err(), Errno::EMLINK);
        assert_eq!(upon(0, 1).unwrap_err(), Errno::EMLINK);
        assert_eq!(upon(8, 1).unwrap_err(), Errno::EBUSY);
        assert_eq!(upon(3, 3).unwrap_err(), Errno::EBUSY);
        // A second path beside the first one, and a path that joins it in the middle.
        let beside = [upon(1, 8).unwrap(), upon(20, 2).unwrap()];
        assert_eq!(upon(21, 20).unwrap_err(), Errno::EMLINK);
        chain.pop();
        assert_eq!(upon(0, 1).map(drop), Ok(()));
        assert_eq!(upon(2, 20).unwrap_err(), Errno::EBUSY);
        drop((chain, beside));
        let edges = nest.0.lock();
        assert!(edges.above.is_empty() && edges.below.is_empty());
    }

    #[test]
    fn wide_graphs_are_walked_once_a_level() {
        let nest = Arc::<Nest>::default();
        let mut all = Vec::new();
        // Seven levels of fifty, each upon all of the level below: 50^7 paths.
        for level in 0..6 {
            for (low, high) in (0..50).flat_map(|low| (0..50).map(move |high| (low, high))) {
                all.push(Upon::new(&nest, level * 50 + low, level * 50 + 50 + high).unwrap());
            }
        }
        assert_eq!(Upon::new(&nest, 300, 0).unwrap_err(), Errno::EBUSY);
    }
}
