//! Requests of programs: one file for each kind of object, with the messages that make, delete and list it.

pub(crate) mod chain;
pub(crate) mod element;
pub(crate) mod get;
pub(crate) mod object;
pub(crate) mod rule;
pub(crate) mod set;
pub(crate) mod table;

use crate::attr::{Attr, Blame, Result, Writer};
use crate::budget::{Budget, Charge};
use crate::message::{Reply, Request, flag};
use crate::model::{Chain, Ruleset, Table};
use crate::scope::{Ids, Scope};
use crate::set::Set;
use crate::{Asker, Event, NAME_MAX};
use abi::Errno;
use netfilter::Netfilter;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Numbers of messages (`enum nf_tables_msg_types`).
pub(crate) mod msg {
    pub const NEWTABLE: u8 = 0;
    pub const GETTABLE: u8 = 1;
    pub const DELTABLE: u8 = 2;
    pub const NEWCHAIN: u8 = 3;
    pub const GETCHAIN: u8 = 4;
    pub const DELCHAIN: u8 = 5;
    pub const NEWRULE: u8 = 6;
    pub const GETRULE: u8 = 7;
    pub const DELRULE: u8 = 8;
    pub const NEWSET: u8 = 9;
    pub const GETSET: u8 = 10;
    pub const DELSET: u8 = 11;
    pub const NEWSETELEM: u8 = 12;
    pub const GETSETELEM: u8 = 13;
    pub const DELSETELEM: u8 = 14;
    pub const NEWGEN: u8 = 15;
    pub const GETGEN: u8 = 16;
    pub const NEWOBJ: u8 = 18;
    pub const GETOBJ: u8 = 19;
    pub const DELOBJ: u8 = 20;
    pub const GETOBJ_RESET: u8 = 21;
    pub const NEWFLOWTABLE: u8 = 22;
    pub const GETFLOWTABLE: u8 = 23;
    pub const DELFLOWTABLE: u8 = 24;
    pub const GETRULE_RESET: u8 = 25;
    pub const DESTROYTABLE: u8 = 26;
    pub const DESTROYCHAIN: u8 = 27;
    pub const DESTROYRULE: u8 = 28;
    pub const DESTROYSET: u8 = 29;
    pub const DESTROYSETELEM: u8 = 30;
    pub const DESTROYOBJ: u8 = 31;
    pub const DESTROYFLOWTABLE: u8 = 32;
    pub const GETSETELEM_RESET: u8 = 33;
}

/// Longest data that programs keep with an object (`NFT_USERDATA_MAXLEN`).
const USERDATA_MAX: usize = 256;
/// Most bytes of events that one batch makes: more than a listener's queue holds, unless root made it longer.
pub(crate) const EVENTS_MAX: usize = 4 << 20;

/// Steps of long searches that one batch may take: as many as 16,000 ranges of concatenations need, each of which is compared with
/// all before it.
pub(crate) const WORK: usize = 1 << 27;

/// A batch at work: a copy of the rules, which takes their place if nothing fails.
pub(crate) struct Change<'a> {
    pub rules: Ruleset,
    pub ids: Ids,
    /// A number that no other batch has.
    pub batch: u64,
    pub now: u64,
    pub budget: &'a Arc<Budget>,
    pub netfilter: &'a Arc<Netfilter>,
    pub asker: &'a Asker<'a>,
    pub events: Vec<Event>,
    /// Bytes of the events.
    pub event_bytes: usize,
    /// Events, or echoes, are missing.
    pub lost: bool,
    pub lost_echo: bool,
    /// What is left of [`WORK`].
    pub work: Cell<usize>,
    /// Tables in which something is different.
    pub touched: BTreeSet<u64>,
}

