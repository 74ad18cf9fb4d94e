//! Checks the places of a table's rules: the chains that base chains lead to, and the depth of jumps.

use crate::expression::Place;
use crate::model::{Chain, Ref, Table};
use crate::run::JUMPS;
use crate::set::Target;
use abi::Errno;
use std::collections::HashMap;

/// Checks all chains that base chains lead to. Chains that nothing leads to may do what they like.
pub(crate) fn table(table: &Table) -> Result<(), Errno> {
    for chain in table.chains.values() {
        let Some(base) = &chain.base else { continue };
        let place = Place { kind: base.kind, hook: base.hook };
        let mut walk = Walk { table, place, heights: HashMap::new() };
        walk.chain(chain, 0)?;
    }
    Ok(())
}

/// About how many steps the check takes: each base chain may lead to all rules and elements.
pub(crate) fn cost(table: &Table) -> usize {
    let bases = table.chains.values().filter(|chain| chain.base.is_some()).count();
    let rules: usize = table.chains.values().map(|chain| 1 + chain.rules.len()).sum();
    let maps = table.sets.values().filter(|set| set.target == Some(Target::Verdict));
    bases.saturating_mul(rules + maps.map(|set| set.contents.len()).sum::<usize>())
}

struct Walk<'a> {
    table: &'a Table,
    place: Place,
    /// How many chains follow each other from a chain on, itself included.
    heights: HashMap<Ref, usize>,
}

impl Walk<'_> {
    /// The height of a chain that stands at a level. A circle exceeds every level.
    fn chain(&mut self, chain: &Chain, level: usize) -> Result<usize, Errno> {
        let key = Ref::Chain(chain.handle);
        if level >= JUMPS || self.heights.get(&key).is_some_and(|height| level + height > JUMPS) {
            return Err(Errno::EMLINK);
        }
        if let Some(height) = self.heights.get(&key) {
            return Ok(*height);
        }
        let mut height = 1;
        for expr in chain.rules.iter().flat_map(|rule| &rule.exprs) {
            expr.validate(self.place, self.table)?;
            for one in expr.refs() {
                height = height.max(1 + self.target(one, level)?);
            }
        }
        self.heights.insert(key, height);
        Ok(height)
    }

    /// The height of what an expression of a chain at a level leads to.
    fn target(&mut self, one: Ref, level: usize) -> Result<usize, Errno> {
        let table = self.table;
        match one {
            Ref::Chain(chain) => table.chains.get(&chain).map_or(Ok(0), |chain| self.chain(chain, level + 1)),
            Ref::Set(handle) => {
                let Some(set) = table.sets.get(&handle) else { return Ok(0) };
                if set.target != Some(Target::Verdict) {
                    return Ok(0);
                }
                if let Some(height) = self.heights.get(&one) {
                    return if level + 1 + height > JUMPS { Err(Errno::EMLINK) } else { Ok(*height) };
                }
                let mut height = 0;
                for element in set.contents.all() {
                    for chain in element.refs() {
                        height = height.max(self.target(chain, level)?);
                    }
                }
                self.heights.insert(one, height);
                Ok(height)
            }
            Ref::Filled(_) | Ref::Object(_) => Ok(0),
        }
    }
}
