//! The queue between threads with filters that return SECCOMP_RET_USER_NOTIF, and their supervisor. See
//! seccomp_unotify(2).
//!
//! A thread that makes a supervised call leaves it in the [`Listener`] and sleeps; the supervisor receives it through its
//! descriptor (`listener_file`), answers, and the thread goes on. The filter holds a token: the listener ends with the last
//! thread under the filter. A listener has at most one call of each thread.
//!
//! Locks: the table of [`Listeners`] and each listener's state, both leaves. A checkpoint keeps the table and the calls that
//! wait.

use abi::{Errno, Result};
use lock_order::Mutex;
use seccomp::Data;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wait::{Events, Stop, WaitQueue, Waiter};

/// What a supervised call comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is made.
    Continue,
    /// It is not, and this is what the program gets.
    Value(i64),
}

/// A call that waits for its supervisor.
struct SupervisedCall {
    id: u64,
    tid: i32,
    data: Data,
    received: bool,
    answer: Option<Answer>,
}

#[derive(Default)]
struct State {
    next: u64,
    calls: Vec<SupervisedCall>,
    /// The descriptor has been closed.
    closed: bool,
}

impl State {
    /// A call that the supervisor has received and not answered: ENOENT, EINPROGRESS.
    fn received(&mut self, id: u64) -> Result<&mut SupervisedCall> {
        let q = self.calls.iter_mut().find(|q| q.id == id).ok_or(Errno::ENOENT)?;
        if q.received && q.answer.is_none() { Ok(q) } else { Err(Errno::EINPROGRESS) }
    }
}

/// The queue between the threads under a filter and its supervisor.
pub struct Listener {
    state: Mutex<State>,
    /// Notified of new calls, and when no thread is left.
    asked: WaitQueue,
    /// Notified of answers.
    answered: WaitQueue,
    /// Once the supervisor has received a call, only a fatal signal ends the wait (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).
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
    /// A new listener, and what the filter holds: the listener ends with it.
    pub(crate) fn add(self: &Arc<Self>, killable: bool) -> (Arc<dyn seccomp::Supervisor>, Arc<Listener>) {
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
        (Arc::new(Token { number, table: self.clone() }), listener)
    }

    /// The listener with this number.
    pub fn find(&self, number: u64) -> Option<Arc<Listener>> {
        self.0.lock().1.get(&number).cloned()
    }
}

impl Listener {
    /// Hands a call of the thread `tid` to the supervisor and waits. ENOSYS without a supervisor; `Err(None)` when a signal ends
    /// the wait.
    pub fn ask(
        &self,
        waiter: &Arc<Waiter>,
        tid: i32,
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
            s.calls.push(SupervisedCall { id, tid, data, received: false, answer: None });
            id
        };
        self.asked.notify(Events::READABLE);
        let attempt = || {
            let s = self.state.lock();
            let answer = s.calls.iter().find(|q| q.id == id).and_then(|q| q.answer);
            answer.map(Ok).or(s.closed.then_some(Err(Errno::ENOSYS)))
        };
        let mut end = waiter.wait_on(&self.answered, Events::ALL, None, attempt);
        let received = || self.state.lock().calls.iter().any(|q| q.id == id && q.received);
        if end.is_err() && self.killable && received() {
            let _sub = self.answered.subscribe(Events::ALL, waiter.clone());
            while end.is_err() && !dying() {
                end = match attempt() {
                    Some(answer) => Ok(answer),
                    None => waiter.sleep_uninterruptible(None).and(Err(Stop::Interrupted)),
                };
            }
        }
        self.state.lock().calls.retain(|q| q.id != id);
        match end {
            Ok(answer) => answer.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// ID of the thread that made call `id`, for SECCOMP_IOCTL_NOTIF_ADDFD: ENOENT, EINPROGRESS.
    pub fn caller(&self, id: u64) -> Result<i32> {
        Ok(self.state.lock().received(id)?.tid)
    }

    /// Answers a call with a value.
    pub fn answer(&self, id: u64, value: i64) -> Result<()> {
        self.reply(id, Answer::Value(value))
    }

    pub(crate) fn reply(&self, id: u64, answer: Answer) -> Result<()> {
        self.state.lock().received(id)?.answer = Some(answer);
        self.answered.notify(Events::ALL);
        Ok(())
    }

    /// Takes the oldest call that the supervisor has not received: its ID, its thread, and the call.
    pub(crate) fn receive(&self) -> Option<(u64, i32, Data)> {
        let mut s = self.state.lock();
        let q = s.calls.iter_mut().find(|q| !q.received)?;
        q.received = true;
        Some((q.id, q.tid, q.data))
    }

    /// Puts a call back that could not be handed over.
    pub(crate) fn put_back(&self, id: u64) {
        if let Some(q) = self.state.lock().calls.iter_mut().find(|q| q.id == id) {
            q.received = false;
        }
        self.asked.notify(Events::READABLE);
    }

    /// The descriptor has been closed: calls that wait get ENOSYS.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.answered.notify(Events::ALL);
    }

    /// Whether no thread is left under the filter.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// ENOENT unless call `id` waits for an answer.
    pub(crate) fn check(&self, id: u64) -> Result<()> {
        self.state.lock().received(id).map(|_| ()).map_err(|_| Errno::ENOENT)
    }

    /// Whether there is a call to receive, and whether there is one to answer.
    pub(crate) fn readiness(&self) -> (bool, bool) {
        let s = self.state.lock();
        let waiting = |q: &SupervisedCall| q.received && q.answer.is_none();
        (s.calls.iter().any(|q| !q.received), s.calls.iter().any(waiting))
    }

    /// Notified of new calls, and when no thread is left.
    pub(crate) fn asked(&self) -> &WaitQueue {
        &self.asked
    }
}
