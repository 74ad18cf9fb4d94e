//! Chains of rules, and lists of them by family and point, in the order of their priorities.

use crate::packet::{Family, Packet};
use lock_order::RwLock;
use netstack::hooks::{Point, Verdict};
use std::sync::Arc;

/// Priorities of chains (`enum nf_ip_hook_priorities`).
pub mod priority {
    /// Before tracking: table raw.
    pub const RAW: i32 = -300;
    /// Connection tracking.
    pub const CONNTRACK: i32 = -200;
    /// Table mangle.
    pub const MANGLE: i32 = -150;
    /// Destination translation.
    pub const NAT_DST: i32 = -100;
    /// Table filter.
    pub const FILTER: i32 = 0;
    /// Table security.
    pub const SECURITY: i32 = 50;
    /// Source translation.
    pub const NAT_SRC: i32 = 100;
    /// Connections enter the table.
    pub const CONFIRM: i32 = i32::MAX;
}

/// A chain of rules. Chains of one packet run one after another, on any thread.
pub trait Chain: Send + Sync {
    /// Decides on a packet.
    fn run(&self, packet: &mut Packet<'_>) -> Verdict;
}

#[derive(Clone)]
pub(crate) struct Hook {
    pub(crate) priority: i32,
    pub(crate) id: u64,
    pub(crate) chain: Arc<dyn Chain>,
}

/// Chains by family and point, in order.
#[derive(Clone, Default)]
pub(crate) struct Lists([[Vec<Hook>; 5]; 2]);

impl Lists {
    pub(crate) fn of(&self, family: Family, point: Point) -> &[Hook] {
        &self.0[family as usize][point as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().flatten().map(Vec::len).sum()
    }

    /// Of equal priorities the one that was registered last runs first, as with Linux, which inserts a chain before its equals.
    pub(crate) fn insert(&mut self, family: Family, point: Point, hook: Hook) {
        let list = &mut self.0[family as usize][point as usize];
        let place = list.partition_point(|other| other.priority < hook.priority);
        list.insert(place, hook);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Hook> {
        self.0.iter_mut().flatten().find_map(|list| {
            let place = list.iter().position(|hook| hook.id == id)?;
            Some(list.remove(place))
        })
    }
}

/// Chains that decide on translation, called by the translation of their point. The lock is not held while chains run.
#[derive(Default)]
pub(crate) struct NatChains(pub(crate) RwLock<Arc<Lists>>);

impl NatChains {
    /// Runs the chains until one does not accept or `done`.
    pub(crate) fn run(&self, packet: &mut Packet<'_>, done: impl Fn(&Packet<'_>) -> bool) -> Verdict {
        let chains = self.0.read().clone();
        for hook in chains.of(packet.family, packet.point) {
            let verdict = hook.chain.run(packet);
            if verdict != Verdict::Accept || done(packet) {
                return verdict;
            }
        }
        Verdict::Accept
    }
}
