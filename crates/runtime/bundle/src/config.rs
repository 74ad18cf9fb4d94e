//! Reading a bundle.

use crate::files::{open_regular, reason};
use crate::host_mounts::HostMounts;
use crate::id_mapped;
use crate::mounts::{Shared, TranslatedMount, translate};
use crate::namespaces::{self, IdMaps, Namespace, Namespaces};
use crate::overlay2::{self, Stores};
use crate::pod::Pod;
use crate::{
    Descriptors, Error, Gofer, HostTree, MountPoint, Options, Prepared, Result, device_rules, devices, fail,
    images, mount_hints, mounts, parse, process, seccomp, sysctl, time_offsets, unsupported,
};
use oci_spec::runtime::{Linux, Process, Root, Spec};
use spec::{DeviceSpec, Interfaces, MountSpec, Network, ProcessSpec, RootSpec, SandboxSpec, WindowSize};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Name of the configuration in a bundle.
pub const CONFIG_FILE: &str = "config.json";

/// Longest configuration read: it comes from outside, and none in use is near this.
const MAX_CONFIG: u64 = 8 << 20;

/// Reads the process of an `exec`: a JSON file in the form of the configuration's `process`.
pub fn load_process(path: &Path) -> Result<Process> {
    // Which may come through a pipe.
    match parse::parse(&text_of(path, File::open(path))?, "", &mut Vec::new()) {
        Ok(process) => Ok(process),
        Err(error) => fail!("{} is not a valid OCI process: {error}", path.display()),
    }
}

/// Reads a configuration alone.
pub fn load_spec(path: &Path) -> Result<Spec> {
    match parse::parse(&read(path)?, "/process", &mut Vec::new()) {
        Ok(spec) => Ok(spec),
        Err(error) => fail!("{} is not a valid OCI configuration: {error}", path.display()),
    }
}

/// A configuration, read once: what the caller keeps or looks at further is what was checked, whatever becomes of the
/// file.
pub struct Config {
    /// What it says.
    pub spec: Spec,
    /// Its text.
    pub text: String,
}

/// Finds the sandbox that serves the network namespace behind a path, by the ID of its first container.
pub type NetworkOwner<'a> = dyn Fn(&Path) -> Option<String> + 'a;

/// Reads the bundle in `dir` for a container `id`. A container in the network namespace of
/// another sandbox is to run in that sandbox.
pub fn load(dir: &Path, id: &str, options: &Options, owner: &NetworkOwner<'_>) -> Result<(Prepared, Config)> {
    let dir = match dir.canonicalize() {
        Ok(dir) => dir,
        Err(error) => fail!("bundle directory {}: {}; name it with --bundle", dir.display(), reason(&error)),
    };
    let path = dir.join(CONFIG_FILE);
    let text = read(&path)?;
    // The derived parser would take an array for an object's fields in order.
    if !text.trim_start().starts_with('{') {
        fail!("{} is not a valid OCI configuration: not a JSON object", path.display());
    }
    let mut warnings = Vec::new();
    let spec: Spec = match parse::parse(&text, "/process", &mut warnings) {
        Ok(spec) => spec,
        Err(error) => fail!("{} is not a valid OCI configuration: {error}", path.display()),
    };
    let prepared = id_mapped::of_text(&text)
        .and_then(|maps| prepare(&dir, (&spec, &maps), id, options, owner, warnings))
        .map_err(|Error(message)| Error(format!("{}: {message}", path.display())))?;
    Ok((prepared, Config { spec, text }))
}

fn read(path: &Path) -> Result<String> {
    text_of(path, open_regular(path))
}

fn text_of(path: &Path, opened: std::io::Result<File>) -> Result<String> {
    let mut text = String::new();
    let read = opened.and_then(|file| file.take(MAX_CONFIG + 1).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > MAX_CONFIG => {
            fail!("{} is longer than {MAX_CONFIG} bytes", path.display())
        }
        Ok(_) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound && path.ends_with(CONFIG_FILE) => {
            fail!("{}: {}; is this a bundle?", path.display(), reason(&error))
        }
        Err(error) => fail!("{}: {}", path.display(), reason(&error)),
    }
}

