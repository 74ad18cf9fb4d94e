//! `counter`: packets and bytes.

use super::{Expr, Flow};
use crate::attr::{Attrs, Result, Writer};
use crate::model::Table;
use crate::run::Run;
use crate::scope::Scope;
use std::sync::atomic::{AtomicU64, Ordering};

const BYTES: u16 = 1;
const PACKETS: u16 = 2;

/// Counts packets and bytes.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// From the attributes of a counter; what is missing is zero.
    pub fn new(attrs: Attrs<'_>) -> Result<Counter> {
        let (packets, bytes) = (attrs.be64(PACKETS)?, attrs.be64(BYTES)?);
        Ok(Counter { packets: packets.unwrap_or(0).into(), bytes: bytes.unwrap_or(0).into() })
    }
    pub fn count(&self, len: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    pub fn write(&self, out: &mut Writer) {
        out.be64(BYTES, self.bytes.load(Ordering::Relaxed));
        out.be64(PACKETS, self.packets.load(Ordering::Relaxed));
    }
}

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
        self.packets.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}
