//! `immediate`: a value, or the verdict of a rule.

use crate::attr::{Attrs, Result, Writer};
use crate::data::{Data, Reg};
use crate::expression::{Expr, Flow, Run};
use crate::model::{Ref, Table};
use crate::scope::Scope;
use abi::Errno;

const DREG: u16 = 1;
const DATA: u16 = 2;

struct Immediate {
    /// None is the verdict.
    target: Option<Reg>,
    data: Data,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let (target, data) = (attrs.need(DREG)?, scope.data(attrs.need(DATA)?)?);
    let target = match (&data, Reg::is_verdict(target)?) {
        (Data::Verdict(_), true) => None,
        (Data::Value(value), false) => Some(Reg::store(target, value.len(), &scope.inited)?),
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(Box::new(Immediate { target, data }))
}

impl Expr for Immediate {
    fn name(&self) -> &'static str {
        "immediate"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        match (&self.data, self.target) {
            (Data::Verdict(verdict), _) => return Flow::Verdict(*verdict),
            (Data::Value(value), Some(target)) => run.regs.set(target, value),
            (Data::Value(_), None) => {}
        }
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, table: &Table) {
        out.be32(DREG, self.target.map_or(0, Reg::number));
        self.data.dump(DATA, out, &|chain| table.chain_name(chain));
    }
    fn refs(&self) -> Vec<Ref> {
        match self.data {
            Data::Verdict(verdict) => verdict.chain().map(Ref::Chain).into_iter().collect(),
            Data::Value(_) => Vec::new(),
        }
    }
}