impl Change<'_> {
    /// Does what one message of a batch asks.
    pub fn apply(&mut self, request: &Request<'_>) -> Result<()> {
        match request.number() {
            msg::NEWTABLE => self.new_table(request),
            msg::DELTABLE => self.delete_table(request),
            msg::DESTROYTABLE => ignore_missing(self.delete_table(request)),
            msg::NEWCHAIN => self.new_chain(request),
            msg::DELCHAIN => self.delete_chain(request),
            msg::DESTROYCHAIN => ignore_missing(self.delete_chain(request)),
            msg::NEWRULE => self.new_rule(request),
            msg::DELRULE => self.delete_rule(request),
            msg::DESTROYRULE => ignore_missing(self.delete_rule(request)),
            msg::NEWSET => self.new_set(request),
            msg::DELSET => self.delete_set(request),
            msg::DESTROYSET => ignore_missing(self.delete_set(request)),
            msg::NEWSETELEM => self.new_elements(request),
            msg::DELSETELEM => self.delete_elements(request, false),
            msg::DESTROYSETELEM => self.delete_elements(request, true),
            msg::NEWOBJ => self.new_object(request),
            msg::DELOBJ => self.delete_object(request),
            msg::DESTROYOBJ => ignore_missing(self.delete_object(request)),
            // As in a kernel without them.
            msg::NEWFLOWTABLE | msg::DELFLOWTABLE => Err(Errno::ENOENT.into()),
            msg::DESTROYFLOWTABLE => Ok(()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Takes of the steps that a batch has; ENOMEM when too few are left.
    pub fn spend(&self, steps: usize) -> Result<()> {
        self.work.set(self.work.get().checked_sub(steps).ok_or(Errno::ENOMEM)?);
        Ok(())
    }

    pub fn charge(&self, bytes: usize) -> Result<Charge> {
        Ok(Charge::take(self.budget, bytes)?)
    }

    /// Tells listeners, and the asker if it wants an echo.
    fn notify(
        &mut self,
        request: &Request<'_>,
        number: u8,
        family: u8,
        fill: impl FnOnce(&Ruleset, &mut Writer),
    ) {
        let echo = request.has(flag::ECHO);
        if !echo && !self.asker.listeners {
            return;
        }
        if self.event_bytes > EVENTS_MAX {
            self.lost = true;
            self.lost_echo |= echo;
            return;
        }
        let keep = flag::CREATE | flag::EXCL | flag::APPEND | flag::REPLACE;
        let is_new = [msg::NEWTABLE, msg::NEWCHAIN, msg::NEWRULE, msg::NEWSET, msg::NEWSETELEM, msg::NEWOBJ];
        let mut flags = if is_new.contains(&number) { request.flags & keep } else { 0 };
        if flags & flag::REPLACE != 0 {
            flags |= flag::APPEND;
        }
        let generation = crate::following(self.rules.generation);
        let reply = Reply { flags, seq: request.seq, port: self.asker.port, generation };
        let message = reply.message(number, family, |out| fill(&self.rules, out));
        self.event_bytes += message.capacity();
        self.events.push(Event { message, echo });
    }

    /// The table that a message names; nothing in it is different yet.
    fn table(&self, request: &Request<'_>, name: Option<Attr<'_>>) -> Result<&Table> {
        let name = name.ok_or(Errno::EINVAL)?;
        let table = self.rules.table(request.family(), name.text(NAME_MAX)?);
        table.ok_or(Errno::ENOENT).blame(name.at)
    }

    /// The same, to be changed.
    fn touch(&mut self, handle: u64) -> Result<&mut Table> {
        self.touched.insert(handle);
        self.rules.table_mut(handle)
    }

    /// What a parser may refer to in a table.
    fn scope<'s>(&'s self, table: &'s Table) -> Scope<'s> {
        Scope {
            table,
            ids: &self.ids,
            budget: self.budget,
            netfilter: self.netfilter,
            compat: None,
            inited: Cell::new(0),
            now: self.now,
        }
    }
}

fn ignore_missing(result: Result<()>) -> Result<()> {
    match result {
        Err(failure) if failure.errno == Errno::ENOENT => Ok(()),
        other => other,
    }
}

fn userdata(attr: Option<Attr<'_>>) -> Result<Option<Box<[u8]>>> {
    attr.map(|attr| attr.bytes(USERDATA_MAX).map(Box::from)).transpose()
}

/// A chain that a message names.
fn named_chain<'t>(table: &'t Table, name: Attr<'_>) -> Result<&'t Chain> {
    table.chain_named(name.text(NAME_MAX)?).ok_or(Errno::ENOENT).blame(name.at)
}

/// A set that a message names.
fn named_set<'t>(table: &'t Table, name: Attr<'_>) -> Result<&'t Set> {
    table.set_named(name.text(NAME_MAX)?).ok_or(Errno::ENOENT).blame(name.at)
}
