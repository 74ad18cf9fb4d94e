//! Making and removing groups: mkdir(2), rmdir(2), and the root group of a container.

use crate::changes::Changes;
use crate::group::{Cgroup, DIR_MODE};
use crate::tree::Slot;
use abi::{Errno, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Most groups of a sandbox, removed ones that are still in use included.
pub const MOST: usize = 16 << 10;
/// Most levels of groups.
pub const DEEPEST: u32 = 128;

impl Cgroup {
    /// The root group of a new container, by a name that no other has.
    pub fn of_container(self: &Arc<Self>) -> Arc<Cgroup> {
        let _tree = self.tree.lock();
        let name = format!("{}", self.tree.last_id.load(Ordering::Relaxed) + 1).into_bytes();
        self.add(name, (0, 0), DIR_MODE, None)
    }

    fn add(self: &Arc<Self>, name: Vec<u8>, owner: (u32, u32), mode: u32, slot: Option<Slot>) -> Arc<Cgroup> {
        let new = Cgroup::new(self.tree.clone(), Some(self.clone()), name.clone(), owner, mode, slot);
        let (new, frozen) = (Arc::new(new), self.is_freezing());
        {
            let mut s = self.state();
            s.children.insert(name, new.clone());
            s.frozen_children += usize::from(frozen);
        }
        self.each_up(|group| group.state().descendants += 1);
        new
    }

    /// mkdir(2) of a group that `owner` owns. EINVAL, EEXIST; EAGAIN beyond a limit; ENODEV when this one is gone.
    pub fn mkdir(self: &Arc<Self>, name: &[u8], owner: (u32, u32), mode: u32) -> Result<Arc<Cgroup>> {
        // /proc/PID/cgroup has one on a line.
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        let tree = self.tree.lock();
        self.check_alive()?;
        if self.state().children.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.check_room()?;
        if self.level >= DEEPEST {
            return Err(Errno::EAGAIN);
        }
        let slot = Slot::group(&self.tree, MOST).ok_or(Errno::EAGAIN)?;
        let new = self.add(name.to_vec(), owner, mode, Some(slot));
        let mut changes = Changes::default();
        self.update_frozen(&tree, &mut changes);
        drop(tree);
        changes.tell();
        Ok(new)
    }

    /// rmdir(2) of a group right below. EBUSY while it has tasks or groups, ENOENT.
    pub fn rmdir(self: &Arc<Self>, name: &[u8]) -> Result<()> {
        let mut changes = Changes::default();
        let tree = self.tree.lock();
        let child = self.child(name).ok_or(Errno::ENOENT)?;
        {
            let s = child.state();
            if s.is_populated() || !s.children.is_empty() {
                return Err(Errno::EBUSY);
            }
        }
        child.remove_from(self);
        self.update_frozen(&tree, &mut changes);
        drop(tree);
        drop(child);
        changes.tell();
        Ok(())
    }

    fn remove_from(&self, parent: &Arc<Cgroup>) {
        self.removed.store(true, Ordering::SeqCst);
        drop(self.take_programs());
        let (frozen, time) = {
            let s = self.state();
            (s.frozen, s.time)
        };
        {
            let mut s = parent.state();
            s.time[0] += time[0];
            s.time[1] += time[1];
            s.children.remove(&self.name);
            s.frozen_children -= usize::from(frozen);
        }
        parent.each_up(|group| {
            group.state().descendants -= 1;
            group.dying.fetch_add(1, Ordering::Relaxed);
        });
    }

    /// The container ends: the group is removed with all below it. No task is there any more, or none that goes on.
    pub fn close(self: &Arc<Self>) {
        let tree = self.tree.lock();
        let all = self.subtree();
        for group in all.iter().rev() {
            if let Some(parent) = &group.parent
                && !group.is_removed()
            {
                group.remove_from(parent);
            }
        }
        drop(tree);
    }
}
