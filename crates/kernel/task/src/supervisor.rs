//! Supervisors of seccomp(2) filters: SECCOMP_RET_USER_NOTIF and the descriptor that SECCOMP_FILTER_FLAG_NEW_LISTENER
//! gives.
//!
//! A thread that makes a supervised call leaves a question and sleeps; the supervisor takes it, answers, and the
//! thread goes on.
//! There are never more questions than threads. Locks: the table and each listener's, leaves both.

use crate::task::Task;
use abi::{Errno, Result};
use caller::UserMemory;
use ranked::Mutex;
use seccomp::Data;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vfs::{Caller, FileOps, OpenFile};
use wait::{Events, Stop, WaitQueue};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const RECEIVE: u32 = 0xc050_2100;
const SEND: u32 = 0xc018_2101;
const ID_VALID: u32 = 0x4008_2102;
/// The same with the direction that it had at first.
const ID_VALID_OLD: u32 = 0x8008_2102;
const SET_FLAGS: u32 = 0x4008_2104;
/// SECCOMP_IOCTL_NOTIF_ADDFD, which the system call carries out.
pub const ADD_FD: u32 = 0x4018_2103;
/// SECCOMP_USER_NOTIF_FLAG_CONTINUE.
const CONTINUE: u32 = 1;
/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: no difference here.
const SYNC_WAKE_UP: u64 = 1;

/// `struct seccomp_notif`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    ip: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// What a supervised call comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is made.
    Continue,
    /// It is not, and this is what the program gets.
    Value(i64),
}

struct Question {
    id: u64,
    task: Weak<Task>,
    tid: i32,
    data: Data,
    taken: bool,
    answer: Option<Answer>,
}

#[derive(Default)]
struct State {
    next: u64,
    questions: Vec<Question>,
    /// The descriptor has been closed.
    closed: bool,
}

impl State {
    /// A question that the supervisor has taken and not answered: ENOENT, EINPROGRESS.
    fn taken(&mut self, id: u64) -> Result<&mut Question> {
        let q = self.questions.iter_mut().find(|q| q.id == id).ok_or(Errno::ENOENT)?;
        if q.taken && q.answer.is_none() { Ok(q) } else { Err(Errno::EINPROGRESS) }
    }
}

/// What threads and a supervisor meet at.
pub struct Listener {
    state: Mutex<State>,
    /// Told of new questions, and when no thread is left.
    asked: WaitQueue,
    /// Told of answers.
    answered: WaitQueue,
    /// Once the supervisor has a question, signals that are not fatal do not take it back.
    killable: bool,
    /// No thread is left under the filter.
    ended: AtomicBool,
}

/// The listeners of a kernel, by number.
#[derive(Default)]
pub struct Listeners(Mutex<(u64, BTreeMap<u64, Arc<Listener>>)>);

/// What the filter holds: the listener ends with it.
#[derive(Debug)]
struct Token {
    number: u64,
    table: Arc<Listeners>,
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listeners")
    }
}

impl seccomp::Supervisor for Token {
    fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        let listener = self.table.0.lock().1.remove(&self.number);
        if let Some(l) = listener {
            l.ended.store(true, Ordering::SeqCst);
            l.asked.notify(Events::HUP);
        }
    }
}

impl Listeners {
    /// A new listener: what the filter holds, and the descriptor's file.
    pub fn open(
        self: &Arc<Self>,
        cx: &dyn Caller,
        killable: bool,
    ) -> (Arc<dyn seccomp::Supervisor>, Arc<OpenFile>) {
        let listener = Arc::new(Listener {
            state: Mutex::default(),
            asked: WaitQueue::new(),
            answered: WaitQueue::new(),
            killable,
            ended: AtomicBool::new(false),
        });
        let number = {
            let mut table = self.0.lock();
            table.0 += 1;
            let number = table.0;
            table.1.insert(number, listener.clone());
            number
        };
        let token = Arc::new(Token { number, table: self.clone() });
        let ops = Arc::new(ListenerFile(listener));
        (token, OpenFile::new(None, Some(cx.vfs().anonymous_inode()), ops, libc::O_RDWR))
    }

    pub(crate) fn find(&self, number: u64) -> Option<Arc<Listener>> {
        self.0.lock().1.get(&number).cloned()
    }
}

