//! `fib`: looks up an address of the packet in the routing tables.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Place, Run};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use netstack::route::{Key, RouteKind};
use netstack::tables::Tables;
use std::net::IpAddr;

const DREG: u16 = 1;
const RESULT: u16 = 2;
const FLAGS: u16 = 3;

const OIF: u32 = 1;
const OIFNAME: u32 = 2;
const ADDRTYPE: u32 = 3;

const SADDR: u32 = 1;
const DADDR: u32 = 2;
const MARK: u32 = 4;
const IIF: u32 = 8;
const OIF_FLAG: u32 = 16;
const PRESENT: u32 = 32;

struct Fib {
    target: Reg,
    result: u32,
    flags: u32,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let (target, result, flags) =
        (attrs.need(DREG)?, attrs.need(RESULT)?.be32()?, attrs.need(FLAGS)?.be32()?);
    let both = |bits: u32| flags & bits == bits;
    if flags == 0 || flags & !0x3f != 0 || both(SADDR | DADDR) || both(IIF | OIF_FLAG) {
        return Err(Errno::EINVAL.into());
    }
    if flags & (SADDR | DADDR) == 0 {
        return Err(Errno::EINVAL.into());
    }
    let len = match result {
        OIF | OIFNAME if flags & OIF_FLAG != 0 => return Err(Errno::EINVAL.into()),
        OIF => 4,
        OIFNAME => 16,
        ADDRTYPE => 4,
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(Box::new(Fib { target: Reg::store(target, len, &scope.inited)?, result, flags }))
}

/// `RTN_*` of an address: what kind of destination it is, seen from an interface or from all.
fn address_type(tables: &Tables, ip: IpAddr, link: Option<u32>) -> u32 {
    const UNICAST: u32 = 1;
    const LOCAL: u32 = 2;
    const BROADCAST: u32 = 3;
    const MULTICAST: u32 = 5;
    const BLACKHOLE: u32 = 6;
    const UNREACHABLE: u32 = 7;
    const PROHIBIT: u32 = 8;
    if ip.is_multicast() {
        return MULTICAST;
    }
    if matches!(ip, IpAddr::V4(v4) if v4.is_broadcast() || v4.octets()[0] == 0) {
        return BROADCAST;
    }
    let key = Key { oif: link.unwrap_or(0), ..Key::to(ip) };
    tables.read_routes(|routes| match routes.lookup(&key, |_| true) {
        Ok(route) if route.kind == RouteKind::Local && link.is_some_and(|link| link != route.iface) => {
            UNICAST
        }
        Ok(route) => match route.kind {
            RouteKind::Local => LOCAL,
            RouteKind::Broadcast => BROADCAST,
            _ => UNICAST,
        },
        Err(Errno::EACCES) => PROHIBIT,
        Err(Errno::EINVAL) => BLACKHOLE,
        // Linux says the same of what no route leads to.
        Err(Errno::EHOSTUNREACH | Errno::ENETUNREACH) if ip.is_ipv6() => UNREACHABLE,
        Err(_) => UNICAST,
    })
}

impl Fib {
    fn oif(&self, run: &Run<'_, '_>) -> Option<u32> {
        let info = &run.packet.info;
        let (ip, other) = if self.flags & SADDR != 0 { (info.src, info.dst) } else { (info.dst, info.src) };
        let oif = match self.flags & IIF != 0 {
            true => run.packet.input.map_or(0, |link| link.index),
            false => 0,
        };
        let mark = if self.flags & MARK != 0 { run.packet.mark() } else { 0 };
        let key = Key { src: Some(other), oif, mark, ..Key::to(ip) };
        run.packet.tables.read_routes(|routes| {
            let route = routes.lookup(&key, |_| true).ok()?;
            (oif == 0 || route.iface == oif || route.kind == RouteKind::Local).then_some(route.iface)
        })
    }
}

impl Expr for Fib {
    fn name(&self) -> &'static str {
        "fib"
    }

    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        if self.result == ADDRTYPE {
            let info = &run.packet.info;
            let ip = if self.flags & SADDR != 0 { info.src } else { info.dst };
            let link = match self.flags & (IIF | OIF_FLAG) {
                IIF => run.packet.input,
                OIF_FLAG => run.packet.output,
                _ => None,
            };
            let kind = address_type(run.packet.tables, ip, link.map(|link| link.index));
            run.regs.set(self.target, &kind.to_ne_bytes());
            return Flow::Next;
        }
        let found = self.oif(run).unwrap_or(0);
        if self.flags & PRESENT != 0 {
            run.regs.set(self.target, &[u8::from(found != 0)]);
        } else if self.result == OIF {
            run.regs.set(self.target, &found.to_ne_bytes());
        } else {
            let name = run.packet.tables.link(found).map(|link| link.name()).unwrap_or_default();
            run.regs.set(self.target, name.as_bytes());
        }
        Flow::Next
    }

    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(DREG, self.target.number());
        out.be32(RESULT, self.result);
        out.be32(FLAGS, self.flags);
    }

    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        const RECEIVED: u8 = 0b00111;
        const SENT: u8 = 0b11100;
        let hooks = match (self.result, self.flags & (IIF | OIF_FLAG)) {
            (ADDRTYPE, IIF) => RECEIVED,
            (ADDRTYPE, OIF_FLAG) => SENT,
            (ADDRTYPE, _) => 0b11111,
            _ => RECEIVED,
        };
        if place.bit() & hooks != 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }
}
