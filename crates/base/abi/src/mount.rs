//! Attributes of mounts, as fsmount(2) and mount_setattr(2) take them.

/// MOUNT_ATTR_RDONLY: it is read-only.
pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
/// MOUNT_ATTR_NOSUID: set-user-ID bits and file capabilities have no effect.
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
/// MOUNT_ATTR_NODEV: devices cannot be opened.
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
/// MOUNT_ATTR_NOEXEC: programs cannot be executed.
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;
/// MOUNT_ATTR__ATIME: the bits that hold one of three ways to keep times of access.
pub const MOUNT_ATTR_ATIME: u64 = 0x70;
/// MOUNT_ATTR_RELATIME: at times.
pub const MOUNT_ATTR_RELATIME: u64 = 0;
/// MOUNT_ATTR_NOATIME: never.
pub const MOUNT_ATTR_NOATIME: u64 = 0x10;
/// MOUNT_ATTR_STRICTATIME: always.
pub const MOUNT_ATTR_STRICTATIME: u64 = 0x20;
/// MOUNT_ATTR_NODIRATIME: not for directories.
pub const MOUNT_ATTR_NODIRATIME: u64 = 0x80;
/// MOUNT_ATTR_IDMAP: IDs are mapped; mount_setattr(2) alone takes it.
pub const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;
/// MOUNT_ATTR_NOSYMFOLLOW: symbolic links are not followed.
pub const MOUNT_ATTR_NOSYMFOLLOW: u64 = 0x20_0000;

/// What fsmount(2) takes.
pub const FSMOUNT_ATTRIBUTES: u64 = MOUNT_ATTR_RDONLY
    | MOUNT_ATTR_NOSUID
    | MOUNT_ATTR_NODEV
    | MOUNT_ATTR_NOEXEC
    | MOUNT_ATTR_ATIME
    | MOUNT_ATTR_NODIRATIME
    | MOUNT_ATTR_NOSYMFOLLOW;
