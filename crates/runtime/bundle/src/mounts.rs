//! Mounts of a configuration.

use crate::config::reason;
use crate::{HostTree, Options, Result, fail};
use oci_spec::runtime::Mount;
use sentry::spec::{MountSpec, Overlay};
use std::path::Path;

/// A mount and, when it is a bind mount, what the gofer has to open for it.
pub(crate) struct Translated {
    pub(crate) mount: MountSpec,
    pub(crate) tree: Option<HostTree>,
}

/// Options that concern times of access or propagation between mount
/// namespaces: nothing that a container alone in its sandbox could tell apart
/// from the defaults, save for /proc/mounts.
const WITHOUT_EFFECT: [&str; 26] = [
    "defaults",
    "async",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "private",
    "rprivate",
    "shared",
    "rshared",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "copy-symlink",
    "tmpcopyup",
];

/// Options that would change what the container may do, and that nothing here can do yet.
const UNSUPPORTED: [&str; 9] =
    ["idmap", "ridmap", "rro", "rnosuid", "rnodev", "rnoexec", "rnosymfollow", "nosymfollow", "mand"];

/// Translates one mount. A relative bind source is relative to the bundle.
pub(crate) fn translate(dir: &Path, mount: &Mount, options: &Options) -> Result<Translated> {
    let destination = clean(&mount.destination().to_string_lossy());
    let mut out = MountSpec {
        destination,
        fstype: mount.typ().clone().unwrap_or_default(),
        source_fd: None,
        source_is_file: false,
        source: mount.source().as_ref().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        readonly: false,
        noexec: false,
        nosuid: false,
        nodev: false,
        overlay: Overlay::None,
        options: Vec::new(),
    };
    let mut bind = out.fstype == "bind";
    let mut recursive = false;
    for option in mount.options().iter().flatten() {
        match option.as_str() {
            "bind" => bind = true,
            "rbind" => (bind, recursive) = (true, true),
            "ro" => out.readonly = true,
            "rw" => out.readonly = false,
            "noexec" => out.noexec = true,
            "exec" => out.noexec = false,
            "nosuid" => out.nosuid = true,
            "suid" => out.nosuid = false,
            "nodev" => out.nodev = true,
            "dev" => out.nodev = false,
            "sync" | "dirsync" | "remount" => fail!("option {option} is not supported"),
            option if UNSUPPORTED.contains(&option) => fail!("option {option} is not supported"),
            option if WITHOUT_EFFECT.contains(&option) => {}
            _ => out.options.push(option.clone()),
        }
    }
    if out.destination == "/" {
        fail!("destination \"/\" would replace the root file system; use root.path");
    }
    if !bind {
        if out.fstype.is_empty() {
            fail!("type is missing for {}", out.destination);
        }
        if out.destination == "/dev" && out.fstype == "tmpfs" {
            out.fstype = "devtmpfs".into();
        }
        return Ok(Translated { mount: out, tree: None });
    }
    out.fstype = "bind".into();
    out.overlay = options.bind_overlay;
    let Some(source) = mount.source() else { fail!("source is missing for bind mount {}", out.destination) };
    let path = dir.join(source);
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) => fail!("source {}: {}", path.display(), reason(&error)),
    };
    out.source_is_file = !path.is_dir();
    let tree = HostTree {
        path,
        readonly: out.readonly || out.overlay != Overlay::None,
        recursive,
        is_file: out.source_is_file,
        mount_points: Vec::new(),
    };
    Ok(Translated { mount: out, tree: Some(tree) })
}

/// An absolute path without `.`, `..`, repeated or trailing slashes. `..` at the root stays there.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        assert_eq!(clean("/a/./b//c/"), "/a/b/c");
        assert_eq!(clean("../../etc"), "/etc");
        assert_eq!(clean("/"), "/");
    }

    fn parse(json: &str) -> Result<Translated> {
        translate(Path::new("/"), &serde_json::from_str(json).unwrap(), &Options::default())
    }

    #[test]
    fn options_are_told_apart() {
        let json =
            r#"{"destination":"/dev","type":"tmpfs","options":["nosuid","strictatime","mode=755","ro"]}"#;
        let mount = parse(json).unwrap().mount;
        assert_eq!(mount.fstype, "devtmpfs");
        assert!(mount.nosuid && mount.readonly && !mount.noexec);
        assert_eq!(mount.options, ["mode=755"]);
    }

    #[test]
    fn bind_mounts_name_their_source() {
        let t = parse(r#"{"destination":"/x","source":"/etc","options":["rbind","ro"]}"#).unwrap();
        let tree = t.tree.unwrap();
        assert!(tree.recursive && tree.readonly && !tree.is_file);
        assert_eq!(t.mount.fstype, "bind");
        let error = parse(r#"{"destination":"/x","type":"bind","source":"/nonexistent"}"#).err().unwrap();
        assert_eq!(error.0, "source /nonexistent: no such file or directory");
        assert!(parse(r#"{"destination":"/x","type":"bind","source":"/etc","options":["idmap"]}"#).is_err());
    }
}
