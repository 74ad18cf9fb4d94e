//! add_key(2), request_key(2), keyctl(2). The crate `keys` has the rules.

use crate::arg::Ptr;
use abi::{Errno, PAGE_SIZE, Result};
use caller::HasCredentials;
use keys::{DESCRIPTION_MAX, Kind, PAYLOAD_MAX, Subject};
use std::sync::Arc;
use task::{Current, SysResult};

/// Longest name of a type with its NUL.
const TYPE_MAX: usize = 32;
/// What KEYCTL_CAPABILITIES answers: keyctl itself, persistent keyrings, big keys, invalidation, restriction, moving; names of
/// keyrings by user namespace.
const CAPABILITIES: [u8; 2] = [0x01 | 0x02 | 0x10 | 0x20 | 0x40 | 0x80, 0x01 | 0x02];
/// KEYCTL_MOVE_EXCL.
const EXCLUSIVE: u32 = 1;

/// The name of a type: EPERM for those of the kernel's own.
fn read_type(c: &Current, at: Ptr) -> Result<Vec<u8>> {
    let name = c.read_cstr(at.0, TYPE_MAX, Errno::EINVAL)?;
    match name.first() {
        None => Err(Errno::EINVAL),
        Some(b'.') => Err(Errno::EPERM),
        Some(_) => Ok(name),
    }
}

fn read_text(c: &Current, at: Ptr, max: usize) -> Result<Vec<u8>> {
    c.read_cstr(at.0, max, Errno::EINVAL)
}

fn read_payload(c: &Current, at: Ptr, len: u64, max: u64) -> Result<Vec<u8>> {
    if len > max {
        return Err(Errno::EINVAL);
    }
    let mut payload = vec![0; if at.is_null() { 0 } else { len as usize }];
    c.read_bytes(at.0, &mut payload)?;
    if at.is_null() && len != 0 { Err(Errno::EFAULT) } else { Ok(payload) }
}

