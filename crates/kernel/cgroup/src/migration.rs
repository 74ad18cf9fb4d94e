//! Which moves of tasks between groups are allowed. See cgroups(7), "Delegation".

use crate::group::Cgroup;
use crate::member::Member;
use crate::owner::Owner;
use abi::{Errno, Result};
use rights::{Credentials, mode};
use std::sync::Arc;

impl Cgroup {
    /// Whether a process with these credentials, which opened cgroup.procs in a namespace whose root has this ID, may move tasks from
    /// here to `to`. ENOENT for groups that the namespace does not see, EACCES without the right to write the
    /// cgroup.procs of the group that is around both.
    pub fn check_migration(&self, to: &Cgroup, creds: &Credentials, root: u64) -> Result<()> {
        let common = self.common(to).ok_or(Errno::ENOENT)?;
        common.check_write(creds)?;
        if self.is_within_id(root) && to.is_within_id(root) { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// Whether a process with these credentials may write its cgroup.procs. EACCES.
    pub fn check_write(&self, creds: &Credentials) -> Result<()> {
        let Owner { mode, uid, gid, .. } = self.owner("cgroup.procs", 0o644);
        let perm = rights::Perm { mode: libc::S_IFREG | mode, uid, gid };
        mode::allowed(creds, &perm, mode::MAY_WRITE)
    }

    /// A place for a task that fork(2) is to put right into this group (CLONE_INTO_CGROUP) instead of `from`. As for
    /// [`Cgroup::check_migration`]; EBUSY for a group that takes no processes.
    pub fn fork_into(
        self: &Arc<Self>,
        from: &Arc<Cgroup>,
        creds: &Credentials,
        root: u64,
        thread: bool,
    ) -> Result<Member> {
        self.check_alive().map_err(|_| Errno::ENOENT)?;
        if !Arc::ptr_eq(self, from) {
            self.check_write(creds)?;
            from.check_migration(self, creds, root)?;
            // Threads of one process are in one group, as no group is threaded.
            if thread {
                return Err(Errno::EOPNOTSUPP);
            }
            self.check_takes_processes()?;
        }
        Member::fork_here(self)
    }
}
