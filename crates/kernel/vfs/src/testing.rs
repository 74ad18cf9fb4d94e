//! A caller without a kernel, for the tests of the crates above.

use crate::caller::Caller;
use crate::cred::{Cap, Credentials, Creds};
use crate::quota::Quotas;
use crate::state::Vfs;
use abi::Signal;
use parking_lot::Mutex;
use std::sync::Arc;
use wait::Waiter;

/// A task with fixed answers, which a test may change before it calls.
pub struct TestCaller {
    /// Credentials.
    pub creds: Arc<Credentials>,
    /// Process, thread and session id.
    pub pid: i32,
    /// Process group.
    pub pgid: i32,
    /// Soft limit of every resource.
    pub rlimit: u64,
    /// Whether every signal is ignored.
    pub ignores: bool,
    /// Its sleeping side.
    pub waiter: Arc<Waiter>,
    /// The file layer it works on.
    pub vfs: Arc<Vfs>,
    /// The signals raised so far.
    pub raised: Mutex<Vec<Signal>>,
}

impl TestCaller {
    /// Root with these capabilities, in a file layer of its own.
    pub fn with_caps(caps: u64) -> TestCaller {
        TestCaller {
            creds: Arc::new(Credentials::root(caps)),
            pid: 1,
            pgid: 1,
            rlimit: u64::MAX,
            ignores: false,
            waiter: Waiter::new(),
            vfs: Vfs::new(Quotas::unlimited()),
            raised: Mutex::default(),
        }
    }

    /// Root with every capability.
    pub fn root() -> TestCaller {
        TestCaller::with_caps(Cap::ALL)
    }

    /// An ordinary user, whose group has the same number.
    pub fn user(id: u32) -> TestCaller {
        let mut c = Credentials::root(0);
        (c.uid, c.euid, c.suid, c.fsuid) = (id, id, id, id);
        (c.gid, c.egid, c.sgid, c.fsgid) = (id, id, id, id);
        c.groups.clear();
        TestCaller { creds: Arc::new(c), ..TestCaller::with_caps(0) }
    }

    /// Every sleep of this caller is interrupted at once.
    pub fn interrupted(self) -> TestCaller {
        self.waiter.set_interrupted(true);
        self
    }

    /// The signals raised so far.
    pub fn raised(&self) -> Vec<Signal> {
        self.raised.lock().clone()
    }
}

impl Caller for TestCaller {
    fn creds(&self) -> Creds {
        Creds::from_inner(self.creds.clone())
    }
    fn waiter(&self) -> Arc<Waiter> {
        self.waiter.clone()
    }
    fn pid(&self) -> i32 {
        self.pid
    }
    fn tid(&self) -> i32 {
        self.pid
    }
    fn pgid(&self) -> i32 {
        self.pgid
    }
    fn sid(&self) -> i32 {
        self.pid
    }
    fn rlimit(&self, _resource: i32) -> u64 {
        self.rlimit
    }
    fn raise(&self, sig: Signal) {
        self.raised.lock().push(sig);
    }
    fn umask(&self) -> u32 {
        0o22
    }
    fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }
    fn blocks_or_ignores(&self, _sig: Signal) -> bool {
        self.ignores
    }
}
