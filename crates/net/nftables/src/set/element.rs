//! Elements of sets.

use crate::attr::Writer;
use crate::budget::Charge;
use crate::data::Data;
use crate::expression::{self, Expr};
use crate::model::{Ref, Table};
use crate::set::Set;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const KEY: u16 = 1;
pub(crate) const DATA: u16 = 2;
pub(crate) const FLAGS: u16 = 3;
pub(crate) const TIMEOUT: u16 = 4;
pub(crate) const EXPIRATION: u16 = 5;
pub(crate) const USERDATA: u16 = 6;
pub(crate) const EXPR: u16 = 7;
pub(crate) const OBJREF: u16 = 9;
pub(crate) const KEY_END: u16 = 10;
pub(crate) const EXPRESSIONS: u16 = 11;

/// `NFT_SET_ELEM_INTERVAL_END`: the first value behind an interval.
pub(crate) const INTERVAL_END: u32 = 1;
/// `NFT_SET_ELEM_CATCHALL`: what counts when nothing else does.
pub(crate) const CATCHALL: u32 = 2;

/// An element.
pub(crate) struct Element {
    pub key: Box<[u8]>,
    /// The last value of a range of concatenations.
    pub key_end: Option<Box<[u8]>>,
    pub flags: u32,
    pub data: Option<Data>,
    pub object: Option<u64>,
    pub exprs: Box<[Box<dyn Expr>]>,
    /// Milliseconds it lives without being refreshed; 0 is forever.
    pub timeout: AtomicU64,
    /// When it ends, in milliseconds of the kernel's clock.
    pub expires: AtomicU64,
    pub userdata: Option<Box<[u8]>>,
    pub _charge: Charge,
}

impl Element {
    /// What an element takes, with keys and values of so many bytes.
    pub fn cost(bytes: usize, exprs: usize) -> usize {
        256 + bytes + exprs * 96
    }

    pub fn is_end(&self) -> bool {
        self.flags & INTERVAL_END != 0
    }
    pub fn is_catchall(&self) -> bool {
        self.flags & CATCHALL != 0
    }

    pub fn refs(&self) -> Vec<Ref> {
        let chain = match &self.data {
            Some(Data::Verdict(verdict)) => verdict.chain().map(Ref::Chain),
            _ => None,
        };
        chain.into_iter().chain(self.object.map(Ref::Object)).collect()
    }

    pub fn is_expired(&self, now: u64) -> bool {
        self.timeout.load(Ordering::Relaxed) != 0 && self.expires.load(Ordering::Relaxed) <= now
    }

    /// Starts its time anew.
    pub fn refresh(&self, timeout: u64, now: u64) {
        self.timeout.store(timeout, Ordering::Relaxed);
        self.expires.store(now.saturating_add(timeout), Ordering::Relaxed);
    }

    pub fn dump(&self, set: &Set, now: u64, out: &mut Writer, table: &Table) {
        if !self.is_catchall() {
            Data::dump_value(KEY, &self.key, out);
        }
        if let Some(end) = &self.key_end {
            Data::dump_value(KEY_END, end, out);
        }
        if let Some(data) = &self.data {
            data.dump(DATA, out, &|chain| table.chain_name(chain));
        }
        expression::dump_list(&self.exprs, EXPR, EXPRESSIONS, out, table);
        if let Some(object) = self.object.and_then(|object| table.objects.get(&object)) {
            out.text(OBJREF, &object.name);
        }
        if self.flags != 0 {
            out.be32(FLAGS, self.flags);
        }
        let timeout = self.timeout.load(Ordering::Relaxed);
        if !self.is_end() && timeout != set.timeout {
            out.be64(TIMEOUT, timeout);
        }
        if timeout != 0 {
            out.be64(EXPIRATION, self.expires.load(Ordering::Relaxed).saturating_sub(now));
        }
        if let Some(userdata) = &self.userdata {
            out.put(USERDATA, userdata);
        }
    }
}
