//! User and group ids, sessions, capabilities. See credentials(7), capabilities(7).

use crate::arg::Ptr;
use abi::Errno;
use caller::{HasCredentials, Identity};
use rights::{Cap, Credentials};
use task::{Current, SysResult};

/// "No change" in the set*id family.
const KEEP: u32 = u32::MAX;
const SECBIT_NO_SETUID_FIXUP: u32 = 4;
const SECBIT_KEEP_CAPS: u32 = 16;
const NGROUPS_MAX: u64 = 65536;

pub fn getpid(c: &mut Current) -> SysResult {
    Ok(c.task.group.pid.own_nr() as u64)
}
pub fn gettid(c: &mut Current) -> SysResult {
    Ok(c.task.own_tid() as u64)
}
pub fn getppid(c: &mut Current) -> SysResult {
    let parent = c.kernel().tree.lock().node(c.task.tgid()).map_or(0, task::Node::parent);
    Ok(c.pid_vnr(parent) as u64)
}
pub fn getuid(c: &mut Current) -> SysResult {
    let k = c.creds();
    Ok(k.user_ns.show_user(k.uid).into())
}
pub fn geteuid(c: &mut Current) -> SysResult {
    let k = c.creds();
    Ok(k.user_ns.show_user(k.euid).into())
}
pub fn getgid(c: &mut Current) -> SysResult {
    let k = c.creds();
    Ok(k.user_ns.show_group(k.gid).into())
}
pub fn getegid(c: &mut Current) -> SysResult {
    let k = c.creds();
    Ok(k.user_ns.show_group(k.egid).into())
}

/// Users of the caller's user namespace as the kernel knows them; [`KEEP`] stays. EINVAL for one that the namespace does not have.
fn users<const N: usize>(c: &Current, numbers: [u32; N]) -> Result<[u32; N], Errno> {
    known(numbers, |number| c.creds().user_ns.user(number))
}

/// The same for groups.
fn groups<const N: usize>(c: &Current, numbers: [u32; N]) -> Result<[u32; N], Errno> {
    known(numbers, |number| c.creds().user_ns.group(number))
}

fn known<const N: usize>(mut numbers: [u32; N], id: impl Fn(u32) -> Option<u32>) -> Result<[u32; N], Errno> {
    for number in numbers.iter_mut().filter(|number| **number != KEEP) {
        *number = id(*number).ok_or(Errno::EINVAL)?;
    }
    Ok(numbers)
}

fn commit_uids(c: &mut Current, old: &Credentials, mut n: Credentials) -> SysResult {
    n.fsuid = n.euid;
    c.police_users(old, &n)?;
    fix_caps(old, &mut n);
    c.task.set_creds(n);
    Ok(0)
}

/// Capabilities when user ids move to or from 0.
fn fix_caps(old: &Credentials, n: &mut Credentials) {
    if old.securebits & SECBIT_NO_SETUID_FIXUP != 0 {
        return;
    }
    let root = old.user_ns.user(0);
    let is_root = |id: u32| root == Some(id);
    let had_root = is_root(old.uid) || is_root(old.euid) || is_root(old.suid);
    let has_root = is_root(n.uid) || is_root(n.euid) || is_root(n.suid);
    if had_root && !has_root {
        if old.securebits & SECBIT_KEEP_CAPS == 0 {
            n.permitted = 0;
            n.effective = 0;
        }
        n.ambient = 0;
    }
    if is_root(old.euid) && !is_root(n.euid) {
        n.effective = 0;
    }
    if !is_root(old.euid) && is_root(n.euid) {
        n.effective = n.permitted;
    }
}

pub fn setuid(c: &mut Current, uid: u32) -> SysResult {
    let old = c.creds();
    let mut n = Credentials::clone(&old);
    if uid == KEEP {
        return Err(Errno::EINVAL.into());
    }
    let [uid] = users(c, [uid])?;
    if old.own_ns_capable(Cap::SETUID) {
        n.uid = uid;
        n.suid = uid;
    } else if uid != old.uid && uid != old.suid {
        return Err(Errno::EPERM.into());
    }
    n.euid = uid;
    commit_uids(c, &old, n)
}

