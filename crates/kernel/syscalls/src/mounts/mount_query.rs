//! statmount(2), listmount(2): what there is to know of mounts, by their unique numbers.

use crate::arg::Ptr;
use crate::mounts::mount_fd::ATTRIBUTES;
use abi::mount::{MOUNT_ATTR_NOATIME, MOUNT_ATTR_RELATIME, MOUNT_ATTR_STRICTATIME};
use abi::{Errno, Result};
use caller::HasCredentials;
use mounts::View;
use rights::Cap;
use std::sync::Arc;
use task::{Current, SysResult};
use vfs::{Caller, Mount, MountFlags, Path, SbFlags};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const LISTMOUNT_REVERSE: u32 = 1;
/// The caller's root, for listmount(2).
const LSMT_ROOT: u64 = u64::MAX;
/// Unique numbers are above this.
const FIRST_UNIQUE: u64 = 1 << 31;
/// Most numbers that listmount(2) is asked for at once.
const LIST_MAX: u64 = 1_000_000;

const SB_BASIC: u64 = 0x1;
const MNT_BASIC: u64 = 0x2;
const PROPAGATE_FROM: u64 = 0x4;
const MNT_ROOT: u64 = 0x8;
const MNT_POINT: u64 = 0x10;
const FS_TYPE: u64 = 0x20;
const MNT_NS_ID: u64 = 0x40;
const MNT_OPTS: u64 = 0x80;
const SB_SOURCE: u64 = 0x200;
const OPT_ARRAY: u64 = 0x400;
const SUPPORTED_MASK: u64 = 0x1000;
/// What can be answered; STATMOUNT_FS_SUBTYPE, _OPT_SEC_ARRAY and _MNT_UIDMAP, _GIDMAP never have anything to say.
const SUPPORTED: u64 = 0x7fff;

/// `struct mnt_id_req`.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
struct Request {
    size: u32,
    spare: u32,
    mnt_id: u64,
    param: u64,
    mnt_ns_id: u64,
}

/// Bytes of the first version, without the namespace.
const REQUEST_V0: usize = 24;

/// `struct statmount` without the text behind it.
#[derive(Clone, Copy, Default, IntoBytes, Immutable)]
#[repr(C)]
struct StatMount {
    size: u32,
    mnt_opts: u32,
    mask: u64,
    sb_dev: [u32; 2],
    sb_magic: u64,
    sb_flags: u32,
    fs_type: u32,
    mnt_id: u64,
    mnt_parent_id: u64,
    mnt_id_old: u32,
    mnt_parent_id_old: u32,
    mnt_attr: u64,
    mnt_propagation: u64,
    mnt_peer_group: u64,
    mnt_master: u64,
    propagate_from: u64,
    mnt_root: u32,
    mnt_point: u32,
    mnt_ns_id: u64,
    fs_subtype: u32,
    sb_source: u32,
    opt_num: u32,
    opt_array: u32,
    opt_sec_num: u32,
    opt_sec_array: u32,
    supported_mask: u64,
    mnt_uidmap: [u32; 2],
    mnt_gidmap: [u32; 2],
    // 43 words; longer arrays have no default.
    spare: [[u64; 8]; 5],
    spare2: [u64; 3],
}

const _: () = assert!(size_of::<StatMount>() == 512);

fn read_request(c: &Current, from: Ptr) -> Result<Request> {
    const SIZE: usize = size_of::<Request>();
    let size = c.read_value::<u32>(from.0)? as usize;
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    if size < REQUEST_V0 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; size.max(SIZE)];
    c.read_bytes(from.0, &mut bytes[..size])?;
    if bytes[SIZE..].iter().any(|&b| b != 0) {
        return Err(Errno::E2BIG);
    }
    let r = Request::read_from_bytes(&bytes[..SIZE]).map_err(|_| Errno::EINVAL)?;
    if r.spare != 0 || r.mnt_id <= FIRST_UNIQUE {
        return Err(Errno::EINVAL);
    }
    Ok(r)
}

/// The caller's view; ENOENT when the request is about another namespace, which cannot be named here.
fn view_of(c: &Current, r: &Request) -> Result<View> {
    let view = c.fs().view();
    if r.mnt_ns_id == 0 || r.mnt_ns_id == view.ns.id { Ok(view) } else { Err(Errno::ENOENT) }
}

/// Whether the caller sees the place, or may see all.
fn may_see(c: &Current, view: &View, place: &Path) -> bool {
    place.reachable_from(&view.root) || c.creds().ns_capable(view.ns.user_ns(), Cap::SYS_ADMIN)
}

