//! Interfaces that move from one stack to another.
//!
//! No lock of one stack is held while another's is taken. The caller lets one change of interfaces happen at a time (the kernel's
//! `rtnl`); packets go on meanwhile, and those under way to an interface that moves are lost.

use crate::iface::Iface;
use crate::iface::LOOPBACK;
use crate::monitor::How;
use crate::stack::Stack;
use abi::Errno;
use std::sync::Arc;

impl Stack {
    /// Moves an interface to another stack, where it has the name `name`. It keeps its hardware address, MTU, counters and further
    /// names, and its index if that is free; it loses its addresses, routes and bridge, and is down. `EINVAL` for an interface
    /// that cannot move, `EEXIST` when one of its names is taken there.
    pub fn move_link(self: &Arc<Self>, index: u32, to: &Arc<Stack>, name: &str) -> Result<Arc<Iface>, Errno> {
        let link = self.link(index).ok_or(Errno::ENODEV)?;
        let device = link.device().filter(|device| device.is_movable() && index != LOOPBACK);
        let device = device.ok_or(Errno::EINVAL)?.clone();
        if Arc::ptr_eq(self, to) {
            return Ok(link);
        }
        // All that can fail comes first.
        let moved = to.take_in(&link, name.to_owned())?;
        let above = self.vlans_above(index);
        let gone = self.let_go(index, How::Moved { stack: to.number, index: moved.index });
        if !matches!(gone, Ok(Some(_))) {
            to.let_go(moved.index, How::Gone)?;
            return Err(Errno::ENODEV);
        }
        device.moved(to, &moved);
        for (stack, vlan) in above {
            self.vlan_follows((index, &vlan), to, (&stack, &moved));
        }
        to.changed();
        to.named(&moved);
        Ok(moved)
    }

    /// Removes every interface but the loopback interface: the stack's namespace ends.
    pub fn remove_links(self: &Arc<Self>) {
        for link in self.links().iter().filter(|link| link.index != LOOPBACK) {
            // It may have gone with another one.
            let _ = self.remove_link(link.index);
        }
    }
}
