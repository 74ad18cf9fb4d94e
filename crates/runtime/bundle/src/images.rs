//! Images of EROFS in the place of directories: the root, layers below it, and mounts of type `erofs`.

use crate::files::reason;
use crate::{HostTree, Result, fail};
use std::collections::BTreeMap;
use std::path::Path;

/// Annotations for the root's type and for its source, in the order in which they count; runsc's last.
const TYPE: [&str; 2] = ["dev.ringfence.rootfs.type", "dev.gvisor.spec.rootfs.type"];
const SOURCE: [&str; 2] = ["dev.ringfence.rootfs.source", "dev.gvisor.spec.rootfs.source"];

/// The type of file system.
pub(crate) const EROFS: &str = "erofs";

/// The image that annotations name as the root.
pub(crate) fn of_root(annotations: &BTreeMap<String, String>) -> Result<Option<HostTree>> {
    let given =
        |names: [&'static str; 2]| names.iter().find_map(|name| Some((*name, annotations.get(*name)?)));
    match (given(TYPE), given(SOURCE)) {
        (None, None) => Ok(None),
        (Some((_, kind)), Some((name, source))) if kind == EROFS => {
            if !source.starts_with('/') {
                fail!("annotations: {name}: {source:?}: use an absolute path");
            }
            tree(&format!("annotations: {name}:"), Path::new(source)).map(Some)
        }
        (Some((name, kind)), Some(_)) => fail!("annotations: {name}: {kind:?} is not supported; use {EROFS}"),
        (Some((name, _)), None) => fail!("annotations: {name} needs {}", SOURCE[0]),
        (None, Some((name, _))) => fail!("annotations: {name} needs {}", TYPE[0]),
    }
}

/// What the gofer opens for an image.
pub(crate) fn tree(what: &str, path: &Path) -> Result<HostTree> {
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) => fail!("{what} {}: {}", path.display(), reason(&error)),
    };
    if !path.is_file() {
        fail!("{what} {} is not a regular file", path.display());
    }
    Ok(HostTree { recursive: false, is_file: true, ..HostTree::directory(path, true) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots() {
        let of = |pairs: &[(&str, &str)]| {
            let all = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            of_root(&all).map_err(|error| error.0)
        };
        let [kind, runsc_kind] = TYPE;
        let [source, runsc_source] = SOURCE;
        assert_eq!(of(&[("x", "y")]), Ok(None));
        let root =
            of(&[(kind, EROFS), (runsc_kind, "other"), (runsc_source, "/etc/passwd")]).unwrap().unwrap();
        assert!(root.is_file && root.readonly && root.path == Path::new("/etc/passwd"));
        assert!(of(&[(kind, EROFS)]).unwrap_err().contains(source));
        assert!(of(&[(runsc_source, "/etc/passwd")]).unwrap_err().contains(kind));
        assert!(of(&[(runsc_kind, "ext4"), (source, "/etc/passwd")]).unwrap_err().contains("ext4"));
        for bad in ["etc/passwd", "/etc", "/nonexistent", "/dev/null"] {
            assert!(of(&[(kind, EROFS), (source, bad)]).unwrap_err().contains(bad), "{bad}");
        }
    }
}
