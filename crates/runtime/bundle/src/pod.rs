//! A container's place in a pod, as containerd's and CRI-O's annotations name it.

use crate::{Result, fail};
use std::collections::BTreeMap;

/// Annotations: the kind of the container, and the id of the sandbox that it is to be in.
const NAMES: [[&str; 2]; 2] = [
    ["io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id"],
    ["io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri-o.SandboxID"],
];

/// Where a container runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pod {
    /// In a sandbox of its own that no other container joins.
    #[default]
    None,
    /// In a sandbox of its own, which others join and which ends with it.
    Sandbox,
    /// In the sandbox of the container with this id.
    Member(String),
}

/// Annotations with the name that a container has in its pod.
const CONTAINER_NAMES: [&str; 2] = ["io.kubernetes.cri.container-name", "io.kubernetes.container.name"];

/// The name that a container has in its pod; empty where the annotations give none.
pub(crate) fn name_of(annotations: &BTreeMap<String, String>) -> String {
    CONTAINER_NAMES.iter().find_map(|name| annotations.get(*name)).cloned().unwrap_or_default()
}

impl Pod {
    /// Reads the annotations of the container `id`.
    pub fn of(annotations: &BTreeMap<String, String>, id: &str) -> Result<Self> {
        let given = NAMES.iter().find_map(|names| Some((names, annotations.get(names[0])?)));
        let Some(([kind_name, sandbox_name], kind)) = given else { return Ok(Self::None) };
        match (kind.as_str(), annotations.get(*sandbox_name)) {
            ("sandbox", _) => Ok(Self::Sandbox),
            ("container", Some(sandbox)) if sandbox == id => Ok(Self::Sandbox),
            ("container", Some(sandbox)) if !sandbox.is_empty() => Ok(Self::Member(sandbox.clone())),
            ("container", _) => {
                fail!("annotations: {kind_name:?} is \"container\", but {sandbox_name:?} is missing")
            }
            _ => fail!("annotations: {kind_name:?} is {kind:?}; \"sandbox\" and \"container\" are known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let of = |pairs: &[(&str, &str)]| {
            let all = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            Pod::of(&all, "me").map_err(|error| error.to_string())
        };
        let [containerd, crio] = NAMES;
        assert_eq!(of(&[("x", "y")]), Ok(Pod::None));
        for [kind, id] in [containerd, crio] {
            assert_eq!(of(&[(kind, "sandbox"), (id, "me")]), Ok(Pod::Sandbox));
            assert_eq!(of(&[(kind, "container"), (id, "s")]), Ok(Pod::Member("s".into())));
            assert_eq!(of(&[(kind, "container"), (id, "me")]), Ok(Pod::Sandbox));
            assert!(of(&[(kind, "container")]).unwrap_err().contains(id));
            assert!(of(&[(kind, "other")]).unwrap_err().contains("other"));
        }
    }
}
