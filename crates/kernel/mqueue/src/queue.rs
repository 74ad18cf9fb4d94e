//! One queue.

use crate::MAX_BYTES;
use crate::fs::Mqueues;
use abi::stat::Attr;
use abi::{Errno, Result};
use caller::Outcome;
use lock_order::Mutex;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use vfs::{Caller, FileOps, OpenFile, SeekOps};
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod state;
pub use state::{NotificationState, QueueState};

/// Bytes that a message costs besides its text.
const OVERHEAD: u64 = 64;
/// Size that the file of a queue reports (FILENT_SIZE).
pub(crate) const FILE_SIZE: u64 = 80;

/// `struct mq_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Attributes {
    /// O_NONBLOCK or 0.
    pub flags: i64,
    /// Most messages.
    pub maxmsg: i64,
    /// Most bytes of one.
    pub msgsize: i64,
    /// Messages now.
    pub curmsgs: i64,
    /// Nothing.
    pub reserved: [i64; 4],
}

/// Bytes of the cookie of SIGEV_THREAD (NOTIFY_COOKIE_LEN).
pub const COOKIE: usize = 32;

/// The process that is notified of the next message in an empty queue, once.
pub struct Notification {
    /// Process ID of the process that asked.
    pub pid: i32,
    /// sigev_notify.
    pub how: i32,
    /// sigev_signo.
    pub signo: i32,
    /// sigev_value.
    pub value: u64,
    /// SIGEV_THREAD: the netlink socket by its identity ([`OpenFile::id`]), and the cookie that it gets.
    pub message: Option<(u64, [u8; COOKIE])>,
    /// Tells it.
    pub tell: Box<dyn Fn(NotifyReason) + Send + Sync>,
}

/// What a process is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyReason {
    /// A message has come.
    Message {
        /// Process ID of the sender.
        pid: i32,
        /// The sender's user ID.
        uid: u32,
    },
    /// The request has been taken back, or the queue closed.
    Withdrawn,
}

impl State {
    /// Takes the request of a process back, to be told after the lock.
    fn withdraw(&mut self, pid: i32) -> Option<Notification> {
        self.notify.take_if(|n| n.pid == pid)
    }
}

struct State {
    /// By priority.
    messages: BTreeMap<u32, VecDeque<Vec<u8>>>,
    count: i64,
    bytes: u64,
    notify: Option<Notification>,
}

/// A queue. Lives as long as it has a name or is open.
pub(crate) struct Queue {
    pub attr: Mutex<Attr>,
    maxmsg: i64,
    msgsize: i64,
    /// The amount that RLIMIT_MSGQUEUE counts, and the user.
    charge: (u32, u64),
    state: Mutex<State>,
    wait: WaitQueue,
    /// Threads that wait for a message.
    receivers: AtomicUsize,
    owner: Arc<Mqueues>,
}

impl Queue {
    pub fn new(owner: Arc<Mqueues>, attr: Attr, maxmsg: i64, msgsize: i64, charge: (u32, u64)) -> Arc<Queue> {
        let state = State { messages: BTreeMap::new(), count: 0, bytes: 0, notify: None };
        Arc::new(Queue {
            attr: Mutex::new(attr),
            maxmsg,
            msgsize,
            charge,
            state: Mutex::new(state),
            wait: WaitQueue::new(),
            receivers: AtomicUsize::new(0),
            owner,
        })
    }

    /// The directory it belongs to.
    pub fn owner(&self) -> &Mqueues {
        &self.owner
    }

    fn bytes(&self) -> &AtomicU64 {
        &self.owner.bytes
    }

    fn push(&self, cx: &dyn Caller, text: &[u8], priority: u32) -> Result<()> {
        let mut s = self.state.lock();
        if s.count >= self.maxmsg {
            return Err(Errno::EAGAIN);
        }
        let cost = text.len() as u64 + OVERHEAD;
        if self.bytes().fetch_add(cost, Ordering::Relaxed) + cost > MAX_BYTES {
            self.bytes().fetch_sub(cost, Ordering::Relaxed);
            return Err(Errno::ENOMEM);
        }
        s.messages.entry(priority).or_default().push_back(text.to_vec());
        s.count += 1;
        s.bytes += cost;
        // A thread that waits for a message goes before a process that wants a notification.
        let told = match s.count == 1 && self.receivers.load(Ordering::SeqCst) == 0 {
            true => s.notify.take(),
            false => None,
        };
        drop(s);
        self.touch();
        if let Some(n) = told {
            (n.tell)(NotifyReason::Message { pid: cx.pid(), uid: cx.creds().uid });
        }
        self.wait.notify(Events::READABLE);
        Ok(())
    }

    fn pop(&self) -> Result<(Vec<u8>, u32)> {
        let mut s = self.state.lock();
        let mut last = s.messages.last_entry().ok_or(Errno::EAGAIN)?;
        let priority = *last.key();
        let text = last.get_mut().pop_front().ok_or(Errno::EAGAIN)?;
        if last.get().is_empty() {
            last.remove();
        }
        let cost = text.len() as u64 + OVERHEAD;
        s.count -= 1;
        s.bytes -= cost;
        drop(s);
        self.bytes().fetch_sub(cost, Ordering::Relaxed);
        self.touch();
        self.wait.notify(Events::WRITABLE);
        Ok((text, priority))
    }

