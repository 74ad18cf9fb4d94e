//! `numgen`: numbers in turn or at random.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

const DREG: u16 = 1;
const MODULUS: u16 = 2;
const TYPE: u16 = 3;
const OFFSET: u16 = 4;

struct Numgen {
    target: Reg,
    modulus: u32,
    random: bool,
    offset: u32,
    last: AtomicU32,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let (target, modulus) = (attrs.need(DREG)?, attrs.need(MODULUS)?.be32()?);
    let random = match attrs.need(TYPE)?.be32()? {
        0 => false,
        1 => true,
        _ => return Err(Errno::EINVAL.into()),
    };
    let offset = attrs.be32(OFFSET)?.unwrap_or(0);
    if modulus == 0 {
        return Err(Errno::ERANGE.into());
    }
    offset.checked_add(modulus - 1).ok_or(Errno::EOVERFLOW)?;
    let target = Reg::store(target, 4, &scope.inited)?;
    Ok(Box::new(Numgen { target, modulus, random, offset, last: (modulus - 1).into() }))
}

/// A number below `modulus` from one of 32 bits.
pub(super) fn scale(value: u32, modulus: u32) -> u32 {
    ((u64::from(value) * u64::from(modulus)) >> 32) as u32
}

impl Expr for Numgen {
    fn name(&self) -> &'static str {
        "numgen"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let after = |last: u32| if last + 1 < self.modulus { last + 1 } else { 0 };
        let number = match self.random {
            true => scale(run.random(), self.modulus),
            false => self
                .last
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)))
                .map_or(0, after),
        };
        run.regs.set(self.target, &(number + self.offset).to_ne_bytes());
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(DREG, self.target.number());
        out.be32(MODULUS, self.modulus);
        out.be32(TYPE, self.random.into());
        out.be32(OFFSET, self.offset);
    }
}