/// The text behind the structure.
struct Text(Vec<u8>);

impl Text {
    /// Adds a text and gives its place; `None` for an empty one.
    fn add(&mut self, text: &[u8]) -> Option<u32> {
        if self.0.is_empty() {
            // Place 0 is an empty text for all that are not there.
            self.0.push(0);
        }
        if text.is_empty() {
            return None;
        }
        let at = self.0.len() as u32;
        self.0.extend_from_slice(text);
        self.0.push(0);
        Some(at)
    }
}

fn attributes(flags: MountFlags) -> u64 {
    let single: u64 = ATTRIBUTES.iter().filter(|(_, f)| flags.contains(*f)).map(|(bit, _)| bit).sum();
    single
        | match flags {
            f if f.contains(MountFlags::NOATIME) => MOUNT_ATTR_NOATIME,
            f if f.contains(MountFlags::RELATIME) => MOUNT_ATTR_RELATIME,
            _ => MOUNT_ATTR_STRICTATIME,
        }
}

fn propagation(m: &Mount) -> u64 {
    let mut p = 0;
    if m.peer_group().is_some() {
        p |= libc::MS_SHARED;
    }
    if m.master().is_some() {
        p |= libc::MS_SLAVE;
    }
    if m.is_unbindable() {
        p |= libc::MS_UNBINDABLE;
    }
    if p == 0 { libc::MS_PRIVATE } else { p }
}

fn basics(s: &mut StatMount, m: &Arc<Mount>, mask: u64) {
    if mask & SB_BASIC != 0 {
        let dev = m.root.inode.attr().map_or(0, |a| a.dev);
        let known = SbFlags::RDONLY | SbFlags::SYNCHRONOUS | SbFlags::DIRSYNC | SbFlags::LAZYTIME;
        s.mask |= SB_BASIC;
        s.sb_dev = [abi::stat::major(dev), abi::stat::minor(dev)];
        s.sb_magic = m.fs().statfs().map_or(0, |f| f.f_type as u64);
        s.sb_flags = (m.sb.flags() & known).bits();
    }
    if mask & MNT_BASIC != 0 {
        let parent = m.mountpoint().map_or_else(|| m.clone(), |p| p.mount);
        s.mask |= MNT_BASIC;
        (s.mnt_id, s.mnt_id_old) = (m.unique_id(), m.id());
        (s.mnt_parent_id, s.mnt_parent_id_old) = (parent.unique_id(), parent.id());
        s.mnt_attr = attributes(m.own_flags());
        s.mnt_propagation = propagation(m);
        s.mnt_peer_group = m.peer_group().map_or(0, |g| g.id.into());
        s.mnt_master = m.master().map_or(0, |g| g.id.into());
    }
}

