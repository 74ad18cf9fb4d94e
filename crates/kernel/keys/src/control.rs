//! The operations of add_key(2), request_key(2) and keyctl(2).

use crate::holder::{DEFAULT_RING, Holder, Subject};
use crate::key::{Index, Kind, Payload, Serial, need};
use crate::lookup::{For, FoundKey};
use crate::quota::Setting;
use crate::rings::Rings;
use crate::search::{SearchTarget, States, allows};
use crate::store::{Keys, NewKey, Store};
use abi::{Errno, Result};
use rights::Cap;
use std::time::Duration;

/// How long a key that was asked for and not there stays negative.
const NEGATIVE: Duration = Duration::from_secs(60);
const WRITE: For = For::new(need::WRITE).creating();

impl Keys {
    /// add_key(2): makes a key, or gives a new payload to the one of that type and description in the keyring.
    pub fn add(
        &self,
        subject: &Subject<'_>,
        kind: Option<Kind>,
        description: Option<Vec<u8>>,
        payload: Vec<u8>,
        ring: i32,
    ) -> Result<Serial> {
        let mut store = self.store.lock();
        store.purge(subject.now);
        let FoundKey { serial: ring, possessed } = store.look_up(subject, ring, WRITE)?;
        let kind = kind.ok_or(Errno::ENODEV)?;
        store.key(ring)?.links()?;
        kind.check_payload(&payload)?;
        let description = description.ok_or(Errno::EINVAL)?;
        let index: Index = (kind, description.into());
        let old = store.key(ring)?.links()?.get(&index).copied().filter(|_| kind.updates());
        if let Some(serial) = old
            && store.key(serial)?.revoked.is_none()
        {
            if !allows(subject, store.key(serial)?, possessed, need::WRITE) {
                return Err(Errno::EACCES);
            }
            store.fill(serial, payload)?;
            return Ok(serial);
        }
        let (kind, description) = index;
        kind.check_description(&description)?;
        let payload = match kind {
            Kind::Keyring => Payload::Links(Default::default()),
            _ => Payload::Bytes(payload),
        };
        let serial = store.make(NewKey {
            kind,
            description,
            payload,
            owner: subject.owner(),
            gid: Some(subject.creds.fsgid),
            permissions: kind.default_permissions(),
            counted: true,
            overrun: false,
        })?;
        if kind == Kind::Keyring {
            store.name(serial);
        }
        let linked = store.link(ring, serial);
        store.drop_unused(serial);
        linked.map(|()| serial)
    }

    /// request_key(2). With `make` a key that is not there is negated, as without request-key(8).
    pub fn request(
        &self,
        subject: &Subject<'_>,
        kind: Option<Kind>,
        description: Vec<u8>,
        make: bool,
        ring: i32,
    ) -> Result<Serial> {
        let mut store = self.store.lock();
        store.purge(subject.now);
        let ring = if ring == 0 { None } else { Some(store.look_up(subject, ring, WRITE)?.serial) };
        let index: Index = (kind.ok_or(Errno::ENOKEY)?, description.into());
        match store.search_own(subject, &SearchTarget::Named(&index), States::NotExpired) {
            Ok(serial) => {
                if let Some(ring) = ring {
                    store.link(ring, serial)?;
                }
                store.key(serial)?.usable(subject.now)?;
                Ok(serial)
            }
            Err(Errno::EAGAIN) if make => {
                store.negate(subject, index, ring)?;
                Err(Errno::ENOKEY)
            }
            Err(Errno::EAGAIN) => Err(Errno::ENOKEY),
            Err(e) => Err(e),
        }
    }

    /// KEYCTL_GET_KEYRING_ID.
    pub fn id(&self, subject: &Subject<'_>, id: i32, create: bool) -> Result<Serial> {
        let what = For { create, ..For::new(need::SEARCH) };
        Ok(self.store.lock().look_up(subject, id, what)?.serial)
    }

    /// KEYCTL_JOIN_SESSION_KEYRING.
    pub fn join_session(&self, subject: &Subject<'_>, name: Option<Vec<u8>>) -> Result<Serial> {
        let mut store = self.store.lock();
        store.purge(subject.now);
        let Some(name) = name else { return store.install_session(subject, None) };
        let ns = subject.creds.user_ns.inum();
        let known = store.keys.iter().find(|(_, k)| {
            k.joinable
                && k.owner.0 == ns
                && *k.description == *name
                && k.revoked.is_none()
                && allows(subject, k, false, need::SEARCH)
        });
        let known = known.map(|(serial, _)| *serial);
        if known.is_some() && known == store.rings_of(subject.holder).session {
            return Ok(0);
        }
        let serial = match known {
            Some(serial) => serial,
            None => {
                let permissions = need::ALL << 24 | (need::VIEW | need::READ | need::LINK) << 16;
                let new = NewKey::ring("", subject.user(), Some(subject.creds.gid), permissions);
                let serial = store.make(NewKey { description: name.into(), overrun: false, ..new })?;
                store.name(serial);
                serial
            }
        };
        store.install_session(subject, Some(serial))
    }

