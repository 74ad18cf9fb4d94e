//! The connection between a file system and its daemon: requests that wait to be read, requests that wait for their answer, and
//! the threads that wait for both.
//!
//! A request waits in a queue until the daemon reads it, and is known by its number until the daemon answers. The
//! thread that made it sleeps in [`Connection::call`]. A signal does not end that by itself: it sends FUSE_INTERRUPT,
//! and the daemon decides. A thread that is killed stops waiting at once. An object from a late answer (a node, an open
//! file) is given back to the daemon. The connection ends with the last open file of the device or with the last mount.
//!
//! Lock: the connection's state, a leaf; wake-ups come after it. A checkpoint keeps nothing: a connection does not outlive its
//! daemon's descriptors.

mod state;

use crate::wire::{self, Agreed, ForgetOne, Room, op};
use abi::{Errno, Result};
use caller::quota::Charge;
use ktime::Clock;
use lock_order::Mutex;
use pid::PidNamespace;
use state::Next;
use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use user_ns::UserNamespace;
use vfs::Caller;
use wait::{Events, Stop, WaitQueue};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of requests that may wait to be read. Threads with more to say wait.
const MAX_BYTES: usize = 8 << 20;
/// Answers that no thread waits for and that are remembered, so that their objects are given back.
const MAX_UNWAITED: usize = 4096;
/// Nodes that are to be forgotten of which one request tells, unless there are many.
const FORGETS: usize = 170;
/// From so many on, one request tells of as many as the daemon's buffer has room for.
const MANY_FORGETS: usize = 1024;
/// From this number on, they come before requests, because answers to requests may make more of them.
const MAX_FORGETS: usize = 65_536;
/// How long the kernel itself waits for one.
const KERNEL: Duration = Duration::from_secs(5);

/// A request.
pub(crate) struct Call {
    pub opcode: u32,
    pub nodeid: u64,
    pub body: Vec<u8>,
    pub room: Room,
}

impl Call {
    /// With a structure as its body.
    pub fn new<T: IntoBytes + zerocopy::Immutable>(opcode: u32, nodeid: u64, body: &T, room: Room) -> Call {
        Call { opcode, nodeid, body: body.as_bytes().to_vec(), room }
    }

    /// Without a body.
    pub fn bare(opcode: u32, nodeid: u64, room: Room) -> Call {
        Call { opcode, nodeid, body: Vec::new(), room }
    }

    /// Adds bytes.
    pub fn bytes(mut self, more: &[u8]) -> Call {
        self.body.extend_from_slice(more);
        self
    }

    /// The second node that the request names: the object of a new link, the directory into which a name moves, the
    /// file into which a range is copied. Its number is in the body.
    fn other(&self) -> Option<u64> {
        let at = match self.opcode {
            op::LINK | op::RENAME | op::RENAME2 => 0,
            op::COPY_FILE_RANGE => offset_of!(wire::CopyFileRangeIn, nodeid_out),
            _ => return None,
        };
        self.body.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
    }

    /// Adds a text and its NUL.
    pub fn name(mut self, name: &[u8]) -> Call {
        self.body.extend_from_slice(name);
        self.body.push(0);
        self
    }
}

type Answer = std::result::Result<Vec<u8>, Errno>;

/// Where a thread waits for its answer.
#[derive(Default)]
struct Slot {
    answer: Mutex<Option<Answer>>,
    queue: WaitQueue,
}

impl Slot {
    fn fill(&self, answer: Answer) {
        *self.answer.lock() = Some(answer);
        self.queue.notify(Events::ALL);
    }
}

/// A request that has no answer yet.
struct Open {
    opcode: u32,
    nodeid: u64,
    /// A second node that it names.
    other: Option<u64>,
    room: Room,
    /// `None` when no thread waits.
    slot: Option<Arc<Slot>>,
    /// The open file of the device by which it was read.
    device: Option<u64>,
    interrupted: bool,
}

