//! Capability names to bit masks.

use crate::{Result, fail};
use oci_spec::runtime::Capabilities;

/// Every capability that Linux knows, as a mask.
pub const ALL: u64 = (1 << NAMES.len()) - 1;

/// Names in the order of their numbers.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Every capability's whole name.
pub(crate) fn names() -> Vec<String> {
    NAMES.iter().map(|name| format!("CAP_{name}")).collect()
}

/// The mask of a set in a configuration; an absent set is empty.
pub(crate) fn mask(set: &Option<Capabilities>) -> Result<u64> {
    let mut mask = 0;
    for capability in set.iter().flatten() {
        mask |= bit(&capability.to_string())?;
    }
    Ok(mask)
}

/// The mask of one capability, by its name with or without `CAP_`.
pub fn bit(name: &str) -> Result<u64> {
    let short = name.strip_prefix("CAP_").unwrap_or(name);
    match NAMES.iter().position(|known| *known == short) {
        Some(number) => Ok(1 << number),
        None => fail!("process.capabilities: unknown capability {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::Capability;

    #[test]
    fn names_become_bits() {
        let set: Capabilities = [Capability::Chown, Capability::Kill, Capability::CheckpointRestore].into();
        assert_eq!(mask(&Some(set)).unwrap(), 1 | 1 << 5 | 1 << 40);
        assert_eq!(mask(&None).unwrap(), 0);
        assert_eq!(ALL, 0x1ff_ffff_ffff);
    }
}
