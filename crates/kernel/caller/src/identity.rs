//! Process IDs of the caller, and of others as the caller sees them. See pid_namespaces(7).

use pid::{Pid, PidNamespace};
use std::sync::Arc;

/// A number that no process, group or session has.
pub const NO_ID: i32 = i32::MIN;

/// A caller with process IDs. Numbers are those of the sandbox's own PID namespace, by which the kernel's tables are
/// keyed ([`Pid::nr`]), unless a method says otherwise.
pub trait Identity {
    /// Process (thread group) ID.
    fn pid(&self) -> i32;
    /// Thread ID.
    fn tid(&self) -> i32;
    /// The name of the thread, as /proc/PID/comm shows it; empty for the kernel itself.
    fn comm(&self) -> Vec<u8> {
        Vec::new()
    }
    /// Process group ID.
    fn pgid(&self) -> i32;
    /// Session ID.
    fn sid(&self) -> i32;
    /// The PID namespace of the calling task; none for the kernel itself.
    fn pid_ns(&self) -> Option<Arc<PidNamespace>>;
    /// The process ID with this number, while anything refers to it.
    fn find_pid(&self, nr: i32) -> Option<Arc<Pid>>;
    /// The number that process, group or session `nr` has in the caller's namespace; 0 where it is not visible.
    fn pid_vnr(&self, nr: i32) -> i32 {
        if nr <= 0 { nr } else { self.find_pid(nr).map_or(0, |pid| self.vnr_of(&pid)) }
    }
    /// The number that `pid` has in the caller's namespace; 0 where it is not visible.
    fn vnr_of(&self, pid: &Pid) -> i32 {
        self.pid_ns().map_or(0, |ns| pid.nr_in(&ns))
    }
    /// The number of the process that has number `vnr` in the caller's namespace, or [`NO_ID`].
    fn find_vpid(&self, vnr: i32) -> i32 {
        self.pid_ns().and_then(|ns| ns.find(vnr)).map_or(NO_ID, |pid| pid.nr())
    }
}
