//! What a gofer has told of the names of a path before they are looked up: a question for the whole path, in place of one for each
//! name.
//!
//! A thread resolves one path at a time, so what was learnt is the thread's own. It is used once for each name, in the resolution
//! that it was learnt for.

use super::{ChangeCounts, Node};
use crate::fs::HostFs;
use abi::Result;
use abi::stat::Attr;
use std::cell::RefCell;
use std::sync::Arc;

struct Told {
    /// Address of the tree.
    tree: usize,
    /// Device and inode number of the directory.
    dir: (u64, u64),
    /// `None` for the directory itself.
    name: Option<Box<[u8]>>,
    attr: Result<Attr>,
    before: ChangeCounts,
}

thread_local! {
    static TOLD: RefCell<Vec<Told>> = const { RefCell::new(Vec::new()) };
}

fn number(fs: &Arc<HostFs>) -> usize {
    Arc::as_ptr(fs).addr()
}

/// A gofer has told of a directory and of the names of a path below it. `before` was noted in the directory before that.
pub(crate) fn learn(
    fs: &Arc<HostFs>,
    dir: (u64, u64),
    before: ChangeCounts,
    path: &[u8],
    own: Attr,
    attrs: &[Result<Attr>],
) {
    let tree = number(fs);
    TOLD.with_borrow_mut(|told| {
        told.push(Told { tree, dir, name: None, attr: Ok(own), before });
        let (mut dir, mut before) = (dir, before);
        for (name, attr) in path.split(|c| *c == b'/').zip(attrs) {
            told.push(Told { tree, dir, name: Some(name.into()), attr: *attr, before });
            let Ok(attr) = attr else { return };
            dir = (attr.dev, attr.ino);
            before = before.elsewhere();
        }
    });
}

/// What was told of a name in a directory, and what was noted before.
pub(crate) fn take(dir: &Node, name: &[u8]) -> Option<(Result<Attr>, ChangeCounts)> {
    let tree = number(&dir.fs);
    TOLD.with_borrow_mut(|told| {
        let same = |one: &Told| one.tree == tree && one.dir == dir.key && one.name.as_deref() == Some(name);
        let at = told.iter().position(same)?;
        let one = told.remove(at);
        // What we did meanwhile may have made it wrong.
        one.before.is_quiet(&dir.fs).then_some((one.attr, one.before))
    })
}

/// What was told of a directory itself.
pub(crate) fn itself(dir: &Node) -> Option<Attr> {
    let tree = number(&dir.fs);
    TOLD.with_borrow_mut(|told| {
        let same = |one: &Told| one.tree == tree && one.dir == dir.key && one.name.is_none();
        let at = told.iter().position(same)?;
        told.remove(at).attr.ok()
    })
}

/// The resolution is over.
pub(crate) fn forget() {
    TOLD.with_borrow_mut(Vec::clear);
}
