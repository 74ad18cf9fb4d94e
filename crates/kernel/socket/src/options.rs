//! SOL_SOCKET options that do not depend on the family. Values and errors as measured
//! on Linux: most are kept and handed back, few have an effect on local sockets.
//! Lock rank: leaf. A checkpoint keeps all of it.

use crate::filter::Program;
use crate::ops::SocketOps;
use abi::time::Timeval;
use abi::{Errno, Result};
use lock_order::Mutex;
use netstack::capture::Filter;
use rights::Cap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use vfs::Caller;
use zerocopy::{FromBytes, IntoBytes};

mod state;
pub use state::OptionsState;

/// /proc/sys/net/core/{r,w}mem_default.
const BUF_DEFAULT: usize = 212_992;
/// /proc/sys/net/core/{r,w}mem_max.
const BUF_MAX: usize = 4 << 20;
const MIN_SNDBUF: usize = 4608;
const MIN_RCVBUF: usize = 2304;

const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;
const SO_PASSPIDFD: i32 = 76;
const SO_NETNS_COOKIE: i32 = 71;
const SO_PASSRIGHTS: i32 = 83;
const SO_BPF_EXTENSIONS: i32 = 48;
const SO_CNX_ADVICE: i32 = 53;
const SO_TXTIME: i32 = 61;
const SO_DETACH_REUSEPORT_BPF: i32 = 68;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
const SO_RESERVE_MEM: i32 = 73;

/// What Linux calls SKF_AD_MAX: how many of its own loads a socket filter knows. None is known here, but programs ask whether
/// there are any.
const EXTENSIONS: i32 = 64;

/// On/off options that are only remembered.
const FLAGS: &[i32] = &[
    libc::SO_REUSEADDR,
    libc::SO_DONTROUTE,
    libc::SO_BROADCAST,
    libc::SO_KEEPALIVE,
    libc::SO_OOBINLINE,
    libc::SO_NO_CHECK,
    libc::SO_TIMESTAMP,
    libc::SO_TIMESTAMPNS,
    libc::SO_RXQ_OVFL,
    libc::SO_SELECT_ERR_QUEUE,
    libc::SO_PASSSEC,
    libc::SO_DEBUG,
    libc::SO_WIFI_STATUS,
    libc::SO_NOFCS,
    libc::SO_LOCK_FILTER,
    SO_PREFER_BUSY_POLL,
];

/// Where the flags of SO_TXTIME are kept: no option has this number.
const TXTIME_FLAGS: i32 = -SO_TXTIME;
/// NAPI_POLL_WEIGHT.
const BUDGET: i32 = 64;

/// Options with an int value that is only remembered.
const INTS: &[i32] = &[libc::SO_PRIORITY, libc::SO_MARK, libc::SO_BUSY_POLL];

/// The family-independent state of a socket.
pub struct Options {
    sndbuf: AtomicUsize,
    rcvbuf: AtomicUsize,
    /// Nanoseconds, 0 for none.
    rcvtimeo: AtomicU64,
    sndtimeo: AtomicU64,
    rcvlowat: AtomicUsize,
    passcred: AtomicBool,
    passpidfd: AtomicBool,
    passrights: AtomicBool,
    peek_off: AtomicI32,
    linger: Mutex<(i32, i32)>,
    kept: Mutex<BTreeMap<i32, i32>>,
    /// Bytes a second, all ones for no bound.
    max_pacing: AtomicU64,
    /// The filter of a family without packets.
    filter: Mutex<Option<Arc<Program>>>,
    filtered: AtomicBool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sndbuf: AtomicUsize::new(BUF_DEFAULT),
            rcvbuf: AtomicUsize::new(BUF_DEFAULT),
            rcvtimeo: AtomicU64::new(0),
            sndtimeo: AtomicU64::new(0),
            rcvlowat: AtomicUsize::new(1),
            passcred: AtomicBool::new(false),
            passpidfd: AtomicBool::new(false),
            passrights: AtomicBool::new(true),
            peek_off: AtomicI32::new(-1),
            linger: Mutex::default(),
            kept: Mutex::default(),
            max_pacing: AtomicU64::new(u64::MAX),
            filter: Mutex::default(),
            filtered: AtomicBool::new(false),
        }
    }
}