pub fn setreuid(c: &mut Current, ruid: u32, euid: u32) -> SysResult {
    let [ruid, euid] = users(c, [ruid, euid])?;
    let old = c.creds();
    let capable = old.own_ns_capable(Cap::SETUID);
    let mut n = Credentials::clone(&old);
    if ruid != KEEP {
        if !capable && ruid != old.uid && ruid != old.euid {
            return Err(Errno::EPERM.into());
        }
        n.uid = ruid;
    }
    if euid != KEEP {
        if !capable && ![old.uid, old.euid, old.suid].contains(&euid) {
            return Err(Errno::EPERM.into());
        }
        n.euid = euid;
    }
    if ruid != KEEP || euid != KEEP && euid != old.uid {
        n.suid = n.euid;
    }
    commit_uids(c, &old, n)
}

pub fn setresuid(c: &mut Current, ruid: u32, euid: u32, suid: u32) -> SysResult {
    let [ruid, euid, suid] = users(c, [ruid, euid, suid])?;
    let old = c.creds();
    let mine = [old.uid, old.euid, old.suid];
    if !old.own_ns_capable(Cap::SETUID) && [ruid, euid, suid].iter().any(|u| *u != KEEP && !mine.contains(u))
    {
        return Err(Errno::EPERM.into());
    }
    let mut n = Credentials::clone(&old);
    let pick = |v, o| if v == KEEP { o } else { v };
    n.uid = pick(ruid, old.uid);
    n.euid = pick(euid, old.euid);
    n.suid = pick(suid, old.suid);
    commit_uids(c, &old, n)
}

pub fn setgid(c: &mut Current, gid: u32) -> SysResult {
    let old = c.creds();
    let mut n = Credentials::clone(&old);
    if gid == KEEP {
        return Err(Errno::EINVAL.into());
    }
    let [gid] = groups(c, [gid])?;
    if old.own_ns_capable(Cap::SETGID) {
        n.gid = gid;
        n.sgid = gid;
    } else if gid != old.gid && gid != old.sgid {
        return Err(Errno::EPERM.into());
    }
    n.egid = gid;
    n.fsgid = gid;
    c.police_groups(&old, &n)?;
    c.task.set_creds(n);
    Ok(0)
}

pub fn setregid(c: &mut Current, rgid: u32, egid: u32) -> SysResult {
    let [rgid, egid] = groups(c, [rgid, egid])?;
    let old = c.creds();
    let capable = old.own_ns_capable(Cap::SETGID);
    let mut n = Credentials::clone(&old);
    if rgid != KEEP {
        if !capable && rgid != old.gid && rgid != old.egid {
            return Err(Errno::EPERM.into());
        }
        n.gid = rgid;
    }
    if egid != KEEP {
        if !capable && ![old.gid, old.egid, old.sgid].contains(&egid) {
            return Err(Errno::EPERM.into());
        }
        n.egid = egid;
    }
    if rgid != KEEP || egid != KEEP && egid != old.gid {
        n.sgid = n.egid;
    }
    n.fsgid = n.egid;
    c.police_groups(&old, &n)?;
    c.task.set_creds(n);
    Ok(0)
}

pub fn setresgid(c: &mut Current, rgid: u32, egid: u32, sgid: u32) -> SysResult {
    let [rgid, egid, sgid] = groups(c, [rgid, egid, sgid])?;
    let old = c.creds();
    let mine = [old.gid, old.egid, old.sgid];
    if !old.own_ns_capable(Cap::SETGID) && [rgid, egid, sgid].iter().any(|g| *g != KEEP && !mine.contains(g))
    {
        return Err(Errno::EPERM.into());
    }
    let mut n = Credentials::clone(&old);
    let pick = |v, o| if v == KEEP { o } else { v };
    n.gid = pick(rgid, old.gid);
    n.egid = pick(egid, old.egid);
    n.sgid = pick(sgid, old.sgid);
    n.fsgid = n.egid;
    c.police_groups(&old, &n)?;
    c.task.set_creds(n);
    Ok(0)
}

