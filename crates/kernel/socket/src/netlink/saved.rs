//! Netlink sockets as plain data, for a checkpoint: address, groups, options, and the messages that wait.

use super::sockets::{Dump, Origin, Shared, State};
use super::{FLAGS, LONGEST_QUEUE, Netlink, PROTOCOLS};
use crate::net_ns::NetNamespace;
use crate::ops::SocketOps;
use crate::options::{Options, OptionsState};
use abi::{Errno, Result};
use lock_order::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wait::WaitQueue;

/// A socket as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetlinkState {
    kind: i32,
    protocol: i32,
    uid: u32,
    options: OptionsState,
    port: u32,
    groups: u64,
    peer: Option<(u32, u32)>,
    flags: Vec<(i32, i32)>,
    /// Messages with the group that they were sent to and the sender's address, the oldest one first.
    messages: Vec<(Vec<u8>, u32, u32)>,
    error: Option<Errno>,
    room: usize,
    /// A dump that goes on: the request, the datagrams that were queued, and the generation.
    dump: Option<(Vec<u8>, usize, u32)>,
    congested: bool,
    drops: u32,
    ino: u64,
}

/// A netlink socket as plain data; `None` for other sockets, and while a message of another program waits, which names a process.
pub fn save(ops: &dyn SocketOps) -> Option<NetlinkState> {
    let Netlink { kind, shared, .. } = ops.as_any().downcast_ref()?;
    let s = shared.state.lock();
    if s.answers.iter().any(|message| message.from.cred.is_some()) {
        return None;
    }
    let dump = s.dump.as_ref().map(|dump| (dump.request.clone(), dump.before, dump.generation));
    Some(NetlinkState {
        kind: *kind,
        protocol: shared.protocol,
        uid: shared.uid,
        options: shared.options.state(),
        port: s.port,
        groups: s.groups,
        peer: s.peer,
        flags: s.flags.iter().map(|(&name, &value)| (name, value)).collect(),
        messages: s.answers.iter().map(|one| (one.bytes.clone(), one.group, one.from.port)).collect(),
        error: s.error,
        room: s.room,
        dump,
        congested: s.congested,
        drops: s.drops,
        ino: s.ino,
    })
}

/// The socket of plain data. EINVAL when the state is none that a socket can have, EADDRINUSE when its address is taken.
pub fn restore(net: &Arc<NetNamespace>, saved: &NetlinkState) -> Result<Arc<dyn SocketOps>> {
    let bytes: usize = saved.messages.iter().map(|(bytes, ..)| bytes.len()).sum();
    let fine = [libc::SOCK_RAW, libc::SOCK_DGRAM].contains(&saved.kind)
        && PROTOCOLS.contains(&saved.protocol)
        && bytes <= 4 * LONGEST_QUEUE
        && saved.room <= LONGEST_QUEUE
        && saved.flags.iter().all(|(name, _)| FLAGS.contains(name))
        && saved.dump.as_ref().is_none_or(|(request, ..)| request.len() <= LONGEST_QUEUE);
    if !fine {
        return Err(Errno::EINVAL);
    }
    let mut state = State {
        port: saved.port,
        groups: saved.groups,
        peer: saved.peer,
        flags: saved.flags.iter().copied().collect(),
        error: saved.error,
        room: saved.room,
        congested: saved.congested,
        drops: saved.drops,
        ino: saved.ino,
        ..State::default()
    };
    for (bytes, group, port) in &saved.messages {
        state.push(bytes.clone(), *group, Origin { port: *port, cred: None });
    }
    state.dump = saved.dump.clone().map(|(request, before, generation)| Dump { request, before, generation });
    if saved.port != 0 && !net.ports.lock().insert((saved.protocol, saved.port)) {
        return Err(Errno::EADDRINUSE);
    }
    let shared = Arc::new(Shared {
        protocol: saved.protocol,
        uid: saved.uid,
        options: Options::from(&saved.options),
        state: Mutex::new(state),
        queue: WaitQueue::new(),
    });
    net.netlink.add(&shared);
    net.netlink.count_members();
    Ok(Arc::new(Netlink { kind: saved.kind, net: net.clone(), shared }))
}
