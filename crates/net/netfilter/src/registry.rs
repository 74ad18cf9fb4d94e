//! [`Netfilter`]: the chains of a network namespace.

use crate::action::Log;
use crate::chain::{Chain, Hook, Lists, NatChains};
use crate::packet::{Family, Packet};
use crate::state::FilterState;
use crate::{nat, track};
use account::Account;
use ktime::Ktime;
use lock_order::{Mutex, RwLock, rank};
use netstack::Stack;
use netstack::hooks::{Answers, Hooked, Hooks, Point, Verdict};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// Chains that one namespace may register.
const MAX_CHAINS: usize = 4096;

/// The packet filter of a network namespace; see the crate.
pub struct Netfilter {
    state: FilterState,
    me: Weak<Netfilter>,
    stack: Weak<Stack>,
    next_id: AtomicU64,
    lists: RwLock<Arc<Lists>>,
    nat: Arc<NatChains>,
    /// Registrations; the filter is in the stack while there are any.
    installed: Mutex<usize, { rank::HOOKS }>,
    /// Tracking and translation (IPv4, IPv6) while they are in use.
    tracking: Mutex<Weak<Internal>, { rank::CONNTRACK_USE }>,
    translating: Mutex<[Weak<Internal>; 2], { rank::NAT_USE }>,
    log: OnceLock<Arc<dyn Log>>,
}

impl Deref for Netfilter {
    type Target = FilterState;

    fn deref(&self) -> &FilterState {
        &self.state
    }
}

impl Netfilter {
    /// A filter without chains for a stack; the secret comes from the kernel's random source.
    pub fn new(stack: &Arc<Stack>, secret: [u8; 16]) -> Arc<Netfilter> {
        Netfilter::sharing(stack, secret, Arc::default())
    }

    /// The same; what its rules and connections take counts for an account that other namespaces use as well.
    pub fn sharing(stack: &Arc<Stack>, secret: [u8; 16], account: Arc<Account>) -> Arc<Netfilter> {
        Arc::new_cyclic(|me| Netfilter {
            state: FilterState::new(secret, account),
            me: me.clone(),
            stack: Arc::downgrade(stack),
            next_id: AtomicU64::new(0),
            lists: RwLock::default(),
            nat: Arc::default(),
            installed: Mutex::new(0),
            tracking: Mutex::default(),
            translating: Mutex::default(),
            log: OnceLock::new(),
        })
    }

    /// Says where log lines go; the first call counts.
    pub fn set_log(&self, log: Arc<dyn Log>) {
        let _ = self.log.set(log);
    }

    /// The stack, while it exists.
    pub fn stack(&self) -> Option<Arc<Stack>> {
        self.stack.upgrade()
    }

    /// Adds a chain at a point. `ENOSPC` when there are too many.
    pub fn register(
        &self,
        family: Family,
        point: Point,
        priority: i32,
        chain: Arc<dyn Chain>,
    ) -> Result<Registration, abi::Errno> {
        self.add(None, family, point, priority, chain)
    }

    /// Adds a chain that decides on translation: it sees the first packet of each connection, and calls [`nat::setup`]. Destinations
    /// are translated at PreRouting and Output, sources at PostRouting and Input; `EOPNOTSUPP` at Forward.
    pub fn register_nat(
        &self,
        family: Family,
        point: Point,
        priority: i32,
        chain: Arc<dyn Chain>,
    ) -> Result<Registration, abi::Errno> {
        if point == Point::Forward {
            return Err(abi::Errno::EOPNOTSUPP);
        }
        let translation = self.need_translation(family)?;
        self.add(Some(translation), family, point, priority, chain)
    }

