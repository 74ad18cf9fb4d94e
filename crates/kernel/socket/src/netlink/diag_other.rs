//! sock_diag(7) for Unix, netlink and packet sockets of the namespace.

use super::asker::Asker;
use super::error::Result;
use super::sockets::NetlinkRow;
use crate::unix::UnixRow;
use abi::Errno;
use netstack::packet::PacketRow;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// INET_DIAG_NOCOOKIE.
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// Length of `struct unix_diag_req`, and of the requests for netlink and packet sockets.
const UNIX: usize = 24;
const SHORT: usize = 20;
/// NDIAG_PROTO_ALL.
const ALL_PROTOCOLS: u8 = 0xff;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `SK_MEMINFO_*`: what waits, and the buffers.
fn memory(received: usize, (receive, send): (usize, usize), drops: u32) -> Vec<u8> {
    words(&[received as u32, receive as u32, 0, send as u32, 0, 0, 0, 0, drops])
}

/// UDIAG_SHOW_*, which are in the order of the attributes UNIX_DIAG_*.
const NAME: u32 = 1;
const VFS: u32 = 2;
const PEER: u32 = 4;
const ICONS: u32 = 8;
const RQLEN: u32 = 0x10;
const MEMINFO: u32 = 0x20;
const UID: u32 = 0x40;
/// UNIX_DIAG_SHUTDOWN, and UNIX_DIAG_UID behind it.
const SHUTDOWN: u16 = 6;
const OF_UID: u16 = 7;

/// Unix sockets: all of some states, or the one with an inode number.
pub(super) fn unix(asker: &Asker<'_>) -> Result<Vec<Vec<u8>>> {
    if asker.body().len() < UNIX {
        return Err(Errno::EINVAL.into());
    }
    let (states, ino, show) = (asker.word(4), asker.word(8), asker.word(12));
    let rows = asker.net.unix.rows();
    if !asker.dumps() {
        if ino == 0 {
            return Err(Errno::EINVAL.into());
        }
        let row = rows.iter().find(|row| row.inode == u64::from(ino)).ok_or(Errno::ENOENT)?;
        return Ok(vec![describe_unix(asker, row, show)]);
    }
    let wanted = |row: &&UnixRow| {
        states & 1 << row.state != 0 && row.inode != 0 && (ino == 0 || row.inode == u64::from(ino))
    };
    let rows = rows.iter().filter(wanted);
    Ok(asker.dump(rows.map(|row| describe_unix(asker, row, show)).collect()))
}

fn describe_unix(asker: &Asker<'_>, row: &UnixRow, show: u32) -> Vec<u8> {
    let mut fixed = vec![libc::AF_UNIX as u8, row.kind as u8, row.state, 0];
    fixed.extend((row.inode as u32).to_ne_bytes());
    fixed.extend(NO_COOKIE);
    let mut message = asker.reply(SOCK_DIAG_BY_FAMILY, 0).fixed(&fixed);
    let shows = |bit: u32| show & bit != 0;
    if shows(NAME) && !row.name.is_empty() {
        message = message.attribute(0, &row.name);
    }
    if let Some((ino, device)) = row.place.filter(|_| shows(VFS)) {
        message = message.attribute(1, &words(&[ino as u32, device as u32]));
    }
    if let Some(peer) = row.peer.filter(|_| shows(PEER)) {
        message = message.number(2, peer as u32);
    }
    if shows(ICONS) && row.state == 10 {
        let waiting: Vec<u32> = row.waiting.iter().map(|ino| *ino as u32).collect();
        message = message.attribute(3, &words(&waiting));
    }
    if shows(RQLEN) {
        message = message.attribute(4, &words(&[row.queues.0, row.queues.1]));
    }
    if shows(MEMINFO) {
        let received = if row.state == 10 { 0 } else { row.queues.0 as usize };
        message = message.attribute(5, &memory(received, row.buffers, 0));
    }
    message = message.attribute(SHUTDOWN, &[row.shut]);
    if shows(UID) {
        message = message.number(OF_UID, row.uid);
    }
    message.done()
}

/// Netlink sockets of a protocol, or of all.
pub(super) fn netlink(asker: &Asker<'_>) -> Result<Vec<Vec<u8>>> {
    if asker.body().len() < SHORT {
        return Err(Errno::EINVAL.into());
    }
    if !asker.dumps() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let (protocol, show) = (asker.byte(1), asker.word(8));
    let wanted = |row: &&NetlinkRow| protocol == ALL_PROTOCOLS || i32::from(protocol) == row.protocol;
    let rows = asker.net.netlink.rows();
    let describe = |row: &NetlinkRow| {
        let (peer, peer_groups) = row.peer.unwrap_or_default();
        let state = u8::from(row.peer.is_some());
        let mut fixed = vec![libc::AF_NETLINK as u8, libc::SOCK_RAW as u8, row.protocol as u8, state];
        let group = if peer_groups == 0 { 0 } else { peer_groups.trailing_zeros() + 1 };
        fixed.extend(words(&[row.port, peer, group, row.inode as u32]));
        fixed.extend(NO_COOKIE);
        let mut message = asker.reply(SOCK_DIAG_BY_FAMILY, 0).fixed(&fixed);
        // NDIAG_SHOW_MEMINFO and NDIAG_SHOW_GROUPS.
        if show & 2 != 0 && row.groups != 0 {
            message = message.attribute(1, &row.groups.to_ne_bytes());
        }
        if show & 1 != 0 {
            message = message.attribute(0, &memory(row.queued, (row.room, row.room), row.drops));
        }
        message.done()
    };
    Ok(asker.dump(rows.iter().filter(wanted).map(describe).collect()))
}

/// Packet sockets.
pub(super) fn packet(asker: &Asker<'_>) -> Result<Vec<Vec<u8>>> {
    if asker.body().len() < SHORT || asker.byte(1) != 0 {
        return Err(Errno::EINVAL.into());
    }
    if !asker.dumps() {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let show = asker.word(8);
    let describe = |row: &PacketRow| {
        let kind = if row.cooked { libc::SOCK_DGRAM } else { libc::SOCK_RAW };
        let mut fixed = vec![libc::AF_PACKET as u8, kind as u8];
        fixed.extend(row.protocol.to_ne_bytes());
        fixed.extend((row.inode as u32).to_ne_bytes());
        fixed.extend(NO_COOKIE);
        let mut message = asker.reply(SOCK_DIAG_BY_FAMILY, 0).fixed(&fixed);
        // PACKET_SHOW_INFO: the interface, and the user with it.
        if show & 1 != 0 {
            message = message.attribute(0, &words(&[row.iface, 0, 0, 0, 0, 0])).number(5, row.uid);
        }
        if show & 0x10 != 0 {
            message = message.attribute(6, &memory(row.queued.0, (row.queued.1, row.queued.1), 0));
        }
        message.done()
    };
    let rows = asker.net.stack().packet_sockets();
    let shown = if asker.net.shows_stack() { &rows[..] } else { &[] };
    Ok(asker.dump(shown.iter().map(describe).collect()))
}
