//! Times of last access: when they change. See mount(8), "relatime".

use abi::time::Timespec;
use vfs::{InodeRef, Mount, MountFlags, OpenFile};

/// Whether reading through `file` updates a time of last access that is `atime` (relatime unless the
/// mount says otherwise).
pub fn wants_atime(
    file: &OpenFile,
    atime: Timespec,
    mtime: Timespec,
    ctime: Timespec,
    now: Timespec,
) -> bool {
    if file.flags() & libc::O_NOATIME != 0 {
        return false;
    }
    if let Some(p) = &file.path {
        let f = p.mount.flags();
        if f.intersects(MountFlags::NOATIME | MountFlags::RDONLY)
            || f.contains(MountFlags::NODIRATIME) && p.is_dir()
        {
            return false;
        }
        if !f.contains(MountFlags::RELATIME) {
            return true;
        }
    }
    is_old(atime, mtime, ctime, now)
}

/// Whether relatime would replace a time of last access.
pub fn is_old(atime: Timespec, mtime: Timespec, ctime: Timespec, now: Timespec) -> bool {
    atime <= mtime || atime <= ctime || now.sec - atime.sec >= 24 * 3600
}

/// Tells a symbolic link that it was followed or read through `mount`.
pub fn followed(mount: &Mount, link: &InodeRef) {
    if !mount.flags().intersects(MountFlags::NOATIME | MountFlags::RDONLY)
        && let Some(link) = link.as_link()
    {
        link.followed();
    }
}
