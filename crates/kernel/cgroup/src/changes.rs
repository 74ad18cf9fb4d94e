//! Changes of groups, to be told after all locks.

use crate::group::Cgroup;
use crate::notice::What;
use std::collections::HashSet;
use std::sync::Arc;

/// Changes of groups that still have to notify the readers of their files.
#[derive(Default)]
#[must_use = "readers that wait for the changes are notified by `tell`, after all locks"]
pub struct Changes {
    list: Vec<(Arc<Cgroup>, What)>,
    /// The same by number of the group.
    known: HashSet<(u64, What)>,
}

impl Changes {
    pub(crate) fn push(&mut self, group: &Arc<Cgroup>, what: What) {
        if self.known.insert((group.id(), what)) {
            self.list.push((group.clone(), what));
        }
    }

    /// Tells of them. No lock may be held.
    pub fn tell(self) {
        for (group, what) in self.list {
            let all = group.notices();
            let one = match what {
                What::Events => &all.events,
                What::Pids => &all.pids,
                What::PidsLocal => &all.pids_local,
            };
            one.changed(&all.dir);
        }
    }
}
