//! Tables.

use super::{Change, msg, userdata};
use crate::attr::{Blame, Result, Writer};
use crate::family;
use crate::message::{Request, flag};
use crate::model::{DORMANT, Table};
use abi::Errno;

pub(crate) const NAME: u16 = 1;
const FLAGS: u16 = 2;
const USE: u16 = 3;
pub(crate) const HANDLE: u16 = 4;
const USERDATA: u16 = 6;

/// What a table takes beside its names.
const COST: usize = 1024;

pub(crate) fn dump(table: &Table, out: &mut Writer) {
    out.text(NAME, &table.name);
    out.be64(HANDLE, table.handle);
    out.be32(USE, table.uses() as u32);
    out.be32(FLAGS, table.flags);
    if let Some(userdata) = &table.userdata {
        out.put(USERDATA, userdata);
    }
}

impl Change<'_> {
    pub(super) fn new_table(&mut self, request: &Request<'_>) -> Result<()> {
        let (attrs, of) = (request.attrs(), request.family());
        let supported = [family::INET, family::IPV4, family::IPV6].contains(&of);
        if !supported {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let name = attrs.need(NAME)?;
        let text = name.text(crate::NAME_MAX)?;
        let flags = attrs.be32(FLAGS)?;
        if let Some(old) = self.rules.table(of, text) {
            let handle = old.handle;
            if request.has(flag::EXCL) {
                return Err(Errno::EEXIST).blame(name.at);
            }
            if request.has(flag::REPLACE) {
                return Err(Errno::EOPNOTSUPP.into());
            }
            return self.update_table(request, handle, flags);
        }
        // Tables with an owner, and those that outlive it, are not there.
        if flags.unwrap_or(0) & !DORMANT != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let userdata = userdata(attrs.get(USERDATA))?;
        let charge = self.charge(COST + text.len())?;
        let handle = self.rules.add(Table::new(of, text, flags.unwrap_or(0), userdata, charge));
        self.touched.insert(handle);
        self.tell_table(request, msg::NEWTABLE, handle);
        Ok(())
    }

    fn update_table(&mut self, request: &Request<'_>, handle: u64, flags: Option<u32>) -> Result<()> {
        let Some(flags) = flags else { return Ok(()) };
        if flags & !DORMANT != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let old = self.rules.tables.get(&handle).map_or(0, |table| table.flags);
        if flags != old {
            self.touch(handle)?.flags = flags;
            self.tell_table(request, msg::NEWTABLE, handle);
        }
        Ok(())
    }

    fn tell_table(&mut self, request: &Request<'_>, number: u8, handle: u64) {
        let of = self.rules.tables.get(&handle).map_or(0, |table| table.family);
        self.notify(request, number, of, |rules, out| {
            if let Some(table) = rules.tables.get(&handle) {
                dump(table, out);
            }
        });
    }

    pub(super) fn delete_table(&mut self, request: &Request<'_>) -> Result<()> {
        let (attrs, of) = (request.attrs(), request.family());
        let (name, handle) = (attrs.get(NAME), attrs.get(HANDLE));
        let doomed: Vec<u64> = match (name, handle) {
            (None, None) => self.of_family(of),
            _ if of == 0 => self.of_family(of),
            (_, Some(handle)) => {
                let wanted = handle.be64()?;
                let found = self.rules.tables.get(&wanted).filter(|table| table.family == of);
                vec![found.ok_or(Errno::ENOENT).blame(handle.at)?.handle]
            }
            (name, None) => vec![self.table(request, name)?.handle],
        };
        for handle in doomed {
            let uses = self.rules.tables.get(&handle).map_or(0, |table| table.uses());
            if request.has(flag::NON_RECURSIVE) && uses > 0 {
                return Err(Errno::EBUSY.into());
            }
            self.tell_parts(request, handle);
            self.tell_table(request, msg::DELTABLE, handle);
            self.rules.remove(handle);
            self.touched.insert(handle);
        }
        Ok(())
    }

    /// Tells of the end of all that a table has.
    fn tell_parts(&mut self, request: &Request<'_>, handle: u64) {
        if !self.asker.listeners && !request.has(flag::ECHO) {
            return;
        }
        let Some(table) = self.rules.tables.get(&handle).cloned() else { return };
        for chain in table.chains.values() {
            for rule in &chain.rules {
                self.tell_rule(request, msg::DELRULE, handle, chain.handle, rule.handle);
            }
        }
        table.sets.keys().for_each(|set| self.tell_set(request, msg::DELSET, handle, *set));
        table.objects.keys().for_each(|object| self.tell_object(request, msg::DELOBJ, handle, *object));
        table.chains.keys().for_each(|chain| self.tell_chain(request, msg::DELCHAIN, handle, *chain));
    }

    fn of_family(&self, of: u8) -> Vec<u64> {
        let tables = self.rules.tables.values();
        tables.filter(|table| of == 0 || table.family == of).map(|table| table.handle).collect()
    }
}
