//! kernel.core_pattern: where core files go. See core(5).

use super::SysctlView;
use abi::{Errno, Result};

/// A socket (`@`) is refused: Linux takes one from the first mount namespace alone.
pub(super) fn put(k: &SysctlView, v: &str) -> Result<()> {
    if v.starts_with('@') {
        return Err(Errno::EINVAL);
    }
    k.kernel.sysctls.lock().insert("kernel/core_pattern", v.chars().take(127).collect());
    Ok(())
}
