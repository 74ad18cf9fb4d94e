//! Options by which iptables-legacy reads and replaces tables, and SO_ORIGINAL_DST. See iptables(8).

use abi::{Errno, Result};
use caller::UserMemory;
use conntrack::Tuple;
use netfilter::Family;
use netstack::tcp::TcpSocket;
use rights::Cap;
use socket::NetNamespace;
use std::net::SocketAddr;
use vfs::Caller;
use xtables::layout::{self, HEAD, INFO, REPLACE};
use xtables::xt::{Match, Target};

/// IPT_SO_SET_REPLACE and IPT_SO_GET_INFO, and the same of IPv6.
const REPLACE_OR_INFO: i32 = 64;
/// IPT_SO_SET_ADD_COUNTERS and IPT_SO_GET_ENTRIES.
const COUNTERS_OR_ENTRIES: i32 = 65;
const REVISION_MATCH: [i32; 2] = [66, 68];
const REVISION_TARGET: [i32; 2] = [67, 69];
const SO_ORIGINAL_DST: i32 = 80;

/// Bytes of `struct xt_get_revision`.
const REVISION: usize = 30;

/// Bytes of rules and of counters that one call may pass.
const MAX_BYTES: usize = 16 << 20;

/// The family of a level's tables.
fn family((level, name): (i32, i32), v6: bool) -> Option<Family> {
    match level {
        libc::IPPROTO_IP if (64..68).contains(&name) => Some(Family::V4),
        libc::IPPROTO_IPV6 if v6 && [64, 65, 68, 69].contains(&name) => Some(Family::V6),
        _ => None,
    }
}

