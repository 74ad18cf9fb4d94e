//! The queues of a connection: what the daemon reads next, and when it hears of nodes to forget.

use super::{
    Call, FORGETS, Ids, MANY_FORGETS, MAX_BYTES, MAX_FORGETS, MAX_UNWAITED, Open, Pending, Slot, State,
};
use crate::wire::{self, ForgetOne, InHeader, op};
use abi::Errno;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// What there is to read.
pub(super) enum Next {
    Nothing,
    Read(usize),
    /// A request that the buffer has no room for, and how it fails.
    TooLong(Open, Errno),
}

impl State {
    /// Queues a request; gives its number.
    pub(super) fn push(&mut self, call: Call, ids: Ids, slot: Option<Arc<Slot>>) -> u64 {
        let unique = self.next;
        self.next += 2;
        let header = InHeader {
            len: (wire::IN_HEADER + call.body.len()) as u32,
            opcode: call.opcode,
            unique,
            nodeid: call.nodeid,
            uid: ids.uid,
            gid: ids.gid,
            pid: ids.pid,
            total_extlen: 0,
            padding: 0,
        };
        let message = [header.as_bytes(), &call.body].concat();
        self.bytes += message.len();
        self.pending.push_back(Pending { unique, opcode: call.opcode, message });
        if slot.is_none() && call.opcode != op::INIT {
            self.unwaited += 1;
        }
        let other = call.other();
        let Call { opcode, nodeid, room, .. } = call;
        for id in [Some(nodeid), other].into_iter().flatten() {
            self.named.entry(id).or_default().requests += 1;
        }
        self.open
            .insert(unique, Open { opcode, nodeid, other, room, slot, device: None, interrupted: false });
        unique
    }

    /// No answer to this request is expected any more. The nodes that it named last go.
    pub(super) fn close(&mut self, unique: u64) -> Option<Open> {
        let open = self.open.remove(&unique)?;
        for id in [Some(open.nodeid), open.other].into_iter().flatten() {
            let Some(named) = self.named.get_mut(&id) else { continue };
            named.requests -= 1;
            if named.requests == 0 {
                let nlookup = named.forgets;
                self.named.remove(&id);
                self.forget(id, nlookup);
            }
        }
        Some(open)
    }

    /// Queues the forgetting of a node, or keeps it until no request names the node.
    pub(super) fn forget(&mut self, nodeid: u64, nlookup: u64) {
        match self.named.get_mut(&nodeid) {
            Some(named) => named.forgets = named.forgets.saturating_add(nlookup),
            None if nlookup == 0 => {}
            None => self.forgets.push_back(ForgetOne { nodeid, nlookup }),
        }
    }

    /// Takes a request out of the queue.
    pub(super) fn withdraw(&mut self, unique: u64) {
        if let Some(at) = self.pending.iter().position(|p| p.unique == unique)
            && let Some(gone) = self.pending.remove(at)
        {
            self.bytes -= gone.message.len();
        }
    }

    /// The daemon is so far behind that what need not reach it does not.
    pub(super) fn is_crowded(&self) -> bool {
        self.bytes >= MAX_BYTES || self.unwaited >= MAX_UNWAITED
    }

    pub(super) fn has_work(&self) -> bool {
        !self.pending.is_empty() || !self.interrupts.is_empty() || !self.forgets.is_empty()
    }

    /// Interruptions come first; then forgets and requests take turns, so that neither keeps the other waiting,
    /// unless there are very many forgets.
    pub(super) fn next_message(&mut self, device: u64, buf: &mut [u8]) -> Next {
        if let Some(unique) = self.interrupts.pop_front() {
            let body = wire::InterruptIn { unique };
            return Next::Read(put(buf, op::INTERRUPT, unique | 1, 0, &[body.as_bytes()]));
        }
        let pressing = self.forgets.len() >= MAX_FORGETS;
        if !self.forgets.is_empty() && (self.pending.is_empty() || self.turn > 0 || pressing) {
            self.turn = 0;
            return Next::Read(self.read_forgets(buf));
        }
        let Some(next) = self.pending.pop_front() else { return Next::Nothing };
        self.turn = 1;
        self.bytes -= next.message.len();
        let Some(to) = buf.get_mut(..next.message.len()) else {
            let error = if next.opcode == op::SETXATTR { Errno::E2BIG } else { Errno::EIO };
            return match self.close(next.unique) {
                Some(open) => {
                    if open.is_unwaited() {
                        self.unwaited -= 1;
                    }
                    Next::TooLong(open, error)
                }
                None => Next::Nothing,
            };
        };
        to.copy_from_slice(&next.message);
        let crowded = self.unwaited > MAX_UNWAITED;
        if let Some(open) = self.open.get_mut(&next.unique) {
            open.device = Some(device);
            if open.interrupted {
                self.interrupts.push_back(next.unique);
            }
            if open.is_unwaited() && crowded {
                self.close(next.unique);
                self.unwaited -= 1;
            }
        }
        Next::Read(next.message.len())
    }

    fn read_forgets(&mut self, buf: &mut [u8]) -> usize {
        let unique = self.next;
        self.next += 2;
        let room = buf.len().saturating_sub(wire::IN_HEADER + size_of::<wire::BatchForgetIn>());
        let most = match self.forgets.len() {
            MANY_FORGETS.. => (room / size_of::<ForgetOne>()).max(FORGETS),
            _ => FORGETS,
        };
        let count = self.forgets.len().min(most);
        let mut all = self.forgets.drain(..count);
        if count == 1
            && let Some(one) = all.next()
        {
            let body = wire::ForgetIn { nlookup: one.nlookup };
            return put(buf, op::FORGET, unique, one.nodeid, &[body.as_bytes()]);
        }
        let bodies: Vec<ForgetOne> = all.collect();
        let head = wire::BatchForgetIn { count: bodies.len() as u32, dummy: 0 };
        put(buf, op::BATCH_FORGET, unique, 0, &[head.as_bytes(), bodies.as_bytes()])
    }
}

/// Writes a message of the kernel's own, for which every buffer has room.
fn put(buf: &mut [u8], opcode: u32, unique: u64, nodeid: u64, parts: &[&[u8]]) -> usize {
    let len = wire::IN_HEADER + parts.iter().map(|part| part.len()).sum::<usize>();
    let header = InHeader { len: len as u32, opcode, unique, nodeid, ..InHeader::default() };
    let message = [&[header.as_bytes()][..], parts].concat().concat();
    let n = message.len().min(buf.len());
    buf[..n].copy_from_slice(&message[..n]);
    n
}
