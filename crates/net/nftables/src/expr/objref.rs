//! `objref`: uses a named object, or the one that a map gives.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Run};
use crate::model::{Ref, Table};
use crate::scope::Scope;
use crate::set::flag;
use abi::Errno;

const TYPE: u16 = 1;
const NAME: u16 = 2;
const SREG: u16 = 3;
const SET_NAME: u16 = 4;
const SET_ID: u16 = 5;

enum Objref {
    Named(u64),
    Mapped(Reg, u64),
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    if let Some(source) = attrs.get(SREG)
        && attrs.has(SET_NAME)
    {
        let set = scope.set(attrs.need(SET_NAME)?.text(crate::NAME_MAX)?, attrs.be32(SET_ID)?)?;
        if !set.has(flag::OBJECT) {
            return Err(Errno::EINVAL.into());
        }
        return Ok(Box::new(Objref::Mapped(Reg::load(source, set.key_len, &scope.inited)?, set.handle)));
    }
    let (Some(name), Some(kind)) = (attrs.get(NAME), attrs.be32(TYPE)?) else {
        return Err(Errno::EOPNOTSUPP.into());
    };
    let object = scope.table.object_named(kind, name.text(crate::NAME_MAX)?);
    Ok(Box::new(Objref::Named(object.ok_or(Errno::ENOENT)?.handle)))
}

impl Expr for Objref {
    fn name(&self) -> &'static str {
        "objref"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let table = run.table;
        let handle = match self {
            Objref::Named(handle) => Some(*handle),
            Objref::Mapped(key, set) => {
                let set = table.sets.get(set);
                let element = set.and_then(|set| run.find(set, *key));
                element.and_then(|element| element.object)
            }
        };
        match handle.and_then(|handle| table.objects.get(&handle)) {
            Some(object) => object.state.run(run),
            None => Flow::Break,
        }
    }
    fn dump(&self, out: &mut Writer, table: &Table) {
        match self {
            Objref::Named(handle) => {
                if let Some(object) = table.objects.get(handle) {
                    out.text(NAME, &object.name);
                    out.be32(TYPE, object.kind);
                }
            }
            Objref::Mapped(key, set) => {
                out.be32(SREG, key.number());
                if let Some(set) = table.sets.get(set) {
                    out.text(SET_NAME, &set.name);
                }
            }
        }
    }
    fn refs(&self) -> Vec<Ref> {
        match self {
            Objref::Named(handle) => vec![Ref::Object(*handle)],
            Objref::Mapped(_, set) => vec![Ref::Set(*set)],
        }
    }
}
