//! `dynset`: packets add elements to a set, refresh or remove them.

use crate::attr::{Attrs, Result, Writer};
use crate::budget::{Budget, Charge};
use crate::data::{Data, Reg};
use crate::expression::{Expr, Flow, Run};
use crate::model::{Ref, Table};
use crate::scope::Scope;
use crate::set::contents::Insert;
use crate::set::element::Element;
use crate::set::{Set, Target, flag};
use abi::Errno;
use std::sync::Arc;

const SET_NAME: u16 = 1;
const SET_ID: u16 = 2;
const OP: u16 = 3;
const SREG_KEY: u16 = 4;
const SREG_DATA: u16 = 5;
const TIMEOUT: u16 = 6;
const EXPR: u16 = 7;
const FLAGS: u16 = 9;
const EXPRESSIONS: u16 = 10;
const INVERT: u32 = 1;
const HAS_EXPR: u32 = 2;

#[derive(Clone, Copy, PartialEq)]
enum Op {
    Add = 0,
    Update = 1,
    Delete = 2,
}

struct Dynset {
    set: u64,
    op: Op,
    key: Reg,
    data: Option<Reg>,
    /// Milliseconds; 0 is what the set says.
    timeout: u64,
    invert: bool,
    exprs: Vec<Box<dyn Expr>>,
    budget: Arc<Budget>,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let (name, op, key) = (attrs.need(SET_NAME)?, attrs.need(OP)?, attrs.need(SREG_KEY)?);
    let flags = attrs.be32(FLAGS)?.unwrap_or(0);
    if flags & !(INVERT | HAS_EXPR) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let set = scope.set(name.text(crate::NAME_MAX)?, attrs.be32(SET_ID)?)?;
    if set.has(flag::OBJECT) || !set.is_open() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if set.has(flag::CONSTANT) {
        return Err(Errno::EBUSY.into());
    }
    let op = match op.be32()? {
        0 => Op::Add,
        1 if !set.has(flag::TIMEOUT) => return Err(Errno::EOPNOTSUPP.into()),
        1 => Op::Update,
        2 => Op::Delete,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    let timeout = attrs.be64(TIMEOUT)?;
    if timeout.is_some() && !set.has(flag::TIMEOUT) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let key = Reg::load(key, set.key_len, &scope.inited)?;
    let data = match (attrs.get(SREG_DATA), set.target) {
        (None, None) => None,
        (Some(data), Some(Target::Value(_, len))) => Some(Reg::load(data, len, &scope.inited)?),
        (Some(_), _) => return Err(Errno::EOPNOTSUPP.into()),
        (None, Some(_)) => return Err(Errno::EINVAL.into()),
    };
    let (one, many) = (attrs.get(EXPR), attrs.get(EXPRESSIONS));
    if (one.is_some() || many.is_some()) && !set.has(flag::EVAL) {
        return Err(Errno::EINVAL.into());
    }
    let exprs = super::parse_list(one, many, scope)?;
    let differ = exprs.iter().map(|e| e.name()).ne(set.exprs.iter().map(|e| e.name()));
    if !exprs.is_empty() && !set.exprs.is_empty() && differ {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(Box::new(Dynset {
        set: set.handle,
        op,
        key,
        data,
        timeout: timeout.unwrap_or(0),
        invert: flags & INVERT != 0,
        exprs,
        budget: scope.budget.clone(),
    }))
}

impl Dynset {
    fn timeout(&self, set: &Set) -> u64 {
        match self.timeout {
            _ if !set.has(flag::TIMEOUT) => 0,
            0 => set.timeout,
            own => own,
        }
    }

    /// The element of the key, which is made if there is none; `None` when there is no room.
    fn element(&self, set: &Set, run: &mut Run<'_, '_>) -> Option<Arc<Element>> {
        if let Some(found) = run.find(set, self.key) {
            return Some(found);
        }
        // What is to be added is compared with all that is there as well.
        run.spend(set.contents.walked() / 8).then_some(())?;
        let (key, now) = (run.regs.get(self.key), run.now());
        let templates = if self.exprs.is_empty() { &set.exprs[..] } else { &self.exprs };
        let exprs: Box<[_]> = templates.iter().filter_map(|expr| expr.fresh()).collect();
        let data = self.data.map(|reg| Data::Value(run.regs.get(reg).into()));
        let bytes = Element::cost(key.len() + self.data.map_or(0, Reg::len), exprs.len());
        let timeout = self.timeout(set);
        let element = Arc::new(Element {
            key: key.into(),
            key_end: None,
            flags: 0,
            data,
            object: None,
            exprs,
            timeout: timeout.into(),
            expires: now.saturating_add(timeout).into(),
            userdata: None,
            _charge: Charge::take(&self.budget, bytes).ok()?,
        });
        let max = set.max();
        for _ in 0..2 {
            match set.contents.insert(&element, max) {
                Insert::Done => return Some(element),
                Insert::Exists(old) if !old.is_expired(now) => return Some(old),
                Insert::Exists(old) => set.contents.remove(&old),
                Insert::Full if !set.contents.make_room(now) => return None,
                Insert::Full => {}
                Insert::Overlaps => return None,
            }
        }
        None
    }
}

impl Expr for Dynset {
    fn name(&self) -> &'static str {
        "dynset"
    }

    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let table = run.table;
        let Some(set) = table.sets.get(&self.set) else { return Flow::Break };
        if self.op == Op::Delete {
            if let Some(found) = run.find(set, self.key) {
                set.contents.remove(&found);
            }
            return Flow::Next;
        }
        let Some(element) = self.element(set, run) else { return Flow::when(self.invert) };
        if self.op == Op::Update && set.has(flag::TIMEOUT) {
            element.refresh(self.timeout(set), run.now());
        }
        for expr in &element.exprs {
            run.spend(1);
            if expr.run(run) == Flow::Break {
                return Flow::Break;
            }
        }
        Flow::when(!self.invert)
    }

    fn dump(&self, out: &mut Writer, table: &Table) {
        out.be32(SREG_KEY, self.key.number());
        if let Some(data) = self.data {
            out.be32(SREG_DATA, data.number());
        }
        out.be32(OP, self.op as u32);
        if let Some(set) = table.sets.get(&self.set) {
            out.text(SET_NAME, &set.name);
        }
        out.be64(TIMEOUT, self.timeout);
        let many = self.exprs.len() > 1;
        // Those that every element of the set has are not repeated.
        if table.sets.get(&self.set).is_some_and(|set| set.exprs.is_empty()) {
            crate::expression::dump_list(&self.exprs, EXPR, EXPRESSIONS, out, table);
        }
        out.be32(FLAGS, if self.invert { INVERT } else { 0 } | if many { HAS_EXPR } else { 0 });
    }

    fn refs(&self) -> Vec<Ref> {
        vec![Ref::Filled(self.set)]
    }
}
