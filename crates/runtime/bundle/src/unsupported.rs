//! Fields that are not supported yet: an error that names the field, or, where
//! ignoring it changes no behaviour that the container could rely on, a warning.

use crate::{Result, fail};
use oci_spec::runtime::{Linux, Spec};

/// Fails on the first field that cannot be honoured; returns what is ignored.
pub(crate) fn check(spec: &Spec) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if let Some(process) = spec.process() {
        if process.io_priority().is_some() {
            fail!("process.ioPriority is not supported");
        }
        if process.scheduler().is_some() {
            fail!("process.scheduler is not supported");
        }
        if process.exec_cpu_affinity().is_some() {
            fail!("process.execCPUAffinity is not supported");
        }
        if process.apparmor_profile().as_ref().is_some_and(|p| !p.is_empty()) {
            warnings.push("process.apparmorProfile is ignored: host policies do not see the guest".into());
        }
        if process.selinux_label().as_ref().is_some_and(|l| !l.is_empty()) {
            warnings.push("process.selinuxLabel is ignored: host policies do not see the guest".into());
        }
    }
    if let Some(linux) = spec.linux() {
        check_linux(linux, &mut warnings)?;
    }
    Ok(warnings)
}

fn check_linux(linux: &Linux, warnings: &mut Vec<String>) -> Result<()> {
    for (index, namespace) in linux.namespaces().iter().flatten().enumerate() {
        if namespace.path().is_some() {
            fail!("linux.namespaces[{index}].path: joining a namespace is not supported");
        }
    }
    let present = [
        ("uidMappings", linux.uid_mappings().as_ref().is_some_and(|m| !m.is_empty())),
        ("gidMappings", linux.gid_mappings().as_ref().is_some_and(|m| !m.is_empty())),
        ("devices", linux.devices().as_ref().is_some_and(|d| !d.is_empty())),
        ("netDevices", linux.net_devices().as_ref().is_some_and(|d| !d.is_empty())),
        ("intelRdt", linux.intel_rdt().is_some()),
        ("memoryPolicy", linux.memory_policy().is_some()),
        ("personality", linux.personality().is_some()),
        ("timeOffsets", linux.time_offsets().as_ref().is_some_and(|t| !t.is_empty())),
    ];
    if let Some((field, _)) = present.iter().find(|(_, present)| *present) {
        fail!("linux.{field} is not supported");
    }
    if linux.seccomp().is_some() {
        warnings.push("linux.seccomp is ignored: no call of the guest reaches the host".into());
    }
    Ok(())
}
