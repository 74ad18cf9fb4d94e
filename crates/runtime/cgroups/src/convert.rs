//! Values of the configuration in the form of the files, where v1 and v2 share it or differ in scale. Pure.

use crate::{Error, Result};
use oci_spec::runtime::{LinuxDeviceCgroup, LinuxRdma};

/// Devices that every container may use (null, zero, full, random, urandom, tty, ptmx and the terminals), and mknod.
pub(crate) const DEFAULT_DEVICES: [&str; 10] = [
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
];

/// A rule of the devices controller; `a` when nothing narrows it.
pub(crate) fn device_rule(rule: &LinuxDeviceCgroup) -> String {
    let typ = rule.typ();
    let kind = typ.as_ref().map_or("a", |typ| typ.as_str());
    let number = |n: Option<i64>| n.filter(|n| *n >= 0).map_or("*".to_string(), |n| n.to_string());
    let access = rule.access().clone().filter(|access| !access.is_empty()).unwrap_or("rwm".into());
    if kind == "a" {
        return "a".into();
    }
    format!("{kind} {}:{} {access}", number(rule.major()), number(rule.minor()))
}

/// A line of rdma.max.
pub(crate) fn rdma(device: &str, limit: &LinuxRdma) -> String {
    let mut line = device.to_string();
    if let Some(handles) = limit.hca_handles() {
        line.push_str(&format!(" hca_handle={handles}"));
    }
    if let Some(objects) = limit.hca_objects() {
        line.push_str(&format!(" hca_object={objects}"));
    }
    line
}

/// CPU shares (2 to 262144) as a weight (1 to 10000).
pub(crate) fn weight_of_shares(shares: u64) -> u64 {
    match shares {
        0 => 0,
        _ => 1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142,
    }
}

/// A block I/O weight (10 to 1000) as io.weight (1 to 10000).
pub(crate) fn io_weight(weight: u16) -> u64 {
    1 + (u64::from(weight).max(10) - 10) * 9999 / 990
}

/// The configuration counts memory and swap together, cgroup v2 swap alone. `None` leaves it alone.
pub(crate) fn swap_alone(both: i64, memory: i64) -> Result<Option<i64>> {
    let fail = |text: &str| Err(Error::Config(format!("linux.resources.memory.swap: {text}")));
    match (both, memory) {
        (0, -1) => Ok(Some(-1)),
        (0, _) => Ok(None),
        (-1, _) => Ok(Some(-1)),
        (both, _) if both < -1 => fail(&format!("invalid value {both}")),
        (both, -1) => Ok(Some(both)),
        (_, 0) => fail("unable to set swap limit without memory limit; set memory.limit, too"),
        (_, memory) if memory < 0 => fail(&format!("invalid memory limit {memory}")),
        (both, memory) if both < memory => {
            fail("it counts memory and swap together, and so cannot be below memory.limit")
        }
        (both, memory) => Ok(Some(both - memory)),
    }
}

/// A limit in cgroup v2's form.
pub(crate) fn or_max(value: i64) -> String {
    if value < 0 { "max".into() } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales() {
        assert_eq!([2, 1024, 262_144, 1, u64::MAX].map(weight_of_shares), [1, 39, 10000, 1, 10000]);
        assert_eq!([10, 500, 1000].map(io_weight), [1, 4950, 10000]);
    }

    #[test]
    fn swap_is_counted_differently() {
        assert_eq!(swap_alone(3, 2).unwrap(), Some(1));
        assert_eq!(swap_alone(2, 2).unwrap(), Some(0));
        assert_eq!(swap_alone(-1, 2).unwrap(), Some(-1));
        assert_eq!(swap_alone(0, -1).unwrap(), Some(-1));
        assert_eq!(swap_alone(0, 5).unwrap(), None);
        assert!(swap_alone(1, 2).is_err() && swap_alone(1, 0).is_err() && swap_alone(-2, 0).is_err());
    }

    #[test]
    fn device_rules() {
        let rule = |json: &str| device_rule(&serde_json::from_str(json).unwrap());
        assert_eq!(rule(r#"{"allow":false,"access":"rwm"}"#), "a");
        assert_eq!(rule(r#"{"allow":true,"type":"c","major":1,"minor":3,"access":"rw"}"#), "c 1:3 rw");
        assert_eq!(rule(r#"{"allow":true,"type":"b","major":-1}"#), "b *:* rwm");
    }
}
