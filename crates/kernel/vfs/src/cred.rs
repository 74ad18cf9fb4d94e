//! Credentials: immutable once built, shared by `Arc`. See credentials(7), capabilities(7).

use arc_swap::Guard;
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
    pub groups: Vec<u32>,
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
}

impl Credentials {
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
            groups: Vec::new(),
            permitted: caps,
            effective: caps,
            inheritable: 0,
            bounding: caps,
            ambient: 0,
            securebits: 0,
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
    /// `ns_capable(current_user_ns(), ..)`, and to inodes, `capable_wrt_inode_uidgid`: every namespace knows their owners, as
    /// none has a map of IDs.
    pub fn own_ns_capable(&self, cap: Cap) -> bool {
        self.effective & cap.bit() != 0
    }

    /// True when `gid` is the file-access group or a supplementary one.
    pub fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }
}
