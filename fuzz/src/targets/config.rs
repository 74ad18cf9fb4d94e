//! A bundle's configuration: it is refused in words, or becomes a specification that survives its way to the sandbox.

use super::{kind, outcome};
use bundle::Options;
use spec::SandboxSpec;
use std::path::PathBuf;
use std::sync::LazyLock;

/// Names that configurations hold, to be put anywhere.
pub(super) const WORDS: &[&str] = &[
    "null",
    "true",
    "-1",
    "1e999",
    "{}",
    "[]",
    "\"\"",
    ",",
    ":",
    "\"type\"",
    "\"path\"",
    "\"options\"",
    "\"ro\"",
    "\"source\"",
    "\"destination\"",
    "\"mounts\":[",
    "\"linux\":{",
    "\"namespaces\":[",
    "\"seccomp\":{",
    "\"syscalls\":[",
    "\"SCMP_ACT_ERRNO\"",
    "\"SCMP_CMP_MASKED_EQ\"",
    "\"capabilities\":{",
    "\"CAP_SYS_ADMIN\"",
    "\"rlimits\":[",
    "\"RLIMIT_NOFILE\"",
    "\"uidMappings\":[",
    "\"annotations\":{",
    "\"hooks\":{",
    "\"../..\"",
    "\"/proc/self/fd/0\"",
    "4294967296",
    "18446744073709551616",
];

/// A bundle whose configuration is each input in turn; another one for each thread.
fn bundle_dir() -> PathBuf {
    let thread = format!("{:?}", std::thread::current().id());
    let name = format!("ringfence-fuzz-{}-{thread}", std::process::id());
    ROOT.join(name.replace(['(', ')'], ""))
}

/// Memory, if there is some to write to.
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| match std::fs::metadata("/dev/shm") {
    Ok(found) if found.is_dir() => "/dev/shm".into(),
    _ => std::env::temp_dir(),
});

/// Removes the bundle at the end of a run.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn run(input: &[u8]) -> u64 {
    let dir = Removed(bundle_dir());
    let prepared = std::fs::create_dir_all(dir.0.join("rootfs"));
    prepared
        .and_then(|()| std::fs::write(dir.0.join(bundle::CONFIG_FILE), input))
        .expect("a bundle in memory");
    let _ = bundle::load_process(&dir.0.join(bundle::CONFIG_FILE));
    match bundle::load(&dir.0, "fuzz", &Options::default(), &|_| None) {
        Ok((prepared, config)) => {
            let text = serde_json::to_vec(&prepared.spec).expect("a specification is sent as text");
            let back: SandboxSpec = serde_json::from_slice(&text).expect("and read again");
            assert_eq!(back, prepared.spec);
            assert!(prepared.trees.len() > prepared.spec.root.fd && !prepared.spec.process.args.is_empty());
            let _ = config.spec.hooks().as_ref().map(hooks::check);
            let (mounts, warnings) = (prepared.spec.mounts.len(), prepared.warnings.len());
            let filter = prepared.spec.process.seccomp.as_ref().map(|filter| filter.instructions.len() / 8);
            outcome((mounts, warnings, filter, prepared.spec.process.rlimits.len()))
        }
        Err(error) => outcome(kind(error.to_string().rsplit(bundle::CONFIG_FILE).next().unwrap_or_default())),
    }
}
