//! Rules of control groups about devices.

use abi::Result;

/// A use of a device that control groups may refuse (`struct bpf_cgroup_dev_ctx`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// A block device rather than a character device.
    pub block: bool,
    /// Device number.
    pub number: u64,
    /// The kind of use: [`DeviceUse::MKNOD`], [`DeviceUse::READ`], [`DeviceUse::WRITE`].
    pub access: u32,
}

impl DeviceUse {
    /// mknod(2).
    pub const MKNOD: u32 = 1;
    /// Opening for reading.
    pub const READ: u32 = 2;
    /// Opening for writing.
    pub const WRITE: u32 = 4;
}

/// A caller in control groups that may restrict devices.
pub trait DeviceRules {
    /// Control groups of the sandbox have rules about devices: [`DeviceRules::check_device`] may refuse something.
    fn has_device_rules(&self) -> bool {
        false
    }
    /// EPERM when the caller's control groups refuse this use of a device. They refuse nothing to the kernel itself.
    fn check_device(&self, _device: &DeviceUse) -> Result<()> {
        Ok(())
    }
}
