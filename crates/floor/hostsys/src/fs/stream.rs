//! Host calls on inherited descriptors: the standard streams, terminals.
//!
//! The open file descriptions behind them are shared with others on the host,
//! so their status flags are never changed: reads and writes that must not
//! block ask for that call by call, or poll first.

use super::err;
use abi::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{IoSlice, IoSliceMut, ReadWriteFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// poll(2) of one descriptor without waiting: the events of `mask` that hold, with ERR and HUP.
pub fn poll_now(fd: impl AsFd, mask: u32) -> u32 {
    let flags = PollFlags::from_bits_retain(mask as u16);
    let mut p = [PollFd::from_borrowed_fd(fd.as_fd(), flags)];
    match rustix::event::poll(&mut p, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(1) => u32::from(p[0].revents().bits()),
        _ => 0,
    }
}

/// Waits until one of the events of `mask` holds, or an error or the end; false when that takes longer than `most`.
pub fn poll_for(fd: impl AsFd, mask: u32, most: Duration) -> bool {
    let flags = PollFlags::from_bits_retain(mask as u16);
    let end = Instant::now() + most;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), flags)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready != Ok(0),
        }
    }
}

/// Reads what is there from the current position; EAGAIN instead of waiting.
pub fn read_nowait(fd: impl AsFd, buf: &mut [u8]) -> Result<usize> {
    loop {
        match rustix::io::preadv2(&fd, &mut [IoSliceMut::new(buf)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => break,
            Err(e) => return Err(err(e)),
        }
    }
    // Terminals and other descriptors without RWF_NOWAIT: what poll promised is there, unless another
    // reader on the host was quicker.
    if poll_now(&fd, 0x41) == 0 {
        return Err(Errno::EAGAIN);
    }
    rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut *buf)).map_err(err)
}

/// Writes what fits at the current position; EAGAIN instead of waiting.
pub fn write_nowait(fd: impl AsFd, buf: &[u8]) -> Result<usize> {
    loop {
        match rustix::io::pwritev2(&fd, &[IoSlice::new(buf)], u64::MAX, ReadWriteFlags::NOWAIT) {
            Ok(n) => return Ok(n),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => break,
            Err(e) => return Err(err(e)),
        }
    }
    if poll_now(&fd, 0x104) == 0 {
        return Err(Errno::EAGAIN);
    }
    // A writable terminal or pipe takes at least a page without waiting.
    let n = buf.len().min(4096);
    rustix::io::retry_on_intr(|| rustix::io::write(&fd, &buf[..n])).map_err(err)
}

/// write(2) at the shared position or, with the host's O_APPEND, at the end; may wait (regular files).
pub fn write(fd: impl AsFd, buf: &[u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::write(&fd, buf)).map_err(err)
}

/// read(2) at the shared position; may wait (regular files).
pub fn read(fd: impl AsFd, buf: &mut [u8]) -> Result<usize> {
    rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut *buf)).map_err(err)
}

/// lseek(2) with SEEK_SET on the shared position.
pub fn seek_to(fd: impl AsFd, off: u64) -> Result<u64> {
    rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(off)).map_err(err)
}

/// The shared position.
pub fn tell(fd: impl AsFd) -> Result<u64> {
    rustix::fs::tell(fd).map_err(err)
}

/// F_GETFL.
pub fn status_flags(fd: impl AsFd) -> Result<i32> {
    rustix::fs::fcntl_getfl(fd).map(|f| f.bits() as i32).map_err(err)
}

/// A second descriptor for the same open file description.
pub fn dup(fd: impl AsFd) -> Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(err)
}

/// Terminal requests that are passed through, with the size of what they point to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TtyArg {
    /// The kernel fills this many bytes.
    Out(usize),
    /// The kernel reads this many bytes.
    In(usize),
    /// A plain number.
    Value,
}

/// Layout of a terminal request; `None` for requests that are not passed through.
pub fn tty_request(cmd: u32) -> Option<TtyArg> {
    const TERMIOS: usize = 36;
    const TERMIOS2: usize = 44;
    Some(match cmd {
        0x5401 => TtyArg::Out(TERMIOS),                     // TCGETS
        0x5402..=0x5404 => TtyArg::In(TERMIOS),             // TCSETS, TCSETSW, TCSETSF
        0x802c_542a => TtyArg::Out(TERMIOS2),               // TCGETS2
        0x402c_542b..=0x402c_542d => TtyArg::In(TERMIOS2),  // TCSETS2, TCSETSW2, TCSETSF2
        0x5409 | 0x540a | 0x540b | 0x5425 => TtyArg::Value, // TCSBRK, TCXONC, TCFLSH, TCSBRKP
        0x5411 | 0x541b => TtyArg::Out(4),                  // TIOCOUTQ, FIONREAD
        0x5413 => TtyArg::Out(8),                           // TIOCGWINSZ
        0x5414 => TtyArg::In(8),                            // TIOCSWINSZ
        _ => return None,
    })
}

