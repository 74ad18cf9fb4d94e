//! Rewriting call sites: which instructions may become a jump, and the trampoline that it leads to.
//!
//! There are two forms. *Head*: an instruction of five bytes or more before `syscall` (`mov $number,%eax` and similar)
//! becomes the jump, unless the bytes before it show that it is the end of a longer instruction ([`is_operand`]). The
//! `syscall` stays, so a jump directly to it still makes the call, by signal. *Tail*: the jump replaces `syscall` and
//! at least three bytes after it. These are whole instructions that mean the same elsewhere, and the trampoline
//! executes them. A program may come back to any of them: it may jump there, or return from a handler of a signal that
//! arrived when it had executed some. The byte where such an instruction began is a byte of the jump's distance. It is
//! always chosen so that no instruction starts with it ([`Traps`]), and the stub continues at the same instruction in the
//! trampoline (`back_into_site` in stub.c). So each address that a program is shown leads back.
//!
//! A trampoline is [`TRAMP_SIZE`] bytes: the head's instruction; r11 = itself; a jump to the stub; at
//! [`TRAMP_CALL`] a `syscall` for calls that cannot take the fast path; at [`TRAMP_BACK`] the tail's instructions and
//! the jump back; then the address of the stub's entry and two that count from the trampoline's own. So a trampoline means
//! the same wherever it stands, as long as its distance to the site is the same, and [`crate::twin`] shares them.

use parking_lot::RwLock;
use platform::{AddressSpace, REWRITE_AREA, Rewrite, Twin};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use stub::layout::{STUB_FAST, TRAMP_BACK, TRAMP_CALL, TRAMP_ENTRY, TRAMP_FALLBACK, TRAMP_RIP, TRAMP_SIZE};

/// Most addresses of call sites, rewritten or not, that are remembered for one address space.
const MAX_KNOWN: usize = 4096;

/// Twins that are remembered for one address space, more than the kernel has it map.
const MAX_TWINS: usize = 256;

/// Of those that are mapped no more, so many are remembered.
const MAX_FORMER: usize = 8;

/// Places for an area that are named at most.
const MAX_PLACES: usize = 512;

/// Areas per address space.
const MAX_AREAS: usize = 8;
/// Bytes looked at on either side of the address after `syscall`.
pub(crate) const AROUND: usize = 16;
/// Opcodes that raise an invalid-opcode exception in 64-bit mode, whatever follows.
pub(crate) const INVALID: &[u8] =
    &[0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x9a, 0xce, 0xd4, 0xea];
pub(crate) const CACHE_LINE: u64 = 64;

/// What can be done about a call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes from the start of the jump to the address after `syscall`.
    pub(crate) before: usize,
    /// The displaced instruction before it.
    pub(crate) head: Vec<u8>,
    /// The displaced instructions after it.
    pub(crate) tail: Vec<u8>,
    /// The last of these is a return.
    returns: bool,
    /// Where these begin under the jump.
    pub(crate) traps: Traps,
}

/// The bytes of a jump's distance where a displaced instruction began: those after the lowest one. Each must be an
/// invalid opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traps([bool; 3]);

impl Traps {
    /// A jump over this distance traps wherever it has to.
    fn hold(self, distance: i32) -> bool {
        let [_, bytes @ ..] = distance.to_le_bytes();
        self.0.iter().zip(bytes).all(|(trap, byte)| !trap || INVALID.contains(&byte))
    }

    /// The place of the area matters, as the upper bytes are the same, or nearly, in all of it.
    fn choosy(self) -> bool {
        matches!(self.0, [_, true, _] | [_, _, true])
    }

    /// Where an area for the site may start, best first: below the site, near it; then above it, far from what grows there.
    fn places(self, site: u64) -> Vec<u64> {
        let [_, third, fourth] = self.0;
        let values = |choosy: bool| (0..=u8::MAX).filter(move |byte| !choosy || INVALID.contains(byte));
        let mut steps: Vec<i32> = values(fourth)
            .filter(|byte| (*byte as i8).unsigned_abs() < (REACH >> 24) as u8)
            .flat_map(|fourth| values(third).map(move |third| i32::from_le_bytes([0, 0, third, fourth])))
            .collect();
        steps.sort_unstable_by_key(|step| (*step > 0, -step));
        let place = |step: i32| {
            let start = site.checked_add(5)?.checked_add_signed(i64::from(step))?;
            start.checked_next_multiple_of(abi::PAGE_SIZE).filter(|start| *start != 0)
        };
        // Some of both, as there may be no room on one side.
        let (below, above): (Vec<i32>, Vec<i32>) = steps.into_iter().partition(|step| *step <= 0);
        let half =
            |steps: Vec<i32>| steps.into_iter().filter_map(place).take(MAX_PLACES / 2).collect::<Vec<u64>>();
        [half(below), half(above)].concat()
    }
}

