//! The objects that a parser may refer to.

use crate::budget::{Budget, Charge};
use crate::model::{Chain, Table};
use crate::set::Set;
use abi::Errno;
use netfilter::Netfilter;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

/// Objects that a batch made, under the numbers that the batch gave them.
#[derive(Default)]
pub(crate) struct Ids {
    /// By table and number.
    pub chains: HashMap<(u64, u32), u64>,
    pub sets: HashMap<(u64, u32), u64>,
    /// The chain of a rule with it.
    pub rules: HashMap<(u64, u32), (u64, u64)>,
    count: usize,
}

/// Numbers that one batch may give. Batches are bounded by their length; this bounds what is kept beside the rules.
const MAX_IDS: usize = 1 << 18;

impl Ids {
    /// Makes room for one more.
    pub fn count(&mut self) -> Result<(), Errno> {
        self.count += 1;
        if self.count <= MAX_IDS { Ok(()) } else { Err(Errno::ENOMEM) }
    }
}

/// Where an expression or an element is parsed.
pub(crate) struct Scope<'a> {
    pub table: &'a Table,
    pub ids: &'a Ids,
    pub budget: &'a Arc<Budget>,
    pub netfilter: &'a Arc<Netfilter>,
    /// Protocol and flags that iptables gives with a rule (`NFTA_RULE_COMPAT`).
    pub compat: Option<(u16, bool)>,
    /// Registers that hold something, one bit for each.
    pub inited: Cell<u32>,
    /// Milliseconds.
    pub now: u64,
}

impl<'a> Scope<'a> {
    pub fn chain_by_id(&self, id: u32) -> Option<&'a Chain> {
        let handle = self.ids.chains.get(&(self.table.handle, id))?;
        self.table.chains.get(handle).map(|chain| &**chain)
    }
    /// A set by name, or else by the number that the batch gave it.
    pub fn set(&self, name: &[u8], id: Option<u32>) -> Result<&'a Set, Errno> {
        let by_id = || {
            let handle = self.ids.sets.get(&(self.table.handle, id?))?;
            self.table.sets.get(handle).map(|set| &**set)
        };
        self.table.set_named(name).or_else(by_id).ok_or(Errno::ENOENT)
    }
    pub fn charge(&self, bytes: usize) -> Result<Charge, Errno> {
        Charge::take(self.budget, bytes)
    }
}
