//! A caller without a kernel, for the tests of this crate.

use abi::Signal;
use parking_lot::Mutex;
use std::sync::Arc;
use vfs::{Caller, Credentials, Creds};
use wait::Waiter;

pub struct Plain {
    waiter: Arc<Waiter>,
    raised: Mutex<Vec<Signal>>,
}

impl Plain {
    pub fn new() -> Plain {
        Plain { waiter: Waiter::new(), raised: Mutex::default() }
    }
    pub fn raised(&self) -> Vec<Signal> {
        self.raised.lock().clone()
    }
}

impl Caller for Plain {
    fn creds(&self) -> Creds {
        Credentials::root(0).in_use()
    }
    fn waiter(&self) -> Arc<Waiter> {
        self.waiter.clone()
    }
    fn pid(&self) -> i32 {
        1
    }
    fn tid(&self) -> i32 {
        1
    }
    fn pgid(&self) -> i32 {
        1
    }
    fn sid(&self) -> i32 {
        1
    }
    fn rlimit(&self, _resource: i32) -> u64 {
        u64::MAX
    }
    fn raise(&self, sig: Signal) {
        self.raised.lock().push(sig);
    }
    fn umask(&self) -> u32 {
        0o22
    }
    fn blocks_or_ignores(&self, _sig: Signal) -> bool {
        false
    }
}
