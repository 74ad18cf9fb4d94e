//! The README of a folder of crates lists each of them in an item of its own, and no other.

use crate::{metadata, sources};
use std::collections::BTreeSet;

/// Folders of crates.
const FOLDERS: [&str; 6] = ["base", "floor", "kernel", "net", "platform", "runtime"];

/// Crates that a README does not list, and items that name no crate.
pub(crate) fn check() -> Result<Vec<String>, String> {
    let root = metadata::read(false)?.workspace_root;
    let mut problems = Vec::new();
    for name in FOLDERS {
        let folder = root.join("crates").join(name);
        let mut crates = BTreeSet::new();
        for entry in std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))? {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            if path.join("Cargo.toml").is_file() {
                crates.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
            }
        }
        let text = sources::read(&folder.join("README.md"))?;
        problems.extend(compare(&format!("crates/{name}/README.md"), &text, &crates));
    }
    Ok(problems)
}

/// The differences between the items of a README and the crates of its folder.
fn compare(readme: &str, text: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let listed: BTreeSet<String> = text.lines().filter_map(item).collect();
    let missing = crates.difference(&listed).map(|name| {
        format!("{readme} does not list the crate {name}: add a line \"- `{name}`: what it does\"")
    });
    let stale = listed
        .difference(crates)
        .map(|name| format!("{readme} lists {name}, which is no crate of the folder: remove the line"));
    missing.chain(stale).collect()
}

/// The crate that an item of the form "- `name`: text" describes.
fn item(line: &str) -> Option<String> {
    let (name, text) = line.strip_prefix("- `")?.split_once("`: ")?;
    (!text.trim().is_empty()).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn every_crate_has_an_item() {
        let text = "# base\n\nRule.\n\n- `abi`: numbers\n- `elf`: files\n  with `wait` on a second line\n";
        assert!(compare("R", text, &crates(&["abi", "elf"])).is_empty());
        let problems = compare("R", text, &crates(&["abi", "elf", "wait"]));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("wait"), "{problems:?}");
    }

    #[test]
    fn an_item_names_a_crate_and_says_something() {
        assert_eq!(compare("R", "- `gone`: files\n", &crates(&[])).len(), 1);
        assert_eq!(compare("R", "- `abi`: \n", &crates(&["abi"])).len(), 1);
    }
}
