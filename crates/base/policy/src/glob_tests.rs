//! Patterns by example, and all short ones against a slow reference.

use super::*;

fn all(alphabet: &[&str], most: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut from = 0;
    for _ in 0..most {
        let to = all.len();
        for at in from..to {
            for letter in alphabet {
                all.push(format!("{}{letter}", all[at]));
            }
        }
        from = to;
    }
    all
}

/// The definition, tried in all ways.
fn slow_glob(pattern: &[char], text: &[char]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some('*'), _) => {
            slow_glob(&pattern[1..], text) || (!text.is_empty() && slow_glob(pattern, &text[1..]))
        }
        (Some('?'), Some(_)) => slow_glob(&pattern[1..], &text[1..]),
        (Some(one), Some(other)) => one == other && slow_glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

fn slow_path(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern.first(), path.first()) {
        (None, None) => true,
        (Some(&"**"), _) => {
            slow_path(&pattern[1..], path) || (!path.is_empty() && slow_path(pattern, &path[1..]))
        }
        (Some(one), Some(name)) => {
            let (one, name): (Vec<_>, Vec<_>) = (one.chars().collect(), name.chars().collect());
            slow_glob(&one, &name) && slow_path(&pattern[1..], &path[1..])
        }
        _ => false,
    }
}

#[test]
fn short_globs_match_as_the_reference() {
    let texts: Vec<_> = all(&["a", "b", "é"], 5);
    for pattern in all(&["a", "b", "é", "?", "*"], 5) {
        let glob = Glob::parse(&pattern).unwrap();
        let chars: Vec<_> = pattern.chars().collect();
        for text in &texts {
            let slow = slow_glob(&chars, &text.chars().collect::<Vec<_>>());
            assert_eq!(glob.matches(text.as_bytes()), slow, "{pattern} {text}");
        }
    }
}

#[test]
fn short_path_patterns_match_as_the_reference() {
    let paths: Vec<_> = all(&["/a", "/b", "/ab"], 4);
    for pattern in all(&["/a", "/b", "/*", "/a*", "/**"], 4).iter().skip(1) {
        let compiled = Pattern::parse(pattern).unwrap();
        let parts: Vec<_> = pattern.split('/').skip(1).collect();
        for path in &paths {
            let names: Vec<_> = path.split('/').skip(1).collect();
            let path = if path.is_empty() { "/" } else { path };
            assert_eq!(compiled.matches(path.as_bytes()), slow_path(&parts, &names), "{pattern} {path}");
        }
    }
}

#[test]
fn covering_is_never_wrong() {
    let paths: Vec<_> = all(&["/a", "/b", "/ab"], 4).into_iter().skip(1).collect();
    let patterns: Vec<_> = all(&["/a", "/*", "/a*", "/**"], 3).into_iter().skip(1).collect();
    let mut seen = 0;
    for wide in &patterns {
        let wide = Pattern::parse(wide).unwrap();
        for narrow in &patterns {
            let narrow = Pattern::parse(narrow).unwrap();
            if wide.covers(&narrow) {
                seen += 1;
                for path in paths.iter().filter(|path| narrow.matches(path.as_bytes())) {
                    assert!(wide.matches(path.as_bytes()), "{wide} does not cover {narrow}: {path}");
                }
            }
        }
    }
    assert!(seen > patterns.len(), "only {seen} pairs");
    let covers = |a: &str, b: &str| Pattern::parse(a).unwrap().covers(&Pattern::parse(b).unwrap());
    assert!(covers("/etc/", "/etc/passwd") && covers("/etc/**", "/etc/*/x") && covers("/**", "/a/**/b"));
    assert!(!covers("/etc/*", "/etc/**") && !covers("/etc/passwd", "/etc/*"));
}

#[test]
fn examples() {
    for (pattern, yes, no) in [
        (
            "/etc/passwd",
            &["/etc/passwd"][..],
            &["/etc", "/etc/passwd-", "/etc/passwd/x", "etc/passwd", ""][..],
        ),
        ("/etc/", &["/etc", "/etc/a", "/etc/a/b"], &["/etcetera", "/", "/a/etc"]),
        ("/", &["/", "/a/b"], &["", "a"]),
        ("/home/*/.ssh/**", &["/home/a/.ssh", "/home/a/.ssh/id"], &["/home/.ssh/id", "/home/a/b/.ssh/id"]),
        ("/**/*.so", &["/x.so", "/usr/lib/x.so"], &["/x.so.1", "/x.so/a"]),
        ("/dev/tty[0-9]", &["/dev/tty3"], &["/dev/tty", "/dev/tty33", "/dev/ttyx"]),
        ("/a/[!a-c]?", &["/a/dx", "/a/éx"], &["/a/ax", "/a/d"]),
        ("/a/[]x]", &["/a/]", "/a/x"], &["/a/["]),
        ("/a/\\*", &["/a/*"], &["/a/b"]),
        ("/a/\\xc3\\xa9*", &["/a/éx"], &["/a/ex"]),
    ] {
        let compiled = Pattern::parse(pattern).unwrap();
        for path in yes {
            assert!(compiled.matches(path.as_bytes()), "{pattern} {path}");
        }
        for path in no {
            assert!(!compiled.matches(path.as_bytes()), "{pattern} {path}");
        }
    }
    let bytes = Pattern::parse("/a/\\xff?").unwrap();
    assert!(
        bytes.matches(b"/a/\xff\xfe") && !bytes.matches(b"/a/\xff") && !bytes.matches("/a/ÿx".as_bytes())
    );
}

#[test]
fn mistakes_say_what_to_write() {
    for (pattern, message) in [
        ("etc", "/**/etc"),
        ("/a/../b", "never occur"),
        ("/a//b", "one /"),
        ("/a**/b", "stands alone"),
        ("/{a,b}", "a list of two"),
        ("/[a", "\\["),
        ("/a]", "\\]"),
        ("/[z-a]", "order"),
        ("/a\\", "\\\\"),
        ("/a\\n", "\\\\"),
        ("/a\\x0", "two hexadecimal"),
        ("/a\\x2fb", "no /"),
    ] {
        let error = Pattern::parse(pattern).unwrap_err();
        assert!(error.contains(message), "{pattern}: {error}");
    }
    assert!(Pattern::parse(&"/a".repeat(70)).is_err());
}
