//! Circles of modules: modules of one crate that need each other, so that a reader of one must read them all.
//!
//! A crate is a tree of modules. Below each module its children are compared: a child needs another when a path of its
//! code, or of its descendants' code, leads there. Paths are read as text: `crate::`, `super::`, `self::` and names that
//! the crate's root exports again. Tests do not count, nor does what a module needs of its own children.

use crate::sources::{files, read};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Most modules of one circle, where [`BOUNDS`] says nothing.
const MOST: usize = 1;

/// Larger circles that are still there: folder of the crate, name of the parent module (empty for the crate's root),
/// modules of its largest circle.
const BOUNDS: &[(&str, &str, usize)] = &[
    ("crates/kernel/erofs", "", 2),
    ("crates/kernel/fuse", "", 2),
    ("crates/kernel/hostfs", "", 3),
    ("crates/kernel/kernfs", "", 2),
    ("crates/kernel/mqueue", "", 2),
    ("crates/kernel/rootfs_overlay", "", 2),
    ("crates/kernel/overlayfs", "", 4),
    ("crates/kernel/procfs", "pid", 2),
    ("crates/kernel/socket", "", 5),
    ("crates/kernel/socket", "unix", 5),
    ("crates/kernel/sysfs", "", 2),
    ("crates/kernel/task", "", 5),
    ("crates/kernel/tmpfs", "", 3),
    ("crates/kernel/tun", "", 2),
    ("crates/kernel/vfs", "", 5),
    ("crates/kernel/vfs", "file", 4),
    ("crates/net/nftables", "", 3),
    ("crates/platform/ptrace", "", 2),
    ("crates/runtime/cgroups", "", 2),
    ("crates/runtime/sandbox", "", 2),
];

/// A module: its path below the crate's root, and its code without comments and tests.
struct Module {
    path: Vec<String>,
    code: String,
}

/// The code of a file without comments and without its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The path of the module in a file of `src`.
fn module_path(file: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = file.strip_suffix(".rs")?.split('/').collect();
    let tests = parts.iter().any(|part| ["tests", "testing", "benches"].contains(part));
    let end = parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(last));
    let keep = parts.len() - usize::from(end);
    (!tests).then(|| parts[..keep].iter().map(|part| part.to_string()).collect())
}

/// Words and signs of a source text.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c == '_' || c.is_alphanumeric();
        let end = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            found.push(&rest[..end]);
        }
        rest = &rest[end..];
    }
    found
}

/// The paths of the tree that begins at `at` (after a `::`), each behind `prefix`. Returns where the tree ends.
fn tree(tokens: &[&str], mut at: usize, prefix: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at).copied() {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    let next = tree(tokens, at, &path, found);
                    // A sign that is no path: the text is not an import.
                    at = if next == at { at + 1 } else { next };
                    if tokens.get(at) == Some(&",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            Some(word) if word.starts_with(|c: char| c == '_' || c.is_alphabetic()) => {
                if word != "self" {
                    path.push(word.to_string());
                }
                at += 1;
                if tokens.get(at) != Some(&"::") {
                    found.push(path);
                    // `a as b`
                    return if tokens.get(at) == Some(&"as") { at + 2 } else { at };
                }
                at += 1;
            }
            _ => {
                found.push(path);
                return at;
            }
        }
    }
}

/// Paths from the crate's root that a module's code names, with the modules that it exports again.
fn paths(module: &Module) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let tokens = tokens(&module.code);
    let (mut named, mut exported) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let starts = tokens.get(at + 1) == Some(&"::") && (at == 0 || tokens[at - 1] != "::");
        let import = at > 0 && tokens[at - 1] == "use";
        let mut prefix = match tokens[at] {
            "crate" if starts => Vec::new(),
            "self" | "super" if starts => module.path.clone(),
            // An import of a child.
            word if starts && import && word != "std" => {
                let mut path = module.path.clone();
                path.push(word.to_string());
                path
            }
            _ => {
                at += 1;
                continue;
            }
        };
        let public = import && at > 1 && (tokens[at - 2] == "pub" || tokens[at - 2] == ")");
        let mut from = at;
        while tokens.get(from) == Some(&"super") && tokens.get(from + 1) == Some(&"::") {
            prefix.pop();
            from += 2;
        }
        let from = if from == at { at + 2 } else { from };
        let mut found = Vec::new();
        at = tree(&tokens, from, &prefix, &mut found).max(at + 1);
        if public {
            exported.extend(found.iter().cloned());
        }
        named.extend(found);
    }
    (named, exported)
}

