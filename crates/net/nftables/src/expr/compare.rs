//! `cmp` and `range`: compare a register with values.

use crate::attr::{Attrs, Result, Writer};
use crate::data::{Data, Reg, VALUE_MAX};
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;

const SREG: u16 = 1;
const OP: u16 = 2;
const FIRST: u16 = 3;
const SECOND: u16 = 4;

struct Cmp {
    source: Reg,
    op: u32,
    value: Box<[u8]>,
}

pub(super) fn cmp(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let value = Data::value(attrs.need(FIRST)?, VALUE_MAX)?;
    let source = Reg::load(attrs.need(SREG)?, value.len(), &scope.inited)?;
    let op = attrs.need(OP)?.be32()?;
    if op > 5 {
        return Err(Errno::EINVAL.into());
    }
    Ok(Box::new(Cmp { source, op, value }))
}

impl Expr for Cmp {
    fn name(&self) -> &'static str {
        "cmp"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let order = run.regs.get(self.source).cmp(&self.value);
        Flow::when(match self.op {
            0 => order.is_eq(),
            1 => order.is_ne(),
            2 => order.is_lt(),
            3 => order.is_le(),
            4 => order.is_gt(),
            _ => order.is_ge(),
        })
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(SREG, self.source.number());
        out.be32(OP, self.op);
        Data::dump_value(FIRST, &self.value, out);
    }
    fn weight(&self) -> usize {
        self.value.len()
    }
}

struct Range {
    source: Reg,
    op: u32,
    from: Box<[u8]>,
    to: Box<[u8]>,
}

pub(super) fn range(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let (source, op) = (attrs.need(SREG)?, attrs.need(OP)?);
    let from = Data::value(attrs.need(FIRST)?, VALUE_MAX)?;
    let to = Data::exactly(attrs.need(SECOND)?, from.len())?;
    let source = Reg::load(source, from.len(), &scope.inited)?;
    let op = op.be32()?;
    if op > 1 {
        return Err(Errno::EINVAL.into());
    }
    Ok(Box::new(Range { source, op, from, to }))
}

impl Expr for Range {
    fn name(&self) -> &'static str {
        "range"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let value = run.regs.get(self.source);
        let inside = *self.from <= *value && *value <= *self.to;
        Flow::when(inside == (self.op == 0))
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(SREG, self.source.number());
        out.be32(OP, self.op);
        Data::dump_value(FIRST, &self.from, out);
        Data::dump_value(SECOND, &self.to, out);
    }
    fn weight(&self) -> usize {
        2 * self.from.len()
    }
}
