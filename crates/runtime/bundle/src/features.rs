//! The abilities of the runtime, in the form of the specification's features document (`ringfence features`).

use crate::{caps, mounts};
use serde_json::{Value, json};

/// The features document.
pub fn features() -> Value {
    let hooks = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];
    json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": crate::VERSION,
        "hooks": hooks,
        "mountOptions": mounts::known_options(),
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "capabilities": caps::names(),
            "cgroup": { "v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": true },
            "seccomp": {
                "enabled": true,
                "actions": [
                    "SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS",
                    "SCMP_ACT_KILL_THREAD", "SCMP_ACT_LOG", "SCMP_ACT_TRACE", "SCMP_ACT_TRAP",
                ],
                "operators": [
                    "SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ",
                    "SCMP_CMP_NE",
                ],
                "archs": ["SCMP_ARCH_X86_64"],
                "knownFlags": [
                    "SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW", "SECCOMP_FILTER_FLAG_TSYNC",
                ],
                "supportedFlags": [
                    "SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW", "SECCOMP_FILTER_FLAG_TSYNC",
                ],
            },
            "apparmor": { "enabled": false },
            "selinux": { "enabled": false },
            "intelRdt": { "enabled": false },
            "mountExtensions": { "idmap": { "enabled": true } },
        },
        "annotations": {},
        "potentiallyUnsafeConfigAnnotations": ["dev.ringfence.", "dev.gvisor.spec.rootfs."],
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_a_features_document() {
        let features: oci_spec::runtime::Features = serde_json::from_value(super::features()).unwrap();
        assert_eq!(features.oci_version_min(), "1.0.0");
        assert!(features.mount_options().as_ref().unwrap().contains(&"tmpcopyup".to_string()));
        assert_eq!(features.linux().as_ref().unwrap().capabilities().as_ref().unwrap().len(), 41);
    }
}
