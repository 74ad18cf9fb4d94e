//! `do`: one command on the host's own files.
//!
//! The root is the host's (or a directory's) under a throw-away overlay, with
//! a /proc, /dev and /sys of the sandbox; the command keeps its environment,
//! its working directory and its resource limits.

use crate::files::reason;
use crate::host_mounts::HostMounts;
use crate::mounts::{clean, internal};
use crate::overlay2::Stores;
use crate::{Descriptors, Gofer, HostTree, IdMaps, Options, Prepared, Result, caps, fail};
use serde::{Deserialize, Serialize};
use spec::{
    CapabilitySets, DeviceKind, DeviceSpec, FdIndex, Interfaces, MountSpec, Network, ProcessSpec,
    PropagationType, RlimitSpec, RootSpec, SandboxSpec, WindowSize,
};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A command to sandbox.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HostCommand {
    /// Container id.
    pub id: String,
    /// Host name.
    pub hostname: String,
    /// Root file system on the host.
    pub root: PathBuf,
    /// Working directory in the sandbox.
    pub cwd: String,
    /// Directories and files shared with the host.
    pub volumes: Vec<Volume>,
    /// Program and arguments.
    pub args: Vec<String>,
    /// Environment.
    pub env: Vec<String>,
    /// User of the command.
    pub uid: u32,
    /// Group of the command.
    pub gid: u32,
    /// Supplementary groups of the command.
    pub additional_gids: Vec<u32>,
    /// File mode creation mask.
    pub umask: u32,
    /// The command has root's capabilities inside.
    pub privileged: bool,
    /// Paths of which nothing is shown.
    pub hidden: Vec<String>,
    /// Most tasks.
    pub pids: Option<u32>,
    /// Resource limits.
    pub rlimits: Vec<RlimitSpec>,
    /// The command gets a pseudo-terminal.
    pub terminal: bool,
    /// An init of the kernel's own is process 1, and the command its child.
    pub own_init: bool,
    /// The users of its user namespace, if they do not follow from the caller.
    pub id_maps: Option<IdMaps>,
}

/// `--volume SRC[:DST[:ro]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Path on the host.
    pub source: PathBuf,
    /// Path in the sandbox.
    pub destination: String,
    /// The sandbox may not write to it.
    pub readonly: bool,
}

impl std::str::FromStr for Volume {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let source = parts.next().unwrap_or_default();
        let destination = parts.next().unwrap_or(source);
        let readonly = match parts.next() {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(other) => return Err(format!("unknown volume option {other:?}; use ro or rw")),
        };
        if source.is_empty() {
            return Err("the source is empty; use SRC[:DST[:ro]]".into());
        }
        if !destination.starts_with('/') {
            return Err(format!("the destination {destination:?} must be an absolute path: use SRC:/DST"));
        }
        Ok(Self { source: source.into(), destination: clean(destination), readonly })
    }
}

/// A device of the sandbox's own, if the root has a node of this kind and number: its permissions.
fn device(root: &Path, path: &str, kind: DeviceKind, (major, minor): (u32, u32)) -> Option<DeviceSpec> {
    let node = std::fs::symlink_metadata(root.join(path)).ok()?;
    let same_kind = match kind {
        DeviceKind::Char => node.file_type().is_char_device(),
        DeviceKind::Block => node.file_type().is_block_device(),
        DeviceKind::Fifo => false,
    };
    (same_kind && node.rdev() == libc::makedev(major, minor)).then(|| DeviceSpec {
        path: format!("/{path}"),
        kind,
        major,
        minor,
        mode: node.mode() & 0o777,
        uid: 0,
        gid: 0,
    })
}

