//! [`Netfilter`]: the chains of a network namespace.

use crate::action::{Action, Log, MAX_WAITING};
use crate::packet::{Family, Packet};
use crate::{nat, track};
use account::Account;
use conntrack::Table;
use netstack::Stack;
use netstack::hooks::{Answers, Hooked, Hooks, Point, Verdict};
use netstack::time::Instant;
use parking_lot::{Mutex, RwLock};
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

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

/// Chains that one namespace may register.
const MAX_CHAINS: usize = 4096;

/// A chain of rules. Chains of one packet run one after another, on any thread.
pub trait Chain: Send + Sync {
    /// Decides on a packet.
    fn run(&self, packet: &mut Packet<'_>) -> Verdict;
}

#[derive(Clone)]
struct Hook {
    priority: i32,
    id: u64,
    chain: Arc<dyn Chain>,
}

/// Chains by family and point, in order.
#[derive(Clone, Default)]
struct Lists([[Vec<Hook>; 5]; 2]);

impl Lists {
    fn of(&self, family: Family, point: Point) -> &[Hook] {
        &self.0[family as usize][point as usize]
    }

    fn len(&self) -> usize {
        self.0.iter().flatten().map(Vec::len).sum()
    }

    /// Equal priorities run in the order of their registration.
    fn insert(&mut self, family: Family, point: Point, hook: Hook) {
        let list = &mut self.0[family as usize][point as usize];
        let place = list.partition_point(|other| other.priority <= hook.priority);
        list.insert(place, hook);
    }

    fn remove(&mut self, id: u64) -> Option<Hook> {
        self.0.iter_mut().flatten().find_map(|list| {
            let place = list.iter().position(|hook| hook.id == id)?;
            Some(list.remove(place))
        })
    }
}

/// The packet filter of a network namespace; see the crate.
pub struct Netfilter {
    /// The connections.
    pub connections: Table,
    /// Lists of the match recent.
    pub recent: crate::recent::Lists,
    /// What the filters of all namespaces take.
    pub account: Arc<Account>,
    me: Weak<Netfilter>,
    stack: Weak<Stack>,
    secret: [u8; 16],
    drawn: AtomicU64,
    next_id: AtomicU64,
    lists: RwLock<Arc<Lists>>,
    /// Chains that decide on translation, called by the translation of their point.
    nat: RwLock<Arc<Lists>>,
    /// Registrations; the filter is in the stack while there are any.
    installed: Mutex<usize>,
    /// Tracking and translation (IPv4, IPv6) while they are in use.
    tracking: Mutex<Weak<Internal>>,
    translating: Mutex<[Weak<Internal>; 2]>,
    deferred: Mutex<VecDeque<Action>>,
    log: OnceLock<Arc<dyn Log>>,
}

impl Netfilter {
    /// A filter without chains for a stack; the secret comes from the kernel's random source.
    pub fn new(stack: &Arc<Stack>, secret: [u8; 16]) -> Arc<Netfilter> {
        Netfilter::sharing(stack, secret, Arc::default())
    }

    /// The same; what its rules and connections take counts for an account that other namespaces use as well.
    pub fn sharing(stack: &Arc<Stack>, secret: [u8; 16], account: Arc<Account>) -> Arc<Netfilter> {
        Arc::new_cyclic(|me| Netfilter {
            connections: Table::new(secret, account.clone()),
            recent: crate::recent::Lists::new(account.clone()),
            account,
            me: me.clone(),
            stack: Arc::downgrade(stack),
            secret,
            drawn: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
            lists: RwLock::default(),
            nat: RwLock::default(),
            installed: Mutex::new(0),
            tracking: Mutex::default(),
            translating: Mutex::default(),
            deferred: Mutex::default(),
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
        let lists = if nat { &self.nat } else { &self.lists };
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
        let lists = if nat { &self.nat } else { &self.lists };
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
        let chains = nat::chains().into_iter();
        let all = chains.map(|(point, priority, chain)| self.register(family, point, priority, chain));
        let internal =
            Arc::new(Internal { _registrations: all.collect::<Result<_, _>>()?, _tracking: Some(tracking) });
        *place = Arc::downgrade(&internal);
        Ok(internal)
    }

    /// Runs the chains that decide on translation, until one does not accept or `done`.
    pub(crate) fn run_nat(&self, packet: &mut Packet<'_>, done: impl Fn(&Packet<'_>) -> bool) -> Verdict {
        let chains = self.nat.read().clone();
        for hook in chains.of(packet.family, packet.point) {
            let verdict = hook.chain.run(packet);
            if verdict != Verdict::Accept || done(packet) {
                return verdict;
            }
        }
        Verdict::Accept
    }

    /// Queues what cannot be done while locks are held.
    pub fn defer(&self, action: Action) {
        let mut deferred = self.deferred.lock();
        if deferred.len() < MAX_WAITING {
            deferred.push_back(action);
        }
    }

    /// A number that cannot be guessed from outside.
    pub fn random(&self) -> u64 {
        self.hash(self.drawn.fetch_add(1, Ordering::Relaxed))
    }

    /// A keyed hash.
    pub fn hash(&self, value: impl Hash) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        "netfilter".hash(&mut hasher);
        value.hash(&mut hasher);
        hasher.finish()
    }
}

impl Hooks for Netfilter {
    fn look(&self, hooked: &mut Hooked<'_>) -> Verdict {
        let Some(mut packet) = Packet::new(self, hooked) else {
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

    fn run_deferred(&self, answers: &dyn Answers, now: Instant) -> bool {
        let waiting = std::mem::take(&mut *self.deferred.lock());
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
