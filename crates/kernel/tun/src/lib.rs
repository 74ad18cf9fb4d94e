//! /dev/net/tun: interfaces with a program as their other end. See tun(4) of Linux's networking documentation.
//!
//! A file of the device names an interface by TUNSETIFF. The interface is a link of the namespace's stack; frames that the stack
//! sends wait in a [`netstack::queue::QueueDevice`] for read(2), and write(2) gives the stack a frame that it receives. IFF_TUN
//! interfaces carry IP packets, IFF_TAP interfaces Ethernet frames.
//!
//! Neighbours: `netstack` (the links), `socket` (the namespace that owns the stack), `vfs` (files and drivers). Lock
//! order: the table of devices, then a device's state, then the stack's locks. The wait queue that a device notifies is
//! a leaf, because the stack sends with locks held. A checkpoint keeps a device's name, flags, owner and group.

#![forbid(unsafe_code)]

mod device;
mod file;
mod ioctl;
mod names;
mod packet;
mod saved;

pub use saved::{TunFileState, TunState, file_state, fill, restore, restore_file, saved};

use crate::device::Tuns;
use crate::file::TunFile;
use abi::Errno;
use socket::NetNamespace;
use std::sync::Arc;
use vfs::file::devices::{Devices, Opened};

/// Major number of miscellaneous devices, and the minor number of this one.
const MAJOR: u32 = 10;
const MINOR: u32 = 200;

/// Registers the driver; its interfaces are those of `net`. To callers in other namespaces the device is not there (ENODEV).
pub fn register(devices: &Devices, net: &Arc<NetNamespace>) {
    let (tuns, own) = (Tuns::new(net), net.inum);
    let shared: Arc<dyn std::any::Any + Send + Sync> = tuns.clone();
    net.keep_programs(&shared);
    let open = move |cx: &dyn vfs::Caller, _: &vfs::Path, _: &vfs::InodeRef, _: i32| {
        if cx.net_ns().is_some_and(|net| net != own) {
            return Err(Errno::ENODEV.into());
        }
        Ok(Opened::Ops(Arc::new(TunFile::new(&tuns))))
    };
    devices.register_char("misc", MAJOR, MINOR..=MINOR, Arc::new(open));
}
