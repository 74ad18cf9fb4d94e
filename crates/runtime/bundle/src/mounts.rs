//! Mounts of a configuration.

use crate::files::reason;
use crate::host_mounts::HostMounts;
use crate::id_mapped;
use crate::namespaces::IdMaps;
use crate::{HostTree, Options, Result, fail, images, overlay};
use oci_spec::runtime::Mount;
use spec::{Atime, MountSpec, PropagationType};
use std::path::Path;

/// A mount and, when it is a bind mount or an image, what the gofer has to open for it.
pub(crate) struct TranslatedMount {
    pub(crate) mount: MountSpec,
    pub(crate) tree: Option<HostTree>,
}

/// What an option does to a mount of the guest.
#[derive(Clone, Copy)]
enum Effect {
    /// Changes the description.
    Set(fn(&mut MountSpec)),
    /// A bind mount; with the mounts below it?
    Bind(bool),
    /// Owners are mapped; those of the mounts below, too?
    MapIds(bool),
    /// Cannot change anything here.
    Nothing,
    /// Would change what the container may do, and cannot be done.
    Refused(&'static str),
}

use Effect::{Bind, MapIds, Nothing, Refused, Set};

/// The options that runtimes know; all others are the file system's own. A bind mount is one mount for the guest, with
/// what the host has mounted below its source: so the recursive options are the same as those without `r`.
const OPTIONS: [(&str, Effect); 65] = [
    ("acl", Nothing),
    ("async", Nothing),
    ("atime", Set(|m| m.atime = Atime::Relative)),
    ("bind", Bind(false)),
    ("copy-symlink", Nothing),
    ("defaults", Nothing),
    ("dev", Set(|m| m.nodev = false)),
    ("diratime", Set(|m| m.nodiratime = false)),
    // Synchronous writes are a property of the host's mount.
    ("dirsync", Nothing),
    ("exec", Set(|m| m.noexec = false)),
    ("idmap", MapIds(false)),
    ("iversion", Nothing),
    ("lazytime", Nothing),
    ("loud", Nothing),
    ("mand", Nothing),
    ("noacl", Nothing),
    ("noatime", Set(|m| m.atime = Atime::Never)),
    ("nodev", Set(|m| m.nodev = true)),
    ("nodiratime", Set(|m| m.nodiratime = true)),
    ("noexec", Set(|m| m.noexec = true)),
    ("noiversion", Nothing),
    ("nolazytime", Nothing),
    ("nomand", Nothing),
    ("norelatime", Set(|m| m.atime = Atime::Relative)),
    ("nostrictatime", Set(|m| m.atime = Atime::Relative)),
    ("nosuid", Set(|m| m.nosuid = true)),
    ("nosymfollow", Set(|m| m.nosymfollow = true)),
    ("private", Set(|m| m.propagation = PropagationType::Private)),
    ("ratime", Set(|m| m.atime = Atime::Relative)),
    ("rbind", Bind(true)),
    ("rdev", Set(|m| m.nodev = false)),
    ("rdiratime", Set(|m| m.nodiratime = false)),
    ("relatime", Set(|m| m.atime = Atime::Relative)),
    ("remount", Refused("remounting")),
    ("rexec", Set(|m| m.noexec = false)),
    ("ridmap", MapIds(true)),
    ("rnoatime", Set(|m| m.atime = Atime::Never)),
    ("rnodev", Set(|m| m.nodev = true)),
    ("rnodiratime", Set(|m| m.nodiratime = true)),
    ("rnoexec", Set(|m| m.noexec = true)),
    ("rnorelatime", Set(|m| m.atime = Atime::Relative)),
    ("rnostrictatime", Set(|m| m.atime = Atime::Relative)),
    ("rnosuid", Set(|m| m.nosuid = true)),
    ("rnosymfollow", Set(|m| m.nosymfollow = true)),
    ("ro", Set(|m| m.readonly = true)),
    ("rprivate", Set(|m| m.propagation = PropagationType::Private)),
    ("rrelatime", Set(|m| m.atime = Atime::Relative)),
    ("rro", Set(|m| m.readonly = true)),
    ("rrw", Set(|m| m.readonly = false)),
    ("rshared", Set(|m| m.propagation = PropagationType::Shared)),
    ("rslave", Set(|m| m.propagation = PropagationType::Slave)),
    ("rstrictatime", Set(|m| m.atime = Atime::Strict)),
    ("rsuid", Set(|m| m.nosuid = false)),
    ("rsymfollow", Set(|m| m.nosymfollow = false)),
    ("runbindable", Set(|m| m.propagation = PropagationType::Unbindable)),
    ("rw", Set(|m| m.readonly = false)),
    ("shared", Set(|m| m.propagation = PropagationType::Shared)),
    ("silent", Nothing),
    ("slave", Set(|m| m.propagation = PropagationType::Slave)),
    ("strictatime", Set(|m| m.atime = Atime::Strict)),
    ("suid", Set(|m| m.nosuid = false)),
    ("symfollow", Set(|m| m.nosymfollow = false)),
    ("sync", Nothing),
    ("tmpcopyup", Set(|m| m.copy_up = true)),
    ("unbindable", Set(|m| m.propagation = PropagationType::Unbindable)),
];

/// The options that are honoured or harmless, for the features document.
pub(crate) fn known_options() -> Vec<&'static str> {
    OPTIONS.iter().filter(|(_, effect)| !matches!(effect, Refused(_))).map(|(name, _)| *name).collect()
}

