//! Signal numbers, sets and `siginfo_t`. See signal(7), sigaction(2).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A signal number, 1..=64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Signal(u8);

impl TryFrom<i32> for Signal {
    type Error = &'static str;
    fn try_from(n: i32) -> Result<Signal, &'static str> {
        Signal::new(n).ok_or("no signal has this number")
    }
}

impl From<Signal> for i32 {
    fn from(signal: Signal) -> i32 {
        signal.raw()
    }
}

impl Signal {
    /// Validates a signal number; 0 and numbers above 64 are `None`.
    pub const fn new(n: i32) -> Option<Signal> {
        if n >= 1 && n <= 64 { Some(Signal(n as u8)) } else { None }
    }
    /// The number, 1..=64.
    pub const fn raw(self) -> i32 {
        self.0 as i32
    }
    /// True for SIGRTMIN (32 in the kernel's view) and above.
    pub const fn is_realtime(self) -> bool {
        self.0 >= 32
    }
}

macro_rules! signals { ($($n:ident = $v:expr),* $(,)?) => {
    impl Signal { $(#[doc = concat!(stringify!($n), ", signal(7).")] pub const $n: Signal = Signal($v);)* }
    /// Symbolic name of a standard signal, `"SIGRT"` for real-time ones.
    pub const fn name(s: Signal) -> &'static str { match s.0 { $($v => stringify!($n),)* _ => "SIGRT" } }
    /// The standard signal of that symbolic name, with or without its `SIG`.
    pub fn by_name(name: &str) -> Option<Signal> {
        let is = |full: &str| full == name || full.strip_prefix("SIG") == Some(name);
        $(if is(stringify!($n)) { return Some(Signal::$n); })*
        None
    }
} }
signals! { SIGHUP = 1, SIGINT = 2, SIGQUIT = 3, SIGILL = 4, SIGTRAP = 5, SIGABRT = 6, SIGBUS = 7, SIGFPE = 8,
SIGKILL = 9, SIGUSR1 = 10, SIGSEGV = 11, SIGUSR2 = 12, SIGPIPE = 13, SIGALRM = 14, SIGTERM = 15, SIGSTKFLT = 16,
SIGCHLD = 17, SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGTTIN = 21, SIGTTOU = 22, SIGURG = 23, SIGXCPU = 24,
SIGXFSZ = 25, SIGVTALRM = 26, SIGPROF = 27, SIGWINCH = 28, SIGIO = 29, SIGPWR = 30, SIGSYS = 31 }

/// A set of signals: bit n-1 stands for signal n (the kernel's 64-bit sigset).
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(transparent)]
pub struct SigSet(pub u64);

impl SigSet {
    /// The empty set.
    pub const EMPTY: SigSet = SigSet(0);
    /// Every signal.
    pub const ALL: SigSet = SigSet(!0);
    /// SIGKILL and SIGSTOP, which can be neither blocked nor handled.
    pub const UNBLOCKABLE: SigSet = SigSet(1 << 8 | 1 << 18);
    /// The set holding just `s`.
    pub const fn of(s: Signal) -> SigSet {
        SigSet(1 << (s.0 - 1))
    }
    /// Membership.
    pub const fn has(self, s: Signal) -> bool {
        self.0 & SigSet::of(s).0 != 0
    }
    /// Adds a signal.
    pub fn add(&mut self, s: Signal) {
        self.0 |= SigSet::of(s).0;
    }
    /// Removes a signal.
    pub fn del(&mut self, s: Signal) {
        self.0 &= !SigSet::of(s).0;
    }
    /// Union.
    pub const fn union(self, o: SigSet) -> SigSet {
        SigSet(self.0 | o.0)
    }
    /// Elements of `self` that are not in `o`.
    pub const fn minus(self, o: SigSet) -> SigSet {
        SigSet(self.0 & !o.0)
    }
    /// Elements in both.
    pub const fn intersect(self, o: SigSet) -> SigSet {
        SigSet(self.0 & o.0)
    }
    /// True when no signal is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Lowest-numbered signal.
    pub const fn first(self) -> Option<Signal> {
        if self.0 == 0 { None } else { Some(Signal(self.0.trailing_zeros() as u8 + 1)) }
    }
}

/// `siginfo_t` as the kernel lays it out: 128 bytes.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    serde::Serialize,
    serde::Deserialize,
)]
#[repr(C)]
pub struct SigInfo {
    /// si_signo.
    pub signo: i32,
    /// si_errno.
    pub errno: i32,
    /// si_code (SI_USER, SI_TKILL, SEGV_MAPERR, CLD_EXITED, ...).
    pub code: i32,
    /// Padding that aligns the union.
    pub pad: i32,
    /// The union, 112 bytes, as 14 words; accessors below give it meaning.
    pub fields: [u64; 14],
}

