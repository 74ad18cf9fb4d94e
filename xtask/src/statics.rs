//! State has an owner: no static of a crate may change, unless it is listed here with its reason.

use crate::sources::{files, read};
use std::path::Path;

/// Where the rule holds.
const FOLDERS: [&str; 2] = ["crates", "bin"];

/// What is left out of the names of files.
const FOLDER: &str = "crates/kernel";

/// Types whose value changes although the static itself does not.
const CHANGING: &[&str] = &[
    "Mutex<",
    "RwLock<",
    "Atomic",
    "OnceLock<",
    "LazyLock<",
    "OnceCell<",
    "LazyCell<",
    "Cell<",
    "RefCell<",
    "Once",
    "Condvar",
    "Leaf<",
    "ArcSwap",
    "WaitQueue",
    "DashMap<",
];

/// A static that may change: file, below [`FOLDER`] or the root, name, why it may.
type Allowed = (&'static str, &'static str, &'static str);

/// All of them.
const ALLOWED: &[Allowed] = &[
    (
        "crates/floor/hostsys/src/fs/mod.rs",
        "NO_STATX",
        "whether the process may call statx(2), which its seccomp filter decides once",
    ),
    ("crates/floor/hostsys/src/cpu.rs", "STAY", "whether the host may put the thread elsewhere"),
    ("crates/floor/hostsys/src/cpu.rs", "BOUNDS", "where the host may put the thread"),
    ("hostfs/src/node/ahead.rs", "TOLD", "what a gofer has told for the path that the thread resolves"),
    ("crates/base/lock_order/src/lib.rs", "HELD", "the locks that the thread holds, in debug builds"),
    (
        "bin/containerd-shim-ringfence-v1/src/runtime.rs",
        "SEQUENCE",
        "tells the files of one shim process apart; no sandbox sees it",
    ),
    (
        "bin/containerd-shim-ringfence-v1/src/shim_log.rs",
        "LOG",
        "the logger of the process, which `log` wants static",
    ),
    (
        "crates/floor/read_biased_lock/src/lib.rs",
        "ROWS",
        "rows of readers, one for each thread of the process, for all its locks",
    ),
    ("crates/floor/read_biased_lock/src/lib.rs", "MINE", "the row of the thread"),
    ("crates/floor/read_biased_lock/src/lib.rs", "TENANT", "gives the row of the thread back when it ends"),
    ("crates/floor/hostsys/src/cpu.rs", "HAS", "a feature of the host's processor"),
    (
        "crates/floor/hostsys/src/cpu.rs",
        "ALL",
        "the host's caches, and the processors that the process may use",
    ),
    (
        "crates/floor/hostsys/src/crash.rs",
        "REPORT",
        "where the process writes when it dies: handlers of signals belong to the process",
    ),
    ("crates/floor/hostsys/src/crash.rs", "DYING", "the thread with which the process dies"),
    ("crates/floor/hostsys/src/crash.rs", "STATE", "how far the report of the process's death is"),
    (
        "crates/floor/hostsys/src/inherited.rs",
        "TAKEN",
        "descriptors that the process was started with are taken once",
    ),
    (
        "crates/floor/hostsys/src/view.rs",
        "BEFORE",
        "the action of SIGBUS before ours: actions belong to the process",
    ),
    ("crates/platform/conformance/src/lib.rs", "SERIAL", "names of temporary files of the tests"),
    ("crates/platform/systrap/src/fuzz.rs", "SLOT", "one slot for all inputs of the fuzzer"),
    (
        "crates/runtime/sandbox/src/logging.rs",
        "LOGGER",
        "the logger of the process, which `log` wants static",
    ),
    (
        "crates/runtime/sandbox/src/terminal.rs",
        "SAVED",
        "the settings of the terminal, for the panic hook of the process",
    ),
    ("crates/runtime/writeback/src/steps.rs", "LEFT", "in tests: the steps until a simulated crash"),
    ("procfs/src/cpu.rs", "FACTS", "the host's processor"),
    ("procfs/src/top.rs", "AT", "when the host started"),
    ("syscalls/src/dispatch.rs", "TABLE", "the table of calls by number: a constant"),
    ("syscalls/src/iov.rs", "SPARE", "a buffer without content, kept for the next call of the thread"),
    ("syscalls/src/processes/kcmp.rs", "ORDER", "a secret that hides addresses of the process, constant"),
    ("files/src/fd_table.rs", "NEXT_ID", "identity that no guest sees"),
    ("vfs/src/file.rs", "NEXT", "identity that no guest sees"),
    ("vfs/src/file.rs", "MINE", "identity that no guest sees"),
    ("caller/src/quota.rs", "NEXT", "spreads threads over counters; no guest sees it"),
    ("caller/src/quota.rs", "CELL", "spreads threads over counters; no guest sees it"),
];

/// A static in a source file.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    name: String,
    changes: bool,
}

