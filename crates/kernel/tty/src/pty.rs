//! A pseudoterminal pair: the state behind its master and slave files.
//!
//! Input from the master is queued, then typed into the line discipline while that has room. Output of the slave goes
//! through the line discipline into the buffer that the master reads. Lock: `inner`, a leaf; queues are notified and
//! signals sent after it is released. A checkpoint keeps the line discipline, buffers, window size, session and group.

mod job;
mod state;

pub use self::job::JobControl;
pub use self::state::PtyState;

use crate::ldisc::{Effects, Ldisc};
use crate::slaves::Slaves;
use crate::termios::{Termios, WinSize};
use abi::{Errno, Result, Signal};
use caller::timer::TimerHandle;
use ktime::{Clock, Ktime};
use lock_order::{Mutex, rank};
use pid::Pid;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;
use vfs::file::{F_OWNER_PGRP, F_OWNER_PID};
use vfs::{Caller, OpenFile};
use wait::{Events, WaitQueue};

/// Output beyond this much unread makes the slave wait.
const OUT_LIMIT: usize = 16 << 10;
/// The master waits when this much input has not been read.
const IN_LIMIT: usize = 16 << 10;
/// Bytes that Linux's line discipline of a master holds (N_TTY_BUF_SIZE).
const MASTER_BUFFER: usize = 4096;
/// A read's time-out that ended this long ago belonged to a read that was given up.
const STALE: Duration = Duration::from_millis(100);

/// Status bits of packet mode (TIOCPKT_*).
const PKT_FLUSHREAD: u8 = 1;
const PKT_FLUSHWRITE: u8 = 2;
const PKT_STOP: u8 = 4;
const PKT_START: u8 = 8;
const PKT_NOSTOP: u8 = 16;
const PKT_DOSTOP: u8 = 32;
const PKT_IOCTL: u8 = 64;

/// An end of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Master,
    Slave,
}

pub(crate) struct Inner {
    pub ldisc: Ldisc,
    /// Typed, but not yet taken by the line discipline.
    pending: VecDeque<u8>,
    pub size: WinSize,
    /// TIOCSPTLCK.
    pub locked: bool,
    /// TIOCEXCL.
    pub exclusive: bool,
    pub packet: bool,
    packet_events: u8,
    /// Session it controls and that session's foreground group; 0 for none.
    pub session: i32,
    pub pgrp: i32,
    /// The process IDs behind the two, so that their numbers can be told when the last process has gone.
    ids: [Option<Arc<Pid>>; 2],
    pub(crate) slaves: usize,
    /// The last slave file was closed (and none opened since).
    slave_closed: bool,
    /// The master is gone.
    pub hung_up: bool,
    /// How often the slave was hung up while the master stayed: files from before are dead.
    pub(crate) slave_hangups: u64,
    /// The master's file is dead, and the slave has not heard of it.
    pub(crate) master_hung: bool,
    /// When the last character arrived, and the end of a timed raw read.
    last_input: Ktime,
    read_ends: Option<Ktime>,
    read_timer: Option<TimerHandle>,
}

/// A pair.
pub struct Pty {
    /// N of /dev/pts/N.
    pub index: u32,
    clock: Clock,
    pub(crate) inner: Mutex<Inner, { rank::TERMINAL }>,
    pub(crate) master_queue: WaitQueue,
    pub(crate) slave_queue: WaitQueue,
    pub(crate) job: Arc<dyn JobControl>,
    /// The table of the instance of devpts that has the slave.
    pub(crate) home: Weak<Slaves>,
    me: Weak<Pty>,
}

