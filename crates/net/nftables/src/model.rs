//! The nf_tables objects of a namespace: tables, chains, rules, sets and named objects.
//!
//! A [`Ruleset`] never changes once packets see it. A batch works on a copy, which shares all unchanged parts with the
//! original (`Arc::make_mut`). The copy then replaces the original or is dropped. The state of rules (counters, limits)
//! is behind an `Arc`, common to both.

use crate::attr::Result;
use crate::budget::Charge;
use crate::counter::Counter;
use crate::expression::Expr;
use crate::set::Set;
use abi::Errno;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A name. Names are bytes to the kernel.
pub(crate) type Name = Arc<[u8]>;

/// All tables.
#[derive(Clone, Default)]
pub(crate) struct Ruleset {
    pub tables: BTreeMap<u64, Arc<Table>>,
    names: HashMap<(u8, Name), u64>,
    pub generation: u32,
    /// Shared by all copies: the handle of a table that never came to be is not given again.
    last_table: Arc<AtomicU64>,
}

impl Ruleset {
    /// No tables.
    pub fn new() -> Ruleset {
        Ruleset { generation: 1, ..Ruleset::default() }
    }
    pub fn table(&self, family: u8, name: &[u8]) -> Option<&Table> {
        let handle = self.names.get(&(family, Name::from(name)))?;
        self.tables.get(handle).map(|table| &**table)
    }
    pub fn table_mut(&mut self, handle: u64) -> Result<&mut Table> {
        self.tables.get_mut(&handle).map(Arc::make_mut).ok_or(Errno::ENOENT.into())
    }
    /// Adds a table, which gets the next handle.
    pub fn add(&mut self, mut table: Table) -> u64 {
        table.handle = self.last_table.fetch_add(1, Ordering::Relaxed) + 1;
        let handle = table.handle;
        self.names.insert((table.family, table.name.clone()), handle);
        self.tables.insert(handle, Arc::new(table));
        handle
    }
    /// The handle that was given to a table last.
    pub fn last_table(&self) -> u64 {
        self.last_table.load(Ordering::Relaxed)
    }
    /// Says which that was, for a checkpoint.
    pub fn set_last_table(&mut self, handle: u64) {
        self.last_table.store(handle, Ordering::Relaxed);
    }
    pub fn remove(&mut self, handle: u64) {
        if let Some(table) = self.tables.remove(&handle) {
            self.names.remove(&(table.family, table.name.clone()));
        }
    }
}

/// What an expression or an element of a set keeps in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ref {
    Chain(u64),
    Set(u64),
    /// A set that packets add elements to.
    Filled(u64),
    Object(u64),
}

/// Most elements of a set that packets fill, unless its description says otherwise.
const FILLED_MAX: u32 = 0xffff;

/// A table. Its chains, sets and objects are known by handle, which is the order of their creation.
#[derive(Clone)]
pub(crate) struct Table {
    pub handle: u64,
    pub family: u8,
    pub name: Name,
    pub flags: u32,
    pub userdata: Option<Box<[u8]>>,
    pub chains: BTreeMap<u64, Arc<Chain>>,
    pub sets: BTreeMap<u64, Arc<Set>>,
    pub objects: BTreeMap<u64, Arc<Object>>,
    chain_names: HashMap<Name, u64>,
    set_names: HashMap<Name, u64>,
    object_names: HashMap<(u32, Name), u64>,
    /// Numbers that a failed batch took are not used again.
    last_handle: Arc<AtomicU64>,
    pub _charge: Arc<Charge>,
}

/// `NFT_TABLE_F_DORMANT`: the chains see no packets.
pub(crate) const DORMANT: u32 = 1;

impl Table {
    pub fn new(family: u8, name: &[u8], flags: u32, userdata: Option<Box<[u8]>>, charge: Charge) -> Table {
        Table {
            handle: 0,
            family,
            name: name.into(),
            flags,
            userdata,
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
            objects: BTreeMap::new(),
            chain_names: HashMap::new(),
            set_names: HashMap::new(),
            object_names: HashMap::new(),
            last_handle: Arc::default(),
            _charge: Arc::new(charge),
        }
    }

    /// The handle given last.
    pub fn last(&self) -> u64 {
        self.last_handle.load(Ordering::Relaxed)
    }

    /// Says which handle was given last, for a checkpoint.
    pub fn set_last(&mut self, handle: u64) {
        self.last_handle.store(handle, Ordering::Relaxed);
    }

