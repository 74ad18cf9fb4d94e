//! From segments of a connection to packets.

use super::conn::Emit;
use crate::chain::Blocks;
use crate::checksum::Sum;
use crate::frame::{Checksum, Gso, Offload, Owner};
use crate::network::layer::Network;
use crate::network::path::{Cast, Header, Path};
use crate::wire::ip::Ipv4;
use crate::wire::ipv6::Ipv6;
use crate::wire::proto;
use crate::wire::tcp::{MAX_LEN, Segment};
use ktime::Ktime;
use std::net::SocketAddr;

/// Sends the segments of one connection.
pub(crate) struct Packets<'a> {
    pub(crate) net: &'a Network,
    /// `None` drops everything: there is no route at the moment.
    pub(crate) path: Option<&'a Path>,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) tos: u8,
    pub(crate) ttl: Option<u8>,
    pub(crate) dont_fragment: bool,
    pub(crate) mark: u32,
    pub(crate) owner: Option<Owner>,
    pub(crate) now: Ktime,
}

impl Emit for Packets<'_> {
    fn emit(&mut self, segment: &Segment, payload: &Blocks, mss: u32, ect: bool) {
        let Some(path) = self.path else { return };
        let segment = Segment { src: self.local.port(), dst: self.remote.port(), ..*segment };
        let mut header = [0; MAX_LEN];
        let header_len = segment.emit(&mut header);
        let len = payload.iter().map(|block| block.len()).sum();
        let mut offload = Offload::default();
        if len as u64 > u64::from(mss) {
            offload.gso = Some(Gso { size: mss.min(65_535) as u16, headers: header_len as u16 });
        }
        let sum = Sum::new().pseudo(path.src, path.dst, proto::TCP, header_len + len);
        let local = path.cast == Cast::Local;
        let checksum = if local || path.iface.features().checksum || offload.gso.is_some() {
            offload.checksum = Checksum::Partial { start: 0, offset: 16 };
            sum.partial()
        } else {
            payload.iter().fold(sum.with(&header[..header_len]), |sum, block| sum.with(block)).finish()
        };
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        let mut buf = self.net.buf(len);
        payload.iter().for_each(|block| buf.extend(block));
        buf.push_front(&header[..header_len]);
        let ip = Header {
            protocol: proto::TCP,
            tos: if ect { self.tos | 2 } else { self.tos },
            ttl: self.ttl,
            dont_fragment: self.dont_fragment,
            flow: u32::from(self.local.port() ^ self.remote.port()),
            mark: self.mark,
            owner: self.owner,
            ..Header::default()
        };
        let _ = self.net.send_ip(self.now, path, &ip, buf, offload);
    }
}

/// Bytes of TCP header and payload that a path takes in one packet, and the largest payload that its device cuts itself.
pub(crate) fn sizes(path: &Path) -> (u32, u32) {
    let v4 = path.dst.is_ipv4();
    let headers = if v4 { Ipv4::LEN } else { Ipv6::LEN } + crate::wire::tcp::LEN;
    let features = path.iface.features();
    let offloads = if v4 { features.tso4 } else { features.tso6 };
    let largest = 65_535 - MAX_LEN as u32 - Ipv6::LEN as u32;
    let mss = path.mtu.min(65_535).saturating_sub(headers as u32);
    (mss, if offloads { largest } else { 0 })
}
