//! /dev/loop-control.

use crate::device::Loops;
use abi::{Errno, Result};
use caller::UserMemory;
use std::any::Any;
use std::sync::Arc;
use vfs::{Caller, FileOps, OpenFile};

const LOOP_CTL_ADD: u32 = 0x4c80;
const LOOP_CTL_REMOVE: u32 = 0x4c81;
const LOOP_CTL_GET_FREE: u32 = 0x4c82;

/// An open file of it.
pub(crate) struct ControlFile(pub Arc<Loops>);

impl FileOps for ControlFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn ioctl(
        &self,
        _cx: &dyn Caller,
        _file: &OpenFile,
        _mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        let number = match cmd {
            LOOP_CTL_ADD => self.0.add(arg as i32),
            LOOP_CTL_REMOVE => self.0.remove(arg as i32),
            LOOP_CTL_GET_FREE => self.0.free(),
            _ => Err(Errno::ENOSYS),
        };
        number.map(u64::from)
    }
}
