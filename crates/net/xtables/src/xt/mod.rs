//! Matches and targets.

use abi::Errno;
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

impl dyn Match {
    /// The match of that name and revision with its structure; `ENOENT` when there is none, `EINVAL` when the structure has another
    /// size or makes no sense.
    pub fn parse(
        _cx: &Context<'_>,
        _name: &str,
        _revision: u8,
        _data: &[u8],
    ) -> Result<Box<dyn Match>, Errno> {
        Err(Errno::ENOENT)
    }

    /// The highest revision of a name at most `revision`, and whether there is the name at all (`NFT_MSG_COMPAT_GET`).
    pub fn has_revision(_family: Family, _name: &str, _revision: u8) -> Option<bool> {
        None
    }
}

impl dyn Target {
    /// The target of that name and revision; errors as for matches.
    pub fn parse(
        _cx: &Context<'_>,
        _name: &str,
        _revision: u8,
        _data: &[u8],
    ) -> Result<Box<dyn Target>, Errno> {
        Err(Errno::ENOENT)
    }

    /// As for matches.
    pub fn has_revision(_family: Family, _name: &str, _revision: u8) -> Option<bool> {
        None
    }
}
