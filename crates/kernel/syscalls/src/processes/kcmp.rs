//! kcmp(2): whether two threads share something.

use crate::memory::mmap::may_access;
use abi::Errno;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};
use task::{Current, SysResult, Task};

const KCMP_FILE: i32 = 0;
const KCMP_VM: i32 = 1;
const KCMP_FILES: i32 = 2;
const KCMP_FS: i32 = 3;
const KCMP_SIGHAND: i32 = 4;
const KCMP_IO: i32 = 5;
const KCMP_SYSVSEM: i32 = 6;

fn at<T: ?Sized>(shared: &Arc<T>) -> usize {
    Arc::as_ptr(shared).cast::<()>().addr()
}

/// Which object `t` uses.
fn object(t: &Task, kind: i32, index: u64) -> Result<usize, Errno> {
    let gone = Errno::ESRCH;
    Ok(match kind {
        KCMP_FILE => {
            let fd = i32::try_from(index).map_err(|_| Errno::EBADF)?;
            at(&t.fds().ok_or(Errno::EBADF)?.get(fd)?)
        }
        KCMP_VM => at(&t.mm()),
        KCMP_FILES => at(&t.fds().ok_or(gone)?),
        KCMP_FS => at(&t.fs().ok_or(gone)?),
        KCMP_SIGHAND => at(&t.group.handlers()),
        // There is none: I/O priorities are a thread's own.
        KCMP_IO => 0,
        KCMP_SYSVSEM => t.sem_undo.lock().as_ref().map_or(0, at),
        _ => return Err(Errno::EINVAL),
    })
}

/// An order of objects that says nothing about where they are.
fn rank(address: usize) -> u64 {
    static ORDER: OnceLock<RandomState> = OnceLock::new();
    ORDER.get_or_init(RandomState::new).hash_one(address)
}

pub fn kcmp(c: &mut Current, pid1: i32, pid2: i32, kind: i32, index1: u64, index2: u64) -> SysResult {
    let first = c.find_task(pid1).ok_or(Errno::ESRCH)?;
    let second = c.find_task(pid2).ok_or(Errno::ESRCH)?;
    may_access(c, &first)?;
    may_access(c, &second)?;
    let a = object(&first, kind, index1)?;
    let b = object(&second, kind, index2)?;
    Ok(if a == b {
        0
    } else if rank(a) < rank(b) {
        1
    } else {
        2
    })
}
