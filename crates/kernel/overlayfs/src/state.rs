//! An instance as plain data, for a checkpoint: which directories its layers are, and the rights that it uses below. What is in
//! the layers is kept with their file systems.

use crate::core::Core;
use crate::layers::{Layer, LayerFs, address};
use crate::marks::Opaque;
use crate::node::Node;
use abi::{Errno, Result};
use caller::MAX_STACK_DEPTH;
use caller::quota::Kind;
use rights::{Credentials, CredentialsState};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vfs::{As, Caller, Dentry, FileSystem, InodeRef, Mount, MountFlags, Path, SuperBlock};

/// Most lower layers (OVL_MAX_STACK).
const MOST: usize = crate::config::MAX_LOWER;

/// A layer as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    /// The file system that it is of, as the caller numbers them.
    pub fs: usize,
    /// Its top, as a path in the file system.
    pub top: Vec<u8>,
    /// Flags of the private mount, and its source.
    pub mount: (u32, Vec<u8>),
}

/// An instance as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayState {
    /// The upper layer.
    pub upper: Option<LayerState>,
    /// The lower ones, topmost first.
    pub lower: Vec<LayerState>,
    /// The directory where things are made, as a path in the file system of the upper layer.
    pub work: Option<Vec<u8>>,
    /// The mounter's rights.
    pub creds: CredentialsState,
    /// Its extended attributes are those of users.
    pub userxattr: bool,
    /// Nothing is flushed.
    pub volatile: bool,
    /// As /proc/mounts shows them.
    pub options: String,
    /// The next inode number and the next name in the work directory.
    pub next: (u64, u64),
}

/// Longest text of options.
const LONGEST: usize = 1 << 20;

/// The instance with this root directory; `None` for one of another file system. `number` numbers the file systems of layers.
pub fn state(
    root: &InodeRef,
    number: &mut dyn FnMut(&Arc<SuperBlock>) -> std::result::Result<usize, String>,
) -> Option<std::result::Result<OverlayState, String>> {
    let node: &Node = root.as_any().downcast_ref()?;
    let core = node.core.clone();
    let mut layer = |layer: &Layer| {
        let mount = &layer.mount;
        Ok::<_, String>(LayerState {
            fs: number(&mount.sb)?,
            top: Path::display_in_fs(&mount.root),
            mount: (mount.own_flags().bits(), mount.source.to_vec()),
        })
    };
    let mut whole = || {
        Ok::<_, String>(OverlayState {
            upper: core.upper.as_ref().map(&mut layer).transpose()?,
            lower: core.lower.iter().map(&mut layer).collect::<std::result::Result<_, _>>()?,
            work: core.work.as_ref().map(|work| Path::display_in_fs(&work.dentry)),
            creds: core.creds.state(),
            userxattr: core.prefix.starts_with(b"user."),
            volatile: core.volatile,
            options: core.options.clone(),
            next: (core.next_ino.load(Ordering::Relaxed), core.next_temp.load(Ordering::Relaxed)),
        })
    };
    Some(whole())
}

/// A directory: its file system, and its name there.
type Found = (Arc<SuperBlock>, Arc<Dentry>);

