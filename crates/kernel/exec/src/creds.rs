//! Credentials of a new program: set-id bits and the capability rules of capabilities(7).

use abi::{Errno, Result, libc};
use rights::file_caps::FileCaps;
use rights::{Cap, Credentials};
use std::sync::atomic::Ordering;
use task::{Current, NewCreds};
use vfs::OpenFile;

/// SECBIT_NOROOT.
const NOROOT: u32 = 1;
/// SECBIT_KEEP_CAPS, which does not survive.
const KEEP_CAPS: u32 = 0x10;

/// What a file gives the program: users and groups by its set-id bits, and its capabilities.
#[derive(Clone, Copy, Debug, Default)]
struct Gift {
    uid: Option<u32>,
    gid: Option<u32>,
    caps: Option<FileCaps>,
}

/// What makes the caller untrustworthy for a program with more rights.
#[derive(Clone, Copy, Debug, Default)]
struct Unsafe {
    /// Another process could change the root and the working directory under the program's feet.
    shares_fs: bool,
    no_new_privs: bool,
    /// A tracer sees and changes what the program does, and attached without the rights to do so with the new program.
    traced: bool,
}

/// Credentials of the caller once it runs this program, for which it has called [`Current::begin_exec`]. EPERM when the
/// program relies on capabilities that it cannot get.
pub(crate) fn of_program(c: &Current, file: &OpenFile) -> Result<NewCreds> {
    let attr = file.attr()?;
    let old = c.task.creds();
    let ns = &old.user_ns;
    let own = |m: &vfs::Mount| c.fs().view().ns.contains(m);
    // A file without a path, such as a descriptor from outside, is on no mount of the caller's.
    let nosuid = file.path.as_ref().is_none_or(|p| !p.mount.gives_rights(ns) || !own(&p.mount));
    let no_new_privs = c.task.no_new_privs.load(Ordering::Relaxed);
    let mut gift = Gift::default();
    if !nosuid {
        gift.caps = file_caps(c, file)?;
        // Only for users and groups that the user namespace has.
        if !no_new_privs && ns.user_here(attr.uid).is_some() && ns.group_here(attr.gid).is_some() {
            const SGID: u32 = libc::S_ISGID | libc::S_IXGRP;
            gift.uid = (attr.mode & libc::S_ISUID != 0).then_some(attr.uid);
            gift.gid = (attr.mode & SGID == SGID).then_some(attr.gid);
        }
    }
    compute(&old, gift, || Unsafe {
        shares_fs: c.shares_fs_with_others(),
        no_new_privs,
        traced: c.task.trace.tracer_creds().is_some_and(|t| !t.ns_capable(ns, Cap::SYS_PTRACE)),
    })
}

/// The capabilities of a program file. EINVAL when the attribute is not one of capabilities.
fn file_caps(c: &Current, file: &OpenFile) -> Result<Option<FileCaps>> {
    let Some(xattrs) = file.inode.as_ref().and_then(|inode| inode.as_xattrs()) else { return Ok(None) };
    let value = match xattrs.get_xattr(c, rights::file_caps::XATTR) {
        Err(Errno::ENODATA | Errno::EOPNOTSUPP) => return Ok(None),
        value => value?,
    };
    let caps = FileCaps::parse(&value).ok_or(Errno::EINVAL)?;
    // Those of a user namespace that is not this one do not count.
    let creds = c.task.creds();
    Ok(Some(caps).filter(|caps| rights::file_caps::counts_in(&creds.user_ns, caps.root.unwrap_or(0))))
}

/// As Linux's `cap_bprm_creds_from_file`, step by step. `how_unsafe` is only asked where it matters.
fn compute(old: &Credentials, gift: Gift, how_unsafe: impl FnOnce() -> Unsafe) -> Result<NewCreds> {
    let mut c = old.clone();
    let root = old.user_ns.user(0);
    let is_root = |id: u32| root == Some(id);
    c.euid = gift.uid.unwrap_or(c.euid);
    c.egid = gift.gid.unwrap_or(c.egid);
    c.permitted = 0;
    let mut effective = false;
    if let Some(caps) = gift.caps {
        c.permitted = caps.permitted & c.bounding | caps.inheritable & c.inheritable;
        effective = caps.effective;
        if effective && caps.permitted & !c.permitted != 0 {
            return Err(Errno::EPERM);
        }
    }
    let mixed = gift.caps.is_some() && !is_root(c.uid) && is_root(c.euid);
    if c.securebits & NOROOT == 0 && !mixed {
        if is_root(c.uid) || is_root(c.euid) {
            c.permitted = c.bounding | c.inheritable;
        }
        effective |= is_root(c.euid);
    }
    let setid = c.euid != old.euid || !old.in_group(c.egid);
    if setid || c.permitted & !old.permitted != 0 {
        let caller = how_unsafe();
        if caller.shares_fs || caller.no_new_privs || caller.traced {
            if !old.own_ns_capable(Cap::SETUID) || caller.no_new_privs {
                c.euid = c.uid;
                c.egid = c.gid;
            }
            c.permitted &= old.permitted;
        }
    }
    c.suid = c.euid;
    c.sgid = c.egid;
    c.fsuid = c.euid;
    c.fsgid = c.egid;
    if gift.caps.is_some() || setid {
        c.ambient = 0;
    }
    c.permitted |= c.ambient;
    c.effective = if effective { c.permitted } else { c.ambient };
    c.securebits &= !KEEP_CAPS;
    let more = !is_root(c.uid) && (effective || c.permitted & !c.ambient != 0);
    let secure = setid || more || c.euid != old.uid || c.egid != old.gid;
    Ok(NewCreds { creds: c, secure })
}