/// Runs `f` on the kernel's keys for the caller.
fn with<T>(c: &Current, f: impl FnOnce(&keys::Keys, &Subject<'_>) -> Result<T>) -> Result<T> {
    let creds = c.creds();
    f(&c.kernel().keys, &Subject::new(&creds, &c.task.keyrings))
}

pub fn add_key(c: &mut Current, kind: Ptr, description: Ptr, payload: Ptr, len: u64, ring: i32) -> SysResult {
    if len > PAYLOAD_MAX as u64 {
        return Err(Errno::EINVAL.into());
    }
    let kind = read_type(c, kind)?;
    let mut text = None;
    if !description.is_null() {
        let t = read_text(c, description, DESCRIPTION_MAX)?;
        if t.first() == Some(&b'.') && kind.starts_with(b"keyring") {
            return Err(Errno::EPERM.into());
        }
        text = Some(t).filter(|t| !t.is_empty());
    }
    let payload = read_payload(c, payload, len, PAYLOAD_MAX as u64)?;
    Ok(with(c, |keys, subject| keys.add(subject, Kind::of(&kind), text, payload, ring))? as u64)
}

pub fn request_key(c: &mut Current, kind: Ptr, description: Ptr, callout: Ptr, ring: i32) -> SysResult {
    let kind = read_type(c, kind)?;
    let text = read_text(c, description, DESCRIPTION_MAX)?;
    if !callout.is_null() {
        read_text(c, callout, PAGE_SIZE as usize)?;
    }
    let make = !callout.is_null();
    Ok(with(c, |keys, subject| keys.request(subject, Kind::of(&kind), text, make, ring))? as u64)
}

/// Bytes for a buffer that may be too short, in which case only their number is told.
fn answer(c: &mut Current, bytes: &[u8], at: u64, room: u64) -> SysResult {
    if at != 0 && room >= bytes.len() as u64 {
        c.write_bytes(at, bytes)?;
    }
    Ok(bytes.len() as u64)
}

fn id(v: u64) -> i32 {
    v as i32
}

/// The user or group that a number of the caller's user namespace stands for; `None` for -1, which is to stay as it is.
/// EINVAL for one that the namespace does not have.
fn kept(v: u64, id: impl Fn(u32) -> Option<u32>) -> Result<Option<u32>> {
    Some(v as u32).filter(|v| *v != u32::MAX).map(|v| id(v).ok_or(Errno::EINVAL)).transpose()
}

fn chown(c: &Current, key: i32, user: u64, group: u64) -> Result<()> {
    let ns = &c.creds().user_ns;
    let (user, group) = (kept(user, |u| ns.user(u))?, kept(group, |g| ns.group(g))?);
    with(c, |k, subject| k.chown(subject, key, user, group))
}

fn persistent(c: &Current, user: u64, ring: i32) -> Result<i32> {
    let user = kept(user, |u| c.creds().user_ns.user(u))?;
    with(c, |k, subject| k.persistent(subject, user, ring))
}

pub fn keyctl(c: &mut Current, op: i32, a: u64, b: u64, d: u64, e: u64) -> SysResult {
    let done = match op {
        0 => return Ok(with(c, |k, subject| k.id(subject, id(a), b as i32 != 0))? as u64),
        1 => return join_session(c, Ptr(a)),
        2 => {
            let payload = read_payload(c, Ptr(b), d, PAGE_SIZE)?;
            with(c, |k, subject| k.update(subject, id(a), payload))
        }
        3 => with(c, |k, subject| k.revoke(subject, id(a))),
        4 => chown(c, id(a), b, d),
        5 => with(c, |k, subject| k.set_permissions(subject, id(a), b as u32)),
        6 => {
            let mut text = with(c, |k, subject| k.describe(subject, id(a)))?;
            text.push(0);
            return answer(c, &text, b, d);
        }
        7 => with(c, |k, subject| k.clear(subject, id(a))),
        8 => with(c, |k, subject| k.link(subject, id(a), id(b))),
        9 => with(c, |k, subject| k.unlink(subject, id(a), id(b))),
        10 => return search(c, id(a), Ptr(b), Ptr(d), id(e)),
        11 => {
            let bytes = with(c, |k, subject| k.read(subject, id(a)))?;
            return answer(c, &bytes, b, d);
        }
        // Instantiating takes the authority that an upcall gives, which there is not.
        12 | 20 if d > PAYLOAD_MAX as u64 && op == 12 => Err(Errno::EINVAL),
        12 | 20 | 13 => Err(Errno::EPERM),
        19 if !(1..4096).contains(&(d as i32)) || matches!(d as i32, 512..=516) => Err(Errno::EINVAL),
        19 => Err(Errno::EPERM),
        14 => return Ok(with(c, |k, subject| k.set_destination(subject, id(a)))? as u64),
        15 => with(c, |k, subject| k.set_timeout(subject, id(a), b as u32)),
        16 if id(a) < 0 => Err(Errno::EINVAL),
        16 if id(a) > 0 => Err(Errno::ENOKEY),
        16 => Ok(()),
        17 => {
            with(c, |k, subject| k.view(subject, id(a)))?;
            return answer(c, b"\0", b, d);
        }
        18 => session_to_parent(c),
        21 => with(c, |k, subject| k.invalidate(subject, id(a))),
        22 => return Ok(persistent(c, a, id(b))? as u64),
        29 => restrict(c, id(a), Ptr(b), Ptr(d)),
        30 if e as u32 & !EXCLUSIVE != 0 => Err(Errno::EINVAL),
        30 => with(c, |k, subject| k.move_(subject, id(a), id(b), id(d), e as u32 & EXCLUSIVE != 0)),
        31 => return capabilities(c, a, b),
        _ => Err(Errno::EOPNOTSUPP),
    };
    Ok(done.map(|()| 0)?)
}

fn join_session(c: &mut Current, name: Ptr) -> SysResult {
    let name = match name.is_null() {
        true => None,
        false => Some(read_text(c, name, DESCRIPTION_MAX)?),
    };
    if name.as_ref().is_some_and(|n| n.first() == Some(&b'.')) {
        return Err(Errno::EPERM.into());
    }
    Ok(with(c, |k, subject| k.join_session(subject, name))? as u64)
}

fn search(c: &mut Current, ring: i32, kind: Ptr, description: Ptr, to: i32) -> SysResult {
    let kind = read_type(c, kind)?;
    let text = read_text(c, description, DESCRIPTION_MAX)?;
    Ok(with(c, |k, subject| k.search(subject, ring, Kind::of(&kind), text, to))? as u64)
}

fn restrict(c: &mut Current, ring: i32, kind: Ptr, restriction: Ptr) -> Result<()> {
    if kind.is_null() != restriction.is_null() {
        return Err(Errno::EINVAL);
    }
    let mut named = None;
    if !kind.is_null() {
        named = Some(Kind::of(&read_type(c, kind)?));
        read_text(c, restriction, PAGE_SIZE as usize)?;
    }
    with(c, |k, subject| k.restrict(subject, ring, named))
}

fn capabilities(c: &mut Current, at: u64, room: u64) -> SysResult {
    if at != 0 && room > 0 {
        let mut bytes = CAPABILITIES.to_vec();
        // What a later kernel would say more is not there.
        bytes.resize(room.min(PAGE_SIZE) as usize, 0);
        c.write_bytes(at, &bytes)?;
    }
    Ok(CAPABILITIES.len() as u64)
}

/// KEYCTL_SESSION_TO_PARENT: for a parent of one thread with the same users and groups.
fn session_to_parent(c: &Current) -> Result<()> {
    let parent = {
        let tree = c.kernel().tree.lock();
        let parent = tree.node(c.task.tgid()).map_or(0, task::Node::parent);
        tree.node(parent).map(|n| n.group.clone())
    };
    let parent = parent.filter(|g| !g.is_init()).ok_or(Errno::EPERM)?;
    let threads = parent.threads();
    let [thread] = threads.as_slice() else { return Err(Errno::EPERM) };
    let (mine, theirs) = (c.creds(), thread.creds());
    let users = |c: &rights::Credentials| [c.uid, c.euid, c.suid, c.gid, c.egid, c.sgid];
    if users(&mine) != users(&theirs) || !Arc::ptr_eq(&mine.user_ns, &theirs.user_ns) {
        return Err(Errno::EPERM);
    }
    c.kernel().keys.give_session(&Subject::new(&mine, &c.task.keyrings), &thread.keyrings)
}
