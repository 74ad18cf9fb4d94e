//! The interfaces, addresses and routes of a network namespace of the host: reading them, being told of changes, and taking
//! them over for the stack inside. See rtnetlink(7).
//!
//! The container's manager (Docker's hooks, CNI plugins, Podman's netavark) makes interfaces, addresses and routes in
//! the namespace of the container's processes, before the container starts and later.
//!
//! Key types: [`Rtnetlink`], [`Listeners`], [`Handles`]. The command line calls [`take_over`]; the kernel inside has the handles from then on.

#![forbid(unsafe_code)]

mod inward;
mod listeners;
mod netlink;
mod parse;
mod rtnetlink;
mod rules;
mod takeover;
mod watch;

pub use inward::{HOST_SIDE, HOST_SIDE_V6};
pub use listeners::Listeners;
pub use rtnetlink::Rtnetlink;
pub use takeover::{Handles, SPARES, take_over};
pub use watch::drain;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use spec::Interfaces;
use std::io;
use std::os::fd::BorrowedFd;

/// What the namespace behind `namespace` (a file of /proc/PID/ns) has. Fails with EPERM without CAP_SYS_ADMIN over it.
pub fn look(namespace: BorrowedFd<'_>) -> io::Result<Interfaces> {
    within(namespace, look_here)
}

/// What the namespace has that the caller is in, which anybody may ask.
pub fn look_here() -> io::Result<Interfaces> {
    Rtnetlink::new()?.interfaces()
}

/// Whether the namespace of a process has more interfaces than `lo`: the cheap question before [`look`].
pub fn has_more_than_loopback(pid: i32) -> bool {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    let names = listed.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    names.into_iter().any(|name| name != "lo")
}

/// Calls a function in a namespace, in a thread of its own: not every thread could go back to where it was.
fn within<T: Send>(namespace: BorrowedFd<'_>, call: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let inside = || {
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
        call()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, inside)?;
        thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn own_namespace() {
        let own = std::fs::File::open("/proc/self/ns/net").unwrap();
        match look(own.as_fd()) {
            Ok(shown) => {
                assert_eq!(shown.links[0].name, "lo");
                let indices: Vec<u32> = shown.links.iter().map(|link| link.index).collect();
                assert!(shown.routes.iter().all(|route| indices.contains(&route.interface)));
            }
            // An ordinary user may not enter even where he is.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert!(look(std::fs::File::open("/proc/self/ns/uts").unwrap().as_fd()).is_err());
    }
}
