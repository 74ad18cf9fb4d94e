//! The container's tree of mounts.

use crate::errors::{other, text};
use crate::fds::Fds;
use crate::trees::{Trees, asks, file_entry};
use crate::{copy_up, nodes, places};
use abi::Errno;
use caller::HasCredentials;
use container::Container;
use hostfs::{Coherence, HostFiles, HostFs, Outward, SocketGofer, TreeSockets};
use hosttree::remote::{Connection, Trust};
use mounts::fs_config::create;
use mounts::{FsContext, FsView, MountNs};
use namei::{Lookup, Start, attr, walk};
use spec::{Atime, FILE_ENTRY, FileAccess, HostUds, MountSpec, PropagationType, SandboxSpec, StartError};
use std::sync::Arc;
use task::Kernel;
use vfs::mount::Propagation;
use vfs::{FileSystem, Internal, Mount, MountFlags, SuperBlock};

type FsRef = Arc<dyn FileSystem>;

/// Builds every mount of the specification.
pub(crate) fn build(
    kernel: &Arc<Kernel>,
    container: &Arc<Container>,
    files: &Arc<HostFiles>,
    spec: &SandboxSpec,
    fds: &mut Fds,
) -> Result<Arc<FsContext>, StartError> {
    let opening =
        spec.opening_gofer.map(|index| fds.take(index).map(Connection::for_opening_again)).transpose()?;
    let trees = Trees { kernel, files, images: &spec.images, through_gofer: spec.through_gofer, opening };
    let root = root_fs(&trees, spec, fds).map_err(|e| other(format!("root file system: {e}")))?;
    let ns = MountNs::new(&kernel.vfs, Mount::of(root, MountFlags::RELATIME, b"none"));
    let fs = FsContext::new(ns);
    let gofer = spec.socket_gofer.map(|index| fds.take(index).map(SocketGofer::new)).transpose()?;
    let sockets = gofer.map(|gofer| (gofer, spec.host_uds));
    for m in &spec.mounts {
        add(kernel, container, &fs.view(), m, &trees, sockets.as_ref(), fds)
            .map_err(|e| other(format!("mount {}: {e}", m.destination)))?;
    }
    let me = Internal::new(&kernel.vfs);
    nodes::make(&me, &kernel.memory, &fs.view(), &spec.devices)?;
    if spec.process.create_cwd {
        // While the root can be written; the error comes when the directory is entered.
        let _ = places::find_or_make(&me, &fs.view(), &spec.process.cwd, true);
    }
    hide(kernel, &fs.view(), spec)?;
    let root_mount = fs.view().root.mount.clone();
    fs.view()
        .ns
        .propagate(&me.creds(), &root_mount, propagation(spec.root.propagation), false)
        .map_err(|e| other(format!("root file system: {}", text(e))))?;
    if spec.root.readonly {
        let m = fs.view().root.mount.clone();
        m.set_flags(m.flags() | MountFlags::RDONLY);
    }
    for (name, value) in &spec.sysctl {
        procfs::set_sysctl(kernel, container, name, value)
            .map_err(|e| other(format!("sysctl {name}: {}", text(e))))?;
    }
    // Standard places of the process refer to the finished tree.
    let v = fs.view();
    let root = v.root.clone().cross_mounts();
    fs.set_root(root.clone());
    fs.set_cwd(root);
    Ok(fs)
}

/// The container's root, written directly or under an overlay.
fn root_fs(trees: &Trees<'_>, spec: &SandboxSpec, fds: &mut Fds) -> Result<FsRef, StartError> {
    match &spec.root.overlay {
        None if spec.images.contains(&spec.root.fd) => trees.fixed(spec.root.fd, false, fds),
        None => {
            let (tree, files) = (trees.open(fds.take(spec.root.fd)?)?, trees.files);
            let coherence = coherence_of(spec.root.access, spec.root.propagation);
            let direct = match spec.root.layered {
                true => HostFs::layered(files, tree, false, coherence),
                false => HostFs::shared(files, tree, coherence, Outward::default()),
            };
            direct.map(|f| f as FsRef).map_err(|e| other(text(e)))
        }
        Some(overlay) => trees.over(spec.root.fd, spec.root.layered, overlay, fds),
    }
}

