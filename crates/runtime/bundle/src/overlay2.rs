//! `--overlay2` and the annotations with the same meaning: where a container's writes go instead of the host's files.

use crate::{Error, HostTree, Result, fail, images};
use serde::{Deserialize, Serialize};
use spec::Overlay;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files of stores in a directory that a container sees begin with this, and are not shown to it.
pub const STORE_PREFIX: &str = ".ringfence.filestore.";

/// Names in the root of a tree under an overlay that begin with this are not shown to the container.
const HIDDEN: &str = ".ringfence.";

/// Annotations for the overlay of the root, in the order in which they count; runsc's last.
const ROOT: [&str; 2] = ["dev.ringfence.rootfs.overlay", "dev.gvisor.spec.rootfs.overlay"];

/// Annotation for directories and images of EROFS that lie below the root in its overlay: absolute paths, the uppermost
/// first, with `:` between them.
const LAYERS: &str = "dev.ringfence.rootfs.layers";

/// Most of them.
const MAX_LAYERS: usize = 128;

/// Where an overlay keeps data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    /// In memory.
    Memory,
    /// In a hidden file of the directory that lies below the overlay.
    Own,
    /// In a file without a name in this directory.
    Dir(PathBuf),
}

/// An overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayChoice {
    /// Where its data go.
    pub medium: Medium,
    /// How many bytes of them there may be.
    pub size: Option<u64>,
    /// What changed is written to the directory below, when the container ends or is paused, and on demand.
    pub commit: bool,
    /// Devices, set-ID bits and capabilities of files are written, too (`commit=privileged`).
    pub privileged: bool,
}

impl OverlayChoice {
    /// In memory, as much as there is.
    pub const MEMORY: OverlayChoice =
        OverlayChoice { medium: Medium::Memory, size: None, commit: false, privileged: false };

    /// Reads `MEDIUM[,size=N][,commit[=privileged]]`; nothing for `none`.
    pub fn parse(text: &str) -> Result<Option<OverlayChoice>> {
        if text == "none" {
            return Ok(None);
        }
        let mut words = text.split(',');
        let medium = match words.next().unwrap_or_default() {
            "memory" => Medium::Memory,
            "self" => Medium::Own,
            word => match word.strip_prefix("dir=") {
                Some(dir) if Path::new(dir).is_absolute() => Medium::Dir(dir.into()),
                Some(dir) => fail!("dir={dir}: use an absolute path"),
                None => fail!("unknown medium {word:?}; use memory, self or dir=/PATH"),
            },
        };
        let (mut size, mut commit, mut privileged) = (None, false, false);
        for word in words {
            match word.strip_prefix("size=").map(bytes) {
                None if word == "commit" && !commit => commit = true,
                None if word == "commit=privileged" && !commit => (commit, privileged) = (true, true),
                Some(Some(n)) if size.is_none() => size = Some(n),
                Some(None) => fail!("{word}: use a number of bytes above 0, with k, m, g or t"),
                _ => fail!("unknown option {word:?}; use size=N and commit or commit=privileged, each once"),
            }
        }
        Ok(Some(OverlayChoice { medium, size, commit, privileged }))
    }
}

/// What lies over the root and over bind mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay2 {
    /// Over the root.
    pub root: Option<OverlayChoice>,
    /// Over bind mounts.
    pub binds: Option<OverlayChoice>,
}

impl Overlay2 {
    /// Reads the flag: `none`, `root:MEDIUM[,size=N]` or `all:MEDIUM[,size=N]`.
    pub fn parse(text: &str) -> Result<Overlay2> {
        let choice = match text.split_once(':') {
            None if text == "none" => return Ok(Overlay2::default()),
            Some(("root" | "all", medium)) if medium != "none" => OverlayChoice::parse(medium)?,
            _ => fail!(
                "use none, root:MEDIUM or all:MEDIUM; a medium is memory, self or dir=/PATH, then ,size=N and ,commit or ,commit=privileged"
            ),
        };
        let binds = if text.starts_with("all:") { choice.clone() } else { None };
        if binds.as_ref().is_some_and(|choice| choice.commit) {
            fail!("commit is for the root alone: use root:MEDIUM,commit");
        }
        Ok(Overlay2 { root: choice, binds })
    }
}

