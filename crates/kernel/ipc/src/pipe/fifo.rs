//! Opening named pipes: fifo(7).
//!
//! The pipe hangs on the FIFO's inode while somebody has it open.

use super::{Pipe, PipeEnd};
use abi::{Errno, Result};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use vfs::attach::Attachments;
use vfs::{Caller, FileOps};
use wait::Events;

/// The attachment of a FIFO's inode.
#[derive(Default)]
struct FifoNode(Mutex<Weak<Pipe>>);

/// Opens the FIFO whose inode has these attachments. Blocks until a peer opens the other direction,
/// unless O_NONBLOCK; a signal ends the wait.
pub fn open(cx: &dyn Caller, on: &Attachments, flags: i32) -> Result<Arc<dyn FileOps>> {
    let node = on.get_or(FifoNode::default);
    let pipe = {
        let mut w = node.0.lock();
        match w.upgrade() {
            Some(p) => p,
            None => {
                let p = Pipe::new(None);
                *w = Arc::downgrade(&p);
                p
            }
        }
    };
    let end = open_pipe(cx, &pipe, flags)?;
    Ok(end)
}

/// A new end of `pipe` for open(2) flags.
pub(super) fn open_pipe(cx: &dyn Caller, pipe: &Arc<Pipe>, flags: i32) -> Result<Arc<PipeEnd>> {
    let nonblock = flags & libc::O_NONBLOCK != 0;
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    if writes && !reads && nonblock && pipe.state.lock().readers == 0 {
        return Err(Errno::ENXIO);
    }
    let end = pipe.end(reads, writes);
    let (peers, opens) = {
        let s = pipe.state.lock();
        if reads { (s.writers, s.writer_opens) } else { (s.readers, s.reader_opens) }
    };
    if nonblock || (reads && writes) || peers > 0 {
        return Ok(end);
    }
    let moved = || {
        let s = pipe.state.lock();
        (if reads { s.writer_opens } else { s.reader_opens } != opens).then_some(())
    };
    let mask = Events::READABLE | Events::WRITABLE;
    match cx.waiter().wait_on(&pipe.queue, mask, None, moved) {
        Ok(()) => Ok(end),
        Err(_) => Err(Errno::EINTR),
    }
}