fn may_administer(cx: &dyn Caller, net: &NetNamespace) -> Result<()> {
    if cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

fn read(mem: &mut dyn UserMemory, at: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    mem.copy_in(at, &mut bytes)?;
    Ok(bytes)
}

fn count(bytes: &[u8]) -> usize {
    let bytes = bytes.get(layout::NAME..).and_then(<[u8]>::first_chunk).copied();
    u32::from_ne_bytes(bytes.unwrap_or_default()) as usize
}

/// getsockopt(2) of a table; `None` for other options.
pub(crate) fn get(
    cx: &dyn Caller,
    mem: &mut dyn UserMemory,
    (net, v6): (&NetNamespace, bool),
    option: (i32, i32),
    value: u64,
    room: usize,
) -> Option<Result<Vec<u8>>> {
    let family = family(option, v6)?;
    Some(may_administer(cx, net).and_then(|()| get_table(mem, net, family, option.1, value, room)))
}

fn get_table(
    mem: &mut dyn UserMemory,
    net: &NetNamespace,
    family: Family,
    name: i32,
    value: u64,
    room: usize,
) -> Result<Vec<u8>> {
    let tables = net.tables();
    match name {
        REPLACE_OR_INFO if room != INFO => Err(Errno::EINVAL),
        REPLACE_OR_INFO => tables.info(family, layout::name(&read(mem, value, INFO)?)),
        COUNTERS_OR_ENTRIES if room < HEAD => Err(Errno::EINVAL),
        COUNTERS_OR_ENTRIES => {
            let mut out = read(mem, value, HEAD)?;
            let size = count(&out);
            if room != HEAD + size {
                return Err(Errno::EINVAL);
            }
            let entries = tables.entries(family, layout::name(&out), size)?;
            out.extend(entries);
            Ok(out)
        }
        _ if room != REVISION => Err(Errno::EINVAL),
        _ => {
            let asked = read(mem, value, REVISION)?;
            let (extension, revision) =
                (asked[..REVISION - 1].split(|b| *b == 0).next(), asked[REVISION - 1]);
            let extension = std::str::from_utf8(extension.unwrap_or_default()).map_err(|_| Errno::ENOENT)?;
            if REVISION_MATCH.contains(&name) {
                <dyn Match>::revision(family, extension, revision)?;
            } else if REVISION_TARGET.contains(&name) {
                <dyn Target>::revision(family, extension, revision)?;
            }
            Ok(asked)
        }
    }
}

/// setsockopt(2) of a table; `None` for other options.
pub(crate) fn set(
    cx: &dyn Caller,
    mem: &mut dyn UserMemory,
    (net, v6): (&NetNamespace, bool),
    option: (i32, i32),
    value: u64,
    len: usize,
) -> Option<Result<()>> {
    let family = family(option, v6).filter(|_| option.1 <= COUNTERS_OR_ENTRIES)?;
    Some(may_administer(cx, net).and_then(|()| match option.1 {
        REPLACE_OR_INFO => replace(mem, net, family, value, len),
        _ => add_counters(mem, net, family, value, len),
    }))
}

fn replace(
    mem: &mut dyn UserMemory,
    net: &NetNamespace,
    family: Family,
    value: u64,
    len: usize,
) -> Result<()> {
    if len < REPLACE {
        return Err(Errno::EINVAL);
    }
    let head = layout::Replace::parse(&read(mem, value, REPLACE)?)?;
    if head.size > MAX_BYTES {
        return Err(Errno::ENOMEM);
    }
    if len < REPLACE + head.size {
        return Err(Errno::EINVAL);
    }
    let blob = read(mem, value.saturating_add(REPLACE as u64), head.size)?;
    let to = head.counters.1;
    let old = net.tables().replace(family, head, blob)?;
    let bytes: Vec<u8> = old.iter().flatten().flat_map(|n| n.to_ne_bytes()).collect();
    // The new rules are in place already; a program that cannot be told the counters has lost them.
    let _ = mem.copy_out(to, &bytes);
    Ok(())
}

fn add_counters(
    mem: &mut dyn UserMemory,
    net: &NetNamespace,
    family: Family,
    value: u64,
    len: usize,
) -> Result<()> {
    if len <= HEAD {
        return Err(Errno::EINVAL);
    }
    let head = read(mem, value, HEAD)?;
    let size = count(&head).saturating_mul(16);
    if len != HEAD + size {
        return Err(Errno::EINVAL);
    }
    if size > MAX_BYTES {
        return Err(Errno::ENOMEM);
    }
    let bytes = read(mem, value.saturating_add(HEAD as u64), size)?;
    let numbers: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|n| u64::from_ne_bytes(*n)).collect();
    net.tables().add_counters(family, layout::name(&head), numbers.as_chunks::<2>().0)
}

/// SO_ORIGINAL_DST: where a connection was going before its destination was translated. `None` for other options.
pub(crate) fn original(
    net: &NetNamespace,
    socket: &TcpSocket,
    (level, name): (i32, i32),
    room: usize,
) -> Option<Result<Vec<u8>>> {
    if name != SO_ORIGINAL_DST || !matches!(level, libc::IPPROTO_IP | libc::IPPROTO_IPV6) {
        return None;
    }
    let find = || {
        let filter = net.netfilter();
        if !filter.is_tracking() {
            return Err(Errno::ENOPROTOOPT);
        }
        let v4 = level == libc::IPPROTO_IP;
        if room < if v4 { 16 } else { 28 } {
            return Err(Errno::EINVAL);
        }
        let local = socket.local();
        let remote = socket.remote().map_err(|_| Errno::ENOENT)?;
        let (src, dst) = (local.ip().to_canonical(), remote.ip().to_canonical());
        let tuple = Tuple { src, dst, protocol: 6, src_port: local.port(), dst_port: remote.port() };
        if src.is_ipv4() != v4 {
            return Err(Errno::ENOENT);
        }
        let (entry, _) = filter.connections.lookup(&tuple, net.now().millis()).ok_or(Errno::ENOENT)?;
        let target = entry.original;
        Ok(crate::addr::to_bytes(SocketAddr::new(target.dst, target.dst_port)))
    };
    Some(find())
}
