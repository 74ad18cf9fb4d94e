//! Permissions, possession, and looking for a key in keyrings and the keyrings in those.

use crate::holder::Subject;
use crate::key::{Index, Key, Payload, Serial, need};
use crate::store::Store;
use abi::{Errno, Result};
use std::collections::BTreeSet;

/// How deep keyrings are nested at most.
pub(crate) const DEPTH: usize = 6;

/// What a search does about keys that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum States {
    /// They are found.
    Any,
    /// They are errors, unless another one is found.
    Usable,
    /// The same, but one that has expired is as if it were not there.
    NotExpired,
}

/// What is looked for.
pub(crate) enum SearchTarget<'a> {
    Serial(Serial),
    Named(&'a Index),
}

/// What a key allows a caller that may possess it.
pub(crate) fn allows(subject: &Subject<'_>, key: &Key, possessed: bool, needed: u32) -> bool {
    let (ns, uid) = key.owner;
    let c = subject.creds;
    let here = c.user_ns.inum() == ns;
    let group =
        key.gid.is_some_and(|gid| gid == c.fsgid || c.in_group(gid)) && key.permissions >> 8 & need::ALL != 0;
    let mut granted = if here && c.fsuid == uid {
        key.permissions >> 16
    } else if here && group {
        key.permissions >> 8
    } else {
        key.permissions
    };
    if possessed {
        granted |= key.permissions >> 24;
    }
    granted & needed == needed
}

impl Store {
    /// Looks in a keyring and those below it. EAGAIN when there is nothing, otherwise the last reason for which a key did
    /// not count.
    pub(crate) fn search(
        &self,
        subject: &Subject<'_>,
        ring: Serial,
        possessed: bool,
        wanted: &SearchTarget<'_>,
        states: States,
    ) -> Result<Serial> {
        let top = self.key(ring)?;
        top.links()?;
        if !allows(subject, top, possessed, need::SEARCH) {
            return Err(Errno::EACCES);
        }
        if states != States::Any {
            top.validate(subject.now)?;
        }
        let mut result = Errno::EAGAIN;
        let mut seen = BTreeSet::from([ring]);
        let mut level = vec![ring];
        if matches!(wanted, SearchTarget::Serial(s) if *s == ring) {
            return Ok(ring);
        }
        for _ in 0..DEPTH {
            let mut below = Vec::new();
            for at in level {
                let Ok(keyring) = self.key(at) else { continue };
                let (Ok(links), Ok(inner)) = (keyring.links(), keyring.keyrings()) else { continue };
                let found = match wanted {
                    SearchTarget::Serial(s) => links.values().find(|l| *l == s).copied(),
                    SearchTarget::Named(index) => links.get(*index).copied(),
                };
                match found.map(|serial| self.counts(subject, serial, possessed, states)) {
                    Some(Ok(serial)) => return Ok(serial),
                    Some(Err(e)) => result = e,
                    None => {}
                }
                for inner in inner.filter(|s| seen.insert(*s)) {
                    let may = |k: &Key| {
                        k.links().is_ok()
                            && k.revoked.is_none()
                            && allows(subject, k, possessed, need::SEARCH)
                    };
                    if self.key(inner).is_ok_and(may) {
                        below.push(inner);
                    }
                }
            }
            level = below;
        }
        Err(result)
    }

    /// Whether a key that matches counts.
    fn counts(
        &self,
        subject: &Subject<'_>,
        serial: Serial,
        possessed: bool,
        states: States,
    ) -> Result<Serial> {
        let key = self.key(serial)?;
        if states != States::Any {
            if key.revoked.is_some() {
                return Err(Errno::EKEYREVOKED);
            }
            if key.expired(subject.now) {
                return Err(if states == States::NotExpired { Errno::EAGAIN } else { Errno::EKEYEXPIRED });
            }
        }
        if !allows(subject, key, possessed, need::SEARCH) {
            return Err(Errno::EACCES);
        }
        match key.payload {
            Payload::Negative(e) if states != States::Any => Err(e),
            _ => Ok(serial),
        }
    }

    /// Looks in the keyrings of a thread: its own, its process's, its session's or, without one, its user's.
    pub(crate) fn search_own(
        &self,
        subject: &Subject<'_>,
        wanted: &SearchTarget<'_>,
        states: States,
    ) -> Result<Serial> {
        let rings = self.rings_of(subject.holder);
        let user = self.users.get(&subject.user()).and_then(|u| u.session);
        let all = [rings.thread, rings.process, rings.session.or(user)];
        let (mut result, mut negative) = (Errno::EAGAIN, None);
        for ring in all.into_iter().flatten() {
            match self.search(subject, ring, true, wanted, states) {
                Ok(serial) => return Ok(serial),
                Err(Errno::EAGAIN) => {}
                Err(Errno::ENOKEY) => negative = Some(Errno::ENOKEY),
                Err(e) => result = e,
            }
        }
        Err(negative.unwrap_or(result))
    }

    /// Every key that the thread finds from its own keyrings.
    pub(crate) fn possessed(&self, subject: &Subject<'_>) -> BTreeSet<Serial> {
        let rings = self.rings_of(subject.holder);
        let user = self.users.get(&subject.user()).and_then(|u| u.session);
        let may = |serial: &Serial| self.key(*serial).is_ok_and(|k| allows(subject, k, true, need::SEARCH));
        let own = [rings.thread, rings.process, rings.session.or(user)].into_iter().flatten();
        let mut level: Vec<Serial> = own.filter(may).collect();
        let mut found: BTreeSet<Serial> = level.iter().copied().collect();
        for _ in 0..DEPTH {
            let links = level.iter().filter_map(|ring| self.key(*ring).and_then(Key::links).ok());
            let below = links.flat_map(|l| l.values().copied()).filter(may);
            level = below.filter(|serial| found.insert(*serial)).collect();
        }
        found
    }

    /// Whether the thread finds a key from its own keyrings.
    pub(crate) fn possesses(&self, subject: &Subject<'_>, serial: Serial) -> bool {
        self.search_own(subject, &SearchTarget::Serial(serial), States::Any).is_ok()
    }
}
