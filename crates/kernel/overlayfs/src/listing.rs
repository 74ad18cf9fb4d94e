//! Names of directories that are merged from several layers.
//!
//! The list is made when a pass over the directory begins. All open files of the directory share it while no name
//! changes. The memory of all lists of a sandbox is bounded (`Kind::Listings`): ENOMEM.

use crate::core::Core;
use crate::layers::Layer;
use crate::node::{LayerObjects, Node};
use abi::{Errno, Result};
use caller::quota::{Charge, Kind};
use namei::stack;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vfs::{Caller, Dentry, DirEntry, DirSink, OpenFile, Path};

/// Entries that are read from a directory below at a time.
const PIECE: usize = 256;
/// Bytes of an entry besides its name, which is kept twice while the list is made.
const ENTRY: usize = 96;
/// Bytes that are charged at a time.
const CHARGED: u64 = 64 << 10;
/// How deep directories in a work directory may be that are removed: no deeper ones are made there.
const DEEPEST: u32 = 2;

/// The names of a directory.
pub(crate) struct Listing {
    entries: Vec<DirEntry>,
    version: u64,
    _charge: Option<Charge>,
}

impl Listing {
    /// Feeds entries from offset `pos` on; returns the offset to continue with.
    pub fn read(&self, pos: u64, sink: &mut dyn DirSink) -> u64 {
        let mut at = pos.max(2);
        while let Some(e) = usize::try_from(at - 2).ok().and_then(|i| self.entries.get(i)) {
            if !sink.entry(at + 1, e) {
                break;
            }
            at += 1;
        }
        at
    }
}

#[derive(Default)]
struct Collect(Vec<(u64, DirEntry)>);

impl DirSink for Collect {
    fn entry(&mut self, next: u64, e: &DirEntry) -> bool {
        if self.0.len() == PIECE {
            return false;
        }
        self.0.push((next, e.clone()));
        true
    }
}

/// Some entries of a directory below from `pos` on, each with the offset behind it; none at the end. Also the offset to go on with.
pub(crate) fn piece(over: &dyn Caller, dir: &Arc<OpenFile>, pos: u64) -> Result<(Vec<(u64, DirEntry)>, u64)> {
    let mut all = Collect::default();
    let end = dir.ops.read_dir(over, dir, pos, &mut all)?;
    Ok((all.0, end))
}

/// Every entry of a directory below.
fn each(over: &dyn Caller, dir: &Arc<Dentry>, mut f: impl FnMut(DirEntry) -> Result<()>) -> Result<()> {
    let open = stack::open(over, &dir.inode, libc::O_RDONLY | libc::O_DIRECTORY)?;
    let mut pos = 2;
    loop {
        let (entries, _) = piece(over, &open, pos)?;
        let Some(last) = entries.last() else { return Ok(()) };
        pos = last.0;
        for (_, e) in entries {
            f(e)?;
        }
    }
}

/// Merges layers, topmost first.
struct Merge<'a> {
    core: &'a Core,
    over: &'a dyn Caller,
    seen: HashSet<Vec<u8>>,
    bytes: usize,
    charge: Option<Charge>,
}

impl Merge<'_> {
    /// The names of one more layer that show, in the order in which it has them.
    fn add(
        &mut self,
        layer: &Layer,
        dir: &Arc<Dentry>,
        show: &mut dyn FnMut(DirEntry) -> Result<()>,
    ) -> Result<()> {
        let (core, over) = (self.core, self.over);
        each(over, dir, |e| {
            if self.seen.contains(&e.name) {
                return Ok(());
            }
            self.count(&e)?;
            let suspect = e.kind == libc::DT_CHR
                || e.kind == libc::DT_UNKNOWN
                || e.kind == libc::DT_REG && layer.has_xwhiteouts();
            let gone = suspect
                && match stack::find(over, dir, &e.name) {
                    Ok(dentry) => core.is_whiteout(over, layer, &dentry)?,
                    Err(Errno::ENOENT) => true,
                    Err(e) => return Err(e),
                };
            self.seen.insert(e.name.clone());
            if gone { Ok(()) } else { show(e) }
        })
    }

    /// Counts what an entry takes. ENOMEM.
    fn count(&mut self, e: &DirEntry) -> Result<()> {
        self.bytes += ENTRY + 2 * e.name.len();
        let bytes = self.bytes as u64;
        let Some(charge) = &mut self.charge else { return Err(Errno::ENOMEM) };
        let fits = charge.count() >= bytes || charge.resize(bytes.next_multiple_of(CHARGED));
        if fits { Ok(()) } else { Err(Errno::ENOMEM) }
    }
}

