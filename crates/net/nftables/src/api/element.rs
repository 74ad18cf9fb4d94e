//! Elements of sets.

use super::{Change, msg, named_set};
use crate::attr::{Attr, Attrs, Blame, NFTA_LIST_ELEM, Result, Writer};
use crate::data::Data;
use crate::expr;
use crate::expression::Expr;
use crate::message::{Request, flag as message_flag};
use crate::model::Table;
use crate::scope::Scope;
use crate::set::contents::Insert;
use crate::set::element::{self, CATCHALL, Element, INTERVAL_END};
use crate::set::{Set, Target, flag};
use abi::Errno;
use std::sync::Arc;

pub(crate) const TABLE: u16 = 1;
pub(crate) const SET: u16 = 2;
pub(crate) const ELEMENTS: u16 = 3;
const SET_ID: u16 = 4;
/// Elements of one message about changes, as in Linux.
const EVENT_ELEMENTS: usize = 1;

/// The bounds that an element has or that a program asks for.
pub(crate) struct Bounds {
    pub key: Box<[u8]>,
    pub key_end: Option<Box<[u8]>>,
    pub flags: u32,
}

impl Bounds {
    pub fn parse(attrs: Attrs<'_>, set: &Set) -> Result<Bounds> {
        let flags = attrs.be32(element::FLAGS)?.unwrap_or(0);
        if flags & !(INTERVAL_END | CATCHALL) != 0 || flags & CATCHALL != 0 && flags & INTERVAL_END != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if flags & INTERVAL_END != 0 && !set.has(flag::INTERVAL) {
            return Err(Errno::EINVAL.into());
        }
        let catchall = flags & CATCHALL != 0;
        let key = match attrs.get(element::KEY) {
            Some(_) if catchall => return Err(Errno::EINVAL.into()),
            None if !catchall => return Err(Errno::EINVAL.into()),
            None => Box::default(),
            Some(key) => Data::exactly(key, set.key_len)?,
        };
        let key_end = match attrs.get(element::KEY_END) {
            Some(_) if !set.has(flag::INTERVAL) => return Err(Errno::EINVAL.into()),
            Some(end) => Some(Data::exactly(end, set.key_len)?),
            None => None,
        };
        Ok(Bounds { key, key_end, flags })
    }
}