/// A node that requests name: it is forgotten once they are answered, since a daemon may free what it forgets.
#[derive(Default)]
struct Named {
    requests: usize,
    /// Look-ups to forget then.
    forgets: u64,
}

/// A request that was not read yet.
struct Pending {
    unique: u64,
    opcode: u32,
    message: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// FUSE_INIT has no answer.
    Connecting,
    Ready,
    /// The daemon speaks another protocol.
    Refused,
    Gone,
}

struct State {
    phase: Phase,
    agreed: Agreed,
    pending: VecDeque<Pending>,
    /// Bytes of them.
    bytes: usize,
    /// Numbers of requests that the daemon is to interrupt.
    interrupts: VecDeque<u64>,
    forgets: VecDeque<ForgetOne>,
    /// Which comes first when both wait: forgets while above 0.
    turn: i32,
    open: HashMap<u64, Open>,
    /// Nodes that requests in `open` name.
    named: HashMap<u64, Named>,
    unwaited: usize,
    next: u64,
    devices: usize,
    next_device: u64,
}

/// The users that a file system admits, and the parameters of its mount.
pub(crate) struct Terms {
    /// Gives the moments until which names and attributes are valid.
    pub clock: Clock,
    pub user_ns: Arc<UserNamespace>,
    pub pid_ns: Option<Arc<PidNamespace>>,
    /// Owner of the mount.
    pub user: u32,
    pub group: u32,
    pub allow_other: bool,
    pub default_permissions: bool,
    /// Bytes of a FUSE_READ at most.
    pub max_read: u32,
    pub _charge: Charge,
}

/// A connection.
pub(crate) struct Connection {
    pub terms: Terms,
    state: Mutex<State>,
    /// Threads that read the device.
    pub readers: WaitQueue,
    /// Threads that wait for the answer to FUSE_INIT or for room.
    admission: WaitQueue,
    /// Operations that the daemon does not have, by their numbers.
    missing: AtomicU64,
    no_interrupt: AtomicBool,
    /// A thread that ended has waited in vain.
    slow: AtomicBool,
}

impl Connection {
    pub fn new(terms: Terms) -> Arc<Connection> {
        let agreed = Agreed { minor: wire::MINOR, max_write: wire::PAGE, max_pages: 1, flags: 0 };
        let connection = Connection {
            terms,
            state: Mutex::new(State {
                phase: Phase::Connecting,
                agreed,
                pending: VecDeque::new(),
                bytes: 0,
                interrupts: VecDeque::new(),
                forgets: VecDeque::new(),
                turn: 0,
                open: HashMap::new(),
                named: HashMap::new(),
                unwaited: 0,
                next: 2,
                devices: 0,
                next_device: 1,
            }),
            readers: WaitQueue::new(),
            admission: WaitQueue::new(),
            missing: AtomicU64::new(0),
            no_interrupt: AtomicBool::new(false),
            slow: AtomicBool::new(false),
        };
        let hello = wire::InitIn {
            major: wire::MAJOR,
            minor: wire::MINOR,
            max_readahead: 0,
            flags: wire::init::OFFERED,
            flags2: 0,
            unused: [0; 11],
        };
        let room = Room { fixed: 0, variable: size_of::<wire::InitOut>() };
        let call = Call::new(op::INIT, 0, &hello, room);
        let ids = Ids { uid: 0, gid: 0, pid: 0 };
        connection.state.lock().push(call, ids, None);
        Arc::new(connection)
    }

    /// What was agreed with the daemon.
    pub fn agreed(&self) -> Agreed {
        self.state.lock().agreed
    }

    /// Whether the daemon is known not to have an operation.
    pub fn lacks(&self, opcode: u32) -> bool {
        self.missing.load(Ordering::Relaxed) & 1 << (opcode & 63) != 0
    }

    /// It does not.
    pub fn set_lacks(&self, opcode: u32) {
        self.missing.fetch_or(1 << (opcode & 63), Ordering::Relaxed);
    }