    /// KEYCTL_SESSION_TO_PARENT: the parent's session is the caller's from now on. The caller has looked whether that may be.
    pub fn give_session(&self, subject: &Subject<'_>, parent: &Holder) -> Result<()> {
        let mut store = self.store.lock();
        let session = store.look_up(subject, -3, For::new(need::LINK))?.serial;
        let parent = Subject { holder: parent, ..*subject };
        store.install_session(&parent, Some(session)).map(drop)
    }

    /// KEYCTL_UPDATE.
    pub fn update(&self, subject: &Subject<'_>, id: i32, payload: Vec<u8>) -> Result<()> {
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::new(need::WRITE))?.serial;
        let kind = store.key(serial)?.kind;
        if !kind.updates() {
            return Err(Errno::EOPNOTSUPP);
        }
        kind.check_payload(&payload)?;
        store.fill(serial, payload)
    }

    /// KEYCTL_REVOKE.
    pub fn revoke(&self, subject: &Subject<'_>, id: i32) -> Result<()> {
        let mut store = self.store.lock();
        let found = match store.look_up(subject, id, For::new(need::WRITE)) {
            Err(Errno::EACCES) => store.look_up(subject, id, For::new(need::SETATTR))?,
            other => other?,
        };
        if store.key(found.serial)?.links().is_ok() {
            store.clear(found.serial)?;
        } else {
            store.key_mut(found.serial)?.payload = Payload::Bytes(Vec::new());
        }
        store.key_mut(found.serial)?.revoked = Some(subject.now);
        store.recount(found.serial);
        Ok(())
    }

    /// KEYCTL_INVALIDATE.
    pub fn invalidate(&self, subject: &Subject<'_>, id: i32) -> Result<()> {
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::new(need::SEARCH))?.serial;
        store.invalidate(serial)
    }

    /// KEYCTL_CHOWN; `None` leaves the user or the group. Like Linux, root of a user namespace has no special rights.
    pub fn chown(&self, subject: &Subject<'_>, id: i32, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        if uid.is_none() && gid.is_none() {
            return Ok(());
        }
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::SETATTR)?.serial;
        let key = store.key(serial)?;
        if !subject.creds.capable(Cap::SYS_ADMIN) {
            let group = |g: u32| g == subject.creds.fsgid || subject.creds.in_group(g) || key.gid == Some(g);
            if uid.is_some_and(|u| u != key.owner.1) || gid.is_some_and(|g| !group(g)) {
                return Err(Errno::EACCES);
            }
        }
        if let Some(uid) = uid {
            store.change_owner(serial, uid)?;
        }
        if gid.is_some() {
            store.key_mut(serial)?.gid = gid;
        }
        Ok(())
    }

    /// KEYCTL_SETPERM. Like Linux, root of a user namespace has no special rights.
    pub fn set_permissions(&self, subject: &Subject<'_>, id: i32, permissions: u32) -> Result<()> {
        if permissions & !0x3f3f_3f3f != 0 {
            return Err(Errno::EINVAL);
        }
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::SETATTR)?.serial;
        let key = store.key_mut(serial)?;
        if key.owner != subject.owner() && !subject.creds.capable(Cap::SYS_ADMIN) {
            return Err(Errno::EACCES);
        }
        key.permissions = permissions;
        Ok(())
    }

    /// KEYCTL_SET_TIMEOUT; 0 is for ever.
    pub fn set_timeout(&self, subject: &Subject<'_>, id: i32, seconds: u32) -> Result<()> {
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::SETATTR)?.serial;
        let end = subject.now.plus(Duration::from_secs(seconds.into()));
        store.key_mut(serial)?.expiry = (seconds != 0).then_some(end);
        Ok(())
    }

    /// KEYCTL_DESCRIBE, without the NUL.
    pub fn describe(&self, subject: &Subject<'_>, id: i32) -> Result<Vec<u8>> {
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::new(need::VIEW).partial())?.serial;
        let key = store.key(serial)?;
        let (uid, gid) = key.shown_owner(&subject.creds.user_ns);
        let (uid, gid) = (uid as i32, gid as i32);
        let head = format!("{};{uid};{gid};{:08x};", key.kind.name(), key.permissions);
        Ok([head.as_bytes(), &key.description].concat())
    }

    /// KEYCTL_GET_SECURITY finds that the key may be seen.
    pub fn view(&self, subject: &Subject<'_>, id: i32) -> Result<()> {
        self.store.lock().look_up(subject, id, For::new(need::VIEW).partial()).map(drop)
    }

    /// KEYCTL_READ.
    pub fn read(&self, subject: &Subject<'_>, id: i32) -> Result<Vec<u8>> {
        let mut store = self.store.lock();
        let FoundKey { serial, possessed } = store.look_up(subject, id, For::READ)?;
        let key = store.key(serial)?;
        if let Payload::Negative(e) = key.payload {
            return Err(e);
        }
        // What can be found by its keyrings can be read.
        if !possessed && !allows(subject, key, false, need::READ) {
            return Err(Errno::EACCES);
        }
        if !key.kind.reads() {
            return Err(Errno::EOPNOTSUPP);
        }
        key.validate(subject.now)?;
        Ok(match &key.payload {
            Payload::Bytes(bytes) => bytes.clone(),
            Payload::Links(links) => links.values().flat_map(|s| s.to_le_bytes()).collect(),
            Payload::Negative(e) => return Err(*e),
        })
    }

    /// KEYCTL_CLEAR.
    pub fn clear(&self, subject: &Subject<'_>, id: i32) -> Result<()> {
        let mut store = self.store.lock();
        let ring = store.look_up(subject, id, WRITE)?.serial;
        store.clear(ring)
    }

    /// KEYCTL_LINK.
    pub fn link(&self, subject: &Subject<'_>, id: i32, ring: i32) -> Result<()> {
        let mut store = self.store.lock();
        let ring = store.look_up(subject, ring, WRITE)?.serial;
        let serial = store.look_up(subject, id, For::new(need::LINK).creating())?.serial;
        store.link(ring, serial)
    }

    /// KEYCTL_UNLINK.
    pub fn unlink(&self, subject: &Subject<'_>, id: i32, ring: i32) -> Result<()> {
        let mut store = self.store.lock();
        let ring = store.look_up(subject, ring, For::new(need::WRITE))?.serial;
        let serial = store.find(subject, id, false)?.serial;
        store.unlink(ring, serial)
    }

    /// KEYCTL_MOVE; `only_new`: EEXIST when there is one of that type and description already.
    pub fn move_(&self, subject: &Subject<'_>, id: i32, from: i32, to: i32, only_new: bool) -> Result<()> {
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::new(need::LINK).creating())?.serial;
        let from = store.look_up(subject, from, For::new(need::WRITE))?.serial;
        let to = store.look_up(subject, to, WRITE)?.serial;
        if from == to {
            return Ok(());
        }
        let index = store.key(serial)?.index();
        if store.key(from)?.links()?.get(&index) != Some(&serial) {
            return Err(Errno::ENOENT);
        }
        if only_new && store.key(to)?.links()?.contains_key(&index) {
            return Err(Errno::EEXIST);
        }
        store.link(to, serial)?;
        store.unlink(from, serial)
    }

    /// KEYCTL_SEARCH.
    pub fn search(
        &self,
        subject: &Subject<'_>,
        ring: i32,
        kind: Option<Kind>,
        description: Vec<u8>,
        to: i32,
    ) -> Result<Serial> {
        let mut store = self.store.lock();
        let FoundKey { serial: ring, possessed } = store.look_up(subject, ring, For::new(need::SEARCH))?;
        let to = if to == 0 { None } else { Some(store.look_up(subject, to, WRITE)?.serial) };
        let index: Index = (kind.ok_or(Errno::ENOKEY)?, description.into());
        let found = store.search(subject, ring, possessed, &SearchTarget::Named(&index), States::Usable);
        let serial = found.map_err(|e| if e == Errno::EAGAIN { Errno::ENOKEY } else { e })?;
        if let Some(to) = to {
            if !allows(subject, store.key(serial)?, possessed, need::LINK) {
                return Err(Errno::EACCES);
            }
            store.link(to, serial)?;
        }
        Ok(serial)
    }

    /// KEYCTL_SET_REQKEY_KEYRING; gives the setting before.
    pub fn set_destination(&self, subject: &Subject<'_>, which: i32) -> Result<i32> {
        let mut store = self.store.lock();
        let old = store.rings_of(subject.holder).destination;
        match which {
            -1 => return Ok(old),
            1 => drop(store.install_thread(subject)?),
            2 => drop(store.install_process(subject)?),
            0 | 3 | 4 | 5 | 7 => {}
            _ => return Err(Errno::EINVAL),
        }
        let rings = store.rings_of(subject.holder);
        store.set_rings(subject.holder, Rings { destination: which, ..rings });
        Ok(old)
    }

    /// KEYCTL_RESTRICT_KEYRING without a type: nothing more is linked to the keyring.
    pub fn restrict(&self, subject: &Subject<'_>, id: i32, kind: Option<Option<Kind>>) -> Result<()> {
        let mut store = self.store.lock();
        let serial = store.look_up(subject, id, For::new(need::SETATTR))?.serial;
        store.key(serial)?.links()?;
        match kind {
            None => {}
            // No type here has restrictions of its own.
            Some(Some(_)) => return Err(Errno::ENOENT),
            Some(None) => return Err(Errno::ENOKEY),
        }
        let key = store.key_mut(serial)?;
        if std::mem::replace(&mut key.restricted, true) { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// KEYCTL_GET_PERSISTENT: the keyring of a user that stays without sessions, linked to another one.
    pub fn persistent(&self, subject: &Subject<'_>, uid: Option<u32>, to: i32) -> Result<Serial> {
        let mut store = self.store.lock();
        store.purge(subject.now);
        let own = (subject.creds.uid, subject.creds.euid);
        let uid = uid.unwrap_or(own.0);
        if uid != own.0 && uid != own.1 && !subject.creds.own_ns_capable(Cap::SETUID) {
            return Err(Errno::EPERM);
        }
        let to = store.look_up(subject, to, WRITE)?.serial;
        store.key(to)?.links()?;
        let serial = store.persistent_of(subject, uid)?;
        store.link(to, serial)?;
        let life = Duration::from_secs(store.setting(Setting::PersistentExpiry).into());
        store.key_mut(serial)?.expiry = Some(subject.now.plus(life));
        Ok(serial)
    }
}

impl Store {
    /// Gives a key another payload.
    fn fill(&mut self, serial: Serial, payload: Vec<u8>) -> Result<()> {
        let key = self.key(serial)?;
        let (before, after) = (key.size(), key.description.len() as u64 + 1 + payload.len() as u64);
        if key.charged.is_some() && after > before {
            self.room(key.owner, 0, after - before, false)?;
        }
        let key = self.key_mut(serial)?;
        key.payload = Payload::Bytes(payload);
        key.expiry = None;
        self.recount(serial);
        Ok(())
    }

    /// Makes a key that answers ENOKEY for a while.
    fn negate(&mut self, subject: &Subject<'_>, index: Index, ring: Option<Serial>) -> Result<()> {
        let ring = match ring {
            Some(ring) => ring,
            None => self.destination(subject)?,
        };
        let (kind, description) = index;
        kind.check_description(&description)?;
        let serial = self.make(NewKey {
            kind,
            description,
            payload: Payload::Negative(Errno::ENOKEY),
            owner: subject.owner(),
            gid: Some(subject.creds.fsgid),
            permissions: kind.default_permissions(),
            counted: true,
            overrun: false,
        })?;
        self.key_mut(serial)?.expiry = Some(subject.now.plus(NEGATIVE));
        let linked = self.link(ring, serial);
        self.drop_unused(serial);
        linked
    }

    /// Where request_key(2) puts what it is not told to put elsewhere.
    fn destination(&mut self, subject: &Subject<'_>) -> Result<Serial> {
        let rings = self.rings_of(subject.holder);
        let (user, user_session) = self.user_rings(subject)?;
        let from = |first: Option<Serial>| first.or(rings.session).unwrap_or(user_session);
        let ring = match rings.destination {
            DEFAULT_RING => from(rings.thread.or(rings.process)),
            1 => from(rings.thread.or(rings.process)),
            2 => from(rings.process),
            4 => user,
            5 => user_session,
            _ => from(None),
        };
        if allows(subject, self.key(ring)?, true, need::WRITE) { Ok(ring) } else { Err(Errno::EACCES) }
    }

    fn persistent_of(&mut self, subject: &Subject<'_>, uid: u32) -> Result<Serial> {
        let owner = (subject.creds.user_ns.inum(), uid);
        if let Some(serial) = self.users.get(&owner).and_then(|u| u.persistent) {
            if self.key(serial)?.validate(subject.now).is_ok() {
                return Ok(serial);
            }
            // First, so that a user without other keys is forgotten when there is no room for a new one.
            if let Some(user) = self.users.get_mut(&owner) {
                user.persistent = None;
            }
            self.release(serial);
        }
        let permissions = (need::ALL & !need::SETATTR) << 24 | (need::VIEW | need::READ) << 16;
        let name = format!("_persistent.{}", subject.number_of(uid));
        let new = NewKey { counted: false, ..NewKey::ring(&name, owner, None, permissions) };
        let serial = self.make(new)?;
        self.hold(serial);
        if let Some(user) = self.users.get_mut(&owner) {
            user.persistent = Some(serial);
        }
        Ok(serial)
    }
}
