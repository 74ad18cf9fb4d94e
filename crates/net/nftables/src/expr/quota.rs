//! `quota`: a number of bytes that can be used up.

use crate::attr::{Attrs, Result, Writer};
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use std::sync::atomic::{AtomicU64, Ordering};

const BYTES: u16 = 1;
const FLAGS: u16 = 2;
const CONSUMED: u16 = 4;
const INVERT: u32 = 1;
const DEPLETED: u32 = 2;

struct Quota {
    bytes: u64,
    invert: bool,
    consumed: AtomicU64,
}

pub(crate) fn parse(attrs: Attrs<'_>, _scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let bytes = attrs.need(BYTES)?.be64()?;
    let consumed = attrs.be64(CONSUMED)?.unwrap_or(0);
    if i64::try_from(bytes).is_err() || i64::try_from(consumed).is_err() {
        return Err(Errno::EOVERFLOW.into());
    }
    if consumed > bytes {
        return Err(Errno::EINVAL.into());
    }
    let flags = attrs.be32(FLAGS)?.unwrap_or(0);
    if flags & !(INVERT | DEPLETED) != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(Box::new(Quota { bytes, invert: flags & INVERT != 0, consumed: consumed.into() }))
}

impl Expr for Quota {
    fn name(&self) -> &'static str {
        "quota"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let len = run.len() as u64;
        let used = self.consumed.fetch_add(len, Ordering::Relaxed) + len;
        Flow::when((used > self.bytes) == self.invert)
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        let used = self.consumed.load(Ordering::Relaxed);
        let mut flags = if self.invert { INVERT } else { 0 };
        if used > self.bytes {
            flags |= DEPLETED;
        }
        out.be64(BYTES, self.bytes);
        out.be64(CONSUMED, used.min(self.bytes));
        out.be32(FLAGS, flags);
    }
    fn fresh(&self) -> Option<Box<dyn Expr>> {
        Some(Box::new(Quota { bytes: self.bytes, invert: self.invert, consumed: 0.into() }))
    }
    fn reset(&self) {
        self.consumed.store(0, Ordering::Relaxed);
    }
}
