//! An entrance for the fuzzer: a datagram of requests in a namespace of its own.

use super::{NETLINK_GENERIC, NETLINK_SOCK_DIAG, NetlinkFamily, QUEUE, sockaddr, wire};
use crate::family::Family;
use crate::net_ns::NetNamespace;
use crate::ops::{Control, Names, SendRequest};
use abi::{Errno, Result};
use spec::Interfaces;
use std::sync::Arc;
use user_ns::UserNamespace;
use vfs::testing::TestCaller;
use vfs::{Caller, InodeRef};

struct NoNames;

impl Names for NoNames {
    fn make(&self, _cx: &dyn Caller, _path: &[u8], _kind: i32) -> Result<InodeRef> {
        Err(Errno::EINVAL)
    }
    fn find(&self, _cx: &dyn Caller, _path: &[u8]) -> Result<InodeRef> {
        Err(Errno::EINVAL)
    }
}

/// The first byte chooses protocol and options, the rest is one datagram, sent twice. Returns the kinds of what came back, with
/// the error numbers.
///
/// # Panics
/// When an answer is not whole messages, or more waits than may.
pub fn run(input: &[u8]) -> Vec<(u16, i32)> {
    let Some((choice, data)) = input.split_first() else { return Vec::new() };
    let cx = TestCaller::with_caps(u64::MAX);
    let net = NetNamespace::new(1, UserNamespace::initial(), Interfaces::loopback(), &Arc::default());
    net.show_stack();
    let protocol = match choice % 4 {
        0 => NETLINK_SOCK_DIAG,
        1 => NETLINK_GENERIC,
        _ => libc::NETLINK_ROUTE,
    };
    let make = |protocol| NetlinkFamily.create(&cx, &net, libc::SOCK_RAW, protocol);
    let (Ok(socket), Ok(member)) = (make(protocol), make(libc::NETLINK_ROUTE)) else { return Vec::new() };
    for option in [10, 11, 12].into_iter().filter(|option| choice >> (option - 6) & 1 != 0) {
        let _ = socket.set_option(&cx, super::SOL_NETLINK, option, &1i32.to_ne_bytes());
    }
    let _ = member.bind(&cx, &NoNames, &sockaddr(0, u32::MAX));
    let mut out = Vec::new();
    let mut buf = vec![0; 64 << 10];
    for _ in 0..2 {
        let mut request =
            SendRequest { data, addr: None, control: Control::default(), flags: 0, block: None };
        let _ = socket.send(&cx, &NoNames, &mut request);
        for queue in [&socket, &member] {
            let mut total = 0;
            loop {
                match queue.recv(&cx, &mut buf, 0) {
                    Ok(got) => {
                        total += got.full;
                        messages(&buf[..got.len], &mut out);
                    }
                    Err(Errno::ENOBUFS) => {}
                    Err(_) => break,
                }
            }
            assert!(total <= 4 * QUEUE, "{total} bytes came of one datagram");
        }
    }
    out.dedup();
    out
}

fn messages(mut bytes: &[u8], out: &mut Vec<(u16, i32)>) {
    while !bytes.is_empty() {
        let (header, message, rest) = wire::next(bytes).expect("a whole message");
        let number = message.get(wire::HEADER..).and_then(<[u8]>::first_chunk).copied();
        let error = number.map_or(0, i32::from_ne_bytes);
        let tells = [libc::NLMSG_ERROR as u16, libc::NLMSG_DONE as u16].contains(&header.kind);
        out.push((header.kind, if tells { error } else { 0 }));
        bytes = rest;
    }
}