/// How far areas are from sites at most.
const REACH: u32 = 0x7000_0000;

/// A rewritten site.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// Where the jump stands.
    pub(crate) at: u64,
    /// The address after `syscall`.
    pub(crate) rip: u64,
    /// Displaced bytes after that.
    pub(crate) tail: u64,
    /// What was where the jump is.
    pub(crate) old: [u8; 5],
}

impl Site {
    /// The program's own address for one at `offset` in the site's trampoline.
    pub(crate) fn own(&self, offset: u64) -> u64 {
        match offset {
            0 => self.at,
            _ if offset < TRAMP_BACK => self.rip - 2,
            _ => self.rip + (offset - TRAMP_BACK).min(self.tail),
        }
    }
}

/// `bytes` were read at `from`. Where they are `new`, which stands at `at`, makes them `old`; also if they are a part of it.
pub(crate) fn put_back(bytes: &mut [u8], from: u64, at: u64, new: &[u8], old: &[u8]) {
    let (end, until) = (from.saturating_add(bytes.len() as u64), at.saturating_add(new.len() as u64));
    let (first, last) = (from.max(at), end.min(until));
    if first >= last {
        return;
    }
    let part = |base: u64| (first - base) as usize..(last - base) as usize;
    if let (Some(here), Some(new), Some(old)) =
        (bytes.get_mut(part(from)), new.get(part(at)), old.get(part(at)))
        && here == new
    {
        here.copy_from_slice(old);
    }
}

/// A twin that is mapped.
#[derive(Clone)]
struct Mapped {
    /// Where it starts.
    start: u64,
    /// Where its trampolines are.
    trampolines: Range<u64>,
    twin: Arc<dyn Twin>,
}

#[derive(Clone, Default)]
struct Tables {
    /// By address of the trampoline.
    sites: HashMap<u64, Site>,
    /// Sites that are rewritten or cannot be.
    known: HashSet<u64>,
}

/// The rewritten call sites of an address space.
#[derive(Default)]
pub(crate) struct Sites {
    tables: RwLock<Tables>,
    areas: [AtomicU64; MAX_AREAS],
    twins: RwLock<Vec<Mapped>>,
    /// Those forgotten last: threads may still be on their way back to one.
    former: RwLock<Vec<Mapped>>,
}

/// What to write where.
#[derive(Debug)]
pub(crate) struct Patch {
    pub(crate) trampoline: u64,
    pub(crate) code: Vec<u8>,
    pub(crate) site: u64,
    pub(crate) jump: Vec<u8>,
    /// The jump as an atomic exchange: address, old, new. `None`: it crosses a cache line, and no other thread executes
    /// it.
    pub(crate) swap: Option<(u64, u64, u64)>,
}

impl Sites {
    /// The same for a copy of the memory.
    pub(crate) fn copy(&self) -> Sites {
        let areas = std::array::from_fn(|i| AtomicU64::new(self.areas[i].load(Relaxed)));
        let twins = RwLock::new(self.twins.read().clone());
        Sites { tables: RwLock::new(self.tables.read().clone()), areas, twins, former: RwLock::default() }
    }

    /// A twin is mapped at `start`.
    pub(crate) fn add_twin(&self, start: u64, twin: Arc<dyn Twin>) {
        let Range { start: from, end } = twin.trampolines();
        let mut twins = self.twins.write();
        twins.retain(|t| t.start != start);
        if twins.len() < MAX_TWINS {
            twins.push(Mapped { start, trampolines: start + from..start + end, twin });
        }
    }

    /// Its trampolines are gone.
    pub(crate) fn forget_twin(&self, start: u64) {
        let mut twins = self.twins.write();
        if let Some(i) = twins.iter().position(|t| t.start == start) {
            let gone = twins.remove(i);
            let mut former = self.former.write();
            if former.len() >= MAX_FORMER {
                former.remove(0);
            }
            former.push(gone);
        }
    }

    /// The guest's own address for one where there were trampolines of a twin.
    pub(crate) fn former_rip(&self, rip: u64) -> Option<u64> {
        let former = self.former.read();
        let twin = former.iter().find(|t| t.trampolines.contains(&rip))?;
        let own = twin.start + twin.twin.own_offset(rip - twin.start);
        (own != rip).then_some(own)
    }

