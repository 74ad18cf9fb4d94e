//! The table of all keys, and the references that keep a key alive.

use crate::key::{Key, Kind, Owner, Payload, Serial};
use crate::quota::{Setting, Totals, User, defaults};
use crate::rings::Rings;
use abi::{Errno, Result};
use ktime::{Clock, Ktime};
use lock_order::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The keys of a kernel.
pub struct Keys {
    pub(crate) store: Mutex<Store>,
    /// Gives the moments at which keys expire and are revoked.
    pub(crate) clock: Clock,
}

/// What is behind the lock.
pub(crate) struct Store {
    pub(crate) keys: BTreeMap<Serial, Key>,
    pub(crate) users: BTreeMap<Owner, User>,
    pub(crate) rings: HashMap<u64, Rings>,
    pub(crate) next_rings: u64,
    pub(crate) settings: BTreeMap<Setting, u32>,
    pub(crate) totals: Totals,
    /// When keys that are dead were last looked for.
    pub(crate) purged: Option<Ktime>,
}

/// What a new key is to be.
pub(crate) struct NewKey {
    pub(crate) kind: Kind,
    pub(crate) description: Arc<[u8]>,
    pub(crate) payload: Payload,
    pub(crate) owner: Owner,
    pub(crate) gid: Option<u32>,
    pub(crate) permissions: u32,
    /// Takes from the quota; with `overrun` also where there is none left.
    pub(crate) counted: bool,
    pub(crate) overrun: bool,
}

impl NewKey {
    pub(crate) fn ring(description: &str, owner: Owner, gid: Option<u32>, permissions: u32) -> NewKey {
        NewKey {
            kind: Kind::Keyring,
            description: description.as_bytes().into(),
            payload: Payload::Links(BTreeMap::new()),
            owner,
            gid,
            permissions,
            counted: true,
            overrun: true,
        }
    }
}

impl Keys {
    /// No keys.
    pub fn new(clock: Clock) -> Arc<Keys> {
        let store = Store {
            keys: BTreeMap::new(),
            users: BTreeMap::new(),
            rings: HashMap::new(),
            next_rings: 1,
            settings: defaults(),
            totals: Totals::default(),
            purged: None,
        };
        Arc::new(Keys { store: Mutex::new(store), clock })
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.store.lock().keys.len()
    }

    /// A value of /proc/sys/kernel/keys.
    pub fn setting(&self, which: Setting) -> u32 {
        self.store.lock().setting(which)
    }

    /// Changes a value of /proc/sys/kernel/keys.
    pub fn set(&self, which: Setting, value: u32) {
        self.store.lock().settings.insert(which, value);
    }
}

impl Store {
    pub(crate) fn key(&self, serial: Serial) -> Result<&Key> {
        self.keys.get(&serial).ok_or(Errno::ENOKEY)
    }

    pub(crate) fn key_mut(&mut self, serial: Serial) -> Result<&mut Key> {
        self.keys.get_mut(&serial).ok_or(Errno::ENOKEY)
    }

    /// Makes a key without references: the caller links or holds it at once, or drops it with [`Store::drop_unused`].
    pub(crate) fn make(&mut self, new: NewKey) -> Result<Serial> {
        let NewKey { kind, description, payload, owner, gid, permissions, counted, overrun } = new;
        let mut key = Key {
            kind,
            description,
            payload,
            owner,
            gid,
            permissions,
            expiry: None,
            revoked: None,
            invalid: false,
            references: 0,
            charged: None,
            joinable: false,
            of_user: false,
            restricted: false,
        };
        let size = key.size();
        self.room(owner, 1, size, overrun || !counted)?;
        let serial = self.free_serial();
        key.charged = counted.then_some(size);
        let user = self.users.entry(owner).or_default();
        user.keys += 1;
        if counted {
            user.quota_keys += 1;
            user.quota_bytes += size;
            self.totals.bytes += size;
        }
        self.keys.insert(serial, key);
        Ok(serial)
    }

    fn free_serial(&self) -> Serial {
        loop {
            let mut b = [0; 4];
            hostsys::clock::random(&mut b);
            let serial = i32::from_le_bytes(b) & i32::MAX;
            if serial >= 3 && !self.keys.contains_key(&serial) {
                return serial;
            }
        }
    }

    /// One reference more.
    pub(crate) fn hold(&mut self, serial: Serial) {
        if let Some(key) = self.keys.get_mut(&serial) {
            key.references += 1;
        }
    }

    /// One reference less; what nothing refers to any more goes, with all that only it kept.
    pub(crate) fn release(&mut self, serial: Serial) {
        if let Some(key) = self.keys.get_mut(&serial) {
            key.references = key.references.saturating_sub(1);
        }
        self.drop_unused(serial);
    }

    /// Drops a key if nothing refers to it.
    pub(crate) fn drop_unused(&mut self, serial: Serial) {
        let mut left = vec![serial];
        while let Some(serial) = left.pop() {
            if self.keys.get(&serial).is_none_or(|k| k.references != 0) {
                continue;
            }
            let Some(key) = self.keys.remove(&serial) else { continue };
            self.uncount(&key);
            let Payload::Links(links) = key.payload else { continue };
            self.totals.links -= links.len();
            for linked in links.into_values() {
                if let Some(k) = self.keys.get_mut(&linked) {
                    k.references = k.references.saturating_sub(1);
                }
                left.push(linked);
            }
        }
    }

    fn uncount(&mut self, key: &Key) {
        let Some(user) = self.users.get_mut(&key.owner) else { return };
        user.keys = user.keys.saturating_sub(1);
        if let Some(size) = key.charged {
            user.quota_keys = user.quota_keys.saturating_sub(1);
            user.quota_bytes = user.quota_bytes.saturating_sub(size);
            self.totals.bytes = self.totals.bytes.saturating_sub(size);
        }
        self.forget_unused(key.owner);
    }

    /// Forgets a user that has no keys any more.
    pub(crate) fn forget_unused(&mut self, owner: Owner) {
        let unused =
            |u: &User| u.keys == 0 && u.ring.is_none() && u.session.is_none() && u.persistent.is_none();
        if self.users.get(&owner).is_some_and(unused) {
            self.users.remove(&owner);
        }
    }
}
