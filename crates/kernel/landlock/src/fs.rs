//! Decides about access to a file: rules are collected from the file up to the root.

use crate::access;
use crate::domain::Domain;
use crate::ruleset::ObjectKey;
use abi::{Errno, Result};

/// How many kinds of accesses there are.
const KINDS: usize = 16;

/// Accesses that are asked for at one place, and the layers that have not allowed them yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    domain: &'a Domain,
    wanted: u64,
    /// Of every access, wanted or not, the layers that handle it and have not allowed it.
    unmet: [u16; KINDS],
}

impl PartialEq for Domain {
    fn eq(&self, other: &Domain) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Domain {}

impl<'a> Request<'a> {
    /// Asks for accesses.
    pub fn new(domain: &'a Domain, wanted: u64) -> Request<'a> {
        let mut unmet = [0; KINDS];
        for (kind, layers) in unmet.iter_mut().enumerate() {
            *layers = domain.handling(1 << kind);
        }
        // Every layer denies this one unless it says otherwise.
        if let Some(refer) = unmet.get_mut(access::REFER.trailing_zeros() as usize) {
            *refer = ((1u32 << domain.layers()) - 1) as u16;
        }
        Request { domain, wanted, unmet }
    }

    /// Counts the rules for an object on the way up.
    pub fn at(&mut self, object: ObjectKey) {
        for (kind, layers) in self.unmet.iter_mut().enumerate() {
            if *layers != 0 {
                *layers &= !self.domain.allowing(object, 1 << kind);
            }
        }
    }

    fn is_met(&self, kind: usize) -> bool {
        self.unmet.get(kind).is_some_and(|layers| *layers == 0)
    }

    /// The accesses, wanted or not, that all layers allow.
    pub fn allowed(&self) -> u64 {
        (0..KINDS).filter(|kind| self.is_met(*kind)).fold(0, |bits, kind| bits | 1 << kind)
    }

    /// All that is wanted is allowed: no need to go further up.
    pub fn is_allowed(&self) -> bool {
        self.wanted & !self.allowed() == 0
    }

    /// EACCES unless all that is wanted is allowed.
    pub fn result(&self) -> Result<()> {
        if self.is_allowed() { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// Whether a file at this place could be used in a way that it cannot be at the other.
    fn gains_over(&self, other: &Request<'_>, directory: bool) -> bool {
        let kinds = (0..KINDS).filter(|k| directory || access::OF_FILES >> k & 1 != 0);
        let mut pairs = kinds.filter_map(|k| Some((*self.unmet.get(k)?, *other.unmet.get(k)?)));
        // Some layer allows here what it does not allow there.
        pairs.any(|(here, there)| there & !here != 0)
    }

    /// Whether a file may go from one directory to another, for which these were asked: EACCES when what is done to the
    /// directories is not allowed, EXDEV when the file may not change its place, or could be used in more ways
    /// afterwards.
    pub fn moved(from: &Request<'_>, to: &Request<'_>, file: &Request<'_>, directory: bool) -> Result<()> {
        let denied = |r: &Request<'_>| r.wanted & !r.allowed();
        let (a, b) = (denied(from), denied(to));
        if (a | b) & !access::REFER != 0 {
            return Err(Errno::EACCES);
        }
        if a | b != 0 || to.gains_over(file, directory) { Err(Errno::EXDEV) } else { Ok(()) }
    }
}