/// `linux.rootfsPropagation`.
pub(crate) fn propagation(name: Option<&str>) -> Result<PropagationType> {
    Ok(match name.unwrap_or_default() {
        "" | "private" | "rprivate" => PropagationType::Private,
        "shared" | "rshared" => PropagationType::Shared,
        "slave" | "rslave" => PropagationType::Slave,
        "unbindable" | "runbindable" => PropagationType::Unbindable,
        other => {
            fail!("linux.rootfsPropagation {other:?} is not known; use private, shared, slave or unbindable")
        }
    })
}

/// What the mounts of a configuration have in common.
pub(crate) struct Shared<'a> {
    pub(crate) options: &'a Options,
    pub(crate) hosts: &'a HostMounts,
    /// The maps of the container's user namespace.
    pub(crate) container: Option<&'a IdMaps>,
}

/// Translates one mount. A relative bind source is relative to the bundle. `maps`: its own mappings.
pub(crate) fn translate(
    dir: &Path,
    mount: &Mount,
    maps: Option<&IdMaps>,
    shared: &Shared<'_>,
) -> Result<TranslatedMount> {
    let Shared { options, hosts, container } = shared;
    let mut out = MountSpec {
        destination: clean(&mount.destination().to_string_lossy()),
        source: mount.source().as_ref().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        ..MountSpec::new(mount.typ().as_deref().unwrap_or_default())
    };
    let mut bind = out.fstype == "bind";
    let mut recursive = false;
    // As with runc, mappings alone mean `idmap`.
    let mut with_mapped = maps.map(|_| false);
    for option in mount.options().iter().flatten() {
        let known = OPTIONS.iter().find(|(name, _)| name == option);
        match known.map(|(_, effect)| effect) {
            Some(Set(change)) => change(&mut out),
            Some(Bind(with_mounts)) => (bind, recursive) = (true, *with_mounts),
            Some(MapIds(with_mounts)) => with_mapped = Some(*with_mounts),
            Some(Nothing) if out.fstype == images::EROFS && option.ends_with("acl") => {
                out.options.push(option.clone());
            }
            Some(Nothing) => {}
            Some(Refused(what)) => fail!("option {option} is not supported: there is no {what}"),
            None if option.starts_with("idmap=") || option.starts_with("ridmap=") => {
                fail!("option {option} is not known; give the mount uidMappings and gidMappings")
            }
            None => out.options.push(option.clone()),
        }
    }
    if out.copy_up && (bind || out.fstype != "tmpfs") {
        fail!("option tmpcopyup is for a tmpfs, not for {}", out.destination);
    }
    if out.destination == "/" {
        fail!("destination \"/\" would replace the root file system; use root.path");
    }
    if !bind {
        if with_mapped.is_some() {
            fail!("idmap, uidMappings and gidMappings are for bind mounts, not for {}", out.destination);
        }
        if out.fstype.is_empty() {
            fail!("type is missing for {}", out.destination);
        }
        if out.fstype == images::EROFS {
            let Some(source) = mount.source() else { fail!("source is missing for {}", out.destination) };
            (out.source_is_file, out.readonly) = (true, true);
            let tree = images::tree("source", &dir.join(source))?;
            return Ok(TranslatedMount { mount: out, tree: Some(tree) });
        }
        if out.fstype == overlay::TYPE {
            let tree = overlay::tree(&mut out, options)?;
            return Ok(TranslatedMount { mount: out, tree: Some(tree) });
        }
        return Ok(TranslatedMount { mount: out, tree: None });
    }
    out.fstype = "bind".into();
    out.access = options.bind_access;
    out.host_fifos = options.host_fifos;
    let Some(source) = mount.source() else { fail!("source is missing for bind mount {}", out.destination) };
    let path = dir.join(source);
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) => fail!("source {}: {}", path.display(), reason(&error)),
    };
    out.source_is_file = !path.is_dir();
    hosts.name(&path, &mut out);
    let id_map = match with_mapped {
        Some(recursive) => Some(id_mapped::of(maps, *container, recursive)?),
        None => None,
    };
    out.owners = id_map.as_ref().map(|_| id_mapped::owners_seen(maps, *container));
    let readonly = out.readonly || options.overlay.binds.is_some();
    let tree = HostTree {
        recursive,
        follows_mounts: out.propagation.follows(),
        is_file: out.source_is_file,
        id_map,
        ..HostTree::directory(path, readonly)
    };
    Ok(TranslatedMount { mount: out, tree: Some(tree) })
}