fn prepare(
    dir: &Path,
    (spec, mount_maps): (&Spec, &[Option<IdMaps>]),
    id: &str,
    options: &Options,
    owner: &NetworkOwner<'_>,
    mut warnings: Vec<String>,
) -> Result<Prepared> {
    let linux = spec.linux().as_ref();
    let annotations = spec.annotations().clone().into_iter().flatten().collect();
    mount_hints::warn(&annotations, &mut warnings);
    let mut pod = Pod::of(&annotations, id)?;
    let named = linux.and_then(namespaces::network_path);
    let mut by_network = false;
    if pod == Pod::None
        && options.network == Network::Sandbox
        && let Some(sandbox) = named.and_then(owner)
    {
        (pod, by_network) = (Pod::Member(sandbox), true);
    }
    let member = matches!(pod, Pod::Member(_));
    let namespaces = match linux {
        Some(linux) => namespaces::namespaces(linux, member, by_network, &mut warnings)?,
        None => Namespaces::default(),
    };
    let id_maps = linux.map(|linux| namespaces::id_maps(linux, &namespaces)).transpose()?.flatten();
    unsupported::check(spec, &namespaces, &mut warnings)?;
    let version = spec.version();
    if !version.starts_with("1.") {
        // As other runtimes, which do not look at it.
        warnings.push(format!("ociVersion {version:?} is not known; it is read as {}", crate::VERSION));
    }
    let Some(root) = spec.root() else { fail!("root is missing") };
    let Some(process) = spec.process() else { fail!("process is missing") };
    let propagation = mounts::propagation(linux.and_then(|l| l.rootfs_propagation().as_deref()))?;
    let over_root = overlay2::of_root(&annotations, &options.overlay.root)?;
    let root_tree =
        HostTree { follows_mounts: propagation.follows(), ..root_tree(dir, root, over_root.is_some())? };
    let image = images::of_root(&annotations)?;
    // What is in an image cannot change.
    let readonly = root.readonly().unwrap_or(false) || image.is_some() && over_root.is_none();
    if image.is_some() && over_root.as_ref().is_some_and(|choice| choice.commit) {
        fail!("annotations: what changed cannot be written back to an image: leave commit out");
    }
    let mut stores = Stores::default();
    let layers = overlay2::layers(&annotations, over_root.as_ref())?;
    let writes_privileged = over_root.as_ref().is_some_and(|choice| choice.privileged);
    let mut overlay = over_root.map(|choice| stores.overlay(&choice, id, &root_tree, !readonly));
    let devices = devices::translate(linux.and_then(|l| l.devices().as_deref()).unwrap_or_default())?;
    let hosts = HostMounts::read();
    let layered = image.is_none() && hosts.is_layered(&root_tree.path);
    let root_tree = image.unwrap_or(root_tree);
    let shared = Shared { options, hosts: &hosts, container: id_maps.as_ref() };
    let (mut mounts, mut trees) =
        mounts_and_trees(dir, (spec, mount_maps), root_tree, id, &mut stores, &shared)?;
    mounts.extend(options.gofers.iter().map(Gofer::mount));
    if trees[0].readonly && overlay.is_none() && !trees[0].is_file {
        trees[0].mount_points = places(&mounts, &devices, process.cwd());
    }
    if let Some(overlay) = &mut overlay {
        overlay.layers = (trees.len()..).take(layers.len()).collect();
        trees.extend(layers);
    }
    let mounted =
        mounts.iter().filter(|mount| mount.fstype == images::EROFS).filter_map(|mount| mount.source_fd);
    let layers = overlay.iter().flat_map(|overlay| &overlay.layers).copied();
    let images = [0].into_iter().chain(layers).filter(|index| trees[*index].is_file).chain(mounted).collect();
    let domain = spec.domainname().as_deref().unwrap_or_default();
    let sysctl =
        linux.map(|linux| sysctl::translate(linux, &namespaces, domain)).transpose()?.unwrap_or_default();
    let network = if member || linux.is_none() { options.network } else { network(options, &namespaces)? };
    let seccomp = linux.and_then(|l| l.seccomp().as_ref());
    if options.without_seccomp && seccomp.is_some() {
        warnings
            .push("--oci-seccomp=false: the container runs without the filter of its configuration".into());
    }
    let seccomp = seccomp.filter(|_| !options.without_seccomp);
    let seccomp = seccomp.map(seccomp::compile).transpose()?.flatten();
    let terminal = process.terminal().unwrap_or(false);
    let Descriptors {
        memory_tree,
        socket_gofer,
        opening_gofer,
        first_gofer,
        stdio,
        console,
        preserved,
        first_store,
    } = Descriptors::after(trees.len(), options, terminal, options.preserve_fds);
    let mut spec = SandboxSpec {
        id: id.into(),
        hostname: spec.hostname().clone().unwrap_or_default(),
        pids_of: None,
        uts_of: None,
        ipc_of: None,
        own_ipc: by_network,
        domainname: spec.domainname().clone().unwrap_or_default(),
        root: RootSpec { fd: 0, readonly, overlay, layered, access: options.root_access, propagation },
        mounts,
        process: ProcessSpec { seccomp, ..process::translate(process)? },
        devices,
        device_rules: linux.map(device_rules::translate).transpose()?.unwrap_or_default(),
        pids_limit: linux.and_then(pids_limit),
        masked_paths: linux.and_then(|l| l.masked_paths().clone()).unwrap_or_default(),
        readonly_paths: linux.and_then(|l| l.readonly_paths().clone()).unwrap_or_default(),
        id_maps: id_maps.as_ref().map_or_else(Default::default, namespaces::IdMaps::ranges),
        sysctl,
        time_offsets: linux
            .map(|linux| time_offsets::translate(linux, &namespaces))
            .transpose()?
            .unwrap_or_default(),
        socket_gofer,
        opening_gofer,
        host_uds: options.host_uds,
        through_gofer: options.through_gofer,
        memory_tree,
        stdio,
        console,
        console_size: console_size(process),
        preserved,
        control_group: Vec::new(),
        processors: hostsys::cpu::online(),
        signals_end_init: false,
        own_init: false,
        network,
        interfaces: Interfaces::loopback(),
        capture: None,
        coverage: None,
        image: None,
        name_in_pod: crate::pod::name_of(&annotations),
        pooled: false,
        trace: Vec::new(),
        images,
        withheld: options.withheld,
        platform: options.platform,
        strace: options.strace,
        strace_only: options.strace_only.clone(),
        debug: options.debug,
    };
    crate::place_gofers(&mut spec, first_gofer);
    crate::place_stores(&mut spec, first_store, stores.places.len());
    let stores = stores.places;
    Ok(Prepared {
        spec,
        trees,
        gofers: options.gofers.clone(),
        writes_privileged,
        stores,
        warnings,
        annotations,
        namespaces,
        id_maps,
        pod,
        by_network,
    })
}

