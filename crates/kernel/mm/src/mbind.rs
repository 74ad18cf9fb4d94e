//! mbind(2) and set_mempolicy_home_node(2): the policies of ranges.

use crate::map::MemoryMap;
use crate::ops::Mm;
use crate::policy::{Mode, Policy};
use abi::{Errno, PAGE_SIZE, Result, page_up};

/// A range of mbind(2): its end, EINVAL when it is none.
fn range_end(start: u64, len: u64) -> Result<u64> {
    let len = page_up(len).ok_or(Errno::EINVAL)?;
    start.checked_add(len).filter(|_| start.is_multiple_of(PAGE_SIZE)).ok_or(Errno::EINVAL)
}

impl MemoryMap {
    /// The policy at an address; `None` where nothing is mapped.
    pub fn policy_at(&self, addr: u64) -> Option<Policy> {
        self.find(addr).map(|v| v.policy)
    }
}

impl Mm {
    /// mbind(2).
    pub fn set_policy(&self, start: u64, len: u64, policy: Result<Policy>) -> Result<()> {
        let end = range_end(start, len)?;
        if start == end {
            return Ok(());
        }
        let policy = policy?;
        let mut m = self.map.lock();
        if !policy.is_default() && (end > m.max || !m.covered(start, end)) {
            return Err(Errno::EFAULT);
        }
        m.update(start, end, |v| v.policy = policy);
        Ok(())
    }

    /// set_mempolicy_home_node(2) for node 0.
    pub fn set_home_node(&self, start: u64, len: u64) -> Result<()> {
        let end = range_end(start, len)?;
        if start == end {
            return Ok(());
        }
        let m = self.map.lock();
        let mut found = Err(Errno::ENOENT);
        for v in m.overlapping(start, end).filter(|v| !v.policy.is_default()) {
            if !matches!(v.policy.mode, Mode::Bind | Mode::PreferredMany) {
                return Err(Errno::EOPNOTSUPP);
            }
            found = Ok(());
        }
        found
    }
}