    /// Whether a caller may use the file system. Without allow_other its owner alone may, so that a daemon cannot hold
    /// up processes of others or learn of them.
    pub fn admits(&self, creds: &rights::Credentials) -> bool {
        let t = &self.terms;
        if t.allow_other {
            return creds.user_ns.is_within(&t.user_ns);
        }
        [creds.uid, creds.euid, creds.suid] == [t.user; 3]
            && [creds.gid, creds.egid, creds.sgid] == [t.group; 3]
    }

    /// The caller as the daemon sees it. EOVERFLOW for a caller that has no number there.
    fn ids(&self, cx: &dyn Caller) -> Result<Ids> {
        let creds = cx.creds();
        let t = &self.terms;
        let uid = t.user_ns.user_here(creds.fsuid).ok_or(Errno::EOVERFLOW)?;
        let gid = t.user_ns.group_here(creds.fsgid).ok_or(Errno::EOVERFLOW)?;
        let pid = t.pid_ns.as_ref().and_then(|ns| Some(cx.find_pid(cx.tid())?.nr_in(ns)));
        Ok(Ids { uid, gid, pid: pid.unwrap_or(0).max(0) as u32 })
    }

    /// Queues a request as soon as there is room for it: deciding that and taking the room is one step. ENOTCONN, ECONNREFUSED;
    /// EINTR for a thread that is killed.
    fn submit(&self, cx: &dyn Caller, call: Call) -> Result<(u64, Arc<Slot>)> {
        let ids = self.ids(cx)?;
        let mut call = Some(call);
        let mut attempt = || {
            let mut s = self.state.lock();
            match s.phase {
                Phase::Gone => Some(Err(Errno::ENOTCONN)),
                Phase::Refused => Some(Err(Errno::ECONNREFUSED)),
                _ if cx.is_killed() => Some(Err(Errno::EINTR)),
                Phase::Ready if s.bytes < MAX_BYTES => {
                    let slot = Arc::new(Slot::default());
                    Some(Ok((s.push(call.take()?, ids, Some(slot.clone())), slot)))
                }
                _ => None,
            }
        };
        if let Some(done) = attempt() {
            return done;
        }
        let waiter = cx.waiter();
        let _subscribed = self.admission.subscribe(Events::ALL, waiter.clone());
        let deadline = patience(cx);
        loop {
            if let Some(done) = attempt() {
                return done;
            }
            if let Err(Stop::TimedOut) = waiter.sleep_uninterruptible(deadline) {
                return Err(Errno::EIO);
            }
        }
    }

    /// Makes a request and waits for the answer.
    pub fn call(&self, cx: &dyn Caller, call: Call) -> Result<Vec<u8>> {
        let (unique, slot) = self.submit(cx, call)?;
        self.readers.notify(Events::READABLE);
        self.wait(cx, unique, &slot, patience(cx))
    }

    /// As [`Connection::call`], where the request is among the last actions of a process. Nothing could end the wait
    /// any more, so all such waits of a thread together are short. If a daemon did not answer FUSE_FLUSH, no later
    /// FUSE_FLUSH waits until the daemon answers one. The daemon gets the request.
    pub fn last_call(&self, cx: &dyn Caller, call: Call) -> Result<Vec<u8>> {
        if !cx.is_killed() {
            return self.call(cx, call);
        }
        if self.slow.load(Ordering::Relaxed) {
            self.tell(call);
            return Ok(Vec::new());
        }
        let ids = self.ids(cx)?;
        let slot = Arc::new(Slot::default());
        let unique = {
            let mut s = self.state.lock();
            if s.phase != Phase::Ready {
                return Err(Errno::ENOTCONN);
            }
            if s.is_crowded() {
                return Err(Errno::EIO);
            }
            s.push(call, ids, Some(slot.clone()))
        };
        self.readers.notify(Events::READABLE);
        let waiter = cx.waiter();
        let _subscribed = slot.queue.subscribe(Events::ALL, waiter.clone());
        let deadline = Some(cx.end_deadline());
        loop {
            if let Some(answer) = slot.answer.lock().take() {
                return answer;
            }
            if let Err(Stop::TimedOut) = waiter.sleep_uninterruptible(deadline) {
                self.slow.store(true, Ordering::Relaxed);
                let mut s = self.state.lock();
                if let Some(open) = s.open.get_mut(&unique) {
                    open.slot = None;
                    s.unwaited += 1;
                }
                return Err(Errno::EIO);
            }
        }
    }

