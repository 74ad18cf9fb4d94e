//! Makes an instance. The layers are looked up and checked in the same order as on Linux.

use crate::config::{Config, unescape};
use crate::core::Core;
use crate::layers::{Layer, LayerFs, address};
use crate::listing;
use crate::marks::Opaque;
use abi::{Errno, Result};
use caller::MAX_STACK_DEPTH;
use caller::quota::Kind;
use mounts::fstypes::Request;
use mounts::{FsView, PathCaller};
use namei::Lookup;
use namei::stack::{self, Start};
use namei::walk::lookup;
use rights::{Cap, Credentials};
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use vfs::{As, Caller, FileSystem, Mount, MountFlags, NewNode, Path, SuperBlock};

/// Bytes of options that count for nothing.
const SHORT: usize = 256;

/// Layers, and the file systems that they are of.
struct Layers<'a> {
    view: &'a FsView,
    filesystems: Vec<(Arc<SuperBlock>, LayerFs)>,
    traps: HashSet<usize>,
}

impl Layers<'_> {
    /// A layer at `place`.
    fn add(&mut self, cx: &dyn Caller, place: &Path, flags: MountFlags) -> Result<Layer> {
        let mount = self.view.ns.private_mount(place, flags)?;
        let sb = &place.mount.sb;
        let fs = match self.filesystems.iter().position(|(known, _)| Arc::ptr_eq(known, sb)) {
            Some(known) => known,
            None => {
                let (dev, shown) = (place.attr()?.dev, cx.resources().device_numbers.alloc());
                self.filesystems.push((sb.clone(), LayerFs { dev, shown }));
                self.filesystems.len() - 1
            }
        };
        Ok(Layer::new(mount, fs))
    }

    /// ELOOP for the top of another layer.
    fn trap(&mut self, place: &Path) -> Result<()> {
        if self.traps.insert(address(place.inode())) { Ok(()) } else { Err(Errno::ELOOP) }
    }

    /// ELOOP for a lower layer inside of another layer.
    fn check_apart(&self, place: &Path) -> Result<()> {
        let mut above = place.dentry.parent();
        while let Some(dentry) = above {
            if self.traps.contains(&address(&dentry.inode)) {
                return Err(Errno::ELOOP);
            }
            above = dentry.parent();
        }
        Ok(())
    }
}

/// The directory of a layer. EINVAL for other objects, and for file systems that cannot be layers.
fn place(cx: &dyn Caller, view: &FsView, path: &[u8]) -> Result<Path> {
    let found = lookup(cx, view, &namei::Start::Cwd, path, Lookup::FOLLOW)?;
    if !found.is_dir() || !found.mount.fs().is_layer() {
        return Err(Errno::EINVAL);
    }
    vfs::policing::decide_layer(cx, &found)?;
    Ok(found)
}

