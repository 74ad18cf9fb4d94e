//! The keyrings of a thread.

use crate::key::{Owner, Serial, need};
use crate::rings::Rings;
use crate::store::{Keys, NewKey, Store};
use abi::{Errno, Result};
use ktime::Ktime;
use rights::Credentials;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What request_key(2) links a new key to when it is not told, KEYCTL_SET_REQKEY_KEYRING.
pub(crate) const DEFAULT_RING: i32 = 0;

/// The caller of an operation on keys (credentials(7) calls it the subject).
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// With these credentials.
    pub creds: &'a Credentials,
    /// With these keyrings.
    pub holder: &'a Holder,
    /// At this moment.
    pub now: Ktime,
}

impl<'a> Subject<'a> {
    /// A thread, now.
    pub fn new(creds: &'a Credentials, holder: &'a Holder) -> Subject<'a> {
        Subject { creds, holder, now: holder.keys.clock.now() }
    }

    /// The owner of what it makes.
    pub(crate) fn owner(&self) -> Owner {
        (self.creds.user_ns.inum(), self.creds.fsuid)
    }

    /// The number of a user in the caller's user namespace, for names of keyrings; -1 without a number there.
    pub(crate) fn number_of(&self, uid: u32) -> u32 {
        self.creds.user_ns.user_here(uid).unwrap_or(u32::MAX)
    }

    /// The user that owns the keyrings in use.
    pub(crate) fn user(&self) -> Owner {
        (self.creds.user_ns.inum(), self.creds.uid)
    }
}

/// The guard of a thread's keyrings: what it names lives until it goes. Most threads name none, which costs nothing.
pub struct Holder {
    pub(crate) keys: Arc<Keys>,
    /// 0 as long as there is nothing.
    id: AtomicU64,
}

impl Holder {
    /// Of a thread without keyrings.
    pub fn new(keys: &Arc<Keys>) -> Holder {
        Holder { keys: keys.clone(), id: AtomicU64::new(0) }
    }

    /// Whether the thread names no keyring.
    pub fn is_default(&self) -> bool {
        self.id.load(Ordering::Relaxed) == 0
    }

    /// What clone(2) gives to a new thread; of another process the session's keyring alone.
    pub fn inherited(&self, creds: &Credentials, thread: bool) -> Holder {
        let new = Holder::new(&self.keys);
        if self.id.load(Ordering::Relaxed) == 0 {
            return new;
        }
        let mut store = self.keys.store.lock();
        let old = store.rings_of(self);
        let process = old.process.filter(|_| thread);
        let rings = Rings { thread: None, process, ..old };
        for serial in [process, old.session].into_iter().flatten() {
            store.hold(serial);
        }
        store.set_rings(&new, rings);
        if thread && old.thread.is_some() {
            // Without room for it the thread has none.
            let _ = store.install_thread(&Subject::new(creds, &new));
        }
        drop(store);
        new
    }

    /// execve(2): only the session's keyring stays.
    pub fn exec(&self) {
        if self.id.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut store = self.keys.store.lock();
        let old = store.rings_of(self);
        store.set_rings(self, Rings { thread: None, process: None, ..old });
        for serial in [old.thread, old.process].into_iter().flatten() {
            store.release(serial);
        }
    }

    /// The user ID for file access has changed: the thread's keyring is that user's.
    pub fn user_changed(&self, uid: u32) {
        if self.id.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut store = self.keys.store.lock();
        if let Some(serial) = store.rings_of(self).thread {
            store.give_to(serial, uid);
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let id = *self.id.get_mut();
        if id == 0 {
            return;
        }
        let mut store = self.keys.store.lock();
        if let Some(rings) = store.rings.remove(&id) {
            for serial in [rings.thread, rings.process, rings.session].into_iter().flatten() {
                store.release(serial);
            }
        }
    }
}

impl Store {
    pub(crate) fn rings_of(&self, holder: &Holder) -> Rings {
        let id = holder.id.load(Ordering::Relaxed);
        self.rings.get(&id).copied().unwrap_or_default()
    }

    /// Changes the record only: references are the caller's business.
    pub(crate) fn set_rings(&mut self, holder: &Holder, rings: Rings) {
        let mut id = holder.id.load(Ordering::Relaxed);
        if id == 0 {
            id = self.next_rings;
            self.next_rings += 1;
            holder.id.store(id, Ordering::Relaxed);
        }
        self.rings.insert(id, rings);
    }