    /// Makes a request without waiting for its answer. FUSE_FLUSH, of which each process that ends makes one for each of its
    /// descriptors, is left out while the daemon is far behind.
    pub fn tell(&self, call: Call) {
        {
            let mut s = self.state.lock();
            if s.phase != Phase::Ready || call.opcode == op::FLUSH && s.is_crowded() {
                return;
            }
            s.push(call, Ids { uid: 0, gid: 0, pid: 0 }, None);
        }
        self.readers.notify(Events::READABLE);
    }

    fn wait(&self, cx: &dyn Caller, unique: u64, slot: &Slot, deadline: Option<Instant>) -> Result<Vec<u8>> {
        let waiter = cx.waiter();
        let _subscribed = slot.queue.subscribe(Events::ALL, waiter.clone());
        let mut told = self.no_interrupt.load(Ordering::Relaxed);
        loop {
            if let Some(answer) = slot.answer.lock().take() {
                return answer;
            }
            if cx.is_killed() {
                return self.abandon(unique, slot).unwrap_or(Err(Errno::EINTR));
            }
            let slept = if told { waiter.sleep_uninterruptible(deadline) } else { waiter.sleep(deadline) };
            match slept {
                Ok(()) => {}
                Err(Stop::Interrupted) => {
                    told = true;
                    self.interrupt(unique);
                }
                Err(Stop::TimedOut) => return self.abandon(unique, slot).unwrap_or(Err(Errno::EIO)),
            }
        }
    }

    /// The daemon is to hear that a request was interrupted, once it has read it.
    fn interrupt(&self, unique: u64) {
        {
            let mut s = self.state.lock();
            let Some(open) = s.open.get_mut(&unique) else { return };
            open.interrupted = true;
            if open.device.is_none() {
                return;
            }
            s.interrupts.push_back(unique);
        }
        self.readers.notify(Events::READABLE);
    }

    /// This answer is not awaited any more; returns it when it has come meanwhile.
    fn abandon(&self, unique: u64, slot: &Slot) -> Option<Answer> {
        let freed = {
            let mut s = self.state.lock();
            match s.open.get_mut(&unique) {
                None => false,
                Some(open) if open.device.is_none() => {
                    s.close(unique);
                    s.withdraw(unique);
                    true
                }
                Some(open) => {
                    open.slot = None;
                    if !std::mem::replace(&mut open.interrupted, true) {
                        s.interrupts.push_back(unique);
                    }
                    s.unwaited += 1;
                    if s.unwaited > MAX_UNWAITED {
                        s.close(unique);
                        s.unwaited -= 1;
                    }
                    false
                }
            }
        };
        if freed {
            self.admission.notify(Events::ALL);
        }
        self.readers.notify(Events::READABLE);
        slot.answer.lock().take()
    }

    /// A node is not known any more, after so many look-ups of it. The root is never forgotten, and 0 stands for no node.
    /// The daemon hears of it after it has answered all requests that name the node.
    pub fn forget(&self, nodeid: u64, nlookup: u64) {
        if matches!(nodeid, 0 | wire::ROOT) || nlookup == 0 {
            return;
        }
        {
            let mut s = self.state.lock();
            if s.phase != Phase::Ready {
                return;
            }
            s.forget(nodeid, nlookup);
        }
        self.readers.notify(Events::READABLE);
    }

    /// One more open file of the device: its number.
    pub fn add_device(&self) -> u64 {
        let mut s = self.state.lock();
        s.devices += 1;
        s.next_device += 1;
        s.next_device - 1
    }

