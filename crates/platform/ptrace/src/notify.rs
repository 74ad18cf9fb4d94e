//! Answers what the stub's seccomp filter routes to the sentry. Guest code never
//! gets here (its calls are emulated); only calls that the tracer injects do.

use abi::Errno;
use hostsys::seccomp;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use stub::layout::{NOTIFY_FD, NR_NOTIFY};

/// What an injected call may have, by thread id.
pub(crate) enum Grant {
    /// A clone with these flags.
    Clone(u64),
    /// This descriptor.
    Fd(Arc<OwnedFd>),
}

pub(crate) type Grants = Arc<Mutex<HashMap<i32, Grant>>>;

/// Serves the listener until `stop` is readable or no process is left.
pub(crate) fn serve(listener: &OwnedFd, stop: &OwnedFd, grants: &Grants) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        let [requests, stop] = fds;
        if !stop.revents().is_empty() || requests.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return;
        }
        let Ok(r) = seccomp::receive(listener.as_fd()) else { continue };
        let grants = grants.lock();
        let outcome = match (i64::from(r.nr), r.args, grants.get(&r.tid)) {
            // The host restarts a clone that a signal came in between, so the grant stays until the call is over; the
            // registers are the tracer's.
            (libc::SYS_clone, [flags, ..], Some(Grant::Clone(granted))) if flags == *granted => {
                seccomp::allow(listener.as_fd(), r.id)
            }
            (nr, [NOTIFY_FD, ..], Some(Grant::Fd(fd))) if nr as u64 == NR_NOTIFY => {
                seccomp::answer_fd(listener.as_fd(), r.id, fd.as_fd(), None)
            }
            _ => Err(Errno::EPERM),
        };
        if let Err(e) = outcome {
            // ENOENT: the caller is gone.
            let _ = seccomp::answer(listener.as_fd(), r.id, Err(e));
        }
    }
}
