//! The configuration that `spec` writes.

use serde_json::{Value, json};

/// A configuration that runs `args` on the root file system in `rootfs`.
pub fn template(args: &[String], cwd: &str) -> Value {
    let capabilities = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": args == ["sh"],
            "user": { "uid": 0, "gid": 0 },
            "args": args,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": cwd,
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
            },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 }],
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "ringfence",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
              "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
            { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
              "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] },
            { "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
              "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"] },
            { "destination": "/sys", "type": "sysfs", "source": "sysfs",
              "options": ["nosuid", "noexec", "nodev", "ro"] },
        ],
        "linux": {
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
            ],
            "maskedPaths": [
                "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
            ],
            "readonlyPaths": [
                "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
            ],
        },
    })
}

/// The same for an ordinary user: a user namespace in which that user is root, and nothing that needs more.
pub fn template_rootless(args: &[String], cwd: &str, uid: u32, gid: u32) -> Value {
    let mut config = template(args, cwd);
    let linux = &mut config["linux"];
    linux["uidMappings"] = json!([{ "containerID": 0, "hostID": uid, "size": 1 }]);
    linux["gidMappings"] = json!([{ "containerID": 0, "hostID": gid, "size": 1 }]);
    // The network is loopback alone: only root can set one up.
    if let Some(namespaces) = linux["namespaces"].as_array_mut() {
        namespaces.push(json!({ "type": "user" }));
    }
    if let Some(linux) = linux.as_object_mut() {
        linux.remove("resources");
    }
    for mount in config["mounts"].as_array_mut().into_iter().flatten() {
        // There is one group.
        if let Some(options) = mount["options"].as_array_mut() {
            options.retain(|option| option != "gid=5");
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, load};

    #[test]
    fn an_ordinary_users_template() {
        let config = template_rootless(&["sh".into()], "/", 1000, 100);
        assert_eq!(config["linux"]["uidMappings"][0]["hostID"], 1000);
        assert_eq!(config["linux"]["gidMappings"][0]["hostID"], 100);
        assert!(!config.to_string().contains("gid=5") && config.to_string().contains("\"user\""));
    }

    #[test]
    fn the_template_is_a_valid_bundle() {
        let dir = std::env::temp_dir().join(format!("ringfence-template-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("rootfs")).unwrap();
        std::fs::write(dir.join("config.json"), template(&["true".into()], "/").to_string()).unwrap();
        let (prepared, _) = load(&dir, "id", &Options::default(), &|_| None).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(prepared.warnings, Vec::<String>::new());
        assert_eq!(prepared.spec.mounts.len(), 5);
        assert_eq!(prepared.spec.mounts[1].fstype, "tmpfs");
        // Behind the root, and the channel by which its files are opened once more.
        assert_eq!(prepared.spec.stdio, [2, 3, 4]);
        assert!(prepared.trees[0].readonly);
    }
}
