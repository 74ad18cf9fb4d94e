//! NETLINK_NETFILTER: requests of nft(8) and iptables(8) to nf_tables, and of conntrack(8) to connection tracking. The
//! crate `nftables` has the messages. This module has the capability checks, the dispatch to subsystems, and the
//! sockets that listen to changes (`nft monitor`).

use super::Netlink;
use super::asker::{MIN_TYPE, Manner};
use crate::net_ns::NetNamespace;
use abi::Errno;
use nftables::{AckOptions, Asker, Event, Request, acknowledge};
use rights::Cap;
use vfs::Caller;

pub(super) const NETLINK_NETFILTER: i32 = 12;
/// NFNLGRP_MAX.
pub(super) const GROUPS: i32 = 9;
/// NFNLGRP_NFTABLES.
const NFTABLES_GROUP: u32 = 7;
/// Longest batch, whatever SO_SNDBUFFORCE says.
pub(super) const LONGEST: usize = 32 << 20;
/// Bytes of headers, the family's included.
const HEADERS: usize = 20;

/// What a datagram of requests comes to.
#[derive(Default)]
pub(super) struct Served {
    pub(super) answers: Vec<Vec<u8>>,
    pub(super) events: Vec<Event>,
    /// Answers, or echoes, are missing, for the queue has no room for them.
    pub(super) full: bool,
    /// Events are missing.
    pub(super) lost: bool,
}

/// Datagrams of a dump that is over with its first call: one, and the end.
const SHORT_DUMP: usize = 2;

/// Answers a datagram of requests.
pub(super) fn serve(net: &NetNamespace, bytes: &[u8], asker: &Asker<'_>, cx: &dyn Caller) -> Served {
    let Some((first, _)) = Request::next(bytes) else { return Served::default() };
    let mut served = Served::default();
    if !cx.creds().ns_capable(net.user_ns(), Cap::NET_ADMIN) {
        served.answers.push(acknowledge(Err(Errno::EPERM.into()), &first, asker.port, asker.options));
        return served;
    }
    if first.kind == nftables::BEGIN {
        let outcome = net.nftables().batch(bytes, asker);
        let nftables::Outcome { answers, events, full, lost } = outcome;
        return Served { answers, events, full, lost };
    }
    let (mut bytes_made, mut dumping) = (0, false);
    let mut rest = bytes;
    while let Some((request, after)) = Request::next(rest) {
        rest = after;
        let asks = i32::from(request.flags) & libc::NLM_F_REQUEST != 0;
        let acts = asks && request.kind >= MIN_TYPE && request.bytes.len() >= HEADERS;
        // What does not fit into the queue is not made, but for the rest of the one dump that goes on later.
        if bytes_made > asker.room {
            served.full = true;
            break;
        }
        let made = match dumping && request.dumps() {
            _ if !acts => Ok(Vec::new()),
            true => Err(Errno::EBUSY.into()),
            false => answer(net, &request, asker),
        };
        let done = match made {
            Ok(mut answers) => {
                dumping |= request.dumps() && answers.len() > SHORT_DUMP;
                bytes_made += answers.iter().map(Vec::len).sum::<usize>();
                served.answers.append(&mut answers);
                Ok(())
            }
            Err(failure) => Err(failure),
        };
        // A dump that goes well says so itself.
        let wanted = i32::from(request.flags) & libc::NLM_F_ACK != 0 && !(acts && request.dumps());
        if done.is_err() || wanted {
            let acknowledgement = acknowledge(done, &request, asker.port, asker.options);
            bytes_made += acknowledgement.len();
            served.answers.push(acknowledgement);
        }
    }
    served
}

fn answer(
    net: &NetNamespace,
    request: &Request<'_>,
    asker: &Asker<'_>,
) -> Result<Vec<Vec<u8>>, nftables::Failure> {
    match request.subsystem() {
        nftables::NFTABLES => net.nftables().get(request, asker),
        nftables::CTNETLINK | nftables::CTNETLINK_EXP => net.nftables().connections(request, asker),
        nftables::COMPAT => net.nftables().compat(request, asker),
        _ => Err(Errno::EINVAL.into()),
    }
}

impl Netlink {
    /// Answers a datagram. A change is described if a socket listens.
    pub(super) fn serve(
        &self,
        cx: &dyn Caller,
        bytes: &[u8],
        (port, room): (u32, usize),
        manner: Manner,
    ) -> Served {
        let name = cx.comm();
        let asker = Asker {
            port,
            pid: u32::try_from(cx.pid_vnr(cx.pid())).unwrap_or(0),
            name: &name,
            options: AckOptions { capped: manner.cap_ack, extended: manner.ext_ack },
            listeners: self.net.netlink.has_members(NETLINK_NETFILTER, NFTABLES_GROUP),
            now: self.net.now().millis(),
            room,
        };
        serve(&self.net, bytes, &asker, cx)
    }

    /// Tells the sockets that listen; the asker has its echo already.
    pub(super) fn tell(&self, events: &[Event], lost: bool) {
        if events.is_empty() {
            return;
        }
        let own = self.shared.state.lock().port;
        for member in self.net.netlink.members(NETLINK_NETFILTER, NFTABLES_GROUP) {
            let port = member.state.lock().port;
            for event in events.iter().filter(|event| !event.echo || port != own) {
                member.deliver(NFTABLES_GROUP, &event.message);
            }
            if lost {
                member.lose();
            }
        }
    }
}
