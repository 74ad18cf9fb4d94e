//! /proc/PID/{mounts,mountinfo,mountstats}. See proc_pid_mountinfo(5).

use abi::{Errno, Result};
use kernfs::{At, Changes, Node, What};
use mounts::{FsView, MountNs, View};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Mount, MountFlags, Path, SbFlags};
use wait::{Events, WaitQueue};

fn view(at: &At) -> Result<View> {
    Ok(at.proc()?.task().and_then(|t| t.fs()).ok_or(Errno::EINVAL)?.view())
}

/// Octal escapes for what would break a line into other fields.
fn escape(out: &mut Vec<u8>, s: &[u8], special: &[u8]) {
    for &b in s {
        if special.contains(&b) {
            out.extend(format!("\\{b:03o}").bytes());
        } else {
            out.push(b);
        }
    }
}

const SPECIAL: &[u8] = b" \t\n\\";
const SPECIAL_TAB: &[u8] = b" \t\n\\#";

/// Where a process with the root `root` sees mounts. Each is the place of the mount below it and a few names, so that ten
/// thousand mounts on each other take no more than as many beside each other.
struct Places<'a> {
    root: &'a Path,
    known: HashMap<u64, Option<Arc<[u8]>>>,
    /// Bytes of all places.
    size: usize,
}

/// Most bytes of places in one table: nested mounts could make it as large as the square of their number.
const PLACES_MAX: usize = 16 << 20;

impl Places<'_> {
    /// The place of `m`; `None` when the process cannot reach it.
    fn of(&mut self, m: &Arc<Mount>) -> Option<Arc<[u8]>> {
        let top: Arc<[u8]> = Arc::from(&b"/"[..]);
        // A process with a root inside its mount does not see that mount, but those below its root.
        if Arc::ptr_eq(m, &self.root.mount) {
            return Arc::ptr_eq(&m.root, &self.root.dentry).then_some(top);
        }
        // Down to a mount with a known place, and up again.
        let mut above = Vec::new();
        let mut at = m.clone();
        let mut place = loop {
            if self.size > PLACES_MAX {
                return None;
            }
            if Arc::ptr_eq(&at, &self.root.mount) {
                break Some(top);
            }
            if let Some(p) = self.known.get(&at.unique_id()) {
                break p.clone();
            }
            let Some(point) = at.mountpoint() else { break self.learn(&at, None) };
            let below = point.mount.clone();
            above.push((at, point));
            at = below;
        };
        while let Some((m, point)) = above.pop().filter(|_| self.size <= PLACES_MAX) {
            let top = if Arc::ptr_eq(&point.mount, &self.root.mount) {
                &self.root.dentry
            } else {
                &point.mount.root
            };
            let here = place.and_then(|base| {
                let below = point.names_below(top)?;
                Some(Path::join_below(&base, &below).into())
            });
            place = self.learn(&m, here);
        }
        place
    }

    fn learn(&mut self, m: &Mount, place: Option<Arc<[u8]>>) -> Option<Arc<[u8]>> {
        self.size += place.as_ref().map_or(0, |p| p.len());
        self.known.insert(m.unique_id(), place.clone());
        place
    }
}

/// A mount and where it is seen.
type VisibleMount = (Arc<Mount>, Arc<[u8]>);

/// Mounts that the process can reach, each with where it sees it. ENOMEM when their paths are too long together.
fn visible(v: &FsView) -> Result<Vec<VisibleMount>> {
    let mut places = Places { root: &v.root, known: HashMap::new(), size: 0 };
    let all = v.ns.mounts().into_iter().filter_map(|m| places.of(&m).map(|p| (m, p))).collect();
    if places.size > PLACES_MAX { Err(Errno::ENOMEM) } else { Ok(all) }
}

fn source(m: &Mount) -> &[u8] {
    if m.source.is_empty() { b"none" } else { &m.source }
}

fn extra(m: &Mount) -> String {
    let o = m.fs().options();
    if o.is_empty() { o } else { format!(",{o}") }
}

/// `rw` or `ro` of the instance and of the mount together, the instance's other flags, then the mount's.
fn all_words(m: &Mount) -> String {
    let sb = m.sb.flags();
    let readonly = SbFlags::from_bits_truncate(m.flags().bits()) & SbFlags::RDONLY;
    format!("{}{}", (sb | readonly).words(), m.flags().words())
}

/// The peer groups that mounts get events from, where the nearest one has no member that the process can see. Each group is
/// looked at once for all mounts.
struct Dominating<'a> {
    visible: &'a HashSet<u64>,
    /// For a group, the ID of the nearest, itself included, that has a member to be seen.
    known: HashMap<u32, Option<u32>>,
}

