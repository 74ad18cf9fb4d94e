//! NETLINK_KOBJECT_UEVENT: messages to udev and libudev about devices that are added, removed or renamed. See
//! netlink(7) and udev(7).
//!
//! The kernel reports interfaces to group 1. A process that may administer the namespace sends to groups and sockets
//! (udevd reports devices to programs in group 2). By a request it can have the kernel report an event to group 1.

use super::asker::Asker;
use super::error::Result;
use super::sockets::{Origin, Sockets};
use crate::ops::PeerCred;
use abi::Errno;
use netstack::LOOPBACK;
use netstack::iface::Iface;
use netstack::monitor::How;
use rights::Cap;
use std::collections::btree_map::Entry;

/// The protocol of such sockets.
pub(super) const NETLINK_KOBJECT_UEVENT: i32 = 15;
/// Groups that a socket can join by an option.
pub(super) const GROUPS: i32 = 32;
/// The group that the kernel tells.
const KERNEL: u32 = 1;
/// Longest message (UEVENT_BUFFER_SIZE).
const LONGEST: usize = 2048;

impl Sockets {
    /// Tells of an interface that is new, gone, or called by another name. The stack may be locked.
    pub(super) fn device_changed(&self, iface: &Iface, how: How) {
        if iface.index == LOOPBACK {
            return;
        }
        let name = iface.name();
        let mut known = self.devices.lock();
        let (action, old) = match (how, known.entry(iface.index)) {
            (How::Gone | How::Moved { .. }, Entry::Occupied(there)) => {
                there.remove();
                ("remove", None)
            }
            (How::Gone | How::Moved { .. }, Entry::Vacant(_)) => return,
            (_, Entry::Vacant(new)) => {
                new.insert(name.clone());
                ("add", None)
            }
            (_, Entry::Occupied(there)) if *there.get() == name => return,
            (_, Entry::Occupied(mut there)) => ("move", Some(there.insert(name.clone()))),
        };
        drop(known);
        if !self.has_members(NETLINK_KOBJECT_UEVENT, KERNEL) {
            return;
        }
        let path = |name: &str| format!("/devices/virtual/net/{name}");
        let kind = match iface.about().kind {
            "bridge" => "DEVTYPE=bridge\0",
            "vlan" => "DEVTYPE=vlan\0",
            _ => "",
        };
        let old = old.map_or(String::new(), |old| format!("DEVPATH_OLD={}\0", path(&old)));
        let text = format!(
            "{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM=net\0{old}{kind}INTERFACE={name}\0IFINDEX={}\0{}",
            iface.index,
            self.sequence(),
            path = path(&name),
        );
        self.multicast(NETLINK_KOBJECT_UEVENT, KERNEL, 0, text.as_bytes());
    }

    fn sequence(&self) -> String {
        format!("SEQNUM={}\0", self.nets.next_event())
    }
}

/// A request: the kernel tells of what is in the message, with a number. EPERM; EINVAL when it is too long.
pub(super) fn answer(asker: &Asker<'_>) -> Result<Option<Vec<Vec<u8>>>> {
    if !asker.cx.creds().ns_capable(asker.net.user_ns(), Cap::SYS_ADMIN) {
        return Err(Errno::EPERM.into());
    }
    let sockets = &asker.net.netlink;
    let mut text = asker.body().to_vec();
    text.extend(sockets.sequence().bytes());
    if text.len() > LONGEST {
        return Err(Errno::EINVAL.into());
    }
    let from = Origin { port: 0, cred: Some(PeerCred::real(asker.cx)) };
    for member in sockets.members(NETLINK_KOBJECT_UEVENT, KERNEL) {
        member.deliver_from(KERNEL, &text, &from);
    }
    Ok(None)
}
