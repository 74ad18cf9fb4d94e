//! Matches and targets by name and revision.
//!
//! A structure of a program has the size in iptables' headers, rounded up to 8 bytes. The kernel's own fields in such
//! structures (pointers, credit) are neither read nor written here.

mod address;
mod connection;
pub(crate) mod data;
mod log;
mod nat;
mod rate;
mod recent;
mod simple;
mod targets;
mod transport;

use abi::Errno;
use data::Data;
pub use log::line as log_line;
use netfilter::{Family, Netfilter, Packet, Point};

/// Where a match or a target is used.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The filter of the namespace.
    pub netfilter: &'a Netfilter,
    /// The family of the table.
    pub family: Family,
    /// The table's name: `filter`, `nat`, `mangle`, `raw`, `security`.
    pub table: &'a str,
    /// The points from which the rule can be reached.
    pub points: &'a [Point],
    /// The rule's protocol; 0 for all.
    pub protocol: u16,
    /// The rule is for all but that protocol.
    pub protocol_inverted: bool,
}

impl Context<'_> {
    /// `EINVAL` unless the rule is for this protocol.
    fn require_protocol(&self, protocol: u8) -> Result<(), Errno> {
        let right = self.protocol == u16::from(protocol) && !self.protocol_inverted;
        if right { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// `EINVAL` unless the rule is in one of these tables, and reached from these points only.
    fn require_place(&self, tables: &[&str], points: &[Point]) -> Result<(), Errno> {
        let right = tables.contains(&self.table) && self.points.iter().all(|point| points.contains(point));
        if right { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// A condition on packets.
pub trait Match: Send + Sync {
    /// True when the packet fulfils it.
    fn matches(&self, packet: &mut Packet<'_>) -> bool;
}

/// What a target decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The next rule.
    Continue,
    /// The packet goes on.
    Accept,
    /// The packet ends here.
    Drop,
    /// Back to the calling chain.
    Return,
}

/// What is done with packets.
pub trait Target: Send + Sync {
    /// Does it.
    fn run(&self, packet: &mut Packet<'_>) -> Decision;
}

type MatchParser = fn(&Context<'_>, Data<'_>) -> Result<Box<dyn Match>, Errno>;
type TargetParser = fn(&Context<'_>, Data<'_>) -> Result<Box<dyn Target>, Errno>;

/// The families that a kind is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Both,
    Only(Family),
}

impl For {
    fn has(self, family: Family) -> bool {
        self == For::Both || self == For::Only(family)
    }
}

const V4: For = For::Only(Family::V4);
const V6: For = For::Only(Family::V6);
const BOTH: For = For::Both;

/// A name and revision, the family, and the bytes of the structure.
struct Kind<P> {
    name: &'static str,
    revision: u8,
    family: For,
    size: usize,
    parse: P,
}

const fn kind<P: Copy>(name: &'static str, revision: u8, family: For, size: usize, parse: P) -> Kind<P> {
    Kind { name, revision, family, size, parse }
}

static MATCHES: [Kind<MatchParser>; 30] = [
    kind("tcp", 0, BOTH, 12, transport::tcp),
    kind("udp", 0, BOTH, 10, transport::udp),
    kind("udplite", 0, BOTH, 10, transport::udp),
    kind("icmp", 0, V4, 4, transport::icmp),
    kind("icmp6", 0, V6, 4, transport::icmp),
    kind("multiport", 1, BOTH, 48, transport::multiport),
    kind("tcpmss", 0, BOTH, 6, transport::tcpmss),
    kind("state", 0, BOTH, 4, connection::state),
    kind("conntrack", 1, BOTH, 152, connection::conntrack1),
    kind("conntrack", 2, BOTH, 156, connection::conntrack2),
    kind("conntrack", 3, BOTH, 164, connection::conntrack3),
    kind("connmark", 1, BOTH, 12, connection::connmark),
    kind("mark", 1, BOTH, 12, connection::mark),
    kind("owner", 1, BOTH, 20, connection::owner),
    kind("addrtype", 0, V4, 12, address::addrtype0),
    kind("addrtype", 1, BOTH, 8, address::addrtype1),
    kind("iprange", 1, BOTH, 68, address::iprange),
    kind("pkttype", 0, BOTH, 8, address::pkttype),
    kind("physdev", 0, BOTH, 66, address::physdev),
    kind("comment", 0, BOTH, 256, simple::comment),
    kind("comment", 1, BOTH, 256, simple::comment),
    kind("length", 0, BOTH, 6, simple::length),
    kind("ttl", 0, V4, 2, simple::ttl),
    kind("hl", 0, V6, 2, simple::ttl),
    kind("tos", 1, BOTH, 3, simple::tos),
    kind("dscp", 0, BOTH, 2, simple::dscp),
    kind("limit", 0, BOTH, 40, rate::limit),
    kind("statistic", 0, BOTH, 24, rate::statistic),
    kind("recent", 0, BOTH, 212, recent::recent0),
    kind("recent", 1, BOTH, 228, recent::recent1),
];

static TARGETS: [Kind<TargetParser>; 25] = [
    kind("REJECT", 0, V4, 4, targets::reject4),
    kind("REJECT", 0, V6, 4, targets::reject6),
    kind("LOG", 0, BOTH, 32, log::log),
    kind("MARK", 2, BOTH, 8, targets::mark),
    kind("CONNMARK", 1, BOTH, 16, targets::connmark1),
    kind("CONNMARK", 2, BOTH, 16, targets::connmark2),
    kind("NOTRACK", 0, BOTH, 0, targets::notrack),
    kind("CT", 0, BOTH, 40, targets::ct),
    kind("CT", 1, BOTH, 72, targets::ct),
    kind("CT", 2, BOTH, 72, targets::ct),
    kind("TCPMSS", 0, BOTH, 2, targets::tcpmss),
    kind("TTL", 0, V4, 2, targets::ttl),
    kind("HL", 0, V6, 2, targets::ttl),
    kind("TOS", 1, BOTH, 2, targets::tos),
    kind("DSCP", 0, BOTH, 1, targets::dscp),
    kind("MASQUERADE", 0, V4, 20, nat::masquerade4),
    kind("MASQUERADE", 0, V6, 40, nat::masquerade6),
    kind("REDIRECT", 0, V4, 20, nat::redirect4),
    kind("REDIRECT", 0, V6, 40, nat::redirect6),
    kind("SNAT", 0, V4, 20, nat::snat4),
    kind("SNAT", 1, BOTH, 40, nat::snat),
    kind("SNAT", 2, BOTH, 44, nat::snat),
    kind("DNAT", 0, V4, 20, nat::dnat4),
    kind("DNAT", 1, BOTH, 40, nat::dnat),
    kind("DNAT", 2, BOTH, 44, nat::dnat),
];

/// Finds a kind; `ENOENT` for an unknown one, `EINVAL` for another size.
fn find<'a, P>(
    all: &'a [Kind<P>],
    family: Family,
    name: &str,
    revision: u8,
    len: usize,
) -> Result<&'a Kind<P>, Errno> {
    let fits = |kind: &&Kind<P>| kind.name == name && kind.revision == revision && kind.family.has(family);
    let kind = all.iter().find(fits).ok_or(Errno::ENOENT)?;
    if kind.size.next_multiple_of(8) == len { Ok(kind) } else { Err(Errno::EINVAL) }
}

/// `ENOENT` for an unknown name, `EPROTONOSUPPORT` when it lacks the revision, else its highest one.
fn revisions<P>(all: &[Kind<P>], family: Family, name: &str, revision: u8) -> Result<u8, Errno> {
    let of_name = || all.iter().filter(|kind| kind.name == name && kind.family.has(family));
    let highest = of_name().map(|kind| kind.revision).max().ok_or(Errno::ENOENT)?;
    let known = of_name().any(|kind| kind.revision == revision);
    if known { Ok(highest) } else { Err(Errno::EPROTONOSUPPORT) }
}

fn names<P>(all: &[Kind<P>], family: Family) -> Vec<&'static str> {
    let mut names: Vec<_> = all.iter().filter(|kind| kind.family.has(family)).map(|kind| kind.name).collect();
    names.dedup();
    names
}

impl dyn Match {
    /// The match of that name and revision with its structure; `ENOENT` when there is none, `EINVAL` when the structure has another
    /// size or makes no sense.
    pub fn parse(cx: &Context<'_>, name: &str, revision: u8, data: &[u8]) -> Result<Box<dyn Match>, Errno> {
        (find(&MATCHES, cx.family, name, revision, data.len())?.parse)(cx, Data(data))
    }

    /// Whether there is that revision: `ENOENT` for an unknown name, `EPROTONOSUPPORT` when it lacks the revision, else
    /// the highest one that it has.
    pub fn revision(family: Family, name: &str, revision: u8) -> Result<u8, Errno> {
        revisions(&MATCHES, family, name, revision)
    }

    /// The names of a family (/proc/net/ip_tables_matches).
    pub fn names(family: Family) -> Vec<&'static str> {
        names(&MATCHES, family)
    }
}

