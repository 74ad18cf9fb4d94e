//! The changelog: its latest release is the version of the workspace, and entries stand under a heading.

use crate::{metadata, sources};

/// Headings of the groups of entries.
const GROUPS: [&str; 3] = ["### Added", "### Changed", "### Fixed"];

/// What is wrong with CHANGELOG.md.
pub(crate) fn check() -> Result<Vec<String>, String> {
    let root = metadata::read(false)?.workspace_root;
    let text = sources::read(&root.join("CHANGELOG.md"))?;
    // The version of this crate is that of the workspace.
    Ok(judge(&text, env!("CARGO_PKG_VERSION")))
}

fn judge(text: &str, version: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut releases = text.lines().filter_map(|line| line.strip_prefix("## "));
    if releases.next() != Some("Unreleased") {
        problems.push("CHANGELOG.md: the first section is not \"Unreleased\"".into());
    }
    let latest = releases.next().and_then(|title| title.split_once(" (")).map(|(latest, _)| latest);
    if latest != Some(version) {
        problems.push(format!(
            "CHANGELOG.md: the latest release is {}, the version in Cargo.toml is {version}",
            latest.unwrap_or("missing")
        ));
    }
    let mut grouped = false;
    for (number, line) in text.lines().enumerate() {
        match line {
            _ if line.starts_with("## ") => grouped = false,
            _ if line.starts_with("### ") => grouped = GROUPS.contains(&line),
            _ if line.starts_with("- ") && !grouped => {
                problems.push(format!(
                    "CHANGELOG.md:{}: put the entry under Added, Changed or Fixed",
                    number + 1
                ));
            }
            _ => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_release_is_the_version() {
        let text = "# Changelog\n\n## Unreleased\n\n### Added\n\n- a\n\n## 0.2.0 (date)\n\n### Fixed\n\n- b\n\n## 0.1.0 (date)\n";
        assert!(judge(text, "0.2.0").is_empty());
        assert_eq!(judge(text, "0.3.0").len(), 1);
        assert_eq!(judge("## 0.2.0 (date)\n", "0.2.0").len(), 2);
    }

    #[test]
    fn entries_are_grouped() {
        let text = "## Unreleased\n- a\n### Other\n- b\n## 0.2.0 (date)\n### Fixed\n- c\n";
        assert_eq!(judge(text, "0.2.0").len(), 2);
    }
}
