//! What lies below what, asked for many dentries at a time. A guest makes directories a hundred thousand deep and mounts as
//! many in the deepest one: each step up is taken once, not for each mount again.
//!
//! Dentries that were met are held, so an address does not change its meaning. A name that moves meanwhile is found where it
//! was or where it is, as in [`Dentry::is_below`].

use std::collections::HashMap;
use std::sync::Arc;
use vfs::dentry::Dentry;
use vfs::mount::key;

/// Steps up that cost less than to remember them.
const FEW: usize = 16;

/// Whether dentries are `root` or lie below it.
pub struct Below<'a> {
    root: &'a Arc<Dentry>,
    known: HashMap<usize, (Arc<Dentry>, bool)>,
}

impl Below<'_> {
    pub fn new(root: &Arc<Dentry>) -> Below<'_> {
        Below { root, known: HashMap::new() }
    }

    /// Whether it is `root` or lies below it.
    pub fn has(&mut self, dentry: &Arc<Dentry>) -> bool {
        let mut way = Vec::new();
        let mut at = Some(dentry.clone());
        let inside = loop {
            let Some(d) = at else { break false };
            if Arc::ptr_eq(&d, self.root) {
                break true;
            }
            if let Some((_, inside)) = self.known.get(&key(&d)) {
                break *inside;
            }
            at = d.parent();
            way.push(d);
        };
        if way.len() > FEW {
            self.known.extend(way.into_iter().map(|d| (key(&d), (d, inside))));
        }
        inside
    }
}

/// The dentries that are a place or above it.
pub struct Above(HashMap<usize, Arc<Dentry>>);

impl Above {
    pub fn of(place: &Arc<Dentry>) -> Above {
        let ways = std::iter::successors(Some(place.clone()), |d| d.parent());
        Above(ways.map(|d| (key(&d), d)).collect())
    }

    /// Whether the place is `top` or lies below it.
    pub fn has(&self, top: &Arc<Dentry>) -> bool {
        self.0.contains_key(&key(top))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::inode::InternalFs;

    #[test]
    fn as_asked_one_by_one() {
        let root = Dentry::root(&InternalFs::Anon);
        let below = |d: &Arc<Dentry>| Dentry::unnamed(d, d.inode.clone());
        let mut chain = vec![root.clone()];
        for i in 0..100 {
            chain.push(below(&chain[i]));
        }
        let branches: Vec<_> = chain.iter().map(below).collect();
        for top in [0, 1, 50, 99, 100] {
            let mut asked = Below::new(&chain[top]);
            for d in chain.iter().rev().chain(&branches) {
                assert_eq!(asked.has(d), d.is_below(&chain[top]));
                assert_eq!(Above::of(d).has(&chain[top]), d.is_below(&chain[top]));
            }
        }
    }

    #[test]
    fn each_step_is_taken_once() {
        const DEEP: usize = 20_000;
        let root = Dentry::root(&InternalFs::Anon);
        let mut deep = root.clone();
        for _ in 0..DEEP {
            deep = Dentry::unnamed(&deep, root.inode.clone());
        }
        let other = Dentry::root(&InternalFs::Anon);
        let mut asked = Below::new(&other);
        for _ in 0..DEEP {
            assert!(!asked.has(&Dentry::unnamed(&deep, root.inode.clone())));
        }
        // The chain, and what was asked for first.
        assert_eq!(asked.known.len(), DEEP + 2);
    }
}
