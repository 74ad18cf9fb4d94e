//! `linux.devices`: nodes with the numbers that the configuration names.

use crate::boot::{other, text};
use crate::mounts::mkdir_all;
use crate::spec::{DeviceKind, DeviceSpec, StartError};
use abi::Errno;
use abi::stat::makedev;
use vfs::{FsView, Internal, Lookup, NewNode, Start, attr, dir, walk};

/// Makes the nodes; one that is there already is left alone.
pub(crate) fn make(view: &FsView, devices: &[DeviceSpec]) -> Result<(), StartError> {
    for device in devices {
        one(view, device).map_err(|e| other(format!("device {}: {}", device.path, text(e))))?;
    }
    Ok(())
}

fn one(view: &FsView, device: &DeviceSpec) -> Result<(), Errno> {
    let path = device.path.as_bytes();
    if let Some((parent, _)) = device.path.rsplit_once('/') {
        mkdir_all(&Internal, view, parent)?;
    }
    let number = makedev(device.major, device.minor);
    let node = match device.kind {
        DeviceKind::Char => NewNode::Char(number),
        DeviceKind::Block => NewNode::Block(number),
        DeviceKind::Fifo => NewNode::Fifo,
    };
    match dir::mknod(&Internal, view, &Start::Cwd, path, &node, device.mode) {
        Err(Errno::EEXIST) => return Ok(()),
        Err(e) => return Err(e),
        Ok(_) => {}
    }
    let at = walk::lookup(&Internal, view, &Start::Cwd, path, Lookup::empty())?;
    attr::chown(&Internal, &at, device.uid, device.gid)?;
    attr::chmod(&Internal, &at, device.mode)
}
