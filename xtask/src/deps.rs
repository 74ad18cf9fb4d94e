//! The part of deny.toml that can be checked without cargo-deny: licences and sources.

use crate::metadata::{self, Package};
use std::fs;

pub(crate) fn check() -> Result<Vec<String>, String> {
    let metadata = metadata::read(true)?;
    let path = metadata.workspace_root.join("deny.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let allowed = allowed_licences(&text);
    Ok(metadata.packages.iter().filter_map(|package| problem(package, &allowed)).collect())
}

/// The strings of the `allow` list in the `[licenses]` section.
fn allowed_licences(text: &str) -> Vec<String> {
    let section = text.split("[licenses]").nth(1).unwrap_or_default();
    let list = section.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(String::from).collect()
}

fn problem(package: &Package, allowed: &[String]) -> Option<String> {
    let Some(source) = &package.source else { return None };
    let name = format!("{} {}", package.name, package.version);
    if source != "registry+https://github.com/rust-lang/crates.io-index" {
        return Some(format!("{name}: comes from {source}, not from crates.io"));
    }
    let Some(licence) = &package.license else { return Some(format!("{name}: states no licence")) };
    (!acceptable(licence, allowed))
        .then(|| format!("{name}: licence {licence:?} is not allowed by deny.toml"))
}

/// Whether a licence expression can be met with the allowed ones. `/` is the old form of OR.
fn acceptable(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], " ");
    // Parentheses are flattened: every conjunct must then offer an allowed alternative, which is stricter
    // than the expression for `A OR (B AND C)` and the same for what occurs.
    expression
        .split(" AND ")
        .all(|part| part.split(" OR ").any(|licence| allowed.iter().any(|a| a == licence.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        let allowed =
            allowed_licences("[licenses]\n# why\nallow = [\"MIT\", \"Apache-2.0\",\n \"Unicode-3.0\"]\n");
        assert_eq!(allowed, ["MIT", "Apache-2.0", "Unicode-3.0"]);
        for good in ["MIT", "MIT OR GPL-3.0", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(acceptable(good, &allowed), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", ""] {
            assert!(!acceptable(bad, &allowed), "{bad}");
        }
    }
}
