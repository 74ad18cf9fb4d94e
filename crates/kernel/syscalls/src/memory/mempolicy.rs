//! mbind(2), set_mempolicy(2), get_mempolicy(2), set_mempolicy_home_node(2), migrate_pages(2), move_pages(2), as on a machine
//! of one node.

use crate::arg::Ptr;
use crate::memory::mmap::vm_target;
use abi::{Errno, PAGE_SIZE, Result, page_down};
use caller::HasCredentials;
use mm::{Mode, Policy};
use platform::OwnCall;
use rights::Cap;
use std::sync::Arc;
use task::{Current, SysResult};

/// Bits of a node mask that are read at most.
const MAX_BITS: u64 = PAGE_SIZE * 8;
/// Nodes that a kernel can be built for.
const MAX_NODES: u64 = 1024;

const MF_STRICT: u32 = 1;
const MF_MOVE: u32 = 2;
const MF_MOVE_ALL: u32 = 4;

/// The nodes of a mask of `bits - 1` bits; all above the first 64 count as the last of these.
fn read_nodes(c: &Current, mask: Ptr, bits: u64) -> Result<u64> {
    let bits = bits.wrapping_sub(1);
    if bits == 0 || mask.is_null() {
        return Ok(0);
    }
    if bits > MAX_BITS {
        return Err(Errno::EINVAL);
    }
    let mut words: Vec<u64> = c.read_array(mask.0, bits.div_ceil(64) as usize, MAX_BITS as usize / 64)?;
    if let Some(last) = words.last_mut()
        && !bits.is_multiple_of(64)
    {
        *last &= (1 << (bits % 64)) - 1;
    }
    let (known, beyond) = words.split_at(words.len().min(MAX_NODES as usize / 64));
    if beyond.iter().any(|w| *w != 0) {
        return Err(Errno::EINVAL);
    }
    let first = known.first().copied().unwrap_or(0);
    let more = known.iter().skip(1).any(|w| *w != 0);
    Ok(first | u64::from(more) << 63)
}

fn write_nodes(c: &mut Current, mask: Ptr, bits: u64, nodes: u64) -> Result<()> {
    let bytes = bits.wrapping_sub(1).div_ceil(64).saturating_mul(8);
    if bytes > PAGE_SIZE {
        return Err(Errno::EINVAL);
    }
    let mut out = vec![0; bytes as usize];
    if let Some(first) = out.first_chunk_mut() {
        *first = nodes.to_le_bytes();
    }
    c.write_bytes(mask.0, &out)
}

