//! What opening the terminal devices does.

use crate::devpts::{Node, Root, SLAVE_MAJOR};
use crate::files::SlaveFile;
use crate::job::job_control;
use crate::pty::Pty;
use abi::{Errno, Result};
use std::sync::Arc;
use vfs::devices::{Opened, register_char};
use vfs::{Caller, FileOps, InodeRef, Path};

/// Registers /dev/tty, /dev/console, /dev/ptmx and the slaves. Called once, when the kernel starts.
pub fn register() {
    register_char(
        "/dev/tty",
        5,
        0..=0,
        Arc::new(|cx: &dyn Caller, _: &Path, _: &InodeRef, flags: i32| Ok(Opened::Ops(open_own(cx, flags)?))),
    );
    register_char(
        "/dev/console",
        5,
        1..=1,
        Arc::new(|cx: &dyn Caller, _: &Path, _: &InodeRef, flags: i32| Ok(Opened::Ops(open_own(cx, flags)?))),
    );
    register_char(
        "/dev/ptmx",
        5,
        2..=2,
        Arc::new(|cx: &dyn Caller, at: &Path, i: &InodeRef, flags: i32| {
            Ok(Opened::Ops(open_ptmx(cx, at, i, flags)?))
        }),
    );
    register_char(
        "pts",
        SLAVE_MAJOR,
        0..=0xfffff,
        Arc::new(|cx: &dyn Caller, _: &Path, i: &InodeRef, flags: i32| {
            let node = i.as_any().downcast_ref::<Node>().ok_or(Errno::EIO)?;
            Ok(Opened::Ops(node.open_device(cx, flags)?))
        }),
    );
}

/// The caller's controlling terminal.
fn open_own(cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
    let tty = job_control().terminal(cx.sid()).ok_or(Errno::ENXIO)?;
    let pty = tty.downcast::<Pty>().map_err(|_| Errno::ENXIO)?;
    Ok(SlaveFile::open(&pty, cx, flags | libc::O_NOCTTY)?)
}

/// /dev/pts/ptmx makes a pair there; a node elsewhere one in the `pts` directory beside it.
fn open_ptmx(cx: &dyn Caller, at: &Path, inode: &InodeRef, flags: i32) -> Result<Arc<dyn FileOps>> {
    if let Some(n) = inode.as_any().downcast_ref::<Node>() {
        return n.open_device(cx, flags);
    }
    let dir = at.dentry.parent().ok_or(Errno::ENODEV)?;
    let pts = vfs::walk::find(cx, &dir, b"pts", false).map_err(|_| Errno::ENODEV)?;
    let place = Path { mount: at.mount.clone(), dentry: pts }.cross_mounts();
    let root = place.inode().as_any().downcast_ref::<Root>().ok_or(Errno::ENODEV)?;
    Ok(root.devpts()?.open_master(cx)?)
}
