//! New namespaces and other ones: clone(2), unshare(2), setns(2). See namespaces(7).
//!
//! What a call needs is made and checked first, and then put into force as a whole.

use crate::current::Current;
use crate::task::Task;
use abi::clone::{
    CLONE_FILES, CLONE_FS, CLONE_NEWIPC, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_SIGHAND,
    CLONE_SYSVSEM, CLONE_THREAD, CLONE_VM,
};
use abi::{Errno, Result};
use caller::HasCredentials;
use cgroup::Cgroup;
use mounts::MountNs;
use nsproxy::{IN_SET, Making, Namespace, NsProxy};
use rights::{Cap, Credentials, Creds};
use std::sync::Arc;
use user_ns::{Maker, UserNamespace};

/// Credentials and namespaces of a new task, or of one that leaves what it shares.
pub(crate) struct NewNamespaces {
    pub creds: Arc<Credentials>,
    pub nsproxy: Arc<NsProxy>,
}

impl Current {
    /// The caller's credentials in a new user namespace. ENOSPC, EPERM.
    fn in_new_user_ns(&self) -> Result<Credentials> {
        let creds = self.creds();
        let setfcap = creds.own_ns_capable(Cap::SETFCAP);
        let maker = Maker { user: creds.euid, group: creds.egid, setfcap };
        let ns = creds.user_ns.child(self.kernel().inums.next(), maker)?;
        if self.fs().is_chrooted() {
            return Err(Errno::EPERM);
        }
        let mut new = Credentials::clone(&creds);
        new.enter(ns);
        Ok(new)
    }

