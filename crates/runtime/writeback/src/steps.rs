//! The places where a test can stop a write-back: before each change of the directory that is written to.

use abi::Result;

/// Comes before each change.
pub(crate) fn step() -> Result<()> {
    #[cfg(test)]
    return counted::take();
    #[cfg(not(test))]
    Ok(())
}

#[cfg(test)]
pub(crate) use counted::allow;

#[cfg(test)]
mod counted {
    use abi::{Errno, Result};
    use std::cell::Cell;
    thread_local! { static LEFT: Cell<usize> = const { Cell::new(usize::MAX) }; }

    /// Allows this many steps.
    pub(crate) fn allow(steps: usize) {
        LEFT.set(steps);
    }

    pub(super) fn take() -> Result<()> {
        match LEFT.get() {
            0 => Err(Errno::EINTR),
            usize::MAX => Ok(()),
            left => {
                LEFT.set(left - 1);
                Ok(())
            }
        }
    }
}
