//! The interfaces of the container's network namespace under the stack inside.

use crate::errors::other;
use crate::pod::Pod;
use spec::{Interfaces, StartError};
use std::os::fd::OwnedFd;
use task::Kernel;

/// Shows the interfaces to the guest, and gives the stack those that a packet socket comes with.
pub(crate) fn attach(
    kernel: &Kernel,
    pod: &Pod,
    interfaces: Interfaces,
    sockets: Vec<OwnedFd>,
) -> Result<(), StartError> {
    let net = &kernel.first.namespaces.net;
    if !sockets.is_empty() {
        hostlink::attach((net.stack(), *net.clock()), &mut pod.links.lock(), &interfaces, sockets)
            .map_err(|error| other(format!("network interfaces: {error}")))?;
    }
    net.set_interfaces(interfaces);
    net.note_beginning();
    Ok(())
}