    /// What `flags` (CLONE_NEW*) ask for, but for mounts, for a task in `cgroup`. EPERM without CAP_SYS_ADMIN where it is to be.
    pub(crate) fn new_namespaces(&self, flags: u64, cgroup: Arc<Cgroup>) -> Result<NewNamespaces> {
        let creds = match flags & CLONE_NEWUSER {
            0 => Creds::into_inner(self.creds()),
            _ => Arc::new(self.in_new_user_ns()?),
        };
        let old = self.task.nsproxy();
        if flags & (IN_SET | CLONE_NEWNS) == 0 {
            return Ok(NewNamespaces { creds, nsproxy: old });
        }
        if !creds.ns_capable(&creds.user_ns, Cap::SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        if flags & CLONE_NEWPID != 0 && !Arc::ptr_eq(&old.pid_for_children, self.task.pids()) {
            return Err(Errno::EINVAL);
        }
        let kernel = self.kernel();
        let by = Making {
            user_ns: &creds.user_ns,
            euid: creds.euid,
            fs_ids: (creds.fsuid, creds.fsgid),
            inums: &kernel.inums,
            devices: &kernel.vfs.resources.device_numbers,
            cgroup,
        };
        let nsproxy = if flags & IN_SET == 0 { old } else { Arc::new(old.with_new(flags, &by)?) };
        Ok(NewNamespaces { creds, nsproxy })
    }

    /// unshare(2).
    pub fn unshare(&mut self, flags: u64) -> Result<()> {
        let has = |flag: u64| flags & flag != 0;
        let user = flags & CLONE_NEWUSER != 0;
        let alone = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
        if (has(alone) || user) && self.task.group.threads().len() > 1 {
            return Err(Errno::EINVAL);
        }
        let new = self.new_namespaces(flags, self.task.cgroup.group())?;
        if flags & (CLONE_NEWNS | CLONE_NEWUSER) != 0 || has(CLONE_FS) {
            let fs = self.fs().fork_copy();
            if flags & CLONE_NEWNS != 0 {
                fs.unshare_mounts(self, &new.creds.user_ns)?;
            }
            self.set_fs(fs);
        }
        if has(CLONE_SYSVSEM) || has(CLONE_NEWIPC) {
            let undo = self.task.sem_undo.lock().take();
            drop(undo);
        }
        if has(CLONE_FILES) {
            let table = self.fd_table().fork_copy()?;
            self.set_fds(table);
        }
        if user {
            self.task.set_creds(Credentials::clone(&new.creds));
        }
        self.task.set_nsproxy(new.nsproxy);
        Ok(())
    }

    /// Whether the flags of clone(2) may stand together, as far as namespaces go. EINVAL.
    pub(crate) fn check_clone_namespaces(&self, flags: u64) -> Result<()> {
        let has = |bits: u64| flags & bits != 0;
        let thread = has(CLONE_THREAD);
        let elsewhere = || !Arc::ptr_eq(&self.task.nsproxy().pid_for_children, self.task.pids());
        if thread && (has(CLONE_NEWUSER | CLONE_NEWPID) || elsewhere()) { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// The namespaces of the caller, for setns(2) to change.
    pub fn joining(&self) -> Joining {
        Joining {
            creds: Creds::into_inner(self.creds()),
            nsproxy: NsProxy::clone(&self.task.nsproxy()),
            mounts: None,
        }
    }

    /// The caller enters what was chosen. Errors, before anything has changed, where the vDSO cannot be adapted to the clocks of
    /// another time namespace.
    pub fn join(&mut self, joining: Joining) -> Result<()> {
        let Joining { creds, nsproxy, mounts } = joining;
        if !Arc::ptr_eq(&nsproxy.time, &self.task.nsproxy().time) {
            nsproxy.time.freeze();
            if nsproxy.time.is_shifted() {
                let vdso = self.kernel().platform.limits().vdso;
                crate::vdso::ask_for_clocks(&mut *self.ctx, vdso)?;
            }
        }
        if !Arc::ptr_eq(&creds.user_ns, &self.creds().user_ns) {
            self.task.set_creds(Credentials::clone(&creds));
        }
        if let Some(ns) = mounts {
            self.fs().enter_mounts(&ns);
        }
        self.task.set_nsproxy(Arc::new(nsproxy));
        self.sync_report_all();
        Ok(())
    }
}

/// What setns(2) is about to put into force.
pub struct Joining {
    creds: Arc<Credentials>,
    nsproxy: NsProxy,
    mounts: Option<Arc<MountNs>>,
}

impl Joining {
    /// Chooses a namespace. EPERM without the capabilities, EINVAL for one that the caller cannot enter.
    pub fn choose(&mut self, c: &Current, ns: &Namespace) -> Result<()> {
        let me = c.creds();
        let admin = |of: &UserNamespace| me.ns_capable(of, Cap::SYS_ADMIN);
        if let Namespace::User(ns) = ns {
            let shares = c.task.group.threads().len() > 1 || c.shares_fs_with_others();
            if Arc::ptr_eq(ns, &me.user_ns) || shares {
                return Err(Errno::EINVAL);
            }
            if !admin(ns) {
                return Err(Errno::EPERM);
            }
            let mut creds = Credentials::clone(&me);
            creds.enter(ns.clone());
            self.creds = Arc::new(creds);
            return Ok(());
        }
        if matches!(ns, Namespace::Time(_)) && c.task.group.threads().len() > 1 {
            return Err(Errno::EUSERS);
        }
        let chroot = || me.ns_capable(&self.creds.user_ns, Cap::SYS_CHROOT);
        let mounts = matches!(ns, Namespace::Mount(_));
        if !admin(ns.user_ns()) || mounts && !chroot() || !admin(&self.creds.user_ns) {
            return Err(Errno::EPERM);
        }
        match ns.clone() {
            Namespace::Cgroup(ns) => self.nsproxy.cgroup = ns,
            Namespace::Ipc(ns) => self.nsproxy.ipc = ns,
            Namespace::Mount(_) if c.shares_fs_with_others() => return Err(Errno::EINVAL),
            Namespace::Mount(ns) => self.mounts = Some(ns),
            Namespace::Net(ns) => self.nsproxy.net = ns,
            Namespace::Pid(ns) if !ns.is_within(c.task.pids()) => return Err(Errno::EINVAL),
            Namespace::Pid(ns) => self.nsproxy.pid_for_children = ns,
            Namespace::Time(ns) => {
                self.nsproxy.time_for_children = ns.clone();
                self.nsproxy.time = ns;
            }
            Namespace::User(_) => {}
            Namespace::Uts(ns) => self.nsproxy.uts = ns,
        }
        Ok(())
    }
}

impl Task {
    /// The namespaces that `flags` (CLONE_NEW*) name, in the order in which setns(2) enters them. ESRCH once it has ended.
    pub fn namespaces(&self, flags: u64) -> Result<Vec<Namespace>> {
        let set = self.nsproxy();
        let mounts = self.fs().ok_or(Errno::ESRCH)?.view().ns.clone();
        let all = [
            Namespace::User(self.creds().user_ns.clone()),
            Namespace::Mount(mounts),
            Namespace::Uts(set.uts.clone()),
            Namespace::Ipc(set.ipc.clone()),
            Namespace::Pid(self.pids().clone()),
            Namespace::Cgroup(set.cgroup.clone()),
            Namespace::Net(set.net.clone()),
            Namespace::Time(set.time.clone()),
        ];
        Ok(all.into_iter().filter(|ns| ns.flag() & flags != 0).collect())
    }
}