/// /dev/net/tun, /dev/fuse and the loop devices, those of them that the root has.
fn devices(root: &Path, network: Network) -> Vec<DeviceSpec> {
    let tun = || device(root, "dev/net/tun", DeviceKind::Char, (10, 200));
    let mut all: Vec<DeviceSpec> = if network.is_host() { Vec::new() } else { tun().into_iter().collect() };
    all.extend(device(root, "dev/fuse", DeviceKind::Char, (10, 229)));
    all.extend(device(root, "dev/loop-control", DeviceKind::Char, (10, 237)));
    all.extend((0..8).filter_map(|n| device(root, &format!("dev/loop{n}"), DeviceKind::Block, (7, n))));
    all
}

/// Prepares a sandbox for a command.
pub fn for_host_command(command: HostCommand, options: &Options) -> Result<Prepared> {
    let root = root_tree(&command.root, options)?;
    let mut stores = Stores::default();
    let over_root = options.overlay.root.as_ref();
    let overlay = over_root.map(|choice| stores.overlay(choice, &command.id, &root, true));
    let root_path = root.path.clone();
    let mut trees = vec![root];
    let mut mounts = vec![
        internal("/proc", "proc", &[], false),
        internal("/sys", "sysfs", &[], false),
        internal("/dev", "devtmpfs", &["mode=755"], true),
        internal("/dev/pts", "devpts", &["newinstance", "ptmxmode=0666", "mode=0620", "gid=5"], true),
        internal("/dev/shm", "tmpfs", &["mode=1777"], false),
    ];
    let hosts = HostMounts::read();
    for volume in &command.volumes {
        let (mut mount, tree) = shared(volume, trees.len(), options, &hosts)?;
        let over = options.overlay.binds.as_ref();
        mount.overlay = over.map(|choice| stores.overlay(choice, &command.id, &tree, !mount.readonly));
        mounts.push(mount);
        trees.push(tree);
    }
    mounts.extend(options.gofers.iter().map(Gofer::mount));
    let cwd = clean(&command.cwd);
    let own_init = command.own_init;
    let command_maps = command.id_maps.clone();
    check_cwd(&root_path, &cwd, &command.volumes)?;
    let devices = devices(&root_path, options.network);
    let Descriptors {
        memory_tree,
        socket_gofer,
        opening_gofer,
        first_gofer,
        stdio,
        console,
        preserved,
        first_store,
    } = Descriptors::after(trees.len(), options, command.terminal, 0);
    let mut spec = SandboxSpec {
        id: command.id.clone(),
        hostname: command.hostname.clone(),
        pids_of: None,
        uts_of: None,
        ipc_of: None,
        own_ipc: false,
        domainname: String::new(),
        root: RootSpec {
            fd: 0,
            readonly: false,
            overlay,
            layered: false,
            access: options.root_access,
            propagation: PropagationType::Private,
        },
        mounts,
        masked_paths: command.hidden.clone(),
        pids_limit: command.pids,
        process: process(command, cwd),
        readonly_paths: Vec::new(),
        devices,
        device_rules: Vec::new(),
        id_maps: command_maps.as_ref().map_or_else(Default::default, IdMaps::ranges),
        sysctl: Vec::new(),
        time_offsets: Default::default(),
        socket_gofer,
        opening_gofer,
        host_uds: options.host_uds,
        through_gofer: options.through_gofer,
        memory_tree,
        stdio,
        console,
        console_size: WindowSize::default(),
        preserved,
        control_group: Vec::new(),
        processors: hostsys::cpu::online(),
        signals_end_init: true,
        own_init,
        network: options.network,
        interfaces: Interfaces::loopback(),
        capture: None,
        coverage: None,
        image: None,
        name_in_pod: String::new(),
        pooled: false,
        trace: Vec::new(),
        images: Vec::new(),
        withheld: options.withheld,
        platform: options.platform,
        strace: options.strace,
        strace_only: options.strace_only.clone(),
        debug: options.debug,
    };
    crate::place_gofers(&mut spec, first_gofer);
    crate::place_stores(&mut spec, first_store, stores.places.len());
    Ok(Prepared {
        spec,
        trees,
        gofers: options.gofers.clone(),
        writes_privileged: false,
        stores: stores.places,
        warnings: Vec::new(),
        annotations: Default::default(),
        pod: Default::default(),
        by_network: false,
        namespaces: Default::default(),
        id_maps: command_maps,
    })
}

