//! TUN interfaces: a file takes and gives the packets of a network interface. See Linux's networking/tuntap.

use crate::check;
use abi::{Errno, Result};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};

/// Requests of `linux/if_tun.h`.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca_u32 as libc::Ioctl;
const TUNSETPERSIST: libc::Ioctl = 0x4004_54cb_u32 as libc::Ioctl;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0_u32 as libc::Ioctl;
const TUNSETIFINDEX: libc::Ioctl = 0x4004_54da_u32 as libc::Ioctl;
/// The file takes partial checksums, and segments that are not cut.
const OFFLOADS: libc::c_ulong = 0x01 | 0x02 | 0x04 | 0x08;

/// The file of the interface `name` of the caller's network namespace, which is made with the number `index` if it is not
/// there. Packets come and go bare, behind a `struct virtio_net_hdr`. The file does not block. The interface stays when the
/// file is closed: to remove it takes the host tens of milliseconds, in which the closing process cannot end. It goes with
/// its namespace. EBUSY while another file has it. Needs CAP_NET_ADMIN there.
pub fn open(name: &str, index: u32) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(|error| Errno::from_raw(error.raw_os_error()))?;
    let mut request = [0u8; size_of::<libc::ifreq>()];
    let room = &mut request[..libc::IFNAMSIZ - 1];
    room.get_mut(..name.len()).ok_or(Errno::EINVAL)?.copy_from_slice(name.as_bytes());
    let kind = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
    request[libc::IFNAMSIZ..libc::IFNAMSIZ + 2].copy_from_slice(&kind.to_ne_bytes());
    let fd = file.as_raw_fd();
    // SAFETY: the pointer is to a local integer, which the host reads.
    check(unsafe { libc::ioctl(fd, TUNSETIFINDEX, &raw const index) }.into())?;
    // SAFETY: the pointer is to a local array of the size of `struct ifreq`, which the host reads and writes.
    check(unsafe { libc::ioctl(fd, TUNSETIFF, request.as_mut_ptr()) }.into())?;
    // SAFETY: these two requests take a number.
    check(unsafe { libc::ioctl(fd, TUNSETOFFLOAD, OFFLOADS) }.into())?;
    // SAFETY: as above.
    check(unsafe { libc::ioctl(fd, TUNSETPERSIST, 1 as libc::c_ulong) }.into())?;
    Ok(file)
}