    pub fn next_handle(&self) -> u64 {
        self.last_handle.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many chains, sets and objects it has.
    pub fn uses(&self) -> usize {
        self.chains.len() + self.sets.len() + self.objects.len()
    }

    pub fn chain_named(&self, name: &[u8]) -> Option<&Chain> {
        self.chains.get(self.chain_names.get(name)?).map(|chain| &**chain)
    }
    pub fn set_named(&self, name: &[u8]) -> Option<&Set> {
        self.sets.get(self.set_names.get(name)?).map(|set| &**set)
    }
    pub fn object_named(&self, kind: u32, name: &[u8]) -> Option<&Object> {
        self.objects.get(self.object_names.get(&(kind, Name::from(name)))?).map(|object| &**object)
    }

    /// The name of a chain.
    pub fn chain_name(&self, handle: u64) -> Option<Name> {
        self.chains.get(&handle).map(|chain| chain.name.clone())
    }

    pub fn chain_mut(&mut self, handle: u64) -> Result<&mut Chain> {
        self.chains.get_mut(&handle).map(Arc::make_mut).ok_or(Errno::ENOENT.into())
    }
    pub fn set_mut(&mut self, handle: u64) -> Result<&mut Set> {
        self.sets.get_mut(&handle).map(Arc::make_mut).ok_or(Errno::ENOENT.into())
    }

    pub fn add_chain(&mut self, chain: Chain) {
        self.chain_names.insert(chain.name.clone(), chain.handle);
        self.chains.insert(chain.handle, Arc::new(chain));
    }
    pub fn add_set(&mut self, set: Set) {
        self.set_names.insert(set.name.clone(), set.handle);
        self.sets.insert(set.handle, Arc::new(set));
    }
    pub fn add_object(&mut self, object: Object) {
        self.object_names.insert((object.kind, object.name.clone()), object.handle);
        self.objects.insert(object.handle, Arc::new(object));
    }

    pub fn rename_chain(&mut self, handle: u64, name: &[u8]) -> Result<()> {
        let name = Name::from(name);
        let old = std::mem::replace(&mut self.chain_mut(handle)?.name, name.clone());
        self.chain_names.remove(&old);
        self.chain_names.insert(name, handle);
        Ok(())
    }

    /// Removes a chain with its rules. Others may not refer to it.
    pub fn remove_chain(&mut self, handle: u64) {
        while let Some(rule) = self.chains.get(&handle).and_then(|chain| chain.rules.last()).map(|r| r.handle)
        {
            self.remove_rule(handle, rule);
        }
        if let Some(chain) = self.chains.remove(&handle) {
            self.chain_names.remove(&chain.name);
        }
    }

    /// Removes a set with its elements.
    pub fn remove_set(&mut self, handle: u64) {
        let Some(set) = self.sets.remove(&handle) else { return };
        self.set_names.remove(&set.name);
        for element in set.contents.all() {
            self.release_all(element.refs());
        }
    }

    pub fn remove_object(&mut self, handle: u64) {
        if let Some(object) = self.objects.remove(&handle) {
            self.object_names.remove(&(object.kind, object.name.clone()));
        }
    }

    /// Puts a rule where it belongs: behind or before the one at `beside`, or at the end or the beginning.
    pub fn add_rule(&mut self, chain: u64, rule: Rule, beside: Option<usize>, append: bool) -> Result<()> {
        self.hold_all(rule.refs())?;
        let rules = &mut self.chain_mut(chain)?.rules;
        let at = match (beside, append) {
            (Some(at), true) => at + 1,
            (Some(at), false) => at,
            (None, true) => rules.len(),
            (None, false) => 0,
        };
        rules.insert(at.min(rules.len()), Arc::new(rule));
        Ok(())
    }

    pub fn remove_rule(&mut self, chain: u64, handle: u64) {
        let Ok(chain) = self.chain_mut(chain) else { return };
        let Some(at) = chain.rules.iter().rposition(|rule| rule.handle == handle) else { return };
        let rule = chain.rules.remove(at);
        self.release_all(rule.refs());
    }

    /// Counts what something refers to; nothing if one of them may not be.
    pub fn hold_all(&mut self, refs: Vec<Ref>) -> Result<()> {
        for (n, one) in refs.iter().enumerate() {
            if let Err(failure) = self.hold(*one) {
                self.release_all(refs[..n].to_vec());
                return Err(failure);
            }
        }
        Ok(())
    }

    fn hold(&mut self, one: Ref) -> Result<()> {
        match one {
            Ref::Chain(chain) => self.chain_mut(chain)?.jumps += 1,
            Ref::Set(handle) | Ref::Filled(handle) => {
                let set = self.set_mut(handle)?;
                if set.bindings > 0 && set.is_anonymous() {
                    return Err(Errno::EBUSY.into());
                }
                set.bindings += 1;
                if one == Ref::Filled(handle) {
                    set.bindings_filled += 1;
                    // A set that packets fill has a bound.
                    set.size = if set.size == 0 { FILLED_MAX } else { set.size };
                }
            }
            Ref::Object(object) => {
                let object = self.objects.get_mut(&object).map(Arc::make_mut).ok_or(Errno::ENOENT)?;
                object.uses += 1;
            }
        }
        Ok(())
    }

    /// Takes references back. What lives by them alone goes: anonymous sets, and chains that are part of a rule.
    pub fn release_all(&mut self, mut refs: Vec<Ref>) {
        while let Some(one) = refs.pop() {
            match one {
                Ref::Chain(handle) => {
                    let Ok(chain) = self.chain_mut(handle) else { continue };
                    chain.jumps -= 1;
                    if chain.flags & Chain::BINDING != 0 && chain.jumps == 0 {
                        let rules = std::mem::take(&mut chain.rules);
                        refs.extend(rules.iter().flat_map(|rule| rule.refs()));
                        self.remove_chain(handle);
                    }
                }
                Ref::Set(handle) | Ref::Filled(handle) => {
                    let Ok(set) = self.set_mut(handle) else { continue };
                    set.bindings -= 1;
                    set.bindings_filled -= u32::from(one == Ref::Filled(handle));
                    if set.is_anonymous() {
                        refs.extend(set.contents.all().iter().flat_map(|element| element.refs()));
                        let set = self.sets.remove(&handle);
                        set.and_then(|set| self.set_names.remove(&set.name));
                    }
                }
                Ref::Object(handle) => {
                    if let Some(object) = self.objects.get_mut(&handle) {
                        Arc::make_mut(object).uses -= 1;
                    }
                }
            }
        }
    }
}

/// Kinds of base chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Filter,
    Nat,
    /// Routes a packet of this host again when a rule changed it.
    Route,
}