    fn give_to(&mut self, serial: Serial, uid: u32) {
        let Some(key) = self.keys.get_mut(&serial) else { return };
        let (from, to) = (key.owner, (key.owner.0, uid));
        key.owner = to;
        let charged = key.charged;
        let moved = |user: &mut crate::quota::User, sign: i64| {
            user.keys = user.keys.saturating_add_signed(sign);
            if let Some(size) = charged {
                user.quota_keys = user.quota_keys.saturating_add_signed(sign);
                user.quota_bytes = user.quota_bytes.saturating_add_signed(sign * size as i64);
            }
        };
        if let Some(user) = self.users.get_mut(&from) {
            moved(user, -1);
        }
        moved(self.users.entry(to).or_default(), 1);
        self.forget_unused(from);
    }

    /// KEYCTL_CHOWN's change of the user: EDQUOT when that one has no room.
    pub(crate) fn change_owner(&mut self, serial: Serial, uid: u32) -> Result<()> {
        let key = self.key(serial)?;
        if key.owner.1 == uid {
            return Ok(());
        }
        if let Some(size) = key.charged {
            self.room((key.owner.0, uid), 1, size, false)?;
        }
        self.give_to(serial, uid);
        Ok(())
    }

    /// The thread's keyring, made if it is not there.
    pub(crate) fn install_thread(&mut self, subject: &Subject<'_>) -> Result<Serial> {
        let rings = self.rings_of(subject.holder);
        if let Some(serial) = rings.thread {
            return Ok(serial);
        }
        let serial = self.make_own(subject, "_tid")?;
        self.set_rings(subject.holder, Rings { thread: Some(serial), ..rings });
        Ok(serial)
    }

    /// The process's keyring, made if it is not there.
    pub(crate) fn install_process(&mut self, subject: &Subject<'_>) -> Result<Serial> {
        let rings = self.rings_of(subject.holder);
        if let Some(serial) = rings.process {
            return Ok(serial);
        }
        let serial = self.make_own(subject, "_pid")?;
        self.set_rings(subject.holder, Rings { process: Some(serial), ..rings });
        Ok(serial)
    }

    fn make_own(&mut self, subject: &Subject<'_>, name: &str) -> Result<Serial> {
        let permissions = need::ALL << 24 | need::VIEW << 16;
        let serial = self.make(NewKey::ring(name, subject.user(), Some(subject.creds.gid), permissions))?;
        self.hold(serial);
        Ok(serial)
    }

    /// Puts a keyring, or a new one, in the place of the session's.
    pub(crate) fn install_session(&mut self, subject: &Subject<'_>, ring: Option<Serial>) -> Result<Serial> {
        let rings = self.rings_of(subject.holder);
        let serial = match ring {
            Some(serial) => serial,
            None => {
                let permissions = need::ALL << 24 | (need::VIEW | need::READ) << 16;
                let mut new = NewKey::ring("_ses", subject.user(), Some(subject.creds.gid), permissions);
                // A further session counts for the quota in full.
                new.overrun = rings.session.is_none();
                let serial = self.make(new)?;
                self.name(serial);
                serial
            }
        };
        self.hold(serial);
        self.set_rings(subject.holder, Rings { session: Some(serial), ..rings });
        if let Some(old) = rings.session {
            self.release(old);
        }
        Ok(serial)
    }

    /// The keyring can be found by its name.
    pub(crate) fn name(&mut self, serial: Serial) {
        if let Some(key) = self.keys.get_mut(&serial) {
            key.joinable = true;
        }
    }

    /// The keyrings of a user, `_uid.N` and `_uid_ses.N`, made if they are not there.
    pub(crate) fn user_rings(&mut self, subject: &Subject<'_>) -> Result<(Serial, Serial)> {
        let owner = subject.user();
        let user = self.users.get(&owner).copied().unwrap_or_default();
        if let (Some(ring), Some(session)) = (user.ring, user.session) {
            return Ok((ring, session));
        }
        let permissions = (need::ALL & !need::SETATTR) << 24 | need::ALL << 16;
        let mut made = |name: String| -> Result<Serial> {
            let new = NewKey { overrun: false, ..NewKey::ring(&name, owner, None, permissions) };
            let serial = self.make(new)?;
            self.hold(serial);
            self.key_mut(serial)?.of_user = true;
            Ok(serial)
        };
        let number = subject.number_of(owner.1);
        let ring = made(format!("_uid.{number}"))?;
        let session = match made(format!("_uid_ses.{number}")) {
            Ok(session) => session,
            Err(e) => {
                self.release(ring);
                return Err(e);
            }
        };
        self.link_unchecked(session, ring)?;
        let user = self.users.get_mut(&owner).ok_or(Errno::ENOKEY)?;
        (user.ring, user.session) = (Some(ring), Some(session));
        Ok((ring, session))
    }
}
