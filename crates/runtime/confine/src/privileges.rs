//! Capabilities and their like.

use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use std::io;

/// Keeps `keep` in the effective and permitted sets and drops everything else
/// from every set for good. No exec gives any of it back.
pub fn keep_only(keep: CapabilitySet) -> io::Result<()> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        // A number that this kernel does not know ends the list.
        if remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: keep, permitted: keep, inheritable: none })?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Has the kernel kill this process when the thread that started it ends. A
/// parent that ended before the call goes unnoticed: check for that after it.
pub fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Hides this process's memory and /proc entries from others of the same user, and from core dumps.
pub fn undumpable() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
