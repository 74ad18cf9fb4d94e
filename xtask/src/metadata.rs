//! What `cargo metadata` says about the workspace.

use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

/// The whole.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: PathBuf,
}

/// A package, of the workspace or a dependency.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    /// Where it came from; absent for the workspace's own.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

/// A dependency as declared.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Its name in the code, where that is another.
    pub(crate) rename: Option<String>,
    /// Its folder, for one of the workspace's own.
    pub(crate) path: Option<PathBuf>,
}

/// A library, a program or a test.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// Asks cargo; with `dependencies`, third-party packages are listed as well.
pub(crate) fn read(dependencies: bool) -> Result<Metadata, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version=1"]);
    if dependencies {
        command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    } else {
        command.arg("--no-deps");
    }
    let output = command.output().map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}
