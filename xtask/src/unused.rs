//! Dependencies that a package declares and does not use. Textual: a name in code, comments left out.

use crate::metadata::{self, Package};
use std::fs;
use std::path::Path;

/// Every unused dependency of the workspace's packages.
pub(crate) fn check() -> Result<Vec<String>, String> {
    let metadata = metadata::read(false)?;
    let mut problems = Vec::new();
    for package in &metadata.packages {
        let Some(dir) = package.manifest_path.parent() else { continue };
        let mut text = String::new();
        for path in crate::sources::files(dir)? {
            if path.extension().is_some_and(|ext| ext == "rs") {
                let file =
                    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                text.push_str(&code(&file));
            }
        }
        problems.extend(unused(package, &text).map(|name| {
            let manifest = Path::new(&package.manifest_path).display();
            format!("{manifest}: {name} is not used; remove it")
        }));
    }
    Ok(problems)
}

/// A source text without its line comments.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect()
}

fn unused(package: &Package, text: &str) -> impl Iterator<Item = String> {
    let names = package.dependencies.iter().map(|dep| dep.rename.as_ref().unwrap_or(&dep.name));
    names.filter(|name| !has_word(text, &name.replace('-', "_"))).cloned()
}

/// True when `word` stands in the text as a whole identifier.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    #[test]
    fn unused_dependencies_are_found() {
        let names = ["libc", "oci-spec", "log", "abi"];
        let dependencies =
            names.iter().map(|name| Dependency { name: name.to_string(), ..Dependency::default() }).collect();
        let package = Package { dependencies, ..Package::default() };
        let text = code("// uses log\nuse oci_spec::x;\nfn f() { libc::close(0); catalog(); }\n");
        assert_eq!(unused(&package, &text).collect::<Vec<_>>(), ["log", "abi"]);
    }
}
