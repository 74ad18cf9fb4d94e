//! The host's mounts, as far as a container's bind mounts show them. /proc/PID/mountinfo inside names the file system
//! of a source and the place in it, as for a bind mount of the host's kernel.

use mountinfo::Mount;
use spec::MountSpec;
use std::path::Path;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct HostMounts(Vec<Mount>);

impl HostMounts {
    /// As they are now. Where they cannot be read nothing is known of them.
    pub(crate) fn read() -> Self {
        Self(mountinfo::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default()))
    }

    /// Says in a bind mount of `path`, which is canonical, what that is to the host.
    pub(crate) fn name(&self, path: &Path, mount: &mut MountSpec) {
        // The longest mount point above it, and of several at one place the last.
        let above = self.0.iter().filter(|host| path.starts_with(&host.point));
        let Some(host) = above.max_by_key(|host| host.point.as_os_str().len()) else { return };
        let below = path.strip_prefix(&host.point).unwrap_or(path);
        mount.host_root = match below.as_os_str().is_empty() {
            true => host.root.to_string_lossy().into_owned(),
            false => host.root.join(below).to_string_lossy().into_owned(),
        };
        mount.source = host.source.to_string_lossy().into_owned();
    }

    /// Whether an overlay with an upper layer is mounted at this place, which is canonical, and is visible there.
    pub(crate) fn is_layered(&self, path: &Path) -> bool {
        self.0.iter().rfind(|host| host.point == path).is_some_and(|host| {
            host.fstype == "overlay"
                && host.root == Path::new("/")
                && host.options.split(',').any(|option| option.starts_with("upperdir="))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_a_place_in_their_file_system() {
        let hosts = HostMounts(mountinfo::parse(
            b"27 1 254:0 / / rw - ext4 /dev/vda rw\n\
             42 27 0:61 /part /srv/my\\040data rw shared:3 - xfs /dev/vdb rw\n",
        ));
        let named = |path: &str| {
            let mut mount = MountSpec::new("bind");
            hosts.name(Path::new(path), &mut mount);
            (mount.host_root, mount.source)
        };
        let want = |root: &str, source: &str| (root.to_string(), source.to_string());
        assert_eq!(named("/etc/hosts"), want("/etc/hosts", "/dev/vda"));
        assert_eq!(named("/"), want("/", "/dev/vda"));
        assert_eq!(named("/srv/my data"), want("/part", "/dev/vdb"));
        assert_eq!(named("/srv/my data/x"), want("/part/x", "/dev/vdb"));
    }

    #[test]
    fn overlays_have_an_upper_layer_or_none() {
        let hosts = HostMounts(mountinfo::parse(
            b"27 1 0:40 / /a rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n\
             28 1 0:41 / /b rw - overlay overlay ro,lowerdir=/l:/upperdir=\n\
             29 1 0:40 /part /c rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n\
             30 1 254:0 / /d rw - ext4 /dev/vda rw\n\
             31 1 0:40 / /e rw - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w\n\
             32 31 0:50 / /e rw - tmpfs tmpfs rw\n",
        ));
        let layered = ["/a", "/b", "/c", "/d", "/e", "/a/x"].map(|path| hosts.is_layered(Path::new(path)));
        assert_eq!(layered, [true, false, false, false, false, false]);
    }
}
