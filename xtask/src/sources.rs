//! Reads the sources of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Source files below a folder.
pub(crate) fn files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return Ok(found) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            if path.file_name().is_none_or(|name| name != "target") {
                found.extend(files(&path)?);
            }
        } else if path
            .extension()
            .is_some_and(|ext| ["rs", "c", "h", "S", "py", "sh"].iter().any(|e| ext == *e))
        {
            found.push(path);
        }
    }
    Ok(found)
}