impl Pty {
    pub(crate) fn new(index: u32, clock: Clock, job: Arc<dyn JobControl>, home: Weak<Slaves>) -> Arc<Pty> {
        Arc::new_cyclic(|me| Pty {
            index,
            clock,
            inner: Mutex::new(Inner {
                ldisc: Ldisc::default(),
                pending: VecDeque::new(),
                size: WinSize::default(),
                locked: true,
                exclusive: false,
                packet: false,
                packet_events: 0,
                session: 0,
                pgrp: 0,
                ids: [None, None],
                slaves: 0,
                slave_closed: false,
                hung_up: false,
                slave_hangups: 0,
                master_hung: false,
                last_input: clock.now(),
                read_ends: None,
                read_timer: None,
            }),
            master_queue: WaitQueue::new(),
            slave_queue: WaitQueue::new(),
            job,
            home,
            me: me.clone(),
        })
    }

    /// Runs a change, then feeds the line discipline, wakes threads that can go on and sends signals.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut Inner, &mut Effects) -> R) -> R {
        let mut i = self.inner.lock();
        let mut fx = Effects::default();
        let r = f(&mut i, &mut fx);
        while i.ldisc.has_room()
            && let Some(b) = i.pending.pop_front()
        {
            i.ldisc.input(b, &mut fx);
        }
        if fx.flushed {
            i.packet_events |= PKT_FLUSHREAD;
        }
        match fx.flow {
            Some(true) => i.packet_events = i.packet_events & !PKT_START | PKT_STOP,
            Some(false) => i.packet_events = i.packet_events & !PKT_STOP | PKT_START,
            None => {}
        }
        if !i.packet {
            i.packet_events = 0;
        }
        let (master, slave, pgrp) = (i.master_events(), i.slave_events(), i.pgrp);
        drop(i);
        self.master_queue.notify(master);
        self.slave_queue.notify(slave);
        if pgrp > 0 {
            fx.signals.iter().for_each(|&s| self.job.signal_pgrp(pgrp, s));
        }
        r
    }

    /// The master writes: input is typed.
    pub(crate) fn type_in(&self, data: &[u8]) -> Result<usize> {
        if data.is_empty() {
            return Ok(0);
        }
        self.change(|i, fx| {
            let mut n = 0;
            for &b in data {
                if i.pending.is_empty() && i.ldisc.has_room() {
                    i.ldisc.input(b, fx);
                } else if i.pending.len() < IN_LIMIT {
                    i.pending.push_back(b);
                } else {
                    break;
                }
                n += 1;
            }
            i.last_input = self.clock.now();
            if n == 0 { Err(Errno::EAGAIN) } else { Ok(n) }
        })
    }

    /// The master reads: the screen.
    pub(crate) fn take_output(&self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.change(|i, _| {
            if i.packet && i.packet_events != 0 {
                buf[0] = std::mem::take(&mut i.packet_events);
                return Ok(1);
            }
            if i.ldisc.out.is_empty() {
                return Err(if i.slave_closed { Errno::EIO } else { Errno::EAGAIN });
            }
            let skip = i.packet as usize;
            if i.packet {
                buf[0] = 0;
            }
            let n = i.ldisc.out.len().min(buf.len() - skip);
            for (to, from) in buf[skip..].iter_mut().zip(i.ldisc.out.drain(..n)) {
                *to = from;
            }
            Ok(n + skip)
        })
    }

    /// The slave reads.
    pub(crate) fn read(&self, cx: &dyn Caller, nonblock: bool, buf: &mut [u8]) -> Result<usize> {
        if self.inner.lock().hung_up {
            return Ok(0);
        }
        self.check_foreground(cx, Signal::SIGTTIN)?;
        if buf.is_empty() {
            return Ok(0);
        }
        self.change(|i, _| {
            if i.hung_up {
                return Ok(0);
            }
            // Lengths and times of raw reads mean nothing in canonical mode, also where others edit the lines.
            if i.ldisc.termios().l(libc::ICANON) {
                return if i.ldisc.has_input(1) { Ok(i.ldisc.read(buf)) } else { Err(Errno::EAGAIN) };
            }
            self.read_raw(cx, i, nonblock, buf)
        })
    }

    /// Raw reads end by count (VMIN), by time (VTIME), or by what comes first.
    fn read_raw(&self, cx: &dyn Caller, i: &mut Inner, nonblock: bool, buf: &mut [u8]) -> Result<usize> {
        let t = i.ldisc.termios();
        let min = usize::from(t.c(libc::VMIN)).min(buf.len());
        let time = Duration::from_millis(100 * u64::from(t.c(libc::VTIME)));
        let have = i.ldisc.has_input(1);
        if i.ldisc.has_input(min.max(1)) || (have && nonblock) {
            i.read_ends = None;
            return Ok(i.ldisc.read(buf));
        }
        if time.is_zero() {
            return if min == 0 { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        if nonblock {
            return Err(Errno::EAGAIN);
        }
        let now = self.clock.now();
        let ends = match i.read_ends {
            _ if have => i.last_input.plus(time),
            // The clock of VMIN > 0 starts with the first character.
            _ if min > 0 => return Err(Errno::EAGAIN),
            Some(e) if now < e.plus(STALE) => e,
            _ => now.plus(time),
        };
        if now >= ends {
            i.read_ends = None;
            return Ok(i.ldisc.read(buf));
        }
        i.read_ends = Some(ends);
        let me = self.me.clone();
        i.read_timer = Some(cx.resources().timers.schedule(ends, move || {
            if let Some(p) = me.upgrade() {
                p.slave_queue.notify(Events::READABLE);
            }
        }));
        Err(Errno::EAGAIN)
    }

    /// The slave writes.
    pub(crate) fn write(&self, cx: &dyn Caller, data: &[u8]) -> Result<usize> {
        let stop_writers = {
            let i = self.inner.lock();
            if i.hung_up {
                return Err(Errno::EIO);
            }
            i.ldisc.termios().l(libc::TOSTOP)
        };
        if stop_writers {
            self.check_foreground(cx, Signal::SIGTTOU)?;
        }
        if data.is_empty() {
            return Ok(0);
        }
        self.change(|i, _| {
            if i.ldisc.stopped {
                return Err(Errno::EAGAIN);
            }
            match i.ldisc.output(data, OUT_LIMIT) {
                0 => Err(Errno::EAGAIN),
                n => Ok(n),
            }
        })
    }

    /// True when this is the caller's controlling terminal.
    pub(crate) fn controls(&self, cx: &dyn Caller) -> bool {
        let session = self.inner.lock().session;
        session != 0 && session == cx.sid()
    }

    /// Stops a background process that touches its terminal.
    pub(crate) fn check_foreground(&self, cx: &dyn Caller, sig: Signal) -> Result<()> {
        let (session, fg) = {
            let i = self.inner.lock();
            (i.session, i.pgrp)
        };
        if session == 0 || fg == 0 || session != cx.sid() || fg == cx.pgid() {
            return Ok(());
        }
        if cx.blocks_or_ignores(sig) {
            return if sig == Signal::SIGTTIN { Err(Errno::EIO) } else { Ok(()) };
        }
        if self.job.is_orphaned(cx.pgid()) {
            return Err(Errno::EIO);
        }
        self.job.signal_pgrp(cx.pgid(), sig);
        Err(Errno::ERESTARTSYS)
    }

    /// Becomes the controlling terminal of the caller's session; the caller's group comes to the foreground.
    pub(crate) fn take_session(self: &Arc<Self>, cx: &dyn Caller) {
        {
            let mut i = self.inner.lock();
            i.session = cx.sid();
            i.ids[0] = cx.find_pid(i.session);
            i.set_foreground(cx, cx.pgid());
        }
        self.job.set_terminal(cx.sid(), Some(self.clone()));
    }

    /// Signals of a file begin: one without an owner gets the foreground group, or else the caller's process.
    pub(crate) fn own(&self, cx: &dyn Caller, file: &OpenFile, side: Side) {
        let foreground = if side == Side::Slave { self.inner.lock().pgrp } else { 0 };
        let mut owner = file.owner.lock();
        if owner.id == 0 {
            let (kind, id) =
                if foreground > 0 { (F_OWNER_PGRP, foreground) } else { (F_OWNER_PID, cx.pid()) };
            owner.set(kind, id, &cx.creds());
        }
    }

    /// Gives its session up; returns session and foreground group.
    pub(crate) fn drop_session(&self) -> (i32, i32) {
        let mut i = self.inner.lock();
        let was = (std::mem::take(&mut i.session), std::mem::take(&mut i.pgrp));
        drop(i);
        if was.0 != 0 {
            self.job.set_terminal(was.0, None);
        }
        was
    }

    /// New attributes; `flush` throws unread input away first (TCSETSF).
    pub(crate) fn set_termios(&self, t: Termios, flush: bool) {
        if flush {
            self.flush(true, false);
        }
        self.change(|i, fx| {
            let plain =
                |t: &Termios| t.i(libc::IXON) && t.c(libc::VSTOP) == 0x13 && t.c(libc::VSTART) == 0x11;
            let old = *i.ldisc.termios();
            let (was, is) = (plain(&old), plain(&t));
            let by_others = old.l(libc::EXTPROC) || t.l(libc::EXTPROC);
            *fx = i.ldisc.set_termios(t);
            if was != is {
                i.packet_events &= !(PKT_DOSTOP | PKT_NOSTOP);
                i.packet_events |= if is { PKT_DOSTOP } else { PKT_NOSTOP };
            }
            if by_others {
                i.packet_events |= PKT_IOCTL;
            }
        });
    }

    /// tcflush(3) of the slave. Output that the master's line discipline has taken stays.
    pub(crate) fn flush(&self, input: bool, output: bool) {
        self.change(|i, _| {
            if input {
                i.pending.clear();
                i.ldisc.flush_input();
                i.packet_events |= PKT_FLUSHREAD;
            }
            if output {
                i.ldisc.out.truncate(MASTER_BUFFER);
                i.packet_events |= PKT_FLUSHWRITE;
            }
        });
    }

    /// tcflush(3) of the master: what it has not read, and what the slave's line discipline has not taken. Packet
    /// mode tells the master of the slave's requests only.
    pub(crate) fn flush_master(&self, input: bool, output: bool) {
        self.change(|i, _| {
            if input {
                i.ldisc.out.clear();
            }
            if output {
                i.pending.clear();
            }
        });
    }

    /// tcflow(3) from the slave: stops or starts output.
    pub(crate) fn set_stopped(&self, stop: bool) {
        self.change(|i, fx| {
            if i.ldisc.stopped != stop {
                i.ldisc.stopped = stop;
                fx.flow = Some(stop);
            }
        });
    }

    /// A character straight to the master (tcflow(3)'s VSTOP and VSTART).
    pub(crate) fn send_raw(&self, b: u8) {
        self.change(|i, _| i.ldisc.out.push_back(b));
    }

    /// TIOCSWINSZ: SIGWINCH to the foreground when it changed.
    pub(crate) fn resize(&self, size: WinSize) {
        self.change(|i, fx| {
            if i.size != size {
                i.size = size;
                fx.signals.push(Signal::SIGWINCH);
            }
        });
    }

    /// A slave file is opened: EIO while locked or after the master has gone.
    /// Gives the number of hangups so far.
    pub(crate) fn slave_opened(&self) -> Result<u64> {
        let mut i = self.inner.lock();
        if i.locked || i.hung_up {
            return Err(Errno::EIO);
        }
        i.slaves += 1;
        i.slave_closed = false;
        Ok(i.slave_hangups)
    }

    /// A slave file is closed.
    pub(crate) fn slave_closed(&self) {
        self.change(|i, _| {
            i.slaves -= 1;
            if i.slaves == 0 {
                i.slave_closed = true;
                i.exclusive = false;
                i.packet_events = 0;
            }
        });
    }

    /// The master is closed, or the host's terminal has gone.
    pub fn is_hung_up(&self) -> bool {
        self.inner.lock().hung_up
    }

    /// The master is closed, or the host's terminal goes: the session gets SIGHUP.
    pub fn hang_up(&self) {
        let already = std::mem::replace(&mut self.inner.lock().hung_up, true);
        if already {
            return;
        }
        if let Some(home) = self.home.upgrade() {
            home.remove(self.index);
        }
        let (session, _) = self.drop_session();
        if session != 0 {
            self.job.signal_process(session, Signal::SIGHUP);
            self.job.signal_process(session, Signal::SIGCONT);
        }
        self.slave_queue.notify(Events::ALL);
        self.master_queue.notify(Events::ALL);
    }

    /// TIOCVHANGUP, vhangup(2): the slave's open files are dead from now on, its session loses the terminal and gets
    /// SIGHUP, and attributes are those of a new terminal. Files that are opened later work.
    pub fn hang_up_slave(&self) {
        let (session, _) = self.drop_session();
        if session != 0 {
            self.job.signal_process(session, Signal::SIGHUP);
            self.job.signal_process(session, Signal::SIGCONT);
        }
        self.flush(true, true);
        self.change(|i, fx| {
            *fx = i.ldisc.set_termios(Termios::default());
            i.ldisc.stopped = false;
            i.slave_hangups += 1;
        });
        self.slave_queue.notify(Events::ALL);
    }

    /// TIOCVHANGUP of the master: its file is dead, and the slave hears of it when that is closed.
    pub(crate) fn hang_up_master(&self) {
        self.inner.lock().master_hung = true;
        self.master_queue.notify(Events::ALL);
    }

    pub(crate) fn output_empty(&self) -> bool {
        self.inner.lock().ldisc.out.is_empty()
    }

    pub(crate) fn master_poll(&self) -> Events {
        self.inner.lock().master_events()
    }

    pub(crate) fn slave_poll(&self) -> Events {
        self.inner.lock().slave_events()
    }
}

impl Inner {
    fn master_events(&self) -> Events {
        let mut e = Events::NONE;
        if !self.ldisc.out.is_empty() {
            e |= Events::READABLE;
        }
        if self.packet && self.packet_events != 0 {
            e |= Events::READABLE | Events::PRI;
        }
        if self.pending.len() < IN_LIMIT {
            e |= Events::WRITABLE;
        }
        if self.slave_closed {
            e |= Events::HUP;
        }
        e
    }

    fn slave_events(&self) -> Events {
        if self.hung_up {
            return Events::READABLE | Events::WRITABLE | Events::ERR | Events::HUP;
        }
        let mut e = Events::NONE;
        let t = self.ldisc.termios();
        let min = if t.c(libc::VTIME) == 0 { usize::from(t.c(libc::VMIN)) } else { 1 };
        if self.ldisc.has_input(min) {
            e |= Events::READABLE;
        }
        if !self.ldisc.stopped && self.ldisc.out.len() < OUT_LIMIT {
            e |= Events::WRITABLE;
        }
        e
    }
}

impl Inner {
    /// Brings a process group of the session to the foreground.
    pub(crate) fn set_foreground(&mut self, cx: &dyn Caller, pgrp: i32) {
        self.pgrp = pgrp;
        self.ids[1] = cx.find_pid(pgrp);
    }
}

impl Pty {
    /// The leader of session `sid`, which has this controlling terminal, has ended.
    pub fn session_leader_left(&self, sid: i32) {
        if self.inner.lock().session != sid {
            return;
        }
        let (_, pgrp) = self.drop_session();
        if pgrp > 0 {
            self.job.signal_pgrp(pgrp, Signal::SIGHUP);
        }
    }

    /// Brings a process group of the session to the foreground, without a look at whether the caller may.
    pub fn bring_to_foreground(&self, cx: &dyn Caller, pgrp: i32) {
        self.inner.lock().set_foreground(cx, pgrp);
    }

    /// Device number and foreground process group (-1 for none), as /proc/PID/stat shows them.
    pub fn device_and_foreground(&self) -> (u64, i32) {
        let pgrp = self.inner.lock().pgrp;
        (abi::stat::makedev(136, self.index), if pgrp > 0 { pgrp } else { -1 })
    }
}
