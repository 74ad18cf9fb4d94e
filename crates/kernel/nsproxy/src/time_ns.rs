//! Time namespaces: offsets of two clocks. See time_namespaces(7).
//!
//! A task enters one at fork(2), execve(2) or setns(2). From then on the offsets cannot change.

use abi::time::Timespec;
use abi::{Errno, Result};
use lock_order::Mutex;
use std::sync::Arc;
use user_ns::{NamespaceCount, UserNamespace};

/// KTIME_SEC_MAX: seconds that fit 63 bits of nanoseconds.
const MOST_SECONDS: i64 = i64::MAX / 1_000_000_000;

/// What a namespace adds to the host's clocks. Nanoseconds are in 0..1000000000, also of negative ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Offsets {
    /// Of CLOCK_MONOTONIC and its relatives.
    pub monotonic: Timespec,
    /// Of CLOCK_BOOTTIME.
    pub boottime: Timespec,
}

impl Offsets {
    /// ERANGE as of [`TimeNamespace::set`].
    pub fn check(&self, now: impl Fn(i32) -> i64) -> Result<()> {
        check(self.monotonic, now(libc::CLOCK_MONOTONIC))?;
        check(self.boottime, now(libc::CLOCK_BOOTTIME))
    }
}

/// ERANGE for an offset of a clock that shows `now`.
fn check(offset: Timespec, now: i64) -> Result<()> {
    let plausible = (-MOST_SECONDS..=MOST_SECONDS).contains(&offset.sec);
    let shown = || (i128::from(now) + i128::from(offset.as_ns())).div_euclid(1_000_000_000);
    if plausible && (0..=i128::from(MOST_SECONDS / 2)).contains(&shown()) {
        Ok(())
    } else {
        Err(Errno::ERANGE)
    }
}

/// A time namespace.
pub struct TimeNamespace {
    /// Number of its nsfs inode.
    pub inum: u64,
    user_ns: Arc<UserNamespace>,
    state: Mutex<State>,
    counted: Option<NamespaceCount>,
}

struct State {
    offsets: Offsets,
    frozen: bool,
}

impl TimeNamespace {
    /// The initial one, with offsets that are always zero.
    pub fn initial(inum: u64, user_ns: Arc<UserNamespace>) -> Arc<TimeNamespace> {
        let state = Mutex::new(State { offsets: Offsets::default(), frozen: true });
        Arc::new(TimeNamespace { inum, user_ns, state, counted: None })
    }

    /// One with these offsets for ever.
    pub fn shifted(inum: u64, user_ns: Arc<UserNamespace>, offsets: Offsets) -> Arc<TimeNamespace> {
        let state = Mutex::new(State { offsets, frozen: true });
        Arc::new(TimeNamespace { inum, user_ns, state, counted: None })
    }

    /// A new one, without tasks.
    pub(crate) fn new(
        inum: u64,
        user_ns: Arc<UserNamespace>,
        offsets: Offsets,
        counted: Option<NamespaceCount>,
    ) -> Arc<TimeNamespace> {
        let state = Mutex::new(State { offsets, frozen: false });
        Arc::new(TimeNamespace { inum, user_ns, state, counted })
    }

    /// The user that it counts for, if it counts.
    pub fn counted_for(&self) -> Option<u32> {
        self.counted.as_ref().map(NamespaceCount::user)
    }

    /// Whether a task has entered it.
    pub fn is_frozen(&self) -> bool {
        self.state.lock().frozen
    }

    /// Where capabilities over it are held.
    pub fn user_ns(&self) -> &Arc<UserNamespace> {
        &self.user_ns
    }

    /// The offsets as they are now.
    pub fn offsets(&self) -> Offsets {
        self.state.lock().offsets
    }

    /// Nanoseconds that a task in the namespace sees a host clock (CLOCK_*) ahead, negative for behind.
    pub fn offset_ns(&self, clock: i32) -> i64 {
        match clock {
            libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_MONOTONIC_COARSE => {
                self.offsets().monotonic.as_ns()
            }
            libc::CLOCK_BOOTTIME | libc::CLOCK_BOOTTIME_ALARM => self.offsets().boottime.as_ns(),
            _ => 0,
        }
    }

    /// Whether its clocks differ from the host's.
    pub fn is_shifted(&self) -> bool {
        self.offsets() != Offsets::default()
    }

    /// A task enters it: the offsets stay as they are.
    pub fn freeze(&self) {
        self.state.lock().frozen = true;
    }

    /// Sets offsets of clocks (CLOCK_MONOTONIC or CLOCK_BOOTTIME), all of them or none; `now` gives the host's time of
    /// a clock in nanoseconds. ERANGE where a clock would show less than zero or more than it ever may; EACCES once a
    /// task has entered.
    pub fn set(&self, new: &[(i32, Timespec)], now: impl Fn(i32) -> i64) -> Result<()> {
        for (clock, offset) in new {
            check(*offset, now(*clock))?;
        }
        let mut state = self.state.lock();
        if state.frozen {
            return Err(Errno::EACCES);
        }
        for (clock, offset) in new {
            match *clock {
                libc::CLOCK_MONOTONIC => state.offsets.monotonic = *offset,
                _ => state.offsets.boottime = *offset,
            }
        }
        Ok(())
    }
}
