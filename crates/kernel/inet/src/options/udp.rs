//! Options of level IPPROTO_UDP: udp(7).

use super::{int, read_int};
use abi::{Errno, Result};
use netstack::datagram::DatagramSocket;
use socket::net_ns::now;
use std::sync::Arc;

/// UDP_CORK.
const CORK: i32 = 1;
/// UDP_SEGMENT.
const SEGMENT: i32 = 103;

/// getsockopt(2).
pub(crate) fn get(socket: &Arc<DatagramSocket>, name: i32) -> Result<Vec<u8>> {
    socket.configure(now(), |o| match name {
        CORK => Ok(int(o.cork as i32)),
        SEGMENT => Ok(int(o.segment.into())),
        _ => Err(Errno::ENOPROTOOPT),
    })
}

/// setsockopt(2).
pub(crate) fn set(socket: &Arc<DatagramSocket>, name: i32, value: &[u8]) -> Result<()> {
    let v = read_int(value)?;
    socket.configure(now(), |o| {
        match name {
            CORK => o.cork = v != 0,
            SEGMENT => o.segment = u16::try_from(v).map_err(|_| Errno::EINVAL)?,
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(())
    })
}