/// An absolute path without `.`, `..`, repeated or trailing slashes. `..` at the root stays there.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A mount of one of the sandbox's own file systems.
pub(crate) fn internal(destination: &str, fstype: &str, options: &[&str], dev: bool) -> MountSpec {
    MountSpec {
        destination: destination.into(),
        source: fstype.into(),
        readonly: fstype == "sysfs",
        noexec: true,
        nosuid: true,
        nodev: !dev,
        options: options.iter().map(ToString::to_string).collect(),
        ..MountSpec::new(fstype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned() {
        assert_eq!(clean("/a/./b//c/"), "/a/b/c");
        assert_eq!(clean("../../etc"), "/etc");
        assert_eq!(clean("/"), "/");
    }

    fn parse(json: &str) -> Result<TranslatedMount> {
        parse_with(json, None)
    }

    fn parse_with(json: &str, container: Option<&IdMaps>) -> Result<TranslatedMount> {
        let shared = Shared { options: &Options::default(), hosts: &HostMounts::default(), container };
        let maps = id_mapped::of_text(&format!(r#"{{"mounts":[{json}]}}"#))?.pop().flatten();
        translate(Path::new("/"), &serde_json::from_str(json).unwrap(), maps.as_ref(), &shared)
    }

    #[test]
    fn images_of_erofs() {
        let mount =
            |source: &str| format!(r#"{{"destination":"/x","type":"erofs","options":["noacl"]{source}}}"#);
        let t = parse(&mount(r#","source":"/etc/passwd""#)).unwrap();
        assert!(t.mount.readonly && t.mount.source_is_file && t.tree.unwrap().is_file);
        assert_eq!((t.mount.fstype.as_str(), &t.mount.options[..]), ("erofs", &["noacl".to_string()][..]));
        assert!(parse(&mount("")).err().unwrap().0.contains("source is missing"));
        assert!(parse(&mount(r#","source":"/etc""#)).err().unwrap().0.contains("not a regular file"));
    }

    #[test]
    fn mapped_owners() {
        let range = |inside, outside, count| crate::IdRange { inside, outside, count };
        let container = IdMaps { uids: vec![range(0, 1000, 10)], gids: vec![range(0, 2000, 10)] };
        let mount = |rest: &str| format!(r#"{{"destination":"/x","type":"bind","source":"/etc"{rest}}}"#);
        let maps = r#","uidMappings":[{"containerID":5,"hostID":1004,"size":20}],
            "gidMappings":[{"containerID":0,"hostID":0,"size":1}]"#;
        // The container's own.
        let plain = mount(r#","options":["ridmap"]"#);
        let t = parse_with(&plain, Some(&container)).unwrap();
        assert_eq!(t.mount.owners, Some([vec![(0, 10)], vec![(0, 10)]]));
        let map = t.tree.unwrap().id_map.unwrap();
        assert!(map.recursive && map.maps == container);
        let error = |text: &str| parse(text).err().unwrap().0;
        assert!(error(&plain).contains("user namespace"));
        // Those of the mount, with the option and without; the sandbox's root can make files all the same.
        for options in ["", r#","options":["idmap"]"#] {
            let t = parse_with(&mount(&format!("{maps}{options}")), Some(&container)).unwrap();
            assert_eq!(t.mount.owners, Some([vec![(4, 6)], vec![]]));
            let map = t.tree.unwrap().id_map.unwrap();
            assert_eq!(map.maps.uids, [range(5, 1004, 20), range(u32::MAX - 1, 1000, 1)]);
            assert_eq!(map.maps.gids, [range(0, 0, 1), range(u32::MAX - 1, 2000, 1)]);
        }
        let t = parse(&mount(maps)).unwrap();
        assert_eq!(t.mount.owners, Some([vec![(1004, 20)], vec![(0, 1)]]));
        assert_eq!(t.tree.unwrap().id_map.unwrap().maps.gids, [range(0, 0, 1)]);
        let half = r#","uidMappings":[{"containerID":5,"hostID":1004,"size":20}]"#;
        assert!(error(&mount(half)).contains("together"));
        assert!(error(&mount(r#","uidMappings":3"#)).starts_with("mounts"));
        assert!(error(&mount(r#","options":["idmap=uids=0-1-1"]"#)).contains("uidMappings"));
        let tmpfs = r#"{"destination":"/x","type":"tmpfs","options":["idmap"]}"#;
        assert!(error(tmpfs).contains("bind mounts"));
    }

    #[test]
    fn options_are_told_apart() {
        let json =
            r#"{"destination":"/dev","type":"tmpfs","options":["nosuid","strictatime","mode=755","ro"]}"#;
        let mount = parse(json).unwrap().mount;
        assert_eq!(mount.fstype, "tmpfs");
        assert!(mount.nosuid && mount.readonly && !mount.noexec);
        assert_eq!(mount.options, ["mode=755"]);
    }

    #[test]
    fn bind_mounts_name_their_source() {
        let t = parse(r#"{"destination":"/x","source":"/etc","options":["rbind","ro"]}"#).unwrap();
        let tree = t.tree.unwrap();
        assert!(tree.recursive && tree.readonly && !tree.is_file);
        assert_eq!(t.mount.fstype, "bind");
        let error = parse(r#"{"destination":"/x","type":"bind","source":"/nonexistent"}"#).err().unwrap();
        assert_eq!(error.0, "source /nonexistent: no such file or directory");
        assert!(parse(r#"{"destination":"/x","type":"bind","source":"/etc","options":["idmap"]}"#).is_err());
    }

    #[test]
    fn every_option_has_an_effect_or_none() {
        assert!(OPTIONS.is_sorted_by(|a, b| a.0 < b.0));
        let json = r#"{"destination":"/x","type":"tmpfs","options":
            ["rro","noatime","nosymfollow","rslave","tmpcopyup","nodiratime","sync","lazytime","size=1m"]}"#;
        let mount = parse(json).unwrap().mount;
        assert!(mount.readonly && mount.nosymfollow && mount.copy_up && mount.nodiratime);
        assert_eq!((mount.atime, mount.propagation), (Atime::Never, PropagationType::Slave));
        assert_eq!(mount.options, ["size=1m"]);
        let back = r#"{"destination":"/x","type":"tmpfs","options":["ro","rw","noexec","exec","noatime","strictatime"]}"#;
        let mount = parse(back).unwrap().mount;
        assert_eq!((mount.readonly, mount.noexec, mount.atime), (false, false, Atime::Strict));
        assert!(parse(r#"{"destination":"/x","source":"/etc","options":["bind","tmpcopyup"]}"#).is_err());
        assert!(propagation(Some("rshared")).is_ok() && propagation(Some("public")).is_err());
    }
}
