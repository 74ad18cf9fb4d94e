//! Sets and maps: of single values, of ranges, of concatenated ranges, with time-outs, filled by programs or by rules.
//!
//! A set's description belongs to the rule set, and changes with it. Its elements are in [`Contents`], which packets
//! may add to at any time. A batch that changes elements works on a copy of these, and elements that packets add
//! meanwhile go into both.

pub(crate) mod contents;
pub(crate) mod element;

use crate::attr::{NFTA_LIST_ELEM, Writer};
use crate::budget::Charge;
use crate::expression::{self, Expr};
use crate::model::{Name, Table};
use contents::Contents;
use std::sync::Arc;

/// Flags of sets.
pub(crate) mod flag {
    pub const ANONYMOUS: u32 = 1;
    pub const CONSTANT: u32 = 2;
    pub const INTERVAL: u32 = 4;
    pub const MAP: u32 = 8;
    pub const TIMEOUT: u32 = 0x10;
    pub const EVAL: u32 = 0x20;
    pub const OBJECT: u32 = 0x40;
    pub const ALL: u32 = 0x1ff;
}

/// What a map's elements lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Values: their type, of which the kernel knows nothing, and their length.
    Value(u32, usize),
    Verdict,
}

/// A set.
#[derive(Clone)]
pub(crate) struct Set {
    pub handle: u64,
    pub name: Name,
    pub flags: u32,
    /// The type of the keys, of which the kernel knows nothing, and their length.
    pub key_type: u32,
    pub key_len: usize,
    pub target: Option<Target>,
    /// `NFT_OBJECT_*` for a map to objects.
    pub object_type: u32,
    /// Milliseconds; 0 is forever.
    pub timeout: u64,
    pub gc_interval: u32,
    pub policy: u32,
    /// Most elements; 0 for as many as memory allows.
    pub size: u32,
    /// Lengths of the fields of a concatenation.
    pub fields: Box<[u32]>,
    pub userdata: Option<Box<[u8]>>,
    /// Every element gets a copy of each.
    pub exprs: Arc<[Box<dyn Expr>]>,
    /// Expressions that use the set.
    pub bindings: u32,
    /// Those of them that add elements.
    pub bindings_filled: u32,
    pub contents: Arc<Contents>,
    pub _charge: Arc<Charge>,
}

const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
pub(crate) const NFTA_SET_FLAGS: u16 = 3;
pub(crate) const NFTA_SET_KEY_TYPE: u16 = 4;
pub(crate) const NFTA_SET_KEY_LEN: u16 = 5;
pub(crate) const NFTA_SET_DATA_TYPE: u16 = 6;
pub(crate) const NFTA_SET_DATA_LEN: u16 = 7;
pub(crate) const NFTA_SET_POLICY: u16 = 8;
pub(crate) const NFTA_SET_DESC: u16 = 9;
pub(crate) const NFTA_SET_ID: u16 = 10;
pub(crate) const NFTA_SET_TIMEOUT: u16 = 11;
pub(crate) const NFTA_SET_GC_INTERVAL: u16 = 12;
pub(crate) const NFTA_SET_USERDATA: u16 = 13;
pub(crate) const NFTA_SET_OBJ_TYPE: u16 = 15;
pub(crate) const NFTA_SET_HANDLE: u16 = 16;
pub(crate) const NFTA_SET_EXPR: u16 = 17;
pub(crate) const NFTA_SET_EXPRESSIONS: u16 = 18;
pub(crate) const NFTA_SET_DESC_SIZE: u16 = 1;
pub(crate) const NFTA_SET_DESC_CONCAT: u16 = 2;
pub(crate) const NFTA_SET_FIELD_LEN: u16 = 1;

impl Set {
    pub fn is_anonymous(&self) -> bool {
        self.flags & flag::ANONYMOUS != 0
    }
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether packets may change it. Linux keeps sets of a known size, and those of short keys, in a form without that.
    pub fn is_open(&self) -> bool {
        const SHORT: usize = 2;
        let other_form = self.size != 0 && self.bindings_filled == 0 || self.key_len <= SHORT;
        !self.has(flag::INTERVAL) && (self.has(flag::EVAL) || self.has(flag::TIMEOUT) || !other_form)
    }

    pub fn dump(&self, table: &Table, out: &mut Writer) {
        out.text(NFTA_SET_TABLE, &table.name);
        out.text(NFTA_SET_NAME, &self.name);
        out.be64(NFTA_SET_HANDLE, self.handle);
        if self.flags != 0 {
            out.be32(NFTA_SET_FLAGS, self.flags);
        }
        out.be32(NFTA_SET_KEY_TYPE, self.key_type);
        out.be32(NFTA_SET_KEY_LEN, self.key_len as u32);
        match self.target {
            Some(Target::Value(kind, len)) => {
                out.be32(NFTA_SET_DATA_TYPE, kind);
                out.be32(NFTA_SET_DATA_LEN, len as u32);
            }
            Some(Target::Verdict) => {
                out.be32(NFTA_SET_DATA_TYPE, crate::data::TYPE_VERDICT);
                out.be32(NFTA_SET_DATA_LEN, 16);
            }
            None => {}
        }
        if self.has(flag::OBJECT) {
            out.be32(NFTA_SET_OBJ_TYPE, self.object_type);
        }
        if self.timeout != 0 {
            out.be64(NFTA_SET_TIMEOUT, self.timeout);
        }
        if self.gc_interval != 0 {
            out.be32(NFTA_SET_GC_INTERVAL, self.gc_interval);
        }
        if self.policy != 0 {
            out.be32(NFTA_SET_POLICY, self.policy);
        }
        if let Some(userdata) = &self.userdata {
            out.put(NFTA_SET_USERDATA, userdata);
        }
        out.nest(NFTA_SET_DESC, |out| {
            if self.size != 0 {
                out.be32(NFTA_SET_DESC_SIZE, self.size);
            }
            if self.fields.len() > 1 {
                out.nest(NFTA_SET_DESC_CONCAT, |out| {
                    for len in &self.fields {
                        out.nest(NFTA_LIST_ELEM, |out| out.be32(NFTA_SET_FIELD_LEN, *len));
                    }
                });
            }
        });
        expression::dump_list(&self.exprs, NFTA_SET_EXPR, NFTA_SET_EXPRESSIONS, out, table);
    }
}
