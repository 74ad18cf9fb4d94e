//! Credentials: immutable once built, shared by `Arc`. See credentials(7), capabilities(7).

use abi::{Errno, Result};
use arc_swap::Guard;
use landlock::Domain;
use std::sync::Arc;
use user_ns::UserNamespace;

/// Credentials in use: usually borrowed from a task, without counting. Not to be kept for longer than a call.
pub type Creds = Guard<Arc<Credentials>>;

/// A capability number (linux/capability.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cap(pub u8);

macro_rules! caps { ($($n:ident = $v:expr),* $(,)?) => {
    impl Cap { $(#[doc = concat!("CAP_", stringify!($n), ", capabilities(7).")] pub const $n: Cap = Cap($v);)* }
} }
caps! { CHOWN = 0, DAC_OVERRIDE = 1, DAC_READ_SEARCH = 2, FOWNER = 3, FSETID = 4, KILL = 5, SETGID = 6, SETUID = 7,
SETPCAP = 8, LINUX_IMMUTABLE = 9, NET_BIND_SERVICE = 10, NET_BROADCAST = 11, NET_ADMIN = 12, NET_RAW = 13,
IPC_LOCK = 14, IPC_OWNER = 15, SYS_MODULE = 16, SYS_RAWIO = 17, SYS_CHROOT = 18, SYS_PTRACE = 19, SYS_PACCT = 20,
SYS_ADMIN = 21, SYS_BOOT = 22, SYS_NICE = 23, SYS_RESOURCE = 24, SYS_TIME = 25, SYS_TTY_CONFIG = 26, MKNOD = 27,
LEASE = 28, AUDIT_WRITE = 29, AUDIT_CONTROL = 30, SETFCAP = 31, MAC_OVERRIDE = 32, MAC_ADMIN = 33, SYSLOG = 34,
WAKE_ALARM = 35, BLOCK_SUSPEND = 36, AUDIT_READ = 37, PERFMON = 38, BPF = 39, CHECKPOINT_RESTORE = 40 }

impl Cap {
    /// Highest capability number (/proc/sys/kernel/cap_last_cap).
    pub const LAST: u8 = 40;
    /// Mask with every capability.
    pub const ALL: u64 = (1 << 41) - 1;
    /// The bit of this capability.
    pub const fn bit(self) -> u64 {
        1 << self.0
    }
}

/// A task's identity for permission checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Where the capabilities are held.
    pub user_ns: Arc<UserNamespace>,
    /// Real user id.
    pub uid: u32,
    /// Effective user id.
    pub euid: u32,
    /// Saved user id.
    pub suid: u32,
    /// User id for file access.
    pub fsuid: u32,
    /// Real group id.
    pub gid: u32,
    /// Effective group id.
    pub egid: u32,
    /// Saved group id.
    pub sgid: u32,
    /// Group id for file access.
    pub fsgid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Permitted capabilities, bit n for capability n; likewise below.
    pub permitted: u64,
    /// Effective capabilities.
    pub effective: u64,
    /// Inheritable capabilities.
    pub inheritable: u64,
    /// Bounding set.
    pub bounding: u64,
    /// Ambient set.
    pub ambient: u64,
    /// SECBIT_* flags.
    pub securebits: u32,
    /// The Landlock domain that it is under.
    pub landlock: Option<Arc<Domain>>,
    /// Tells them from those of other processes and of other times, as the address of Linux's `struct cred` does. 0 as
    /// long as no task has them.
    pub serial: u64,
}

/// [`Credentials`] as plain data, for a checkpoint. The user namespace and the Landlock domain are objects of their
/// own; `confined` says whether there is a domain. The serial number is not kept: a restored task gets a new one.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[expect(missing_docs, reason = "the fields of Credentials")]
pub struct CredentialsState {
    pub uids: [u32; 4],
    pub gids: [u32; 4],
    pub groups: Vec<u32>,
    pub permitted: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub bounding: u64,
    pub ambient: u64,
    pub securebits: u32,
    pub confined: bool,
    /// The number of the user namespace; 0 is the initial one.
    #[serde(default)]
    pub user_ns: u64,
}

impl CredentialsState {
    /// All capabilities that are in one of the sets.
    pub fn capabilities(&self) -> u64 {
        self.permitted | self.effective | self.inheritable | self.bounding | self.ambient
    }
}

impl Credentials {
    /// As plain data.
    pub fn state(&self) -> CredentialsState {
        // Field by field without a rest, so that a new field is either kept or does not compile.
        let Credentials {
            user_ns,
            uid,
            euid,
            suid,
            fsuid,
            gid,
            egid,
            sgid,
            fsgid,
            groups,
            permitted,
            effective,
            inheritable,
            bounding,
            ambient,
            securebits,
            landlock,
            serial: _,
        } = self;
        CredentialsState {
            uids: [*uid, *euid, *suid, *fsuid],
            gids: [*gid, *egid, *sgid, *fsgid],
            groups: groups.to_vec(),
            permitted: *permitted,
            effective: *effective,
            inheritable: *inheritable,
            bounding: *bounding,
            ambient: *ambient,
            securebits: *securebits,
            confined: landlock.is_some(),
            user_ns: if user_ns.is_initial() { 0 } else { user_ns.inum() },
        }
    }

    /// Back from plain data, with capabilities held in `user_ns`, confined by `landlock`. `None` when they were
    /// confined and there is no domain for them, or the other way round.
    pub fn restore(
        saved: &CredentialsState,
        user_ns: Arc<UserNamespace>,
        landlock: Option<Arc<Domain>>,
    ) -> Option<Credentials> {
        let CredentialsState {
            uids: [uid, euid, suid, fsuid],
            gids: [gid, egid, sgid, fsgid],
            groups,
            permitted,
            effective,
            inheritable,
            bounding,
            ambient,
            securebits,
            confined,
            user_ns: _,
        } = saved.clone();
        (confined == landlock.is_some()).then_some(Credentials {
            user_ns,
            uid,
            euid,
            suid,
            fsuid,
            gid,
            egid,
            sgid,
            fsgid,
            groups: groups.into(),
            permitted,
            effective,
            inheritable,
            bounding,
            ambient,
            securebits,
            landlock,
            serial: 0,
        })
    }

    /// User 0 of a namespace with the given capabilities in every set but the ambient and inheritable ones.
    pub fn root(user_ns: &Arc<UserNamespace>, caps: u64) -> Credentials {
        Credentials {
            user_ns: user_ns.clone(),
            uid: 0,
            euid: 0,
            suid: 0,
            fsuid: 0,
            gid: 0,
            egid: 0,
            sgid: 0,
            fsgid: 0,
            groups: Arc::default(),
            permitted: caps,
            effective: caps,
            inheritable: 0,
            bounding: caps,
            ambient: 0,
            securebits: 0,
            landlock: None,
            serial: 0,
        }
    }

    /// In use as they are, for callers that are not tasks.
    pub fn in_use(self) -> Creds {
        Guard::from_inner(Arc::new(self))
    }

    /// True when the capability is effective in `ns`: for what belongs to a namespace. Linux's `ns_capable`.
    pub fn ns_capable(&self, ns: &UserNamespace, cap: Cap) -> bool {
        ns.grants(&self.user_ns, self.euid, self.effective & cap.bit() != 0)
    }

    /// True when the capability is effective in the initial namespace: for what concerns the whole kernel. Linux's `capable`.
    pub fn capable(&self, cap: Cap) -> bool {
        self.user_ns.is_initial() && self.effective & cap.bit() != 0
    }

    /// True when the capability is effective in the caller's own namespace: for what a task does to itself, Linux's
    /// `ns_capable(current_user_ns(), ..)`.
    pub fn own_ns_capable(&self, cap: Cap) -> bool {
        self.effective & cap.bit() != 0
    }

    /// True when the capability is effective over an inode of this user and group: in the caller's own namespace, which has to
    /// have both. Linux's `capable_wrt_inode_uidgid`.
    pub fn capable_over(&self, uid: u32, gid: u32, cap: Cap) -> bool {
        let ns = &self.user_ns;
        self.own_ns_capable(cap)
            && (ns.is_initial() || ns.user_here(uid).is_some() && ns.group_here(gid).is_some())
    }

    /// Whether a thread that changes to `new` acts as another user, or gains capabilities.
    pub fn outgrown_by(&self, new: &Credentials) -> bool {
        let ids = |c: &Credentials| [c.euid, c.egid, c.fsuid, c.fsgid];
        ids(self) != ids(new) || !self.hold_caps_of(new)
    }

    /// Whether these credentials hold all capabilities that `new` permits (cred_cap_issubset).
    fn hold_caps_of(&self, new: &Credentials) -> bool {
        if self.user_ns == new.user_ns {
            return new.permitted & !self.permitted == 0;
        }
        new.user_ns.grants(&self.user_ns, self.euid, false)
    }

    /// EPERM under a Landlock domain that is about files: mounts stay as they are.
    pub fn may_change_mounts(&self) -> Result<()> {
        let restricted = self.landlock.as_ref().is_some_and(|d| d.restricts_files());
        if restricted { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// All capabilities in a user namespace that the task enters, and none outside (set_cred_user_ns).
    pub fn enter(&mut self, user_ns: Arc<UserNamespace>) {
        self.user_ns = user_ns;
        self.securebits = 0;
        (self.inheritable, self.ambient) = (0, 0);
        (self.permitted, self.effective, self.bounding) = (Cap::ALL, Cap::ALL, Cap::ALL);
    }

    /// True when `gid` is the file-access group or a supplementary one.
    pub fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_back() {
        let user_ns = UserNamespace::initial();
        let creds = Credentials {
            user_ns: user_ns.clone(),
            uid: 1,
            euid: 2,
            suid: 3,
            fsuid: 4,
            gid: 5,
            egid: 6,
            sgid: 7,
            fsgid: 8,
            groups: Arc::from([9, 10]),
            permitted: 11,
            effective: 12,
            inheritable: 13,
            bounding: 14,
            ambient: 15,
            landlock: None,
            serial: 0,
            securebits: 16,
        };
        assert_eq!(Credentials::restore(&creds.state(), user_ns.clone(), None), Some(creds.clone()));
        // What was confined does not come back free.
        let confined = CredentialsState { confined: true, ..creds.state() };
        assert_eq!(Credentials::restore(&confined, user_ns, None), None);
    }
}
