//! The listener: requests of stub processes to the sentry.
//!
//! Three requests exist: clone(2) in one of two shapes, the hello of a forked
//! process, and a descriptor for a mapping. Each is granted only if a sentry
//! thread waits for exactly that. The thread id in a request comes from the host.
//!
//! A thread of its own serves the listener. A sentry thread that waits for the hello of a child serves it as well
//! ([`Inner::serve_until`]), so that no other thread is woken in between; it serves whatever comes.

use crate::Inner;
use abi::{Errno, Result};
use hostsys::{process, seccomp};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use stub::layout::{CLONE_FORK_FLAGS, MAX_FDS, NOTIFY_FD, NOTIFY_HELLO, NR_NOTIFY};

/// How often a thread that serves the listener looks whether it waits in vain. Not more often: a timer that would be the first
/// to expire is set in hardware, which costs a virtual machine microseconds.
const LOOK: Duration = Duration::from_millis(10);
/// How often a thread looks for a request that is about to come before it sleeps, each time giving other threads its CPU.
const GLANCES: u32 = 40;
/// Processor time in nanoseconds that a child may use before its hello. An honest one needs some thousands.
const HELLO_TIME: i64 = 5_000_000_000;

/// Nonces of forks that are over but that may still get a hello from the child.
const REMEMBERED: usize = 64;

/// A fork that has been asked for.
pub(crate) struct Ticket {
    inner: Arc<Inner>,
    shared: Arc<Fork>,
    /// That of the thread that forks.
    bell: Option<Bell>,
    /// It serves the listener while it waits.
    serves: bool,
}

/// The part of a [`Ticket`] that the listener sees.
pub(crate) struct Fork {
    nonce: u64,
    /// The child's process id as the parent has it; 0 before the parent's report.
    claimed: AtomicI32,
    state: Mutex<State>,
}

enum State {
    /// With the slot file to inject.
    Waiting(OwnedFd),
    Arrived {
        pid: i32,
        pidfd: OwnedFd,
        file: OwnedFd,
    },
    Done,
}

impl Inner {
    /// Announces a fork; `file` becomes the child's slots. `bell` is that of the thread that forks, which serves the listener
    /// while it waits if `serves` is set.
    pub(crate) fn expect_fork(self: &Arc<Self>, file: OwnedFd, bell: Option<Bell>, serves: bool) -> Ticket {
        let mut forks = self.forks.lock();
        // Random, so that no process can say hello in another's place: guests can make children that wait for it.
        let nonce = hostsys::clock::random_u64();
        let state = Mutex::new(State::Waiting(file));
        let shared = Arc::new(Fork { nonce, claimed: AtomicI32::new(0), state });
        forks.waiting.insert(nonce, shared.clone());
        Ticket { inner: self.clone(), shared, bell, serves }
    }
}

impl Inner {
    /// Whether no hello will come from the child `pid`: it has ended (and is reaped here), or has used processor time and
    /// not said hello, or belongs to another fork. A child that the host does not let run is waited for.
    fn is_lost(&self, pid: i32) -> bool {
        self.space(pid).is_some()
            || process::reap_silent_child(pid)
            || hostsys::clock::process_cpu_ns(pid).is_some_and(|used| used > HELLO_TIME)
    }

    /// The children of forks that are under way, as their parents name them, and the number of forks without a report
    /// from the parent so far.
    pub(crate) fn forks_under_way(&self) -> (Vec<i32>, usize) {
        let forks = self.forks.lock();
        let claimed = forks.waiting.values().map(|f| f.claimed.load(Ordering::Relaxed));
        let (claimed, unreported): (Vec<_>, Vec<_>) = claimed.partition(|pid| *pid != 0);
        (claimed, unreported.len())
    }
}

impl Fork {
    /// The child will not come.
    fn refuse(&self) {
        *self.state.lock() = State::Done;
    }

    /// The process `claimed`, if it is the one that has said hello.
    fn take(&self, claimed: i32) -> Result<(i32, OwnedFd, OwnedFd)> {
        match std::mem::replace(&mut *self.state.lock(), State::Done) {
            State::Arrived { pid, pidfd, file } if pid == claimed => Ok((pid, pidfd, file)),
            State::Arrived { pid, pidfd, .. } => {
                log::warn!("stub process {pid} came for process {claimed}; killed");
                kill_and_reap(&pidfd);
                Err(Errno::EAGAIN)
            }
            State::Waiting(_) | State::Done => Err(Errno::EAGAIN),
        }
    }
}

impl Ticket {
    pub(crate) fn nonce(&self) -> u64 {
        self.shared.nonce
    }

    fn has_arrived(&self) -> bool {
        !matches!(*self.shared.state.lock(), State::Waiting(_))
    }

    /// Serves the listener until the child has said hello, or there is no use in waiting, or it is late after the parent has
    /// reported (`soon`).
    pub(crate) fn expect(&self, in_vain: impl Fn() -> bool, soon: impl Fn() -> bool) {
        let glances = Cell::new(GLANCES);
        self.inner.serve_until(self.serves, self.bell.as_ref(), |late| {
            while self.serves && !self.has_arrived() && soon() && glances.get() > 0 {
                glances.set(glances.get() - 1);
                if !self.inner.serve_one(self.bell.as_ref()) {
                    std::thread::yield_now();
                }
            }
            self.has_arrived() || in_vain() || late && soon()
        });
    }