/// Which children of each module need which: parent, then child, then what it needs.
fn needs(modules: &[Module]) -> BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> {
    let all: BTreeSet<&[String]> = modules.iter().map(|module| module.path.as_slice()).collect();
    let read: Vec<_> = modules.iter().map(paths).collect();
    // Names that a module exports again, and where they come from.
    let mut aliases: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for (module, (_, exported)) in modules.iter().zip(&read) {
        for path in exported {
            if let Some(name) = path.last() {
                let alias = module.path.iter().chain([name]).cloned().collect();
                if alias != *path {
                    aliases.insert(alias, path.clone());
                }
            }
        }
    }
    // The module that a path leads to.
    let resolve = |path: &[String]| {
        let mut path = path.to_vec();
        for _ in 0..4 {
            let alias =
                (1..=path.len()).find(|&n| aliases.contains_key(&path[..n]) && !all.contains(&path[..n]));
            let Some(n) = alias else { break };
            let rest = path.split_off(n);
            path = aliases[&path].iter().chain(&rest).cloned().collect();
        }
        let n = (0..=path.len()).rev().find(|&n| all.contains(&path[..n])).unwrap_or(0);
        path.truncate(n);
        path
    };
    let mut needs: BTreeMap<Vec<String>, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, (named, _)) in modules.iter().zip(&read) {
        for path in named {
            let target = resolve(path);
            let shared = module.path.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (module.path.get(shared), target.get(shared)) {
                let children = needs.entry(module.path[..shared].to_vec()).or_default();
                children.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    needs
}

/// The circles among children: groups of at least two that all reach each other, largest first.
fn circles(needs: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(at) = next.pop() {
            next.extend(needs.get(at).into_iter().flatten().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = needs.keys().map(|from| (from, reach(from))).collect();
    let mut placed = BTreeSet::new();
    let mut found = Vec::new();
    for (from, to) in &reached {
        if placed.contains(*from) {
            continue;
        }
        let back = |other: &&String| reached.get(*other).is_some_and(|reached| reached.contains(*from));
        let circle: Vec<String> = to.iter().filter(back).cloned().collect();
        if circle.len() > 1 {
            placed.extend(circle.iter().cloned());
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// The modules of the crate in `folder`.
fn modules(folder: &Path) -> Result<Vec<Module>, String> {
    let source = folder.join("src");
    let mut found = Vec::new();
    for file in files(&source)? {
        let name = file.strip_prefix(&source).unwrap_or(&file).to_string_lossy().into_owned();
        if let Some(path) = module_path(&name) {
            found.push(Module { path, code: code(&read(&file)?) });
        }
    }
    Ok(found)
}

/// Circles of modules above their bounds, and bounds that are higher than need be.
pub(crate) fn check(root: &Path, crates: &[String]) -> Result<Vec<String>, String> {
    let mut problems = Vec::new();
    let mut met = BTreeSet::new();
    for folder in crates {
        for (parent, children) in needs(&modules(&root.join(folder))?) {
            let parent = parent.join("::");
            let Some(largest) = circles(&children).into_iter().next() else { continue };
            let bound = BOUNDS.iter().find(|(known, module, _)| known == folder && *module == parent);
            met.insert((folder.clone(), parent.clone()));
            let most = bound.map_or(MOST, |(.., most)| *most);
            let place = if parent.is_empty() { folder.clone() } else { format!("{folder} {parent}") };
            if largest.len() > most {
                problems.push(format!(
                    "{place}: {} modules need each other, {most} may (xtask/src/circles.rs): {}",
                    largest.len(),
                    largest.join(", ")
                ));
            } else if largest.len() < most {
                problems.push(format!(
                    "xtask/src/circles.rs: {place} has a bound of {most} but a largest circle of {}",
                    largest.len()
                ));
            }
        }
    }
    let stale =
        BOUNDS.iter().filter(|(folder, parent, _)| !met.contains(&(folder.to_string(), parent.to_string())));
    problems.extend(stale.map(|(folder, parent, _)| {
        format!("xtask/src/circles.rs: {folder} {parent} has no circle any more")
    }));
    Ok(problems)
}

/// Prints which modules of the crate in `folder` need each other, and through which need.
pub(crate) fn show(root: &Path, folder: &str) -> Result<Vec<String>, String> {
    for (parent, children) in needs(&modules(&root.join(folder))?) {
        for circle in circles(&children) {
            let parent = if parent.is_empty() { "the crate".into() } else { parent.join("::") };
            println!("{} modules of {parent} need each other:", circle.len());
            for module in &circle {
                let to: Vec<&str> =
                    children[module].iter().filter(|to| circle.contains(to)).map(String::as_str).collect();
                println!("  {module} -> {}", to.join(", "));
            }
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, code: &str) -> Module {
        let path = path.split("::").filter(|part| !part.is_empty()).map(str::to_string).collect();
        Module { path, code: code.to_string() }
    }

    fn found(modules: &[Module]) -> Vec<(String, Vec<String>)> {
        let needs = needs(modules);
        needs
            .iter()
            .flat_map(|(parent, children)| {
                circles(children).into_iter().map(move |circle| (parent.join("::"), circle))
            })
            .collect()
    }

    #[test]
    fn modules_that_need_each_other_are_a_circle() {
        let modules = [
            module("", "pub use c::Third;\nmod a; mod b; mod c; mod d;"),
            module("a", "use crate::{b::{self, B}, d};"),
            module("b", "fn f(c: &crate::Third) {}"),
            module("c", "use super::a::A;"),
            module("d", "use std::fmt; use other::a;"),
        ];
        assert_eq!(found(&modules), [(String::new(), vec!["a".to_string(), "b".into(), "c".into()])]);
    }

    #[test]
    fn children_are_compared_with_children() {
        let modules = [
            module("", "mod a; mod b;"),
            module("a", "mod x; mod y; use x::X;"),
            module("a::x", "use super::y::Y; use crate::a::A;"),
            module("a::y", "use super::x; use crate::b::B;"),
            module("b", ""),
        ];
        assert_eq!(found(&modules), [("a".to_string(), vec!["x".to_string(), "y".into()])]);
    }

    #[test]
    fn one_way_is_no_circle() {
        let modules = [
            module("", ""),
            module("a", "use crate::b as c; use crate::b::{X as Y, Z};"),
            module("b", "use crate::c;"),
        ];
        assert!(found(&modules).is_empty());
    }

    #[test]
    fn tests_and_comments_do_not_count() {
        assert_eq!(code("a // b\n#[cfg(test)]\nmod tests {\n c }"), "a ");
        assert_eq!(module_path("a/tests/b.rs"), None);
        assert_eq!(module_path("a/mod.rs"), Some(vec!["a".to_string()]));
        assert_eq!(module_path("lib.rs"), Some(Vec::new()));
    }
}
