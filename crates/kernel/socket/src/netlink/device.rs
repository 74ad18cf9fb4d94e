//! The requests of netdevice(7) that any socket takes, whatever its family.

use abi::{Errno, Result};
use spec::{Interface, Interfaces};
use std::net::IpAddr;
use vfs::UserMemory;

/// Length of `struct ifreq`, and where its value begins.
const IFREQ: usize = 40;
const NAME: usize = 16;

const SIOCGIFNAME: u32 = 0x8910;
const SIOCGIFCONF: u32 = 0x8912;
const SIOCGIFFLAGS: u32 = 0x8913;
const SIOCGIFMETRIC: u32 = 0x891d;
const SIOCGIFMTU: u32 = 0x8921;
const SIOCGIFHWADDR: u32 = 0x8927;
const SIOCGIFINDEX: u32 = 0x8933;
const SIOCGIFTXQLEN: u32 = 0x8942;

/// Answers one; ENOTTY for what is none of them.
pub(crate) fn ioctl(net: &Interfaces, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<u64> {
    match cmd {
        SIOCGIFCONF => return conf(net, mem, arg),
        SIOCGIFNAME | SIOCGIFFLAGS | SIOCGIFMETRIC | SIOCGIFMTU | SIOCGIFHWADDR | SIOCGIFINDEX
        | SIOCGIFTXQLEN => {}
        _ => return Err(Errno::ENOTTY),
    }
    let mut request = [0; IFREQ];
    mem.copy_in(arg, &mut request)?;
    let index = u32::from_ne_bytes([request[16], request[17], request[18], request[19]]);
    let name = request[..NAME].split(|&b| b == 0).next().unwrap_or_default();
    let found = net.links.iter().find(|link| match cmd {
        SIOCGIFNAME => link.index == index,
        _ => link.name.as_bytes() == name,
    });
    let link = found.ok_or(Errno::ENODEV)?;
    let value = match cmd {
        SIOCGIFNAME => {
            mem.copy_out(arg, &name_of(link))?;
            return Ok(0);
        }
        SIOCGIFFLAGS => (link.flags as u16).to_ne_bytes().to_vec(),
        SIOCGIFMETRIC => vec![0; 4],
        SIOCGIFMTU => link.mtu.to_ne_bytes().to_vec(),
        SIOCGIFHWADDR => {
            let mut address = link.kind.to_ne_bytes().to_vec();
            address.extend(&link.address);
            address.resize(16, 0);
            address
        }
        SIOCGIFTXQLEN => 1000u32.to_ne_bytes().to_vec(),
        _ => link.index.to_ne_bytes().to_vec(),
    };
    mem.copy_out(arg + NAME as u64, &value)?;
    Ok(0)
}

fn name_of(link: &Interface) -> [u8; NAME] {
    let mut name = [0; NAME];
    let bytes = link.name.as_bytes();
    let len = bytes.len().min(NAME - 1);
    name[..len].copy_from_slice(&bytes[..len]);
    name
}

/// SIOCGIFCONF: interfaces with their IPv4 addresses, as many as there is room for; without a buffer, the room they need.
fn conf(net: &Interfaces, mem: &mut dyn UserMemory, arg: u64) -> Result<u64> {
    let mut ifconf = [0; 16];
    mem.copy_in(arg, &mut ifconf)?;
    let word = |at: usize| i32::from_ne_bytes([ifconf[at], ifconf[at + 1], ifconf[at + 2], ifconf[at + 3]]);
    let mut pointer = [0; 8];
    pointer.copy_from_slice(&ifconf[8..]);
    let (room, buffer) = (word(0).max(0) as usize, u64::from_ne_bytes(pointer));
    let mut out = Vec::new();
    for link in &net.links {
        for (ip, _) in &link.addresses {
            let IpAddr::V4(ip) = ip else { continue };
            let mut request = name_of(link).to_vec();
            request.extend((libc::AF_INET as u16).to_ne_bytes());
            request.extend([0, 0]);
            request.extend(ip.octets());
            request.resize(IFREQ, 0);
            out.extend(request);
        }
    }
    if buffer != 0 {
        out.truncate(room / IFREQ * IFREQ);
        mem.copy_out(buffer, &out)?;
    }
    mem.copy_out(arg, &(out.len() as u32).to_ne_bytes())?;
    Ok(0)
}
