//! Sets.

use super::{Change, msg, named_set, userdata};
use crate::attr::{Attrs, Blame, NFTA_LIST_ELEM, Result};
use crate::data::{TYPE_VERDICT, VALUE_MAX};
use crate::expr;
use crate::message::{Request, flag as message_flag};
use crate::model::Table;
use crate::set::contents::Contents;
use crate::set::*;
use abi::Errno;
use std::sync::Arc;

pub(crate) const TABLE: u16 = 1;
pub(crate) const NAME: u16 = 2;
const COST: usize = 1024;
/// Most fields of a concatenation (`NFT_REG32_COUNT`).
const MAX_FIELDS: usize = 16;
/// Types of objects, up to `NFT_OBJECT_SYNPROXY`.
const OBJECT_MAX: u32 = 10;

/// Flags that exclude each other.
fn check_flags(flags: u32) -> Result<()> {
    let both = |bits: u32| flags & bits == bits;
    let known = flags & !flag::ALL == 0;
    let excluded = [flag::MAP | flag::OBJECT, flag::EVAL | flag::OBJECT, flag::CONSTANT | flag::TIMEOUT];
    // Anonymous sets with time-outs are those that packets fill.
    let forgotten = both(flag::ANONYMOUS | flag::TIMEOUT) && !both(flag::EVAL);
    match known && !forgotten && !excluded.into_iter().any(both) {
        true => Ok(()),
        false if !known => Err(Errno::EINVAL.into()),
        false => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// What the elements of a map lead to.
fn target(attrs: Attrs<'_>, flags: u32) -> Result<Option<Target>> {
    let Some(kind) = attrs.be32(NFTA_SET_DATA_TYPE)? else {
        return if flags & flag::MAP != 0 { Err(Errno::EINVAL.into()) } else { Ok(None) };
    };
    if flags & flag::MAP == 0 {
        return Err(Errno::EINVAL.into());
    }
    if kind == TYPE_VERDICT {
        return Ok(Some(Target::Verdict));
    }
    if kind & TYPE_VERDICT == TYPE_VERDICT {
        return Err(Errno::EINVAL.into());
    }
    match attrs.be32(NFTA_SET_DATA_LEN)?.ok_or(Errno::EINVAL)? as usize {
        len @ 1..=VALUE_MAX => Ok(Some(Target::Value(kind, len))),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// Size, and the lengths of the fields of a concatenation.
fn description(attrs: Attrs<'_>, key_len: usize) -> Result<(u32, Box<[u32]>)> {
    let Some(desc) = attrs.get(NFTA_SET_DESC).map(|desc| desc.nested()) else {
        return Ok((0, Box::default()));
    };
    let mut fields = Vec::new();
    if let Some(list) = desc.get(NFTA_SET_DESC_CONCAT) {
        for field in list.nested().iter() {
            if field.kind != NFTA_LIST_ELEM {
                return Err(Errno::EINVAL.into());
            }
            if fields.len() == MAX_FIELDS {
                return Err(Errno::E2BIG.into());
            }
            match field.nested().be32(NFTA_SET_FIELD_LEN)?.ok_or(Errno::EINVAL)? {
                len if len == 0 || len as usize > VALUE_MAX => return Err(Errno::EINVAL.into()),
                len => fields.push(len),
            }
        }
        let sum: usize = fields.iter().map(|len| (*len as usize).next_multiple_of(4)).sum();
        if sum > VALUE_MAX || fields.len() > 1 && sum != key_len {
            return Err(Errno::EINVAL.into());
        }
    }
    Ok((desc.be32(NFTA_SET_DESC_SIZE)?.unwrap_or(0), fields.into()))
}

/// Steps that making and seeking a name is worth.
const NAMED: usize = 8;

/// The name of a new set: an anonymous one has a `%d`, for which the first free number stands.
fn name(
    table: &Table,
    wanted: &[u8],
    anonymous: bool,
    spend: impl Fn(usize) -> Result<()>,
) -> Result<Vec<u8>> {
    let Some(at) = wanted.iter().position(|byte| *byte == b'%') else { return Ok(wanted.to_vec()) };
    if !anonymous || wanted.get(at + 1) != Some(&b'd') || wanted[at + 2..].contains(&b'%') {
        return Err(Errno::EINVAL.into());
    }
    let numbered = |n: usize| [&wanted[..at], n.to_string().as_bytes(), &wanted[at + 2..]].concat();
    // One more than there are sets is always free.
    for n in 0..=table.sets.len() {
        spend(NAMED)?;
        let name = numbered(n);
        if table.set_named(&name).is_none() {
            return Ok(name);
        }
    }
    Err(Errno::ENFILE.into())
}

impl Change<'_> {
    fn parse_set(&self, attrs: Attrs<'_>, table: &Table) -> Result<Set> {
        let flags = attrs.be32(NFTA_SET_FLAGS)?.unwrap_or(0);
        let key_len = attrs.need(NFTA_SET_KEY_LEN)?.be32()? as usize;
        if key_len == 0 || key_len > VALUE_MAX {
            return Err(Errno::EINVAL.into());
        }
        check_flags(flags)?;
        let target = target(attrs, flags)?;
        let object_type = match attrs.be32(NFTA_SET_OBJ_TYPE)? {
            Some(_) if flags & flag::OBJECT == 0 => return Err(Errno::EINVAL.into()),
            Some(kind) if kind == 0 || kind > OBJECT_MAX => return Err(Errno::EOPNOTSUPP.into()),
            None if flags & flag::OBJECT != 0 => return Err(Errno::EINVAL.into()),
            kind => kind.unwrap_or(0),
        };
        let (timeout, gc) = (attrs.be64(NFTA_SET_TIMEOUT)?, attrs.be32(NFTA_SET_GC_INTERVAL)?);
        if (timeout.is_some() || gc.is_some()) && flags & flag::TIMEOUT == 0 {
            return Err(Errno::EINVAL.into());
        }
        let (size, fields) = description(attrs, key_len)?;
        let userdata = userdata(attrs.get(NFTA_SET_USERDATA))?;
        let scope = self.scope(table);
        let (one, many) = (attrs.get(NFTA_SET_EXPR), attrs.get(NFTA_SET_EXPRESSIONS));
        let exprs = expr::parse_list(one, many, &scope)?;
        let contents = Arc::new(Contents::new(flags, &fields, self.batch));
        Ok(Set {
            handle: 0,
            name: [][..].into(),
            flags,
            key_type: attrs.be32(NFTA_SET_KEY_TYPE)?.unwrap_or(0),
            key_len,
            target,
            object_type,
            timeout: timeout.unwrap_or(0),
            gc_interval: gc.unwrap_or(0),
            policy: attrs.be32(NFTA_SET_POLICY)?.unwrap_or(0),
            size,
            fields,
            userdata,
            exprs: exprs.into(),
            bindings: 0,
            bindings_filled: 0,
            contents,
            _charge: Arc::new(self.charge(COST)?),
        })
    }

    pub(super) fn new_set(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        let (Some(table), Some(wanted), Some(id)) =
            (attrs.get(TABLE), attrs.get(NAME), attrs.be32(NFTA_SET_ID)?)
        else {
            return Err(Errno::EINVAL.into());
        };
        let table_attr = table;
        if !attrs.has(NFTA_SET_KEY_LEN) {
            return Err(Errno::EINVAL.into());
        }
        let text = wanted.text(crate::NAME_MAX)?;
        let table = self.table(request, Some(table_attr))?;
        let mut set = self.parse_set(attrs, table)?;
        if let Some(old) = table.set_named(text) {
            if request.has(message_flag::EXCL) {
                return Err(Errno::EEXIST).blame(wanted.at);
            }
            if request.has(message_flag::REPLACE) {
                return Err(Errno::EOPNOTSUPP.into());
            }
            return if is_same(old, &set) { Ok(()) } else { Err(Errno::EEXIST).blame(wanted.at) };
        }
        if !request.has(message_flag::CREATE) {
            return Err(Errno::ENOENT.into());
        }
        set.name = name(table, text, set.is_anonymous(), |steps| self.spend(steps))?.into();
        let table_handle = table.handle;
        self.ids.count()?;
        let table = self.touch(table_handle)?;
        set.handle = table.next_handle();
        let handle = set.handle;
        table.add_set(set);
        self.ids.sets.insert((table_handle, id), handle);
        self.tell_set(request, msg::NEWSET, table_handle, handle);
        Ok(())
    }

    pub(super) fn tell_set(&mut self, request: &Request<'_>, number: u8, table: u64, set: u64) {
        let of = self.rules.tables.get(&table).map_or(0, |table| table.family);
        self.notify(request, number, of, |rules, out| {
            let table = rules.tables.get(&table);
            if let Some((table, set)) = table.and_then(|table| Some((table, table.sets.get(&set)?))) {
                set.dump(table, out);
            }
        });
    }

    pub(super) fn delete_set(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        if request.family() == 0 {
            return Err(Errno::EAFNOSUPPORT.into());
        }
        let table = self.table(request, attrs.get(TABLE))?;
        let (set, blamed) = match (attrs.get(NFTA_SET_HANDLE), attrs.get(NAME)) {
            (Some(handle), _) => {
                let found = table.sets.get(&handle.be64()?).map(|set| &**set);
                (found.ok_or(Errno::ENOENT).blame(handle.at)?, handle.at)
            }
            (None, Some(name)) => (named_set(table, name)?, name.at),
            (None, None) => return Err(Errno::EINVAL.into()),
        };
        if set.bindings > 0 || request.has(message_flag::NON_RECURSIVE) && set.contents.len() > 0 {
            return Err(Errno::EBUSY).blame(blamed);
        }
        let (table, handle) = (table.handle, set.handle);
        self.tell_set(request, msg::DELSET, table, handle);
        self.touch(table)?.remove_set(handle);
        Ok(())
    }
}

/// Whether a program may go on with the set that is there.
fn is_same(old: &Set, new: &Set) -> bool {
    let common = |set: &Set| (set.flags, set.key_type, set.key_len, set.target, set.object_type);
    let rest = |set: &Set| (set.timeout, set.gc_interval, set.policy, set.size);
    let names = |set: &Set| set.exprs.iter().map(|expr| expr.name()).collect::<Vec<_>>();
    common(old) == common(new)
        && rest(old) == rest(new)
        && old.fields == new.fields
        && names(old) == names(new)
}
