//! The directories of one container's control group.

use crate::files::write;
use crate::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Directories by controller. In cgroup v2 there is one, under the empty name.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(crate) paths: BTreeMap<String, PathBuf>,
    /// Controllers that exist, but that this caller could not join.
    pub(crate) refused: Vec<String>,
    pub(crate) rootless: bool,
}

impl Groups {
    pub(crate) fn v2(&self) -> bool {
        self.paths.contains_key("") || self.refused.iter().any(String::is_empty)
    }

    /// The directory of a controller.
    pub(crate) fn dir(&self, controller: &str) -> Result<&Path> {
        let key = if self.v2() { "" } else { controller };
        match self.paths.get(key) {
            Some(dir) => Ok(dir),
            None if self.refused.iter().any(|name| name == key) => {
                Err(Error::NotJoined { controller: controller.into() })
            }
            None => Err(Error::NoController { controller: controller.into() }),
        }
    }

    /// Whether a file is there.
    pub(crate) fn has(&self, controller: &str, file: &str) -> bool {
        self.dir(controller).is_ok_and(|dir| dir.join(file).exists())
    }

    /// Writes a value to a file.
    pub(crate) fn put(&self, controller: &str, file: &str, value: &str) -> Result<()> {
        let path = self.dir(controller)?.join(file);
        if self.v2() && controller != "cgroup" && !path.exists() {
            // In cgroup v2 a controller that is not handed down shows as missing files.
            let handed =
                std::fs::read_to_string(self.dir("")?.join("cgroup.controllers")).unwrap_or_default();
            if !handed.split_whitespace().any(|name| name == controller) {
                return Err(Error::NoController { controller: controller.into() });
            }
        }
        write(controller, &path, value)
    }

    /// The same, if the file is there.
    pub(crate) fn put_if_there(&self, controller: &str, file: &str, value: &str) -> Result<()> {
        if self.has(controller, file) { self.put(controller, file, value) } else { Ok(()) }
    }
}
