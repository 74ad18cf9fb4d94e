//! Owners and modes of IPC objects.

use abi::{Errno, Result};
use rights::Cap;
use user_ns::UserNamespace;
use vfs::Caller;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct ipc64_perm` of x86-64.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in the manual page")]
pub struct IpcPerm {
    pub key: i32,
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    pub mode: u32,
    pub seq: u16,
    pub pad: u16,
    pub pad2: u32,
    pub unused: [u64; 2],
}

/// Key, owner, creator and mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Perm {
    /// The whole id.
    pub id: i32,
    /// Key, IPC_PRIVATE when it cannot be looked up.
    pub key: i32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Creator.
    pub cuid: u32,
    /// Creator's group.
    pub cgid: u32,
    /// Nine bits.
    pub mode: u32,
}

/// Read permission, for everybody's three bits.
pub const READ: u32 = 0o444;
/// Write permission.
pub const WRITE: u32 = 0o222;

impl IpcPerm {
    /// With the IDs of a user namespace.
    pub fn shown_in(self, ns: &UserNamespace) -> IpcPerm {
        IpcPerm {
            uid: ns.show_user(self.uid),
            gid: ns.show_group(self.gid),
            cuid: ns.show_user(self.cuid),
            cgid: ns.show_group(self.cgid),
            ..self
        }
    }
}

impl Perm {
    /// A new object's.
    pub fn new(cx: &dyn Caller, id: i32, key: i32, flags: i32) -> Perm {
        let c = cx.creds();
        Perm { id, key, uid: c.euid, gid: c.egid, cuid: c.euid, cgid: c.egid, mode: flags as u32 & 0o777 }
    }

    /// EACCES unless what `want` asks for (in any three bits of it) is granted, in a namespace that `user_ns` owns.
    pub fn check(&self, cx: &dyn Caller, user_ns: &UserNamespace, want: u32) -> Result<()> {
        let c = cx.creds();
        let want = (want >> 6 | want >> 3 | want) & 7;
        let shift = if c.euid == self.cuid || c.euid == self.uid {
            6
        } else if c.in_group(self.cgid) || c.in_group(self.gid) || [self.cgid, self.gid].contains(&c.egid) {
            3
        } else {
            0
        };
        if want & !(self.mode >> shift) == 0 || c.ns_capable(user_ns, Cap::IPC_OWNER) {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// EPERM unless the caller may change or remove the object, in a namespace that `user_ns` owns.
    pub fn owned(&self, cx: &dyn Caller, user_ns: &UserNamespace) -> Result<()> {
        let c = cx.creds();
        let owner = c.euid == self.cuid || c.euid == self.uid;
        if owner || c.ns_capable(user_ns, Cap::SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// IPC_SET, with IDs of the caller's user namespace, in a namespace that `user_ns` owns. EPERM, EINVAL.
    pub fn set(&mut self, cx: &dyn Caller, user_ns: &UserNamespace, p: &IpcPerm) -> Result<()> {
        self.owned(cx, user_ns)?;
        let ns = &cx.creds().user_ns;
        let (Some(uid), Some(gid)) = (ns.user(p.uid), ns.group(p.gid)) else { return Err(Errno::EINVAL) };
        self.uid = uid;
        self.gid = gid;
        self.mode = p.mode & 0o777;
        Ok(())
    }

    /// As programs see it.
    pub fn show(&self) -> IpcPerm {
        IpcPerm {
            key: self.key,
            uid: self.uid,
            gid: self.gid,
            cuid: self.cuid,
            cgid: self.cgid,
            mode: self.mode,
            seq: (self.id >> 15) as u16,
            ..IpcPerm::default()
        }
    }
}
