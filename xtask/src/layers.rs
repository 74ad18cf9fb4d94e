//! The architecture as the folders state it: which crate may use which, and where unsafe code may be.

use crate::metadata::{self, Metadata, Package};
use crate::sources::{files, read};
use std::path::Path;

/// Folders, lowest first. A crate may use crates of its own folder and of lower ones.
const LAYERS: [&str; 8] = [
    "crates/base",
    "crates/floor",
    "crates/platform",
    "crates/net",
    "crates/kernel",
    "crates/runtime",
    "bin",
    // Whatever checks or tests the rest.
    "",
];

/// The order of the crates of each folder, lowest first. A crate may use those before it.
const ORDER: [(&str, &[&str]); 6] = [
    (
        "crates/base",
        &[
            "abi",
            "bpf",
            "decision_log",
            "overlay_diff",
            "ebpf",
            "elf",
            "image",
            "ktime",
            "metrics",
            "mountinfo",
            "netlink_wire",
            "netproto",
            "fileproto",
            "lock_order",
            "seccomp",
            "trace_wire",
            "policy",
            "spec",
            "wait",
        ],
    ),
    ("crates/floor", &["read_biased_lock", "hostsys", "host_interfaces"]),
    ("crates/platform", &["platform", "stub", "conformance", "systrap", "ptrace"]),
    ("crates/net", &["account", "conntrack", "netstack", "netfilter", "xtables", "nftables"]),
    (
        "crates/kernel",
        &[
            "user_ns",
            "pid",
            "landlock",
            "rights",
            "caller",
            "vfs",
            "locks",
            "files",
            "mounts",
            "namei",
            "cgroup",
            "hosttree",
            "tmpfs",
            "hostfs",
            "rootfs_overlay",
            "overlayfs",
            "devfs",
            "ipc",
            "mqueue",
            "keys",
            "kmsg",
            "loopdev",
            "erofs",
            "fuse",
            "sysv",
            "socket",
            "inet",
            "hostinet",
            "hostlink",
            "tun",
            "tty",
            "text_copies",
            "mm",
            "sched",
            "signal",
            "nsproxy",
            "container",
            "sysresult",
            "syscall_filter",
            "futex_pi",
            "process_timers",
            "trace",
            "enforce",
            "tracee",
            "task",
            "exec",
            "kernfs",
            "sysfs",
            "cgroupfs",
            "procfs",
            "syscalls",
            "checkpoint",
            "sentry",
        ],
    ),
    (
        "crates/runtime",
        &[
            "channel",
            "cgroups",
            "hooks",
            "confine",
            "profile",
            "bundle",
            "gofer",
            "netgofer",
            "writeback",
            "trace_sinks",
            "sandbox",
            "exporter",
            "lifecycle",
        ],
    ),
];

/// The unsafe floor: the only crates that may hold unsafe code, each with a SOUNDNESS.md. A module (or the crate)
/// says that it does with an `expect` and its reason; the compiler refuses unsafe code elsewhere.
const UNSAFE: [&str; 3] = ["crates/floor/read_biased_lock", "crates/floor/hostsys", "crates/platform/stub"];

/// Folders whose files are checked for length.
const SOURCES: [&str; 6] = ["bin", "crates", "fuzz", "tests", "xtask", "bench"];

/// Longest source file, in lines.
const MAX_LINES: usize = 800;

pub(crate) fn check() -> Result<Vec<String>, String> {
    let Metadata { packages, workspace_root: root } = metadata::read(false)?;
    let mut problems = Vec::new();
    for package in &packages {
        let folder = folder(&root, package);
        problems.extend(upward_edges(&root, &folder, package));
        problems.extend(unordered(&folder));
        for target in &package.targets {
            let checked =
                ["lib", "bin", "proc-macro"].iter().any(|kind| target.kind.iter().any(|k| k == kind));
            if checked {
                let text = read(&target.src_path)?;
                problems.extend(unsafe_policy(
                    &folder,
                    &text,
                    root.join(&folder).join("SOUNDNESS.md").is_file(),
                ));
            }
        }
    }
    for dir in SOURCES {
        for path in files(&root.join(dir))? {
            let text = read(&path)?;
            problems.extend(too_long(&path, text.lines().count()));
            problems.extend(unsafe_attribute(&path, &text));
        }
    }
    problems.extend(crate::statics::check(&root)?);
    problems.extend(crate::habits::check(&root)?);
    problems.extend(crate::clocks::check(&root)?);
    let crates: Vec<String> = packages.iter().map(|package| folder(&root, package)).collect();
    problems.extend(crate::circles::check(&root, &crates)?);
    Ok(problems)
}

