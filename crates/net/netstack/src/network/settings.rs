//! Settings of interfaces as packets meet them: forwarding, `route_localnet`, `rp_filter`.

use super::layer::Network;
use super::route::Key;
use crate::conf::{Conf, Which, Whose};
use crate::device::iface::Iface;
use abi::Errno;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

impl Network {
    pub(crate) fn conf_of(&self, whose: Whose) -> Result<Result<&Conf, Arc<Iface>>, Errno> {
        Ok(match whose {
            Whose::All => Ok(&self.conf_of_all),
            Whose::Default => Ok(&self.links.defaults),
            Whose::Link(index) => Err(self.link(index).ok_or(Errno::ENOENT)?),
        })
    }

    /// A setting's value. `ENOENT` for an interface that is not there.
    pub fn conf(&self, whose: Whose, which: Which) -> Result<i64, Errno> {
        let value = match self.conf_of(whose)? {
            Ok(conf) => conf.get(which),
            Err(link) => link.conf.get(which),
        };
        // Forwarding that was not set by itself is that of all.
        let follows = which == Which::Forwarding && value < 0;
        Ok(if follows { self.sysctls.ip_forward.get() } else { value.into() })
    }

    /// All interfaces forward, or none.
    pub(crate) fn set_forwarding(&self, value: i32) -> Result<(), Errno> {
        self.sysctls.ip_forward.set(value.into())?;
        self.links.defaults.set(Which::Forwarding, -1);
        self.links().iter().for_each(|link| link.conf.set(Which::Forwarding, -1));
        Ok(())
    }

    pub(crate) fn forwards4(&self, iface: &Iface) -> bool {
        match iface.conf.get(Which::Forwarding) {
            -1 => self.sysctls.ip_forward.on(),
            own => own != 0,
        }
    }

    pub(crate) fn routes_localnet(&self, iface: &Iface) -> bool {
        self.conf_of_all.get(Which::RouteLocalnet) != 0 || iface.conf.get(Which::RouteLocalnet) != 0
    }

    /// Whether a packet may come from where it does: `rp_filter`.
    pub(crate) fn is_way_back(&self, iface: &Iface, src: Ipv4Addr, mark: u32) -> bool {
        let mode = iface.conf.get(Which::RpFilter).max(self.conf_of_all.get(Which::RpFilter));
        if mode == 0 || src.is_unspecified() {
            return true;
        }
        let key = Key { mark, ..Key::to(IpAddr::V4(src)) };
        let routes = self.tables.routes.read();
        let route = routes.lookup(&key, |_| true);
        route.is_ok_and(|route| mode == 2 || route.uses(iface.index))
    }
}
