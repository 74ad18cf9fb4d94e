//! `NFNL_SUBSYS_CTNETLINK`: requests of conntrack(8). Entries are listed and deleted; programs make and change none.

use crate::attr::{Attr, Attrs, Failure, Result, Writer};
use crate::message::{Reply, Request};
use crate::{Asker, Nftables};
use abi::Errno;
use netfilter::conntrack::{Entry, Tuple};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// `NFNL_SUBSYS_CTNETLINK` and `NFNL_SUBSYS_CTNETLINK_EXP`.
pub const CTNETLINK: u8 = 1;
/// Expected connections, of which there are none.
pub const CTNETLINK_EXP: u8 = 2;

const NEW: u8 = 0;
const GET: u8 = 1;
const DELETE: u8 = 2;
const GET_STATS: u8 = 5;
const GET_DYING: u8 = 6;
const GET_UNCONFIRMED: u8 = 7;
const EXP_GET: u8 = 1;

const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const STATUS: u16 = 3;
const PROTOINFO: u16 = 4;
const TIMEOUT: u16 = 7;
const MARK: u16 = 8;
const USE: u16 = 11;
const ID: u16 = 12;
const MARK_MASK: u16 = 21;
const STATUS_MASK: u16 = 26;
const STATS_ENTRIES: u16 = 1;
const STATS_MAX: u16 = 2;

const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_SRC: [u16; 2] = [1, 3];
const IP_DST: [u16; 2] = [2, 4];
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;
/// Identifier, type and code, in ICMP and in ICMPv6.
const PROTO_ICMP: [[u16; 3]; 2] = [[4, 5, 6], [7, 8, 9]];
const PROTOINFO_TCP: u16 = 1;
const TCP_STATE: u16 = 1;
const NESTED: u16 = 0x8000;

const TCP: u8 = 6;

/// Writes a tuple.
fn write_tuple(kind: u16, tuple: &Tuple, out: &mut Writer) {
    let family = usize::from(tuple.src.is_ipv6());
    let address = |kind: u16, ip: IpAddr, out: &mut Writer| {
        let (bytes, len) = crate::expression::octets(ip);
        out.put(kind, &bytes[..len]);
    };
    out.nest(kind | NESTED, |out| {
        out.nest(TUPLE_IP | NESTED, |out| {
            address(IP_SRC[family], tuple.src, out);
            address(IP_DST[family], tuple.dst, out);
        });
        out.nest(TUPLE_PROTO | NESTED, |out| {
            out.byte(PROTO_NUM, tuple.protocol);
            if tuple.is_icmp() {
                let [id, kind, code] = PROTO_ICMP[family];
                out.be16(id, tuple.src_port);
                out.byte(kind, tuple.icmp_type());
                out.byte(code, tuple.icmp_code());
            } else {
                out.be16(PROTO_SRC_PORT, tuple.src_port);
                out.be16(PROTO_DST_PORT, tuple.dst_port);
            }
        });
    });
}

fn address(attrs: Attrs<'_>, kinds: [u16; 2], v6: bool) -> Result<IpAddr> {
    let data = attrs.need(kinds[usize::from(v6)])?.data;
    let ip = match v6 {
        true => data.first_chunk::<16>().map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes))),
        false => data.first_chunk::<4>().map(|bytes| IpAddr::V4(Ipv4Addr::from(*bytes))),
    };
    ip.ok_or(Errno::ERANGE.into())
}

/// Reads a tuple.
fn read_tuple(attr: Attr<'_>, v6: bool) -> Result<Tuple> {
    let attrs = attr.nested();
    let (ip, proto) = (attrs.need(TUPLE_IP)?.nested(), attrs.need(TUPLE_PROTO)?.nested());
    let protocol = proto.need(PROTO_NUM)?.byte()?;
    let (src, dst) = (address(ip, IP_SRC, v6)?, address(ip, IP_DST, v6)?);
    let mut tuple = Tuple { src, dst, protocol, src_port: 0, dst_port: 0 };
    if tuple.is_icmp() {
        let [id, kind, code] = PROTO_ICMP[usize::from(v6)];
        tuple.src_port = proto.need(id)?.be16()?;
        tuple.dst_port = u16::from_be_bytes([proto.need(kind)?.byte()?, proto.need(code)?.byte()?]);
    } else {
        let port = |kind: u16| proto.get(kind).map(|port| port.be16()).transpose();
        tuple.src_port = port(PROTO_SRC_PORT)?.unwrap_or(0);
        tuple.dst_port = port(PROTO_DST_PORT)?.unwrap_or(0);
    }
    Ok(tuple)
}

/// Which connections a request is about, when it names none.
struct Filter {
    family: u8,
    mark: Option<(u32, u32)>,
    status: Option<(u32, u32)>,
}

