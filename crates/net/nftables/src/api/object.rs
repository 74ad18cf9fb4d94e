//! Named objects: counters, quotas and limits.

use super::{Change, msg, userdata};
use crate::attr::{Attrs, Blame, Result, Writer};
use crate::expr::{counter, limit, quota};
use crate::expression::Expr;
use crate::message::{Request, flag};
use crate::model::{Object, Table};
use abi::Errno;
use std::sync::Arc;

pub(crate) const TABLE: u16 = 1;
pub(crate) const NAME: u16 = 2;
pub(crate) const TYPE: u16 = 3;
const DATA: u16 = 4;
const USE: u16 = 5;
const HANDLE: u16 = 6;
const USERDATA: u16 = 8;

const COUNTER: u32 = 1;
const QUOTA: u32 = 2;
const LIMIT: u32 = 4;
const COST: usize = 512;

pub(crate) fn dump(object: &Object, table: &Table, out: &mut Writer) {
    out.text(TABLE, &table.name);
    out.text(NAME, &object.name);
    out.be64(HANDLE, object.handle);
    out.be32(TYPE, object.kind);
    out.be32(USE, object.uses);
    out.nest(DATA, |out| object.state.dump(out, table));
    if let Some(userdata) = &object.userdata {
        out.put(USERDATA, userdata);
    }
}

/// The object that a message names, by handle or by type and name.
pub(crate) fn named<'t>(table: &'t Table, attrs: Attrs<'_>) -> Result<&'t Object> {
    let kind = attrs.need(TYPE)?.be32()?;
    match (attrs.get(HANDLE), attrs.get(NAME)) {
        (Some(handle), _) => {
            let found = table.objects.get(&handle.be64()?).filter(|object| object.kind == kind);
            found.map(|object| &**object).ok_or(Errno::ENOENT).blame(handle.at)
        }
        (None, Some(name)) => {
            table.object_named(kind, name.text(crate::NAME_MAX)?).ok_or(Errno::ENOENT).blame(name.at)
        }
        (None, None) => Err(Errno::EINVAL.into()),
    }
}

impl Change<'_> {
    pub(super) fn new_object(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        let (Some(kind), Some(name), Some(data)) = (attrs.be32(TYPE)?, attrs.get(NAME), attrs.get(DATA))
        else {
            return Err(Errno::EINVAL.into());
        };
        let table = self.table(request, attrs.get(TABLE))?;
        let text = name.text(crate::NAME_MAX)?;
        if table.object_named(kind, text).is_some() {
            if request.has(flag::EXCL) {
                return Err(Errno::EEXIST).blame(name.at);
            }
            return if request.has(flag::REPLACE) { Err(Errno::EOPNOTSUPP.into()) } else { Ok(()) };
        }
        let parser = match kind {
            COUNTER => counter::parse,
            QUOTA => quota::parse,
            LIMIT => limit::parse,
            _ => return Err(Errno::ENOENT.into()),
        };
        let state: Box<dyn Expr> = parser(data.nested(), &self.scope(table))?;
        let userdata = userdata(attrs.get(USERDATA))?;
        let charge = Arc::new(self.charge(COST + text.len())?);
        let table_handle = table.handle;
        let table = self.touch(table_handle)?;
        let handle = table.next_handle();
        let (name, state) = (text.into(), state.into());
        table.add_object(Object { handle, name, kind, uses: 0, userdata, state, _charge: charge });
        self.tell_object(request, msg::NEWOBJ, table_handle, handle);
        Ok(())
    }

    pub(super) fn tell_object(&mut self, request: &Request<'_>, number: u8, table: u64, object: u64) {
        let of = self.rules.tables.get(&table).map_or(0, |table| table.family);
        self.notify(request, number, of, |rules, out| {
            let table = rules.tables.get(&table);
            if let Some((table, object)) = table.and_then(|table| Some((table, table.objects.get(&object)?)))
            {
                dump(object, table, out);
            }
        });
    }

    pub(super) fn delete_object(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        let table = self.table(request, attrs.get(TABLE))?;
        let object = named(table, attrs)?;
        if object.uses > 0 {
            return Err(Errno::EBUSY).blame(attrs.get(NAME).or(attrs.get(HANDLE)).map_or(0, |attr| attr.at));
        }
        let (table, handle) = (table.handle, object.handle);
        self.tell_object(request, msg::DELOBJ, table, handle);
        self.touch(table)?.remove_object(handle);
        Ok(())
    }
}
