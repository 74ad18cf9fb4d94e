//! Files that hold a process ID.

use crate::Result;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// Writes a process ID as clients want it: readers see all of it or nothing.
pub(crate) fn write(path: &Path, pid: i32) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}"));
    // One of a command that was killed. Nothing that others put there is written to.
    let _ = fs::remove_file(&temporary);
    let made = File::create_new(&temporary);
    let written = made.and_then(|mut file| write!(file, "{pid}")).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&temporary);
        format!("pid file {}: {error}", path.display()).into()
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::StateDir;

    #[test]
    fn nothing_but_the_number_is_left() {
        let dir = StateDir::new("pid-file");
        super::write(&dir.0.join("pid"), 77).unwrap();
        assert_eq!(std::fs::read_to_string(dir.0.join("pid")).unwrap(), "77");
        assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 1);
        // A link where the file is made first.
        std::fs::write(dir.0.join("other"), "other").unwrap();
        std::os::unix::fs::symlink("other", dir.0.join(".pid")).unwrap();
        super::write(&dir.0.join("pid"), 78).unwrap();
        assert_eq!(std::fs::read_to_string(dir.0.join("other")).unwrap(), "other");
        assert_eq!(std::fs::read_to_string(dir.0.join("pid")).unwrap(), "78");
        let error = super::write(&dir.0.join("missing/pid"), 77).unwrap_err();
        assert!(error.message().starts_with("pid file "), "{error}");
    }
}
