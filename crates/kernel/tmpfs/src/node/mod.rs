//! Inodes in memory: attributes, extended attributes and the body of each type.
//!
//! Key type: [`Node`]. Its children: `dir`, the names of a directory, and `acls`, the access control lists.
//! Neighbours: a node belongs to an instance ([`TmpFs`]) and may have started as an object of the layers (the module
//! `lower`); the module `inode` implements vfs's traits.
//! Locks, outermost first: a directory (`TMPFS_DIR`), a file's content (`TMPFS_CONTENT`), `meta`. The atomics outside
//! `meta` may be read without a lock.
//! A checkpoint keeps all of a node; a node that is still as the layers have it is found there again.

mod acls;
mod dir;

pub(crate) use self::dir::{Dir, Entry, Item};

use self::acls::Acls;
use crate::content::Content;
use crate::fs::TmpFs;
use crate::lower::{LowerBody, LowerDir, LowerInode, View, XattrMap};
use abi::Result;
use abi::stat::{Attr, S_IFDIR, S_IFMT};
use abi::time::Timespec;
use lock_order::{Mutex, RwLock, rank};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use vfs::InodeRef;
use vfs::attach::Attachments;

/// Extended attributes.
pub(crate) enum Xattrs {
    /// Still those of the lower inode.
    Lower,
    /// Our own.
    Own(XattrMap),
}

/// Offsets of a merged directory's own entries start here, behind those of the lower listing.
const MERGED_FIRST: u64 = 1 << 32;

const CAPABILITY: &[u8] = b"security.capability";

/// What one extended attribute counts for (simple_xattr_space).
pub(crate) fn one_xattr_space(name: &[u8], value: &[u8]) -> u64 {
    40 + (name.len() + value.len()) as u64
}

/// What all of an inode's count for.
pub(crate) fn xattr_space(x: &XattrMap) -> u64 {
    x.iter().map(|(k, v)| one_xattr_space(k, v)).sum()
}

/// What changes together under one short lock.
pub(crate) struct Meta {
    pub nlink: u64,
    /// How many names were charged like inodes: all that came by link(2) to a node with a name.
    pub charged_links: u32,
    pub atime: Timespec,
    pub mtime: Timespec,
    pub ctime: Timespec,
    pub btime: Option<Timespec>,
    pub xattrs: Xattrs,
}

/// What an inode holds besides attributes.
pub(crate) enum Body {
    Dir(Mutex<Dir, { rank::TMPFS_DIR }>),
    File(RwLock<Content, { rank::TMPFS_CONTENT }>),
    Link(OnceLock<Vec<u8>>),
    Special,
}

impl Body {
    pub fn dir(lower: Option<Box<dyn LowerDir>>, first: u64) -> Body {
        Body::Dir(Mutex::new(Dir::new(lower, first)))
    }
    pub fn file(c: Content) -> Body {
        Body::File(RwLock::new(c))
    }
    pub fn link(target: Vec<u8>) -> Body {
        let l = OnceLock::new();
        let _ = l.set(target);
        Body::Link(l)
    }
}

/// What a restored node has besides its body, lists and extended attributes.
pub(crate) struct Restored {
    pub ino: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub nlink: u64,
    pub times: [Timespec; 3],
    pub created: Option<Timespec>,
    /// Something differs from the lower inode.
    pub changed: bool,
}

/// An inode of a tmpfs or an overlay.
pub struct Node {
    pub(crate) me: Weak<Node>,
    pub(crate) fs: Arc<TmpFs>,
    pub(crate) ino: u64,
    mode: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    pub(crate) rdev: u64,
    /// Something differs from the lower inode.
    changed: AtomicBool,
    /// The lower inode has several names.
    pub(crate) shared_below: bool,
    pub(crate) meta: Mutex<Meta>,
    pub(crate) acls: Acls,
    pub(crate) body: Body,
    /// The inode of the layers that this one started as.
    pub(crate) lower: Option<Box<dyn LowerInode>>,
    pub(crate) attachments: Attachments,
}

impl Node {
    /// A new inode; `mode` with its type.
    pub(crate) fn new(
        fs: Arc<TmpFs>,
        body: Body,
        mode: u32,
        uid: u32,
        gid: u32,
        rdev: u64,
        nlink: u64,
    ) -> Arc<Node> {
        let now = hostsys::fs::now();
        let meta = Meta {
            nlink,
            charged_links: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            xattrs: Xattrs::Own(BTreeMap::new()),
        };
        let ino = fs.new_ino();
        Arc::new_cyclic(|me| Node {
            me: me.clone(),
            fs,
            ino,
            mode: mode.into(),
            uid: uid.into(),
            gid: gid.into(),
            rdev,
            changed: AtomicBool::new(true),
            shared_below: false,
            meta: Mutex::new(meta),
            acls: Acls::new(false),
            body,
            lower: None,
            attachments: Attachments::default(),
        })
    }

