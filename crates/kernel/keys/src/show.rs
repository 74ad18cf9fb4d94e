//! /proc/keys and /proc/key-users.

use crate::holder::Subject;
use crate::key::{Key, Kind, Payload, Serial, need};
use crate::search::allows;
use crate::store::Keys;
use ktime::Ktime;

impl Keys {
    /// /proc/keys: what the reader may see.
    pub fn list(&self, subject: &Subject<'_>) -> Vec<u8> {
        let store = self.store.lock();
        let possessed = store.possessed(subject);
        let mut out = Vec::new();
        for (serial, key) in &store.keys {
            if allows(subject, key, possessed.contains(serial), need::VIEW) {
                line(&mut out, subject, *serial, key);
            }
        }
        out
    }

    /// /proc/key-users, of the reader's user namespace.
    pub fn users(&self, subject: &Subject<'_>) -> String {
        let store = self.store.lock();
        let ns = &subject.creds.user_ns;
        let mut out = String::new();
        for (owner, u) in store.users.range((ns.inum(), 0)..=(ns.inum(), u32::MAX)) {
            let Some(uid) = ns.user_here(owner.1) else { continue };
            let (keys, bytes) = store.limits(*owner);
            out.push_str(&format!(
                "{uid:5}: {:5} {}/{} {}/{keys} {}/{bytes}\n",
                u.keys + 1,
                u.keys,
                u.keys,
                u.quota_keys,
                u.quota_bytes
            ));
        }
        out
    }
}

/// How long a key lives, in the largest unit that fits.
fn lifetime(key: &Key, now: Ktime) -> String {
    let Some(end) = key.expiry else { return "perm".into() };
    if end <= now {
        return "expd".into();
    }
    let seconds = end.since(now).as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..604_800 => format!("{}d", seconds / 86_400),
        _ => format!("{}w", seconds / 604_800),
    }
}

fn line(out: &mut Vec<u8>, subject: &Subject<'_>, serial: Serial, key: &Key) {
    let negative = matches!(key.payload, Payload::Negative(_));
    let flags = [
        (true, 'I'),
        (key.revoked.is_some(), 'R'),
        (false, 'D'),
        (key.charged.is_some(), 'Q'),
        (false, 'U'),
        (negative, 'N'),
        (key.invalid, 'i'),
    ];
    let flags: String = flags.iter().map(|(on, letter)| if *on { *letter } else { '-' }).collect();
    let (uid, gid) = key.shown_owner(&subject.creds.user_ns);
    let (uses, life) = (key.references, lifetime(key, subject.now));
    let head = format!(
        "{serial:08x} {flags} {uses:5} {life:>4} {:08x} {uid:5} {gid:5} {:<9.9} ",
        key.permissions,
        key.kind.name()
    );
    out.extend_from_slice(head.as_bytes());
    let anonymous = key.description.is_empty() && key.kind == Kind::Keyring;
    out.extend_from_slice(if anonymous { b"[anon]" } else { &key.description });
    let tail = match &key.payload {
        Payload::Links(l) if l.is_empty() => ": empty".into(),
        Payload::Links(l) => format!(": {}", l.len()),
        Payload::Bytes(b) if key.kind == Kind::BigKey => format!(": {} [buff]", b.len()),
        Payload::Bytes(b) => format!(": {}", b.len()),
        Payload::Negative(_) => String::new(),
    };
    out.extend_from_slice(tail.as_bytes());
    out.push(b'\n');
}
