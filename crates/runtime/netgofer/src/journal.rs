//! Refused connections in the sandbox's log. A guest can cause any number of them, so the log is bounded.

use netproto::Kind;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Most lines.
const MAX_LINES: usize = 1000;

/// What has been said.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    said: BTreeSet<String>,
}

impl Journal {
    /// `what` with that peer was refused.
    pub(crate) fn refused(&mut self, what: &str, kind: Kind, addr: SocketAddr) {
        let line = match kind {
            Kind::Stream => format!("{what} {addr}/tcp"),
            Kind::Datagram => format!("{what} {addr}/udp"),
            Kind::Ping => format!("{what} {} with ICMP", addr.ip()),
        };
        self.say(format!("network: {line} is refused: --allow-net does not name it"));
    }

    /// A name was not looked up.
    pub(crate) fn refused_name(&mut self, name: &str) {
        self.say(format!("network: looking up {name:?} is refused: --allow-net does not name it"));
    }

    /// Says a line once.
    fn say(&mut self, line: String) {
        if self.said.len() >= MAX_LINES || !self.said.insert(line.clone()) {
            return;
        }
        log::warn!("{line}");
        if self.said.len() == MAX_LINES {
            log::warn!("network: further refusals are not logged");
        }
    }
}