impl dyn Target {
    /// The target of that name and revision; errors as for matches.
    pub fn parse(cx: &Context<'_>, name: &str, revision: u8, data: &[u8]) -> Result<Box<dyn Target>, Errno> {
        (find(&TARGETS, cx.family, name, revision, data.len())?.parse)(cx, Data(data))
    }

    /// As for matches.
    pub fn revision(family: Family, name: &str, revision: u8) -> Result<u8, Errno> {
        revisions(&TARGETS, family, name, revision)
    }

    /// The names of a family (/proc/net/ip_tables_targets).
    pub fn names(family: Family) -> Vec<&'static str> {
        names(&TARGETS, family)
    }
}

/// A match that is a closure.
struct When<F>(F);

impl<F: Fn(&Packet<'_>) -> bool + Send + Sync> Match for When<F> {
    fn matches(&self, packet: &mut Packet<'_>) -> bool {
        (self.0)(packet)
    }
}

fn when(f: impl Fn(&Packet<'_>) -> bool + Send + Sync + 'static) -> Result<Box<dyn Match>, Errno> {
    Ok(Box::new(When(f)))
}

/// A target that is a closure.
struct Do<F>(F);

impl<F: Fn(&mut Packet<'_>) -> Decision + Send + Sync> Target for Do<F> {
    fn run(&self, packet: &mut Packet<'_>) -> Decision {
        (self.0)(packet)
    }
}

fn act(f: impl Fn(&mut Packet<'_>) -> Decision + Send + Sync + 'static) -> Result<Box<dyn Target>, Errno> {
    Ok(Box::new(Do(f)))
}
