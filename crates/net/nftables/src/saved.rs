//! The rules of a namespace as plain data, for a checkpoint: the messages that would make them, oldest object first, with what
//! they counted. Handles stay as they are, since programs keep them. Buckets of limits are full again.

use crate::api::{Change, WORK, chain, element, msg, object, rule, table};
use crate::attr::{Result, Writer};
use crate::message::{GENERIC, HEADER, NFTABLES, Reply, Request, flag};
use crate::model::{Rule, Ruleset, Table};
use crate::scope::Ids;
use crate::set::{NFTA_SET_ID, flag as set_flag};
use crate::{AckOptions, Asker, Nftables, family};
use abi::Errno;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// An object, as the message that makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemState {
    /// Its handle.
    pub handle: u64,
    /// The message, with its header.
    #[serde(with = "serde_bytes")]
    pub message: Vec<u8>,
    /// Messages with the elements of a set that none can be added to later.
    pub elements: Vec<serde_bytes::ByteBuf>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableState {
    /// The table itself.
    pub table: ItemState,
    /// Its chains, sets, objects and rules, in the order of their handles.
    pub items: Vec<ItemState>,
    /// Elements of the other sets, which may lead to any chain.
    pub elements: Vec<serde_bytes::ByteBuf>,
    /// The rules of each chain in their order, by the handles of both.
    pub order: Vec<(u64, Vec<u64>)>,
    /// The handle given last.
    pub last: u64,
}

/// The rules of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NftablesState {
    /// The tables.
    pub tables: Vec<TableState>,
    /// The number of the rules' form.
    pub generation: u32,
    /// The handle that was given to a table last.
    pub last: u64,
}

/// Handles are below this.
const HIGHEST: u64 = 1 << 48;
/// `NFTA_RULE_COMPAT` and what is in it.
const RULE_COMPAT: (u16, u16, u16) = (5, 1, 2);
/// Attributes that name an object that is there: in messages about tables, chains, rules, sets and named objects.
const NAMING: [(u8, &[u16]); 5] = [
    (msg::NEWTABLE, &[4]),
    (msg::NEWCHAIN, &[2]),
    (msg::NEWRULE, &[3, 6]),
    (msg::NEWSET, &[16]),
    (msg::NEWOBJ, &[6]),
];
/// Elements in one message.
const ELEMENTS: usize = 32;

/// A message that makes something.
fn message(number: u8, of: u8, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let reply = Reply { flags: flag::REQUEST | flag::CREATE | flag::APPEND, seq: 0, port: 0, generation: 0 };
    let whole = reply.message(number, of, fill);
    let naming = NAMING.iter().find(|(about, _)| *about == number).map_or(&[][..], |(_, kinds)| kinds);
    let Some((request, _)) = Request::next(&whole) else { return whole };
    let attrs = request.attrs();
    reply.message(number, of, |out| {
        attrs
            .iter()
            .filter(|attr| !naming.contains(&attr.kind))
            .for_each(|attr| out.put(attr.kind, attr.data));
    })
}

fn rule_message(at: usize, of: &crate::model::Chain, table: &Table) -> Vec<u8> {
    let rule: &Rule = &of.rules[at];
    message(msg::NEWRULE, table.family, |out| {
        rule::dump(rule, None, of, table, out);
        if let Some((protocol, inverted)) = rule.exprs.iter().find_map(|expr| expr.compat()) {
            let (compat, proto, flags) = RULE_COMPAT;
            out.nest(compat, |out| {
                out.be32(proto, protocol.into());
                out.be32(flags, if inverted { 2 } else { 0 });
            });
        }
    })
}

fn table_state(of: &Table, now: u64) -> TableState {
    let (mut items, mut elements, mut order) = (BTreeMap::new(), Vec::new(), Vec::new());
    for one in of.chains.values() {
        items.insert(one.handle, message(msg::NEWCHAIN, of.family, |out| chain::dump(one, of, out)));
        for at in 0..one.rules.len() {
            items.insert(one.rules[at].handle, rule_message(at, one, of));
        }
        order.push((one.handle, one.rules.iter().map(|rule| rule.handle).collect()));
    }
    for one in of.objects.values() {
        items.insert(one.handle, message(msg::NEWOBJ, of.family, |out| object::dump(one, of, out)));
    }
    let mut constant: HashMap<u64, Vec<serde_bytes::ByteBuf>> = HashMap::new();
    for one in of.sets.values() {
        let fill = |out: &mut Writer| {
            one.dump(of, out);
            // Each set of a batch has a number in it.
            out.be32(NFTA_SET_ID, one.handle as u32);
        };
        items.insert(one.handle, message(msg::NEWSET, of.family, fill));
        let live: Vec<_> =
            one.contents.all().into_iter().filter(|element| !element.is_expired(now)).collect();
        for some in live.chunks(ELEMENTS) {
            let fill = |out: &mut Writer| element::dump(some, one, now, of, out);
            let message = serde_bytes::ByteBuf::from(message(msg::NEWSETELEM, of.family, fill));
            match one.has(set_flag::CONSTANT) {
                true => constant.entry(one.handle).or_default().push(message),
                false => elements.push(message),
            }
        }
    }
    TableState {
        table: ItemState {
            handle: of.handle,
            message: message(msg::NEWTABLE, of.family, |out| table::dump(of, out)),
            elements: Vec::new(),
        },
        items: items
            .into_iter()
            .map(|(handle, message)| {
                let elements = constant.remove(&handle).unwrap_or_default();
                ItemState { handle, message, elements }
            })
            .collect(),
        elements,
        order,
        last: of.last(),
    }
}