/// What a map leads to from an element.
fn target(attrs: Attrs<'_>, set: &Set, is_end: bool, scope: &Scope<'_>) -> Result<Option<Data>> {
    let (data, wanted) = match (attrs.get(element::DATA), set.target) {
        (None, Some(_)) if !is_end => return Err(Errno::EINVAL.into()),
        (None, _) => return Ok(None),
        (Some(_), None) => return Err(Errno::EINVAL.into()),
        (Some(_), Some(_)) if is_end => return Err(Errno::EINVAL.into()),
        (Some(data), Some(target)) => (data, target),
    };
    match (scope.data(data)?, wanted) {
        (Data::Value(value), Target::Value(_, len)) if value.len() == len => Ok(Some(Data::Value(value))),
        (verdict @ Data::Verdict(_), Target::Verdict) => Ok(Some(verdict)),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// The expressions of an element: its own, or copies of those that the set gives to all.
fn expressions(attrs: Attrs<'_>, set: &Set, scope: &Scope<'_>) -> Result<Box<[Box<dyn Expr>]>> {
    let own = expr::parse_list(attrs.get(element::EXPR), attrs.get(element::EXPRESSIONS), scope)?;
    if own.is_empty() {
        return Ok(set.exprs.iter().filter_map(|expr| expr.fresh()).collect());
    }
    let differ = own.iter().map(|expr| expr.name()).ne(set.exprs.iter().map(|expr| expr.name()));
    if !set.exprs.is_empty() && differ {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(own.into())
}

fn parse(attrs: Attrs<'_>, set: &Set, scope: &Scope<'_>) -> Result<Element> {
    let Bounds { key, key_end, flags } = Bounds::parse(attrs, set)?;
    let is_end = flags & INTERVAL_END != 0;
    let plain = [element::TIMEOUT, element::EXPIRATION, element::USERDATA, element::EXPR, element::OBJREF];
    if is_end && plain.into_iter().any(|kind| attrs.has(kind)) {
        return Err(Errno::EINVAL.into());
    }
    let data = target(attrs, set, is_end, scope)?;
    let object = match attrs.get(element::OBJREF) {
        Some(_) if !set.has(flag::OBJECT) => return Err(Errno::EINVAL.into()),
        Some(name) => {
            let object = scope.table.object_named(set.object_type, name.text(crate::NAME_MAX)?);
            Some(object.ok_or(Errno::ENOENT)?.handle)
        }
        None if set.has(flag::OBJECT) && !is_end => return Err(Errno::EINVAL.into()),
        None => None,
    };
    let (timeout, expiration) = (attrs.be64(element::TIMEOUT)?, attrs.be64(element::EXPIRATION)?);
    if (timeout.is_some() || expiration.is_some()) && !set.has(flag::TIMEOUT) {
        return Err(Errno::EINVAL.into());
    }
    let timeout = timeout.unwrap_or(if is_end { 0 } else { set.timeout });
    if expiration.is_some_and(|left| timeout == 0 || left > timeout) {
        return Err(Errno::ERANGE.into());
    }
    let exprs = if is_end { Box::default() } else { expressions(attrs, set, scope)? };
    let userdata = super::userdata(attrs.get(element::USERDATA))?;
    let values = if let Some(Data::Value(value)) = &data { value.len() } else { 0 };
    let bytes = key.len() * 2 + values + userdata.as_ref().map_or(0, |data| data.len());
    let expires = scope.now.saturating_add(expiration.unwrap_or(timeout));
    Ok(Element {
        _charge: scope.charge(Element::cost(bytes, exprs.len()))?,
        key,
        key_end,
        flags,
        data,
        object,
        exprs,
        timeout: timeout.into(),
        expires: expires.into(),
        userdata,
    })
}

/// Some elements of a set, as one message holds them.
pub(crate) fn dump(elements: &[Arc<Element>], set: &Set, now: u64, table: &Table, out: &mut Writer) {
    out.text(TABLE, &table.name);
    out.text(SET, &set.name);
    out.nest(ELEMENTS, |out| {
        for element in elements {
            out.nest(NFTA_LIST_ELEM, |out| element.dump(set, now, out, table));
        }
    });
}

impl Change<'_> {
    /// Table and set that a message is about.
    fn set_of<'s>(&'s self, request: &Request<'_>) -> Result<(&'s Table, &'s Set)> {
        let attrs = request.attrs();
        let table = self.table(request, attrs.get(TABLE))?;
        let name = attrs.need(SET)?;
        let found = named_set(table, name);
        if found.is_ok() {
            return found.map(|set| (table, set));
        }
        let handle = match attrs.be32(SET_ID)? {
            Some(id) => self.ids.sets.get(&(table.handle, id)),
            None => None,
        };
        let by_id = handle.and_then(|handle| table.sets.get(handle));
        match by_id {
            Some(set) => Ok((table, set)),
            None => found.map(|set| (table, set)),
        }
    }

    pub(super) fn new_elements(&mut self, request: &Request<'_>) -> Result<()> {
        let list = request.attrs().need(ELEMENTS)?;
        let (table, set) = self.set_of(request)?;
        if set.bindings > 0 && set.has(flag::CONSTANT) {
            return Err(Errno::EBUSY.into());
        }
        let (table, set) = (table.handle, set.handle);
        self.collect(table, set)?;
        let mut fresh = Vec::new();
        for item in list.nested().iter() {
            if let Some(element) = self.new_element(request, table, set, item).blame(item.at)? {
                fresh.push(element);
            }
        }
        self.tell_elements(request, msg::NEWSETELEM, table, set, &fresh);
        Ok(())
    }

    fn new_element(
        &mut self,
        request: &Request<'_>,
        table: u64,
        set: u64,
        item: Attr<'_>,
    ) -> Result<Option<Arc<Element>>> {
        let batch = self.batch;
        let place = &**self.rules.tables.get(&table).ok_or(Errno::ENOENT)?;
        let (current, scope) = (place.sets.get(&set).ok_or(Errno::ENOENT)?, self.scope(place));
        self.spend(current.contents.steps())?;
        let element = Arc::new(parse(item.nested(), current, &scope)?);
        let table = self.touch(table)?;
        let set = table.set_mut(set)?;
        let max = set.max();
        let outcome = set.contents_mut(batch)?.insert(&element, max);
        match outcome {
            Insert::Done => {
                table.hold_all(element.refs())?;
                Ok(Some(element))
            }
            Insert::Exists(old) if old.data != element.data || old.object != element.object => {
                Err(Errno::EEXIST.into())
            }
            Insert::Exists(_) if request.has(message_flag::EXCL) => Err(Errno::EEXIST.into()),
            Insert::Exists(old) => {
                use std::sync::atomic::Ordering::Relaxed;
                let times = item.nested();
                if times.has(element::TIMEOUT) || times.has(element::EXPIRATION) {
                    old.timeout.store(element.timeout.load(Relaxed), Relaxed);
                    old.expires.store(element.expires.load(Relaxed), Relaxed);
                }
                Ok(None)
            }
            Insert::Overlaps => Err(Errno::EEXIST.into()),
            Insert::Full => Err(Errno::ENFILE.into()),
        }
    }

    /// Takes out what has expired.
    fn collect(&mut self, handle: u64, set: u64) -> Result<()> {
        let (now, batch) = (self.now, self.batch);
        let table = self.touch(handle)?;
        if !table.sets.get(&set).is_some_and(|set| set.has(flag::TIMEOUT)) {
            return Ok(());
        }
        let steps = table.sets.get(&set).map_or(0, |set| set.contents.len());
        self.spend(steps)?;
        let table = self.touch(handle)?;
        let dead = table.set_mut(set)?.contents_mut(batch)?.collect(now);
        for element in dead {
            table.release_all(element.refs());
        }
        Ok(())
    }

    pub(super) fn delete_elements(&mut self, request: &Request<'_>, ignore: bool) -> Result<()> {
        let (table, set) = match self.set_of(request) {
            Err(failure) if ignore && failure.errno == Errno::ENOENT => return Ok(()),
            other => other?,
        };
        if set.bindings > 0 && set.has(flag::CONSTANT) {
            return Err(Errno::EBUSY.into());
        }
        let (table, set) = (table.handle, set.handle);
        self.collect(table, set)?;
        let batch = self.batch;
        let mut gone = Vec::new();
        let Some(list) = request.attrs().get(ELEMENTS) else {
            let table_ref = self.touch(table)?;
            gone = table_ref.set_mut(set)?.contents_mut(batch)?.all();
            // From the end, where few others move.
            for element in gone.iter().rev() {
                table_ref.set_mut(set)?.contents.remove(element);
                table_ref.release_all(element.refs());
            }
            self.tell_elements(request, msg::DELSETELEM, table, set, &gone);
            return Ok(());
        };
        for item in list.nested().iter() {
            let steps = self.rules.tables.get(&table).and_then(|table| table.sets.get(&set));
            self.spend(steps.map_or(0, |set| set.contents.steps()))?;
            let table = self.touch(table)?;
            let set = table.set_mut(set)?;
            let bounds = Bounds::parse(item.nested(), set).blame(item.at)?;
            let contents = set.contents_mut(batch)?;
            let Some(found) = contents.get(&bounds.key, bounds.key_end.as_deref(), bounds.flags) else {
                if ignore {
                    continue;
                }
                return Err(Errno::ENOENT).blame(item.at);
            };
            contents.remove(&found);
            table.release_all(found.refs());
            gone.push(found);
        }
        self.tell_elements(request, msg::DELSETELEM, table, set, &gone);
        Ok(())
    }

    fn tell_elements(
        &mut self,
        request: &Request<'_>,
        number: u8,
        table: u64,
        set: u64,
        elements: &[Arc<Element>],
    ) {
        let of = self.rules.tables.get(&table).map_or(0, |table| table.family);
        let now = self.now;
        for some in elements.chunks(EVENT_ELEMENTS) {
            self.notify(request, number, of, |rules, out| {
                let table = rules.tables.get(&table);
                if let Some((table, set)) = table.and_then(|table| Some((table, table.sets.get(&set)?))) {
                    dump(some, set, now, table, out);
                }
            });
        }
    }
}