/// A number of bytes, with a unit of powers of 1024.
fn bytes(text: &str) -> Option<u64> {
    let unit = text.chars().last()?;
    let (digits, shift) = match unit.to_ascii_lowercase() {
        'k' => (&text[..text.len() - 1], 10),
        'm' => (&text[..text.len() - 1], 20),
        'g' => (&text[..text.len() - 1], 30),
        't' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|n| *n > 0)
}

/// The overlay of the root that the annotations ask for; the flag's without one.
pub(crate) fn of_root(
    annotations: &BTreeMap<String, String>,
    flag: &Option<OverlayChoice>,
) -> Result<Option<OverlayChoice>> {
    let Some((name, value)) = ROOT.iter().find_map(|name| Some((name, annotations.get(*name)?))) else {
        return Ok(flag.clone());
    };
    OverlayChoice::parse(value).map_err(|Error(message)| Error(format!("annotations: {name}: {message}")))
}

/// The directories and images below the root that the annotations name.
pub(crate) fn layers(
    annotations: &BTreeMap<String, String>,
    over_root: Option<&OverlayChoice>,
) -> Result<Vec<HostTree>> {
    let Some(value) = annotations.get(LAYERS) else { return Ok(Vec::new()) };
    match over_root {
        None => fail!("annotations: {LAYERS}: layers lie below an overlay: choose one with --overlay2"),
        Some(choice) if choice.commit => {
            fail!("annotations: {LAYERS}: what changed cannot be written back to layers: leave commit out")
        }
        Some(_) => {}
    }
    let tree = |path: &str| match Path::new(path).canonicalize() {
        _ if !path.starts_with('/') => fail!("annotations: {LAYERS}: {path:?}: use absolute paths"),
        Ok(path) if path.is_dir() => Ok(HostTree { recursive: false, ..HostTree::directory(path, true) }),
        Ok(_) => images::tree(&format!("annotations: {LAYERS}:"), Path::new(path)),
        Err(error) => fail!("annotations: {LAYERS}: {path}: {}", crate::files::reason(&error)),
    };
    let layers = value.split(':').map(tree).collect::<Result<Vec<_>>>()?;
    if layers.len() > MAX_LAYERS {
        fail!("annotations: {LAYERS}: {} layers; use at most {MAX_LAYERS}", layers.len());
    }
    Ok(layers)
}

/// A file that keeps an overlay's data, to be made before the container is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// The directory of the host that it is in.
    pub dir: PathBuf,
    /// Its name there; without one it is never seen.
    pub name: Option<String>,
}

/// The files of a container's overlays.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) places: Vec<StorePlace>,
}

