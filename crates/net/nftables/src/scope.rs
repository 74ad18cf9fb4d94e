//! The objects that a parser may refer to.

use crate::attr::{Attr, Result as Parsed};
use crate::budget::{Budget, Charge};
use crate::data::{self, Data, Verdict};
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

    /// A value or a verdict.
    pub fn data(&self, attr: Attr<'_>) -> Parsed<Data> {
        let attrs = attr.nested();
        match (attrs.get(data::VALUE), attrs.get(data::VERDICT)) {
            (Some(value), _) => match value.data {
                [] => Err(Errno::EINVAL.into()),
                bytes if bytes.len() > data::VALUE_MAX => Err(Errno::EOVERFLOW.into()),
                bytes => Ok(Data::Value(bytes.into())),
            },
            (None, Some(verdict)) => self.verdict(verdict).map(Data::Verdict),
            (None, None) => Err(Errno::EINVAL.into()),
        }
    }

    fn verdict(&self, attr: Attr<'_>) -> Parsed<Verdict> {
        let attrs = attr.nested();
        let chain = || -> Parsed<u64> {
            let chain = match (attrs.get(data::CHAIN), attrs.be32(data::CHAIN_ID)?) {
                (Some(name), _) => self.table.chain_named(name.text(crate::NAME_MAX)?),
                (None, Some(id)) => self.chain_by_id(id),
                (None, None) => return Err(Errno::EINVAL.into()),
            };
            let chain: &Chain = chain.ok_or(Errno::ENOENT)?;
            match chain.base.is_some() {
                true => Err(Errno::EOPNOTSUPP.into()),
                false => Ok(chain.handle),
            }
        };
        Ok(match attrs.need(data::CODE)?.be32()? as i32 {
            0 => Verdict::Drop,
            1 => Verdict::Accept,
            -1 => Verdict::Continue,
            -2 => Verdict::Break,
            -3 => Verdict::Jump(chain()?),
            -4 => Verdict::Goto(chain()?),
            -5 => Verdict::Return,
            // NF_QUEUE: no program can receive from a queue here.
            code if code & 0xff == 3 => return Err(Errno::EOPNOTSUPP.into()),
            _ => return Err(Errno::EINVAL.into()),
        })
    }
}
