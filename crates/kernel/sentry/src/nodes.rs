//! `linux.devices`: nodes with the numbers that the configuration names.

use crate::boot::{other, text};
use crate::mounts::mkdir_all;
use abi::Errno;
use abi::stat::makedev;
use spec::{DeviceKind, DeviceSpec, StartError};
use vfs::{FsView, Internal, Lookup, NewNode, Start, attr, dir, walk};

/// Makes the nodes; one that is there already is left alone.
pub(crate) fn make(cx: &Internal, view: &FsView, devices: &[DeviceSpec]) -> Result<(), StartError> {
    for device in devices {
        one(cx, view, device).map_err(|e| other(format!("device {}: {}", device.path, text(e))))?;
    }
    Ok(())
}

fn one(cx: &Internal, view: &FsView, device: &DeviceSpec) -> Result<(), Errno> {
    let path = device.path.as_bytes();
    if let Some((parent, _)) = device.path.rsplit_once('/') {
        mkdir_all(cx, view, parent)?;
    }
    let number = makedev(device.major, device.minor);
    let node = match device.kind {
        DeviceKind::Char => NewNode::Char(number),
        DeviceKind::Block => NewNode::Block(number),
        DeviceKind::Fifo => NewNode::Fifo,
    };
    match dir::mknod(cx, view, &Start::Cwd, path, &node, device.mode) {
        Err(Errno::EEXIST) => return Ok(()),
        Err(e) => return Err(e),
        Ok(_) => {}
    }
    let at = walk::lookup(cx, view, &Start::Cwd, path, Lookup::empty())?;
    attr::chown(cx, &at, device.uid, device.gid)?;
    attr::chmod(cx, &at, device.mode)
}