    /// An inode that starts as a view of a lower one.
    pub fn view(fs: Arc<TmpFs>, view: View) -> Arc<Node> {
        let a = view.attr;
        let ino = view.ino.unwrap_or_else(|| fs.new_ino());
        let body = match view.body {
            LowerBody::Dir(dir) => Body::dir(Some(dir), MERGED_FIRST),
            LowerBody::File(file) => Body::file(Content::of_lower(file, a.size)),
            LowerBody::Link => Body::Link(OnceLock::new()),
            LowerBody::Special => Body::Special,
        };
        let meta = Meta {
            nlink: a.nlink,
            charged_links: 0,
            atime: a.atime,
            mtime: a.mtime,
            ctime: a.ctime,
            btime: a.btime,
            xattrs: Xattrs::Lower,
        };
        Arc::new_cyclic(|me| Node {
            me: me.clone(),
            fs,
            ino,
            mode: a.mode.into(),
            uid: a.uid.into(),
            gid: a.gid.into(),
            rdev: a.rdev,
            changed: AtomicBool::new(false),
            shared_below: a.nlink > 1 && !a.is_dir(),
            meta: Mutex::new(meta),
            acls: Acls::new(true),
            body,
            lower: Some(view.inode),
            attachments: Attachments::default(),
        })
    }

    /// A new inode with the number of plain data, which [`Node::restore_attributes`] completes.
    pub(crate) fn restored(fs: Arc<TmpFs>, body: Body, saved: &Restored) -> Arc<Node> {
        let meta = Meta {
            nlink: saved.nlink,
            charged_links: 0,
            atime: Timespec::default(),
            mtime: Timespec::default(),
            ctime: Timespec::default(),
            btime: saved.created,
            xattrs: Xattrs::Own(BTreeMap::new()),
        };
        Arc::new_cyclic(|me| Node {
            me: me.clone(),
            fs,
            ino: saved.ino,
            mode: saved.mode.into(),
            uid: saved.uid.into(),
            gid: saved.gid.into(),
            rdev: saved.rdev,
            changed: AtomicBool::new(true),
            shared_below: false,
            meta: Mutex::new(meta),
            acls: Acls::new(false),
            body,
            lower: None,
            attachments: Attachments::default(),
        })
    }

    /// Makes its attributes those of plain data. `xattrs`: `None` for those that it has. `names`: how many names it has.
    pub(crate) fn restore_attributes(&self, saved: &Restored, xattrs: Option<XattrMap>, names: u32) {
        if saved.changed {
            self.change();
        }
        self.mode.store(self.mode() & S_IFMT | saved.mode & 0o7777, Ordering::Relaxed);
        self.uid.store(saved.uid, Ordering::Relaxed);
        self.gid.store(saved.gid, Ordering::Relaxed);
        let mut m = self.meta.lock();
        m.nlink = saved.nlink;
        [m.atime, m.mtime, m.ctime] = saved.times;
        m.btime = saved.created;
        if self.lower.is_none() && !self.is_dir() {
            let links = names.saturating_sub(1);
            let space = |links: u32| u64::from(links) * crate::fs::INODE_SPACE;
            self.fs.inodes.recharge(space(m.charged_links), space(links));
            m.charged_links = links;
        }
        let Some(new) = xattrs else { return };
        let old = match &m.xattrs {
            Xattrs::Own(old) => xattr_space(old),
            Xattrs::Lower => 0,
        };
        self.fs.inodes.recharge(old, xattr_space(&new));
        m.xattrs = Xattrs::Own(new);
    }

    pub(crate) fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    pub(crate) fn set_mode(&self, permissions: u32) {
        self.change();
        self.mode.store(self.mode() & S_IFMT | permissions & 0o7777, Ordering::Relaxed);
    }

    pub(crate) fn owner(&self) -> (u32, u32) {
        (self.uid.load(Ordering::Relaxed), self.gid.load(Ordering::Relaxed))
    }

