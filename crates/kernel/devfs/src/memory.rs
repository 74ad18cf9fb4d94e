//! The memory devices, major 1. See null(4), full(4), random(4).

use abi::{Errno, Result};
use caller::{Outcome, UserMemory};
use std::any::Any;
use std::sync::Arc;
use vfs::file::devices::{Devices, Opened};
use vfs::{Caller, FileOps, InodeRef, MapOps, MapRequest, Mapping, OpenFile, Path, SeekOps};
use wait::Events;

/// Which device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Device {
    Null,
    Zero,
    Full,
    Random,
}

impl FileOps for Device {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    fn as_map(&self) -> Option<&dyn MapOps> {
        Some(self)
    }
    fn read(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], _off: u64) -> Result<usize> {
        match self {
            Device::Null => return Ok(0),
            Device::Zero | Device::Full => buf.fill(0),
            Device::Random => hostsys::fs::random(buf),
        }
        Ok(buf.len())
    }
    fn write(&self, _cx: &dyn Caller, _file: &OpenFile, buf: &[u8], _off: u64) -> Result<usize> {
        match self {
            Device::Full => Err(Errno::ENOSPC),
            _ => Ok(buf.len()),
        }
    }
    fn splices(&self, write: bool) -> bool {
        !matches!((self, write), (Device::Null, false) | (Device::Full, true))
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        Events::READABLE | Events::WRITABLE
    }
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        const RNDGETENTCNT: u32 = 0x8004_5200;
        match (self, cmd) {
            (Device::Random, RNDGETENTCNT) => {
                mem.write_value(arg, &256i32)?;
                Ok(0)
            }
            (Device::Random, _) => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTTY),
        }
    }
}

impl SeekOps for Device {
    fn position_is_fixed(&self) -> bool {
        true
    }
}

impl MapOps for Device {
    fn map(&self, _cx: &dyn Caller, _file: &OpenFile, _req: &MapRequest) -> Result<Mapping> {
        match self {
            Device::Zero => Ok(Mapping::Anonymous),
            _ => Err(Errno::ENODEV),
        }
    }
}

fn open(device: Device) -> impl Fn(&dyn Caller, &Path, &InodeRef, i32) -> Outcome<Opened> + Send + Sync {
    move |_, _, _, _| Ok(Opened::Ops(Arc::new(device)))
}

/// Registers the drivers of the memory devices.
pub fn register(devices: &Devices) {
    for (device, first, last) in
        [(Device::Null, 3, 3), (Device::Zero, 5, 5), (Device::Full, 7, 7), (Device::Random, 8, 9)]
    {
        devices.register_char("mem", 1, first..=last, Arc::new(open(device)));
    }
}