fn int(value: &[u8]) -> Result<i32> {
    i32::read_from_prefix(value).map(|(v, _)| v).map_err(|_| Errno::EINVAL)
}

fn timeout(a: &AtomicU64) -> Option<Duration> {
    match a.load(Ordering::Relaxed) {
        0 => None,
        ns => Some(Duration::from_nanos(ns)),
    }
}

impl Options {
    /// Send buffer in bytes.
    pub fn sndbuf(&self) -> usize {
        self.sndbuf.load(Ordering::Relaxed)
    }
    /// SO_RCVTIMEO.
    pub fn rcvtimeo(&self) -> Option<Duration> {
        timeout(&self.rcvtimeo)
    }
    /// SO_SNDTIMEO.
    pub fn sndtimeo(&self) -> Option<Duration> {
        timeout(&self.sndtimeo)
    }
    /// SO_RCVLOWAT.
    pub fn rcvlowat(&self) -> usize {
        self.rcvlowat.load(Ordering::Relaxed)
    }
    /// SO_PASSCRED.
    pub fn passcred(&self) -> bool {
        self.passcred.load(Ordering::Relaxed)
    }
    /// SO_PASSPIDFD.
    pub fn passpidfd(&self) -> bool {
        self.passpidfd.load(Ordering::Relaxed)
    }
    /// SO_PASSRIGHTS: whether the socket accepts descriptors.
    pub fn passrights(&self) -> bool {
        self.passrights.load(Ordering::Relaxed)
    }
    /// Messages from and to the socket say which process sent them (unix_may_passcred).
    pub fn tells_sender(&self) -> bool {
        self.passcred() || self.passpidfd()
    }
    /// SO_PEEK_OFF: where the next peek begins; negative for the start of the queue, whatever was peeked before.
    pub fn peek_off(&self) -> i32 {
        self.peek_off.load(Ordering::Relaxed)
    }
    /// Moves the place where the next peek begins: on by what was peeked, back by what was read.
    pub fn move_peek_off(&self, len: usize, peeked: bool) {
        let offset = self.peek_off();
        if offset >= 0 {
            let len = i32::try_from(len).unwrap_or(i32::MAX);
            let moved = if peeked { offset.saturating_add(len) } else { (offset - len).max(0) };
            self.peek_off.store(moved, Ordering::Relaxed);
        }
    }
    /// Receive buffer in bytes.
    pub fn rcvbuf(&self) -> usize {
        self.rcvbuf.load(Ordering::Relaxed)
    }
    /// SO_LINGER, when it is on.
    pub fn linger(&self) -> Option<Duration> {
        let (on, secs) = *self.linger.lock();
        (on != 0).then(|| Duration::from_secs(u64::try_from(secs).unwrap_or(0)))
    }
    /// The value of an option that is only remembered.
    pub fn kept(&self, name: i32) -> i32 {
        self.kept.lock().get(&name).copied().unwrap_or(0)
    }
    /// SO_TXTIME was set.
    pub fn has_txtime(&self) -> bool {
        self.kept.lock().contains_key(&SO_TXTIME)
    }
    /// Remembers the value of an option.
    pub fn keep(&self, name: i32, value: i32) {
        self.kept.lock().insert(name, value);
    }
    /// SO_MAX_PACING_RATE.
    pub fn max_pacing(&self) -> u64 {
        self.max_pacing.load(Ordering::Relaxed)
    }
    /// How much of a message the filter lets through; `None` when it drops the message.
    pub fn admits(&self, message: &[u8]) -> Option<usize> {
        if !self.filtered.load(Ordering::Relaxed) {
            return Some(message.len());
        }
        let filter = self.filter.lock().clone();
        let kept = filter.map_or(message.len(), |filter| filter.accept(message));
        (kept > 0).then(|| kept.min(message.len()))
    }
    /// The instructions of the filter; none without one.
    fn filter(&self) -> Vec<u8> {
        self.filter.lock().as_ref().map_or(Vec::new(), |filter| filter.bytes().to_vec())
    }
    fn set_filter(&self, filter: Option<Arc<Program>>) -> bool {
        let mut place = self.filter.lock();
        self.filtered.store(filter.is_some(), Ordering::Relaxed);
        std::mem::replace(&mut *place, filter).is_some()
    }
    /// All of another socket's: what accept(2) hands on where the family copies the listening socket.
    pub fn copy(&self, from: &Options) {
        let numbers =
            [(&self.sndbuf, &from.sndbuf), (&self.rcvbuf, &from.rcvbuf), (&self.rcvlowat, &from.rcvlowat)];
        for (to, from) in numbers {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (to, from) in [(&self.rcvtimeo, &from.rcvtimeo), (&self.sndtimeo, &from.sndtimeo)] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.peek_off.store(from.peek_off(), Ordering::Relaxed);
        self.max_pacing.store(from.max_pacing(), Ordering::Relaxed);
        let linger = *from.linger.lock();
        *self.linger.lock() = linger;
        let kept = from.kept.lock().clone();
        *self.kept.lock() = kept;
    }
    /// What accept(2) hands on from the listening socket.
    pub fn inherit(&self, from: &Options) {
        self.passcred.store(from.passcred(), Ordering::Relaxed);
        self.passpidfd.store(from.passpidfd(), Ordering::Relaxed);
        self.passrights.store(from.passrights(), Ordering::Relaxed);
        let security = from.kept(libc::SO_PASSSEC);
        if security != 0 {
            self.keep(libc::SO_PASSSEC, security);
        }
    }
}

/// getsockopt(2) at SOL_SOCKET: the whole value, to be cut by the caller.
pub fn get(sock: &dyn SocketOps, name: i32) -> Result<Vec<u8>> {
    let o = sock.options();
    if let Some(answer) = sock.get_common(name) {
        return answer;
    }
    let time = |d: Option<Duration>| Timeval::from(d.unwrap_or_default()).as_bytes().to_vec();
    let v: i32 = match name {
        libc::SO_TYPE => sock.kind(),
        libc::SO_DOMAIN => sock.domain(),
        libc::SO_PROTOCOL => sock.protocol(),
        libc::SO_ERROR => sock.take_error().map_or(0, Errno::raw),
        libc::SO_ACCEPTCONN => sock.listening() as i32,
        libc::SO_SNDBUF => o.sndbuf() as i32,
        libc::SO_RCVBUF => o.rcvbuf() as i32,
        libc::SO_RCVLOWAT => o.rcvlowat() as i32,
        libc::SO_SNDLOWAT => 1,
        libc::SO_PASSCRED => o.passcred() as i32,
        libc::SO_BSDCOMPAT | libc::SO_REUSEPORT | SO_RESERVE_MEM => 0,
        libc::SO_INCOMING_CPU => o.kept.lock().get(&name).copied().unwrap_or(-1),
        libc::SO_MAX_PACING_RATE => return Ok(o.max_pacing().to_ne_bytes().to_vec()),
        SO_BPF_EXTENSIONS => EXTENSIONS,
        SO_TXTIME => {
            let kept = [SO_TXTIME, TXTIME_FLAGS].map(|name| o.kept(name));
            return Ok(kept.as_bytes().to_vec());
        }
        SO_PASSPIDFD | SO_PASSRIGHTS if sock.domain() != libc::AF_UNIX => return Err(Errno::EOPNOTSUPP),
        SO_PASSPIDFD => o.passpidfd() as i32,
        SO_PASSRIGHTS => o.passrights() as i32,
        libc::SO_PEEK_OFF if sock.peeks_at_offset() => o.peek_off(),
        libc::SO_PEEK_OFF => return Err(Errno::EOPNOTSUPP),
        libc::SO_RCVTIMEO | SO_RCVTIMEO_NEW => return Ok(time(o.rcvtimeo())),
        libc::SO_SNDTIMEO | SO_SNDTIMEO_NEW => return Ok(time(o.sndtimeo())),
        libc::SO_LINGER => {
            let (on, secs) = *o.linger.lock();
            return Ok([on, secs].as_bytes().to_vec());
        }
        SO_NETNS_COOKIE => return Err(Errno::EINVAL),
        libc::SO_GET_FILTER => return Ok(o.filter()),
        _ if FLAGS.contains(&name) || INTS.contains(&name) => o.kept(name),
        _ => return Err(Errno::ENOPROTOOPT),
    };
    Ok(v.as_bytes().to_vec())
}

/// setsockopt(2) at SOL_SOCKET.
pub fn set(sock: &dyn SocketOps, cx: &dyn Caller, name: i32, value: &[u8]) -> Result<()> {
    let locked = sock.options().kept(libc::SO_LOCK_FILTER) != 0;
    let unlocks = name == libc::SO_LOCK_FILTER && int(value)? == 0;
    let programs = [libc::SO_ATTACH_FILTER, libc::SO_DETACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
    if locked && (unlocks || programs.contains(&name)) {
        return Err(Errno::EPERM);
    }
    if let Some(answer) = sock.set_common(cx, name, value) {
        return answer;
    }
    set_kept(sock, cx, name, value)?;
    sock.option_changed(name);
    Ok(())
}

fn set_kept(sock: &dyn SocketOps, cx: &dyn Caller, name: i32, value: &[u8]) -> Result<()> {
    let o = sock.options();
    let v = int(value)?;
    let admin = || cx.creds().capable(Cap::NET_ADMIN);
    let buf = |v: i32, min: usize, forced: bool| {
        let v = if forced { v.max(0) as usize } else { (v as u32 as usize).min(BUF_MAX) };
        v.saturating_mul(2).clamp(min, i32::MAX as usize)
    };
    match name {
        libc::SO_SNDBUF => o.sndbuf.store(buf(v, MIN_SNDBUF, false), Ordering::Relaxed),
        libc::SO_RCVBUF => o.rcvbuf.store(buf(v, MIN_RCVBUF, false), Ordering::Relaxed),
        libc::SO_SNDBUFFORCE if admin() => o.sndbuf.store(buf(v, MIN_SNDBUF, true), Ordering::Relaxed),
        libc::SO_RCVBUFFORCE if admin() => o.rcvbuf.store(buf(v, MIN_RCVBUF, true), Ordering::Relaxed),
        libc::SO_SNDBUFFORCE | libc::SO_RCVBUFFORCE => return Err(Errno::EPERM),
        libc::SO_RCVLOWAT => {
            let v = if v < 0 { i32::MAX } else { v.max(1) };
            o.rcvlowat.store(v as usize, Ordering::Relaxed);
        }
        libc::SO_PASSCRED => o.passcred.store(v != 0, Ordering::Relaxed),
        libc::SO_RCVTIMEO | SO_RCVTIMEO_NEW => set_timeout(&o.rcvtimeo, value)?,
        libc::SO_SNDTIMEO | SO_SNDTIMEO_NEW => set_timeout(&o.sndtimeo, value)?,
        libc::SO_LINGER => {
            let (l, _) = <[i32; 2]>::read_from_prefix(value).map_err(|_| Errno::EINVAL)?;
            let mut linger = o.linger.lock();
            *linger = if l[0] == 0 { (0, linger.1) } else { (1, l[1]) };
        }
        libc::SO_BSDCOMPAT => {}
        libc::SO_DEBUG if v != 0 && !admin() => return Err(Errno::EACCES),
        libc::SO_REUSEPORT if v == 0 => {}
        libc::SO_REUSEPORT => return Err(Errno::EOPNOTSUPP),
        libc::SO_PEEK_OFF if sock.peeks_at_offset() => o.peek_off.store(v, Ordering::Relaxed),
        libc::SO_PEEK_OFF => return Err(Errno::EOPNOTSUPP),
        libc::SO_PRIORITY if !(0..=6).contains(&v) && !admin() => return Err(Errno::EPERM),
        libc::SO_BUSY_POLL if v < 0 => return Err(Errno::EINVAL),
        SO_PREFER_BUSY_POLL if v != 0 && !admin() => return Err(Errno::EPERM),
        // The route is looked up anew whenever something has changed.
        SO_CNX_ADVICE => {}
        // Nothing polls a device here.
        SO_BUSY_POLL_BUDGET if v > BUDGET && !admin() => return Err(Errno::EPERM),
        SO_BUSY_POLL_BUDGET => return u16::try_from(v).map(drop).map_err(|_| Errno::EINVAL),
        SO_RESERVE_MEM => return Err(if v < 0 { Errno::EINVAL } else { Errno::EOPNOTSUPP }),
        SO_TXTIME => set_txtime(o, value, admin())?,
        libc::SO_MAX_PACING_RATE => o.max_pacing.store(rate(value, v), Ordering::Relaxed),
        libc::SO_INCOMING_CPU => o.keep(name, v),
        SO_PASSPIDFD if sock.domain() != libc::AF_UNIX => return Err(Errno::EOPNOTSUPP),
        SO_PASSRIGHTS if sock.domain() != libc::AF_UNIX => return Err(Errno::EOPNOTSUPP),
        SO_PASSPIDFD => o.passpidfd.store(v != 0, Ordering::Relaxed),
        SO_PASSRIGHTS => o.passrights.store(v != 0, Ordering::Relaxed),
        libc::SO_ATTACH_FILTER if has_messages(sock) => {
            o.set_filter(Some(Arc::new(Program::new(value)?)));
        }
        libc::SO_DETACH_FILTER if has_messages(sock) && o.set_filter(None) => {}
        libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS => {
            // One unit of time is told, or none.
            o.keep(libc::SO_TIMESTAMP, 0);
            o.keep(libc::SO_TIMESTAMPNS, 0);
            o.keep(name, (v != 0) as i32);
        }
        libc::SO_MARK | libc::SO_BUSY_POLL if v != 0 && !admin() => return Err(Errno::EPERM),
        libc::SO_DETACH_FILTER => return Err(Errno::ENOENT),
        // Only sockets of ports form groups.
        libc::SO_ATTACH_REUSEPORT_CBPF | SO_DETACH_REUSEPORT_BPF => return Err(Errno::EINVAL),
        _ if FLAGS.contains(&name) => o.keep(name, (v != 0) as i32),
        _ if INTS.contains(&name) => o.keep(name, v),
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(())
}

/// Sockets with a filter that sees what programs and the kernel send, not packets.
fn has_messages(sock: &dyn SocketOps) -> bool {
    matches!(sock.domain(), libc::AF_UNIX | libc::AF_NETLINK)
}

/// SO_MAX_PACING_RATE: 8 bytes, or 4 of which -1 stands for no bound.
fn rate(value: &[u8], v: i32) -> u64 {
    match (value.first_chunk().filter(|_| value.len() == 8), v) {
        (Some(long), _) => u64::from_ne_bytes(*long),
        (None, -1) => u64::MAX,
        (None, v) => (v as u32).into(),
    }
}

/// SO_TXTIME (`struct sock_txtime`): the clock and flags. No queueing discipline here sends at a time.
fn set_txtime(o: &Options, value: &[u8], admin: bool) -> Result<()> {
    let [clock, flags] = <[i32; 2]>::read_from_bytes(value).map_err(|_| Errno::EINVAL)?;
    if flags & !3 != 0 {
        return Err(Errno::EINVAL);
    }
    if clock != libc::CLOCK_MONOTONIC && !admin {
        return Err(Errno::EPERM);
    }
    o.keep(SO_TXTIME, clock);
    o.keep(TXTIME_FLAGS, flags);
    Ok(())
}

fn set_timeout(slot: &AtomicU64, value: &[u8]) -> Result<()> {
    let (tv, _) = Timeval::read_from_prefix(value).map_err(|_| Errno::EINVAL)?;
    if !(0..1_000_000).contains(&tv.usec) {
        return Err(Errno::EDOM);
    }
    // A negative time means "do not wait at all"; the shortest wait comes closest.
    let ns = if tv.sec < 0 {
        1
    } else {
        (tv.sec as u64).saturating_mul(1_000_000_000).saturating_add(tv.usec as u64 * 1000)
    };
    slot.store(ns, Ordering::Relaxed);
    Ok(())
}
