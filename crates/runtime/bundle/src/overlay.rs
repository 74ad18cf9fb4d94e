//! Mounts of type `overlay`: directories of the host as layers, as engines ask for them (`-v DIR:/x:O` and `--mount type=image` of
//! Podman, `podman build`). The host makes the overlay, as it does for other runtimes, and the container gets it as a bind mount.

use crate::{HostTree, Options, Result, fail};
use spec::MountSpec;
use std::path::PathBuf;

/// The type of file system.
pub(crate) const TYPE: &str = "overlay";

/// What the gofer makes for a mount with such options, which becomes a bind mount.
pub(crate) fn tree(mount: &mut MountSpec, options: &Options) -> Result<HostTree> {
    let layers = std::mem::take(&mut mount.options);
    let at = &mount.destination;
    let mut first = None;
    let mut upper = false;
    for option in &layers {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "lowerdir" => {
                for layer in lower_layers(value) {
                    if !layer.starts_with('/') {
                        fail!("the overlay at {at}: lowerdir {layer:?}: use absolute paths");
                    }
                    first.get_or_insert(PathBuf::from(layer));
                }
            }
            "upperdir" | "workdir" => {
                if !value.starts_with('/') {
                    fail!("the overlay at {at}: {name} {value:?}: use an absolute path");
                }
                upper = true;
            }
            _ => {}
        }
    }
    let Some(path) = first else { fail!("the overlay at {at} needs the option lowerdir") };
    mount.fstype = "bind".into();
    mount.access = options.bind_access;
    mount.host_fifos = options.host_fifos;
    // Without an upper layer nothing can be written.
    mount.readonly |= !upper;
    let readonly = mount.readonly || options.overlay.binds.is_some();
    Ok(HostTree { recursive: false, overlay: Some(layers), ..HostTree::directory(path, readonly) })
}

/// The paths of the option `lowerdir`: colons are between them, and a backslash takes the meaning of the character after it.
pub fn lower_layers(value: &str) -> Vec<String> {
    let mut layers = vec![String::new()];
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match (letter, layers.last_mut()) {
            (':', _) => layers.push(String::new()),
            ('\\', Some(last)) => last.extend(letters.next()),
            (letter, Some(last)) => last.push(letter),
            (_, None) => {}
        }
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_colons() {
        assert_eq!(lower_layers("/a:/b"), ["/a", "/b"]);
        assert_eq!(lower_layers(r"/a\:b:/c\\d"), ["/a:b", r"/c\d"]);
    }

    fn of(options: &[&str]) -> std::result::Result<(MountSpec, HostTree), String> {
        let options = options.iter().map(ToString::to_string).collect();
        let mut mount = MountSpec { destination: "/x".into(), options, ..MountSpec::new(TYPE) };
        let tree = tree(&mut mount, &Options::default()).map_err(|error| error.0)?;
        Ok((mount, tree))
    }

    #[test]
    fn layers() {
        let all = ["lowerdir=/a:/b", "upperdir=/u", "workdir=/w", "volatile"];
        let (mount, tree) = of(&all).unwrap();
        assert_eq!((mount.fstype.as_str(), mount.options.len(), mount.readonly), ("bind", 0, false));
        assert_eq!((tree.path.to_str(), tree.overlay.unwrap().len(), tree.readonly), (Some("/a"), 4, false));
        let (mount, tree) = of(&["lowerdir=/a"]).unwrap();
        assert!(mount.readonly && tree.readonly);
        for (bad, what) in [
            (&["upperdir=/u"][..], "needs the option lowerdir"),
            (&["lowerdir=a"], "absolute"),
            (&["lowerdir=/a:b"], "absolute"),
            (&["lowerdir=/a", "upperdir=u"], "upperdir"),
        ] {
            assert!(of(bad).unwrap_err().contains(what), "{bad:?}");
        }
    }
}
