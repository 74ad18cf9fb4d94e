//! Keys and the keyrings of threads as plain data, for a checkpoint.

use crate::holder::Holder;
use crate::key::{Key, Kind, Owner, PAYLOAD_MAX, Payload, Serial};
use crate::quota::{Setting, User};
use crate::rings::Rings;
use crate::store::{Keys, Store};
use abi::{Errno, Result};
use ktime::Ktime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a key holds, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PayloadState {
    /// Bytes.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Links of a keyring.
    Links(Vec<Serial>),
    /// Asked for and not there: the error that it answers.
    Negative(i32),
}

/// A key as plain data. Links and holders that keep it follow from the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyState {
    serial: Serial,
    kind: Kind,
    #[serde(with = "serde_bytes")]
    description: Vec<u8>,
    payload: PayloadState,
    /// User namespace and user.
    owner: (u64, u32),
    gid: Option<u32>,
    permissions: u32,
    expiry: Option<Ktime>,
    revoked: Option<Ktime>,
    invalid: bool,
    counted: bool,
    joinable: bool,
    of_user: bool,
    restricted: bool,
}

/// The keyrings of a user as plain data: `_uid.N`, `_uid_ses.N`, and the persistent one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserState {
    owner: (u64, u32),
    rings: [Option<Serial>; 3],
}

/// All keys of a kernel as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysState {
    keys: Vec<KeyState>,
    users: Vec<UserState>,
    /// /proc/sys/kernel/keys.
    settings: Vec<(Setting, u32)>,
}

/// The keyrings of a thread as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderState {
    thread: Option<Serial>,
    process: Option<Serial>,
    session: Option<Serial>,
    destination: i32,
}

fn key_state((serial, key): (&Serial, &Key)) -> KeyState {
    // Field by field, so that a new field is either kept or does not compile.
    let Key {
        kind,
        description,
        payload,
        owner,
        gid,
        permissions,
        expiry,
        revoked,
        invalid,
        references: _,
        charged,
        joinable,
        of_user,
        restricted,
    } = key;
    let payload = match payload {
        Payload::Bytes(bytes) => PayloadState::Bytes(bytes.clone()),
        Payload::Links(links) => PayloadState::Links(links.values().copied().collect()),
        Payload::Negative(error) => PayloadState::Negative(error.raw()),
    };
    KeyState {
        serial: *serial,
        kind: *kind,
        description: description.to_vec(),
        payload,
        owner: *owner,
        gid: *gid,
        permissions: *permissions,
        expiry: *expiry,
        revoked: *revoked,
        invalid: *invalid,
        counted: charged.is_some(),
        joinable: *joinable,
        of_user: *of_user,
        restricted: *restricted,
    }
}

impl Keys {
    /// As plain data.
    pub fn state(&self) -> KeysState {
        let store = self.store.lock();
        let known = |ring: Option<Serial>| ring.filter(|ring| store.keys.contains_key(ring));
        let rings = |user: &User| [user.ring, user.session, user.persistent].map(known);
        let users = store.users.iter().map(|(owner, user)| UserState { owner: *owner, rings: rings(user) });
        KeysState {
            keys: store.keys.iter().map(key_state).collect(),
            users: users.collect(),
            settings: store.settings.iter().map(|(k, v)| (*k, *v)).collect(),
        }
    }

    /// The user namespaces of the keys' owners.
    pub fn namespaces(&self) -> BTreeSet<u64> {
        self.store.lock().users.keys().map(|(ns, _)| *ns).collect()
    }

    /// Gives a kernel without keys those of plain data. `namespace` gives the inode number of a user namespace by that of before.
    /// EINVAL for what cannot be, EDQUOT when the keys are too many.
    pub fn restore(&self, saved: &KeysState, namespace: &dyn Fn(u64) -> Option<u64>) -> Result<()> {
        let owner =
            |(ns, user): (u64, u32)| -> Result<Owner> { Ok((namespace(ns).ok_or(Errno::EINVAL)?, user)) };
        let mut store = self.store.lock();
        store.settings.extend(saved.settings.iter().copied());
        for one in &saved.keys {
            store.restore_key(one, owner(one.owner)?)?;
        }
        for one in &saved.keys {
            let PayloadState::Links(links) = &one.payload else { continue };
            for to in links {
                store.room_for_link()?;
                let index = store.key(*to).map_err(|_| Errno::EINVAL)?.index();
                let keyring = store.key_mut(one.serial)?.links_mut()?;
                if keyring.insert(index, *to).is_some() {
                    return Err(Errno::EINVAL);
                }
                store.hold(*to);
                store.totals.links += 1;
            }
            store.recount(one.serial);
        }
        store.no_circles()?;
        for one in &saved.users {
            let mut rings = Vec::new();
            for ring in one.rings.into_iter().flatten() {
                if store.key(ring).map_err(|_| Errno::EINVAL)?.kind != Kind::Keyring {
                    return Err(Errno::EINVAL);
                }
                rings.push(ring);
            }
            let user = store.users.entry(owner(one.owner)?).or_default();
            if user.ring.is_some() || user.session.is_some() || user.persistent.is_some() {
                return Err(Errno::EINVAL);
            }
            [user.ring, user.session, user.persistent] = one.rings;
            rings.into_iter().for_each(|ring| store.hold(ring));
        }
        Ok(())
    }

