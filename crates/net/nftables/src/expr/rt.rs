//! `rt`: the route of a packet.

use crate::attr::{Attrs, Result, Writer};
use crate::data::Reg;
use crate::expression::{Expr, Flow, Place, Run, octets};
use crate::model::Table;
use crate::scope::Scope;
use abi::Errno;
use netstack::route::Key;
use std::net::IpAddr;

const DREG: u16 = 1;
const KEY: u16 = 2;
const NEXTHOP4: u32 = 1;
const NEXTHOP6: u32 = 2;
const TCPMSS: u32 = 3;

struct Route {
    target: Reg,
    key: u32,
}

pub(super) fn parse(attrs: Attrs<'_>, scope: &Scope<'_>) -> Result<Box<dyn Expr>> {
    let (key, target) = (attrs.need(KEY)?.be32()?, attrs.need(DREG)?);
    let len = match key {
        NEXTHOP4 => 4,
        NEXTHOP6 => 16,
        TCPMSS => 2,
        _ => return Err(Errno::EOPNOTSUPP.into()),
    };
    Ok(Box::new(Route { target: Reg::store(target, len, &scope.inited)?, key }))
}

/// The next hop to an address.
fn next_hop(run: &Run<'_, '_>, dst: IpAddr) -> Option<IpAddr> {
    let key =
        Key { mark: run.packet.mark(), oif: run.packet.output.map_or(0, |link| link.index), ..Key::to(dst) };
    run.packet.tables.read_routes(|routes| {
        let route = routes.lookup(&key, |_| true).ok()?;
        Some(route.gateway.unwrap_or(dst))
    })
}

impl Expr for Route {
    fn name(&self) -> &'static str {
        "rt"
    }
    fn run(&self, run: &mut Run<'_, '_>) -> Flow {
        if self.key == TCPMSS {
            let Some(link) = run.packet.output else { return Flow::Break };
            let headers = if run.is_v6() { 60 } else { 40 };
            let most = |link: &netstack::iface::Iface| link.mtu().saturating_sub(headers).min(65535) as u16;
            // The other end's packets come in by the interface that this one came by.
            let mss = run.packet.input.map(most).map_or(most(link), |back| back.min(most(link)));
            run.regs.set(self.target, &mss.to_ne_bytes());
            return Flow::Next;
        }
        let dst = run.packet.info.dst;
        if dst.is_ipv4() != (self.key == NEXTHOP4) {
            return Flow::Break;
        }
        let Some(hop) = next_hop(run, dst) else { return Flow::Break };
        let (bytes, len) = octets(hop);
        run.regs.set(self.target, &bytes[..len]);
        Flow::Next
    }
    fn dump(&self, out: &mut Writer, _table: &Table) {
        out.be32(KEY, self.key);
        out.be32(DREG, self.target.number());
    }
    fn validate(&self, place: Place, _table: &Table) -> Result<(), Errno> {
        const ON_THE_WAY_OUT: u8 = 0b11100;
        match self.key == TCPMSS && place.bit() & ON_THE_WAY_OUT == 0 {
            true => Err(Errno::EOPNOTSUPP),
            false => Ok(()),
        }
    }
}
