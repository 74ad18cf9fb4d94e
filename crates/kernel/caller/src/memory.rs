//! The caller's memory.

use abi::Result;

/// Access to the caller's memory for calls with a layout that only a driver knows (ioctl).
pub trait UserMemory {
    /// Copies from the caller; EFAULT when any byte cannot be read.
    fn copy_in(&mut self, addr: u64, buf: &mut [u8]) -> Result<()>;
    /// Copies to the caller; EFAULT when any byte cannot be written.
    fn copy_out(&mut self, addr: u64, data: &[u8]) -> Result<()>;
}

impl dyn UserMemory + '_ {
    /// Reads a plain value.
    pub fn read_value<T: zerocopy::FromBytes + zerocopy::IntoBytes>(&mut self, addr: u64) -> Result<T> {
        let mut v = T::new_zeroed();
        self.copy_in(addr, v.as_mut_bytes())?;
        Ok(v)
    }
    /// Writes a plain value.
    pub fn write_value<T: zerocopy::IntoBytes + zerocopy::Immutable>(
        &mut self,
        addr: u64,
        v: &T,
    ) -> Result<()> {
        self.copy_out(addr, v.as_bytes())
    }
}
