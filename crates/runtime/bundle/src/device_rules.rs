//! `linux.resources.devices`, for the kernel inside. The host's control group needs no such rules, because no node
//! inside leads to a device of the host.

use crate::{Result, fail};
use oci_spec::runtime::{Linux, LinuxDeviceType as Type};
use spec::DeviceRule;

/// Numbers of character devices that every container may use: the memory devices, terminals, and /dev/net/tun.
const ALWAYS: [(u32, Option<u32>); 10] = [
    (1, Some(3)),
    (1, Some(5)),
    (1, Some(7)),
    (1, Some(8)),
    (1, Some(9)),
    (5, Some(0)),
    (5, Some(1)),
    (5, Some(2)),
    (10, Some(200)),
    (136, None),
];

/// mknod(2).
const MAKE: u32 = 1;
const ALL: u32 = 7;

/// The configuration's rules and what runtimes allow besides; none where it has none.
pub(crate) fn translate(linux: &Linux) -> Result<Vec<DeviceRule>> {
    let given = linux.resources().as_ref().and_then(|resources| resources.devices().as_deref());
    let mut rules = Vec::new();
    for (index, rule) in given.unwrap_or_default().iter().enumerate() {
        let field = format!("linux.resources.devices[{index}]");
        let number = |name: &str, value: Option<i64>| match value {
            None | Some(-1) => Ok(None),
            Some(value) => match u32::try_from(value) {
                Ok(value) => Ok(Some(value)),
                Err(_) => fail!("{field}.{name} {value} is not a device number"),
            },
        };
        let block = match rule.typ() {
            None | Some(Type::A) => None,
            Some(Type::B) => Some(true),
            Some(Type::C | Type::U) => Some(false),
            Some(Type::P) => fail!("{field}.type \"p\" has no rules; use a, b or c"),
        };
        let mut access = 0;
        for letter in rule.access().as_deref().filter(|text| !text.is_empty()).unwrap_or("rwm").chars() {
            access |= match letter {
                'm' => MAKE,
                'r' => 2,
                'w' => 4,
                _ => fail!("{field}.access {letter:?} is not r, w or m"),
            };
        }
        let (major, minor) = (number("major", rule.major())?, number("minor", rule.minor())?);
        rules.push(DeviceRule { allow: rule.allow(), block, major, minor, access });
    }
    if !rules.is_empty() {
        let make =
            |block| DeviceRule { allow: true, block: Some(block), major: None, minor: None, access: MAKE };
        rules.extend([make(false), make(true)]);
        rules.extend(ALWAYS.map(|(major, minor)| DeviceRule {
            allow: true,
            block: Some(false),
            major: Some(major),
            minor,
            access: ALL,
        }));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(devices: serde_json::Value) -> Result<Vec<DeviceRule>> {
        translate(&serde_json::from_value(json!({ "resources": { "devices": devices } })).unwrap())
    }

    #[test]
    fn rules() {
        assert_eq!(parse(json!([])), Ok(Vec::new()));
        let all = parse(json!([
            { "allow": false, "access": "rwm" },
            { "allow": true, "type": "b", "major": 7, "minor": -1, "access": "rw" },
        ]))
        .unwrap();
        let denied = DeviceRule { allow: false, block: None, major: None, minor: None, access: ALL };
        let loops = DeviceRule { allow: true, block: Some(true), major: Some(7), minor: None, access: 6 };
        assert_eq!(all[..2], [denied, loops]);
        assert_eq!(all.len(), 2 + 2 + ALWAYS.len());
        assert!(
            parse(json!([{ "allow": true, "access": "x" }])).unwrap_err().0.contains("devices[0].access")
        );
        assert!(parse(json!([{ "allow": true, "major": -7 }])).unwrap_err().0.contains("devices[0].major"));
    }
}