    /// An open file of the device is gone, and with it the requests that were read by it.
    pub fn remove_device(&self, device: u64) {
        let ended: Vec<Open> = {
            let mut s = self.state.lock();
            s.devices -= 1;
            if s.devices == 0 {
                drop(s);
                return self.abort();
            }
            let theirs: Vec<u64> =
                s.open.iter().filter(|(_, o)| o.device == Some(device)).map(|(unique, _)| *unique).collect();
            let ended: Vec<Open> = theirs.iter().filter_map(|unique| s.close(*unique)).collect();
            s.unwaited -= ended.iter().filter(|open| open.is_unwaited()).count();
            ended
        };
        for open in ended {
            if open.opcode == op::INIT {
                self.began(Err(Errno::ECONNABORTED));
            }
            open.end(Errno::ECONNABORTED);
        }
        self.readers.notify(Events::READABLE);
    }

    /// Ends everything: waiting callers get ECONNABORTED, later ones ENOTCONN, and the daemon ENODEV.
    pub fn abort(&self) {
        let ended = {
            let mut s = self.state.lock();
            if s.phase == Phase::Gone {
                return;
            }
            s.phase = Phase::Gone;
            s.pending.clear();
            s.interrupts.clear();
            s.forgets.clear();
            s.named.clear();
            s.bytes = 0;
            s.unwaited = 0;
            std::mem::take(&mut s.open)
        };
        for (_, open) in ended {
            open.end(Errno::ECONNABORTED);
        }
        self.admission.notify(Events::ALL);
        self.readers.notify(Events::ALL);
    }

    /// poll(2) of the device.
    pub fn poll(&self) -> Events {
        let s = self.state.lock();
        match s.phase {
            Phase::Gone => Events::ERR,
            _ if s.has_work() => Events::READABLE | Events::WRITABLE,
            _ => Events::WRITABLE,
        }
    }

    /// read(2) of the device: the next request. EAGAIN without one, EINVAL for a buffer that is too small for any request, ENODEV.
    pub fn read(&self, device: u64, buf: &mut [u8]) -> Result<usize> {
        loop {
            let refused = {
                let mut s = self.state.lock();
                if s.phase == Phase::Gone {
                    return Err(Errno::ENODEV);
                }
                let least = wire::IN_HEADER + size_of::<wire::WriteIn>() + s.agreed.max_write as usize;
                if buf.len() < least.max(wire::MIN_READ) {
                    return Err(Errno::EINVAL);
                }
                match s.next_message(device, buf) {
                    Next::Nothing => return Err(Errno::EAGAIN),
                    Next::Read(n) => Ok(n),
                    Next::TooLong(open, error) => Err((open, error)),
                }
            };
            match refused {
                Ok(n) => {
                    self.admission.notify(Events::ALL);
                    return Ok(n);
                }
                Err((open, error)) => open.end(error),
            }
        }
    }

    /// The answer to a request. ENOENT for one that was not made, or was not read by this open file; EINVAL for a wrong length.
    pub fn answer(&self, device: u64, unique: u64, result: Result<&[u8]>, all: usize) -> Result<()> {
        // The number of a request has its lowest bit clear; FUSE_INTERRUPT has that of what it interrupts, with the bit set.
        if unique & 1 != 0 {
            return self.interrupt_answered(device, unique & !1, result, all);
        }
        let (open, fits, forgets) = {
            let mut s = self.state.lock();
            if s.phase == Phase::Gone {
                return Err(Errno::ENOENT);
            }
            if s.open.get(&unique).is_none_or(|open| open.device != Some(device)) {
                return Err(Errno::ENOENT);
            }
            let open = s.close(unique).ok_or(Errno::ENOENT)?;
            if open.is_unwaited() {
                s.unwaited -= 1;
            }
            s.interrupts.retain(|&waiting| waiting != unique);
            let fits = wire::has_room(open.room, &result, all);
            (open, fits, !s.forgets.is_empty())
        };
        if forgets {
            self.readers.notify(Events::READABLE);
        }
        if open.opcode == op::FLUSH {
            self.slow.store(false, Ordering::Relaxed);
        }
        if open.opcode == op::INIT {
            self.began(if fits { result } else { Err(Errno::EIO) });
            return if fits { Ok(()) } else { Err(Errno::EINVAL) };
        }
        if !fits {
            open.end(Errno::EIO);
            return Err(Errno::EINVAL);
        }
        match &open.slot {
            Some(slot) => slot.fill(result.map(<[u8]>::to_vec)),
            None => self.give_back(&open, result),
        }
        Ok(())
    }

