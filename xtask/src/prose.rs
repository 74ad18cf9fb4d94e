//! Width of the documents and of the scripts, those of Python and of the shell. In documents, tables, code, links and the
//! changelog, whose entries are one line each, are as wide as they are.

use crate::{metadata, sources};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Longest line, in characters.
const WIDTH: usize = 120;

/// Every document that has lines of prose wider than that, and every script that has any.
pub(crate) fn check() -> Result<Vec<String>, String> {
    let root = metadata::read(false)?.workspace_root;
    let mut problems = Vec::new();
    for path in sources(&root)? {
        let document = path.extension().is_some_and(|ext| ext == "md");
        if !document && !is_script(&path) {
            continue;
        }
        let text = sources::read(&path)?;
        let (found, what) = if document { (wide(&text), "prose") } else { (wide_code(&text), "a line") };
        problems.extend(found.into_iter().map(|line| {
            let name = path.strip_prefix(&root).unwrap_or(&path).display();
            format!("{name}:{line}: {what} is wider than {WIDTH} characters; wrap it")
        }));
    }
    Ok(problems)
}

/// A script of Python or the shell, by its name or its first line.
fn is_script(path: &Path) -> bool {
    let mut first = [0; 32];
    match path.extension() {
        Some(ext) => ext == "py" || ext == "sh",
        None => fs::File::open(path).and_then(|mut file| file.read(&mut first)).is_ok_and(|read| {
            let line = first[..read].split(|&c| c == b'\n').next().unwrap_or_default();
            line.starts_with(b"#!") && (line.ends_with(b"python3") || line.ends_with(b"sh"))
        }),
    }
}

/// Documents, and what may be a script.
fn sources(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))? {
        let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() {
            if name != "target" && (name == ".ci" || !name.starts_with('.')) {
                found.extend(sources(&path)?);
            }
        } else if (name.ends_with(".md") && name != "CHANGELOG.md")
            || name.ends_with(".py")
            || name.ends_with(".sh")
            || (!name.contains('.') && path.is_file())
        {
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

/// Numbers of the lines of a script that are too wide.
fn wide_code(text: &str) -> Vec<usize> {
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| line.chars().count() > WIDTH).map(|(number, _)| number + 1).collect()
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

    #[test]
    fn every_line_of_a_script_is_wrapped() {
        assert_eq!(wide_code(&format!("short\n# {}\n\n    {}", "w".repeat(120), "w".repeat(116))), [2]);
    }

    #[test]
    fn scripts_are_known_by_name_or_first_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for script in
            ["tests/all", "bench/rows.py", "tools/prerequisites", "demo/run", "bench/workloads/fio.sh"]
        {
            assert!(is_script(&root.join(script)), "{script}");
        }
        assert!(!is_script(&root.join("Makefile")) && !is_script(&root.join("deny.toml")));
    }
}