/// For the message of a chain that is part of a rule: the message as a program sends it, without a name, and the name that the
/// chain got.
fn bound_chain(bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    const FLAGS: u16 = 10;
    const ID: u16 = 11;
    let (request, _) = Request::next(bytes)?;
    if request.number() != msg::NEWCHAIN || bytes.len() < HEADER + GENERIC {
        return None;
    }
    let attrs = request.attrs();
    let flags = attrs.be32(FLAGS).ok()??;
    let name = attrs.get(chain::NAME)?.text(crate::NAME_MAX).ok()?.to_vec();
    if flags & crate::model::Chain::BINDING == 0 {
        return None;
    }
    let bare = message(msg::NEWCHAIN, request.family(), |out| {
        let all = attrs.iter().filter(|attr| attr.kind != chain::NAME && attr.kind != ID);
        all.for_each(|attr| out.put(attr.kind, attr.data));
        out.be32(ID, 1);
    });
    Some((bare, name))
}

impl Nftables {
    /// As plain data. `now`: milliseconds of the kernel's clock.
    pub fn saved(&self, now: u64) -> NftablesState {
        let rules = self.live.load();
        NftablesState {
            tables: rules.tables.values().map(|table| table_state(table, now)).collect(),
            generation: rules.generation,
            last: rules.last_table(),
        }
    }

    /// Makes the rules of plain data, where there are none. An error is that of the message that cannot be carried out; nothing has
    /// changed then.
    pub fn restore(&self, saved: &NftablesState, now: u64) -> std::result::Result<(), Errno> {
        self.restored(saved, now).map_err(|failure| failure.errno)
    }

    fn restored(&self, saved: &NftablesState, now: u64) -> Result<()> {
        if !self.live.load().tables.is_empty() {
            return Err(Errno::EEXIST.into());
        }
        let options = AckOptions::default();
        let asker = Asker { port: 0, pid: 0, name: b"", options, listeners: false, now, room: 0 };
        let mut control = self.control.lock();
        control.batches += 1;
        let mut change = Change {
            rules: Ruleset::clone(&self.live.load()),
            ids: Ids::default(),
            batch: control.batches,
            now,
            budget: &self.budget,
            netfilter: &self.netfilter,
            asker: &asker,
            events: Vec::new(),
            event_bytes: 0,
            work: Cell::new(WORK),
            lost: false,
            lost_echo: false,
            touched: BTreeSet::new(),
        };
        for one in &saved.tables {
            change.restore_table(one)?;
        }
        // No table gets the handle of another one.
        change.rules.set_last_table(saved.last.clamp(change.rules.last_table(), HIGHEST));
        // The commit counts one more.
        change.rules.generation = saved.generation.saturating_sub(1).max(1);
        let end = message(msg::GETGEN, 0, |_| ());
        let (request, _) = Request::next(&end).ok_or(Errno::EINVAL)?;
        self.commit(&mut control.hooks, change, &request).map(drop)
    }
}

impl Change<'_> {
    fn restore_table(&mut self, saved: &TableState) -> Result<()> {
        let handle = saved.table.handle;
        if handle == 0 || handle >= HIGHEST || handle <= self.rules.last_table() {
            return Err(Errno::EINVAL.into());
        }
        self.rules.set_last_table(handle - 1);
        self.make(&saved.table.message, &[msg::NEWTABLE])?;
        if self.rules.last_table() != handle {
            return Err(Errno::EEXIST.into());
        }
        let mut last = 0;
        for one in &saved.items {
            if one.handle <= last || one.handle >= HIGHEST {
                return Err(Errno::EINVAL.into());
            }
            last = one.handle;
            self.rules.table_mut(handle)?.set_last(one.handle - 1);
            match bound_chain(&one.message) {
                Some((bare, name)) => {
                    self.make(&bare, &[msg::NEWCHAIN])?;
                    let table = self.rules.table_mut(handle)?;
                    if table.chain_named(&name).is_some_and(|there| there.handle != one.handle) {
                        return Err(Errno::EEXIST.into());
                    }
                    table.rename_chain(one.handle, &name)?;
                }
                None => self.make(&one.message, &[msg::NEWCHAIN, msg::NEWRULE, msg::NEWSET, msg::NEWOBJ])?,
            }
            for elements in &one.elements {
                self.make(elements, &[msg::NEWSETELEM])?;
            }
        }
        for one in &saved.elements {
            self.make(one, &[msg::NEWSETELEM])?;
        }
        let table = self.rules.table_mut(handle)?;
        for (chain, order) in &saved.order {
            let places: HashMap<u64, usize> = order.iter().copied().zip(0..).collect();
            let rules = &mut table.chain_mut(*chain)?.rules;
            if places.len() != rules.len() || rules.iter().any(|rule| !places.contains_key(&rule.handle)) {
                return Err(Errno::EINVAL.into());
            }
            rules.sort_by_key(|rule: &Arc<Rule>| places.get(&rule.handle).copied());
        }
        table.set_last(saved.last.clamp(last, HIGHEST));
        Ok(())
    }

    /// Carries out one message, which must be of these.
    fn make(&mut self, bytes: &[u8], numbers: &[u8]) -> Result<()> {
        let (request, rest) = Request::next(bytes).ok_or(Errno::EINVAL)?;
        let whole = rest.is_empty() && bytes.len() >= HEADER + GENERIC;
        let wanted = request.subsystem() == NFTABLES && numbers.contains(&request.number());
        let of = [family::INET, family::IPV4, family::IPV6].contains(&request.family());
        if !whole || !wanted || !of {
            return Err(Errno::EINVAL.into());
        }
        self.apply(&request)
    }
}
