//! Opening the terminal devices.

use crate::devpts::{Node, Root, SLAVE_MAJOR};
use crate::files::SlaveFile;
use crate::pty::JobControl;
use abi::{Errno, Result};
use std::sync::Arc;
use vfs::file::devices::{Devices, Opened};
use vfs::{Caller, FileOps, InodeRef, Path};

/// Registers /dev/tty, /dev/console, /dev/ptmx and the slaves.
pub fn register(devices: &Devices, jobs: &Arc<dyn JobControl>) {
    for (name, minor) in [("/dev/tty", 0), ("/dev/console", 1)] {
        let jobs = jobs.clone();
        let open = move |cx: &dyn Caller, _: &Path, _: &InodeRef, flags: i32| {
            Ok(Opened::Ops(open_own(&*jobs, cx, flags)?))
        };
        devices.register_char(name, 5, minor..=minor, Arc::new(open));
    }
    devices.register_char(
        "/dev/ptmx",
        5,
        2..=2,
        Arc::new(|cx: &dyn Caller, at: &Path, i: &InodeRef, flags: i32| {
            Ok(Opened::Ops(open_ptmx(cx, at, i, flags)?))
        }),
    );
    devices.register_char(
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
fn open_own(jobs: &dyn JobControl, cx: &dyn Caller, flags: i32) -> Result<Arc<dyn FileOps>> {
    let pty = jobs.terminal(cx.sid()).ok_or(Errno::ENXIO)?;
    Ok(SlaveFile::open(&pty, cx, flags | libc::O_NOCTTY)?)
}

/// /dev/pts/ptmx makes a pair there; a node elsewhere one in the `pts` directory beside it.
fn open_ptmx(cx: &dyn Caller, at: &Path, inode: &InodeRef, flags: i32) -> Result<Arc<dyn FileOps>> {
    if let Some(n) = inode.as_any().downcast_ref::<Node>() {
        return n.open_device(cx, flags);
    }
    let dir = at.dentry.parent().ok_or(Errno::ENODEV)?;
    let pts = namei::walk::find(cx, &dir, b"pts", false).map_err(|_| Errno::ENODEV)?;
    let place = Path { mount: at.mount.clone(), dentry: pts }.cross_mounts();
    let root = place.inode().as_any().downcast_ref::<Root>().ok_or(Errno::ENODEV)?;
    Ok(root.devpts()?.open_master(cx)?)
}
