//! Host names across sandboxes. The kernel inside keeps a container's name; it is also written into the uts namespace
//! that the sandbox has on the host, where a container that is to share it (a pod's) finds it.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::Builder;

/// The name in a uts namespace.
pub(crate) fn read(namespace: &Path) -> io::Result<String> {
    inside(namespace, || Ok(rustix::system::uname().nodename().to_string_lossy().into_owned()))
}

/// Sets it.
pub(crate) fn write(namespace: &Path, name: &str) -> io::Result<()> {
    inside(namespace, || Ok(rustix::system::sethostname(name.as_bytes())?))
}

/// Does something from a thread in a uts namespace: the namespace is that thread's alone.
fn inside<T: Send>(namespace: &Path, action: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let file = File::open(namespace)?;
    let enter = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::HostNameAndNISDomainName))?;
        action()
    };
    std::thread::scope(|scope| match Builder::new().spawn_scoped(scope, enter)?.join() {
        Ok(result) => result,
        Err(_) => Err(io::ErrorKind::Other.into()),
    })
}
