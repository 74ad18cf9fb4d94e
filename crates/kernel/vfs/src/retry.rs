//! Blocking in operations of open files.

use crate::file::{Caller, OpenFile};
use abi::{Errno, Result};
use caller::retry::{Failure, Outcome, retry_on};
use std::time::Instant;
use wait::Events;

/// Repeats `op` while it answers EAGAIN, sleeping on the file's queue for `mask`; with O_NONBLOCK, or
/// for files that have no queue, EAGAIN is the answer.
pub fn retry<T>(
    cx: &dyn Caller,
    file: &OpenFile,
    mask: Events,
    deadline: Option<Instant>,
    mut op: impl FnMut() -> Result<T>,
) -> Outcome<T> {
    match op() {
        Err(Errno::EAGAIN) if !file.nonblocking() => {}
        done => return done.map_err(Failure::Errno),
    }
    match file.ops.wait_queue(cx) {
        Some(q) => retry_on(cx, &q, mask, deadline, op),
        None => Err(Failure::Errno(Errno::EAGAIN)),
    }
}