    /// The child, once it has said hello, however long the host takes. EAGAIN if it never will: see [`Inner::is_lost`], or
    /// it was refused, or the forking process is dead (`parent_dead`). `claimed` is the child's process id as the parent
    /// has it; another process that came in its place is killed.
    pub(crate) fn wait(
        &self,
        claimed: i32,
        parent_dead: impl Fn() -> bool,
    ) -> Result<(i32, OwnedFd, OwnedFd)> {
        self.shared.claimed.store(claimed, Ordering::Relaxed);
        let lost = |late: bool| late && (parent_dead() || self.inner.is_lost(claimed));
        self.inner.serve_until(self.serves, self.bell.as_ref(), |late| self.has_arrived() || lost(late));
        self.shared.take(claimed)
    }

    /// Gives up; a child that has come all the same is killed.
    pub(crate) fn cancel(self) {
        if let State::Arrived { pidfd, .. } = std::mem::replace(&mut *self.shared.state.lock(), State::Done) {
            kill_and_reap(&pidfd);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut forks = self.inner.forks.lock();
        forks.waiting.remove(&self.shared.nonce);
        forks.over.push_front(self.shared.nonce);
        forks.over.truncate(REMEMBERED);
    }
}

fn kill_and_reap(pidfd: &OwnedFd) {
    let _ = process::pidfd_kill(pidfd.as_fd(), abi::libc::SIGKILL);
    let _ = process::wait_child(pidfd.as_fd(), true);
}

/// How the listener is served.
#[derive(Default)]
pub(crate) struct Serving {
    /// Held from the look whether there is a request until it is answered, so that receiving never blocks.
    receiving: Mutex<()>,
    /// The bells of threads in [`Inner::serve_until`]: what one thread serves may be what another one waits for.
    bells: Mutex<Vec<Bell>>,
}

/// Ends a thread's wait for a request.
pub(crate) type Bell = Arc<OwnedFd>;

/// A new bell; `None` when the host has no descriptor left.
pub(crate) fn new_bell() -> Option<Bell> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok().map(Arc::new)
}

fn timespec(d: Duration) -> Timespec {
    Timespec { tv_sec: d.as_secs() as i64, tv_nsec: d.subsec_nanos().into() }
}

impl Inner {
    /// Serves the listener until `done`, which is told whether some milliseconds have gone by. `bell` is this thread's. Without
    /// `serves` it waits for other threads to do that.
    fn serve_until(&self, serves: bool, bell: Option<&Bell>, done: impl Fn(bool) -> bool) {
        if done(false) {
            return;
        }
        self.serving.bells.lock().extend(bell.cloned());
        let mut late = false;
        while !done(late) {
            let bell_or_listener = bell.map_or(&self.listener, |bell| bell);
            let first = if serves { &self.listener } else { bell_or_listener };
            let mut fds = [first, bell_or_listener].map(|fd| PollFd::new(fd, PollFlags::IN));
            let none = poll(&mut fds, Some(&timespec(LOOK))) == Ok(0);
            // No process uses the filter any more.
            late = none || fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
            let [requests, rung] = fds.map(|fd| fd.revents().intersects(PollFlags::IN));
            if rung && let Some(bell) = bell {
                let _ = rustix::io::read(bell, &mut [0; 8]);
            }
            if requests && serves {
                self.serve_one(bell);
            }
        }
        let mut bells = self.serving.bells.lock();
        bells.retain(|b| bell.is_none_or(|bell| !Arc::ptr_eq(b, bell)));
    }

    /// Has other threads look whether what they wait for has been served.
    fn ring_others(&self, own: Option<&Bell>) {
        let bells = self.serving.bells.lock();
        for other in bells.iter().filter(|bell| own.is_none_or(|own| !Arc::ptr_eq(own, bell))) {
            let _ = rustix::io::write(other, &1u64.to_ne_bytes());
        }
    }

    /// Serves a request; false when there is none, perhaps because another thread has done that meanwhile.
    fn serve_one(&self, own: Option<&Bell>) -> bool {
        let _receiving = self.serving.receiving.lock();
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let ready = poll(&mut fds, Some(&timespec(Duration::ZERO))) == Ok(1);
        let [requests] = fds;
        // Errors: the caller died or was interrupted between poll and receive.
        let one = ready && requests.revents().intersects(PollFlags::IN);
        if one && let Ok(request) = seccomp::receive(self.listener.as_fd()) {
            handle(self, &request);
            self.ring_others(own);
        }
        one
    }
}

