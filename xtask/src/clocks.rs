//! Objects keep moments of the kernel's clock (`ktime::Ktime`), which a checkpoint can carry, not of the host's
//! (`std::time::Instant`): no type, static or alias has one, unless it is listed here with its reason. The network stack
//! and what surrounds it take the moment now from the kernel's clock, and do not read the host's.

use crate::habits::code;
use crate::sources::{files, read};
use std::path::Path;

/// Where the rule holds.
const FOLDERS: [&str; 3] = ["crates/base", "crates/net", "crates/kernel"];

/// A type that may have a moment of the host's clock: file, name, why it may.
type Allowed = (&'static str, &'static str, &'static str);

/// All of them.
const ALLOWED: &[Allowed] = &[
    ("crates/base/wait/src/lib.rs", "Waiter", "the end of the last sleep, until the call has ended"),
    ("crates/base/ktime/src/lib.rs", "Clock", "ties the clock to the host's; each process makes its own"),
    ("crates/kernel/hostfs/src/outside.rs", "Own", "forgotten after 50 ms; no checkpoint has it"),
    ("crates/kernel/caller/src/pace.rs", "Pace", "lives as long as one wait"),
    ("crates/kernel/caller/src/retry.rs", "Patience", "lives as long as one call"),
    ("crates/kernel/syscalls/src/events/epoll.rs", "Wait", "the argument of one call"),
    ("crates/kernel/syscalls/src/processes/coredump.rs", "Outside", "lives as long as one request"),
    ("crates/kernel/syscalls/src/timeout.rs", "Timeout", "lives as long as one call"),
];

/// Where the host's monotonic clock is not read.
const KERNEL_CLOCK: [&str; 6] = [
    "crates/net/",
    "crates/kernel/hostinet/",
    "crates/kernel/hostlink/",
    "crates/kernel/inet/",
    "crates/kernel/socket/",
    "crates/kernel/tun/",
];

/// Ways to read it.
const READINGS: [&str; 3] =
    ["Instant::now()", "gettime_ns(libc::CLOCK_MONOTONIC", "gettime_ns(libc::CLOCK_BOOTTIME"];

/// A file there that may read it all the same, and why.
type Reader = (&'static str, &'static str);

/// All of them.
const READERS: &[Reader] = &[(
    "crates/kernel/socket/src/netlink/address_list.rs",
    "programs compare times of addresses with CLOCK_MONOTONIC",
)];

/// Words that begin an item which can keep something.
const ITEMS: [&str; 5] = ["struct ", "enum ", "union ", "static ", "type "];

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c| !is_word(c)).any(|found| found == word)
}

/// Whether `Instant` alone is the host's in this code.
fn imports_instant(code: &str) -> bool {
    code.match_indices("use std::").any(|(at, _)| {
        let import = code[at..].split(';').next().unwrap_or_default();
        has_word(import, "time") && has_word(import, "Instant")
    })
}

/// The item at the start of a text: to its closing brace, or to the semicolon. Of a static only the type.
fn item(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            ')' | ']' | '}' => {
                depth -= 1;
                if depth < 0 || depth == 0 && c == '}' {
                    return &text[..at];
                }
            }
            ';' if depth == 0 => return &text[..at],
            '=' if depth == 0 && text.starts_with("static ") => return &text[..at],
            _ => {}
        }
    }
    text
}

/// The names of items of a source text, before its tests, that have a moment of the host's clock.
fn moments(text: &str) -> Vec<String> {
    let code = code(text);
    let imported = imports_instant(&code);
    let mut found = Vec::new();
    for keyword in ITEMS {
        for (at, _) in code.match_indices(keyword) {
            // Not a lifetime, nor the end of a word.
            if code[..at].ends_with(|c: char| c == '\'' || is_word(c)) {
                continue;
            }
            let item = item(&code[at..]);
            let explicit = item.contains("std::time::Instant");
            if explicit || imported && has_word(item, "Instant") {
                let rest = item[keyword.len()..].trim_start().trim_start_matches("mut ");
                found.push(rest.split(|c| !is_word(c)).next().unwrap_or_default().to_string());
            }
        }
    }
    found
}

/// What is wrong with these items, by file and name.
fn judge(found: &[(String, String)], allowed: &[Allowed]) -> Vec<String> {
    let is = |entry: &Allowed, (file, name): &(String, String)| entry.0 == file && entry.1 == name;
    let new = found.iter().filter(|f| !allowed.iter().any(|entry| is(entry, f))).map(|(file, name)| {
        format!(
            "{file}: {name} keeps a moment of the host's clock: take ktime::Ktime, or give the reason in \
             xtask/src/clocks.rs"
        )
    });
    let stale = allowed.iter().filter(|entry| !found.iter().any(|f| is(entry, f)));
    let stale = stale.map(|(file, name, _)| format!("xtask/src/clocks.rs: {name} of {file} keeps no moment"));
    new.chain(stale).collect()
}

