//! How many hosts a packet is for.

/// How many hosts a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One other host.
    Unicast,
    /// This host.
    Local,
    /// All hosts of a link.
    Broadcast,
    /// The members of a group.
    Multicast,
}
