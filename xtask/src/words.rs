//! Counts words that call a thing a person ("who", "nobody") in comments and documents, and fails above a bound. The
//! bound only falls: a change that removes such words lowers [`BOUND`].

use crate::{metadata, sources};
use std::path::{Path, PathBuf};

/// How many of [`WORDS`] all checked texts may have together.
const BOUND: usize = 60;

/// Words for people. A file, a thread or a caller is named instead.
const WORDS: [&str; 7] = ["who", "whom", "whose", "whoever", "nobody", "somebody", "someone"];

/// Folders whose Rust comments are checked.
const SOURCES: [&str; 2] = ["bin", "crates"];

/// Documents outside `docs` and `crates` that are checked.
const DOCUMENTS: [&str; 3] = ["README.md", "CONTRIBUTING.md", "tests/README.md"];

/// Fails when the words are more than the bound.
pub(crate) fn check() -> Result<Vec<String>, String> {
    let root = metadata::read(false)?.workspace_root;
    let mut counts = Vec::new();
    for path in texts(&root)? {
        let text = sources::read(&path)?;
        let count =
            if path.extension().is_some_and(|ext| ext == "rs") { in_comments(&text) } else { words(&text) };
        let name = path.strip_prefix(&root).unwrap_or(&path);
        counts.push((name.display().to_string(), count));
    }
    Ok(judge(&counts).into_iter().collect())
}

/// The message for counts above the bound. It names the files with the highest counts.
fn judge(counts: &[(String, usize)]) -> Option<String> {
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    if total <= BOUND {
        return None;
    }
    let mut most: Vec<_> = counts.iter().filter(|(_, count)| *count > 0).collect();
    most.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let most: Vec<_> = most.iter().take(5).map(|(name, count)| format!("{name}: {count}")).collect();
    Some(format!(
        "{total} of the words {} in comments and documents, {BOUND} are allowed: write the name of the thing ({})",
        WORDS.join(", "),
        most.join(", ")
    ))
}

/// Rust sources and documents.
fn texts(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found: Vec<PathBuf> = DOCUMENTS.iter().map(|name| root.join(name)).collect();
    for dir in SOURCES {
        collect(&root.join(dir), &["rs", "md"], &mut found)?;
    }
    collect(&root.join("docs"), &["md"], &mut found)?;
    Ok(found)
}

/// Files with one of the extensions below a folder.
fn collect(dir: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in std::fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))? {
        let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, extensions, found)?;
            }
        } else if path.extension().is_some_and(|ext| extensions.iter().any(|known| ext == *known)) {
            found.push(path);
        }
    }
    Ok(())
}

/// How many of the words the line comments of a Rust source have.
fn in_comments(text: &str) -> usize {
    text.lines().filter_map(|line| line.split_once("//")).map(|(_, comment)| words(comment)).sum()
}

/// How many of the words a text has.
fn words(text: &str) -> usize {
    let separate = |c: char| !c.is_alphanumeric() && c != '_';
    text.split(separate).filter(|word| WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_count() {
        assert_eq!(words("Who asks? Nobody's file, whose owner whoever knows"), 4);
        assert_eq!(words("whole, whois, a_who, who_am_i"), 0);
    }

    #[test]
    fn only_comments_of_sources_count() {
        assert_eq!(in_comments("fn who() {} // who calls\n/// Whose it is.\nlet whom = nobody;"), 2);
    }

    #[test]
    fn more_than_the_bound_is_a_problem() {
        assert_eq!(judge(&[("a".into(), BOUND)]), None);
        let problem = judge(&[("a.rs".into(), BOUND), ("b.md".into(), 1)]).unwrap_or_default();
        assert!(problem.contains(&format!("a.rs: {BOUND}, b.md: 1")), "{problem}");
    }
}
