//! What a bundle hides of proc and sysfs by mounts on top, where its programs may not mount.
//!
//! Such programs cannot uncover these places in a mount namespace of their own, nor mount another proc or sysfs there. So an
//! image may not show more: each mount of these types must be at least as covered, and restricted, as one of the bundle.

use mounts::restore::RESTRICTING;
use std::sync::Arc;
use vfs::{Dentry, Mount, MountFlags, Path, SuperBlock};

/// A mount of proc or sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Type.
    pub kind: String,
    /// Its file system.
    pub sb: usize,
    /// The part of that which shows.
    pub root: Vec<u8>,
    /// Flags.
    pub flags: MountFlags,
}

/// What covers a place, and whether it stays there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cover {
    pub sb: usize,
    pub root: Vec<u8>,
    pub flags: MountFlags,
    pub stays: bool,
}

/// A mount of the bundle, and what lies on it: paths in its file system.
struct Own {
    shown: Shown,
    covers: Vec<(Vec<u8>, Cover)>,
    mount: Arc<Mount>,
    points: Vec<Arc<Dentry>>,
}

/// Those of a bundle.
#[derive(Default)]
pub(super) struct Masks(Vec<Own>);

/// Whether a type is one of these.
pub(super) fn concern(kind: &str) -> bool {
    matches!(kind, "proc" | "sysfs")
}

/// What tells a file system from others.
pub(super) fn sb_of(sb: &Arc<SuperBlock>) -> usize {
    Arc::as_ptr(sb).cast::<()>() as usize
}

