//! PACKET_FANOUT as programs set and read it (packet(7)).

use abi::{Errno, Result};
use netstack::fanout::{Choice, FanoutRequest, IGNORES_OUTGOING, ROLLS_OVER};
use netstack::packet::PacketSocket;
use socket::filter::Program;
use std::sync::Arc;

/// PACKET_FANOUT_FLAG_UNIQUEID in the byte of flags.
const UNIQUE_ID: u8 = 0x20;

/// An `int`, or a `struct fanout_args`: number, kind and flags, and the most members. PACKET_FANOUT_FLAG_DEFRAG and programs of eBPF are not there.
pub(crate) fn parse(value: &[u8]) -> Result<FanoutRequest> {
    let (id, kind, flags, most) = match *value {
        [a, b, kind, flags] => (u16::from_ne_bytes([a, b]), kind, flags, 0),
        [a, b, kind, flags, c, d, e, f] => {
            (u16::from_ne_bytes([a, b]), kind, flags, u32::from_ne_bytes([c, d, e, f]))
        }
        _ => return Err(Errno::EINVAL),
    };
    let choice = match kind {
        0 => Choice::Hash,
        1 => Choice::RoundRobin,
        2 => Choice::Processor,
        3 if flags & ROLLS_OVER == 0 => Choice::Rollover,
        4 => Choice::Random,
        5 => Choice::Queue,
        6 => Choice::Program,
        _ => return Err(Errno::EINVAL),
    };
    let unique = flags & UNIQUE_ID != 0;
    if (unique && id != 0) || flags & !(ROLLS_OVER | IGNORES_OUTGOING | UNIQUE_ID) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(FanoutRequest { id: (!unique).then_some(id), choice, flags: flags & !UNIQUE_ID, most })
}

/// What getsockopt(2) says: 0 without a group.
pub(crate) fn shown(socket: &PacketSocket) -> i32 {
    socket.fanout().map_or(0, |(id, choice, flags)| {
        i32::from(id) | (choice as i32) << 16 | i32::from_ne_bytes([0, 0, 0, flags])
    })
}

/// PACKET_FANOUT_DATA: the program that chooses, a `struct sock_fprog`.
pub(crate) fn set_data(socket: &PacketSocket, value: &[u8]) -> Result<()> {
    if socket.fanout().is_none_or(|(_, choice, _)| choice != Choice::Program) {
        return Err(Errno::EINVAL);
    }
    socket.set_fanout_program(Arc::new(Program::new(value)?))
}