fn coherence_of(access: FileAccess, propagation: PropagationType) -> Coherence {
    match access {
        _ if propagation.follows() => Coherence::Unwatched,
        FileAccess::Exclusive => Coherence::Lagging,
        FileAccess::Shared => Coherence::Strict,
    }
}

fn flags_of(m: &MountSpec) -> MountFlags {
    let mut f = match m.atime {
        Atime::Relative => MountFlags::RELATIME,
        Atime::Never => MountFlags::NOATIME,
        Atime::Strict => MountFlags::empty(),
    };
    f.set(MountFlags::NODIRATIME, m.nodiratime);
    f.set(MountFlags::NOSYMFOLLOW, m.nosymfollow);
    f.set(MountFlags::NOEXEC, m.noexec);
    f.set(MountFlags::NOSUID, m.nosuid);
    f.set(MountFlags::NODEV, m.nodev);
    f
}

fn add(
    kernel: &Arc<Kernel>,
    container: &Container,
    view: &FsView,
    m: &MountSpec,
    trees: &Trees<'_>,
    sockets: Option<&(Arc<SocketGofer>, HostUds)>,
    fds: &mut Fds,
) -> Result<(), StartError> {
    let fail = |e: Errno| other(text(e));
    let cx = &Internal::new(&kernel.vfs);
    let mut readonly = m.readonly;
    let (sb, root) = match m.fstype.as_str() {
        "bind" => {
            let index = m.source_fd.ok_or_else(|| other("no source".into()))?;
            let coherence = coherence_of(m.access, m.propagation);
            let fs = match &m.overlay {
                None => {
                    let tree = u32::try_from(index).map_err(|_| fail(Errno::EINVAL))?;
                    let sockets = sockets.map(|(gofer, allowed)| TreeSockets {
                        gofer: gofer.clone(),
                        tree,
                        allowed: *allowed,
                    });
                    let outward = Outward { fifos: m.host_fifos, sockets, owners: m.owners.clone() };
                    let tree = trees.open(fds.take(index)?)?;
                    HostFs::shared(trees.files, tree, coherence, outward).map_err(fail)? as FsRef
                }
                Some(overlay) => trees.over(index, false, overlay, fds)?,
            };
            let top = if m.source_is_file { format!("/{FILE_ENTRY}") } else { String::new() };
            let sb = SuperBlock::part(fs, m.host_root.as_bytes(), top.as_bytes());
            let root = if m.source_is_file { file_entry(cx, &sb).map_err(fail)? } else { sb.root.clone() };
            (sb, root)
        }
        "gofer" => {
            let index = m.source_fd.ok_or_else(|| other("no source".into()))?;
            let tree = asks(fds.take(index)?, Trust::Others, &format!("the files at {}", m.destination))?;
            readonly |= tree.statfs().is_ok_and(|s| s.f_flags as u64 & libc::ST_RDONLY != 0);
            // No watch tells of changes there. What hangs on objects of the host by their numbers is out of its reach: the numbers
            // that this gofer tells are its own.
            let files = HostFiles::new(&kernel.vfs.resources.device_numbers);
            let fs = HostFs::shared(&files, tree, Coherence::Unwatched, Outward::default()).map_err(fail)?;
            let sb = SuperBlock::new(fs as FsRef);
            let root = sb.root.clone();
            (sb, root)
        }
        "erofs" => {
            let index = m.source_fd.ok_or_else(|| other("no source".into()))?;
            let sb = SuperBlock::new(trees.image(fds.take(index)?, &m.options)?);
            let root = sb.root.clone();
            (sb, root)
        }
        // In version 2 whichever the host has: what the host says of the container, or the groups inside, which can be changed.
        "cgroup" | "cgroup2" => {
            let fs: FsRef = match m.readonly {
                true => cgroupfs::new(kernel.clone()),
                false => cgroupfs::tree(kernel, &container.namespaces.cgroup),
            };
            let sb = SuperBlock::new(fs);
            let root = sb.root.clone();
            (sb, root)
        }
        "proc" => {
            let sb = SuperBlock::new(procfs::new(kernel.clone(), container.pids().clone()));
            let root = sb.root.clone();
            (sb, root)
        }
        "tmpfs" if m.destination == "/dev" => {
            let options = tmpfs::Options::parse(m.options.join(",").as_bytes()).map_err(fail)?;
            let sb = SuperBlock::new(devfs::on_tmpfs(cx, &kernel.memory, options, m.readonly));
            let root = sb.root.clone();
            (sb, root)
        }
        kind => {
            let options = m.options.join(",");
            let sb = create(&kernel.fs_types, cx, kind, options.as_bytes()).map_err(|e| match e {
                Errno::ENODEV => other(format!("file system type {kind:?} is not supported")),
                e => fail(e),
            })?;
            let root = sb.root.clone();
            (sb, root)
        }
    };
    let before = walk::lookup(cx, view, &Start::Cwd, m.destination.as_bytes(), Lookup::FOLLOW).ok();
    let at = places::find_or_make(cx, view, &m.destination, root.is_dir()).map_err(fail)?;
    let source = if m.source.is_empty() { m.fstype.as_bytes() } else { m.source.as_bytes() };
    let flags = flags_of(m);
    let mount = Mount::new(sb, root, flags, source);
    view.ns.add(&at, &mount).map_err(fail)?;
    if let Some(before) = before
        && takes_mode(m)
    {
        attr::chmod(cx, &mount.root_path(), before.attr().map_err(fail)?.mode & 0o7777).map_err(fail)?;
    }
    if m.copy_up {
        copy_up::tree(cx, &at, &mount.root_path()).map_err(fail)?;
    }
    // A new tmpfs gets its mode and its content before.
    if readonly {
        mount.set_flags(mount.flags() | MountFlags::RDONLY);
    }
    view.ns.propagate(&cx.creds(), &mount, propagation(m.propagation), false).map_err(fail)?;
    Ok(())
}

