//! Options of levels IPPROTO_UDP and IPPROTO_UDPLITE: udp(7), udplite(7).

use crate::value::{int, read_int};
use abi::{Errno, Result};
use netstack::datagram::{DatagramSocket, Protocol};
use socket::NetNamespace;
use std::sync::Arc;

/// UDP_CORK.
const CORK: i32 = 1;
/// UDP_SEGMENT.
const SEGMENT: i32 = 103;
/// UDP_NO_CHECK6_TX.
const NO_CHECK6_TX: i32 = 101;
/// UDP_NO_CHECK6_RX.
const NO_CHECK6_RX: i32 = 102;
/// UDP_GRO.
const GRO: i32 = 104;
/// UDPLITE_SEND_CSCOV.
const SEND_COVERAGE: i32 = 10;
/// UDPLITE_RECV_CSCOV.
const RECEIVE_COVERAGE: i32 = 11;

/// A coverage as Linux takes it: 0, or at least the header.
fn coverage(v: i32) -> u16 {
    if v == 0 { 0 } else { u16::try_from(v.max(8)).unwrap_or(u16::MAX) }
}

/// getsockopt(2).
pub(crate) fn get(net: &NetNamespace, socket: &Arc<DatagramSocket>, name: i32) -> Result<Vec<u8>> {
    socket.configure(net.now(), |o| match name {
        // Sockets of UDP have these, too; they cannot be set there.
        SEND_COVERAGE => Ok(int(o.send_coverage.into())),
        RECEIVE_COVERAGE => Ok(int(o.receive_coverage.unwrap_or(0).into())),
        CORK => Ok(int(o.cork as i32)),
        NO_CHECK6_TX => Ok(int(o.no_checksum6 as i32)),
        NO_CHECK6_RX => Ok(int(o.accept_no_checksum6 as i32)),
        GRO => Ok(int(o.gro as i32)),
        SEGMENT => Ok(int(o.segment.into())),
        _ => Err(Errno::ENOPROTOOPT),
    })
}

/// setsockopt(2).
pub(crate) fn set(net: &NetNamespace, socket: &Arc<DatagramSocket>, name: i32, value: &[u8]) -> Result<()> {
    let v = read_int(value)?;
    let lite = socket.protocol() == Protocol::UdpLite;
    socket.configure(net.now(), |o| {
        match name {
            CORK => o.cork = v != 0,
            NO_CHECK6_TX => o.no_checksum6 = v != 0,
            NO_CHECK6_RX => o.accept_no_checksum6 = v != 0,
            GRO => o.gro = v != 0,
            SEND_COVERAGE if lite => o.send_coverage = coverage(v),
            RECEIVE_COVERAGE if lite => o.receive_coverage = Some(coverage(v)),
            SEGMENT => o.segment = u16::try_from(v).map_err(|_| Errno::EINVAL)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    })
}
