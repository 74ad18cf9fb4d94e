//! Opening named pipes: fifo(7).
//!
//! The pipe is attached to the FIFO's inode while the FIFO is open.

use super::{Pipe, PipeEnd};
use abi::{Errno, Result};
use caller::retry::Outcome;
use lock_order::{Mutex, rank};
use std::sync::{Arc, Weak};
use vfs::file::devices::{Opened, Opener};
use vfs::{Caller, InodeRef, Path};
use wait::Events;

/// The attachment of a FIFO's inode.
#[derive(Default)]
struct FifoNode(Mutex<Weak<Pipe>, { rank::IPC_TABLE }>);

/// Opens FIFOs for the file layer.
pub fn opener() -> Arc<dyn Opener> {
    Arc::new(|cx: &dyn Caller, _at: &Path, inode: &InodeRef, flags: i32| {
        open(cx, inode, flags).map(|e| Opened::Ops(e))
    })
}

/// Makes a restored pipe that of a FIFO's inode, which is not open otherwise. EBUSY when it is, ENXIO for an inode
/// that keeps none.
pub fn attach(inode: &InodeRef, pipe: &Arc<Pipe>) -> Result<()> {
    let node = inode.attachments().ok_or(Errno::ENXIO)?.get_or(FifoNode::default);
    let mut open = node.0.lock();
    if let Some(there) = open.upgrade() {
        return if Arc::ptr_eq(&there, pipe) { Ok(()) } else { Err(Errno::EBUSY) };
    }
    *open = Arc::downgrade(pipe);
    Ok(())
}

/// Opens a FIFO. Blocks until a peer opens the other direction,
/// unless O_NONBLOCK; a signal ends the wait.
fn open(cx: &dyn Caller, inode: &InodeRef, flags: i32) -> Outcome<Arc<PipeEnd>> {
    let node = inode.attachments().ok_or(Errno::ENXIO)?.get_or(FifoNode::default);
    let pipe = {
        let mut w = node.0.lock();
        match w.upgrade() {
            Some(p) => p,
            None => {
                let p = Pipe::new(cx, None)?;
                *w = Arc::downgrade(&p);
                p
            }
        }
    };
    open_pipe(cx, &pipe, flags)
}

/// A new end of `pipe` for open(2) flags, at once; and, without a peer, the count of its opens to wait past.
pub(super) fn join(pipe: &Arc<Pipe>, flags: i32) -> Result<(Arc<PipeEnd>, Option<u64>)> {
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    pipe.end(reads, writes, !reads && flags & libc::O_NONBLOCK != 0)
}

/// A new end of `pipe` once there is a peer.
fn open_pipe(cx: &dyn Caller, pipe: &Arc<Pipe>, flags: i32) -> Outcome<Arc<PipeEnd>> {
    let (end, alone) = join(pipe, flags)?;
    let Some(before) = alone.filter(|_| flags & libc::O_NONBLOCK == 0) else { return Ok(end) };
    let opened = || pipe.opened_since(end.reads, before).then_some(());
    match cx.waiter().wait_on(&pipe.queue, Events::READABLE | Events::WRITABLE, None, opened) {
        Ok(()) => Ok(end),
        Err(stop) => Err(stop.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caller::Blocking;
    use caller::retry::Failure;
    use vfs::testing::TestCaller;

    #[test]
    fn open_waits_for_the_other_side() {
        let cx = TestCaller::with_caps(0);
        let pipe = Pipe::new(&cx, None).unwrap();
        let open = |flags| open_pipe(&cx, &pipe, flags);
        assert_eq!(open(libc::O_WRONLY | libc::O_NONBLOCK).err(), Some(Failure::Errno(Errno::ENXIO)));
        cx.waiter().set_interrupted(true);
        assert_eq!(open(libc::O_RDONLY).err(), Some(Failure::Interrupted));
        assert_eq!(pipe.state.lock().readers, 0);
        let p = pipe.clone();
        let t = std::thread::spawn(move || open_pipe(&TestCaller::with_caps(0), &p, libc::O_RDONLY).is_ok());
        while pipe.state.lock().readers == 0 {
            std::thread::yield_now();
        }
        assert!(open(libc::O_WRONLY).is_ok());
        assert!(t.join().unwrap());
        assert!(open(libc::O_RDWR).is_ok());
    }
}
