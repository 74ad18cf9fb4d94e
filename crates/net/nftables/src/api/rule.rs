//! Rules.

use super::{Change, msg, named_chain, userdata};
use crate::attr::{Attrs, Blame, Result, Writer};
use crate::expr;
use crate::expression::{self, Expr};
use crate::message::{Request, flag};
use crate::model::{Chain, Rule, Table};
use abi::Errno;
use std::sync::Arc;

pub(crate) const TABLE: u16 = 1;
pub(crate) const CHAIN: u16 = 2;
pub(crate) const HANDLE: u16 = 3;
const EXPRESSIONS: u16 = 4;
const COMPAT: u16 = 5;
const POSITION: u16 = 6;
const USERDATA: u16 = 7;
const ID: u16 = 9;
const POSITION_ID: u16 = 10;
const CHAIN_ID: u16 = 11;

const COMPAT_PROTO: u16 = 1;
const COMPAT_FLAGS: u16 = 2;
const COMPAT_INVERT: u32 = 2;

/// Most expressions of a rule (`NFT_RULE_MAXEXPRS`).
const MAX_EXPRS: usize = 128;
/// Most bytes of a rule's expressions.
const MAX_BYTES: usize = 4096;
/// What a rule and an expression take.
const RULE_COST: usize = 128;
const EXPR_COST: usize = 64;
/// Rules that are moved in the time of one step of a search.
const MOVED: usize = 64;

pub(crate) fn dump(rule: &Rule, before: Option<u64>, chain: &Chain, table: &Table, out: &mut Writer) {
    out.text(TABLE, &table.name);
    out.text(CHAIN, &chain.name);
    out.be64(HANDLE, rule.handle);
    if let Some(before) = before {
        out.be64(POSITION, before);
    }
    out.nest(EXPRESSIONS, |out| {
        for expr in &rule.exprs {
            expression::dump(&**expr, crate::attr::NFTA_LIST_ELEM, out, table);
        }
    });
    if let Some(userdata) = &rule.userdata {
        out.put(USERDATA, userdata);
    }
}

/// The protocol and flags that iptables gives with a rule.
fn compat(attrs: Attrs<'_>) -> Result<Option<(u16, bool)>> {
    let Some(nested) = attrs.get(COMPAT).map(|attr| attr.nested()) else { return Ok(None) };
    let (Some(proto), Some(flags)) = (nested.be32(COMPAT_PROTO)?, nested.be32(COMPAT_FLAGS)?) else {
        return Err(Errno::EINVAL.into());
    };
    // Bit 0 has never meant anything.
    if flags & !(COMPAT_INVERT | 1) != 0 {
        return Err(Errno::EINVAL.into());
    }
    Ok(Some((proto as u16, flags & COMPAT_INVERT != 0)))
}

