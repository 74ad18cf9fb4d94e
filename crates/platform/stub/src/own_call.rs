//! Host calls that guest threads make about their own address space, in registers.

use abi::{Errno, PAGE_SIZE, Result};
use platform::{Limits, MINCORE_PAGES, OwnCall};

/// The number and arguments of a call that writes its answer to `buf`, a page of memory that is not the guest's.
pub fn registers(call: OwnCall, buf: u64, limits: &Limits) -> Result<(i64, [u64; 6])> {
    match call {
        OwnCall::Membarrier(command, flags) => {
            let known = u32::try_from(command).is_ok_and(|c| crate::filter::MEMBARRIER.contains(&c));
            if !known || flags != 0 {
                return Err(Errno::EINVAL);
            }
            Ok((libc::SYS_membarrier, [command as u64, 0, 0, 0, 0, 0]))
        }
        OwnCall::HugePagesOff(off, flags) => {
            Ok((libc::SYS_prctl, [libc::PR_SET_THP_DISABLE as u64, u64::from(off), flags, 0, 0, 0]))
        }
        OwnCall::Mincore(addr, pages) => {
            let len = pages as u64 * PAGE_SIZE;
            if pages > MINCORE_PAGES || addr.checked_add(len).is_none_or(|end| end > limits.max) {
                return Err(Errno::ENOMEM);
            }
            Ok((libc::SYS_mincore, [addr, len, buf, 0, 0, 0]))
        }
    }
}