    fn add(
        &self,
        needs: Option<Arc<Internal>>,
        family: Family,
        point: Point,
        priority: i32,
        chain: Arc<dyn Chain>,
    ) -> Result<Registration, abi::Errno> {
        let nat = needs.is_some();
        let lists = if nat { &self.nat.0 } else { &self.lists };
        let mut all = lists.write();
        if all.len() >= MAX_CHAINS {
            return Err(abi::Errno::ENOSPC);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Arc::make_mut(&mut all).insert(family, point, Hook { priority, id, chain });
        drop(all);
        let mut installed = self.installed.lock();
        *installed += 1;
        if *installed == 1
            && let (Some(stack), Some(me)) = (self.stack(), self.me.upgrade())
        {
            stack.set_hooks(Some(me));
        }
        Ok(Registration { owner: self.me.clone(), nat, id, _needs: needs })
    }

    fn remove(&self, nat: bool, id: u64) {
        let lists = if nat { &self.nat.0 } else { &self.lists };
        // Bound to a name, so that the chain is dropped after the lock is free.
        let removed = Arc::make_mut(&mut lists.write()).remove(id);
        drop(removed);
        let mut installed = self.installed.lock();
        *installed = installed.saturating_sub(1);
        if *installed == 0
            && let Some(stack) = self.stack()
        {
            stack.set_hooks(None);
        }
    }

    /// Tracks connections while the guard lives.
    pub fn need_conntrack(&self) -> Result<TrackingUse, abi::Errno> {
        let mut tracking = self.tracking.lock();
        if let Some(internal) = tracking.upgrade() {
            return Ok(TrackingUse(internal));
        }
        let mut all = Vec::new();
        for family in [Family::V4, Family::V6] {
            for (point, priority, chain) in track::chains() {
                all.push(self.register(family, point, priority, chain)?);
            }
        }
        let internal = Arc::new(Internal { _registrations: all, _tracking: None });
        *tracking = Arc::downgrade(&internal);
        Ok(TrackingUse(internal))
    }

    /// True while connections are tracked.
    pub fn is_tracking(&self) -> bool {
        self.tracking.lock().upgrade().is_some()
    }

    fn need_translation(&self, family: Family) -> Result<Arc<Internal>, abi::Errno> {
        let mut translating = self.translating.lock();
        let place = &mut translating[family as usize];
        if let Some(internal) = place.upgrade() {
            return Ok(internal);
        }
        let tracking = self.need_conntrack()?;
        let chains = nat::chains(&self.nat).into_iter();
        let all = chains.map(|(point, priority, chain)| self.register(family, point, priority, chain));
        let internal =
            Arc::new(Internal { _registrations: all.collect::<Result<_, _>>()?, _tracking: Some(tracking) });
        *place = Arc::downgrade(&internal);
        Ok(internal)
    }
}

impl Hooks for Netfilter {
    fn look(&self, hooked: &mut Hooked<'_>) -> Verdict {
        let Some(mut packet) = Packet::new(&self.state, hooked) else {
            // Nothing can be said of it; the stack drops it itself.
            return Verdict::Accept;
        };
        // No lock is held while chains run: the last use of a chain, and with it a registration, may end here.
        let chains = self.lists.read().clone();
        for hook in chains.of(packet.family, packet.point) {
            let verdict = hook.chain.run(&mut packet);
            if verdict != Verdict::Accept {
                return verdict;
            }
        }
        Verdict::Accept
    }

    fn run_deferred(&self, answers: &dyn Answers, now: Ktime) -> bool {
        let waiting = self.state.take_deferred();
        let worked = !waiting.is_empty();
        let log = self.log.get().map(|log| &**log);
        waiting.into_iter().for_each(|action| crate::action::run(action, answers, now, log));
        worked
    }
}

impl fmt::Debug for Netfilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netfilter").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// A chain's place; it ends with the value.
pub struct Registration {
    owner: Weak<Netfilter>,
    nat: bool,
    id: u64,
    /// Translation, for chains that decide on it.
    _needs: Option<Arc<Internal>>,
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.remove(self.nat, self.id);
        }
    }
}

/// Chains of this crate that are in place together.
struct Internal {
    _registrations: Vec<Registration>,
    _tracking: Option<TrackingUse>,
}

/// While it lives, connections are tracked.
pub struct TrackingUse(#[expect(dead_code, reason = "held for its drop")] Arc<Internal>);

impl fmt::Debug for TrackingUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrackingUse")
    }
}
