//! The requests of the device.

use crate::device::{FEATURES, IFF_NOFILTER, IFF_PERSIST, InterfaceRequest, Tun};
use crate::file::TunFile;
use crate::names::SIZE as NAME;
use abi::{Errno, Result};
use caller::UserMemory;
use netstack::driver::Features;
use netstack::vnet;
use vfs::Caller;

const TUNSETNOCSUM: u32 = 0x4004_54c8;
const TUNSETIFF: u32 = 0x4004_54ca;
const TUNSETPERSIST: u32 = 0x4004_54cb;
const TUNSETOWNER: u32 = 0x4004_54cc;
const TUNSETGROUP: u32 = 0x4004_54ce;
const TUNGETFEATURES: u32 = 0x8004_54cf;
const TUNSETOFFLOAD: u32 = 0x4004_54d0;
const TUNGETIFF: u32 = 0x8004_54d2;
const TUNGETSNDBUF: u32 = 0x8004_54d3;
const TUNSETSNDBUF: u32 = 0x4004_54d4;
const TUNGETVNETHDRSZ: u32 = 0x8004_54d7;
const TUNSETVNETHDRSZ: u32 = 0x4004_54d8;
const TUNSETIFINDEX: u32 = 0x4004_54da;
/// Flags of TUNSETOFFLOAD: checksums, TCP over IPv4 and IPv6 in large segments, these with ECN, and large datagrams, of which
/// the stack sends none.
const TUN_F_CSUM: u64 = 1;
const TUN_F_TSO4: u64 = 2;
const TUN_F_TSO6: u64 = 4;
const TUN_F_TSO_ECN: u64 = 8;
const TUN_F_UFO: u64 = 0x10;
const TUN_F_USO: u64 = 0x20 | 0x40;
const SIOCGIFHWADDR: u32 = 0x8927;

/// Bytes of `struct ifreq`.
const IFREQ: usize = 40;
/// Longest virtio-net header: zero bytes fill what the known ones leave.
pub(crate) const MOST_VNET: usize = 4096;
/// ARPHRD_ETHER, ARPHRD_NONE.
const ETHER: u16 = 1;
const NONE: u16 = 0xfffe;

pub(crate) fn ioctl(
    file: &TunFile,
    cx: &dyn Caller,
    mem: &mut dyn UserMemory,
    cmd: u32,
    arg: u64,
) -> Result<u64> {
    match cmd {
        TUNGETFEATURES => mem.write_value(arg, &u32::from(FEATURES))?,
        TUNSETIFF => set_iff(file, cx, mem, arg)?,
        TUNSETIFINDEX => set_index(file, mem, arg)?,
        TUNSETOFFLOAD => {
            let tun = file.tun()?;
            tun.state.lock().offload = offload(arg)?;
            file.tuns.apply_offload(&tun);
        }
        _ => of_tun(&*file.tun()?, mem, cmd, arg)?,
    }
    Ok(0)
}

fn set_iff(file: &TunFile, cx: &dyn Caller, mem: &mut dyn UserMemory, arg: u64) -> Result<()> {
    let mut request = [0; IFREQ];
    mem.copy_in(arg, &mut request)?;
    let mut attached = file.attached.lock();
    if attached.tun.is_some() {
        return Err(Errno::EEXIST);
    }
    let name = request[..NAME - 1].split(|&b| b == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(name).map_err(|_| Errno::EINVAL)?;
    let flags = u16::from_ne_bytes([request[NAME], request[NAME + 1]]);
    let wanted = InterfaceRequest { name, flags, index: attached.index };
    let tun = file.tuns.attach(cx, &wanted, &file.queue)?;
    put_name(&mut request, &tun);
    attached.tun = Some(tun);
    drop(attached);
    mem.copy_out(arg, &request)
}

/// What the flags of TUNSETOFFLOAD ask for. Segments need checksums, and both kinds of large datagrams come together.
fn offload(flags: u64) -> Result<Features> {
    let (checksum, large) = (flags & TUN_F_CSUM != 0, flags & (TUN_F_TSO4 | TUN_F_TSO6) != 0);
    let mut known = TUN_F_CSUM;
    if checksum {
        known |= TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_UFO | if large { TUN_F_TSO_ECN } else { 0 };
        known |= if flags & TUN_F_USO == TUN_F_USO { TUN_F_USO } else { 0 };
    }
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Features { checksum, tso4: flags & TUN_F_TSO4 != 0, tso6: flags & TUN_F_TSO6 != 0 })
}

fn set_index(file: &TunFile, mem: &mut dyn UserMemory, arg: u64) -> Result<()> {
    if file.attached.lock().tun.is_some() {
        return Err(Errno::EPERM);
    }
    let index: i32 = mem.read_value(arg)?;
    let mut attached = file.attached.lock();
    // Another thread may have attached an interface meanwhile.
    if attached.tun.is_some() {
        return Err(Errno::EPERM);
    }
    attached.index = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
    Ok(())
}

fn put_name(request: &mut [u8; IFREQ], tun: &Tun) {
    let name = tun.link.name();
    let len = name.len().min(NAME - 1);
    request[..NAME].fill(0);
    request[..len].copy_from_slice(&name.as_bytes()[..len]);
}

/// The requests that need an interface.
fn of_tun(tun: &Tun, mem: &mut dyn UserMemory, cmd: u32, arg: u64) -> Result<()> {
    // The argument itself is an int.
    let number = arg as u32;
    let id = || if number == u32::MAX { Err(Errno::EINVAL) } else { Ok(Some(number)) };
    match cmd {
        TUNGETIFF => {
            let mut request = [0; IFREQ];
            put_name(&mut request, tun);
            let flags = tun.shown_flags() | IFF_NOFILTER;
            request[NAME..NAME + 2].copy_from_slice(&flags.to_ne_bytes());
            mem.copy_out(arg, &request)?;
        }
        // Linux ignores it as well: checksums are always made.
        TUNSETNOCSUM => {}
        TUNSETPERSIST => {
            let mut state = tun.state.lock();
            state.flags = state.flags & !IFF_PERSIST | if arg != 0 { IFF_PERSIST } else { 0 };
        }
        TUNSETOWNER => tun.state.lock().owner = id()?,
        TUNSETGROUP => tun.state.lock().group = id()?,
        TUNGETVNETHDRSZ => {
            let size = tun.state.lock().vnet as i32;
            mem.write_value(arg, &size)?;
        }
        TUNSETVNETHDRSZ => {
            let size: i32 = mem.read_value(arg)?;
            let fits = usize::try_from(size).ok().filter(|size| (vnet::HEADER..=MOST_VNET).contains(size));
            tun.state.lock().vnet = fits.ok_or(Errno::EINVAL)?;
        }
        TUNGETSNDBUF => {
            let size = tun.state.lock().sndbuf;
            mem.write_value(arg, &size)?;
        }
        TUNSETSNDBUF => {
            let size: i32 = mem.read_value(arg)?;
            if size <= 0 {
                return Err(Errno::EINVAL);
            }
            tun.state.lock().sndbuf = size;
        }
        SIOCGIFHWADDR => {
            let mut request = [0; IFREQ];
            mem.copy_in(arg, &mut request)?;
            let (kind, mac) = if tun.tap { (ETHER, tun.link.mac().0) } else { (NONE, [0; 6]) };
            request[NAME..NAME + 2].copy_from_slice(&kind.to_ne_bytes());
            request[NAME + 2..NAME + 8].copy_from_slice(&mac);
            mem.copy_out(arg, &request)?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}
