//! Links from keyrings to keys.

use crate::key::{Key, Kind, Serial};
use crate::quota::Setting;
use crate::search::DEPTH;
use crate::store::Store;
use abi::{Errno, Result};
use ktime::Ktime;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often dead keys are looked for.
const PURGE_EVERY: Duration = Duration::from_secs(5);

impl Store {
    /// Links a key to a keyring, in the place of one of the same type and description.
    pub(crate) fn link(&mut self, ring: Serial, serial: Serial) -> Result<()> {
        let (keyring, key) = (self.key(ring)?, self.key(serial)?);
        let index = key.index();
        let replaced = keyring.links()?.get(&index).copied();
        if keyring.restricted {
            return Err(Errno::EPERM);
        }
        if key.kind == Kind::Keyring {
            self.no_cycle(ring, serial)?;
        }
        if replaced.is_none() {
            self.room_for_link()?;
            if keyring.charged.is_some() {
                self.room(keyring.owner, 0, 4, false)?;
            }
        }
        self.link_unchecked(ring, serial)
    }

    /// The same without a look at permissions, cycles and quotas.
    pub(crate) fn link_unchecked(&mut self, ring: Serial, serial: Serial) -> Result<()> {
        let index = self.key(serial)?.index();
        let links = self.key_mut(ring)?.links_mut()?;
        // With the entry goes the description of the old key, which an insertion would keep.
        let replaced = links.remove(&index);
        links.insert(index, serial);
        self.hold(serial);
        match replaced {
            Some(old) => self.release(old),
            None => self.totals.links += 1,
        }
        self.recount(ring);
        Ok(())
    }

    /// Takes a link away. ENOENT when there is none.
    pub(crate) fn unlink(&mut self, ring: Serial, serial: Serial) -> Result<()> {
        // The index does: a key that is gone has no links.
        let index = self.keys.get(&serial).map(|k| k.index()).ok_or(Errno::ENOENT)?;
        let links = self.key_mut(ring)?.links_mut()?;
        if links.get(&index) != Some(&serial) {
            return Err(Errno::ENOENT);
        }
        links.remove(&index);
        self.totals.links -= 1;
        self.recount(ring);
        self.release(serial);
        Ok(())
    }

    /// Takes all links away.
    pub(crate) fn clear(&mut self, ring: Serial) -> Result<()> {
        let links = std::mem::take(self.key_mut(ring)?.links_mut()?);
        self.totals.links -= links.len();
        self.recount(ring);
        for serial in links.into_values() {
            self.release(serial);
        }
        Ok(())
    }

    /// EDEADLK when the keyring is that key or below it, ELOOP when the two together are too deep.
    fn no_cycle(&self, ring: Serial, serial: Serial) -> Result<()> {
        let mut seen = BTreeSet::from([serial]);
        let mut level = vec![serial];
        for _ in 0..=DEPTH {
            if level.contains(&ring) {
                return Err(Errno::EDEADLK);
            }
            let inside = level.iter().filter_map(|s| self.keys.get(s)).filter_map(|k| k.keyrings().ok());
            level = inside.flatten().filter(|s| seen.insert(*s)).collect();
            if level.is_empty() {
                return Ok(());
            }
        }
        Err(Errno::ELOOP)
    }

    /// Unlinks what has been revoked or has expired long enough ago. Looks at most every few seconds.
    pub(crate) fn purge(&mut self, now: Ktime) {
        if self.purged.is_some_and(|last| now.since(last) < PURGE_EVERY) {
            return;
        }
        self.purged = Some(now);
        let delay = Duration::from_secs(self.setting(Setting::GcDelay).into());
        let over = |at: Option<Ktime>| at.is_some_and(|t| now.since(t) >= delay && t <= now);
        let dead = |k: &Key| over(k.revoked) || over(k.expiry);
        let gone: BTreeSet<Serial> = self.keys.iter().filter(|(_, k)| dead(k)).map(|(s, _)| *s).collect();
        if gone.is_empty() {
            return;
        }
        let links = self.keys.iter().filter_map(|(s, k)| Some((*s, k.links().ok()?)));
        let cut: Vec<(Serial, Serial)> = links
            .flat_map(|(ring, l)| l.values().filter(|s| gone.contains(s)).map(move |s| (ring, *s)))
            .collect();
        for (ring, serial) in cut {
            // A keyring that another one kept may be gone by now.
            let _ = self.unlink(ring, serial);
        }
    }

    /// Unlinks a key everywhere.
    pub(crate) fn invalidate(&mut self, serial: Serial) -> Result<()> {
        let index = self.key(serial)?.index();
        let linked = |k: &Key| k.links().is_ok_and(|l| l.get(&index) == Some(&serial));
        let rings: Vec<Serial> = self.keys.iter().filter(|(_, k)| linked(k)).map(|(s, _)| *s).collect();
        for ring in rings {
            self.unlink(ring, serial)?;
        }
        // What a thread still holds cannot be used any more.
        if let Some(key) = self.keys.get_mut(&serial) {
            key.invalid = true;
        }
        Ok(())
    }
}
