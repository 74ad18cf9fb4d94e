//! inotify_init(2), inotify_add_watch(2), inotify_rm_watch(2).

use crate::arg::{Fd, PathPtr, check_flags};
use crate::at::{self, CWD};
use abi::Errno;
use ipc::inotify::Inotify;
use namei::{Lookup, walk};
use rights::mode;
use task::{Current, SysResult};
use vfs::access;

const IN_ONLYDIR: u32 = 0x0100_0000;
const IN_DONT_FOLLOW: u32 = 0x0200_0000;

pub fn inotify_init(c: &mut Current) -> SysResult {
    inotify_init1(c, 0)
}

pub fn inotify_init1(c: &mut Current, flags: i32) -> SysResult {
    check_flags(flags, libc::O_NONBLOCK | libc::O_CLOEXEC)?;
    let file = Inotify::open(c, flags & libc::O_NONBLOCK)?;
    Ok(c.install(file, flags & libc::O_CLOEXEC != 0)? as u64)
}

pub fn inotify_add_watch(c: &mut Current, fd: Fd, path: PathPtr, mask: u32) -> SysResult {
    let file = c.file(fd.0)?;
    let instance = Inotify::of(&file).ok_or(Errno::EINVAL)?;
    let (start, path) = at::read(c, CWD, path)?;
    let mut look = Lookup::empty();
    look.set(Lookup::FOLLOW, mask & IN_DONT_FOLLOW == 0);
    look.set(Lookup::DIRECTORY, mask & IN_ONLYDIR != 0);
    let place = walk::lookup(c, &c.fs().view(), &start, &path, look)?;
    access::inode_may(c, place.inode(), mode::MAY_READ)?;
    Ok(instance.add(&place, mask)? as u64)
}

pub fn inotify_rm_watch(c: &mut Current, fd: Fd, watch: i32) -> SysResult {
    let file = c.file(fd.0)?;
    Inotify::of(&file).ok_or(Errno::EINVAL)?.remove(watch)?;
    Ok(0)
}
