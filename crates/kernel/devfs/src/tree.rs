//! The nodes of /dev.

use abi::Result;
use abi::stat::makedev;
use vfs::{InodeRef, Internal, NewNode};

/// Makes devices and links in an empty root, and if asked directories for what is mounted there.
pub(crate) fn fill(cx: &Internal, root: &InodeRef, directories: bool) -> Result<()> {
    let make = |name: &str, node: NewNode, mode| root.dir()?.create(cx, name.as_bytes(), &node, mode, 0, 0);
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
    let all = [("shm", 0o1777), ("pts", 0o755), ("mqueue", 0o1777)];
    for (name, mode) in all.into_iter().filter(|_| directories) {
        make(name, NewNode::Directory, mode)?;
    }
    Ok(())
}
