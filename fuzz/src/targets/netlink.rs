//! Requests on netlink sockets.

use super::outcome;

pub(super) const WORDS: &[&str] = &["lo", "veth", "vlan", "bridge", "dummy", "nlctrl", "v0", "v1"];

pub(super) fn run(input: &[u8]) -> u64 {
    outcome(socket::netlink::fuzz::run(input))
}
