//! The interfaces of the container's network namespace under the stack inside.

use crate::errors::other;
use crate::pod::Pod;
use hostlink::Links;
use spec::{Interfaces, StartError};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use task::Kernel;

/// Shows the interfaces to the guest. With the handles of a namespace that was taken over, the stack uses them, and follows
/// their changes.
pub(crate) fn attach(
    kernel: &Arc<Kernel>,
    pod: &Arc<Pod>,
    interfaces: Interfaces,
    handles: Vec<OwnedFd>,
) -> Result<(), StartError> {
    let net = &kernel.first.namespaces.net;
    if !handles.is_empty() {
        let weak = (Arc::downgrade(kernel), Arc::downgrade(pod));
        let changed = move || {
            if let (Some(kernel), Some(pod)) = (weak.0.upgrade(), weak.1.upgrade()) {
                follow(&kernel, &pod);
            }
        };
        let mut links = pod.links.lock();
        let _rtnl = net.rtnl();
        let attached = Links::attach((net.stack(), *net.clock()), interfaces.clone(), handles, changed);
        *links = Some(attached.map_err(|error| other(format!("network interfaces: {error}")))?);
    }
    net.set_interfaces(interfaces);
    net.note_beginning();
    Ok(())
}

/// Does inside what was done to the namespace outside.
pub(crate) fn follow(kernel: &Kernel, pod: &Pod) {
    let net = &kernel.first.namespaces.net;
    let mut links = pod.links.lock();
    let Some(links) = links.as_mut() else { return };
    let _rtnl = net.rtnl();
    let before = net.stack().layer();
    if let Some(interfaces) = links.follow((net.stack(), *net.clock())) {
        net.set_interfaces(interfaces);
        net.note_followed(&before);
    }
}

/// Nothing leaves the sandbox by the interfaces any more, and nothing that arrives there is answered.
pub(crate) fn silence(kernel: &Kernel, pod: &Pod) {
    let net = &kernel.first.namespaces.net;
    let links = pod.links.lock();
    let _rtnl = net.rtnl();
    links.iter().for_each(|links| links.silence(net.stack()));
}

/// The sandbox ends: it uses the interfaces no more.
pub(crate) fn close(pod: &Pod) {
    if let Some(links) = pod.links.lock().take() {
        links.close();
    }
}