impl Stores {
    /// The kernel's part of an overlay over `tree` of the container `id`. The number of its store counts from the first store, and that
    /// of the socket for writing back from the first descriptor after the stores.
    ///
    /// A file, and a tree that is not written, have no place for a store of their own, and little or nothing to keep: memory.
    pub(crate) fn overlay(
        &mut self,
        choice: &OverlayChoice,
        id: &str,
        tree: &HostTree,
        written: bool,
    ) -> Overlay {
        let place = match &choice.medium {
            _ if !written => None,
            Medium::Memory => None,
            Medium::Own if tree.is_file => None,
            // A program that packs the directory would pack the file as well.
            Medium::Own if choice.commit => Some(StorePlace { dir: tree.path.clone(), name: None }),
            Medium::Own => {
                let count = self.places.iter().filter(|place| place.dir == tree.path).count();
                let again = if count == 0 { String::new() } else { format!(".{count}") };
                Some(StorePlace { dir: tree.path.clone(), name: Some(format!("{STORE_PREFIX}{id}{again}")) })
            }
            Medium::Dir(dir) => Some(StorePlace { dir: dir.clone(), name: None }),
        };
        let store = place.map(|place| {
            self.places.push(place);
            self.places.len() - 1
        });
        let hidden = (!tree.is_file).then(|| HIDDEN.to_string());
        let write_back = (choice.commit && written).then_some(0);
        Overlay { store, size: choice.size, hidden, layers: Vec::new(), write_back, lists_changes: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(medium: Medium, size: Option<u64>) -> Option<OverlayChoice> {
        Some(OverlayChoice { medium, size, ..OverlayChoice::MEMORY })
    }

    #[test]
    fn flags() {
        let parse = |text| Overlay2::parse(text).map_err(|error| error.0);
        assert_eq!(parse("none"), Ok(Overlay2::default()));
        let root = choice(Medium::Memory, None);
        assert_eq!(parse("root:memory"), Ok(Overlay2 { root, binds: None }));
        let all = choice(Medium::Own, Some(3 << 30));
        assert_eq!(parse("all:self,size=3G"), Ok(Overlay2 { root: all.clone(), binds: all }));
        let dir = choice(Medium::Dir("/a:b".into()), Some(4096));
        assert_eq!(parse("root:dir=/a:b,size=4096"), Ok(Overlay2 { root: dir, binds: None }));
        let kept = parse("root:self,commit,size=1").unwrap().root.unwrap();
        assert_eq!(
            kept,
            OverlayChoice { medium: Medium::Own, size: Some(1), commit: true, privileged: false }
        );
        let kept = parse("root:memory,commit=privileged").unwrap().root.unwrap();
        assert_eq!(kept, OverlayChoice { commit: true, privileged: true, ..OverlayChoice::MEMORY });
        for bad in [
            "",
            "memory",
            "root",
            "root:",
            "root:none",
            "bind:memory",
            "root:disk",
            "root:dir=",
            "root:dir=a",
            "root:self,size=",
            "root:self,size=0",
            "root:self,size=1x",
            "root:self,size=1,size=2",
            "root:self,x",
            "root:self,commit,commit",
            "root:self,commit=1",
            "root:self,commit,commit=privileged",
            "all:self,commit",
            "root:self,size=99999999999t",
            "root:self,size=+1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn annotations_count_before_flags() {
        let of = |pairs: &[(&str, &str)]| {
            let all = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            of_root(&all, &Some(OverlayChoice::MEMORY)).map_err(|error| error.0)
        };
        let [own, runsc] = ROOT;
        assert_eq!(of(&[]), Ok(Some(OverlayChoice::MEMORY)));
        assert_eq!(of(&[(runsc, "self")]), Ok(choice(Medium::Own, None)));
        assert_eq!(of(&[(runsc, "self"), (own, "none")]), Ok(None));
        assert!(of(&[(own, "disk")]).unwrap_err().contains(own));
    }

    #[test]
    fn layers_lie_below_an_overlay() {
        let of = |value: &str, choice: Option<&OverlayChoice>| {
            let all = [(LAYERS.to_string(), value.to_string())].into();
            layers(&all, choice).map_err(|error| error.0)
        };
        let paths = |trees: Vec<HostTree>| trees.into_iter().map(|tree| tree.path).collect::<Vec<_>>();
        let memory = Some(&OverlayChoice::MEMORY);
        assert_eq!(of("/:/proc", memory).map(paths), Ok(vec!["/".into(), "/proc".into()]));
        assert_eq!(of("/:/proc/version", memory).map(|trees| trees[1].is_file), Ok(true));
        assert!(of("/", None).unwrap_err().contains("--overlay2"));
        let kept = OverlayChoice { commit: true, ..OverlayChoice::MEMORY };
        assert!(of("/", Some(&kept)).unwrap_err().contains("commit"));
        for bad in ["", "a", "/:", "/nonexistent", "/dev/null"] {
            assert!(of(bad, memory).is_err(), "{bad}");
        }
        assert!(of(&vec!["/"; MAX_LAYERS + 1].join(":"), memory).unwrap_err().contains("129 layers"));
        assert_eq!(layers(&BTreeMap::new(), None), Ok(Vec::new()));
    }

    #[test]
    fn one_directory_twice_has_two_files() {
        let tree = HostTree::directory("/t".into(), true);
        let own = OverlayChoice { medium: Medium::Own, ..OverlayChoice::MEMORY };
        let mut stores = Stores::default();
        let overlays = [0, 1].map(|_| stores.overlay(&own, "id", &tree, true));
        assert_eq!(overlays.map(|o| o.store), [Some(0), Some(1)]);
        let names: Vec<_> = stores.places.iter().flat_map(|place| place.name.clone()).collect();
        assert_eq!(names, [".ringfence.filestore.id", ".ringfence.filestore.id.1"]);
        assert_eq!(stores.overlay(&own, "id", &HostTree { is_file: true, ..tree.clone() }, true).store, None);
        assert_eq!(stores.overlay(&own, "id", &tree, false).store, None);
        let kept = OverlayChoice { commit: true, ..own };
        assert_eq!(stores.overlay(&kept, "id", &tree, false).write_back, None);
        let over = stores.overlay(&kept, "id", &tree, true);
        assert_eq!((over.store, over.write_back), (Some(2), Some(0)));
        assert_eq!(stores.places[2].name, None);
    }
}
