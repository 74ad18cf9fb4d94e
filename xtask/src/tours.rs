//! The tours of docs/architecture/tours.md: each is a list of at most [`MOST`] steps, a step begins with a module and a
//! function of it, no tour visits a module twice, and each function exists.

use crate::{metadata, sources};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Longest tour, in functions.
const MOST: usize = 12;

/// Where the tours are.
const FILE: &str = "docs/architecture/tours.md";

/// One step: the file as the tour names it, and the function.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    file: String,
    function: String,
}

/// Tours that are too long, that come to a module again, or that name something that does not exist.
pub(crate) fn check() -> Result<Vec<String>, String> {
    let root = metadata::read(false)?.workspace_root;
    let text = sources::read(&root.join(FILE))?;
    let mut problems = Vec::new();
    for (title, steps) in tours(&text) {
        problems.extend(shape(&title, &steps));
        for step in steps.into_iter().flatten() {
            problems.extend(missing(&root, &title, &step)?);
        }
    }
    Ok(problems)
}

/// The tours of a document: title and steps. A step that does not begin with a file and a function is `None`.
fn tours(text: &str) -> Vec<(String, Vec<Option<Step>>)> {
    let mut tours: Vec<(String, Vec<Option<Step>>)> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            tours.push((title.to_string(), Vec::new()));
        } else if let Some((number, rest)) = line.split_once(". ")
            && number.parse::<u32>().is_ok()
            && let Some((_, steps)) = tours.last_mut()
        {
            steps.push(step(rest));
        }
    }
    tours
}

/// The step that "`crate/file.rs` `function`: text" describes.
fn step(text: &str) -> Option<Step> {
    let (file, rest) = text.strip_prefix('`')?.split_once("` `")?;
    let (function, _) = rest.split_once('`')?;
    let valid = file.ends_with(".rs") && file.contains('/');
    valid.then(|| Step { file: file.to_string(), function: function.to_string() })
}

/// What is wrong with the length of a tour and with its modules.
fn shape(title: &str, steps: &[Option<Step>]) -> Vec<String> {
    let mut problems = Vec::new();
    if steps.is_empty() || steps.len() > MOST {
        problems
            .push(format!("{FILE}: the tour {title} has {} steps: it must have 1 to {MOST}", steps.len()));
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (n, step) in (1..).zip(steps) {
        let Some(step) = step else {
            problems.push(format!(
                "{FILE}: step {n} of the tour {title} must begin with \"`crate/file.rs` `function`\""
            ));
            continue;
        };
        if let Some(before) = seen.insert(&step.file, n) {
            problems.push(format!(
                "{FILE}: steps {before} and {n} of the tour {title} are both in {}",
                step.file
            ));
        }
    }
    problems
}

/// Says so when a step's file or function does not exist.
fn missing(root: &Path, title: &str, step: &Step) -> Result<Option<String>, String> {
    let Some(path) = find(root, &step.file)? else {
        return Ok(Some(format!("{FILE}: the tour {title} names {}, which does not exist", step.file)));
    };
    let name = step.function.rsplit("::").next().unwrap_or(&step.function);
    let text = sources::read(&path)?;
    let defined = [format!("fn {name}("), format!("fn {name}<")].iter().any(|form| text.contains(form));
    Ok((!defined).then(|| {
        format!("{FILE}: the tour {title} names {}, but {} has no such function", step.function, step.file)
    }))
}

/// The source file that `crate/rest` stands for: `rest` below `src` of the crate of that name.
fn find(root: &Path, file: &str) -> Result<Option<PathBuf>, String> {
    let Some((name, rest)) = file.split_once('/') else { return Ok(None) };
    for folder in ["crates/base", "crates/floor", "crates/platform", "crates/net", "crates/kernel"] {
        let path = root.join(folder).join(name).join("src").join(rest);
        if path.is_file() {
            return Ok(Some(path));
        }
    }
    let others = [root.join("crates/runtime").join(name), root.join("bin").join(name)];
    Ok(others.into_iter().map(|krate| krate.join("src").join(rest)).find(|path| path.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(file: &str, function: &str) -> Option<Step> {
        Some(Step { file: file.into(), function: function.into() })
    }

    #[test]
    fn steps_are_read() {
        let text = "# Tours\n\n## one\n\n1. `a/b.rs` `f`: does it\n   and `g`.\n2. no module\n\n## two\n";
        let read = tours(text);
        assert_eq!(read, [("one".into(), vec![at("a/b.rs", "f"), None]), ("two".into(), vec![])]);
    }

    #[test]
    fn a_tour_is_short_and_never_turns_back() {
        let file = |n: usize| at(&format!("a/{n}.rs"), "f");
        assert!(shape("t", &(0..MOST).map(file).collect::<Vec<_>>()).is_empty());
        assert_eq!(shape("t", &(0..=MOST).map(file).collect::<Vec<_>>()).len(), 1);
        assert_eq!(shape("t", &[]).len(), 1);
        assert_eq!(shape("t", &[at("a/b.rs", "f"), file(0), at("a/b.rs", "g")]).len(), 1);
        assert_eq!(shape("t", &[file(0), None]).len(), 1);
    }
}
