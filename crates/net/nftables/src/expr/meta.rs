//! `meta`: properties of a packet beside its bytes.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use netfilter::Point;
use netstack::iface::{Iface, Kind};
use std::net::IpAddr;

const DREG: u16 = 1;
const KEY: u16 = 2;
const SREG: u16 = 3;

/// Keys.
mod key {
    pub const LEN: u32 = 0;
    pub const PROTOCOL: u32 = 1;
    pub const PRIORITY: u32 = 2;
    pub const MARK: u32 = 3;
    pub const IIF: u32 = 4;
    pub const OIF: u32 = 5;
    pub const IIFNAME: u32 = 6;
    pub const OIFNAME: u32 = 7;
    pub const IIFTYPE: u32 = 8;
    pub const OIFTYPE: u32 = 9;
    pub const SKUID: u32 = 10;
    pub const SKGID: u32 = 11;
    pub const NFPROTO: u32 = 15;
    pub const L4PROTO: u32 = 16;
    pub const PKTTYPE: u32 = 19;
    pub const CPU: u32 = 20;
    pub const IIFGROUP: u32 = 21;
    pub const OIFGROUP: u32 = 22;
    pub const PRANDOM: u32 = 24;
    pub const SDIF: u32 = 33;
    pub const SDIFNAME: u32 = 34;
}

struct Get {
    key: u32,
    target: Reg,
}

struct SetMark {
    source: Reg,
}

/// Longest name of an interface, with its NUL.
const IFNAMSIZ: usize = 16;

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let key = attrs.need(KEY)?.be32()?;
    match (attrs.get(DREG), attrs.get(SREG)) {
        (Some(_), Some(_)) | (None, None) => Err(Errno::EINVAL.into()),
        (None, Some(source)) if key == key::MARK => {
            Ok(Box::new(SetMark { source: Reg::load(source, 4, &scope.inited)? }))
        }
        (None, Some(_)) => Err(Errno::EOPNOTSUPP.into()),
        (Some(target), None) => {
            let len = match key {
                key::PROTOCOL | key::IIFTYPE | key::OIFTYPE => 2,
                key::LEN | key::PRIORITY | key::MARK | key::IIF | key::OIF | key::SKUID | key::SKGID => 4,
                key::CPU | key::IIFGROUP | key::OIFGROUP | key::PRANDOM | key::SDIF => 4,
                key::NFPROTO | key::L4PROTO | key::PKTTYPE => 1,
                key::IIFNAME | key::OIFNAME | key::SDIFNAME => IFNAMSIZ,
                _ => return Err(Errno::EOPNOTSUPP.into()),
            };
            Ok(Box::new(Get { key, target: Reg::store(target, len, &scope.inited)? }))
        }
    }
}

impl Get {
    fn name(&self, name: &str, run: &mut Run<'_, '_>) {
        let mut bytes = [0; IFNAMSIZ];
        let len = name.len().min(IFNAMSIZ - 1);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        run.regs.set(self.target, &bytes);
    }

    /// Numbers of the host's order.
    fn number(&self, run: &Run<'_, '_>) -> Option<u32> {
        let packet = &run.packet;
        let index = |link: Option<&Iface>| link.map_or(0, |link| link.index);
        Some(match self.key {
            key::LEN => run.len() as u32,
            key::MARK => packet.mark(),
            key::IIF => index(packet.input),
            key::OIF => index(packet.output),
            key::SKUID => packet.owner()?.uid,
            key::SKGID => packet.owner()?.gid,
            key::PRANDOM => run.random(),
            key::IIFGROUP => packet.input.map(|_| 0)?,
            key::OIFGROUP => packet.output.map(|_| 0)?,
            // Packets have no priority here, run on no CPU in particular, and no interface is part of a VRF.
            _ => 0,
        })
    }
}

/// `ARPHRD_*` of an interface.
fn hardware(link: &Iface) -> u16 {
    match link.kind {
        Kind::Loopback => 772,
        Kind::Ethernet => 1,
        Kind::Tunnel => 65534,
    }
}

/// `PACKET_*`: how a packet came here.
fn packet_type(run: &Run<'_, '_>) -> u8 {
    let dst = run.packet.info.dst;
    let broadcast = |v4: std::net::Ipv4Addr| {
        let links = [run.packet.input, run.packet.output];
        let mut addresses = links.into_iter().flatten().flat_map(Iface::addresses);
        v4.is_broadcast() || addresses.any(|address| address.prefix.broadcast() == Some(v4))
    };
    match dst {
        _ if run.packet.point == Point::Output => 0,
        IpAddr::V4(v4) if broadcast(v4) => 1,
        ip if ip.is_multicast() => 2,
        _ => 0,
    }
}

impl Expr for Get {
    fn name(&self) -> &'static str {
        "meta"
    }

    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        match self.key {
            key::IIFNAME => {
                let name = run.packet.input_name().to_owned();
                self.name(&name, run);
            }
            key::OIFNAME => {
                let name = run.packet.output_name().to_owned();
                self.name(&name, run);
            }
            key::SDIFNAME => return Flow::Break,
            key::IIFTYPE | key::OIFTYPE => {
                let link = if self.key == key::IIFTYPE { run.packet.input } else { run.packet.output };
                let Some(link) = link else { return Flow::Break };
                run.regs.set(self.target, &hardware(link).to_ne_bytes());
            }
            key::PROTOCOL => {
                let ethertype: u16 = if run.is_v6() { 0x86dd } else { 0x0800 };
                run.regs.set(self.target, &ethertype.to_be_bytes());
            }
            key::NFPROTO => {
                let family = if run.is_v6() { crate::family::IPV6 } else { crate::family::IPV4 };
                run.regs.set(self.target, &[family]);
            }
            key::L4PROTO => {
                let Some(protocol) = run.l4proto() else { return Flow::Break };
                run.regs.set(self.target, &[protocol]);
            }
            key::PKTTYPE => run.regs.set(self.target, &[packet_type(run)]),
            _ => {
                let Some(number) = self.number(run) else { return Flow::Break };
                run.regs.set(self.target, &number.to_ne_bytes());
            }
        }
        Flow::Next
    }

    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(KEY, self.key);
        out.be32(DREG, self.target.number());
    }
}

impl Expr for SetMark {
    fn name(&self) -> &'static str {
        "meta"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        let mark = run.regs.word(self.source);
        run.packet.set_mark(mark);
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(KEY, key::MARK);
        out.be32(SREG, self.source.number());
    }
}