    /// Takes memory for trampolines; more than [`MAX_AREAS`] are not used.
    pub(crate) fn add_area(&self, start: u64) {
        for a in &self.areas {
            if a.compare_exchange(0, start, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// The areas are the guest's again; new sites are refused.
    pub(crate) fn forget_areas(&self) {
        for a in &self.areas {
            a.store(u64::MAX, Relaxed);
        }
    }

    /// Nothing is left to do about this site.
    pub(crate) fn knows(&self, rip: u64) -> bool {
        self.tables.read().known.contains(&rip)
    }

    /// A patch could not be made.
    pub(crate) fn forget(&self, p: &Patch) {
        self.tables.write().sites.remove(&p.trampoline);
    }

    /// The guest's own address for one inside a trampoline; any other stays the same.
    pub(crate) fn guest_rip(&self, rip: u64) -> u64 {
        let inside = |a: &AtomicU64| {
            let start = a.load(Relaxed);
            start != 0 && rip.wrapping_sub(start) < REWRITE_AREA
        };
        if !self.areas.iter().any(inside) {
            let twins = self.twins.read();
            let twin = twins.iter().find(|t| t.trampolines.contains(&rip));
            return twin.map_or(rip, |t| t.start + t.twin.own_offset(rip - t.start));
        }
        let offset = rip % TRAMP_SIZE;
        self.tables.read().sites.get(&(rip - offset)).map_or(rip, |s| s.own(offset))
    }

    /// Gives bytes that were read at an address what the program has there.
    pub(crate) fn show_own(&self, addr: u64, bytes: &mut [u8]) {
        for (trampoline, site) in &self.tables.read().sites {
            if let Some(jump) = jump(site.at, *trampoline) {
                put_back(bytes, addr, site.at, &jump, &site.old);
            }
        }
        for t in self.twins.read().iter() {
            let end = addr.saturating_add(bytes.len() as u64);
            let (first, last) = (addr.max(t.start), end.min(t.trampolines.end));
            if first < last
                && let Some(part) = bytes.get_mut((first - addr) as usize..(last - addr) as usize)
            {
                t.twin.show_own(first - t.start, part);
            }
        }
    }

    /// Plans the rewriting of a site. `alone`: the address space has one thread.
    pub(crate) fn plan(&self, space: &dyn AddressSpace, rip: u64, alone: bool) -> Result<Patch, Rewrite> {
        let mut bytes = [0; 2 * AROUND];
        // The guest names the address, so it may be any.
        let start = rip.checked_sub(AROUND as u64).filter(|_| rip < 1 << 47).ok_or(Rewrite::Refused)?;
        let mut tables = self.tables.write();
        // The guest can name any address; what is remembered of its text has an end.
        let full = tables.known.len() >= MAX_KNOWN;
        if full || tables.known.contains(&rip) || space.read(start, &mut bytes) != bytes.len() {
            return Err(Rewrite::Refused);
        }
        let Some(shape) = shape(&bytes) else {
            tables.known.insert(rip);
            return Err(Rewrite::Refused);
        };
        let site = rip - shape.before as u64;
        let mut near = false;
        let found = self.areas.iter().map(|a| a.load(Relaxed)).filter(|a| *a != 0).find_map(|a| {
            // Of areas that were forgotten there is no end.
            let area = a..a.checked_add(REWRITE_AREA)?;
            let close = distance(site, area.start).is_some() && distance(site, area.end).is_some();
            let can = |t: u64| distance(site, t).is_some_and(|d| shape.traps.hold(d));
            near |= close && (!shape.traps.choosy() || trampolines(area.clone()).any(can));
            if close { free(&tables.sites, area, site, shape.traps) } else { None }
        });
        let Some(trampoline) = found else {
            let full = near || self.areas.iter().all(|a| a.load(Relaxed) != 0);
            let places = if shape.traps.choosy() { shape.traps.places(site) } else { Vec::new() };
            return Err(if full { Rewrite::Refused } else { Rewrite::NeedsArea(places) });
        };
        tables.known.insert(rip);
        let (Some(jump), Some(code)) = (jump(site, trampoline), code(&shape, trampoline, rip)) else {
            return Err(Rewrite::Refused);
        };
        let swap = if let Some(at) = in_one_line(site) {
            let old: [u8; 8] = start_at(&bytes, start, at).ok_or(Rewrite::Refused)?;
            let mut new = old;
            let offset = (site - at) as usize;
            new.get_mut(offset..offset + 5).ok_or(Rewrite::Refused)?.copy_from_slice(&jump);
            Some((at, u64::from_le_bytes(old), u64::from_le_bytes(new)))
        } else if alone && (site ^ (site + 4)) < abi::PAGE_SIZE {
            None
        } else {
            return Err(Rewrite::Refused);
        };
        let old = start_at(&bytes, start, site).ok_or(Rewrite::Refused)?;
        tables.sites.insert(trampoline, Site { at: site, rip, tail: shape.tail.len() as u64, old });
        Ok(Patch { trampoline, code, site, jump: jump.to_vec(), swap })
    }
}

/// Where the eight bytes begin, all in the cache line of `site`, that hold the jump; `None`: it does not fit into the line.
pub(crate) fn in_one_line(site: u64) -> Option<u64> {
    let end = site / CACHE_LINE * CACHE_LINE + CACHE_LINE;
    (site + 5 <= end).then(|| site.min(end - 8))
}

/// Some of the bytes that begin at `start`.
fn start_at<const N: usize>(bytes: &[u8], start: u64, at: u64) -> Option<[u8; N]> {
    let from = usize::try_from(at.checked_sub(start)?).ok()?;
    bytes.get(from..from + N)?.try_into().ok()
}

/// The 32-bit distance of a jump of five bytes.
fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from.wrapping_add(5)) as i64).ok()
}

