//! A thread that is told of changes of a network namespace of the host.

use hostsys::fs::{Bell, Readiness};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Tokens of what the thread waits for.
const END: u64 = 0;
const CHANGED: u64 = 1;
/// Shortest time between two calls, so that a namespace that changes all the time does not keep a processor busy.
const PAUSE: Duration = Duration::from_millis(5);

/// Ends the thread when dropped.
pub(crate) struct Watch(Bell);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Watch {
    /// Calls `changed` whenever `events` can be read.
    pub(crate) fn start(events: OwnedFd, changed: impl Fn() + Send + 'static) -> abi::Result<Watch> {
        let readiness = Readiness::new()?;
        let bell = readiness.bell(END)?;
        readiness.add(&events, CHANGED)?;
        std::thread::Builder::new().name("links".into()).stack_size(256 << 10).spawn(move || {
            while readiness.wait().iter().all(|(token, _)| *token != END) {
                if host_interfaces::drain(&events) {
                    changed();
                    std::thread::sleep(PAUSE);
                }
            }
        })?;
        Ok(Watch(bell))
    }
}