/// A package's folder relative to the workspace.
fn folder(root: &Path, package: &Package) -> String {
    relative(root, package.manifest_path.parent().unwrap_or(root))
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

/// Position in [`LAYERS`].
fn layer(folder: &str) -> usize {
    LAYERS.iter().position(|layer| Path::new(folder).starts_with(layer)).unwrap_or(LAYERS.len())
}

/// Position inside the folder; `None` for a crate that [`ORDER`] does not name.
fn position(folder: &str) -> Option<usize> {
    let (parent, name) = folder.rsplit_once('/')?;
    let (_, names) = ORDER.iter().find(|(dir, _)| *dir == parent)?;
    names.iter().position(|known| *known == name)
}

/// A crate of an ordered folder that has no place there.
fn unordered(folder: &str) -> Option<String> {
    let ordered = ORDER.iter().any(|(dir, _)| Path::new(folder).parent() == Some(Path::new(dir)));
    (ordered && position(folder).is_none())
        .then(|| format!("{folder} has no place in ORDER of xtask/src/layers.rs"))
}

/// True when the crate in `target` is not below the one in `folder`.
fn upward(folder: &str, target: &str) -> bool {
    let same = Path::new(folder).parent() == Path::new(target).parent();
    match (position(folder), position(target)) {
        (Some(own), Some(other)) if same => other >= own,
        _ => layer(target) > layer(folder),
    }
}

fn upward_edges(root: &Path, folder: &str, package: &Package) -> Vec<String> {
    let paths = package.dependencies.iter().filter_map(|dep| Some((dep, relative(root, dep.path.as_ref()?))));
    paths
        .filter(|(_, target)| upward(folder, target))
        .map(|(dep, target)| {
            format!(
                "{folder} ({}) depends upwards on {target} ({}); see crates/README.md",
                package.name, dep.name
            )
        })
        .collect()
}

/// What is wrong with the root file of a library or program.
fn unsafe_policy(folder: &str, text: &str, soundness: bool) -> Option<String> {
    let forbidden = text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]");
    match (forbidden, UNSAFE.contains(&folder)) {
        (true, _) => None,
        (false, false) => Some(format!("{folder} does not say #![forbid(unsafe_code)]")),
        (false, true) => (!soundness).then(|| format!("{folder} has unsafe code but no SOUNDNESS.md")),
    }
}

/// What is wrong with how a file says that it holds unsafe code.
fn unsafe_attribute(path: &Path, text: &str) -> Option<String> {
    let joined: String = text.split_whitespace().collect();
    let said = joined.contains(concat!("allow(unsafe", "_code"))
        || joined.contains(concat!("expect(unsafe", "_code)"));
    said.then(|| format!("{}: say #![expect(unsafe_code, reason = \"...\")]", path.display()))
}

fn too_long(path: &Path, lines: usize) -> Option<String> {
    (lines > MAX_LINES).then(|| format!("{} has {lines} lines; split it below {MAX_LINES}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn package(name: &str, deps: &[&str]) -> Package {
        let dependency = |path: &&str| Dependency {
            name: path.to_string(),
            path: Some(Path::new("/w").join(path)),
            rename: None,
        };
        Package {
            name: name.into(),
            dependencies: deps.iter().map(dependency).collect(),
            ..Package::default()
        }
    }

    #[test]
    fn folders_have_an_order() {
        let order = ["crates/base/abi", "crates/floor/hostsys", "crates/net/netstack", "crates/kernel/vfs"];
        assert!(order.is_sorted_by_key(|folder| layer(folder)));
        assert!(layer("bin/ringfence") > layer("crates/runtime/gofer"));
        assert!(layer("xtask") > layer("bin/ringfence"));
        assert_eq!(layer("tests/cli"), layer("xtask"));
    }

    #[test]
    fn upward_edges_are_found() {
        let root = Path::new("/w");
        let good = package("tmpfs", &["crates/base/abi", "crates/kernel/vfs"]);
        assert!(upward_edges(root, "crates/kernel/tmpfs", &good).is_empty());
        let sideways = package("vfs", &["crates/base/abi", "crates/kernel/tmpfs"]);
        assert_eq!(upward_edges(root, "crates/kernel/vfs", &sideways).len(), 1);
        assert!(unordered("crates/kernel/vfs").is_none() && unordered("bin/ringfence").is_none());
        assert!(unordered("crates/kernel/new").is_some());
        let bad = package("abi", &["crates/base/wait", "crates/kernel/vfs"]);
        let problems = upward_edges(root, "crates/base/abi", &bad);
        assert_eq!(problems.len(), 2);
        assert!(problems[1].contains("crates/kernel/vfs"), "{problems:?}");
    }

    #[test]
    fn unsafe_code_has_its_places() {
        let safe = "//! Doc.\n\n#![forbid(unsafe_code)]\n";
        assert_eq!(unsafe_policy("crates/kernel/vfs", safe, false), None);
        assert!(unsafe_policy("crates/kernel/vfs", "//! #![forbid(unsafe_code)]\n", false).is_some());
        let floor = "#![expect(unsafe_code, reason = \"x\")]";
        assert_eq!(unsafe_policy("crates/floor/hostsys", floor, true), None);
        assert!(unsafe_policy("crates/floor/hostsys", floor, false).is_some());
        assert_eq!(unsafe_policy("crates/platform/stub", safe, false), None);
    }

    #[test]
    fn unsafe_code_has_a_reason() {
        let path = Path::new("a.rs");
        assert_eq!(unsafe_attribute(path, "#![expect(\n    unsafe_code,\n    reason = \"x\"\n)]"), None);
        assert!(unsafe_attribute(path, concat!("#![expect(unsafe", "_code)]")).is_some());
        assert!(unsafe_attribute(path, concat!("#[allow(unsafe", "_code)]")).is_some());
    }

    #[test]
    fn long_files_are_found() {
        assert!(too_long(Path::new("a.rs"), 800).is_none());
        assert!(too_long(Path::new("a.rs"), 801).is_some());
    }
}