pub fn mbind(
    c: &mut Current,
    start: u64,
    len: u64,
    mode: i32,
    mask: Ptr,
    bits: u64,
    flags: u32,
) -> SysResult {
    let nodes = read_nodes(c, mask, bits)?;
    if flags & !(MF_STRICT | MF_MOVE | MF_MOVE_ALL) != 0 {
        return Err(Errno::EINVAL.into());
    }
    if flags & MF_MOVE_ALL != 0 && !c.creds().capable(Cap::SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    c.mm.set_policy(start, len, Policy::new(mode, nodes))?;
    Ok(0)
}

pub fn set_mempolicy(c: &mut Current, mode: i32, mask: Ptr, bits: u64) -> SysResult {
    let nodes = read_nodes(c, mask, bits)?;
    let policy = Policy::new(mode, nodes)?;
    *c.task.mempolicy.lock() = policy;
    Ok(0)
}

pub fn get_mempolicy(c: &mut Current, to: Ptr, mask: Ptr, bits: u64, addr: u64, flags: u64) -> SysResult {
    const NODE: u64 = 1;
    const ADDR: u64 = 2;
    const ALLOWED: u64 = 4;
    if !mask.is_null() && bits < 1 || flags & !(NODE | ADDR | ALLOWED) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let (value, nodes) = if flags & ALLOWED != 0 {
        if flags & (NODE | ADDR) != 0 {
            return Err(Errno::EINVAL.into());
        }
        (0, 1)
    } else {
        let own = *c.task.mempolicy.lock();
        let policy = if flags & ADDR != 0 {
            c.mm.with_map(|m| m.policy_at(addr)).ok_or(Errno::EFAULT)?
        } else if addr != 0 {
            return Err(Errno::EINVAL.into());
        } else {
            own
        };
        let (shown, nodes) = policy.shown();
        match flags & (NODE | ADDR) {
            both if both == NODE | ADDR => {
                // The page is read in to see where it is.
                c.read_bytes(page_down(addr), &mut [0])?;
                (0, nodes)
            }
            NODE if matches!(policy.mode, Mode::Interleave | Mode::WeightedInterleave) => (0, nodes),
            NODE => return Err(Errno::EINVAL.into()),
            _ => (shown, nodes),
        }
    };
    if !to.is_null() {
        c.write_value(to.0, &value)?;
    }
    if !mask.is_null() {
        write_nodes(c, mask, bits, nodes)?;
    }
    Ok(0)
}

pub fn set_mempolicy_home_node(c: &mut Current, start: u64, len: u64, node: u64, flags: u64) -> SysResult {
    if !start.is_multiple_of(PAGE_SIZE) || flags != 0 || node != 0 {
        return Err(Errno::EINVAL.into());
    }
    c.mm.set_home_node(start, len)?;
    Ok(0)
}

/// The memory of a process that is asked about; `None`: the caller's own.
fn target(c: &Current, pid: i32) -> Result<Option<Arc<mm::Mm>>> {
    if pid == 0 {
        return Ok(None);
    }
    let mm = vm_target(c, pid)?;
    Ok((!Arc::ptr_eq(&mm, &c.mm)).then_some(mm))
}

pub fn migrate_pages(c: &mut Current, pid: i32, bits: u64, old: Ptr, new: Ptr) -> SysResult {
    read_nodes(c, old, bits)?;
    let new = read_nodes(c, new, bits)?;
    target(c, pid)?;
    if new & !1 != 0 && !c.creds().capable(Cap::SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    // Everything is on the one node already.
    if new & 1 == 0 { Err(Errno::EINVAL.into()) } else { Ok(0) }
}

/// Pages of move_pages(2) that are looked at at once.
const PIECE: usize = 512;

pub fn move_pages(
    c: &mut Current,
    pid: i32,
    count: u64,
    pages: Ptr,
    nodes: Ptr,
    status: Ptr,
    flags: i32,
) -> SysResult {
    if flags as u32 & !(MF_MOVE | MF_MOVE_ALL) != 0 {
        return Err(Errno::EINVAL.into());
    }
    if flags as u32 & MF_MOVE_ALL != 0 && !c.creds().capable(Cap::SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    let other = target(c, pid)?;
    let mut done = 0;
    while done < count && !c.is_killed() {
        let n = (count - done).min(PIECE as u64) as usize;
        let addresses: Vec<u64> = c.read_array(pages.0.wrapping_add(done * 8), n, PIECE)?;
        if !nodes.is_null() {
            let wanted: Vec<i32> = c.read_array(nodes.0.wrapping_add(done * 4), n, PIECE)?;
            if wanted.iter().any(|node| *node != 0) {
                return Err(Errno::ENODEV.into());
            }
        }
        let answers: Vec<i32> = addresses.iter().map(|a| node_of(c, other.as_deref(), *a)).collect();
        let bytes: Vec<u8> = answers.iter().flat_map(|a| a.to_le_bytes()).collect();
        c.write_bytes(status.0.wrapping_add(done * 4), &bytes)?;
        c.ctx.flush()?;
        done += n as u64;
    }
    Ok(0)
}

/// The node of a page, or the error that stands for it. The host is asked about the caller's own pages only.
fn node_of(c: &mut Current, other: Option<&mm::Mm>, addr: u64) -> i32 {
    let mm = other.unwrap_or(&c.mm);
    if mm.with_map(|m| m.find(addr).is_none()) {
        return -libc::EFAULT;
    }
    let mut resident = [1];
    if other.is_none() && c.ctx.own_call(OwnCall::Mincore(page_down(addr), 1), &mut resident).is_err() {
        return -libc::EFAULT;
    }
    if resident[0] & 1 == 0 { -libc::ENOENT } else { 0 }
}
