//! `lookup`: asks a set, or finds a value or a verdict in a map.

use crate::attr::{Attrs, Result, Writer};
use crate::data::{Data, Reg};
use crate::expression::{Expr, Flow, Run};
use crate::model::{Ref, Table};
use crate::scope::Scope;
use crate::set::{Target, flag};
use abi::Errno;

const SET: u16 = 1;
const SREG: u16 = 2;
const DREG: u16 = 3;
const SET_ID: u16 = 4;
const FLAGS: u16 = 5;
const INVERT: u32 = 1;

enum Out {
    /// Matches when the key is there; or when it is not.
    Match {
        invert: bool,
    },
    Value(Reg),
    Verdict,
}

struct Lookup {
    set: u64,
    source: Reg,
    out: Out,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let (name, source) = (attrs.need(SET)?, attrs.need(SREG)?);
    let set = scope.set(name.text(crate::NAME_MAX)?, attrs.be32(SET_ID)?)?;
    let source = Reg::load(source, set.key_len, &scope.inited)?;
    let flags = attrs.be32(FLAGS)?.unwrap_or(0);
    if flags & !INVERT != 0 {
        return Err(Errno::EINVAL.into());
    }
    let invert = flags & INVERT != 0;
    let out = match (attrs.get(DREG), set.target) {
        (Some(_), _) if invert || !set.has(flag::MAP) => return Err(Errno::EINVAL.into()),
        (Some(target), Some(Target::Value(_, len))) => Out::Value(Reg::store(target, len, &scope.inited)?),
        (Some(target), Some(Target::Verdict)) if Reg::is_verdict(target)? => Out::Verdict,
        (Some(_), _) => return Err(Errno::EINVAL.into()),
        (None, _) if set.has(flag::MAP) => return Err(Errno::EINVAL.into()),
        (None, _) => Out::Match { invert },
    };
    Ok(Box::new(Lookup { set: set.handle, source, out }))
}

impl Expr for Lookup {
    fn name(&self) -> &'static str {
        "lookup"
    }

    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let Some(set) = run.table.sets.get(&self.set) else { return Flow::Break };
        let element = run.find(set, self.source);
        let Some(element) = element else {
            return Flow::when(matches!(self.out, Out::Match { invert: true }));
        };
        let found = match (&self.out, &element.data) {
            (Out::Match { invert }, _) => Flow::when(!invert),
            (Out::Value(target), Some(Data::Value(value))) => {
                run.regs.set(*target, value);
                Flow::Next
            }
            (Out::Verdict, Some(Data::Verdict(verdict))) => Flow::Verdict(*verdict),
            _ => Flow::Break,
        };
        if found == Flow::Break {
            return found;
        }
        for expr in &element.exprs {
            run.spend(1);
            if expr.run(run) == Flow::Break {
                return Flow::Break;
            }
        }
        found
    }

    fn dump(&self, out: &mut Writer, table: &Table) {
        if let Some(set) = table.sets.get(&self.set) {
            out.text(SET, &set.name);
        }
        out.be32(SREG, self.source.number());
        match self.out {
            Out::Match { .. } => {}
            Out::Value(target) => out.be32(DREG, target.number()),
            Out::Verdict => out.be32(DREG, 0),
        }
        out.be32(FLAGS, if matches!(self.out, Out::Match { invert: true }) { INVERT } else { 0 });
    }

    fn refs(&self) -> Vec<Ref> {
        vec![Ref::Set(self.set)]
    }

    fn validate(&self, _place: crate::expression::Place, _table: &Table) -> Result<(), Errno> {
        Ok(())
    }
}