/// An option as it was given, where the list has escapes (`\054` for a comma).
fn unescaped(option: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(option.len());
    let mut rest = option;
    while let Some((&b, after)) = rest.split_first() {
        let octal = match after {
            [x @ b'0'..=b'3', y @ b'0'..=b'7', z @ b'0'..=b'7', ..] if b == b'\\' => {
                Some((x - b'0') << 6 | (y - b'0') << 3 | (z - b'0'))
            }
            _ => None,
        };
        out.push(octal.unwrap_or(b));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    out
}

fn texts(cx: &dyn Caller, s: &mut StatMount, m: &Arc<Mount>, view: &View, mask: u64) -> Vec<u8> {
    let mut text = Text(Vec::new());
    let mut put = |bit: u64, what: &[u8], to: &mut u32| {
        if mask & bit != 0
            && let Some(at) = text.add(what)
        {
            *to = at;
            s.mask |= bit;
        }
    };
    put(FS_TYPE, m.fs().kind().as_bytes(), &mut s.fs_type);
    let root = m.fs().shown_root(cx, &m.root.inode);
    let root = root.unwrap_or_else(|| m.sb.path_in_whole(&Path::display_in_fs(&m.root)));
    put(MNT_ROOT, &root, &mut s.mnt_root);
    let point = m.root_path();
    let shown = if point.reachable_from(&view.root) { point.display_link(&view.root) } else { Vec::new() };
    put(MNT_POINT, &shown, &mut s.mnt_point);
    let options = m.fs().options();
    put(MNT_OPTS, options.as_bytes(), &mut s.mnt_opts);
    put(SB_SOURCE, &m.source, &mut s.sb_source);
    let array: Vec<Vec<u8>> =
        options.split(',').filter(|o| !o.is_empty()).map(|o| unescaped(o.as_bytes())).collect();
    put(OPT_ARRAY, &array.join(&0), &mut s.opt_array);
    if s.opt_array != 0 {
        s.opt_num = array.len() as u32;
    }
    text.0
}

pub fn statmount(c: &mut Current, request: Ptr, to: Ptr, size: u64, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let r = read_request(c, request)?;
    let view = view_of(c, &r)?;
    let m = view.ns.find(r.mnt_id).ok_or(Errno::ENOENT)?;
    if !may_see(c, &view, &m.root_path()) {
        return Err(Errno::EPERM.into());
    }
    let mut s = StatMount::default();
    let mask = r.param;
    basics(&mut s, &m, mask);
    if mask & PROPAGATE_FROM != 0 {
        s.mask |= PROPAGATE_FROM;
        s.propagate_from = m.master().map_or(0, |g| visible_master(g, &view));
    }
    let text = texts(c, &mut s, &m, &view, mask);
    if mask & MNT_NS_ID != 0 {
        s.mask |= MNT_NS_ID;
        s.mnt_ns_id = view.ns.id;
    }
    if mask & SUPPORTED_MASK != 0 {
        s.mask |= SUPPORTED_MASK;
        s.supported_mask = SUPPORTED;
    }
    let fixed = size_of::<StatMount>();
    let room = usize::try_from(size).unwrap_or(usize::MAX);
    if !text.is_empty() && fixed + text.len() > room {
        return Err(Errno::EOVERFLOW.into());
    }
    let copied = fixed.min(room);
    s.size = (copied + text.len()) as u32;
    c.write_bytes(to.0, &s.as_bytes()[..copied])?;
    c.write_bytes(to.0.checked_add(copied as u64).ok_or(Errno::EFAULT)?, &text)?;
    Ok(0)
}

/// The nearest group that events come from of which the caller sees a member; 0 for none.
fn visible_master(group: Arc<vfs::mount::peers::PeerGroup>, view: &View) -> u64 {
    let mut at = Some(group);
    while let Some(group) = at {
        let members = group.members();
        if members.iter().any(|m| view.ns.contains(m) && m.root_path().reachable_from(&view.root)) {
            return group.id.into();
        }
        at = members.first().and_then(|m| m.master());
    }
    0
}

pub fn listmount(c: &mut Current, request: Ptr, to: Ptr, count: u64, flags: u32) -> SysResult {
    if flags & !LISTMOUNT_REVERSE != 0 {
        return Err(Errno::EINVAL.into());
    }
    if count > LIST_MAX {
        return Err(Errno::EOVERFLOW.into());
    }
    let r = read_request(c, request)?;
    if r.param != 0 && r.param <= FIRST_UNIQUE {
        return Err(Errno::EINVAL.into());
    }
    let view = view_of(c, &r)?;
    let top = match r.mnt_id {
        LSMT_ROOT => view.root.clone(),
        id => view.ns.find(id).ok_or(Errno::ENOENT)?.root_path(),
    };
    if !may_see(c, &view, &top) {
        return Err(Errno::EPERM.into());
    }
    let mut ids = below(&view, &top, r.mnt_id);
    let reverse = flags & LISTMOUNT_REVERSE != 0;
    if reverse {
        ids.reverse();
    }
    let after = |id: &u64| match r.param {
        0 => true,
        last if reverse => *id < last,
        last => *id > last,
    };
    let found: Vec<u64> = ids.into_iter().filter(after).take(count as usize).collect();
    c.write_bytes(to.0, found.as_bytes())?;
    Ok(found.len() as u64)
}

/// The numbers of the mounts with roots that can be reached from `top`, without the mount `asked` itself, in order.
fn below(view: &View, top: &Path, asked: u64) -> Vec<u64> {
    let mut ids: Vec<u64> = Vec::new();
    let mut todo = vec![top.mount.clone()];
    while let Some(m) = todo.pop() {
        let within = !Arc::ptr_eq(&m, &top.mount) || top.is_mount_root();
        if within && m.unique_id() != asked {
            ids.push(m.unique_id());
        }
        let inside = |x: &Arc<Mount>| {
            !Arc::ptr_eq(&m, &top.mount) || x.mountpoint().is_some_and(|p| p.dentry.is_below(&top.dentry))
        };
        todo.extend(m.children().into_iter().filter(inside).filter(|x| view.ns.contains(x)));
    }
    ids.sort_unstable();
    ids
}
