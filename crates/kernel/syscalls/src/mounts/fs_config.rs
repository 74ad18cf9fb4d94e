//! fsopen(2), fspick(2), fsconfig(2), fsmount(2): a file system in steps.

use crate::arg::{DirFd, Fd, PathPtr, Ptr};
use crate::at;
use crate::install::install;
use crate::mounts::mount::may_mount;
use crate::mounts::mount_fd::new_flags;
use abi::{Errno, Result};
use mounts::fs_config::FsConfig;
use mounts::fs_parameters::Value;
use std::sync::Arc;
use task::{Asked, Current, NamespaceCaller, SysResult};
use vfs::{FileLayer, OpenFile};

const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSPICK_CLOEXEC: u32 = 1;
const FSPICK_SYMLINK_NOFOLLOW: u32 = 2;
const FSPICK_NO_AUTOMOUNT: u32 = 4;
const FSPICK_EMPTY_PATH: u32 = 8;

const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_SET_BINARY: u32 = 2;
const FSCONFIG_SET_PATH: u32 = 3;
const FSCONFIG_SET_PATH_EMPTY: u32 = 4;
const FSCONFIG_SET_FD: u32 = 5;
const FSCONFIG_CMD_CREATE: u32 = 6;
const FSCONFIG_CMD_RECONFIGURE: u32 = 7;
const FSCONFIG_CMD_CREATE_EXCL: u32 = 8;

/// Longest name or text of fsconfig(2), its NUL included.
const STRING_MAX: usize = 256;
/// Longest binary value of fsconfig(2).
const BINARY_MAX: i32 = 1 << 20;

fn install_config(c: &Current, config: FsConfig<dyn NamespaceCaller>, cloexec: bool) -> SysResult {
    let inode = Some(c.vfs().anonymous_inode());
    install(c, OpenFile::new(None, inode, Arc::new(config), libc::O_RDWR), cloexec)
}

pub fn fsopen(c: &mut Current, name: Ptr, flags: u32) -> SysResult {
    may_mount(c)?;
    if flags & !FSOPEN_CLOEXEC != 0 {
        return Err(Errno::EINVAL.into());
    }
    let name = c.read_cstr(name.0, 4096, Errno::EINVAL)?;
    let kind = c
        .kernel()
        .fs_types
        .find(&name)
        .inspect_err(|_| c.kernel().coverage.note_bytes(Asked::FileSystem, &name))?;
    install_config(c, FsConfig::<dyn NamespaceCaller>::new(c, kind), flags & FSOPEN_CLOEXEC != 0)
}

pub fn fspick(c: &mut Current, dir: DirFd, path: PathPtr, flags: u32) -> SysResult {
    may_mount(c)?;
    let known = FSPICK_CLOEXEC | FSPICK_SYMLINK_NOFOLLOW | FSPICK_NO_AUTOMOUNT | FSPICK_EMPTY_PATH;
    if flags & !known != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut at_flags = 0;
    if flags & FSPICK_SYMLINK_NOFOLLOW != 0 {
        at_flags |= libc::AT_SYMLINK_NOFOLLOW;
    }
    if flags & FSPICK_EMPTY_PATH != 0 {
        at_flags |= libc::AT_EMPTY_PATH;
    }
    let place = at::At::with_flags(c, dir, path, at_flags)?.lookup(c, at::follow(at_flags))?;
    if !place.is_mount_root() {
        return Err(Errno::EINVAL.into());
    }
    // The root of a container is of a type that mount(2) may not know; its parameters are its own.
    let kind = c.kernel().fs_types.find(place.mount.fs().kind().as_bytes()).map_err(|_| Errno::EOPNOTSUPP)?;
    install_config(
        c,
        FsConfig::<dyn NamespaceCaller>::reconfiguring(c, kind, place),
        flags & FSPICK_CLOEXEC != 0,
    )
}

/// Whether the arguments are such as the command takes.
fn judge(command: u32, key: Ptr, value: Ptr, aux: i32) -> Result<()> {
    let good = match command {
        FSCONFIG_SET_FLAG => !key.is_null() && value.is_null() && aux == 0,
        FSCONFIG_SET_STRING => !key.is_null() && !value.is_null() && aux == 0,
        FSCONFIG_SET_BINARY => !key.is_null() && !value.is_null() && aux > 0 && aux <= BINARY_MAX,
        FSCONFIG_SET_PATH | FSCONFIG_SET_PATH_EMPTY => {
            !key.is_null() && !value.is_null() && (aux == libc::AT_FDCWD || aux >= 0)
        }
        FSCONFIG_SET_FD => !key.is_null() && value.is_null() && aux >= 0,
        FSCONFIG_CMD_CREATE | FSCONFIG_CMD_CREATE_EXCL | FSCONFIG_CMD_RECONFIGURE => {
            key.is_null() && value.is_null() && aux == 0
        }
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if good { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The value that a command brings.
fn value_of(c: &Current, command: u32, value: Ptr, aux: i32) -> Result<Value> {
    Ok(match command {
        FSCONFIG_SET_FLAG => Value::Flag,
        FSCONFIG_SET_STRING => Value::String(c.read_cstr(value.0, STRING_MAX, Errno::EINVAL)?),
        FSCONFIG_SET_BINARY => {
            // No type takes one; it must be readable.
            c.read_bytes(value.0, &mut vec![0; aux.max(0) as usize])?;
            Value::Other
        }
        FSCONFIG_SET_FD => Value::File(c.file(aux)?),
        _ => {
            let path = c.read_path(value.0)?;
            if path.is_empty() && command == FSCONFIG_SET_PATH {
                return Err(Errno::ENOENT);
            }
            Value::Other
        }
    })
}

pub fn fsconfig(c: &mut Current, fd: Fd, command: u32, key: Ptr, value: Ptr, aux: i32) -> SysResult {
    if fd.0 < 0 {
        return Err(Errno::EINVAL.into());
    }
    judge(command, key, value, aux)?;
    let file = at::real_file(c, fd)?;
    let config = file.ops.as_any().downcast_ref::<FsConfig<dyn NamespaceCaller>>().ok_or(Errno::EINVAL)?;
    match command {
        FSCONFIG_CMD_CREATE | FSCONFIG_CMD_CREATE_EXCL => drop(config.create(c)?),
        FSCONFIG_CMD_RECONFIGURE => config.reconfigure(c)?,
        _ => {
            let key = c.read_cstr(key.0, STRING_MAX, Errno::EINVAL)?;
            config.set(&key, value_of(c, command, value, aux)?)?;
        }
    }
    Ok(0)
}

pub fn fsmount(c: &mut Current, fd: Fd, flags: u32, attributes: u32) -> SysResult {
    may_mount(c)?;
    if flags & !FSMOUNT_CLOEXEC != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mount_flags = new_flags(attributes.into())?;
    let file = at::real_file(c, fd)?;
    let config = file.ops.as_any().downcast_ref::<FsConfig<dyn NamespaceCaller>>().ok_or(Errno::EINVAL)?;
    let ns = c.fs().view().ns.clone();
    let mount = config.mount(&ns, mount_flags)?;
    let tree = mounts::detached::open_new(c, &ns, mount)?;
    install(c, tree, flags & FSMOUNT_CLOEXEC != 0)
}
