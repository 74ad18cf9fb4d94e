//! What the timers of the network layer do.

use super::change::How;
use super::layer::Network;
use super::monitor::What;
use super::neigh::Act;
use crate::addr::is_link_local;
use crate::buf::Buf;
use crate::ifaddr::Address;
use ktime::Ktime;
use std::net::IpAddr;
use std::time::Duration;

/// The timer of addresses looks at all of them, so it does not run more often than this.
const PAUSE: Duration = Duration::from_millis(20);

impl Network {
    /// Does what is due for neighbours. Returns the packets that wait for a neighbour which does not answer.
    pub(crate) fn expire_neighbours(&self, now: Ktime) -> Vec<Buf> {
        let mut undeliverable = Vec::new();
        for act in self.change_neighbours(|all| all.expire(now, &self.sysctls)) {
            match act {
                Act::Solicit((index, ip), to) => {
                    if let Some(iface) = self.link(index) {
                        self.solicit(now, &iface, ip, to);
                    }
                }
                Act::Unreachable(_, frames) => {
                    undeliverable.extend(frames.into_iter().map(|frame| frame.buf));
                }
            }
        }
        undeliverable
    }

    /// Does what is due for the addresses of all interfaces.
    pub(crate) fn expire_addresses(&self, now: Ktime) {
        *self.next_address.lock() = None;
        self.expire_routes(now);
        for link in self.links() {
            let ready = link.is_up() && !link.about().no_carrier;
            let due = self.due_addresses(&link, ready, now);
            if let Some(at) = due.next {
                self.wake_addresses(at.max(now.plus(PAUSE)));
            }
            for target in due.probes {
                self.probe_address(now, &link, target);
            }
            let local = |a: &Address| matches!(a.ip(), IpAddr::V6(ip) if is_link_local(ip));
            let begin = due.confirmed.iter().any(local);
            for address in due.confirmed {
                self.change_routes(|routes| {
                    // The removal of an address takes it out of the list before its routes.
                    if link.has_address(address.ip()) {
                        super::address::add_routes(routes, &link, &address);
                    }
                });
                self.tell(How::Set, What::Address(link.clone(), address));
                self.changed();
            }
            for address in due.changed {
                self.tell(How::Set, What::Address(link.clone(), address));
                self.changed();
            }
            for prefix in due.expired {
                // It may be gone already.
                let _ = self.remove_address(link.index, prefix);
            }
            self.solicit_routers(now, &link, begin);
        }
    }
}