fn root_tree(root: &Path, options: &Options) -> Result<HostTree> {
    let path = match root.canonicalize() {
        Ok(path) if path.is_dir() => path,
        Ok(path) => fail!("root {} is not a directory", path.display()),
        Err(error) => fail!("root {}: {}", root.display(), reason(&error)),
    };
    let readonly = options.overlay.root.is_some();
    Ok(HostTree::directory(path, readonly))
}

/// The mount of a volume, and the tree that it shows as descriptor `fd`.
fn shared(
    volume: &Volume,
    fd: FdIndex,
    options: &Options,
    hosts: &HostMounts,
) -> Result<(MountSpec, HostTree)> {
    let path = match volume.source.canonicalize() {
        Ok(path) => path,
        Err(error) => fail!("volume {}: {}", volume.source.display(), reason(&error)),
    };
    let is_file = !path.is_dir();
    let readonly = volume.readonly || options.overlay.binds.is_some();
    let mut mount = MountSpec {
        destination: volume.destination.clone(),
        source_fd: Some(fd),
        source_is_file: is_file,
        source: path.to_string_lossy().into_owned(),
        readonly: volume.readonly,
        nodev: true,
        access: options.bind_access,
        host_fifos: options.host_fifos,
        ..MountSpec::new("bind")
    };
    hosts.name(&path, &mut mount);
    Ok((mount, HostTree { is_file, ..HostTree::directory(path, readonly) }))
}

/// Fails when the working directory is known not to exist: neither in the root nor in what is mounted over it.
fn check_cwd(root: &Path, cwd: &str, volumes: &[Volume]) -> Result<()> {
    let inside = |top: &str| Path::new(cwd).starts_with(top);
    let mounted = volumes.iter().any(|volume| inside(&volume.destination))
        || ["/proc", "/sys", "/dev"].into_iter().any(inside);
    if !mounted && !is_dir_below(root, cwd) {
        fail!("working directory {cwd} does not exist in the sandbox; choose another with --cwd");
    }
    Ok(())
}

/// The command's process. It has root's powers inside, for any user.
fn process(command: HostCommand, cwd: String) -> ProcessSpec {
    let all = if command.privileged { caps::ALL } else { 0 };
    let bounding = caps::ALL;
    ProcessSpec {
        args: command.args,
        env: command.env,
        // As execvp(3).
        default_path: Some("/usr/local/bin:/usr/bin:/bin".into()),
        cwd,
        create_cwd: false,
        uid: command.uid,
        gid: command.gid,
        additional_gids: command.additional_gids,
        umask: command.umask,
        capabilities: CapabilitySets { bounding, effective: all, inheritable: 0, permitted: all, ambient: 0 },
        no_new_privileges: false,
        seccomp: None,
        rlimits: command.rlimits,
        terminal: command.terminal,
        oom_score_adj: crate::process::inherited_oom_score_adj(),
        set_home: false,
        io_priority: None,
        scheduler: None,
    }
}

/// Whether a directory exists below `root`. Links that lead out of `root` count as existing: the
/// kernel has the last word, this check is there for a better message.
fn is_dir_below(root: &Path, path: &str) -> bool {
    let full = root.join(path.trim_start_matches('/'));
    match full.canonicalize() {
        Ok(real) => real.is_dir(),
        Err(_) => full.ancestors().any(|part| part.starts_with(root) && part.is_symlink()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_parsed() {
        let v: Volume = "/a".parse().unwrap();
        assert_eq!((v.source.to_str(), v.destination.as_str(), v.readonly), (Some("/a"), "/a", false));
        let v: Volume = "/a:/b/../c:ro".parse().unwrap();
        assert_eq!((v.destination.as_str(), v.readonly), ("/c", true));
        for bad in ["", ":/b", "/a:b", "/a:/b:xx"] {
            assert!(bad.parse::<Volume>().is_err(), "{bad}");
        }
    }
}
