//! The one loop in which operations block: try, and when the answer is "would block" (EAGAIN), sleep on a wait queue and
//! try again.

use crate::blocking::Blocking;
use abi::{Errno, Result};
use std::time::{Duration, Instant};
use wait::{Events, Stop, WaitQueue};

/// Why an operation that may block gave nothing. Only `Errno` is for the program to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It failed.
    Errno(Errno),
    /// A signal wants the thread's attention; the system call layer restarts or answers EINTR.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

impl Failure {
    /// As an error number, for callers that cannot restart: EINTR, ETIMEDOUT.
    pub fn errno(self) -> Errno {
        match self {
            Failure::Errno(e) => e,
            Failure::Interrupted => Errno::EINTR,
            Failure::TimedOut => Errno::ETIMEDOUT,
        }
    }
}

/// Result of an operation that may block.
pub type Outcome<T> = std::result::Result<T, Failure>;

impl From<Errno> for Failure {
    fn from(e: Errno) -> Failure {
        Failure::Errno(e)
    }
}

impl From<Stop> for Failure {
    fn from(s: Stop) -> Failure {
        match s {
            Stop::Interrupted => Failure::Interrupted,
            Stop::TimedOut => Failure::TimedOut,
        }
    }
}

/// Repeats `op` while it answers EAGAIN, sleeping on `queue` for `mask` until `deadline`.
pub fn retry_on<T>(
    cx: &(impl Blocking + ?Sized),
    queue: &WaitQueue,
    mask: Events,
    deadline: Option<Instant>,
    mut op: impl FnMut() -> Result<T>,
) -> Outcome<T> {
    let attempt = || match op() {
        Err(Errno::EAGAIN) => None,
        done => Some(done),
    };
    match cx.waiter().wait_on(queue, mask, deadline, attempt) {
        Ok(done) => done.map_err(Failure::Errno),
        Err(stop) => Err(stop.into()),
    }
}

/// As [`retry_on`] for what may also become possible without a notification: `again` says when to try again at the latest.
pub fn retry_paced<T>(
    cx: &(impl Blocking + ?Sized),
    queue: &WaitQueue,
    mask: Events,
    again: impl Fn() -> Option<Instant>,
    mut op: impl FnMut() -> Result<T>,
) -> Outcome<T> {
    let mut attempt = || match op() {
        Err(Errno::EAGAIN) => None,
        done => Some(done.map_err(Failure::Errno)),
    };
    if let Some(done) = attempt() {
        return done;
    }
    let waiter = cx.waiter();
    let _subscribed = queue.subscribe(mask, waiter.clone());
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        if let Err(Stop::Interrupted) = waiter.sleep(again()) {
            return attempt().unwrap_or(Err(Failure::Interrupted));
        }
    }
}

/// How long one call on a file or socket may wait.
#[derive(Clone, Copy)]
pub struct Patience {
    /// It may wait at all: neither O_NONBLOCK nor MSG_DONTWAIT.
    pub block: bool,
    /// The end of a wait that an option of a socket bounds (SO_RCVTIMEO, SO_SNDTIMEO).
    pub deadline: Option<Instant>,
}

impl Patience {
    /// With the bound of a socket, if it has one.
    pub fn new(block: bool, timeout: Option<Duration>) -> Patience {
        Patience { block, deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)) }
    }

    /// Repeats `op` while it answers EAGAIN and there is time, sleeping on `queue` for `mask`; EAGAIN where the call may not
    /// wait and where there is no queue.
    pub fn run<T>(
        self,
        cx: &(impl Blocking + ?Sized),
        queue: impl FnOnce() -> Option<WaitQueue>,
        mask: Events,
        mut op: impl FnMut() -> Result<T>,
    ) -> Outcome<T> {
        match op() {
            Err(Errno::EAGAIN) if self.block => {}
            done => return done.map_err(Failure::Errno),
        }
        match queue() {
            Some(queue) => self.wait(cx, &queue, mask, op),
            None => Err(Failure::Errno(Errno::EAGAIN)),
        }
    }

    /// As [`Patience::run`] after a first attempt that answered EAGAIN.
    pub fn wait<T>(
        self,
        cx: &(impl Blocking + ?Sized),
        queue: &WaitQueue,
        mask: Events,
        op: impl FnMut() -> Result<T>,
    ) -> Outcome<T> {
        match retry_on(cx, queue, mask, self.deadline, op) {
            Err(Failure::TimedOut) => Err(Failure::Errno(Errno::EAGAIN)),
            // A wait with a time-out cannot be started over: it would wait longer.
            Err(Failure::Interrupted) if self.deadline.is_some() => Err(Failure::Errno(Errno::EINTR)),
            done => done,
        }
    }
}
