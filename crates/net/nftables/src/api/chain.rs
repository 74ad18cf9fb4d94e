//! Chains.

use super::{Change, msg, named_chain, userdata};
use crate::attr::{Attr, Attrs, Blame, Result, Writer};
use crate::counter::Counter;
use crate::message::{Request, flag};
use crate::model::{Base, Chain, Kind, Table};
use abi::Errno;
use std::sync::Arc;

pub(crate) const TABLE: u16 = 1;
const HANDLE: u16 = 2;
pub(crate) const NAME: u16 = 3;
const HOOK: u16 = 4;
const POLICY: u16 = 5;
const USE: u16 = 6;
const TYPE: u16 = 7;
const COUNTERS: u16 = 8;
/// `NFTA_COUNTER_BYTES`, `NFTA_COUNTER_PACKETS`.
const NUMBERS: [u16; 2] = [1, 2];
const FLAGS: u16 = 10;
const ID: u16 = 11;
const USERDATA: u16 = 12;

const HOOK_NUM: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEV: u16 = 3;
const HOOK_DEVS: u16 = 4;

/// `NFT_CHAIN_BASE`, which listings show.
const IS_BASE: u32 = 1;
const HW_OFFLOAD: u32 = 2;
/// What a chain takes beside its names.
const COST: usize = 768;
/// Translation cannot come before connection tracking.
const CONNTRACK_PRIORITY: i32 = -200;
const OUTPUT: u8 = 3;

pub(crate) fn dump(chain: &Chain, table: &Table, out: &mut Writer) {
    out.text(TABLE, &table.name);
    out.text(NAME, &chain.name);
    out.be64(HANDLE, chain.handle);
    if let Some(base) = &chain.base {
        out.nest(HOOK, |out| {
            out.be32(HOOK_NUM, base.hook.into());
            out.be32(HOOK_PRIORITY, base.priority as u32);
        });
        out.be32(POLICY, base.accepts.into());
        out.text(TYPE, base.kind.name());
        if let Some(counter) = &base.counter {
            out.nest(COUNTERS, |out| counter.write(out));
        }
    }
    let flags = chain.flags | if chain.base.is_some() { IS_BASE } else { 0 };
    if flags != 0 {
        out.be32(FLAGS, flags);
    }
    out.be32(USE, chain.jumps.saturating_add(chain.rules.len() as u32));
    if let Some(userdata) = &chain.userdata {
        out.put(USERDATA, userdata);
    }
}

/// Hook, priority and kind of a base chain.
fn parse_hook(hook: Attr<'_>, kind: Option<Attr<'_>>) -> Result<(Kind, u8, i32)> {
    let nested = hook.nested();
    let number = nested.be32(HOOK_NUM)?.ok_or(Errno::ENOENT)?;
    let priority = nested.be32(HOOK_PRIORITY)?.ok_or(Errno::ENOENT)? as i32;
    let kind = match kind {
        None => Kind::Filter,
        Some(attr) => match attr.text(crate::NAME_MAX)? {
            b"filter" => Kind::Filter,
            b"nat" => Kind::Nat,
            b"route" => Kind::Route,
            _ => return Err(Errno::ENOENT).blame(attr.at),
        },
    };
    if nested.has(HOOK_DEV) || nested.has(HOOK_DEVS) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    const FORWARD: u8 = 2;
    let hook = u8::try_from(number).ok().filter(|hook| *hook < 5).ok_or(Errno::EOPNOTSUPP)?;
    let fits = match kind {
        Kind::Filter => true,
        Kind::Nat => hook != FORWARD && priority > CONNTRACK_PRIORITY,
        Kind::Route => hook == OUTPUT,
    };
    if fits { Ok((kind, hook, priority)) } else { Err(Errno::EOPNOTSUPP.into()) }
}