impl Filter {
    fn parse(request: &Request<'_>) -> Result<Filter> {
        let attrs = request.attrs();
        let pair = |value: u16, mask: u16| -> Result<Option<(u32, u32)>> {
            let Some(value) = attrs.be32(value)? else { return Ok(None) };
            Ok(Some((value, attrs.be32(mask)?.unwrap_or(u32::MAX))))
        };
        let (mark, status) = (pair(MARK, MARK_MASK)?, pair(STATUS, STATUS_MASK)?);
        Ok(Filter { family: request.family(), mark, status })
    }

    fn has(&self, entry: &Entry) -> bool {
        let fits =
            |value: u32, wanted: Option<(u32, u32)>| wanted.is_none_or(|(w, mask)| value & mask == w & mask);
        let of = family_of(entry);
        (self.family == 0 || self.family == of)
            && fits(entry.mark(), self.mark)
            && fits(entry.status(), self.status)
    }
}

fn family_of(entry: &Entry) -> u8 {
    if entry.original.src.is_ipv4() { crate::family::IPV4 } else { crate::family::IPV6 }
}

fn describe(reply: Reply, entry: &Entry, now: u64) -> Vec<u8> {
    reply.of(CTNETLINK, NEW, family_of(entry), |out| {
        write_tuple(TUPLE_ORIG, &entry.original, out);
        write_tuple(TUPLE_REPLY, &entry.reply(), out);
        out.be32(STATUS, entry.status());
        out.be32(TIMEOUT, u32::try_from(entry.seconds_left(now)).unwrap_or(u32::MAX));
        if entry.original.protocol == TCP {
            out.nest(PROTOINFO | NESTED, |out| {
                out.nest(PROTOINFO_TCP | NESTED, |out| out.byte(TCP_STATE, entry.tcp_state() as u8));
            });
        }
        out.be32(MARK, entry.mark());
        out.be32(ID, entry.id);
        out.be32(USE, 1);
    })
}

impl Nftables {
    /// Answers requests about connections.
    pub fn connections(&self, request: &Request<'_>, asker: &Asker<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        // Connections have no generation.
        let reply = Reply::to(request, asker.port, 0);
        let table = &self.netfilter.connections;
        let dumps = request.dumps();
        match (request.subsystem(), request.number()) {
            (CTNETLINK, GET) if dumps => {
                let filter = Filter::parse(request)?;
                let entries = table.entries(asker.now);
                let wanted = entries.iter().filter(|entry| filter.has(entry));
                Ok(reply.dump(wanted.map(|entry| describe(reply, entry, asker.now)).collect(), false))
            }
            (CTNETLINK, GET) => {
                let entry = self.named(request, asker.now)?.ok_or(Errno::EINVAL)?;
                Ok(vec![describe(reply, &entry, asker.now)])
            }
            (CTNETLINK, DELETE) => {
                match self.named(request, asker.now)? {
                    Some(entry) => table.kill(&entry),
                    None => {
                        let filter = Filter::parse(request)?;
                        let entries = table.entries(asker.now);
                        entries.iter().filter(|entry| filter.has(entry)).for_each(|entry| table.kill(entry));
                    }
                }
                Ok(Vec::new())
            }
            (CTNETLINK, GET_STATS) => Ok(vec![reply.of(CTNETLINK, GET_STATS, 0, |out| {
                out.be32(STATS_ENTRIES, table.count(asker.now) as u32);
                out.be32(STATS_MAX, table.max());
            })]),
            (CTNETLINK, GET_DYING | GET_UNCONFIRMED) | (CTNETLINK_EXP, EXP_GET) if dumps => {
                Ok(reply.dump(Vec::new(), false))
            }
            (CTNETLINK_EXP, EXP_GET | DELETE) => Err(Errno::ENOENT.into()),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// The connection that a request names by one of its tuples.
    fn named(&self, request: &Request<'_>, now: u64) -> Result<Option<Arc<Entry>>> {
        let attrs = request.attrs();
        let Some(tuple) = attrs.get(TUPLE_ORIG).or(attrs.get(TUPLE_REPLY)) else { return Ok(None) };
        let v6 = match request.family() {
            crate::family::IPV4 => false,
            crate::family::IPV6 => true,
            _ => return Err(Errno::EOPNOTSUPP.into()),
        };
        let tuple = read_tuple(tuple, v6)?;
        let (entry, _) = self.netfilter.connections.lookup(&tuple, now).ok_or(Errno::ENOENT)?;
        match attrs.be32(ID)? {
            Some(id) if id != entry.id => Err(Errno::ENOENT.into()),
            _ => Ok(Some(entry)),
        }
    }
}
