//! Numbers of rtnetlink(7) that requests about interfaces and their answers share, where libc lacks them.

/// Length of `struct ifinfomsg`.
pub(super) const IFINFO: usize = 16;
pub(super) const IFLA_EXT_MASK: u16 = 29;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INFO_DATA: u16 = 2;
pub(super) const IFLA_INFO_SLAVE_DATA: u16 = 5;
pub(super) const IFLA_VLAN_ID: u16 = 1;
pub(super) const IFLA_VLAN_PROTOCOL: u16 = 5;
pub(super) const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
pub(super) const IFLA_ALT_IFNAME: u16 = 53;
pub(super) const IFLA_PROP_LIST: u16 = 52;

/// RTM_NEWLINKPROP and RTM_DELLINKPROP, which libc lacks.
pub(super) const RTM_NEWLINKPROP: u16 = 108;
pub(super) const RTM_DELLINKPROP: u16 = 109;
