//! Base chains at netfilter's points.

use crate::family;
use crate::model::{DORMANT, Kind, Ruleset};
use crate::points::POINTS;
use crate::run::{self, Decision};
use abi::Errno;
use arc_swap::ArcSwap;
use netfilter::{Chain, Family, Netfilter, Packet, Registration, Verdict};
use std::collections::HashMap;
use std::sync::Arc;

/// The base chains that packets meet, by table and chain.
#[derive(Default)]
pub(crate) struct Hooks(HashMap<(u64, u64), Vec<Registration>>);

/// A base chain as netfilter calls it.
struct Hook {
    live: Arc<ArcSwap<Ruleset>>,
    table: u64,
    chain: u64,
}

impl Chain for Hook {
    fn run(&self, packet: &mut Packet<'_>) -> Verdict {
        match run::base(&self.live.load(), self.table, self.chain, packet) {
            Decision::Accept => Verdict::Accept,
            Decision::Drop => Verdict::Drop,
        }
    }
}

impl Hooks {
    /// Registers the base chains of `rules` that are new, before packets see the rules themselves.
    pub fn add(
        &self,
        rules: &Ruleset,
        live: &Arc<ArcSwap<Ruleset>>,
        netfilter: &Netfilter,
    ) -> Result<HashMap<(u64, u64), Vec<Registration>>, Errno> {
        let mut fresh = HashMap::new();
        for table in rules.tables.values().filter(|table| table.flags & DORMANT == 0) {
            let families: &[Family] = match table.family {
                family::IPV4 => &[Family::V4],
                family::IPV6 => &[Family::V6],
                _ => &[Family::V4, Family::V6],
            };
            for chain in table.chains.values() {
                let key = (table.handle, chain.handle);
                let Some(base) = &chain.base else { continue };
                if self.0.contains_key(&key) {
                    continue;
                }
                let point = POINTS[usize::from(base.hook) % POINTS.len()];
                let mut all = Vec::new();
                for family in families {
                    let hook = Arc::new(Hook { live: live.clone(), table: key.0, chain: key.1 });
                    all.push(match base.kind {
                        Kind::Nat => netfilter.register_nat(*family, point, base.priority, hook)?,
                        Kind::Filter | Kind::Route => {
                            netfilter.register(*family, point, base.priority, hook)?
                        }
                    });
                }
                fresh.insert(key, all);
            }
        }
        Ok(fresh)
    }

    /// Keeps the new ones, and ends those of chains that are gone.
    pub fn settle(&mut self, fresh: HashMap<(u64, u64), Vec<Registration>>, rules: &Ruleset) {
        self.0.extend(fresh);
        self.0.retain(|(table, chain), _| {
            let table = rules.tables.get(table).filter(|table| table.flags & DORMANT == 0);
            table.is_some_and(|table| table.chains.contains_key(chain))
        });
    }
}
