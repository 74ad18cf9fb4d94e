//! `linux.devices`: nodes in the container.
//!
//! The memory devices and the terminal are the sandbox's own, whatever the configuration says about them. Other nodes
//! are made with their numbers, owner and mode; a device that the kernel inside has no driver for answers ENXIO when
//! it is opened. No node ever reaches a device of the host.

use crate::mounts::clean;
use crate::{Result, fail};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceType as Type};
use spec::{DeviceKind, DeviceSpec};

/// What devtmpfs has of its own.
const OWN: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/console",
    "/dev/pts/ptmx",
];

pub(crate) fn translate(devices: &[LinuxDevice]) -> Result<Vec<DeviceSpec>> {
    let mut out: Vec<DeviceSpec> = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        let field = format!("linux.devices[{index}]");
        let given = device.path().to_string_lossy();
        if !given.starts_with('/') {
            fail!("{field}.path {given:?} must be an absolute path");
        }
        let path = clean(&given);
        if OWN.contains(&path.as_str()) {
            continue;
        }
        let kind = match device.typ() {
            Type::C | Type::U => DeviceKind::Char,
            Type::B => DeviceKind::Block,
            Type::P => DeviceKind::Fifo,
            Type::A => fail!("{field}.type \"a\" is not a kind of node; use c, b or p"),
        };
        let number = |name: &str, value: i64| match u32::try_from(value) {
            _ if kind == DeviceKind::Fifo => Ok(0),
            Ok(value) => Ok(value),
            Err(_) => fail!("{field}.{name} {value} is not a device number"),
        };
        if out.iter().any(|other| other.path == path) {
            // runc makes the first one and finds it there.
            continue;
        }
        out.push(DeviceSpec {
            kind,
            major: number("major", device.major())?,
            minor: number("minor", device.minor())?,
            mode: device.file_mode().unwrap_or(0o666) & 0o7777,
            uid: device.uid().unwrap_or(0),
            gid: device.gid().unwrap_or(0),
            path,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(json: serde_json::Value) -> Result<Vec<DeviceSpec>> {
        translate(&serde_json::from_value::<Vec<LinuxDevice>>(json).unwrap())
    }

    #[test]
    fn nodes() {
        let list = parse(json!([
            { "path": "/dev/null", "type": "c", "major": 1, "minor": 3 },
            { "path": "/dev/./fuse", "type": "c", "major": 10, "minor": 229, "fileMode": 0o660, "uid": 1, "gid": 2 },
            { "path": "/dev/fuse", "type": "c", "major": 10, "minor": 229 },
            { "path": "/run/pipe", "type": "p", "major": 0, "minor": 0 },
        ]))
        .unwrap();
        assert_eq!(list.len(), 2);
        let fuse = DeviceSpec {
            path: "/dev/fuse".into(),
            kind: DeviceKind::Char,
            major: 10,
            minor: 229,
            mode: 0o660,
            uid: 1,
            gid: 2,
        };
        assert_eq!(list[0], fuse);
        assert_eq!(list[1].kind, DeviceKind::Fifo);
    }

    #[test]
    fn what_is_refused() {
        let error = |json| parse(json).unwrap_err().to_string();
        let relative = json!([{ "path": "x", "type": "c", "major": 1, "minor": 1 }]);
        assert!(error(relative).starts_with("linux.devices[0].path"));
        let negative = json!([{ "path": "/x", "type": "c", "major": -1, "minor": 1 }]);
        assert!(error(negative).starts_with("linux.devices[0].major"));
        let all = json!([{ "path": "/x", "type": "a", "major": 1, "minor": 1 }]);
        assert!(error(all).starts_with("linux.devices[0].type"));
    }
}
