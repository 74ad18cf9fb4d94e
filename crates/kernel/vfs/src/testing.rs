//! A caller without a kernel, for the tests of the crates above.

use crate::file::{FileLayer, Vfs};
use abi::Signal;
use caller::{
    Blocking, DeviceRules, HasCredentials, Identity, Limits, Membership, Quotas, Resources, SignalSource,
};
use lock_order::Mutex;
use pid::{Attached, Pid, PidNamespace};
use rights::cred::{Cap, Credentials, Creds};
use std::sync::Arc;
use user_ns::UserNamespace;
use wait::Waiter;

/// A task with fixed answers, which a test may change before it calls.
pub struct TestCaller {
    /// Credentials.
    pub creds: Arc<Credentials>,
    /// Process, thread and session ID.
    pub pid: Attached,
    /// Process group.
    pub pgid: Attached,
    /// Its PID namespace.
    pub pid_ns: Arc<PidNamespace>,
    /// Soft limit of every resource.
    pub rlimit: u64,
    /// Whether every signal is ignored.
    pub ignores: bool,
    /// Its sleeping side.
    pub waiter: Arc<Waiter>,
    /// The file layer it works on.
    pub vfs: Arc<Vfs>,
    /// Its pending signals.
    pub signals: Option<Arc<dyn SignalSource>>,
    /// The signals raised so far.
    pub raised: Mutex<Vec<Signal>>,
}

impl TestCaller {
    /// Root with these capabilities, in a file layer of its own.
    pub fn with_caps(caps: u64) -> TestCaller {
        let user_ns = UserNamespace::initial();
        let pid_ns = PidNamespace::root(1, user_ns.clone());
        let one = pid_ns.alloc().expect("nobody has a number yet");
        TestCaller {
            creds: Arc::new(Credentials::root(&user_ns, caps)),
            pid: one.clone(),
            pgid: one,
            pid_ns,
            rlimit: u64::MAX,
            ignores: false,
            waiter: Waiter::new(),
            vfs: Vfs::new(Quotas::unlimited(), user_ns),
            signals: None,
            raised: Mutex::default(),
        }
    }

    /// Root with every capability.
    pub fn root() -> TestCaller {
        TestCaller::with_caps(Cap::ALL)
    }

    /// An ordinary user with a group of the same number.
    pub fn user(id: u32) -> TestCaller {
        let root = TestCaller::with_caps(0);
        let mut c = Credentials::root(&root.vfs.resources.user_ns, 0);
        (c.uid, c.euid, c.suid, c.fsuid) = (id, id, id, id);
        (c.gid, c.egid, c.sgid, c.fsgid) = (id, id, id, id);
        c.groups = Arc::default();
        TestCaller { creds: Arc::new(c), ..root }
    }

    /// With this process ID, in a namespace of its own.
    pub fn with_pid(mut self, pid: i32) -> TestCaller {
        self.pid_ns = PidNamespace::root(1, self.vfs.resources.user_ns.clone());
        self.pid_ns.set_last(pid - 1);
        self.pid = self.pid_ns.alloc().expect("nobody has a number yet");
        self.pgid = self.pid.clone();
        self
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

impl HasCredentials for TestCaller {
    fn creds(&self) -> Creds {
        Creds::from_inner(self.creds.clone())
    }
    fn umask(&self) -> u32 {
        0o22
    }
}

impl Blocking for TestCaller {
    fn waiter(&self) -> Arc<Waiter> {
        self.waiter.clone()
    }
    fn raise(&self, sig: Signal) {
        self.raised.lock().push(sig);
    }
    fn signals(&self) -> Option<&dyn SignalSource> {
        self.signals.as_deref()
    }
    fn blocks_or_ignores(&self, _sig: Signal) -> bool {
        self.ignores
    }
}

impl Identity for TestCaller {
    fn pid(&self) -> i32 {
        self.pid.nr()
    }
    fn tid(&self) -> i32 {
        self.pid.nr()
    }
    fn pgid(&self) -> i32 {
        self.pgid.nr()
    }
    fn sid(&self) -> i32 {
        self.pid.nr()
    }
    fn pid_ns(&self) -> Option<Arc<PidNamespace>> {
        Some(self.pid_ns.clone())
    }
    fn find_pid(&self, nr: i32) -> Option<Arc<Pid>> {
        self.pid_ns.find(nr)
    }
}

impl Limits for TestCaller {
    fn rlimit(&self, _resource: i32) -> u64 {
        self.rlimit
    }
    fn resources(&self) -> &Arc<Resources> {
        &self.vfs.resources
    }
}

impl DeviceRules for TestCaller {}

impl Membership for TestCaller {}

impl FileLayer for TestCaller {
    fn vfs(&self) -> &Arc<Vfs> {
        &self.vfs
    }
}