    pub(crate) fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) {
        if uid.is_some() || gid.is_some() {
            self.change();
        }
        if let Some(u) = uid {
            self.uid.store(u, Ordering::Relaxed);
        }
        if let Some(g) = gid {
            self.gid.store(g, Ordering::Relaxed);
        }
    }

    /// The lower inode says the same: the node may be dropped when it is not in use.
    pub(crate) fn is_clean(&self) -> bool {
        !self.changed.load(Ordering::Relaxed)
            && match &self.body {
                Body::Dir(d) => d.lock_nested().is_pristine(),
                _ => true,
            }
    }

    /// As the lower inode, but for what is below a directory.
    pub(crate) fn is_clean_itself(&self) -> bool {
        !self.changed.load(Ordering::Relaxed)
    }

    /// It has more names than one.
    pub(crate) fn has_other_names(&self) -> bool {
        self.shared_below || self.meta.lock().nlink > 1
    }

    /// Content, names or attributes change.
    pub(crate) fn change(&self) {
        if !self.changed.load(Ordering::Relaxed)
            && !self.changed.swap(true, Ordering::Relaxed)
            && self.shared_below
        {
            self.fs.changed(self);
        }
    }

    /// The names of a directory.
    pub(crate) fn names(&self) -> Option<&Mutex<Dir, { rank::TMPFS_DIR }>> {
        if let Body::Dir(d) = &self.body { Some(d) } else { None }
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.mode() & S_IFMT == S_IFDIR
    }

    /// Content or names changed. File capabilities do not survive that.
    pub(crate) fn touch(&self) {
        self.change();
        let now = hostsys::fs::now();
        let mut m = self.meta.lock();
        if let Xattrs::Own(x) = &mut m.xattrs
            && !x.is_empty()
            && let Some(v) = x.remove(CAPABILITY)
        {
            self.fs.inodes.uncharge(one_xattr_space(CAPABILITY, &v));
        }
        m.mtime = now;
        m.ctime = now;
    }

    /// The number that stat(2) shows.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Attributes changed.
    pub(crate) fn touch_ctime(&self) {
        self.change();
        self.meta.lock().ctime = hostsys::fs::now();
    }

    /// Adds to the link count; says what it is then.
    pub(crate) fn add_links(&self, n: i64) -> u64 {
        self.change();
        let mut m = self.meta.lock();
        m.nlink = m.nlink.saturating_add_signed(n);
        m.ctime = hostsys::fs::now();
        m.nlink
    }

    /// Charges one more name: nothing but the limit on inodes bounds them. The first name of a file without one is its inode's.
    /// ENOSPC.
    pub(crate) fn charge_link(&self) -> Result<()> {
        if self.meta.lock().nlink > 0 {
            self.fs.charge_inode()?;
            self.meta.lock().charged_links += 1;
        }
        Ok(())
    }

    /// A name is gone.
    pub(crate) fn uncharge_link(&self) {
        let mut m = self.meta.lock();
        if m.charged_links > 0 {
            m.charged_links -= 1;
            drop(m);
            self.fs.uncharge_inode();
        }
    }

    /// The node behind an inode of this crate.
    pub(crate) fn of(inode: &InodeRef) -> Option<&Node> {
        inode.as_any().downcast_ref::<Node>()
    }

    pub(crate) fn attributes(&self) -> Attr {
        let (size, blocks) = match &self.body {
            Body::Dir(d) => {
                let d = d.lock();
                (d.size(), 0)
            }
            Body::File(c) => c.read().size_and_blocks(),
            Body::Link(l) => match (l.get(), &self.lower) {
                (Some(t), None) => (t.len() as u64, link_pages(t.len()) * 8),
                (Some(t), Some(_)) => (t.len() as u64, 0),
                (None, Some(i)) => (i.size(), 0),
                (None, None) => (0, 0),
            },
            Body::Special => (0, 0),
        };
        let (uid, gid) = self.owner();
        let m = self.meta.lock();
        Attr {
            dev: self.fs.dev,
            ino: self.ino,
            mode: self.mode(),
            nlink: m.nlink,
            uid,
            gid,
            rdev: self.rdev,
            size,
            blksize: 4096,
            blocks,
            atime: m.atime,
            mtime: m.mtime,
            ctime: m.ctime,
            btime: m.btime,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.lower.is_none() {
            self.fs.uncharge_inode();
        }
        if let Xattrs::Own(x) = &self.meta.get_mut().xattrs {
            self.fs.inodes.uncharge(xattr_space(x));
        }
        self.fs.inodes.uncharge(self.acls.space());
        match &mut self.body {
            Body::File(c) => c.get_mut().release(&self.fs.storage),
            Body::Dir(d) => drop_tree(d.get_mut()),
            Body::Link(l) if self.lower.is_none() => {
                self.fs.storage.pages.recharge(link_pages(l.get().map_or(0, Vec::len)), 0)
            }
            Body::Link(_) | Body::Special => {}
        }
    }
}

/// Pages charged for a symbolic link's target: a short one lives in the inode.
pub(crate) fn link_pages(len: usize) -> u64 {
    const SHORT_SYMLINK_LEN: usize = 128;
    (len + 1 > SHORT_SYMLINK_LEN).into()
}

/// Takes a tree apart without recursion: a guest can nest directories deeper than our stack.
fn drop_tree(d: &mut Dir) {
    let mut todo = d.take_nodes();
    while let Some(n) = todo.pop() {
        if let Some(mut n) = Arc::into_inner(n)
            && let Body::Dir(d) = &mut n.body
        {
            todo.extend(d.get_mut().take_nodes());
        }
    }
}
