//! Groups of packet sockets that share frames (`PACKET_FANOUT`): each frame goes to one member.
//!
//! Members have one protocol and interface, which do not change while they are in the group. A group is gone with its last member.
//! Generic over the member, so that a packet socket can name its group.
//!
//! Lock ranks: `FANOUTS`, `FANOUT_MEMBERS`; then a member's own.

use super::capture::{ALL, Filter};
use crate::frame::Frame;
use crate::wire::eth::{self, Ethernet};
use crate::wire::proto;
use abi::Errno;
use lock_order::{RwLock, rank};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How a member is chosen (`PACKET_FANOUT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// By addresses and ports, both directions of a flow alike.
    Hash = 0,
    /// One after the other.
    RoundRobin = 1,
    /// By the processor that handles the frame. The stack knows none: always the first.
    Processor = 2,
    /// The first that has room.
    Rollover = 3,
    /// At random.
    Random = 4,
    /// By the interface's queue, of which there is one.
    Queue = 5,
    /// By a program's result.
    Program = 6,
}

/// The next member is asked when the chosen one has no room.
pub const ROLLS_OVER: u8 = 0x10;
/// Members see no frames that this host sends.
pub const IGNORES_OUTGOING: u8 = 0x40;
/// Members of a group of unspecified size, and of any.
const USUAL: u32 = 256;
const MOST: u32 = 1 << 16;

/// A group.
pub(crate) struct Fanout<M> {
    id: u16,
    choice: Choice,
    flags: u8,
    bound: (u16, u32),
    most: u32,
    members: RwLock<Vec<Arc<M>>, { rank::FANOUT_MEMBERS }>,
    next: AtomicU32,
    program: RwLock<Option<Arc<dyn Filter>>, { rank::SOCKET_PROGRAM }>,
}

/// What a socket asks for when it joins a group.
#[derive(Clone, Copy, Debug)]
pub struct FanoutRequest {
    /// The group's number; nothing for one that is free.
    pub id: Option<u16>,
    /// How a member is chosen.
    pub choice: Choice,
    /// [`ROLLS_OVER`], [`IGNORES_OUTGOING`].
    pub flags: u8,
    /// Members that the group may have; 0 for the usual number.
    pub most: u32,
}

impl<M> Fanout<M> {
    /// Number, choice and flags.
    pub(crate) fn describe(&self) -> (u16, Choice, u8) {
        (self.id, self.choice, self.flags)
    }

    /// Sets the program of a group that chooses by one.
    pub(crate) fn set_program(&self, program: Arc<dyn Filter>) -> Result<(), Errno> {
        if self.choice != Choice::Program {
            return Err(Errno::EINVAL);
        }
        *self.program.write() = Some(program);
        Ok(())
    }

    /// Shows a frame of a protocol to one member: `capture` takes it, and says whether it had no room. Its second argument says
    /// whether another member is asked then.
    pub(crate) fn capture(
        &self,
        index: u32,
        protocol: u16,
        frame: &Frame,
        outgoing: bool,
        capture: impl Fn(&M, bool) -> bool,
    ) {
        let (bound, iface) = self.bound;
        let unwanted = bound != ALL && (bound != protocol || outgoing);
        if unwanted || (iface != 0 && iface != index) || (outgoing && self.flags & IGNORES_OUTGOING != 0) {
            return;
        }
        let members = self.members.read();
        if members.is_empty() {
            return;
        }
        let first = self.choose(&frame.buf, protocol) as usize % members.len();
        let rolls = self.choice == Choice::Rollover || self.flags & ROLLS_OVER != 0;
        let tries = if rolls { members.len() } else { 1 };
        for n in 0..tries {
            let member = &members[(first + n) % members.len()];
            // The last one counts the loss.
            let last = n + 1 == tries;
            if !capture(member, !last) {
                return;
            }
        }
    }

    fn choose(&self, frame: &[u8], protocol: u16) -> u32 {
        match self.choice {
            Choice::Hash => flow(frame, protocol),
            Choice::RoundRobin => self.next.fetch_add(1, Ordering::Relaxed),
            Choice::Processor | Choice::Rollover | Choice::Queue => 0,
            Choice::Random => {
                // A full period over 2^32, its upper bits mixed down.
                let step = |n: u32| n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let n = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(step(n)));
                n.unwrap_or(0).rotate_right(13)
            }
            Choice::Program => {
                let program = self.program.read().clone();
                program.map_or(0, |program| program.accept(frame) as u32)
            }
        }
    }
}

/// A number that the two directions of a flow share.
fn flow(frame: &[u8], protocol: u16) -> u32 {
    let ip = frame.get(Ethernet::LEN..).unwrap_or_default();
    let part = |at: usize, len: usize| ip.get(at..at + len).unwrap_or_default();
    let (source, destination, kind, rest) = match protocol {
        eth::IPV4 => {
            let length = ip.first().map_or(20, |first| usize::from(first & 0xf) * 4);
            let whole = part(6, 2).iter().all(|byte| byte & 0x3f == 0);
            (part(12, 4), part(16, 4), ip.get(9), if whole { length } else { usize::MAX >> 1 })
        }
        eth::IPV6 => (part(8, 16), part(24, 16), ip.get(6), 40),
        _ => (&[][..], &[][..], None, 0),
    };
    let with_ports = matches!(kind, Some(&(proto::TCP | proto::UDP)));
    let port = |at: usize| if with_ports { part(rest.saturating_add(at).min(1 << 20), 2) } else { &[] };
    let mix = |parts: [&[u8]; 2]| {
        let bytes = parts.into_iter().flatten();
        bytes.fold(0x811c_9dc5u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    };
    let (a, b) = (mix([source, port(0)]), mix([destination, port(2)]));
    // The same whichever end sends; then each bit is made to depend on all, as the number is taken modulo the members.
    let both = (a ^ b).wrapping_mul(0x9e37_79b1) ^ a.wrapping_add(b);
    let mixed = (both ^ both >> 16).wrapping_mul(0x85eb_ca6b);
    mixed ^ mixed >> 13
}

/// The groups of a network namespace.
pub(crate) struct Fanouts<M>(RwLock<Vec<Arc<Fanout<M>>>, { rank::FANOUTS }>);

impl<M> Default for Fanouts<M> {
    fn default() -> Fanouts<M> {
        Fanouts(RwLock::default())
    }
}

impl<M> Fanouts<M> {
    /// Puts a member that is bound to a protocol and interface into a group, and the group into `place`: `EALREADY` for a member,
    /// `EINVAL` when the group is of another kind or bound elsewhere.
    pub(crate) fn join(
        &self,
        member: &Arc<M>,
        place: &RwLock<Option<Arc<Fanout<M>>>>,
        wish: FanoutRequest,
        bound: impl FnOnce() -> (u16, u32),
    ) -> Result<(), Errno> {
        let mut groups = self.0.write();
        if place.read().is_some() {
            return Err(Errno::EALREADY);
        }
        let free = || (1..=u16::MAX).find(|id| groups.iter().all(|group| group.id != *id));
        let id = wish.id.or_else(free).ok_or(Errno::ENOMEM)?;
        let bound = bound();
        let known = groups.iter().find(|group| group.id == id).cloned();
        if let Some(group) = &known {
            let other_size = wish.most != 0 && wish.most != group.most;
            let other = (group.choice, group.flags, group.bound) != (wish.choice, wish.flags, bound);
            if other || other_size {
                return Err(Errno::EINVAL);
            }
            if group.members.read().len() >= group.most as usize {
                return Err(Errno::ENOSPC);
            }
        } else if wish.most > MOST {
            return Err(Errno::EINVAL);
        }
        let group = known.unwrap_or_else(|| {
            let group = Arc::new(Fanout {
                id,
                choice: wish.choice,
                flags: wish.flags,
                bound,
                most: if wish.most == 0 { USUAL } else { wish.most },
                members: RwLock::default(),
                next: AtomicU32::new(0),
                program: RwLock::default(),
            });
            groups.push(group.clone());
            group
        });
        group.members.write().push(member.clone());
        *place.write() = Some(group);
        Ok(())
    }

    /// Takes a member out of the group in `place`.
    pub(crate) fn leave(&self, member: &M, place: &RwLock<Option<Arc<Fanout<M>>>>) {
        let mut groups = self.0.write();
        let Some(group) = place.write().take() else { return };
        let mut members = group.members.write();
        if let Some(place) = members.iter().position(|other| std::ptr::eq(&**other, member)) {
            members.swap_remove(place);
        }
        if members.is_empty() {
            groups.retain(|other| !Arc::ptr_eq(other, &group));
        }
    }

    /// Runs `f` on each group.
    pub(crate) fn each(&self, f: impl FnMut(&Arc<Fanout<M>>)) {
        self.0.read().iter().for_each(f);
    }
}

impl<M> fmt::Debug for Fanout<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fanout").field("id", &self.id).field("choice", &self.choice).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_flow_are_one() {
        let packet = |a: [u8; 4], b: [u8; 4], ports: [u16; 2]| {
            let mut frame = vec![0; 14];
            frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, proto::UDP, 0, 0]);
            frame.extend(a.iter().chain(&b));
            frame.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
            frame.extend([0, 8, 0, 0]);
            flow(&frame, eth::IPV4)
        };
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(packet(a, b, [1000, 53]), packet(b, a, [53, 1000]));
        let many: std::collections::BTreeSet<u32> =
            (0..64).map(|port| packet(a, b, [port, 53]) % 4).collect();
        assert_eq!(many.len(), 4);
        for cut in 0..46 {
            flow(&vec![0x45; cut], eth::IPV4);
            flow(&vec![0x60; cut], eth::IPV6);
        }
    }
}
