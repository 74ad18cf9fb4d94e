//! Host calls that the guest thread makes about its own address space.

use super::SystrapContext;
use abi::Result;
use platform::{Context, OwnCall, OwnCalls};
use std::sync::atomic::Ordering::Relaxed;
use stub::layout as l;

impl OwnCalls for SystrapContext {
    fn own_call(&mut self, call: OwnCall, out: &mut [u8]) -> Result<u64> {
        self.flush()?;
        let buf = l::SLOT_BASE + self.thread.index as u64 * l::SLOT_SIZE + l::SLOT_DATA;
        let (nr, args) = stub::own_call::registers(call, buf, &self.inner.limits)?;
        if matches!(call, OwnCall::HugePagesOff(..)) {
            self.thread.space.set_changed();
        }
        self.host_call(nr, args)?;
        let result = self.slot().result().load(Relaxed);
        self.slot().read_window(0, 0, out);
        Ok(result)
    }
}
