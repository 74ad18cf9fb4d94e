//! File systems that show a namespace of the kernel, and those that are made of their options.

use crate::files::{SuperKind, SuperState};
use container::Container;
use nsproxy::{Namespace, SpaceSaver, Spaces};
use rights::{Cap, Credentials};
use std::cell::RefCell;
use std::sync::{Arc, Weak};
use task::{Jobs, Kernel};
use tmpfs::{Options, TmpFs};
use vfs::{As, FileSystem, Internal, SuperBlock};

/// Which namespace a file system shows; `None` for another one.
pub(crate) fn shows(
    containers: &[&Arc<Container>],
    spaces: &RefCell<SpaceSaver>,
    sb: &Arc<SuperBlock>,
) -> Option<SuperKind> {
    let address = |fs: *const dyn FileSystem| fs.cast::<()>();
    let this = address(Arc::as_ptr(&sb.fs));
    match sb.fs.kind() {
        "proc" => {
            let pids = kernfs::instance(&sb.root.inode)?.pids.clone();
            Some(SuperKind::Processes(spaces.borrow_mut().note(&Namespace::Pid(pids))))
        }
        "mqueue" => {
            let spaces = spaces.borrow();
            let mut all = spaces.ipc().chain(containers.iter().map(|one| &one.namespaces.ipc));
            let ns = all.find(|ns| Arc::as_ptr(&ns.mqueue).cast::<()>() == this)?;
            Some(SuperKind::Queues(ns.inum))
        }
        "cgroup2" => {
            let spaces = spaces.borrow();
            let mut all = spaces.cgroups().chain(containers.iter().map(|one| &one.namespaces.cgroup));
            let shown = all.find(|ns| {
                let shown = ns.shown.lock().as_ref().and_then(Weak::upgrade);
                shown.is_some_and(|fs| address(Arc::as_ptr(&fs)) == this)
            });
            Some(SuperKind::Groups(shown?.inum))
        }
        _ => None,
    }
}

/// Makes one of these. The error is a sentence for the user.
pub(crate) fn make(
    kernel: &Arc<Kernel>,
    spaces: &Spaces,
    saved: &SuperState,
) -> Result<Arc<SuperBlock>, String> {
    let fstype = saved.fstype.as_str();
    let failed = |error: abi::Errno| format!("a file system of the type {fstype}: {error:?}");
    let missing = || format!("a file system of the type {fstype} shows a namespace that is not there");
    let owner = spaces.user(saved.owner).ok_or_else(missing)?;
    let fs: Arc<dyn FileSystem> = match (&saved.kind, fstype) {
        (SuperKind::Processes(inum), "proc") => {
            procfs::new(kernel.clone(), spaces.pid(*inum).ok_or_else(missing)?)
        }
        (SuperKind::Queues(inum), "mqueue") => spaces.ipc(*inum).ok_or_else(missing)?.mqueue.clone(),
        (SuperKind::Groups(inum), "cgroup2") => {
            cgroupfs::tree(kernel, &*spaces.cgroup(*inum).ok_or_else(missing)?)
        }
        (SuperKind::Plain, "sysfs") => sysfs::new(kernel.clone()),
        (SuperKind::Plain, _) => {
            let creds = Arc::new(Credentials::root(&owner, Cap::ALL));
            let options = saved.options.as_bytes();
            let cx = Internal::new(&kernel.vfs);
            match fstype {
                "tmpfs" => {
                    let options = Options::parse_for(&creds, options).map_err(failed)?;
                    TmpFs::new(&kernel.memory, options)
                }
                "ramfs" => TmpFs::ramfs(&kernel.memory, &creds, options).map_err(failed)?,
                "devtmpfs" => TmpFs::devtmpfs(&kernel.memory),
                "devpts" => {
                    let cx = As::new(&cx, &creds);
                    tty::Devpts::new(Jobs::of(kernel), &cx, options).map_err(failed)?
                }
                _ => return Err(failed(abi::Errno::ENODEV)),
            }
        }
        _ => return Err(failed(abi::Errno::EINVAL)),
    };
    Ok(SuperBlock::new(fs))
}