impl Dominating<'_> {
    /// ID of the nearest group above `m` with a member that can be seen.
    fn of(&mut self, m: &Mount) -> Option<u32> {
        let mut way = Vec::new();
        let mut at = m.master();
        let found = loop {
            let Some(group) = at else { break None };
            if let Some(known) = self.known.get(&group.id) {
                break *known;
            }
            way.push(group.id);
            if group.members().iter().any(|x| self.visible.contains(&x.unique_id())) {
                break Some(group.id);
            }
            at = group.master();
        };
        self.known.extend(way.into_iter().map(|id| (id, found)));
        found
    }
}

/// The type of a mount's file system, with the subtype that mount(2) gave.
fn shown_type(m: &Mount) -> String {
    let fs = m.fs();
    let mut shown = fs.kind().as_bytes().to_vec();
    if let Some(subtype) = fs.subtype() {
        shown.push(b'.');
        escape(&mut shown, subtype.as_bytes(), SPECIAL);
    }
    String::from_utf8_lossy(&shown).into_owned()
}

pub fn mounts(at: &At) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for (m, place) in visible(&*view(at)?)? {
        escape(&mut out, source(&m), SPECIAL_TAB);
        out.push(b' ');
        escape(&mut out, &place, SPECIAL);
        out.extend(format!(" {} {}{} 0 0\n", shown_type(&m), all_words(&m), extra(&m)).bytes());
    }
    Ok(out)
}

pub fn mountinfo(at: &At) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let all = visible(&*view(at)?)?;
    let seen: HashSet<u64> = all.iter().map(|(m, _)| m.unique_id()).collect();
    let mut groups = Dominating { visible: &seen, known: HashMap::new() };
    for (m, place) in all {
        // The topmost mount has a parent that is not shown.
        let parent = m.mountpoint().map_or(1, |p| p.mount.id());
        let dev = m.root.inode.attr().map_or(0, |a| a.dev);
        let (major, minor) = (abi::stat::major(dev), abi::stat::minor(dev));
        out.extend(format!("{} {parent} {major}:{minor} ", m.id()).bytes());
        let own = at.cx.and_then(|cx| m.fs().shown_root(cx, &m.root.inode));
        let root = own.unwrap_or_else(|| m.sb.path_in_whole(&Path::display_in_fs(&m.root)));
        escape(&mut out, &root, SPECIAL);
        out.push(b' ');
        escape(&mut out, &place, SPECIAL);
        let readonly = if m.own_flags().contains(MountFlags::RDONLY) { "ro" } else { "rw" };
        out.extend(format!(" {readonly}{}", m.flags().words()).bytes());
        if let Some(group) = m.peer_group() {
            out.extend(format!(" shared:{}", group.id).bytes());
        }
        if let Some(master) = m.master() {
            out.extend(format!(" master:{}", master.id).bytes());
            let from = groups.of(&m).filter(|id| *id != master.id);
            out.extend(from.map_or_else(String::new, |id| format!(" propagate_from:{id}")).bytes());
        }
        if m.is_unbindable() {
            out.extend(b" unbindable");
        }
        out.extend(format!(" - {} ", shown_type(&m)).bytes());
        escape(&mut out, source(&m), SPECIAL_TAB);
        out.extend(format!(" {}{}\n", m.sb.flags().words(), extra(&m)).bytes());
    }
    Ok(out)
}

pub fn mountstats(at: &At) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    for (m, place) in visible(&*view(at)?)? {
        out.extend(b"device ");
        escape(&mut out, source(&m), SPECIAL_TAB);
        out.extend(b" mounted on ");
        escape(&mut out, &place, SPECIAL);
        out.extend(format!(" with fstype {}\n", shown_type(&m)).bytes());
    }
    Ok(out)
}

/// An open mount table, which becomes ready for POLLPRI when the table changes.
pub struct Watch {
    ns: Arc<MountNs>,
    /// The change that was seen last.
    seen: AtomicU64,
}

impl Changes for Watch {
    fn poll(&self) -> Events {
        let now = self.ns.changes();
        let mut e = Events::READABLE;
        if self.seen.swap(now, Ordering::Relaxed) != now {
            e = Events(e.0 | Events::PRI.0 | Events::ERR.0);
        }
        e
    }
    fn queue(&self) -> WaitQueue {
        self.ns.changed.clone()
    }
}

/// A watch for an inode that is a mount table.
pub fn watch(node: &Node) -> Option<Box<dyn Changes>> {
    if !matches!(node.entry().what, What::Text(..)) || !matches!(node.entry().name, "mounts" | "mountinfo") {
        return None;
    }
    let ns = view(&node.at(None)).ok()?.ns.clone();
    let seen = AtomicU64::new(ns.changes());
    Some(Box::new(Watch { ns, seen }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn blanks_are_escaped() {
        let mut out = Vec::new();
        super::escape(&mut out, b"a b\tc\n\\#", super::SPECIAL);
        assert_eq!(out, b"a\\040b\\011c\\012\\134#");
    }
}