/// The statics of a file before its tests, and whether they can change.
fn statics(text: &str) -> Vec<Found> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = lines.join("\n");
    let mut found = Vec::new();
    let mut thread_local = 0..0;
    for (at, _) in code.match_indices("static ") {
        let before = &code[..at];
        // Not a lifetime, nor the end of a word.
        if before.ends_with(|c: char| c == '\'' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        if let Some(start) = before.rfind("thread_local!") {
            thread_local = start..end_of_block(&code, start);
        }
        let declaration = code[at + "static ".len()..].trim_start();
        let (is_mut, declaration) = match declaration.strip_prefix("mut ") {
            Some(rest) => (true, rest),
            None => (false, declaration),
        };
        let Some((name, rest)) = declaration.split_once(':') else { continue };
        if !name.chars().all(|c| c == '_' || c.is_ascii_uppercase() || c.is_ascii_digit()) {
            continue;
        }
        // The type ends where the value begins.
        let kind = rest.split_once(" =").map_or(rest, |(kind, _)| kind);
        let changing = CHANGING.iter().any(|word| kind.contains(word));
        let changes = is_mut || changing || thread_local.contains(&at);
        found.push(Found { name: name.into(), changes });
    }
    found
}

/// Where the block that opens after `start` ends.
fn end_of_block(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[start..].char_indices() {
        match c {
            '{' | '(' => depth += 1,
            '}' | ')' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return start + at;
        }
    }
    code.len()
}

/// What is wrong with these statics that change, by file and name.
fn judge(found: &[(String, String)], allowed: &[Allowed]) -> Vec<String> {
    let is = |entry: &Allowed, (file, name): &(String, String)| entry.0 == file && entry.1 == name;
    let new = found.iter().filter(|f| !allowed.iter().any(|entry| is(entry, f))).map(|(file, name)| {
        format!("{file}: static {name} changes: give it an owner, or a reason in xtask/src/statics.rs")
    });
    let stale = allowed.iter().filter(|entry| !found.iter().any(|f| is(entry, f)));
    let stale = stale
        .map(|(file, name, _)| format!("xtask/src/statics.rs: {file} has no static {name} that changes"));
    new.chain(stale).collect()
}

/// Statics of the kernel that change and have no reason, and reasons that nothing has.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let kernel = root.join(FOLDER);
    let mut found = Vec::new();
    let mut all = Vec::new();
    for folder in FOLDERS {
        all.extend(files(&root.join(folder))?);
    }
    for path in all {
        let name = path.strip_prefix(&kernel).or_else(|_| path.strip_prefix(root)).unwrap_or(&path);
        let file = name.to_string_lossy().into_owned();
        let tests = file.contains("/tests") || file.ends_with("testing.rs") || file.contains("/benches/");
        if tests || !file.ends_with(".rs") {
            continue;
        }
        let changing = statics(&read(&path)?).into_iter().filter(|s| s.changes);
        found.extend(changing.map(|s| (file.clone(), s.name)));
    }
    Ok(judge(&found, ALLOWED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changing(text: &str) -> Vec<String> {
        statics(text).into_iter().filter(|s| s.changes).map(|s| s.name).collect()
    }

    #[test]
    fn statics_that_change_are_found() {
        assert_eq!(changing("static A: Mutex<u8> = Mutex::new(0);"), ["A"]);
        assert_eq!(changing("pub(crate) static A_1:\n    LazyLock<u8> =\n LazyLock::new(f);"), ["A_1"]);
        assert_eq!(changing("fn f() {\n    static N: AtomicU64 = AtomicU64::new(1);\n}"), ["N"]);
        assert_eq!(changing("fn f() {\n    static N: std::sync::OnceLock<u8> = x();\n}"), ["N"]);
        assert_eq!(changing("static mut A: u8 = 0;"), ["A"]);
        assert_eq!(changing("thread_local! { static C: u8 = const { 0 } }\nstatic D: u8 = 0;"), ["C"]);
    }

    #[test]
    fn constants_lifetimes_and_tests_are_not() {
        assert_eq!(changing("static A: &[Row] = &[row(|| Mutex::new(1))];"), [""; 0]);
        assert_eq!(changing("fn f(a: &'static str, b: &'static Mutex<u8>) {}"), [""; 0]);
        assert_eq!(changing("// static A: Mutex<u8> = x;"), [""; 0]);
        let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    static A: Mutex<u8> = x;\n}\n";
        assert_eq!(changing(tests), [""; 0]);
    }

    #[test]
    fn every_entry_has_a_static_and_every_static_an_entry() {
        let found = |file: &str, name: &str| (file.to_string(), name.to_string());
        let allowed = [("a.rs", "A", "a reason")];
        assert!(judge(&[found("a.rs", "A")], &allowed).is_empty());
        let problems = judge(&[found("a.rs", "B"), found("b.rs", "A")], &allowed);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[2].contains("a.rs has no static A"), "{problems:?}");
    }
}
