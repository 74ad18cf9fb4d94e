//! Credentials of a new program: set-id bits and the capability rules of capabilities(7).

use abi::{Result, libc};
use std::sync::atomic::Ordering;
use task::Current;
use vfs::mount::MountFlags;
use vfs::{Cap, Credentials, OpenFile};

/// SECBIT_NOROOT.
const NOROOT: u32 = 1;
/// SECBIT_KEEP_CAPS, which does not survive.
const KEEP_CAPS: u32 = 0x10;

/// The user and group that a file runs as, where its set-id bits say so.
#[derive(Clone, Copy, Debug, Default)]
struct SetId {
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Credentials of the caller once it runs this program.
pub(crate) fn of_program(c: &Current, file: &OpenFile) -> Result<Credentials> {
    let attr = file.attr()?;
    let nosuid = file.path.as_ref().is_some_and(|p| p.mount.flags().contains(MountFlags::NOSUID));
    let mut set = SetId::default();
    if !nosuid && !c.task.no_new_privs.load(Ordering::Relaxed) {
        const SGID: u32 = libc::S_ISGID | libc::S_IXGRP;
        set.uid = (attr.mode & libc::S_ISUID != 0).then_some(attr.uid);
        set.gid = (attr.mode & SGID == SGID).then_some(attr.gid);
    }
    Ok(compute(&c.task.creds(), set, || c.shares_fs_with_others()))
}

/// `shares_fs` says whether another process could change the root and the working directory under the new program's feet.
fn compute(old: &Credentials, set: SetId, shares_fs: impl FnOnce() -> bool) -> Credentials {
    let mut c = old.clone();
    c.euid = set.uid.unwrap_or(c.euid);
    c.egid = set.gid.unwrap_or(c.egid);
    let setid = c.euid != old.euid || c.egid != old.egid;
    let unsafe_share = setid && shares_fs();
    if unsafe_share && !old.own_ns_capable(Cap::SETUID) {
        c.euid = c.uid;
        c.egid = c.gid;
    }
    c.suid = c.euid;
    c.sgid = c.egid;
    c.fsuid = c.euid;
    c.fsgid = c.egid;
    let noroot = c.securebits & NOROOT != 0;
    let (mut file_permitted, mut file_inheritable, mut file_effective) = (0, 0, false);
    if !noroot {
        if c.uid == 0 || c.euid == 0 {
            file_permitted = Cap::ALL;
            file_inheritable = Cap::ALL;
        }
        file_effective = c.euid == 0;
    }
    let privileged = file_permitted != 0 && setid;
    c.ambient = if privileged { 0 } else { c.ambient };
    c.permitted = c.inheritable & file_inheritable | file_permitted & c.bounding | c.ambient;
    if unsafe_share {
        c.permitted &= old.permitted;
    }
    c.effective = if file_effective { c.permitted } else { c.ambient };
    c.securebits &= !KEEP_CAPS;
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use user_ns::UserNamespace;

    fn user(uid: u32) -> Credentials {
        let root = Credentials::root(&UserNamespace::initial(), Cap::ALL);
        Credentials { uid, euid: uid, suid: uid, fsuid: uid, permitted: 0, effective: 0, ..root }
    }

    #[test]
    fn set_user_id_root_gives_capabilities() {
        let set = SetId { uid: Some(0), gid: None };
        let c = compute(&user(5), set, || false);
        assert_eq!((c.uid, c.euid, c.suid, c.fsuid), (5, 0, 0, 0));
        assert_eq!((c.permitted, c.effective), (c.bounding, c.bounding));
        let shared = compute(&user(5), set, || true);
        assert_eq!((shared.euid, shared.effective), (5, 0));
    }

    #[test]
    fn ambient_capabilities_survive_plain_programs_only() {
        let old = Credentials { ambient: 4, inheritable: 4, permitted: 4, ..user(5) };
        let plain = compute(&old, SetId::default(), || false);
        assert_eq!((plain.permitted, plain.effective, plain.ambient), (4, 4, 4));
        assert_eq!(compute(&old, SetId { uid: Some(0), gid: None }, || false).ambient, 0);
    }

    #[test]
    fn without_root_rules_user_0_gets_nothing() {
        let old = Credentials { securebits: NOROOT | KEEP_CAPS, ..user(0) };
        let c = compute(&old, SetId::default(), || false);
        assert_eq!((c.permitted, c.effective, c.securebits), (0, 0, NOROOT));
    }
}
