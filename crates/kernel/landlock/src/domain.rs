//! The layers of rules that apply to a thread.

use crate::ruleset::{Handled, ObjectKey, Rules, Ruleset};
use abi::{Errno, Result};
use std::sync::Arc;

/// Most layers of a domain.
pub const MAX_LAYERS: usize = 16;

/// A layer: a ruleset as it was when it was enforced.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) handled: Handled,
    pub(crate) rules: Rules,
}

/// A domain: its layers, the first enforced one first. Domains share the layers of the one that they were made from.
#[derive(Debug)]
pub struct Domain {
    pub(crate) layers: Vec<Arc<Layer>>,
}

impl Domain {
    /// Puts a ruleset in force above those of `parent`. E2BIG when there are too many.
    pub fn new(parent: Option<&Domain>, ruleset: &Ruleset) -> Result<Arc<Domain>> {
        let mut layers = parent.map_or(Vec::new(), |p| p.layers.clone());
        if layers.len() == MAX_LAYERS {
            return Err(Errno::E2BIG);
        }
        layers.push(Arc::new(Layer { handled: ruleset.handled, rules: ruleset.copy()? }));
        Ok(Arc::new(Domain { layers }))
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The layers that handle an access, as bits.
    pub(crate) fn handling(&self, accesses: u64) -> u16 {
        self.bits(|l| l.handled.fs & accesses != 0)
    }

    fn bits(&self, of: impl Fn(&Layer) -> bool) -> u16 {
        let set = self.layers.iter().enumerate().filter(|(_, l)| of(l));
        set.fold(0, |bits, (i, _)| bits | 1 << i)
    }

    /// The layers with a rule for this object that allows an access, as bits.
    pub(crate) fn allowing(&self, object: ObjectKey, access: u64) -> u16 {
        self.bits(|l| l.rules.files.get(&object).is_some_and(|(a, _)| a & access == access))
    }

    /// Some layer is about files: mounts cannot be changed.
    pub fn restricts_files(&self) -> bool {
        self.layers.iter().any(|l| l.handled.fs != 0)
    }

    /// EACCES unless every layer that handles an access to ports allows it for this one.
    pub fn check_port(&self, port: u16, access: u64) -> Result<()> {
        let refuses = |l: &Arc<Layer>| {
            l.handled.net & access != 0 && l.rules.ports.get(&port).copied().unwrap_or(0) & access == 0
        };
        if self.layers.iter().any(refuses) { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// Whether a task under `other` is in this domain or in one made from it.
    pub fn contains(&self, other: Option<&Domain>) -> bool {
        let Some(other) = other else { return false };
        let pairs = self.layers.iter().zip(&other.layers);
        other.layers.len() >= self.layers.len() && pairs.into_iter().all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// EPERM when a scope of this domain does not reach a task under `other`.
    pub fn check_scope(&self, scope: u64, other: Option<&Domain>) -> Result<()> {
        let Some(last) = self.layers.iter().rposition(|l| l.handled.scoped & scope != 0) else {
            return Ok(());
        };
        let theirs = other.and_then(|o| o.layers.get(last));
        let mine = self.layers.get(last);
        let inside = matches!((mine, theirs), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
        if inside { Ok(()) } else { Err(Errno::EPERM) }
    }
}
