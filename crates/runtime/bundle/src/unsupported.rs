//! Fields that cannot be honoured: an error that names the field, or, where ignoring it changes no behaviour that
//! the container could rely on, a warning.

use crate::namespaces::{Namespace, Namespaces};
use crate::{Result, fail};
use oci_spec::runtime::{Linux, LinuxPersonalityDomain, Process, Spec};

/// Longest host or domain name in bytes, as Linux has it.
const MAX_NAME: usize = 64;

/// Fails on the first field that cannot be honoured; adds what is ignored to `warnings`.
pub(crate) fn check(spec: &Spec, namespaces: &Namespaces, warnings: &mut Vec<String>) -> Result<()> {
    if let Some(hooks) = spec.hooks()
        && let Err(error) = hooks::check(hooks)
    {
        fail!("{error}");
    }
    let annotations = spec.annotations().as_ref();
    if annotations.is_some_and(|all| all.contains_key("run.oci.keep_original_groups")) {
        warnings.push(
            "annotation run.oci.keep_original_groups is ignored: the kernel inside knows the groups of \
             process.user.additionalGids alone"
                .into(),
        );
    }
    let own_name = namespaces.uts != Namespace::Host;
    for (field, value) in [("hostname", spec.hostname()), ("domainname", spec.domainname())] {
        if !own_name && value.as_ref().is_some_and(|value| !value.is_empty()) {
            fail!("{field} needs a UTS namespace; add {{\"type\": \"uts\"}} to linux.namespaces");
        }
        if value.as_ref().is_some_and(|value| value.len() > MAX_NAME) {
            fail!("{field} is longer than {MAX_NAME} bytes, which sethostname(2) does not take");
        }
    }
    if let Some(process) = spec.process() {
        check_process(process, warnings)?;
    }
    if let Some(linux) = spec.linux() {
        check_linux(linux, warnings)?;
    }
    Ok(())
}

/// The same for a process alone.
pub(crate) fn check_process(process: &Process, warnings: &mut Vec<String>) -> Result<()> {
    if process.exec_cpu_affinity().is_some() {
        fail!("process.execCPUAffinity is not supported");
    }
    if process.user().uid() == u32::MAX || process.user().gid() == u32::MAX {
        fail!("process.user: {} is no user or group; it stands for \"leave as it is\"", u32::MAX);
    }
    let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if given(process.apparmor_profile()) {
        warnings.push("process.apparmorProfile is ignored: host policies do not see the guest".into());
    }
    if given(process.selinux_label()) {
        warnings.push("process.selinuxLabel is ignored: host policies do not see the guest".into());
    }
    Ok(())
}

fn check_linux(linux: &Linux, warnings: &mut Vec<String>) -> Result<()> {
    let present = [
        ("netDevices", linux.net_devices().as_ref().is_some_and(|d| !d.is_empty())),
        ("intelRdt", linux.intel_rdt().is_some()),
        ("memoryPolicy", linux.memory_policy().is_some()),
    ];
    if let Some((field, _)) = present.iter().find(|(_, present)| *present) {
        fail!("linux.{field} is not supported");
    }
    if let Some(personality) = linux.personality() {
        if personality.domain() != LinuxPersonalityDomain::PerLinux {
            fail!("linux.personality.domain LINUX32 is not supported; use LINUX");
        }
        if personality.flags().as_ref().is_some_and(|flags| !flags.is_empty()) {
            fail!("linux.personality.flags are not supported; the specification defines none");
        }
    }
    if linux.mount_label().as_ref().is_some_and(|label| !label.is_empty()) {
        warnings.push("linux.mountLabel is ignored: host policies do not see the guest".into());
    }
    for (field, paths) in [("maskedPaths", linux.masked_paths()), ("readonlyPaths", linux.readonly_paths())] {
        if let Some(path) = paths.iter().flatten().find(|path| !path.starts_with('/')) {
            fail!("linux.{field}: {path:?} must be an absolute path");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(json: serde_json::Value) -> Result<Vec<String>> {
        let spec: Spec = serde_json::from_value(json).unwrap();
        let mut warnings = Vec::new();
        let linux = spec.linux().clone().unwrap_or_default();
        let namespaces = crate::namespaces::namespaces(&linux, false, false, &mut Vec::new())?;
        check(&spec, &namespaces, &mut warnings)?;
        Ok(warnings)
    }

    #[test]
    fn what_is_refused_is_named() {
        let all = json!([{ "type": "uts" }]);
        let linux = |extra: serde_json::Value| {
            let mut linux = json!({ "namespaces": all });
            for (name, value) in extra.as_object().unwrap() {
                linux[name] = value.clone();
            }
            json!({ "ociVersion": "1.2.0", "linux": linux })
        };
        let error = |json| run(json).unwrap_err().to_string();
        let host = json!({ "ociVersion": "1.2.0", "hostname": "x", "linux": { "namespaces": [] } });
        assert!(error(host).starts_with("hostname needs a UTS namespace"));
        assert!(error(linux(json!({ "intelRdt": {} }))).starts_with("linux.intelRdt"));
        let personality = json!({ "personality": { "domain": "LINUX32" } });
        assert!(error(linux(personality)).starts_with("linux.personality.domain"));
        assert!(error(linux(json!({ "maskedPaths": ["x"] }))).starts_with("linux.maskedPaths"));
        let hook = json!({ "ociVersion": "1.2.0", "hooks": { "poststop": [{ "path": "x" }] } });
        assert!(error(hook).starts_with("hooks.poststop[0].path"));
    }

    #[test]
    fn what_is_accepted() {
        let json = json!({
            "ociVersion": "1.2.1",
            "hostname": "x",
            "annotations": { "run.oci.keep_original_groups": "1" },
            "linux": {
                "namespaces": [{ "type": "uts" }, { "type": "time" }],
                "personality": { "domain": "LINUX" },
                "timeOffsets": { "boottime": { "secs": 0 } },
                "mountLabel": "label",
            },
        });
        let warnings = run(json).unwrap();
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("annotation run.oci.keep_original_groups"));
        assert!(warnings[1].starts_with("linux.mountLabel"));
    }
}