/// Whether the root of a mount gets the mode of the directory that it covers: of a tmpfs that names none.
fn takes_mode(m: &MountSpec) -> bool {
    m.fstype == "tmpfs" && !m.options.iter().any(|option| option.starts_with("mode="))
}

fn propagation(kind: PropagationType) -> Propagation {
    match kind {
        PropagationType::Private => Propagation::Private,
        PropagationType::Shared => Propagation::Shared,
        // There is no master: what the host mounts later does not show.
        PropagationType::Slave => Propagation::Slave,
        PropagationType::Unbindable => Propagation::Unbindable,
    }
}

/// Shows the terminal `/dev/pts/{index}` as /dev/console, as the runtime specification asks where there is a terminal.
pub(crate) fn show_console(cx: &Internal, view: &FsView, index: u32) -> Result<(), Errno> {
    let slave = format!("/dev/pts/{index}");
    let slave = walk::lookup(cx, view, &Start::Cwd, slave.as_bytes(), Lookup::FOLLOW)?;
    let at = places::find_or_make(cx, view, "/dev/console", false)?;
    view.ns.bind(&slave, &at, false).map(drop)
}

/// maskedPaths and readonlyPaths; what does not exist needs no hiding.
fn hide(kernel: &Kernel, view: &FsView, spec: &SandboxSpec) -> Result<(), StartError> {
    let cx = &Internal::new(&kernel.vfs);
    let find = |p: &str| match walk::lookup(cx, view, &Start::Cwd, p.as_bytes(), Lookup::FOLLOW) {
        Ok(p) => Ok(Some(p)),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
        Err(e) => Err(other(format!("{p}: {}", text(e)))),
    };
    for p in &spec.masked_paths {
        let Some(at) = find(p)? else { continue };
        let done = if at.is_dir() {
            let options = tmpfs::Options { mode: 0o755, ..tmpfs::Options::default() };
            let fs = tmpfs::TmpFs::new(&kernel.memory, options);
            view.ns.mount(&at, SuperBlock::new(fs), MountFlags::RDONLY, b"tmpfs").map(drop)
        } else {
            match find("/dev/null")? {
                Some(null) => view.ns.bind(&null, &at, false).map(drop),
                None => Err(Errno::ENOENT),
            }
        };
        done.map_err(|e| other(format!("mask {p}: {}", text(e))))?;
    }
    for p in &spec.readonly_paths {
        let Some(at) = find(p)? else { continue };
        let m = view.ns.bind(&at, &at, true).map_err(|e| other(format!("{p}: {}", text(e))))?;
        m.set_flags(m.flags() | MountFlags::RDONLY);
    }
    Ok(())
}
