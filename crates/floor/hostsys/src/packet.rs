//! Packet sockets: an interface's frames with virtio-net headers. See packet(7).

use crate::check;
use abi::Result;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Bytes that may wait in either direction: some dozen of the largest segments.
const BUFFER: i32 = 8 << 20;
const PACKET_IGNORE_OUTGOING: i32 = 23;
const PACKET_VNET_HDR: i32 = 15;

/// A non-blocking socket in the caller's network namespace that is to be bound to an interface. Frames come and go behind a
/// `struct virtio_net_hdr`. Those of VLANs do not come. Needs CAP_NET_RAW there.
pub fn open() -> Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved. Without a protocol nothing is received yet.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    check(fd.into())?;
    // SAFETY: the host has just made this descriptor for us; it has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&fd, libc::SOL_PACKET, PACKET_VNET_HDR, 1)?;
    set(&fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    untagged(&fd)?;
    // Without the right to more, the usual buffers have to do.
    for name in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
        let _ = set(&fd, libc::SOL_SOCKET, name, BUFFER);
    }
    Ok(fd)
}

/// Has a socket receive all frames of interface `index` of its network namespace, and send by it. When the
/// interface has gone, the socket can be bound again. ENODEV when there is no such interface.
pub fn bind(fd: impl AsFd, index: u32) -> Result<()> {
    // SAFETY: plain data for which all zeroes is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer is to a local structure of that length.
    check(unsafe { libc::bind(fd.as_fd().as_raw_fd(), (&raw const address).cast(), length) }.into()).map(drop)
}

/// Has a socket leave out frames of VLANs. Their tags are not in the frames any more, so they would look like those without one.
fn untagged(fd: &OwnedFd) -> Result<()> {
    let op = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut code = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG) as u32),
        // The number of the VLAN; a tag without one gives a priority.
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0xfff),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0),
        op(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        op(libc::BPF_RET | libc::BPF_K, 0, 0),
    ];
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() };
    let length = size_of_val(&program) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the pointers are to a local structure and to a local array, with their lengths; the host copies both.
    check(
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const program).cast(), length) }.into(),
    )
    .map(drop)
}

fn set(fd: &OwnedFd, level: i32, name: i32, value: i32) -> Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer is to a local int, and the length is its size; none of the options holds a pointer.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) }.into())
        .map(drop)
}
