//! What the tests share: records as `create` writes them, and state directories that go with the test.

use crate::Settings;
use crate::record::{Record, State, Status};
use std::path::PathBuf;

/// The record of a container without annotations and control groups.
pub(crate) fn record(id: &str, status: Status, foreground: bool) -> Record {
    let state = State {
        oci_version: "1.0.2".into(),
        id: id.into(),
        status,
        pid: 1,
        bundle: "/b".into(),
        rootfs: "/b/rootfs".into(),
        created: String::new(),
        annotations: Default::default(),
        owner: "root".into(),
    };
    Record { state, foreground, runtime: None }
}

/// A state directory of a test's own, removed at its end.
pub(crate) struct StateDir(pub(crate) PathBuf);

impl StateDir {
    pub(crate) fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("ringfence-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// Settings of a caller that keeps its containers here, without control groups.
    pub(crate) fn settings(&self) -> Settings {
        Settings { root: Some(self.0.clone()), ignore_cgroups: true, ..Settings::default() }
    }

    /// Puts a container here that has ended: no process holds its lock.
    pub(crate) fn ended(&self, id: &str) {
        let claim = crate::directory::claim(&self.0, id).unwrap();
        claim.container().write(&record(id, Status::Running, false)).unwrap();
        claim.keep();
    }

    /// Puts a container here that lives for as long as what is returned.
    pub(crate) fn living(&self, id: &str, record: &Record) -> crate::directory::Claim {
        let mut claim = crate::directory::claim(&self.0, id).unwrap();
        claim.container().write(record).unwrap();
        claim.unlock();
        claim
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