fn write3(c: &mut Current, v: [u32; 3], p: [Ptr; 3]) -> SysResult {
    for (v, p) in v.iter().zip(p) {
        c.write_value(p.0, v)?;
    }
    Ok(0)
}

pub fn getresuid(c: &mut Current, r: Ptr, e: Ptr, s: Ptr) -> SysResult {
    let k = c.creds();
    write3(c, [k.uid, k.euid, k.suid].map(|id| k.user_ns.show_user(id)), [r, e, s])
}

pub fn getresgid(c: &mut Current, r: Ptr, e: Ptr, s: Ptr) -> SysResult {
    let k = c.creds();
    write3(c, [k.gid, k.egid, k.sgid].map(|id| k.user_ns.show_group(id)), [r, e, s])
}

pub fn setfsuid(c: &mut Current, uid: u32) -> SysResult {
    let old = c.creds();
    // A user that the namespace does not have changes nothing, as -1.
    let uid = old.user_ns.user(uid).unwrap_or(KEEP);
    let root = old.user_ns.user(0);
    let allowed = [old.uid, old.euid, old.suid, old.fsuid].contains(&uid) || old.own_ns_capable(Cap::SETUID);
    if uid != KEEP && allowed && uid != old.fsuid {
        let mut n = Credentials::clone(&old);
        n.fsuid = uid;
        c.police_users(&old, &n)?;
        // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE, MKNOD, MAC_OVERRIDE
        let fs = 0x1f | Cap::LINUX_IMMUTABLE.bit() | Cap::MKNOD.bit() | Cap::MAC_OVERRIDE.bit();
        if old.securebits & SECBIT_NO_SETUID_FIXUP == 0 {
            if root == Some(old.fsuid) && root != Some(uid) {
                n.effective &= !fs;
            } else if root != Some(old.fsuid) && root == Some(uid) {
                n.effective |= n.permitted & fs;
            }
        }
        c.task.set_creds(n);
    }
    Ok(old.user_ns.show_user(old.fsuid).into())
}

pub fn setfsgid(c: &mut Current, gid: u32) -> SysResult {
    let old = c.creds();
    let gid = old.user_ns.group(gid).unwrap_or(KEEP);
    let allowed = [old.gid, old.egid, old.sgid, old.fsgid].contains(&gid) || old.own_ns_capable(Cap::SETGID);
    if gid != KEEP && allowed {
        let mut n = Credentials::clone(&old);
        n.fsgid = gid;
        c.police_groups(&old, &n)?;
        c.task.set_creds(n);
    }
    Ok(old.user_ns.show_group(old.fsgid).into())
}

pub fn getgroups(c: &mut Current, size: i32, list: Ptr) -> SysResult {
    if size < 0 {
        return Err(Errno::EINVAL.into());
    }
    let k = c.creds();
    let g: Vec<u32> = k.groups.iter().map(|g| k.user_ns.show_group(*g)).collect();
    if size != 0 {
        if (size as usize) < g.len() {
            return Err(Errno::EINVAL.into());
        }
        let bytes: Vec<u8> = g.iter().flat_map(|g| g.to_le_bytes()).collect();
        c.write_bytes(list.0, &bytes)?;
    }
    Ok(g.len() as u64)
}

pub fn setgroups(c: &mut Current, size: u64, list: Ptr) -> SysResult {
    let old = c.creds();
    if !old.own_ns_capable(Cap::SETGID) || !old.user_ns.may_setgroups() {
        return Err(Errno::EPERM.into());
    }
    if size as u32 as u64 > NGROUPS_MAX {
        return Err(Errno::EINVAL.into());
    }
    let mut groups: Vec<u32> = c.read_array(list.0, size as u32 as usize, NGROUPS_MAX as usize)?;
    for group in &mut groups {
        *group = old.user_ns.group(*group).ok_or(Errno::EINVAL)?;
    }
    groups.sort_unstable();
    let mut n = Credentials::clone(&old);
    n.groups = groups.into();
    c.police_groups(&old, &n)?;
    c.task.set_creds(n);
    Ok(0)
}

