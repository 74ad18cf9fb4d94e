//! Mode and filters of a thread under seccomp(2). A filter is installed by the thread itself, or by another thread of its process
//! (SECCOMP_FILTER_FLAG_TSYNC) under the group's signal lock. Lock: a leaf. A checkpoint keeps mode and filters.

use abi::Errno;
use lock_order::RwLock;
use seccomp::Chain;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// SECCOMP_MODE_DISABLED.
pub const DISABLED: u8 = 0;
/// SECCOMP_MODE_STRICT.
pub const STRICT: u8 = 1;
/// SECCOMP_MODE_FILTER.
pub const FILTER: u8 = 2;
/// Mode and filters of a thread.
#[derive(Default)]
pub struct Seccomp {
    mode: AtomicU8,
    chain: RwLock<Option<Arc<Chain>>>,
}

/// Mode and filters as plain data: what a new thread inherits, and a checkpoint keeps.
#[derive(Clone, Default)]
pub struct SeccompState {
    /// SECCOMP_MODE_*.
    pub mode: u8,
    /// The filters, newest first.
    pub filters: Option<Arc<Chain>>,
}

impl Seccomp {
    /// SECCOMP_MODE_*.
    pub fn mode(&self) -> u8 {
        self.mode.load(Ordering::Acquire)
    }

    /// Number of filters.
    pub fn filters(&self) -> u32 {
        self.chain.read().as_ref().map_or(0, |c| c.count())
    }

    /// The instructions of filter `number`, from the first installed on, and whether it wants actions logged. EINVAL without
    /// filters, ENOENT when there are fewer.
    pub fn filter(&self, number: u64) -> abi::Result<(Vec<seccomp::SockFilter>, bool)> {
        if self.mode() != FILTER {
            return Err(Errno::EINVAL);
        }
        let chain = self.chain().ok_or(Errno::EINVAL)?;
        let (code, log) = chain.filter(number).ok_or(Errno::ENOENT)?;
        Ok((code.to_vec(), log))
    }

    /// The filters, newest first.
    pub fn chain(&self) -> Option<Arc<Chain>> {
        self.chain.read().clone()
    }

    /// Puts filters into force.
    pub fn set_chain(&self, c: Arc<Chain>) {
        *self.chain.write() = Some(c);
        self.mode.store(FILTER, Ordering::Release);
    }

    /// Puts strict mode into force.
    pub fn set_strict(&self) {
        self.mode.store(STRICT, Ordering::Release);
    }

    /// Mode and filters as plain data.
    pub fn state(&self) -> SeccompState {
        let filters = self.chain();
        SeccompState { mode: self.mode(), filters }
    }

    /// Puts mode and filters into force, of a thread that has none.
    pub fn set_state(&self, state: SeccompState) {
        let SeccompState { mode, filters } = state;
        *self.chain.write() = filters;
        self.mode.store(mode, Ordering::Release);
    }

    /// The platform must report the calls that it could answer by itself: the filters have a say in them.
    pub fn wants_all(&self) -> bool {
        match self.mode() {
            DISABLED => false,
            FILTER => self
                .chain
                .read()
                .as_ref()
                .is_some_and(|c| platform::NATIVE_CALLS.iter().any(|&nr| !c.always_allows(nr.into()))),
            _ => true,
        }
    }

    /// Whether the filters let this call pass whatever its arguments are.
    pub fn always_allows(&self, nr: u64) -> bool {
        self.chain.read().as_ref().is_some_and(|c| c.always_allows(nr))
    }
}
