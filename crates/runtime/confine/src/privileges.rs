//! Capabilities and their like.

use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::io;

/// What the process keeps that makes calls on the files of a container: the kernel inside decides about access, and gives files
/// to any user. docs/security.md argues each.
pub const FOR_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETFCAP);

/// Empties the bounding set, so that no exec gives a capability back, and says so with no_new_privs.
/// What the process has now it keeps; what it starts gets no more than that.
pub fn bound() -> io::Result<()> {
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) => remove_capability_from_bounding_set(capability)?,
            Ok(false) => {}
            // A number that this kernel does not know ends the list.
            Err(_) => break,
        }
    }
    Ok(set_no_new_privs(true)?)
}

/// Keeps `keep` in the effective and permitted sets and drops everything else
/// from every set for good. No exec gives any of it back.
pub fn keep_only(keep: CapabilitySet) -> io::Result<()> {
    bound()?;
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: keep, permitted: keep, inheritable: none })?;
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