pub fn setpgid(c: &mut Current, pid: i32, pgid: i32) -> SysResult {
    if pgid < 0 {
        return Err(Errno::EINVAL.into());
    }
    let means = |n: i32| if n > 0 { c.find_vpid(n) } else { n };
    c.setpgid(means(pid), means(pgid))?;
    Ok(0)
}

pub fn setsid(c: &mut Current) -> SysResult {
    let session = c.setsid()?;
    Ok(c.pid_vnr(session) as u64)
}

pub fn getpgrp(c: &mut Current) -> SysResult {
    Ok(c.pid_vnr(c.pgid()) as u64)
}

pub fn getpgid(c: &mut Current, pid: i32) -> SysResult {
    let pid = if pid == 0 { c.task.tgid() } else { c.find_vpid(pid) };
    let pgid = c.kernel().tree.lock().node(pid).ok_or(Errno::ESRCH)?.pgid();
    Ok(c.pid_vnr(pgid) as u64)
}

pub fn getsid(c: &mut Current, pid: i32) -> SysResult {
    let pid = if pid == 0 { c.task.tgid() } else { c.find_vpid(pid) };
    let sid = c.kernel().tree.lock().node(pid).ok_or(Errno::ESRCH)?.sid();
    Ok(c.pid_vnr(sid) as u64)
}

const CAP_V1: u32 = 0x1998_0330;
const CAP_V2: u32 = 0x2007_1026;
const CAP_V3: u32 = 0x2008_0522;

/// Reads the header: how many 32-bit triples follow and for which task. An unknown version is
/// answered with the preferred one.
fn cap_header(c: &mut Current, hdr: Ptr) -> Result<(usize, i32), Errno> {
    let [version, pid] = c.read_value::<[u32; 2]>(hdr.0)?;
    let n = match version {
        CAP_V1 => 1,
        CAP_V2 | CAP_V3 => 2,
        _ => {
            c.write_value(hdr.0, &CAP_V3)?;
            return Err(Errno::EINVAL);
        }
    };
    Ok((n, pid as i32))
}

pub fn capget(c: &mut Current, hdr: Ptr, data: Ptr) -> SysResult {
    let (n, pid) = match cap_header(c, hdr) {
        Err(Errno::EINVAL) if data.is_null() => return Ok(0),
        r => r?,
    };
    if data.is_null() {
        return Ok(0);
    }
    if pid < 0 {
        return Err(Errno::EINVAL.into());
    }
    let k = match pid {
        0 => c.creds(),
        p => c.find_task(p).ok_or(Errno::ESRCH)?.creds(),
    };
    let mut out = Vec::new();
    for i in 0..n {
        for v in [k.effective, k.permitted, k.inheritable] {
            out.extend_from_slice(&((v >> (32 * i)) as u32).to_le_bytes());
        }
    }
    c.write_bytes(data.0, &out)?;
    Ok(0)
}

pub fn capset(c: &mut Current, hdr: Ptr, data: Ptr) -> SysResult {
    let (n, pid) = cap_header(c, hdr)?;
    if pid != 0 && pid != c.task.own_tid() {
        return Err(Errno::EPERM.into());
    }
    let words: Vec<u32> = c.read_array(data.0, n * 3, 6)?;
    let mut v = [0u64; 3];
    for i in 0..n {
        for (j, v) in v.iter_mut().enumerate() {
            *v |= u64::from(words[i * 3 + j]) << (32 * i);
        }
    }
    let [effective, permitted, inheritable] = v.map(|x| x & Cap::ALL);
    let old = c.creds();
    let may_add = if old.own_ns_capable(Cap::SETPCAP) { old.bounding } else { old.permitted };
    let bad = permitted & !old.permitted != 0
        || effective & !permitted != 0
        || inheritable & !(old.inheritable | old.permitted | may_add) != 0
        || inheritable & !(old.inheritable | old.bounding) != 0;
    if bad {
        return Err(Errno::EPERM.into());
    }
    let mut k = Credentials::clone(&old);
    (k.effective, k.permitted, k.inheritable) = (effective, permitted, inheritable);
    k.ambient &= permitted & inheritable;
    c.task.set_creds(k);
    Ok(0)
}
