//! What the crates of the kernel and of the network do not do: take locks that have no rank, decide by the number of
//! references to an object.

use crate::sources::{files, read};
use std::path::Path;

/// Where the rules hold.
const FOLDERS: [&str; 2] = ["crates/kernel", "crates/net"];

/// Crates and modules whose locks have no rank.
const UNRANKED: [&str; 2] = ["parking_lot", "std::sync"];

/// Names of locks.
const LOCKS: [&str; 3] = ["Mutex", "RwLock", "Condvar"];

/// Where the number of references is what decides: file, how often, why. Elsewhere, who is counted takes
/// a guard whose type says what for (`vfs::InUse`).
type Counting = (&'static str, usize, &'static str);

/// All of them.
const COUNTING: &[Counting] = &[
    (
        "crates/kernel/socket/src/unix/rights.rs",
        2,
        "a socket all of whose references are in flight is garbage, as in Linux; a count of users takes 9 ns in each call",
    ),
    (
        "crates/kernel/tmpfs/src/node/dir.rs",
        1,
        "a cache drops what only it holds; a counted handle would take 24 ns in each lookup",
    ),
];

/// How often a source text counts references. Whether an object is still there ([`std::sync::Weak`]) may be asked.
fn counts(text: &str) -> usize {
    let code = code(text);
    let asks = |rest: &str| {
        let rest = rest.trim_start();
        ["> 0", "== 0", "!= 0"].iter().any(|liveness| {
            rest.strip_prefix(liveness).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
        })
    };
    let method = code.matches(".strong_count()").count();
    let alive =
        code.match_indices(".strong_count()").filter(|(at, word)| asks(&code[at + word.len()..])).count();
    method - alive + code.matches("::strong_count").count()
}

/// What is wrong with how often files count references.
fn judge(found: &[(String, usize)], allowed: &[Counting]) -> Vec<String> {
    let may =
        |file: &str| allowed.iter().find(|(known, ..)| *known == file).map_or(0, |(_, times, _)| *times);
    let more = found.iter().filter(|(file, times)| *times > may(file)).map(|(file, _)| {
        format!(
            "{file} decides by the number of references: count users with a guard (vfs::InUse), or give the \
             reason in xtask/src/habits.rs"
        )
    });
    let has = |file: &str| found.iter().find(|(known, _)| known == file).map_or(0, |(_, times)| *times);
    let stale = allowed.iter().filter(|(file, times, _)| has(file) < *times);
    let stale =
        stale.map(|(file, ..)| format!("xtask/src/habits.rs: {file} counts fewer references than it may"));
    more.chain(stale).collect()
}

/// The code of a file before its tests, without comments.
pub(crate) fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    lines.join("\n")
}

/// Names of locks that a source text takes from elsewhere than `lock_order`.
fn unranked_locks(text: &str) -> Vec<String> {
    let code = code(text);
    let mut found = Vec::new();
    for module in UNRANKED {
        for (at, _) in code.match_indices(module) {
            // A path, or the list of an import.
            let path = code[at + module.len()..].split([';', '\n']).next().unwrap_or_default();
            let path = if path.starts_with("::{") {
                code[at + module.len()..].split('}').next().unwrap_or_default()
            } else {
                path
            };
            let words = path.split(|c: char| c != '_' && !c.is_alphanumeric());
            found.extend(words.filter(|word| LOCKS.contains(word)).map(|word| format!("{module}::{word}")));
        }
    }
    found
}

/// Locks that have no rank, and decisions by numbers of references that have no reason.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let (mut problems, mut counting) = (Vec::new(), Vec::new());
    let mut paths = Vec::new();
    for folder in FOLDERS {
        paths.extend(files(&root.join(folder))?);
    }
    for path in paths {
        let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let tests = file.contains("/tests") || file.contains("/benches/");
        if tests || !file.ends_with(".rs") {
            continue;
        }
        let text = read(&path)?;
        let found = unranked_locks(&text);
        problems.extend(found.iter().map(|lock| {
            format!(
                "{file}: {lock} has no rank; take the one of the crate lock_order (crates/base/lock_order)"
            )
        }));
        counting.push((file, counts(&text)));
    }
    problems.extend(judge(&counting, COUNTING));
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_without_a_rank_are_found() {
        assert_eq!(unranked_locks("use parking_lot::Mutex;\n"), ["parking_lot::Mutex"]);
        assert_eq!(
            unranked_locks("use std::sync::{\n    Arc,\n    RwLock,\n};\nstruct A(Mutex<u8>);"),
            ["std::sync::RwLock"]
        );
        assert_eq!(unranked_locks("let a = std::sync::Condvar::new();"), ["std::sync::Condvar"]);
        assert_eq!(unranked_locks("fn f(g: parking_lot::MutexGuard<'_, u8>) {}"), [""; 0]);
    }

    #[test]
    fn counts_of_references_are_found() {
        assert_eq!(counts("if Arc::strong_count(&m) > 2 {}"), 1);
        assert_eq!(counts("a.retain(|w| w.strong_count() > 0); b(|w| w.strong_count() != 0 && c);"), 0);
        assert_eq!(
            counts("w.strong_count() > 01; e.file.strong_count() == e.count; a.strong_count() + 1"),
            3
        );
    }

    #[test]
    fn every_entry_counts_and_every_count_has_an_entry() {
        let found = |file: &str, times| vec![(file.to_string(), times)];
        let allowed = [("a.rs", 2, "a reason")];
        assert!(judge(&found("a.rs", 2), &allowed).is_empty());
        assert_eq!(judge(&found("a.rs", 3), &allowed).len(), 1);
        assert_eq!(judge(&found("a.rs", 1), &allowed).len(), 1);
        assert_eq!(judge(&found("b.rs", 1), &allowed).len(), 2);
    }

    #[test]
    fn other_things_are_not() {
        assert_eq!(unranked_locks("use lock_order::{Mutex, RwLock};\nuse std::sync::Arc;\n"), [""; 0]);
        assert_eq!(unranked_locks("use std::sync::atomic::AtomicU8;\nstatic A: Mutex<u8> = x;"), [""; 0]);
        assert_eq!(unranked_locks("// use parking_lot::Mutex;"), [""; 0]);
        assert_eq!(unranked_locks("#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}"), [""; 0]);
    }
}