/// An instance of a checkpoint, with the mounter's rights. `find` gives a file system by its number, and the dentry of a path in
/// it. ENOTDIR, EINVAL for layers that cannot be; ENOSPC, ENOMEM for too many.
pub fn restore(
    cx: &dyn Caller,
    saved: &OverlayState,
    creds: Arc<Credentials>,
    find: &dyn Fn(usize, &[u8]) -> Result<Found>,
) -> Result<Arc<SuperBlock>> {
    let workless = saved.upper.is_some() != saved.work.is_some();
    if saved.lower.is_empty() || saved.lower.len() > MOST || workless || saved.options.len() > LONGEST {
        return Err(Errno::EINVAL);
    }
    let mut filesystems: Vec<(Arc<SuperBlock>, LayerFs)> = Vec::new();
    let mut traps = HashSet::new();
    let mut make = |layer: &LayerState| -> Result<Layer> {
        let (sb, top) = find(layer.fs, &layer.top)?;
        if !top.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if !sb.fs.is_layer() {
            return Err(Errno::EINVAL);
        }
        let flags = MountFlags::from_bits_truncate(layer.mount.0);
        let mount = Mount::new(sb.clone(), top.clone(), flags, &layer.mount.1);
        cx.vfs().mounts.number(&mount);
        let known = filesystems.iter().position(|(known, _)| Arc::ptr_eq(known, &sb));
        let fs = match known {
            Some(known) => known,
            None => {
                let (dev, shown) = (top.inode.attr()?.dev, cx.resources().device_numbers.alloc());
                filesystems.push((sb, LayerFs { dev, shown }));
                filesystems.len() - 1
            }
        };
        traps.insert(address(&top.inode));
        Ok(Layer::new(mount, fs))
    };
    let upper = saved.upper.as_ref().map(&mut make).transpose()?;
    // As at the mount.
    if upper.as_ref().is_some_and(|layer| layer.mount.fs().stack_depth() != 0) {
        return Err(Errno::EINVAL);
    }
    let lower = saved.lower.iter().map(&mut make).collect::<Result<Vec<_>>>()?;
    let work = match (&upper, &saved.upper, &saved.work) {
        (Some(layer), Some(state), Some(work)) => {
            let (_, dentry) = find(state.fs, work)?;
            if !dentry.is_dir() || dentry.is_below(layer.root()) {
                return Err(Errno::EINVAL);
            }
            Some(Path { mount: layer.mount.clone(), dentry })
        }
        _ => None,
    };
    traps.extend(work.iter().map(|work| address(work.inode())));
    let below = || lower.iter().chain(&upper).map(|layer| layer.mount.fs());
    let depth = below().map(|fs| fs.stack_depth()).max().unwrap_or(0) + 1;
    if depth > MAX_STACK_DEPTH {
        return Err(Errno::EINVAL);
    }
    let account = cx.quotas().account(creds.uid);
    let charges = vec![
        account.charge(Kind::Mounts, lower.len() as u64 + 2).ok_or(Errno::ENOSPC)?,
        account.charge(Kind::MountTexts, saved.options.len() as u64).ok_or(Errno::ENOMEM)?,
    ];
    let images = below().map(|fs| fs.images_below()).max().unwrap_or(0);
    let revalidates = below().any(|fs| fs.revalidate());
    let mut core = Core {
        me: OnceLock::new(),
        vfs: cx.vfs().clone(),
        upper,
        lower,
        work,
        filesystems: filesystems.into_iter().map(|(_, fs)| fs).collect(),
        dev: cx.resources().device_numbers.alloc(),
        depth,
        images,
        creds: creds.clone(),
        prefix: if saved.userxattr { b"user.overlay." } else { b"trusted.overlay." },
        markless: false,
        volatile: saved.volatile,
        revalidates,
        options: saved.options.clone(),
        traps,
        nodes: lock_order::Mutex::default(),
        root: lock_order::Mutex::default(),
        next_ino: AtomicU64::new(saved.next.0.clamp(1, 1 << 62)),
        next_temp: AtomicU64::new(saved.next.1.clamp(1, 1 << 62)),
        _charges: charges,
    };
    let over = As::new(cx, &creds);
    if let Some(work) = &core.work {
        core.markless = core.set_mark(&over, work.inode(), "opaque", b"0").is_err();
    }
    for layer in core.lower.iter().chain(&core.upper) {
        if core.opacity(&over, &layer.root().inode) == Opaque::XWhiteouts {
            layer.set_xwhiteouts();
        }
    }
    let core = Arc::new(core);
    let _ = core.me.set(Arc::downgrade(&core));
    Ok(SuperBlock::new(core as Arc<dyn FileSystem>))
}