/// Mounts overlayfs: `request` has the parameters of [`crate::KNOWN`]. See mount(2) and overlayfs.rst.
pub fn mount(cx: &dyn PathCaller, request: &Request) -> Result<Arc<SuperBlock>> {
    let config = Config::parse(&request.parameters)?;
    let fs = cx.fs_context().ok_or(Errno::EPERM)?;
    let view = fs.view();
    let lower = config.lower.iter().map(|l| place(cx, &view, l)).collect::<Result<Vec<_>>>()?;
    for data in &config.data {
        place(cx, &view, data)?;
    }
    let upper = match (&config.upper, &config.work) {
        (Some(upper), Some(work)) => {
            let found = (place(cx, &view, &unescape(upper))?, place(cx, &view, &unescape(work))?);
            check_upper(&found.0, &found.1)?;
            Some(found)
        }
        _ => None,
    };
    let depth = lower.iter().chain(upper.iter().map(|(u, _)| u)).map(|p| p.mount.fs().stack_depth()).max();
    let depth = depth.unwrap_or(0) + 1;
    if depth > MAX_STACK_DEPTH {
        return Err(Errno::EINVAL);
    }
    let images = lower.iter().chain(upper.iter().map(|(u, _)| u)).map(|p| p.mount.fs().images_below()).max();
    let account = cx.quotas().account(cx.creds().uid);
    let options = config.shown();
    let charges = vec![
        account.charge(Kind::Mounts, lower.len() as u64 + 2).ok_or(Errno::ENOSPC)?,
        account.charge(Kind::MountTexts, options.len().saturating_sub(SHORT) as u64).ok_or(Errno::ENOMEM)?,
    ];

    let creds = mounter(&cx.creds());
    let over = As::new(cx, &creds);
    let mut layers = Layers { view: &view, filesystems: Vec::new(), traps: HashSet::new() };
    let (mut top, mut work) = (None, None);
    if let Some((upper, base)) = &upper {
        layers.trap(upper)?;
        let layer = layers.add(cx, upper, MountFlags::empty())?;
        // The right to see what is hidden below the work directory's mount is checked for the upper one's: it is the
        // same mount.
        view.ns.private_mount(base, MountFlags::empty())?;
        work = Some(work_dir(&over, &layer.mount, base, config.volatile)?);
        top = Some(layer);
    }
    if let Some(work) = &work {
        layers.trap(work)?;
    }
    let mut below = Vec::new();
    for place in &lower {
        layers.trap(place)?;
        below.push(layers.add(cx, place, MountFlags::RDONLY)?);
    }
    lower.iter().try_for_each(|place| layers.check_apart(place))?;
    let revalidates = below.iter().chain(&top).any(|layer| layer.mount.fs().revalidate());
    let mut core = Core {
        me: OnceLock::new(),
        vfs: cx.vfs().clone(),
        upper: top,
        lower: below,
        work,
        filesystems: layers.filesystems.into_iter().map(|(_, fs)| fs).collect(),
        dev: cx.resources().device_numbers.alloc(),
        depth,
        images: images.unwrap_or(0),
        creds: creds.clone(),
        prefix: if config.userxattr { b"user.overlay." } else { b"trusted.overlay." },
        markless: false,
        volatile: config.volatile,
        revalidates,
        options,
        traps: layers.traps,
        nodes: lock_order::Mutex::default(),
        root: lock_order::Mutex::default(),
        next_ino: AtomicU64::new(1),
        next_temp: AtomicU64::new(1),
        _charges: charges,
    };
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

/// The rights that count below: those of the mounter, without the right to exceed limits.
fn mounter(creds: &Credentials) -> Arc<Credentials> {
    let mut creds = creds.clone();
    creds.effective &= !Cap::SYS_RESOURCE.bit();
    Arc::new(creds)
}

/// EINVAL where the two do not go together: not of one mount, one inside of the other, read-only, or another overlay's.
fn check_upper(upper: &Path, work: &Path) -> Result<()> {
    let apart = !upper.dentry.is_below(&work.dentry) && !work.dentry.is_below(&upper.dentry);
    let usable = upper.mount.fs().stack_depth() == 0 && !upper.mount.readonly();
    let good = Arc::ptr_eq(&upper.mount, &work.mount) && apart && usable;
    if good { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Makes the directory `work` anew. EINVAL when it belongs to a volatile instance, which may have lost data.
fn work_dir(over: &dyn Caller, mount: &Arc<Mount>, base: &Path, volatile: bool) -> Result<Path> {
    let base = Path { mount: mount.clone(), dentry: base.dentry.clone() };
    match stack::find(over, &base.dentry, b"work") {
        Ok(old) => {
            let place = Path { mount: mount.clone(), dentry: old.clone() };
            if old.is_dir() {
                if is_incompatible(over, &place)? {
                    return Err(Errno::EINVAL);
                }
                listing::remove_all(over, &place, 0)?;
            }
            stack::remove(over, &base, b"work", old.is_dir())?;
        }
        Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    let creds = over.creds();
    let start = Start { mode: 0, uid: creds.fsuid, gid: creds.fsgid };
    let make = |at: &Path, name: &[u8], node: &NewNode, start| {
        let dentry = stack::make(over, at, name, node, start)?;
        Ok::<_, Errno>(Path { mount: mount.clone(), dentry })
    };
    let work = make(&base, b"work", &NewNode::Directory, start)?;
    if volatile {
        let incompatible = make(&work, b"incompat", &NewNode::Directory, start)?;
        let mark = make(&incompatible, b"volatile", &NewNode::Directory, start)?;
        make(&mark, b"dirty", &NewNode::Regular, Start { mode: 0o600, ..start })?;
    }
    Ok(work)
}

/// Whether `work/incompat` has anything in it.
fn is_incompatible(over: &dyn Caller, work: &Path) -> Result<bool> {
    match stack::find(over, &work.dentry, b"incompat") {
        Ok(dir) if dir.is_dir() => Ok(!listing::is_bare(over, &dir)?),
        Ok(_) | Err(Errno::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}
