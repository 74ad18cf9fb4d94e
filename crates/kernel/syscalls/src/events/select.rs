//! select(2), pselect6(2).

use crate::arg::{Fd, Ptr};
use crate::at::real_file;
use crate::timeout::Timeout;
use abi::Errno;
use ipc::poll::{Watch, poll as wait_for};
use task::{Current, Restart, SysErr, SysResult};
use wait::{Events, Stop};
use zerocopy::IntoBytes;

/// Readiness that each of the three sets stands for.
const MEANING: [Events; 3] = [
    Events(Events::READABLE.0 | Events::RDBAND.0 | Events::HUP.0 | Events::ERR.0),
    Events(Events::WRITABLE.0 | Events::WRBAND.0 | Events::ERR.0),
    Events(Events::PRI.0),
];

fn do_select(c: &mut Current, n: i32, sets: [Ptr; 3], timeout: &Timeout) -> SysResult {
    let n = usize::try_from(n).map_err(|_| Errno::EINVAL)?;
    // Descriptors beyond the table are not looked at, nor their bits.
    let n = n.min(c.fd_table().size().max(64));
    let words = n.div_ceil(64);
    let mut asked: [Vec<u64>; 3] = Default::default();
    for (set, at) in asked.iter_mut().zip(sets) {
        *set = if at.is_null() { vec![0; words] } else { c.read_array(at.0, words, words)? };
    }
    let bit = |set: &[u64], fd: usize| set[fd / 64] >> (fd % 64) & 1 != 0;
    let mut watches = Vec::new();
    let mut fds = Vec::new();
    for fd in 0..n {
        let mut events = 0;
        for (set, meaning) in asked.iter().zip(MEANING) {
            events |= if bit(set, fd) { meaning.0 } else { 0 };
        }
        if events != 0 {
            watches.push(Watch::new(Some(real_file(c, Fd(fd as i32))?), Events(events)));
            fds.push(fd);
        }
    }
    let mut result: [Vec<u64>; 3] = std::array::from_fn(|_| vec![0; words]);
    // HUP is readable only: a writer's hang-up must not end the wait of a set that does not ask for it.
    let mut count = 0;
    loop {
        match wait_for(c, &mut watches, timeout.deadline) {
            Ok(0) | Err(Stop::TimedOut) => break,
            Ok(_) => {}
            Err(Stop::Interrupted) => return Err(SysErr::Restart(Restart::NoHand)),
        }
        for (w, &fd) in watches.iter().zip(&fds) {
            for ((out, set), meaning) in result.iter_mut().zip(&asked).zip(MEANING) {
                if bit(set, fd) && w.revents.intersects(meaning) {
                    out[fd / 64] |= 1 << (fd % 64);
                    count += 1;
                }
            }
        }
        if count > 0 {
            break;
        }
        // Only HUP or ERR that no set stands for: wait without those files.
        watches.iter_mut().filter(|w| !w.revents.is_empty()).for_each(|w| w.file = None);
    }
    for (out, at) in result.iter().zip(sets) {
        if !at.is_null() {
            c.write_bytes(at.0, out.as_slice().as_bytes())?;
        }
    }
    Ok(count)
}

pub fn select(c: &mut Current, n: i32, read: Ptr, write: Ptr, except: Ptr, timeout: Ptr) -> SysResult {
    let timeout = Timeout::timeval(c, timeout)?;
    let r = do_select(c, n, [read, write, except], &timeout);
    timeout.finish(c);
    r
}

pub fn pselect6(
    c: &mut Current,
    n: i32,
    read: Ptr,
    write: Ptr,
    except: Ptr,
    timeout: Ptr,
    sig: Ptr,
) -> SysResult {
    let timeout = Timeout::timespec(c, timeout)?;
    if !sig.is_null() {
        let [at, size]: [u64; 2] = c.read_value(sig.0)?;
        if at != 0 {
            let mask = c.read_sigset(at, size)?;
            c.set_temporary_mask(mask);
        }
    }
    let r = do_select(c, n, [read, write, except], &timeout);
    if !matches!(r, Err(SysErr::Restart(_))) {
        c.restore_mask();
    }
    timeout.finish(c);
    r
}
