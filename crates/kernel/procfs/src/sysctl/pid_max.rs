//! kernel.pid_max: each PID namespace has its own, for its own numbers.

use super::{SysctlView, bounded, seen};
use abi::Result;
use kernfs::At;
use pid::{PID_MAX, PID_MAX_MIN};
use rights::Cap;
use vfs::Caller;

/// As a text.
pub(super) fn get(k: &SysctlView) -> String {
    k.pid_ns.max().to_string()
}

/// Sets it. Processes with higher numbers keep them.
pub(super) fn set(k: &SysctlView, text: &str) -> Result<()> {
    let max = bounded(text, PID_MAX_MIN.into(), PID_MAX.into())?;
    k.pid_ns.set_max(max as i32);
    Ok(())
}

/// Whether the caller is root of the user namespace that owns its PID namespace, or has CAP_SYS_ADMIN there.
pub(super) fn may_write(at: &At, cx: &dyn Caller) -> bool {
    let (creds, pid_ns) = (cx.creds(), seen(at).pid_ns);
    let owner = pid_ns.user_ns();
    creds.ns_capable(owner, Cap::SYS_ADMIN) || owner.is_root(creds.euid)
}