    fn touch(&self) {
        let t = crate::fs::now();
        let mut a = self.attr.lock();
        a.atime = t;
        a.mtime = t;
        a.ctime = t;
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let bytes = self.state.get_mut().bytes;
        self.bytes().fetch_sub(bytes, Ordering::Relaxed);
        self.owner.uncharge(self.charge);
    }
}

/// An open queue.
pub struct QueueFile {
    pub(crate) queue: Arc<Queue>,
    pub(crate) name: String,
}

impl QueueFile {
    /// The queue behind an open file; EBADF when it is something else.
    pub fn of(file: &OpenFile) -> Result<&QueueFile> {
        file.ops.as_any().downcast_ref().ok_or(Errno::EBADF)
    }

    /// The queue has no name any more.
    pub fn is_removed(&self) -> bool {
        self.queue.attr.lock().nlink == 0
    }

    /// The queue is in this directory, or was.
    pub fn is_in(&self, all: &Mqueues) -> bool {
        std::ptr::eq(self.queue.owner(), all)
    }

    /// Attributes and the number of messages.
    pub fn attributes(&self, file: &OpenFile) -> Attributes {
        let q = &self.queue;
        Attributes {
            flags: i64::from(file.flags() & libc::O_NONBLOCK),
            maxmsg: q.maxmsg,
            msgsize: q.msgsize,
            curmsgs: q.state.lock().count,
            reserved: [0; 4],
        }
    }

    /// mq_timedsend(2).
    pub fn send(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        text: &[u8],
        priority: u32,
        deadline: Option<Instant>,
    ) -> Outcome<()> {
        let q = &self.queue;
        match q.push(cx, text, priority) {
            Err(Errno::EAGAIN) if !file.nonblocking() => {}
            done => return done.map_err(caller::Failure::Errno),
        }
        caller::retry::retry_on(cx, &q.wait, Events::OUT, deadline, || q.push(cx, text, priority))
    }

    /// EMSGSIZE unless a message of this length can be sent.
    pub fn check_send(&self, len: u64) -> Result<()> {
        if len > self.queue.msgsize as u64 { Err(Errno::EMSGSIZE) } else { Ok(()) }
    }

    /// mq_timedreceive(2): text and priority. EMSGSIZE when the buffer could not hold every message.
    pub fn receive(
        &self,
        cx: &dyn Caller,
        file: &OpenFile,
        room: u64,
        deadline: Option<Instant>,
    ) -> Outcome<(Vec<u8>, u32)> {
        let q = &self.queue;
        if room < q.msgsize as u64 {
            return Err(Errno::EMSGSIZE.into());
        }
        match q.pop() {
            Err(Errno::EAGAIN) if !file.nonblocking() => {}
            done => return done.map_err(caller::Failure::Errno),
        }
        q.receivers.fetch_add(1, Ordering::SeqCst);
        let r = caller::retry::retry_on(cx, &q.wait, Events::IN, deadline, || q.pop());
        q.receivers.fetch_sub(1, Ordering::SeqCst);
        r
    }

    /// mq_notify(2). `None` takes the caller's own request back.
    pub fn notify(&self, cx: &dyn Caller, n: Option<Notification>) -> Result<()> {
        let mut s = self.queue.state.lock();
        let mut withdrawn = None;
        match n {
            Some(_) if s.notify.is_some() => return Err(Errno::EBUSY),
            Some(n) => s.notify = Some(n),
            None => withdrawn = s.withdraw(cx.pid()),
        }
        drop(s);
        if let Some(n) = withdrawn {
            (n.tell)(NotifyReason::Withdrawn);
        }
        self.queue.touch();
        Ok(())
    }
}

impl FileOps for QueueFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_seek(&self) -> Option<&dyn SeekOps> {
        Some(self)
    }
    /// The state as text.
    fn read(&self, cx: &dyn Caller, _file: &OpenFile, buf: &mut [u8], off: u64) -> Result<usize> {
        let text = {
            let s = self.queue.state.lock();
            let size = s.bytes - s.count as u64 * OVERHEAD;
            let n = s.notify.as_ref();
            format!(
                "QSIZE:{size:<10} NOTIFY:{:<5} SIGNO:{:<5} NOTIFY_PID:{:<6}\n",
                n.map_or(0, |n| n.how),
                n.filter(|n| n.how == libc::SIGEV_SIGNAL).map_or(0, |n| n.signo),
                n.map_or(0, |n| cx.pid_vnr(n.pid)),
            )
        };
        let rest = text.as_bytes().get(usize::try_from(off).unwrap_or(usize::MAX)..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let count = self.queue.state.lock().count;
        let mut e = Events::NONE;
        if count > 0 {
            e |= Events::READABLE;
        }
        if count < self.queue.maxmsg {
            e |= Events::WRITABLE;
        }
        e
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.queue.wait.clone())
    }
    /// A process that closes a queue is not notified of its messages any more.
    fn flush(&self, cx: &dyn Caller, _file: &OpenFile) -> Result<()> {
        let withdrawn = self.queue.state.lock().withdraw(cx.pid());
        if let Some(n) = withdrawn {
            (n.tell)(NotifyReason::Withdrawn);
        }
        Ok(())
    }
    fn link_name(&self) -> Option<String> {
        Some(format!("/{}", self.name))
    }
}

impl SeekOps for QueueFile {}