/// The network mode of a sandbox: that of the runtime, unless the container is to be in the host's own network namespace. The
/// interfaces there are not to be had.
fn network(options: &Options, namespaces: &Namespaces) -> Result<Network> {
    let hosts = match &namespaces.network {
        Namespace::Host => true,
        Namespace::New => false,
        Namespace::Path(path) => namespaces::is_hosts_network(path),
    };
    match options.network {
        Network::Sandbox if hosts && options.host_network => Ok(Network::Host { policed: false }),
        Network::Sandbox if hosts => fail!(
            "linux.namespaces: the container is to share the host's network (docker run --network host, hostNetwork), \
             which the runtime does not allow; give it a network namespace of its own, or give the runtime the flag \
             --host-network, with which such containers use the host's sockets"
        ),
        network => Ok(network),
    }
}

fn root_tree(dir: &Path, root: &Root, overlaid: bool) -> Result<HostTree> {
    let path = match dir.join(root.path()).canonicalize() {
        Ok(path) if path.is_dir() => path,
        Ok(path) => fail!("root.path {} is not a directory", path.display()),
        Err(error) => fail!("root.path {}: {}", dir.join(root.path()).display(), reason(&error)),
    };
    let readonly = root.readonly().unwrap_or(false) || overlaid;
    Ok(HostTree::directory(path, readonly))
}

