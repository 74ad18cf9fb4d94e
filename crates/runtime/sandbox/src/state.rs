//! Containers on disk: one lock and one JSON file each in the state directory.
//!
//! Whoever runs a container holds the lock of its id, and with it the id. A
//! lock that nobody holds means that the holder is gone, however it ended:
//! then nothing of the container runs any more, and the files are left-overs
//! that the next user of the id replaces.

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A container's state, in the form of the OCI runtime specification with our own fields beside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Version of the specification.
    pub oci_version: String,
    /// Container id.
    pub id: String,
    /// `creating`, `created`, `running` or `stopped`.
    pub status: String,
    /// Process that holds the container, as the host sees it.
    pub pid: u32,
    /// Absolute path of the bundle.
    pub bundle: PathBuf,
    /// When it was created, RFC 3339.
    pub created: String,
}

/// An id that is ours for as long as this lives. Dropping it removes the files.
#[derive(Debug)]
pub struct Claim {
    lock: PathBuf,
    state: PathBuf,
    _file: File,
}

/// Whether `id` can name a container: letters, digits and `_+-.`, not only dots.
pub fn valid_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+-.".contains(c);
    (1..=200).contains(&id.len()) && id.chars().all(allowed) && id.chars().any(|c| c != '.')
}

/// Claims an id. Errors are lines for the user.
pub fn claim(dir: &Path, id: &str) -> Result<Claim, String> {
    if !valid_id(id) {
        return Err(format!("invalid container ID {id:?}: use letters, digits and any of _+-."));
    }
    let hint = |error: io::Error| {
        format!("state directory {}: {error}; choose another with --root, or use --rootless", dir.display())
    };
    DirBuilder::new().recursive(true).mode(0o711).create(dir).map_err(hint)?;
    // Below /tmp the name may have been taken by somebody who waits for us.
    let owner = fs::metadata(dir).map_err(hint)?.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(format!(
            "state directory {} belongs to user {owner}; choose another with --root",
            dir.display()
        ));
    }
    let (lock, state) = (dir.join(format!("{id}.lock")), dir.join(format!("{id}.json")));
    loop {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock)
            .map_err(hint)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err("container with given ID already exists".into());
        }
        // A former holder may have removed the file between our open and our lock.
        let same =
            fs::metadata(&lock).is_ok_and(|on_disk| file.metadata().is_ok_and(|m| m.ino() == on_disk.ino()));
        if same {
            return Ok(Claim { lock, state, _file: file });
        }
    }
}

impl Claim {
    /// Writes the state; readers see the old one or the new one.
    pub fn write(&self, state: &State) -> io::Result<()> {
        let temporary = self.state.with_extension("tmp");
        fs::write(&temporary, serde_json::to_vec(state)?)?;
        fs::rename(&temporary, &self.state)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.state.with_extension("tmp"));
        let _ = fs::remove_file(&self.state);
        let _ = fs::remove_file(&self.lock);
    }
}

/// Reads a container's state; one whose holder is gone is `stopped`. `None` when there is no such container.
pub fn read(dir: &Path, id: &str) -> io::Result<Option<State>> {
    if !valid_id(id) {
        return Ok(None);
    }
    let text = match fs::read(dir.join(format!("{id}.json"))) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut state: State = serde_json::from_slice(&text)?;
    let held = File::open(dir.join(format!("{id}.lock")))
        .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared).is_err());
    if !held {
        state.status = "stopped".into();
        state.pid = 0;
    }
    Ok(Some(state))
}

/// Ids of all containers, sorted.
pub fn list(dir: &Path) -> io::Result<Vec<String>> {
    let mut ids = Vec::new();
    match fs::read_dir(dir) {
        Ok(entries) => {
            for entry in entries {
                let name = entry?.file_name();
                ids.extend(name.to_str().and_then(|name| name.strip_suffix(".json")).map(String::from));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    ids.sort();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked() {
        assert!(valid_id("a-b_c.1+2"));
        for bad in ["", ".", "..", "a/b", "a b", "ä"] {
            assert!(!valid_id(bad), "{bad}");
        }
    }

    #[test]
    fn an_id_is_claimed_once() {
        let dir = std::env::temp_dir().join(format!("ringfence-state-{}", std::process::id()));
        let first = claim(&dir, "x").unwrap();
        assert_eq!(claim(&dir, "x").unwrap_err(), "container with given ID already exists");
        let state = State {
            oci_version: "1.0.2".into(),
            id: "x".into(),
            status: "running".into(),
            pid: 1,
            bundle: "/b".into(),
            created: String::new(),
        };
        first.write(&state).unwrap();
        assert_eq!(list(&dir).unwrap(), ["x"]);
        assert_eq!(read(&dir, "x").unwrap().unwrap(), state);
        drop(first);
        assert_eq!(read(&dir, "x").unwrap(), None);
        // What a killed holder leaves is taken over.
        fs::write(dir.join("x.lock"), "").unwrap();
        fs::write(dir.join("x.json"), serde_json::to_vec(&state).unwrap()).unwrap();
        assert_eq!(read(&dir, "x").unwrap().unwrap().status, "stopped");
        drop(claim(&dir, "x").unwrap());
        assert!(list(&dir).unwrap().is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }
}