impl Change<'_> {
    /// The chain that a message names, by name or by its number in the batch.
    fn chain_of<'t>(&self, table: &'t Table, attrs: Attrs<'_>) -> Result<&'t Chain> {
        match (attrs.get(CHAIN), attrs.get(CHAIN_ID)) {
            (Some(name), _) => named_chain(table, name),
            (None, Some(id)) => {
                let handle = self.ids.chains.get(&(table.handle, id.be32()?));
                let chain = handle.and_then(|handle| table.chains.get(handle));
                chain.map(|chain| &**chain).ok_or(Errno::ENOENT).blame(id.at)
            }
            (None, None) => Err(Errno::EINVAL.into()),
        }
    }

    fn parse_rule(&self, attrs: Attrs<'_>, table: &Table) -> Result<Rule> {
        let mut scope = self.scope(table);
        scope.compat = compat(attrs)?;
        let mut exprs: Vec<Box<dyn Expr>> = Vec::new();
        if let Some(list) = attrs.get(EXPRESSIONS) {
            if list.data.len() > MAX_BYTES * 4 {
                return Err(Errno::EFBIG.into());
            }
            for item in list.nested().iter() {
                if item.kind != crate::attr::NFTA_LIST_ELEM || exprs.len() == MAX_EXPRS {
                    return Err(Errno::EINVAL.into());
                }
                exprs.push(expr::parse(item, &scope).blame(item.at)?);
            }
        }
        let weight: usize = exprs.iter().map(|expr| EXPR_COST + expr.weight()).sum();
        if weight >= MAX_BYTES * 4 {
            return Err(Errno::EFBIG.into());
        }
        let userdata = userdata(attrs.get(USERDATA))?;
        let bytes = RULE_COST + weight + userdata.as_ref().map_or(0, |data| data.len());
        Ok(Rule { handle: 0, exprs: exprs.into(), userdata, _charge: self.charge(bytes)? })
    }

    pub(super) fn new_rule(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        let table = self.table(request, attrs.get(TABLE))?;
        let chain = self.chain_of(table, attrs)?;
        if chain.is_bound() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if attrs.has(HANDLE) || attrs.has(POSITION) || attrs.has(POSITION_ID) {
            self.spend(chain.rules.len())?;
        } else if !request.has(flag::APPEND) {
            self.spend(chain.rules.len() / MOVED)?;
        }
        let (table_handle, chain_handle) = (table.handle, chain.handle);
        let (old, mut beside): (Option<u64>, _) = match attrs.get(HANDLE) {
            Some(handle) => {
                let at = chain.rule(handle.be64()?).ok_or(Errno::ENOENT).blame(handle.at)?;
                if request.has(flag::EXCL) {
                    return Err(Errno::EEXIST).blame(handle.at);
                }
                if !request.has(flag::REPLACE) {
                    return Err(Errno::EOPNOTSUPP.into());
                }
                (Some(chain.rules[at].handle), Some(at))
            }
            None if !request.has(flag::CREATE) || request.has(flag::REPLACE) => {
                return Err(Errno::EINVAL.into());
            }
            None => (None, self.position(attrs, table, chain)?),
        };
        let handle = old.unwrap_or_else(|| table.next_handle());
        let mut rule = self.parse_rule(attrs, table)?;
        let id = attrs.be32(ID)?;
        if id.is_some() {
            self.ids.count()?;
        }
        let mut append = request.has(flag::APPEND);
        if let Some(old) = old {
            self.tell_rule(request, msg::DELRULE, table_handle, chain_handle, old);
            self.touch(table_handle)?.remove_rule(chain_handle, old);
            // The old rule's place is where the next rule is now.
            append = false;
            let len = self.touch(table_handle)?.chain_mut(chain_handle)?.rules.len();
            if beside.is_some_and(|at| at >= len) {
                (beside, append) = (None, true);
            }
        }
        let table = self.touch(table_handle)?;
        rule.handle = handle;
        table.add_rule(chain_handle, rule, beside, append)?;
        if let Some(id) = id {
            self.ids.rules.insert((table_handle, id), (chain_handle, handle));
        }
        self.tell_rule(request, msg::NEWRULE, table_handle, chain_handle, handle);
        Ok(())
    }

    /// The rule that a new one goes beside.
    fn position(&self, attrs: Attrs<'_>, table: &Table, chain: &Chain) -> Result<Option<usize>> {
        let (wanted, attr) = match (attrs.get(POSITION), attrs.get(POSITION_ID)) {
            (Some(attr), _) => (Some(attr.be64()?), attr),
            (None, Some(attr)) => {
                let known = self.ids.rules.get(&(table.handle, attr.be32()?));
                let known = known.filter(|(of, _)| *of == chain.handle);
                (known.map(|(_, rule)| *rule), attr)
            }
            (None, None) => return Ok(None),
        };
        wanted.and_then(|handle| chain.rule(handle)).map(Some).ok_or(Errno::ENOENT).blame(attr.at)
    }

    pub(super) fn tell_rule(
        &mut self,
        request: &Request<'_>,
        number: u8,
        table: u64,
        chain: u64,
        handle: u64,
    ) {
        let of = self.rules.tables.get(&table).map_or(0, |table| table.family);
        self.notify(request, number, of, |rules, out| {
            let Some(table) = rules.tables.get(&table) else { return };
            let Some(chain) = table.chains.get(&chain) else { return };
            let Some(at) = chain.rule(handle) else { return };
            let before = at.checked_sub(1).map(|at| chain.rules[at].handle);
            let before = before.filter(|_| number == msg::NEWRULE);
            dump(&chain.rules[at], before, chain, table, out);
        });
    }

    pub(super) fn delete_rule(&mut self, request: &Request<'_>) -> Result<()> {
        let attrs = request.attrs();
        let table = self.table(request, attrs.get(TABLE))?;
        let table_handle = table.handle;
        let all = |chain: &Arc<Chain>| -> Vec<(u64, u64)> {
            chain.rules.iter().map(|rule| (chain.handle, rule.handle)).collect()
        };
        let doomed: Vec<(u64, u64)> = match attrs.get(CHAIN) {
            Some(name) => {
                let chain = named_chain(table, name)?;
                if chain.is_bound() {
                    return Err(Errno::EOPNOTSUPP.into());
                }
                if attrs.has(HANDLE) || attrs.has(ID) {
                    self.spend(chain.rules.len())?;
                }
                match (attrs.get(HANDLE), attrs.get(ID)) {
                    (Some(handle), _) => {
                        let wanted = handle.be64()?;
                        chain.rule(wanted).ok_or(Errno::ENOENT).blame(handle.at)?;
                        vec![(chain.handle, wanted)]
                    }
                    (None, Some(id)) => {
                        let known = self.ids.rules.get(&(table_handle, id.be32()?));
                        let known =
                            known.filter(|(of, rule)| *of == chain.handle && chain.rule(*rule).is_some());
                        vec![*known.ok_or(Errno::ENOENT).blame(id.at)?]
                    }
                    (None, None) => chain.rules.iter().map(|rule| (chain.handle, rule.handle)).collect(),
                }
            }
            None if attrs.has(HANDLE) => return Err(Errno::EINVAL.into()),
            None => table.chains.values().filter(|chain| !chain.is_bound()).flat_map(all).collect(),
        };
        // From the end, so that few rules move.
        for (chain, rule) in doomed.into_iter().rev() {
            self.tell_rule(request, msg::DELRULE, table_handle, chain, rule);
            self.touch(table_handle)?.remove_rule(chain, rule);
        }
        Ok(())
    }
}
