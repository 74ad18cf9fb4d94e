//! Width of the documents. Tables, code, links and the changelog, whose entries are one line each, are as wide as they are.

use crate::{layers, metadata};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest line of prose, in characters.
const WIDTH: usize = 120;

/// Every document that has lines of prose wider than that.
pub(crate) fn check() -> Result<Vec<String>, String> {
    let root = metadata::read(false)?.workspace_root;
    let mut problems = Vec::new();
    for path in documents(&root)? {
        let text = layers::read(&path)?;
        problems.extend(wide(&text).into_iter().map(|line| {
            let name = path.strip_prefix(&root).unwrap_or(&path).display();
            format!("{name}:{line}: prose is wider than {WIDTH} characters; wrap it")
        }));
    }
    Ok(problems)
}

fn documents(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))? {
        let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            if name != "target" && !name.starts_with('.') {
                found.extend(documents(&path)?);
            }
        } else if name.ends_with(".md") && name != "CHANGELOG.md" {
            found.push(path);
        }
    }
    Ok(found)
}

/// Numbers of the lines that are too wide and could be wrapped.
fn wide(text: &str) -> Vec<usize> {
    let mut code = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        let other = code || ["|", "    ", "#", "<", "["].iter().any(|start| line.starts_with(start));
        if !other && line.chars().count() > WIDTH && line.trim_start().contains(' ') {
            found.push(number + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_and_nothing_else_is() {
        let long = "word ".repeat(30);
        assert_eq!(wide(&format!("short\n{long}\n- {long}")), [2, 3]);
        assert!(
            wide(&format!("| {long}|\n    {long}\n# {long}\n```\n{long}\n```\n{}", "w".repeat(200)))
                .is_empty()
        );
    }
}