fn merge<'a>(core: &'a Core, over: &'a dyn Caller, uid: u32) -> Result<Merge<'a>> {
    let charge = over.quotas().account(uid).charge(Kind::Listings, 0);
    if charge.is_none() {
        return Err(Errno::ENOMEM);
    }
    Ok(Merge { core, over, seen: HashSet::new(), bytes: 0, charge })
}

/// The layers of what was found, topmost first.
fn parts<'a>(
    core: &'a Core,
    upper: Option<&'a Arc<Dentry>>,
    lower: &'a [crate::node::Lower],
) -> impl Iterator<Item = (&'a Layer, &'a Arc<Dentry>)> {
    let upper = core.upper.as_ref().zip(upper);
    upper.into_iter().chain(lower.iter().filter_map(|l| Some((core.lower.get(l.layer)?, &l.dentry))))
}

/// The list of a directory, as it is now.
pub(crate) fn of_node(over: &dyn Caller, uid: u32, node: &Node) -> Result<Arc<Listing>> {
    let version = node.version.load(Ordering::Acquire);
    let known = node.listing.lock().upgrade();
    if let Some(known) = known.filter(|known| known.version == version) {
        return Ok(known);
    }
    let core = &*node.core;
    let mut all = merge(core, over, uid)?;
    let mut entries = Vec::new();
    for (i, (layer, dir)) in parts(core, node.upper.get(), &node.lower).enumerate() {
        let copies = i == 0 && node.upper.get().is_some() && core.is_impure(over, &dir.inode);
        all.add(layer, dir, &mut |mut e| {
            if copies && let Ok(dentry) = stack::find(over, dir, &e.name) {
                e.ino = core.origin(over, &dentry.inode).map_or(e.ino, |origin| origin.ino);
            }
            entries.push(e);
            Ok(())
        })?;
    }
    // What was charged ahead is given back.
    let bytes = all.bytes as u64;
    all.charge.as_mut().map(|charge| charge.resize(bytes));
    let new = Arc::new(Listing { entries, version, _charge: all.charge });
    *node.listing.lock() = Arc::downgrade(&new);
    Ok(new)
}

/// ENOTEMPTY for a directory in which something shows.
pub(crate) fn check_empty(core: &Core, over: &dyn Caller, uid: u32, found: &LayerObjects) -> Result<()> {
    let mut all = merge(core, over, uid)?;
    for (layer, dir) in parts(core, found.upper.as_ref(), &found.lower) {
        all.add(layer, dir, &mut |_| Err(Errno::ENOTEMPTY))?;
    }
    Ok(())
}

/// Whether a directory of the upper layer has nothing in it, no whiteouts either.
pub(crate) fn is_bare(over: &dyn Caller, dir: &Arc<Dentry>) -> Result<bool> {
    match each(over, dir, |_| Err(Errno::ENOTEMPTY)) {
        Err(Errno::ENOTEMPTY) => Ok(false),
        done => done.map(|()| true),
    }
}

/// Empties a directory of the upper layer or the work directory. ENOTEMPTY where it is deeper than overlayfs makes any.
pub(crate) fn remove_all(over: &dyn Caller, dir: &Path, depth: u32) -> Result<()> {
    let open = stack::open(over, dir.inode(), libc::O_RDONLY | libc::O_DIRECTORY)?;
    loop {
        // From the start each time: what was there is gone.
        let (entries, _) = piece(over, &open, 2)?;
        if entries.is_empty() {
            return Ok(());
        }
        for (_, e) in entries {
            let child = stack::find(over, &dir.dentry, &e.name)?;
            if child.is_dir() {
                if depth == DEEPEST {
                    return Err(Errno::ENOTEMPTY);
                }
                remove_all(over, &Path { mount: dir.mount.clone(), dentry: child.clone() }, depth + 1)?;
            }
            stack::remove(over, dir, &e.name, child.is_dir())?;
        }
    }
}
