//! Waiting in operations of open files.

use crate::file::{Caller, OpenFile};
use abi::Result;
use caller::{Outcome, Patience};
use wait::Events;

/// Repeats `op` while it answers EAGAIN, sleeping on the file's queue for `mask`, for as long as a socket's options allow;
/// with O_NONBLOCK, or for files that have no queue, EAGAIN is the answer.
pub fn retry<T>(cx: &dyn Caller, file: &OpenFile, mask: Events, op: impl FnMut() -> Result<T>) -> Outcome<T> {
    let timeout = file.ops.patience(mask.intersects(Events::OUT));
    Patience::new(!file.nonblocking(), timeout).run(cx, || file.ops.wait_queue(cx), mask, op)
}
