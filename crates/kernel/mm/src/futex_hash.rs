//! PR_FUTEX_HASH of prctl(2): how many buckets a process's own hash table of futexes has.
//!
//! The kernel inside has one table for all, so the number changes nothing. It is chosen, checked and shown as on Linux 6.16.

use abi::{Errno, Result};

/// The least that a first thread brings.
const LEAST: u32 = 16;
/// Of the global table, for each processor.
const GLOBAL: u32 = 256;
/// More than the kernel finds memory for.
const TOO_MANY: u32 = 1 << 24;

/// The state of one address space; a copy made by fork(2) and a new program begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FutexHash {
    /// 0 for the global table.
    buckets: u32,
    /// The program has chosen.
    custom: bool,
    /// The global table, for good.
    global: bool,
}

impl FutexHash {
    /// PR_FUTEX_HASH_GET_SLOTS.
    pub fn get(&self) -> u32 {
        self.buckets
    }

    /// PR_FUTEX_HASH_SET_SLOTS: a power of two above 1, or 0. EINVAL, ENOMEM, and EBUSY once the global table was chosen.
    pub fn set(&mut self, buckets: u32) -> Result<()> {
        if buckets == 1 || buckets != 0 && !buckets.is_power_of_two() {
            return Err(Errno::EINVAL);
        }
        if buckets > TOO_MANY {
            return Err(Errno::ENOMEM);
        }
        if self.global {
            return Err(Errno::EBUSY);
        }
        *self = FutexHash { buckets, custom: true, global: buckets == 0 };
        Ok(())
    }

    /// A thread is about to be made in a process that has so many.
    pub fn grow(&mut self, threads: u32, processors: u32) {
        if self.custom {
            return;
        }
        let most = processors.saturating_mul(GLOBAL).next_power_of_two().max(LEAST);
        let wanted = threads.min(processors).saturating_mul(4).next_power_of_two().clamp(LEAST, most);
        self.buckets = self.buckets.max(wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_until_it_is_chosen() {
        let mut hash = FutexHash::default();
        assert_eq!(hash.get(), 0);
        hash.grow(1, 2);
        assert_eq!(hash.get(), 16);
        hash.grow(9, 8);
        assert_eq!(hash.get(), 32);
        assert_eq!(
            (hash.set(3), hash.set(1), hash.set(1 << 31)),
            (Err(Errno::EINVAL), Err(Errno::EINVAL), Err(Errno::ENOMEM))
        );
        assert_eq!(hash.set(4), Ok(()));
        hash.grow(100, 100);
        assert_eq!(hash.get(), 4);
        assert_eq!((hash.set(0), hash.set(0), hash.set(4)), (Ok(()), Err(Errno::EBUSY), Err(Errno::EBUSY)));
        assert_eq!(hash.get(), 0);
    }
}
