//! `counter`: packets and bytes.

use crate::attr::{Attrs, Result, Writer};
use crate::counter::Counter;
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;

pub(crate) fn parse(attrs: Attrs<'_>, _scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    Ok(Box::new(Counter::new(attrs)?))
}

impl Expr for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        self.count(run.len());
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        self.write(out);
    }
    fn fresh(&self) -> Option<Box<dyn Expr>> {
        Some(Box::new(Counter::default()))
    }
    fn reset(&self) {
        Counter::reset(self);
    }
}