    /// FUSE_INIT has its answer.
    fn began(&self, result: Result<&[u8]>) {
        {
            let mut s = self.state.lock();
            match result.ok().and_then(wire::agree) {
                Some(agreed) if s.phase == Phase::Connecting => {
                    s.agreed = agreed;
                    s.phase = Phase::Ready;
                }
                _ => s.phase = Phase::Refused,
            }
        }
        self.admission.notify(Events::ALL);
    }

    fn interrupt_answered(&self, device: u64, unique: u64, result: Result<&[u8]>, all: usize) -> Result<()> {
        if all != wire::OUT_HEADER {
            return Err(Errno::EINVAL);
        }
        let again = {
            let mut s = self.state.lock();
            let known =
                s.open.get(&unique).is_some_and(|open| open.interrupted && open.device == Some(device));
            if !known {
                return Err(Errno::ENOENT);
            }
            match result {
                Err(Errno::ENOSYS) => {
                    self.no_interrupt.store(true, Ordering::Relaxed);
                    false
                }
                Err(Errno::EAGAIN) if !s.interrupts.contains(&unique) => {
                    s.interrupts.push_back(unique);
                    true
                }
                _ => false,
            }
        };
        if again {
            self.readers.notify(Events::READABLE);
        }
        Ok(())
    }

    /// What a late answer gave, which will not be used.
    fn give_back(&self, open: &Open, result: Result<&[u8]>) {
        let Ok(body) = result else { return };
        let release = |opcode: u32, nodeid: u64, opened: wire::OpenOut| {
            let body = wire::ReleaseIn { fh: opened.fh, flags: 0, release_flags: 0, lock_owner: 0 };
            self.tell(Call::new(opcode, nodeid, &body, Room::NONE));
        };
        match open.opcode {
            op::OPEN | op::OPENDIR => {
                if let Ok((opened, _)) = wire::OpenOut::read_from_prefix(body) {
                    let opcode = if open.opcode == op::OPEN { op::RELEASE } else { op::RELEASEDIR };
                    release(opcode, open.nodeid, opened);
                }
            }
            op::LOOKUP | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK | op::CREATE => {
                let Ok((entry, rest)) = wire::EntryOut::read_from_prefix(body) else { return };
                if let (op::CREATE, Ok((opened, _))) = (open.opcode, wire::OpenOut::read_from_prefix(rest)) {
                    release(op::RELEASE, entry.nodeid, opened);
                }
                self.forget(entry.nodeid, 1);
            }
            _ => {}
        }
    }
}

/// The end of the wait of the kernel itself, and of a request that makes a process for a caller outside. Programs wait
/// as long as they live.
fn patience(cx: &dyn Caller) -> Option<Instant> {
    cx.deadline().or_else(|| (cx.pid() == 0).then(|| Instant::now() + KERNEL))
}

/// The caller in a request.
#[derive(Clone, Copy)]
struct Ids {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Open {
    /// Its answer is not awaited, and it is counted as such.
    fn is_unwaited(&self) -> bool {
        self.slot.is_none() && self.opcode != op::INIT
    }

    fn end(self, error: Errno) {
        if let Some(slot) = self.slot {
            slot.fill(Err(error));
        }
    }
}