impl Listener {
    /// Asks about a call and waits. ENOSYS when nobody listens; `Err(None)` when a signal ends the wait.
    pub(crate) fn ask(
        &self,
        task: &Arc<Task>,
        data: Data,
        dying: impl Fn() -> bool,
    ) -> Result<Answer, Option<Errno>> {
        let id = {
            let mut s = self.state.lock();
            if s.closed {
                return Err(Some(Errno::ENOSYS));
            }
            s.next += 1;
            let id = s.next;
            let (tid, task) = (task.tid(), Arc::downgrade(task));
            s.questions.push(Question { id, task, tid, data, taken: false, answer: None });
            id
        };
        self.asked.notify(Events::READABLE);
        let attempt = || {
            let s = self.state.lock();
            let answer = s.questions.iter().find(|q| q.id == id).and_then(|q| q.answer);
            answer.map(Ok).or(s.closed.then_some(Err(Errno::ENOSYS)))
        };
        let mut end = task.waiter.wait_on(&self.answered, Events::ALL, None, attempt);
        let taken = || self.state.lock().questions.iter().any(|q| q.id == id && q.taken);
        if end.is_err() && self.killable && taken() {
            let _sub = self.answered.subscribe(Events::ALL, task.waiter.clone());
            while end.is_err() && !dying() {
                end = match attempt() {
                    Some(answer) => Ok(answer),
                    None => task.waiter.sleep_uninterruptible(None).and(Err(Stop::Interrupted)),
                };
            }
        }
        self.state.lock().questions.retain(|q| q.id != id);
        match end {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// The thread that asked question `id`, for SECCOMP_IOCTL_NOTIF_ADDFD: ENOENT, EINPROGRESS.
    pub fn asker(&self, id: u64) -> Result<Arc<Task>> {
        self.state.lock().taken(id)?.task.upgrade().ok_or(Errno::ENOENT)
    }

    /// Answers a question.
    pub fn answer(&self, id: u64, value: i64) -> Result<()> {
        self.reply(id, Answer::Value(value))
    }

    fn reply(&self, id: u64, answer: Answer) -> Result<()> {
        self.state.lock().taken(id)?.answer = Some(answer);
        self.answered.notify(Events::ALL);
        Ok(())
    }

    /// Takes the oldest question.
    fn take(&self, cx: &dyn Caller) -> Option<Notification> {
        let mut s = self.state.lock();
        let q = s.questions.iter_mut().find(|q| !q.taken)?;
        q.taken = true;
        let (id, tid, data) = (q.id, q.tid, q.data);
        drop(s);
        let seen = cx.pid_ns().zip(cx.find_pid(tid)).map_or(0, |(ns, pid)| pid.nr_in(&ns));
        let Data { nr, arch, ip, args } = data;
        Some(Notification { id, pid: seen as u32, flags: 0, nr, arch, ip, args })
    }

    /// Puts a question back that could not be handed over.
    fn put_back(&self, id: u64) {
        if let Some(q) = self.state.lock().questions.iter_mut().find(|q| q.id == id) {
            q.taken = false;
        }
        self.asked.notify(Events::READABLE);
    }
}

struct ListenerFile(Arc<Listener>);

/// The listener behind an open file.
pub fn listener_of(file: &OpenFile) -> Option<&Arc<Listener>> {
    file.ops.as_any().downcast_ref::<ListenerFile>().map(|f| &f.0)
}

impl Drop for ListenerFile {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.answered.notify(Events::ALL);
    }
}

impl ListenerFile {
    fn receive(&self, cx: &dyn Caller, mem: &mut dyn UserMemory, at: u64) -> Result<u64> {
        let given: Notification = mem.read_value(at)?;
        if given.as_bytes().iter().any(|b| *b != 0) {
            return Err(Errno::EINVAL);
        }
        let listener = &self.0;
        let over = || listener.ended.load(Ordering::SeqCst).then_some(None);
        let waited = cx.waiter().wait_on(&listener.asked, Events::READABLE | Events::HUP, None, || {
            listener.take(cx).map(Some).or_else(over)
        });
        let question = waited.map_err(|_| Errno::EINTR)?.ok_or(Errno::ENOENT)?;
        if let Err(e) = mem.write_value(at, &question) {
            listener.put_back(question.id);
            return Err(e);
        }
        Ok(0)
    }

    fn send(&self, mem: &mut dyn UserMemory, at: u64) -> Result<u64> {
        let r: Response = mem.read_value(at)?;
        let goes_on = r.flags & CONTINUE != 0;
        if r.flags & !CONTINUE != 0 || goes_on && (r.error != 0 || r.value != 0) {
            return Err(Errno::EINVAL);
        }
        let value = if r.error != 0 { r.error.into() } else { r.value };
        self.0.reply(r.id, if goes_on { Answer::Continue } else { Answer::Value(value) })?;
        Ok(0)
    }
}

impl FileOps for ListenerFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, _cx: &dyn Caller, _file: &OpenFile) -> Events {
        let s = self.0.state.lock();
        let mut events = Events::NONE;
        if s.questions.iter().any(|q| !q.taken) {
            events |= Events::READABLE;
        }
        if s.questions.iter().any(|q| q.taken && q.answer.is_none()) {
            events |= Events::WRITABLE;
        }
        if self.0.ended.load(Ordering::SeqCst) { events | Events::HUP } else { events }
    }
    fn wait_queue(&self, _cx: &dyn Caller) -> Option<WaitQueue> {
        Some(self.0.asked.clone())
    }
    fn link_name(&self) -> Option<String> {
        Some("anon_inode:seccomp notify".into())
    }
    fn ioctl(
        &self,
        cx: &dyn Caller,
        _file: &OpenFile,
        mem: &mut dyn UserMemory,
        cmd: u32,
        arg: u64,
    ) -> Result<u64> {
        match cmd {
            RECEIVE => self.receive(cx, mem, arg),
            SEND => self.send(mem, arg),
            ID_VALID | ID_VALID_OLD => {
                let id: u64 = mem.read_value(arg)?;
                self.0.state.lock().taken(id).map_err(|_| Errno::ENOENT)?;
                Ok(0)
            }
            SET_FLAGS if arg & !SYNC_WAKE_UP != 0 => Err(Errno::EINVAL),
            SET_FLAGS => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }
}