impl SigInfo {
    /// A siginfo with only number and code.
    pub const fn new(sig: Signal, code: i32) -> SigInfo {
        SigInfo { signo: sig.raw(), errno: 0, code, pad: 0, fields: [0; 14] }
    }
    /// From kill(2) and friends: si_pid and si_uid.
    pub const fn user(sig: Signal, code: i32, pid: i32, uid: u32) -> SigInfo {
        let mut s = SigInfo::new(sig, code);
        s.fields[0] = pid as u32 as u64 | (uid as u64) << 32;
        s
    }
    /// The same with another si_pid and si_uid.
    pub const fn with_sender(mut self, pid: i32, uid: u32) -> SigInfo {
        self.fields[0] = pid as u32 as u64 | (uid as u64) << 32;
        self
    }
    /// From rt_sigqueueinfo(2): si_pid, si_uid, si_value.
    pub const fn queue(sig: Signal, code: i32, pid: i32, uid: u32, value: u64) -> SigInfo {
        let mut s = SigInfo::user(sig, code, pid, uid);
        s.fields[1] = value;
        s
    }
    /// A fault: si_addr.
    pub const fn fault(sig: Signal, code: i32, addr: u64) -> SigInfo {
        let mut s = SigInfo::new(sig, code);
        s.fields[0] = addr;
        s
    }
    /// SIGCHLD: si_pid, si_uid, si_status, si_utime, si_stime (clock ticks).
    pub const fn child(code: i32, pid: i32, uid: u32, status: i32, utime: u64, stime: u64) -> SigInfo {
        let mut s = SigInfo::user(Signal::SIGCHLD, code, pid, uid);
        s.fields[1] = status as u32 as u64;
        s.fields[2] = utime;
        s.fields[3] = stime;
        s
    }
    /// POSIX timer expiry: si_timerid, si_overrun, si_value; si_code SI_TIMER (-2).
    pub const fn timer(sig: Signal, id: i32, overrun: i32, value: u64) -> SigInfo {
        let mut s = SigInfo::new(sig, -2);
        s.fields[0] = id as u32 as u64 | (overrun as u32 as u64) << 32;
        s.fields[1] = value;
        s
    }
    /// SIGIO/SIGPOLL: si_band, si_fd.
    pub const fn poll(sig: Signal, code: i32, band: i64, fd: i32) -> SigInfo {
        let mut s = SigInfo::new(sig, code);
        s.fields[0] = band as u64;
        s.fields[1] = fd as u32 as u64;
        s
    }
    /// si_pid of the user, queue and child forms.
    pub const fn pid(&self) -> i32 {
        self.fields[0] as u32 as i32
    }
    /// si_uid of the user, queue and child forms.
    pub const fn uid(&self) -> u32 {
        (self.fields[0] >> 32) as u32
    }
    /// si_addr of the fault form.
    pub const fn addr(&self) -> u64 {
        self.fields[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        for number in 1..32 {
            let signal = Signal::new(number).unwrap();
            let full = name(signal);
            assert_eq!(by_name(full), Some(signal));
            assert_eq!(by_name(&full[3..]), Some(signal));
        }
        for other in ["", "SIG", "SIGSIGHUP", "hup", "SIGRT"] {
            assert_eq!(by_name(other), None, "{other:?}");
        }
    }
}