/// The counters that a chain is to have; EINVAL unless both numbers are there.
fn counters(attrs: Attrs<'_>) -> Result<Option<Counter>> {
    let Some(numbers) = attrs.get(COUNTERS).map(|attr| attr.nested()) else { return Ok(None) };
    if NUMBERS.iter().any(|number| numbers.get(*number).is_none()) {
        return Err(Errno::EINVAL.into());
    }
    Counter::new(numbers).map(Some)
}

impl Change<'_> {
    pub(super) fn new_chain(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        let table = self.table(request, attrs.get(TABLE))?;
        let (table_handle, name) = (table.handle, attrs.get(NAME));
        if name.is_none() && !attrs.has(HANDLE) && !attrs.has(ID) {
            return Err(Errno::EINVAL.into());
        }
        let old = match (attrs.get(HANDLE), name) {
            (Some(handle), _) => {
                let found = table.chains.get(&handle.be64()?);
                Some(&**found.ok_or(Errno::ENOENT).blame(handle.at)?)
            }
            (None, Some(name)) => table.chain_named(name.text(crate::NAME_MAX)?),
            (None, None) => None,
        };
        let policy = attrs.get(POLICY).map(|policy| -> Result<bool> {
            let is_base = old.map_or(attrs.has(HOOK), |chain| chain.base.is_some());
            if !is_base {
                return Err(Errno::EOPNOTSUPP).blame(policy.at);
            }
            match policy.be32()? {
                0 => Ok(false),
                1 => Ok(true),
                _ => Err(Errno::EINVAL.into()),
            }
        });
        let policy = policy.transpose()?;
        let flags = attrs.be32(FLAGS)?.unwrap_or(0);
        if flags & !(IS_BASE | Chain::BINDING) != 0 || flags & HW_OFFLOAD != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let handle = match old {
            Some(old) if old.flags & Chain::BINDING != 0 => return Err(Errno::EINVAL.into()),
            Some(_) if request.has(flag::EXCL) => {
                return Err(Errno::EEXIST).blame(name.or(attrs.get(HANDLE)).map_or(0, |attr| attr.at));
            }
            Some(_) if request.has(flag::REPLACE) => return Err(Errno::EOPNOTSUPP.into()),
            Some(old) => {
                let handle = old.handle;
                if !self.update_chain(attrs, table_handle, handle, policy)? {
                    return Ok(());
                }
                handle
            }
            None => self.add_chain(attrs, table_handle, flags, policy)?,
        };
        self.tell_chain(request, msg::NEWCHAIN, table_handle, handle);
        Ok(())
    }

    fn add_chain(&mut self, attrs: Attrs<'_>, table: u64, flags: u32, policy: Option<bool>) -> Result<u64> {
        let userdata = userdata(attrs.get(USERDATA))?;
        let base = match attrs.get(HOOK) {
            None => None,
            Some(_) if flags & Chain::BINDING != 0 => return Err(Errno::EOPNOTSUPP.into()),
            Some(hook) => {
                let (kind, hook, priority) = parse_hook(hook, attrs.get(TYPE))?;
                let counter = counters(attrs)?;
                let counter = counter.map(Arc::new);
                Some(Base { kind, hook, priority, accepts: policy.unwrap_or(true), counter })
            }
        };
        if base.is_none() && flags & IS_BASE != 0 {
            return Err(Errno::EINVAL.into());
        }
        let name = attrs.get(NAME).map(|name| name.text(crate::NAME_MAX)).transpose()?;
        if name.is_some() && flags & Chain::BINDING != 0 || name.is_none() && flags & Chain::BINDING == 0 {
            return Err(Errno::EINVAL.into());
        }
        let charge = Arc::new(self.charge(COST + name.map_or(16, <[u8]>::len))?);
        let id = attrs.be32(ID)?;
        if id.is_some() {
            self.ids.count()?;
        }
        let table = self.touch(table)?;
        let (table_handle, handle) = (table.handle, table.next_handle());
        let name = name.map_or_else(|| format!("__chain{handle}").into_bytes(), <[u8]>::to_vec);
        table.add_chain(Chain {
            handle,
            name: name.into(),
            base,
            flags: flags & !IS_BASE,
            userdata,
            jumps: 0,
            rules: Vec::new(),
            _charge: charge,
        });
        if let Some(id) = id {
            self.ids.chains.insert((table_handle, id), handle);
        }
        Ok(handle)
    }

    /// Changes policy, counters or name; whether anything is different.
    fn update_chain(
        &mut self,
        attrs: Attrs<'_>,
        table: u64,
        handle: u64,
        policy: Option<bool>,
    ) -> Result<bool> {
        let (hook, kind) = (attrs.get(HOOK), attrs.get(TYPE));
        let rename = attrs.get(NAME).filter(|_| attrs.has(HANDLE));
        let counter = counters(attrs)?;
        let table = self.touch(table)?;
        let old = table.chains.get(&handle).ok_or(Errno::ENOENT)?;
        if let Some(hook) = hook {
            let Some(base) = &old.base else { return Err(Errno::EEXIST).blame(hook.at) };
            let (new_kind, number, priority) = parse_hook(hook, kind)?;
            if new_kind != base.kind {
                return Err(Errno::EEXIST).blame(attrs.get(NAME).map_or(hook.at, |name| name.at));
            }
            if (number, priority) != (base.hook, base.priority) {
                return Err(Errno::EOPNOTSUPP.into());
            }
        }
        if counter.is_some() && old.base.is_none() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if let Some(name) = rename {
            let text = name.text(crate::NAME_MAX)?;
            if table.chain_named(text).is_some_and(|other| other.handle != handle) {
                return Err(Errno::EEXIST).blame(name.at);
            }
            table.rename_chain(handle, text)?;
        }
        if policy.is_none() && counter.is_none() {
            return Ok(rename.is_some());
        }
        if let Some(base) = &mut table.chain_mut(handle)?.base {
            base.accepts = policy.unwrap_or(base.accepts);
            base.counter = counter.map(Arc::new).or(base.counter.take());
        }
        Ok(true)
    }

    pub(super) fn tell_chain(&mut self, request: &Request<'_>, number: u8, table: u64, chain: u64) {
        let of = self.rules.tables.get(&table).map_or(0, |table| table.family);
        self.notify(request, number, of, |rules, out| {
            let table = rules.tables.get(&table);
            if let Some((table, chain)) = table.and_then(|table| Some((table, table.chains.get(&chain)?))) {
                dump(chain, table, out);
            }
        });
    }

    pub(super) fn delete_chain(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        let table = self.table(request, attrs.get(TABLE))?;
        let (chain, blamed) = match (attrs.get(HANDLE), attrs.get(NAME)) {
            (Some(handle), _) => {
                let found = table.chains.get(&handle.be64()?).map(|chain| &**chain);
                (found.ok_or(Errno::ENOENT).blame(handle.at)?, handle.at)
            }
            (None, Some(name)) => (named_chain(table, name)?, name.at),
            (None, None) => return Err(Errno::EINVAL.into()),
        };
        let (table, handle) = (table.handle, chain.handle);
        if chain.is_bound() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if request.has(flag::NON_RECURSIVE) && (chain.jumps > 0 || !chain.rules.is_empty()) {
            return Err(Errno::EBUSY).blame(blamed);
        }
        // Rules of the chain itself may lead to it.
        let own: u32 = chain
            .rules
            .iter()
            .flat_map(|rule| rule.refs())
            .filter(|one| *one == crate::model::Ref::Chain(handle))
            .count() as u32;
        if chain.jumps > own {
            return Err(Errno::EBUSY).blame(blamed);
        }
        self.tell_chain(request, msg::DELCHAIN, table, handle);
        self.touch(table)?.remove_chain(handle);
        Ok(())
    }
}