/// The configuration's mounts, and the trees that they and the root show.
fn mounts_and_trees(
    dir: &Path,
    (spec, mount_maps): (&Spec, &[Option<IdMaps>]),
    root: HostTree,
    id: &str,
    stores: &mut Stores,
    all: &Shared<'_>,
) -> Result<(Vec<MountSpec>, Vec<HostTree>)> {
    let (mut mounts, mut shown) = (Vec::new(), Vec::new());
    let mut for_systemd = false;
    for (index, mount) in spec.mounts().iter().flatten().enumerate() {
        if is_for_systemd(mount) {
            for_systemd = true;
            continue;
        }
        let maps = mount_maps.get(index).and_then(Option::as_ref);
        let TranslatedMount { mut mount, tree } = translate(dir, mount, maps, all)
            .map_err(|Error(message)| Error(format!("mounts[{index}]: {message}")))?;
        if let Some(tree) = tree {
            if let Some(choice) = all.options.overlay.binds.as_ref().filter(|_| mount.fstype == "bind") {
                mount.overlay = Some(stores.overlay(choice, id, &tree, !mount.readonly));
            }
            // The root comes first.
            mount.source_fd = Some(1 + shown.len());
            shown.push(tree);
        }
        mounts.push(mount);
    }
    if for_systemd {
        mounts.iter_mut().filter(|mount| mount.fstype == "cgroup").for_each(|mount| mount.readonly = false);
    }
    add_devices(&mut mounts);
    shown.insert(0, root);
    Ok((mounts, shown))
}

/// What Podman mounts for systemd on a host with control groups of version 1: the host's groups below the
/// container's, which it mounts read-only. The container has groups of version 2 of its own, which systemd is to
/// change.
fn is_for_systemd(mount: &oci_spec::runtime::Mount) -> bool {
    let at = Path::new("/sys/fs/cgroup/systemd");
    mount.destination() == at && mount.source().as_deref() == Some(at)
}

/// Size of the terminal that the configuration asks for, 0 where it does not.
pub fn console_size(process: &Process) -> WindowSize {
    let side = |length: u64| u16::try_from(length).unwrap_or(u16::MAX);
    let size = process.console_size();
    size.map_or(WindowSize::default(), |s| WindowSize { rows: side(s.height()), cols: side(s.width()) })
}

/// The limit that the kernel inside keeps; see `cgroups::host_pids_max` for the host's.
fn pids_limit(linux: &Linux) -> Option<u32> {
    let limit = linux.resources().as_ref()?.pids().as_ref()?.limit();
    u32::try_from(limit).ok().filter(|limit| *limit > 0)
}

/// What has to be there in the root file system itself: mount points, devices, the working directory.
fn places(mounts: &[MountSpec], devices: &[DeviceSpec], cwd: &Path) -> Vec<MountPoint> {
    let covered = |path: &Path, by: &[MountSpec]| by.iter().any(|mount| path.starts_with(&mount.destination));
    let places = mounts.iter().enumerate().map(|(index, mount)| {
        (Path::new(&mount.destination), mount.source_is_file, mounts.get(..index).unwrap_or_default())
    });
    let devices = devices.iter().map(|device| (Path::new(&device.path), true, mounts));
    let places = places.chain(devices).chain([(cwd, false, mounts)]);
    let own = places.filter(|(path, _, by)| !covered(path, by));
    own.map(|(path, is_file, _)| MountPoint { path: path.into(), is_file }).collect()
}

/// The specification wants null, zero, full, random, urandom, tty, console, ptmx and the links
/// in every container, whether the configuration mounts /dev or not.
fn add_devices(mounts: &mut Vec<MountSpec>) {
    if mounts.iter().any(|m| m.destination == "/dev") {
        return;
    }
    let first = mounts.iter().position(|m| m.destination.starts_with("/dev/")).unwrap_or(mounts.len());
    mounts.insert(first, mounts::internal("/dev", "devtmpfs", &["mode=755"], true));
    if !mounts.iter().any(|m| m.destination == "/dev/pts") {
        let options = ["newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
        mounts.insert(first + 1, mounts::internal("/dev/pts", "devpts", &options, true));
    }
}