pub(crate) fn jump(from: u64, to: u64) -> Option<[u8; 5]> {
    let [a, b, c, d] = distance(from, to)?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

fn trampolines(area: Range<u64>) -> impl Iterator<Item = u64> {
    area.step_by(TRAMP_SIZE as usize)
}

/// A trampoline that is not in use, at such a distance that the jump traps where it has to.
pub(crate) fn free(sites: &HashMap<u64, Site>, area: Range<u64>, site: u64, traps: Traps) -> Option<u64> {
    trampolines(area).find(|t| !sites.contains_key(t) && distance(site, *t).is_some_and(|d| traps.hold(d)))
}

/// The code of a trampoline.
pub(crate) fn code(shape: &Shape, trampoline: u64, rip: u64) -> Option<Vec<u8>> {
    let mut c = shape.head.clone();
    // lea trampoline(%rip),%r11
    c.extend([0x4c, 0x8d, 0x1d]);
    c.extend((-(c.len() as i32 + 4)).to_le_bytes());
    // jmp *TRAMP_ENTRY(%rip)
    c.extend([0xff, 0x25]);
    c.extend((TRAMP_ENTRY as i32 - (c.len() as i32 + 4)).to_le_bytes());
    c.resize(TRAMP_CALL as usize, 0xcc);
    c.extend([0x0f, 0x05]);
    c.extend(&shape.tail);
    if !shape.returns {
        let here = trampoline + c.len() as u64;
        c.extend(jump(here, rip + shape.tail.len() as u64)?);
    }
    if c.len() > TRAMP_ENTRY as usize {
        return None;
    }
    c.resize(TRAMP_ENTRY as usize, 0xcc);
    let rip = rip.wrapping_sub(trampoline);
    let fallback = if shape.tail.is_empty() { rip.wrapping_sub(2) } else { TRAMP_CALL };
    for (at, v) in [(TRAMP_ENTRY, STUB_FAST), (TRAMP_RIP, rip), (TRAMP_FALLBACK, fallback)] {
        debug_assert_eq!(c.len() as u64, at);
        c.extend(v.to_le_bytes());
    }
    (c.len() as u64 == TRAMP_SIZE).then_some(c)
}

const RET: u8 = 0xc3;

/// How the site in the middle of these bytes can be rewritten.
pub(crate) fn shape(bytes: &[u8; 2 * AROUND]) -> Option<Shape> {
    let (before, after) = bytes.split_at(AROUND);
    let before = before.strip_suffix(&[0x0f, 0x05])?;
    head(before).or_else(|| tail(after))
}

fn head(before: &[u8]) -> Option<Shape> {
    let with = |n: usize| {
        let head = before.get(before.len() - n..)?.to_vec();
        Some(Shape { before: n + 2, head, tail: Vec::new(), returns: false, traps: Traps::default() })
    };
    match before {
        // mov $imm32,%rax
        [.., 0x48, 0xc7, 0xc0, _, _, 0, 0] => with(7),
        // mov 8(%rsp),%r9: the C library's syscall()
        [.., 0x4c, 0x8b, 0x4c, 0x24, 0x08] => with(5),
        // mov $imm32,%eax with a small number; a prefix would make another instruction of it
        [rest @ .., 0xb8, _, n, 0, 0] if *n < 4 && !is_operand(rest) => with(5),
        _ => None,
    }
}

/// The byte 0xb8 that follows these may be of the same instruction: an operand of it, a part of its constant, or the opcode
/// behind a prefix. `cmpl $0x50f,0x90(%rax)` holds `mov $0x90,%eax` and `syscall`.
fn is_operand(before: &[u8]) -> bool {
    match before {
        // Prefixes.
        [.., 0x40..=0x4f | 0x66] => true,
        // After a short jump, `xor $0x81,%sil` of the C library's locks and `mov (%rbx),%edi` the next ones are none.
        [.., 0x74 | 0x75, 0x2b] | [.., 0x80, 0xf6, 0x81] | [.., 0x8b, 0x3b] => false,
        // ModRM: 0x90(%rax) of what compilers write with such an operand, with a constant that begins with 0x0f too.
        [
            ..,
            0x03 | 0x2b | 0x39 | 0x3b | 0x63 | 0x69 | 0x6b | 0x80 | 0x81 | 0x83 | 0x85 | 0x89 | 0x8b | 0x8d,
        ] => true,
        // Shifts; the registers of an instruction between two are more usual.
        [.., op, 0xc0 | 0xc1] => {
            !matches!(op, 0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x39 | 0x63 | 0x85 | 0x89 | 0x8b)
        }
        // SIB: table(%rax,%rdi,4).
        [.., 0x03 | 0x2b | 0x39 | 0x3b | 0x63 | 0x85 | 0x89 | 0x8b | 0x8d, m] if m & 0xc7 == 0x84 => true,
        // A distance of -0x48, and a constant: movl $1,-0x48(%rbp), or -0x48(%rsp).
        [.., 0x69 | 0x81 | 0xc7 | 0xf7, m] if m & 0xc0 == 0x40 => true,
        [.., 0x69 | 0x81 | 0xc7 | 0xf7, m, _] if m & 0xc7 == 0x44 => true,
        // The upper half of a 64-bit constant.
        [.., 0x48..=0x4f, 0xb8..=0xbf, _, _, _] => true,
        _ => false,
    }
}

/// At least three bytes of instructions that mean the same at another place.
fn tail(after: &[u8]) -> Option<Shape> {
    let mut n = 0;
    let mut returns = false;
    let mut traps = Traps::default();
    while n < 3 {
        let rest = after.get(n..)?;
        *traps.0.get_mut(n)? = true;
        if *rest.first()? == RET {
            n += 1;
            // What follows must be filler, or it could be a function of its own.
            let filler = after.get(n..3.max(n))?;
            let long_nop = rest
                .get(1..4)
                .is_some_and(|r| matches!(r, [0x66, 0x0f, 0x1f] | [0x0f, 0x1f, _] | [0x66, 0x2e, _]));
            if !long_nop && filler.iter().any(|b| !matches!(b, 0x90 | 0xcc)) {
                return None;
            }
            returns = true;
            break;
        }
        n += movable(rest)?;
    }
    (n <= 8).then(|| Shape {
        before: 2,
        head: Vec::new(),
        tail: after.get(..n).unwrap_or_default().to_vec(),
        returns,
        traps,
    })
}

/// Length of the first instruction if it is one that may move.
fn movable(b: &[u8]) -> Option<usize> {
    let (rex, rest) = match b {
        [r @ 0x40..=0x4f, rest @ ..] => (Some(*r), rest),
        rest => (None, rest),
    };
    let prefix = usize::from(rex.is_some());
    let len = match rest {
        // push, pop
        [0x50..=0x5f, ..] => 1,
        // leave
        [0xc9, ..] if rex.is_none() => 1,
        // cmp $imm32,%eax or %rax
        [0x3d, ..] => 5,
        // arithmetic with an 8-bit constant
        [0x83, m, ..] => 2 + operand(*m, rest)?,
        // add or and sub xor cmp test mov lea
        [
            0x01 | 0x03 | 0x09 | 0x0b | 0x21 | 0x23 | 0x29 | 0x2b | 0x31 | 0x33 | 0x39 | 0x3b | 0x85 | 0x89
            | 0x8b | 0x8d,
            m,
            ..,
        ] => 1 + operand(*m, rest)?,
        // movslq
        [0x63, m, ..] if rex.is_some_and(|r| r & 8 != 0) => 1 + operand(*m, rest)?,
        _ => return None,
    };
    Some(prefix + len)
}

/// Length of a ModRM operand; none that is relative to the instruction's own address.
fn operand(modrm: u8, rest: &[u8]) -> Option<usize> {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(1);
    }
    let sib = usize::from(rm == 4);
    let disp = match mode {
        0 if rm == 5 => return None,
        0 if rm == 4 && rest.get(2)? & 7 == 5 => 4,
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(1 + sib + disp)
}

#[cfg(test)]
mod tests;