/// ioctl(2) of a request from [`tty_request`]. `data` has the size that it states (empty for
/// [`TtyArg::Value`], where `value` is the argument).
pub fn tty_ioctl(fd: BorrowedFd<'_>, cmd: u32, data: &mut [u8], value: u64) -> Result<()> {
    let size = match tty_request(cmd).ok_or(Errno::ENOTTY)? {
        TtyArg::Out(n) | TtyArg::In(n) => n,
        TtyArg::Value => 0,
    };
    if data.len() != size {
        return Err(Errno::EINVAL);
    }
    let arg = if size == 0 { value } else { data.as_mut_ptr() as u64 };
    // SAFETY: the request is one of the table above; each accesses exactly `size` bytes at its
    // argument, which `data` has, or takes the argument as a plain number.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), cmd as _, arg) };
    if r < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
}

/// An epoll instance that tells which of the host descriptors became ready.
pub struct Readiness {
    epoll: OwnedFd,
    /// The events of its bells: one that is closed right after it was rung must be seen all the same.
    bells: Mutex<Vec<Arc<OwnedFd>>>,
}

impl Readiness {
    /// A new one.
    pub fn new() -> Result<Readiness> {
        let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).map_err(err)?;
        Ok(Readiness { epoll, bells: Mutex::default() })
    }

    /// Watches a descriptor edge-triggered for everything. EPERM for files that are always ready.
    pub fn add(&self, fd: impl AsFd, token: u64) -> Result<()> {
        use rustix::event::epoll;
        let f = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::PRI
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), f).map_err(err)
    }

    /// Watches a descriptor edge-triggered for what can be read, not for room: a socket has room again with each packet that
    /// leaves.
    pub fn add_input(&self, fd: impl AsFd, token: u64) -> Result<()> {
        use rustix::event::epoll;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), input(false)).map_err(err)
    }

    /// Watches a descriptor of [`add_input`](Self::add_input) for room as well, or no longer. Room that there is now is an
    /// event, too.
    pub fn await_room(&self, fd: impl AsFd, token: u64, wanted: bool) -> Result<()> {
        use rustix::event::epoll;
        epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), input(wanted)).map_err(err)
    }

    /// Stops watching.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = rustix::event::epoll::delete(&self.epoll, fd);
    }

    /// An event of `token` for [`Bell::ring`].
    pub fn bell(&self, token: u64) -> Result<Bell> {
        use rustix::event::epoll;
        // An eventfd is always writable: that would be an event at once.
        self.bell_of(token, epoll::EventFlags::IN)
    }

    /// A bell of which each ring is one event, with nothing to take back.
    pub fn pulse(&self, token: u64) -> Result<Bell> {
        use rustix::event::epoll::EventFlags;
        self.bell_of(token, EventFlags::IN | EventFlags::ET)
    }

    fn bell_of(&self, token: u64, flags: rustix::event::epoll::EventFlags) -> Result<Bell> {
        use rustix::event::{EventfdFlags, epoll, eventfd};
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(err)?);
        epoll::add(&self.epoll, &event, epoll::EventData::new_u64(token), flags).map_err(err)?;
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
        Ok(Bell(event))
    }

    /// Waits for events; gives (token, poll events) pairs.
    pub fn wait(&self) -> Vec<(u64, u32)> {
        use rustix::event::epoll;
        let mut buf = Vec::with_capacity(16);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut buf), None) {
            Ok(_) => buf.iter().map(|e| ({ e.data }.u64(), { e.flags }.bits())).collect(),
            Err(_) => Vec::new(),
        }
    }
}

/// Edge-triggered events of input, and of room.
fn input(room: bool) -> rustix::event::epoll::EventFlags {
    use rustix::event::epoll::EventFlags;
    let flags = EventFlags::IN | EventFlags::PRI | EventFlags::RDHUP | EventFlags::ET;
    if room { flags | EventFlags::OUT } else { flags }
}

/// Wakes the thread in [`Readiness::wait`].
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Has it return with the bell's token.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