    /// What no restored thread, user or keyring has any more goes.
    pub fn settle(&self) {
        let mut store = self.store.lock();
        let unused: Vec<Serial> =
            store.keys.iter().filter(|(_, key)| key.references == 0).map(|(serial, _)| *serial).collect();
        unused.into_iter().for_each(|serial| store.drop_unused(serial));
    }
}

impl Store {
    fn restore_key(&mut self, saved: &KeyState, owner: Owner) -> Result<()> {
        let payload = match &saved.payload {
            PayloadState::Bytes(bytes) if saved.kind != Kind::Keyring && bytes.len() <= PAYLOAD_MAX => {
                Payload::Bytes(bytes.clone())
            }
            PayloadState::Links(_) if saved.kind == Kind::Keyring => Payload::Links(BTreeMap::new()),
            PayloadState::Negative(error) if saved.kind != Kind::Keyring && (1..4096).contains(error) => {
                Payload::Negative(Errno::from_raw(*error))
            }
            _ => return Err(Errno::EINVAL),
        };
        if saved.serial < 3 || saved.description.len() >= crate::DESCRIPTION_MAX {
            return Err(Errno::EINVAL);
        }
        let mut key = Key {
            kind: saved.kind,
            description: Arc::from(&*saved.description),
            payload,
            owner,
            gid: saved.gid,
            permissions: saved.permissions,
            expiry: saved.expiry,
            revoked: saved.revoked,
            invalid: saved.invalid,
            references: 0,
            charged: None,
            joinable: saved.joinable,
            of_user: saved.of_user,
            restricted: saved.restricted,
        };
        let size = key.size();
        // The limit of all users counts; what a user has was allowed before.
        self.room(owner, 1, size, true)?;
        key.charged = saved.counted.then_some(size);
        let user = self.users.entry(owner).or_default();
        user.keys += 1;
        if saved.counted {
            user.quota_keys += 1;
            user.quota_bytes += size;
            self.totals.bytes += size;
        }
        if self.keys.insert(saved.serial, key).is_some() { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// EINVAL when a keyring is below itself.
    fn no_circles(&self) -> Result<()> {
        // Keyrings of which all that is below them is known to have no circle.
        let mut done = BTreeSet::new();
        for start in self.keys.keys() {
            let mut path = vec![(*start, self.rings_below(*start))];
            let mut on_path = BTreeSet::from([*start]);
            while let Some((serial, below)) = path.last_mut() {
                match below.pop() {
                    Some(next) if done.contains(&next) => {}
                    Some(next) if !on_path.insert(next) => return Err(Errno::EINVAL),
                    Some(next) => path.push((next, self.rings_below(next))),
                    None => {
                        done.insert(*serial);
                        on_path.remove(serial);
                        path.pop();
                    }
                }
            }
        }
        Ok(())
    }

    fn rings_below(&self, serial: Serial) -> Vec<Serial> {
        let key = self.keys.get(&serial);
        key.and_then(|key| key.keyrings().ok()).map(Iterator::collect).unwrap_or_default()
    }
}

impl Holder {
    /// As plain data; `None` for a thread that names no keyring.
    pub fn state(&self) -> Option<HolderState> {
        if self.is_default() {
            return None;
        }
        let Rings { thread, process, session, destination } = self.keys.store.lock().rings_of(self);
        Some(HolderState { thread, process, session, destination })
    }

    /// Back from plain data. EINVAL for keyrings that are not there.
    pub fn restore(keys: &Arc<Keys>, saved: &HolderState) -> Result<Holder> {
        let new = Holder::new(keys);
        let HolderState { thread, process, session, destination } = *saved;
        let mut store = keys.store.lock();
        for ring in [thread, process, session].into_iter().flatten() {
            if store.key(ring).map_err(|_| Errno::EINVAL)?.kind != Kind::Keyring {
                return Err(Errno::EINVAL);
            }
        }
        [thread, process, session].into_iter().flatten().for_each(|ring| store.hold(ring));
        store.set_rings(&new, Rings { thread, process, session, destination });
        drop(store);
        Ok(new)
    }
}

/// States that cannot be, made from one that has a keyring with links.
#[cfg(test)]
pub(crate) fn hostile(good: &KeysState) -> Vec<KeysState> {
    let ring = |one: &&mut KeyState| matches!(&one.payload, PayloadState::Links(links) if !links.is_empty());
    let with = |change: &dyn Fn(&mut KeyState)| {
        let mut saved = good.clone();
        saved.keys.iter_mut().find(ring).into_iter().for_each(change);
        saved
    };
    let twice = KeysState { keys: [&good.keys[..], &good.keys[..1]].concat(), ..good.clone() };
    let users = KeysState { users: vec![UserState { owner: (1, 1), rings: [Some(9); 3] }], ..good.clone() };
    vec![
        twice,
        users,
        with(&|one| one.payload = PayloadState::Links(vec![one.serial])),
        with(&|one| one.payload = PayloadState::Links(vec![5])),
        with(&|one| one.payload = PayloadState::Bytes(vec![5])),
        with(&|one| one.kind = Kind::User),
        with(&|one| one.serial = 0),
        with(&|one| one.description = vec![0; 5000]),
    ]
}