/// Whether a path is another one, or below it.
fn is_below(path: &[u8], top: &[u8]) -> bool {
    let top = top.strip_suffix(b"/").unwrap_or(top);
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

impl Masks {
    /// Adds a mount that a container begins with, with the mounts on it, if it is one of these.
    pub fn add(&mut self, mount: &Arc<Mount>) {
        if !concern(mount.fs().kind()) {
            return;
        }
        let (mut covers, mut points) = (Vec::new(), Vec::new());
        for child in mount.children() {
            let Some(at) = child.mountpoint().filter(|at| !at.inode().stays_empty()) else { continue };
            let cover = Cover {
                sb: sb_of(&child.sb),
                root: Path::display_in_fs(&child.root),
                flags: child.own_flags() & RESTRICTING,
                stays: true,
            };
            covers.push((Path::display_in_fs(&at.dentry), cover));
            points.push(at.dentry);
        }
        let shown = Shown {
            kind: mount.fs().kind().into(),
            sb: sb_of(&mount.sb),
            root: Path::display_in_fs(&mount.root),
            flags: mount.own_flags() & RESTRICTING,
        };
        self.0.push(Own { shown, covers, mount: mount.clone(), points });
    }

    /// The flags that are to be locked on a mount, with what is on its places; `None` when it shows more than the bundle's. One that
    /// is not `given` has a file system of its own.
    pub fn permit(
        &self,
        one: &Shown,
        given: bool,
        on: &dyn Fn(&[u8]) -> Option<Cover>,
    ) -> Option<MountFlags> {
        self.0.iter().find_map(|own| permit(&own.shown, &own.covers, one, given, on))
    }

    /// Whether a place is hidden by what lies on its mount.
    pub fn hide(&self, place: &Path) -> bool {
        if !concern(place.mount.fs().kind()) {
            return false;
        }
        let below = |point: &Arc<Dentry>| place.dentry.is_below(point);
        let own = self.0.iter().find(|own| Arc::ptr_eq(&own.mount, &place.mount));
        let locked = place.mount.locked_children();
        own.is_some_and(|own| own.points.iter().any(below))
            || locked.iter().filter_map(|child| child.mountpoint()).any(|at| below(&at.dentry))
    }
}

fn permit(
    own: &Shown,
    covers: &[(Vec<u8>, Cover)],
    one: &Shown,
    given: bool,
    on: &dyn Fn(&[u8]) -> Option<Cover>,
) -> Option<MountFlags> {
    let same = if given { own.sb == one.sb } else { own.kind == one.kind && own.root == b"/" };
    // A file system of their own programs mount with flags of their own, but for this one.
    let wanted = if given { own.flags } else { own.flags & MountFlags::RDONLY };
    if !same || !is_below(&one.root, &own.root) || !one.flags.contains(wanted) {
        return None;
    }
    let covered = |(point, want): &(Vec<u8>, Cover)| {
        if is_below(&one.root, point) {
            return false;
        }
        let fits = |there: &Cover| {
            there.stays
                && (there.sb, &there.root) == (want.sb, &want.root)
                && there.flags.contains(want.flags)
        };
        !is_below(point, &one.root) || on(point).as_ref().is_some_and(fits)
    };
    covers.iter().all(covered).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sb: usize, root: &[u8], flags: MountFlags) -> Shown {
        Shown { kind: "proc".into(), sb, root: root.to_vec(), flags }
    }

    #[test]
    fn what_a_bundle_hides_stays_hidden() {
        let (none, read_only) = (MountFlags::empty(), MountFlags::RDONLY);
        let own = shown(1, b"/", MountFlags::NOSUID);
        let null = Cover { sb: 5, root: b"/null".to_vec(), flags: none, stays: true };
        let sys = Cover { sb: 1, root: b"/sys".to_vec(), flags: read_only, stays: true };
        let covers = [(b"/kcore".to_vec(), null.clone()), (b"/sys".to_vec(), sys.clone())];
        let whole = |point: &[u8]| covers.iter().find(|(at, _)| at == point).map(|(_, cover)| cover.clone());
        let may =
            |one: &Shown, given, on: &dyn Fn(&[u8]) -> Option<Cover>| permit(&own, &covers, one, given, on);
        let nosuid = |root| shown(1, root, MountFlags::NOSUID);
        assert_eq!(may(&nosuid(b"/"), true, &whole), Some(MountFlags::NOSUID));
        // Nothing is on it, or something else.
        assert_eq!(may(&nosuid(b"/"), true, &|_| None), None);
        for wrong in [
            Cover { stays: false, ..null.clone() },
            Cover { root: b"/zero".to_vec(), ..null.clone() },
            Cover { sb: 1, root: b"/kcore".to_vec(), ..null },
        ] {
            let on = |point: &[u8]| if point == b"/kcore" { Some(wrong.clone()) } else { whole(point) };
            assert_eq!(may(&nosuid(b"/"), true, &on), None, "{wrong:?}");
        }
        let writable = Cover { flags: none, ..sys };
        let on = |point: &[u8]| if point == b"/sys" { Some(writable.clone()) } else { whole(point) };
        assert_eq!(may(&nosuid(b"/"), true, &on), None);
        // Parts of it.
        assert!(may(&nosuid(b"/net"), true, &|_| None).is_some());
        assert!(may(&nosuid(b"/system"), true, &|_| None).is_some());
        for hidden in [&b"/kcore"[..], b"/sys", b"/sys/kernel"] {
            assert_eq!(may(&nosuid(hidden), true, &whole), None);
        }
        // Without the flags, and of another file system.
        assert_eq!(may(&shown(1, b"/", none), true, &whole), None);
        assert_eq!(may(&shown(2, b"/", MountFlags::NOSUID), true, &whole), None);
        assert_eq!(may(&shown(2, b"/", none), false, &whole), Some(none));
        assert_eq!(may(&shown(2, b"/", none), false, &|_| None), None);
        let sysfs = Shown { kind: "sysfs".into(), ..shown(2, b"/", none) };
        assert_eq!(may(&sysfs, false, &whole), None);
        let fixed = shown(1, b"/", read_only);
        let fresh = |flags| permit(&fixed, &[], &shown(2, b"/", flags), false, &|_| None);
        assert_eq!((fresh(none), fresh(read_only)), (None, Some(read_only)));
    }
}