/// Serves requests until the platform stops.
pub(crate) fn serve(inner: &Inner) {
    loop {
        let mut fds = [PollFd::new(&inner.listener, PollFlags::IN), PollFd::new(&inner.stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        let [requests, stop] = fds;
        if !stop.revents().is_empty() {
            return;
        }
        if requests.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            // No process uses the filter any more.
            return;
        }
        inner.serve_one(None);
    }
}

fn handle(inner: &Inner, r: &seccomp::Request) {
    let listener = inner.listener.as_fd();
    let outcome = match (r.nr, r.args) {
        (nr, [flags, ..]) if i64::from(nr) == libc::SYS_clone => clone(inner, r, flags),
        (nr, [NOTIFY_FD, k, ..]) if nr as u64 == NR_NOTIFY => descriptor(inner, r, k),
        (nr, [NOTIFY_HELLO, nonce, ..]) if nr as u64 == NR_NOTIFY => hello(inner, r, nonce),
        _ => Err(Errno::EPERM),
    };
    if let Err(e) = outcome {
        // ENOENT: the caller is gone.
        let _ = seccomp::answer(listener, r.id, Err(e));
    }
}

/// One clone per grant. The flags are a register, so what was checked is what the host executes.
fn clone(inner: &Inner, r: &seccomp::Request, flags: u64) -> Result<()> {
    let thread = inner.thread(r.tid).ok_or(Errno::EPERM)?;
    if !thread.space.has_thread(r.tid) {
        return Err(Errno::EPERM);
    }
    let mut grants = thread.grants.lock();
    if grants.clone != Some(flags) {
        log::warn!("stub process {}: clone({flags:#x}) that nobody asked for", thread.space.process.pid);
        return Err(Errno::EPERM);
    }
    grants.clone = None;
    if flags == CLONE_FORK_FLAGS {
        thread.space.forked.store(true, Ordering::SeqCst);
    }
    seccomp::allow(inner.listener.as_fd(), r.id)
}

fn descriptor(inner: &Inner, r: &seccomp::Request, k: u64) -> Result<()> {
    let thread = inner.thread(r.tid).ok_or(Errno::EPERM)?;
    if !thread.space.has_thread(r.tid) {
        return Err(Errno::EPERM);
    }
    let (fd, number) = {
        let grants = thread.grants.lock();
        let lent = if k == MAX_FDS { grants.lent.clone() } else { None };
        let listed = || usize::try_from(k).ok().and_then(|k| grants.fds.get(k).cloned());
        match lent {
            Some((fd, number)) => (fd, Some(number)),
            None => (listed().ok_or(Errno::EBADF)?, None),
        }
    };
    seccomp::answer_fd(inner.listener.as_fd(), r.id, fd.as_fd(), number)
}

/// A forked process: must be a child of ours that we do not know yet, and awaited.
fn hello(inner: &Inner, r: &seccomp::Request, nonce: u64) -> Result<()> {
    let fork = inner.forks.lock().waiting.get(&nonce).cloned();
    let pidfd = match process::pidfd_open(r.tid) {
        Ok(pidfd) => pidfd,
        Err(error) => {
            // No descriptor is left. The child ends, and its parent need not wait for it.
            if let Some(fork) = fork
                && inner.space(r.tid).is_none()
                && process::is_silent_child(r.tid)
            {
                fork.refuse();
            }
            return Err(error);
        }
    };
    if !seccomp::is_valid(inner.listener.as_fd(), r.id) {
        return Err(Errno::ESRCH);
    }
    if inner.space(r.tid).is_some() {
        // A known process has no business here.
        return Err(Errno::EPERM);
    }
    if let (Some(fork), Ok(process::Wait::Running)) = (fork, process::wait_child(pidfd.as_fd(), false)) {
        let mut state = fork.state.lock();
        // One that has arrived stays.
        if matches!(*state, State::Waiting(_))
            && let State::Waiting(file) = std::mem::replace(&mut *state, State::Done)
        {
            let sent = seccomp::answer_fd(inner.listener.as_fd(), r.id, file.as_fd(), None);
            if sent.is_ok() {
                *state = State::Arrived { pid: r.tid, pidfd, file };
            }
            return sent;
        }
    }
    // A child is late when its parent was killed in the middle of the fork; no thread ever waited for any other child.
    let late = inner.forks.lock().over.contains(&nonce);
    let level = if late { log::Level::Debug } else { log::Level::Warn };
    log::log!(level, "unexpected stub process {}; killed", r.tid);
    kill_and_reap(&pidfd);
    Err(Errno::EPERM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A fork that `child` has said hello for.
    fn arrived(child: &std::process::Child) -> Fork {
        let pid = child.id() as i32;
        let (pidfd, file) = (process::pidfd_open(pid).unwrap(), crate::slot::create_file().unwrap());
        let state = Mutex::new(State::Arrived { pid, pidfd, file });
        Fork { nonce: 1, claimed: AtomicI32::new(0), state }
    }

    #[test]
    fn only_the_forked_process_is_taken() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(arrived(&child).take(pid).map(|(pid, ..)| pid), Ok(pid));
        assert!(child.try_wait().unwrap().is_none());
        assert_eq!(arrived(&child).take(pid + 1).map(drop), Err(Errno::EAGAIN));
        // It was killed and reaped.
        assert!(child.try_wait().is_err());
    }
}
