//! Message queues. See msgget(2), msgop(2), msgctl(2).

use crate::control::{self, Shown};
use crate::ids::Object;
use crate::perm::{READ, WRITE};
use crate::{Doer, IpcNamespace, IpcPerm, Perm, doer, now, vnr};
use abi::{Errno, Result};
use caller::Outcome;
use lock_order::{Mutex, rank};
use pid::PidNamespace;
use rights::Cap;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vfs::Caller;
use wait::{Events, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod state;
pub use state::QueueState;

/// Most bytes of all messages of a namespace, each counted with [`OVERHEAD`] more: they live in the sentry.
const MAX_BYTES: u64 = 64 << 20;
const OVERHEAD: u64 = 64;
/// MSG_COPY.
pub const MSG_COPY: i32 = 0o40000;
/// MSG_EXCEPT.
pub const MSG_EXCEPT: i32 = 0o20000;
/// MSG_NOERROR.
pub const MSG_NOERROR: i32 = 0o10000;

/// `struct msqid64_ds`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in the manual page")]
pub struct MsqidDs {
    pub perm: IpcPerm,
    pub stime: i64,
    pub rtime: i64,
    pub ctime: i64,
    pub cbytes: u64,
    pub qnum: u64,
    pub qbytes: u64,
    pub lspid: i32,
    pub lrpid: i32,
    pub unused: [u64; 2],
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// Its type, above 0.
    pub kind: i64,
    /// Its text.
    #[serde(with = "serde_bytes")]
    pub text: Vec<u8>,
}

struct State {
    perm: Perm,
    messages: VecDeque<Message>,
    removed: bool,
    /// The processes that sent and received last; the numbers in `ds` stay 0.
    sender: Doer,
    receiver: Doer,
    ds: MsqidDs,
}

/// A queue.
pub struct Queue {
    state: Mutex<State, { rank::IPC_OBJECT }>,
    wait: WaitQueue,
}

impl Object for Queue {
    fn perm(&self) -> Perm {
        self.state.lock().perm
    }
}

impl Shown for Queue {
    type Ds = MsqidDs;

    fn show(&self, ns: Option<&PidNamespace>) -> MsqidDs {
        let s = self.state.lock();
        let (lspid, lrpid) = (vnr(&s.sender, ns), vnr(&s.receiver, ns));
        MsqidDs { perm: s.perm.show(), qnum: s.messages.len() as u64, lspid, lrpid, ..s.ds }
    }

    fn perm_in(ds: &mut MsqidDs) -> &mut IpcPerm {
        &mut ds.perm
    }
}

/// Which message msgrcv(2) wants.
fn position(messages: &VecDeque<Message>, kind: i64, flags: i32) -> Option<usize> {
    if flags & MSG_COPY != 0 {
        return usize::try_from(kind).ok().filter(|k| *k < messages.len());
    }
    match kind {
        0 => (!messages.is_empty()).then_some(0),
        k if k > 0 && flags & MSG_EXCEPT != 0 => messages.iter().position(|m| m.kind != k),
        k if k > 0 => messages.iter().position(|m| m.kind == k),
        k => {
            let most = k.checked_neg().unwrap_or(i64::MAX);
            let low = messages.iter().map(|m| m.kind).filter(|m| *m <= most).min()?;
            messages.iter().position(|m| m.kind == low)
        }
    }
}

impl IpcNamespace {
    /// msgget(2).
    pub fn msgget(&self, cx: &dyn Caller, key: i32, flags: i32) -> Result<i32> {
        let l = &self.limits;
        let make = |perm| {
            let ds = MsqidDs { ctime: now(), qbytes: l.msgmnb.load(Relaxed), ..MsqidDs::default() };
            let state =
                State { perm, messages: VecDeque::new(), removed: false, sender: None, receiver: None, ds };
            Ok(Queue { state: Mutex::new(state), wait: WaitQueue::new() })
        };
        let limit = (l.msgmni.load(Relaxed), &l.next_id[1]);
        self.msg.lock().get(cx, (key, flags), limit, |_| Ok(()), make)
    }

    /// msgsnd(2). The text's length was checked.
    pub fn msgsnd(&self, cx: &dyn Caller, id: i32, m: Message, flags: i32) -> Outcome<()> {
        let q = self.msg.lock().find(id)?;
        let len = m.text.len() as u64;
        let mut m = Some(m);
        let mut attempt = || -> Option<Result<()>> {
            let mut s = q.state.lock();
            if s.removed {
                return Some(Err(Errno::EIDRM));
            }
            if let Err(e) = s.perm.check(cx, &self.user_ns, WRITE) {
                return Some(Err(e));
            }
            let room = s.ds.cbytes + len <= s.ds.qbytes && (s.messages.len() as u64) < s.ds.qbytes;
            if !room {
                return (flags & libc::IPC_NOWAIT != 0).then_some(Err(Errno::EAGAIN));
            }
            if self.msg_bytes.fetch_add(len + OVERHEAD, Relaxed) + len + OVERHEAD > MAX_BYTES {
                self.msg_bytes.fetch_sub(len + OVERHEAD, Relaxed);
                return Some(Err(Errno::ENOMEM));
            }
            s.ds.cbytes += len;
            s.sender = doer(cx);
            s.ds.stime = now();
            s.messages.extend(m.take());
            Some(Ok(()))
        };
        cx.waiter().wait_on(&q.wait, Events::OUT, None, &mut attempt)??;
        q.wait.notify(Events::IN);
        Ok(())
    }

    /// msgrcv(2).
    pub fn msgrcv(&self, cx: &dyn Caller, id: i32, size: u64, kind: i64, flags: i32) -> Outcome<Message> {
        let q = self.msg.lock().find(id)?;
        let copy = flags & MSG_COPY != 0;
        let attempt = || -> Option<Result<Message>> {
            let mut s = q.state.lock();
            if s.removed {
                return Some(Err(Errno::EIDRM));
            }
            if let Err(e) = s.perm.check(cx, &self.user_ns, READ) {
                return Some(Err(e));
            }
            let Some(at) = position(&s.messages, kind, flags) else {
                return (flags & libc::IPC_NOWAIT != 0).then_some(Err(Errno::ENOMSG));
            };
            let len = s.messages.get(at).map_or(0, |m| m.text.len() as u64);
            if len > size && flags & MSG_NOERROR == 0 {
                return Some(Err(Errno::E2BIG));
            }
            if len > size && copy {
                return Some(Err(Errno::EINVAL));
            }
            let mut m = if copy { s.messages.get(at).cloned()? } else { s.messages.remove(at)? };
            if !copy {
                s.ds.cbytes -= len;
                s.receiver = doer(cx);
                s.ds.rtime = now();
                self.msg_bytes.fetch_sub(len + OVERHEAD, Relaxed);
            }
            m.text.truncate(size as usize);
            Some(Ok(m))
        };
        let m = cx.waiter().wait_on(&q.wait, Events::IN, None, attempt)??;
        if !copy {
            q.wait.notify(Events::OUT);
        }
        Ok(m)
    }

    /// IPC_STAT.
    pub fn msg_stat(&self, cx: &dyn Caller, id: i32) -> Result<MsqidDs> {
        control::stat(cx, &self.msg, &self.user_ns, id)
    }

    /// MSG_STAT, MSG_STAT_ANY: the whole ID and the same.
    pub fn msg_stat_at(&self, cx: &dyn Caller, index: i32, any: bool) -> Result<(i32, MsqidDs)> {
        control::stat_at(cx, &self.msg, index, any)
    }

    /// IPC_SET.
    pub fn msg_set(&self, cx: &dyn Caller, id: i32, p: &IpcPerm, qbytes: u64) -> Result<()> {
        let q = self.msg.lock().find(id)?;
        let mut s = q.state.lock();
        if qbytes > self.limits.msgmnb.load(Relaxed) && !cx.creds().capable(Cap::SYS_RESOURCE) {
            return Err(Errno::EPERM);
        }
        s.perm.set(cx, &self.user_ns, p)?;
        s.ds.qbytes = qbytes;
        s.ds.ctime = now();
        drop(s);
        q.wait.notify(Events::ALL);
        Ok(())
    }

    /// IPC_RMID.
    pub fn msg_remove(&self, cx: &dyn Caller, id: i32) -> Result<()> {
        let q: Arc<Queue> = {
            let mut t = self.msg.lock();
            let q = t.find(id)?;
            let mut s = q.state.lock();
            s.perm.owned(cx, &self.user_ns)?;
            t.remove(&s.perm);
            s.removed = true;
            let gone = std::mem::take(&mut s.messages);
            let bytes = gone.iter().map(|m| m.text.len() as u64 + OVERHEAD).sum();
            self.msg_bytes.fetch_sub(bytes, Relaxed);
            drop(s);
            q
        };
        q.wait.notify(Events::ALL);
        Ok(())
    }

    /// IPC_INFO and, with `usage`, MSG_INFO: `struct msginfo`, and the highest index.
    pub fn msg_info(&self, usage: bool) -> ([i32; 8], i32) {
        let l = &self.limits;
        let int = |v: u64| v.min(i32::MAX as u64) as i32;
        let (mni, max, mnb) = (l.msgmni.load(Relaxed), l.msgmax.load(Relaxed), l.msgmnb.load(Relaxed));
        let t = self.msg.lock();
        let (pool, map, tql) = if usage {
            let all = || t.iter().map(|(_, q)| q.show(None));
            (t.len() as u64, all().map(|d| d.qnum).sum(), all().map(|d| d.cbytes).sum())
        } else {
            (mni * mnb / 1024, mnb, mnb)
        };
        ([int(pool), int(map), int(max), int(mnb), int(mni), 16, int(tql), 0xffff], t.highest())
    }

    /// /proc/sysvipc/msg, as seen from this PID namespace.
    pub fn msg_table(&self, ns: &PidNamespace) -> String {
        let mut out = String::from(
            "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      \
             rtime      ctime\n",
        );
        let all: Vec<_> = self.msg.lock().iter().map(|(_, q)| q.clone()).collect();
        for q in all {
            let (id, d) = (q.perm().id, q.show(Some(ns)));
            let p = d.perm;
            let _ = writeln!(
                out,
                "{:>10} {id:>10}  {:>4o}  {:>10} {:>10} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>10} {:>10} {:>10}",
                p.key,
                p.mode,
                d.cbytes,
                d.qnum,
                d.lspid,
                d.lrpid,
                p.uid,
                p.gid,
                p.cuid,
                p.cgid,
                d.stime,
                d.rtime,
                d.ctime,
            );
        }
        out
    }
}
