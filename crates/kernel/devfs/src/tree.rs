//! The nodes of /dev.

use abi::stat::makedev;
use abi::{Result, Signal};
use std::sync::Arc;
use vfs::{Caller, Cap, Credentials, Creds, InodeRef, NewNode};
use wait::Waiter;

/// The kernel as the maker of the nodes.
struct Kernel;

impl Caller for Kernel {
    fn creds(&self) -> Creds {
        Credentials::root(Cap::ALL).in_use()
    }
    fn waiter(&self) -> Arc<Waiter> {
        Waiter::new()
    }
    fn pid(&self) -> i32 {
        0
    }
    fn tid(&self) -> i32 {
        0
    }
    fn pgid(&self) -> i32 {
        0
    }
    fn sid(&self) -> i32 {
        0
    }
    fn rlimit(&self, _resource: i32) -> u64 {
        u64::MAX
    }
    fn raise(&self, _sig: Signal) {}
    fn umask(&self) -> u32 {
        0
    }
    fn blocks_or_ignores(&self, _sig: Signal) -> bool {
        true
    }
}

/// Makes devices, links and directories in an empty root.
pub(crate) fn fill(root: &InodeRef) -> Result<()> {
    let make = |name: &str, node: NewNode, mode| root.create(&Kernel, name.as_bytes(), &node, mode, 0, 0);
    for (name, major, minor) in
        [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)]
    {
        make(name, NewNode::Char(makedev(major, minor)), 0o666)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        make(name, NewNode::Symlink(target.into()), 0o777)?;
    }
    for (name, mode) in [("shm", 0o1777), ("pts", 0o755), ("mqueue", 0o1777)] {
        make(name, NewNode::Directory, mode)?;
    }
    Ok(())
}