impl Kind {
    pub fn name(self) -> &'static [u8] {
        match self {
            Kind::Filter => b"filter",
            Kind::Nat => b"nat",
            Kind::Route => b"route",
        }
    }
}

/// What makes a chain see packets.
#[derive(Clone)]
pub(crate) struct Base {
    pub kind: Kind,
    pub hook: u8,
    pub priority: i32,
    /// Accepts what no rule decides on.
    pub accepts: bool,
    /// Counts packets that the policy decided on, if the program asked for that.
    pub counter: Option<Arc<Counter>>,
}

/// A chain.
#[derive(Clone)]
pub(crate) struct Chain {
    pub handle: u64,
    pub name: Name,
    pub base: Option<Base>,
    pub flags: u32,
    pub userdata: Option<Box<[u8]>>,
    /// Rules and elements that lead here.
    pub jumps: u32,
    pub rules: Vec<Arc<Rule>>,
    pub _charge: Arc<Charge>,
}

impl Chain {
    /// `NFT_CHAIN_BINDING`: the chain is part of the rule that jumps to it.
    pub const BINDING: u32 = 4;

    /// Part of a rule already.
    pub fn is_bound(&self) -> bool {
        self.flags & Chain::BINDING != 0 && self.jumps > 0
    }

    pub fn rule(&self, handle: u64) -> Option<usize> {
        // What is sought is mostly what was added last, or what goes next.
        self.rules.iter().rposition(|rule| rule.handle == handle)
    }
}

/// A rule.
pub(crate) struct Rule {
    pub handle: u64,
    pub exprs: Box<[Box<dyn Expr>]>,
    pub userdata: Option<Box<[u8]>>,
    pub _charge: Charge,
}

impl Rule {
    pub fn refs(&self) -> Vec<Ref> {
        self.exprs.iter().flat_map(|expr| expr.refs()).collect()
    }
}

/// A named object with state, such as a counter.
#[derive(Clone)]
pub(crate) struct Object {
    pub handle: u64,
    pub name: Name,
    /// `NFT_OBJECT_*`.
    pub kind: u32,
    pub uses: u32,
    pub userdata: Option<Box<[u8]>>,
    pub state: Arc<dyn Expr>,
    pub _charge: Arc<Charge>,
}