#[cfg(test)]
mod tests {
    use super::*;
    use user_ns::UserNamespace;

    fn user(uid: u32) -> Credentials {
        let root = Credentials::root(&UserNamespace::initial(), Cap::ALL);
        Credentials { uid, euid: uid, suid: uid, fsuid: uid, permitted: 0, effective: 0, ..root }
    }

    fn gets(old: &Credentials, gift: Gift) -> Credentials {
        compute(old, gift, Unsafe::default).unwrap().creds
    }

    const SHARED: Unsafe = Unsafe { shares_fs: true, no_new_privs: false, traced: false };
    const TRACED: Unsafe = Unsafe { shares_fs: false, no_new_privs: false, traced: true };
    const ROOT: Gift = Gift { uid: Some(0), gid: None, caps: None };

    #[test]
    fn set_user_id_root_gives_capabilities() {
        let c = gets(&user(5), ROOT);
        assert_eq!((c.uid, c.euid, c.suid, c.fsuid), (5, 0, 0, 0));
        assert_eq!((c.permitted, c.effective), (c.bounding, c.bounding));
        let shared = compute(&user(5), ROOT, || SHARED).unwrap();
        assert_eq!((shared.creds.euid, shared.creds.effective), (5, 0));
        let traced = compute(&user(5), ROOT, || TRACED).unwrap();
        assert_eq!((traced.creds.euid, traced.creds.effective), (5, 0));
    }

    #[test]
    fn ambient_capabilities_survive_plain_programs_only() {
        let old = Credentials { ambient: 4, inheritable: 4, permitted: 4, ..user(5) };
        let plain = gets(&old, Gift::default());
        assert_eq!((plain.permitted, plain.effective, plain.ambient), (4, 4, 4));
        assert_eq!(gets(&old, ROOT).ambient, 0);
        let none = FileCaps { permitted: 0, inheritable: 0, effective: false, root: None };
        let with_caps = gets(&old, Gift { caps: Some(none), ..Gift::default() });
        assert_eq!((with_caps.permitted, with_caps.ambient), (0, 0));
    }

    #[test]
    fn without_root_rules_user_0_gets_nothing() {
        let old = Credentials { securebits: NOROOT | KEEP_CAPS, ..user(0) };
        let c = gets(&old, Gift::default());
        assert_eq!((c.permitted, c.effective, c.securebits), (0, 0, NOROOT));
    }

    #[test]
    fn capabilities_of_files_go_by_the_bounding_set() {
        let caps = FileCaps { permitted: 6, inheritable: 8, effective: true, root: None };
        let gift = |caps| Gift { caps: Some(caps), ..Gift::default() };
        let new = compute(&user(5), gift(caps), Unsafe::default).unwrap();
        assert_eq!((new.creds.permitted, new.creds.effective, new.secure), (6, 6, true));
        let bounded = Credentials { bounding: 2, ..user(5) };
        assert_eq!(compute(&bounded, gift(caps), Unsafe::default).unwrap_err(), Errno::EPERM);
        // A program that looks after its capabilities itself takes what there is.
        let aware = FileCaps { effective: false, ..caps };
        let c = gets(&Credentials { inheritable: 8, ..bounded }, gift(aware));
        assert_eq!((c.permitted, c.effective), (10, 0));
        let locked = compute(&user(5), gift(caps), || Unsafe { no_new_privs: true, ..SHARED }).unwrap();
        assert_eq!(locked.creds.permitted, 0);
    }

    #[test]
    fn root_has_all_whatever_the_file_says() {
        let caps = FileCaps { permitted: 2, inheritable: 0, effective: false, root: None };
        let c = gets(&user(0), Gift { caps: Some(caps), ..Gift::default() });
        assert_eq!((c.permitted, c.effective), (c.bounding, c.bounding));
        // A set-user-ID program with capabilities has these only.
        let c = gets(&user(5), Gift { caps: Some(caps), ..ROOT });
        assert_eq!((c.euid, c.permitted, c.effective), (0, 2, 0));
    }
}