/// Whether a source text, before its tests, reads the host's monotonic clock.
fn reads(text: &str) -> bool {
    let code: String = code(text).split_whitespace().collect();
    READINGS.iter().any(|reading| code.contains(reading))
}

/// What is wrong with files that read the host's clock where the kernel's is to be read.
fn judge_readers(found: &[String], allowed: &[Reader]) -> Vec<String> {
    let guarded = |file: &&String| KERNEL_CLOCK.iter().any(|folder| file.starts_with(folder));
    let new = found.iter().filter(guarded).filter(|file| !allowed.iter().any(|(name, _)| name == *file));
    let new = new.map(|file| {
        format!(
            "{file} reads the host's clock: take NetNamespace::now, or give the reason in xtask/src/clocks.rs"
        )
    });
    let stale = allowed.iter().filter(|(name, _)| !found.iter().any(|file| file == name));
    new.chain(stale.map(|(name, _)| format!("xtask/src/clocks.rs: {name} reads no clock"))).collect()
}

/// Items that keep moments of the host's clock and files that read it without a reason, and reasons that nothing has.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let (mut found, mut readers) = (Vec::new(), Vec::new());
    for folder in FOLDERS {
        for path in files(&root.join(folder))? {
            let file = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let tests = file.contains("/tests") || file.contains("/benches/");
            if !tests && file.ends_with(".rs") {
                let text = read(&path)?;
                found.extend(moments(&text).into_iter().map(|name| (file.clone(), name)));
                if reads(&text) {
                    readers.push(file);
                }
            }
        }
    }
    let problems = judge(&found, ALLOWED).into_iter();
    Ok(problems.chain(judge_readers(&readers, READERS)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMPORT: &str = "use std::time::{Duration, Instant};\n";

    fn found(items: &str) -> Vec<String> {
        moments(&format!("{IMPORT}{items}"))
    }

    #[test]
    fn items_with_moments_of_the_host_are_found() {
        assert_eq!(found("struct A {\n    at: Option<Instant>,\n}"), ["A"]);
        assert_eq!(found("pub struct B(u8, [Instant; 2]);"), ["B"]);
        assert_eq!(found("enum C {\n    Never,\n    At(Instant),\n}"), ["C"]);
        assert_eq!(found("type D = (Instant, u64);"), ["D"]);
        assert_eq!(found("static E: Mutex<Option<Instant>> = Mutex::new(None);"), ["E"]);
        assert_eq!(moments("struct F<'a>(&'a u8, std::time::Instant);"), ["F"]);
        assert_eq!(moments("use std::{sync::Arc, time::Instant};\nstruct G(Instant);"), ["G"]);
    }

    #[test]
    fn other_moments_and_functions_are_not() {
        assert_eq!(moments("use other::time::Instant;\nstruct A(Instant);"), [""; 0]);
        assert_eq!(found("struct A {\n    at: Ktime,\n}\nfn f(until: Instant) {}"), [""; 0]);
        assert_eq!(found("static A: u64 = age(Instant::now());"), [""; 0]);
        assert_eq!(found("fn f(a: &'static str, b: Instant) { g(a, b); }"), [""; 0]);
        assert_eq!(found("#[cfg(test)]\nmod tests {\n    struct A(Instant);\n}"), [""; 0]);
    }

    #[test]
    fn readings_of_the_clock_of_the_host_are_found() {
        assert!(reads("let late = std::time::Instant::now();"));
        assert!(reads("let n = hostsys::clock::gettime_ns(\n    libc::CLOCK_MONOTONIC,\n);"));
        assert!(!reads("let n = gettime_ns(libc::CLOCK_REALTIME);\nlet now = net.now();"));
        assert!(!reads("// Instant::now()\n#[cfg(test)]\nmod tests {\n    f(Instant::now());\n}"));
    }

    #[test]
    fn readers_are_in_the_list_or_elsewhere() {
        let found = ["crates/kernel/inet/src/a.rs".to_string(), "crates/kernel/mm/src/b.rs".to_string()];
        assert_eq!(judge_readers(&found, &[]).len(), 1);
        assert_eq!(judge_readers(&found, &[("crates/kernel/inet/src/a.rs", "a reason")]).len(), 0);
        assert_eq!(judge_readers(&found[1..], &[("crates/kernel/inet/src/a.rs", "a reason")]).len(), 1);
    }

    #[test]
    fn every_entry_has_an_item_and_every_item_an_entry() {
        let found = |file: &str, name: &str| (file.to_string(), name.to_string());
        let allowed = [("a.rs", "A", "a reason")];
        assert!(judge(&[found("a.rs", "A")], &allowed).is_empty());
        assert_eq!(judge(&[found("a.rs", "B")], &allowed).len(), 2);
    }
}
