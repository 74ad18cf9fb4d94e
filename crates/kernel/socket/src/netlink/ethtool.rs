//! SIOCETHTOOL: the data that ethtool(8) shows of an interface. All are virtual devices without settings. Their
//! driver's name and the state of the link are answered, the rest is EOPNOTSUPP.

use crate::net_ns::NetNamespace;
use abi::{Errno, Result};
use caller::UserMemory;
use spec::Interface;

/// Length of `struct ifreq`, and where its value begins.
const IFREQ: usize = 40;
const NAME: usize = 16;
/// ETHTOOL_*.
const GDRVINFO: u32 = 0x03;
const GLINK: u32 = 0x0a;
const GET_TS_INFO: u32 = 0x41;
/// Bytes of `struct ethtool_ts_info`, and where its second and its third number are.
const TS_INFO: usize = 44;
const STAMPS: usize = 4;
const CLOCK: usize = 8;
/// SOF_TIMESTAMPING_TX_SOFTWARE, SOF_TIMESTAMPING_RX_SOFTWARE and SOF_TIMESTAMPING_SOFTWARE.
const SENT: u32 = 2;
const RECEIVED: u32 = 8 | 16;
/// `struct ethtool_drvinfo`: its length, and where name and version are.
const DRVINFO: usize = 196;
const DRIVER: usize = 4;
const VERSION: usize = 36;

/// Answers a request.
pub(super) fn answer(net: &NetNamespace, mem: &mut dyn UserMemory, arg: u64) -> Result<u64> {
    let mut request = [0; IFREQ];
    mem.copy_in(arg, &mut request)?;
    let name = request[..NAME].split(|&b| b == 0).next().unwrap_or_default();
    let shown = net.interfaces();
    let link = shown.links.iter().find(|link| link.name.as_bytes() == name).ok_or(Errno::ENODEV)?;
    let mut pointer = [0; 8];
    pointer.copy_from_slice(&request[NAME..NAME + 8]);
    let data = u64::from_ne_bytes(pointer);
    let mut command = [0; 4];
    mem.copy_in(data, &mut command)?;
    match u32::from_ne_bytes(command) {
        GDRVINFO => {
            let own = net.stack().link(link.index).filter(|_| net.shows_stack());
            driver(link, own.map_or("", |own| own.about().kind), mem, data)
        }
        GLINK => {
            let up = link.flags & libc::IFF_UP as u32 != 0;
            mem.copy_out(data + 4, &u32::from(up).to_ne_bytes())?;
            Ok(0)
        }
        GET_TS_INFO => {
            let own = net.stack().link(link.index).filter(|_| net.shows_stack());
            stamps(own.is_some_and(|own| own.about().kind == "bridge"), mem, data)
        }
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// ETHTOOL_GET_TS_INFO: timestamps of the kernel's clock, and no clock of a device's own. A bridge does not stamp what
/// it sends.
fn stamps(bridge: bool, mem: &mut dyn UserMemory, data: u64) -> Result<u64> {
    let mut out = [0; TS_INFO];
    let known = if bridge { RECEIVED } else { SENT | RECEIVED };
    for (at, number) in [(0, GET_TS_INFO), (STAMPS, known), (CLOCK, u32::MAX)] {
        out[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
    mem.copy_out(data, &out)?;
    Ok(0)
}

/// ETHTOOL_GDRVINFO: the kind of a virtual interface; the loopback interface has no driver.
fn driver(link: &Interface, kind: &str, mem: &mut dyn UserMemory, data: u64) -> Result<u64> {
    if link.flags & libc::IFF_LOOPBACK as u32 != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut out = [0; DRVINFO];
    out[..4].copy_from_slice(&GDRVINFO.to_ne_bytes());
    let kind = if kind.is_empty() { "ringfence" } else { kind };
    for (at, text) in [(DRIVER, kind), (VERSION, "1.0")] {
        out[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    mem.copy_out(data, &out)?;
    Ok(0)
}
