//! `linux.devices`: nodes with the numbers that the configuration names.
//!
//! A directory of the host takes no devices from a sandbox. A node there is one of a small tmpfs, mounted over an empty
//! file.

use crate::errors::{other, text};
use crate::places;
use abi::Errno;
use abi::stat::makedev;
use mounts::FsView;
use namei::{Lookup, Start, attr, dir, walk};
use spec::{DeviceKind, DeviceSpec, StartError};
use std::sync::Arc;
use tmpfs::{MemFiles, TmpFs};
use vfs::{Internal, Mount, MountFlags, NewNode, Path};

/// Makes the nodes; one that is there already is left alone.
pub(crate) fn make(
    cx: &Internal,
    memory: &Arc<MemFiles>,
    view: &FsView,
    devices: &[DeviceSpec],
) -> Result<(), StartError> {
    let mut elsewhere = None;
    for (index, device) in devices.iter().enumerate() {
        one(cx, memory, view, (index, device), &mut elsewhere)
            .map_err(|e| other(format!("device {}: {}", device.path, text(e))))?;
    }
    Ok(())
}

/// Makes one, if need be in `elsewhere`, a tmpfs that is made then.
fn one(
    cx: &Internal,
    memory: &Arc<MemFiles>,
    view: &FsView,
    (index, device): (usize, &DeviceSpec),
    elsewhere: &mut Option<Arc<Mount>>,
) -> Result<(), Errno> {
    let path = device.path.as_bytes();
    let name = path.rsplit(|c| *c == b'/').next().unwrap_or_default();
    let parent = path.strip_suffix(name).unwrap_or_default();
    let parent = places::find_or_make(cx, view, &String::from_utf8_lossy(parent), true)?.cross_mounts();
    let number = makedev(device.major, device.minor);
    let node = match device.kind {
        DeviceKind::Char => NewNode::Char(number),
        DeviceKind::Block => NewNode::Block(number),
        DeviceKind::Fifo => NewNode::Fifo,
    };
    let set = |at: &Path| {
        attr::chown(cx, at, device.uid, device.gid)?;
        attr::chmod(cx, at, device.mode)
    };
    match dir::create_in(cx, &parent, name, &node, device.mode) {
        Ok(at) => return set(&at),
        Err(Errno::EEXIST | Errno::EPERM | Errno::EROFS) => {}
        Err(error) => return Err(error),
    }
    let there = walk::lookup(cx, view, &Start::Cwd, path, Lookup::empty());
    if matches!(&there, Ok(there) if there.kind() != libc::S_IFREG) {
        return Ok(());
    }
    let at = places::find_or_make(cx, view, &device.path, false)?;
    let top = elsewhere.get_or_insert_with(|| {
        let options = tmpfs::Options { mode: 0o755, ..tmpfs::Options::default() };
        Mount::of(TmpFs::new(memory, options), MountFlags::NOSUID | MountFlags::NOEXEC, b"tmpfs")
    });
    let node = dir::create_in(cx, &top.root_path(), index.to_string().as_bytes(), &node, device.mode)?;
    set(&node)?;
    view.ns.add(&at, &Mount::new(top.sb.clone(), node.dentry, top.flags(), b"tmpfs"))
}
