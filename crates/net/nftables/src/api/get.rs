//! Answers about objects: single ones, and dumps.

use super::{chain, element, msg, named_chain, named_set, object, rule, set, table};
use crate::Asker;
use crate::attr::{Attr, Blame, Result};
use crate::message::{Reply, Request};
use crate::model::{Ruleset, Table};
use crate::set::Set;
use abi::Errno;
use std::sync::Arc;

/// Elements in one message of a dump.
const ELEMENTS: usize = 32;

const GEN_ID: u16 = 1;
const GEN_PID: u16 = 2;
const GEN_NAME: u16 = 3;

/// The generation of the rules, and the process that made it.
pub(crate) fn generation(reply: Reply, generation: u32, asker: &Asker<'_>) -> Vec<u8> {
    reply.message(msg::NEWGEN, 0, |out| {
        out.be32(GEN_ID, generation);
        out.be32(GEN_PID, asker.pid);
        out.text(GEN_NAME, asker.name);
    })
}

/// A request that changes nothing but counters.
pub(crate) struct Get<'a> {
    pub rules: &'a Ruleset,
    pub request: Request<'a>,
    pub reply: Reply,
    pub now: u64,
    pub asker: &'a Asker<'a>,
}

impl Get<'_> {
    /// The messages that answer.
    pub fn answer(&self) -> Result<Vec<Vec<u8>>> {
        let dumps = self.request.dumps();
        match self.request.number() {
            msg::GETGEN => Ok(vec![generation(self.reply, self.rules.generation, self.asker)]),
            msg::GETTABLE if dumps => Ok(self.tables().map(|table| self.table(table)).collect()),
            msg::GETCHAIN if dumps => self.chains(),
            msg::GETRULE | msg::GETRULE_RESET if dumps => self.rules(),
            msg::GETSET if dumps => self.sets(),
            msg::GETOBJ | msg::GETOBJ_RESET if dumps => self.objects(),
            msg::GETSETELEM | msg::GETSETELEM_RESET => self.elements(),
            msg::GETFLOWTABLE if dumps => Ok(Vec::new()),
            msg::GETTABLE => {
                let name = self.request.attrs().get(table::NAME);
                Ok(vec![self.table(self.named_table(name)?)])
            }
            msg::GETCHAIN => self.one_chain(),
            msg::GETRULE | msg::GETRULE_RESET => self.one_rule(),
            msg::GETSET => self.one_set(),
            msg::GETOBJ | msg::GETOBJ_RESET => self.one_object(),
            msg::GETFLOWTABLE => Err(Errno::ENOENT.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// The tables of the family that is asked for.
    fn tables(&self) -> impl Iterator<Item = &Table> {
        let of = self.request.family();
        self.rules.tables.values().map(|table| &**table).filter(move |table| of == 0 || table.family == of)
    }

    /// The tables that a dump is about: all, or the one with that name.
    fn chosen(&self, name: u16) -> Result<impl Iterator<Item = &Table>> {
        let name = self.request.attrs().get(name).map(|name| name.text(crate::NAME_MAX)).transpose()?;
        Ok(self.tables().filter(move |table| name.is_none_or(|name| *table.name == *name)))
    }

    fn named_table(&self, name: Option<Attr<'_>>) -> Result<&Table> {
        let name = name.ok_or(Errno::EINVAL)?;
        let found = self.rules.table(self.request.family(), name.text(crate::NAME_MAX)?);
        found.ok_or(Errno::ENOENT).blame(name.at)
    }

    fn table(&self, table: &Table) -> Vec<u8> {
        self.reply.message(msg::NEWTABLE, table.family, |out| table::dump(table, out))
    }

    fn chain(&self, of: &Table, chain: &crate::model::Chain) -> Vec<u8> {
        self.reply.message(msg::NEWCHAIN, of.family, |out| chain::dump(chain, of, out))
    }

    fn chains(&self) -> Result<Vec<Vec<u8>>> {
        let chosen = self.chosen(chain::TABLE)?;
        Ok(chosen.flat_map(|table| table.chains.values().map(|chain| self.chain(table, chain))).collect())
    }

    fn one_chain(&self) -> Result<Vec<Vec<u8>>> {
        let attrs = self.request.attrs();
        let table = self.named_table(attrs.get(chain::TABLE))?;
        Ok(vec![self.chain(table, named_chain(table, attrs.need(chain::NAME)?)?)])
    }

    fn rule(&self, table: &Table, chain: &crate::model::Chain, at: usize) -> Vec<u8> {
        let before = at.checked_sub(1).map(|at| chain.rules[at].handle);
        let rule = &chain.rules[at];
        let message =
            self.reply.message(msg::NEWRULE, table.family, |out| rule::dump(rule, before, chain, table, out));
        if self.request.number() == msg::GETRULE_RESET {
            rule.exprs.iter().for_each(|expr| expr.reset());
        }
        message
    }

    fn rules(&self) -> Result<Vec<Vec<u8>>> {
        let name =
            self.request.attrs().get(rule::CHAIN).map(|name| name.text(crate::NAME_MAX)).transpose()?;
        let mut out = Vec::new();
        for table in self.chosen(rule::TABLE)? {
            for chain in table.chains.values().filter(|chain| name.is_none_or(|name| *chain.name == *name)) {
                out.extend((0..chain.rules.len()).map(|at| self.rule(table, chain, at)));
            }
        }
        Ok(out)
    }

    fn one_rule(&self) -> Result<Vec<Vec<u8>>> {
        let attrs = self.request.attrs();
        let table = self.named_table(attrs.get(rule::TABLE))?;
        let chain = named_chain(table, attrs.need(rule::CHAIN)?)?;
        let handle = attrs.need(rule::HANDLE)?;
        let at = chain.rule(handle.be64()?).ok_or(Errno::ENOENT).blame(handle.at)?;
        Ok(vec![self.rule(table, chain, at)])
    }

    fn set(&self, table: &Table, set: &Set) -> Vec<u8> {
        self.reply.message(msg::NEWSET, table.family, |out| set.dump(table, out))
    }

    fn sets(&self) -> Result<Vec<Vec<u8>>> {
        let chosen = self.chosen(set::TABLE)?;
        Ok(chosen.flat_map(|table| table.sets.values().map(|set| self.set(table, set))).collect())
    }

    fn one_set(&self) -> Result<Vec<Vec<u8>>> {
        let attrs = self.request.attrs();
        if self.request.family() == 0 {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let table = self.named_table(attrs.get(set::TABLE))?;
        Ok(vec![self.set(table, named_set(table, attrs.need(set::NAME)?)?)])
    }

    fn object(&self, table: &Table, object: &crate::model::Object) -> Vec<u8> {
        let message = self.reply.message(msg::NEWOBJ, table.family, |out| object::dump(object, table, out));
        if self.request.number() == msg::GETOBJ_RESET {
            object.state.reset();
        }
        message
    }

    fn objects(&self) -> Result<Vec<Vec<u8>>> {
        let kind = self.request.attrs().be32(object::TYPE)?.filter(|kind| *kind != 0);
        let chosen = self.chosen(object::TABLE)?;
        let of = |table: &Table| -> Vec<Vec<u8>> {
            let wanted = table.objects.values().filter(|object| kind.is_none_or(|kind| kind == object.kind));
            wanted.map(|object| self.object(table, object)).collect()
        };
        Ok(chosen.flat_map(of).collect())
    }

    fn one_object(&self) -> Result<Vec<Vec<u8>>> {
        let attrs = self.request.attrs();
        let table = self.named_table(attrs.get(object::TABLE))?;
        Ok(vec![self.object(table, object::named(table, attrs)?)])
    }

    fn elements(&self) -> Result<Vec<Vec<u8>>> {
        let attrs = self.request.attrs();
        let table = self.named_table(attrs.get(element::TABLE))?;
        let set = named_set(table, attrs.need(element::SET)?)?;
        let found = match attrs.get(element::ELEMENTS) {
            Some(list) if !self.request.dumps() => {
                let mut found = Vec::new();
                for item in list.nested().iter() {
                    let wanted = element::Bounds::parse(item.nested(), set).blame(item.at)?;
                    found.push(set.lookup(&wanted, self.now).ok_or(Errno::ENOENT).blame(item.at)?);
                }
                found
            }
            None if !self.request.dumps() => return Err(Errno::EINVAL.into()),
            _ => set.contents.all(),
        };
        let live: Vec<_> = found.into_iter().filter(|element| !element.is_expired(self.now)).collect();
        let mut out: Vec<Vec<u8>> = live.chunks(ELEMENTS).map(|some| self.some(table, set, some)).collect();
        if out.is_empty() {
            out.push(self.some(table, set, &[]));
        }
        Ok(out)
    }

    fn some(&self, table: &Table, set: &Set, elements: &[Arc<crate::set::element::Element>]) -> Vec<u8> {
        let message = self.reply.message(msg::NEWSETELEM, table.family, |out| {
            element::dump(elements, set, self.now, table, out);
        });
        if self.request.number() == msg::GETSETELEM_RESET {
            elements.iter().flat_map(|element| &element.exprs).for_each(|expr| expr.reset());
        }
        message
    }
}

impl Set {
    /// The element that a program asks for: the interval around a value, or the bound itself.
    fn lookup(&self, wanted: &element::Bounds, now: u64) -> Option<Arc<crate::set::element::Element>> {
        let exact = self.contents.get(&wanted.key, wanted.key_end.as_deref(), wanted.flags);
        exact.or_else(|| self.contents.around(&wanted.key, wanted.flags, now))
    }
}
