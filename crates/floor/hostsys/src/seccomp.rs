//! The supervisor's side of seccomp user notification (seccomp_unotify(2)).

use abi::Result;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A system call that waits for our answer.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Cookie for the answer.
    pub id: u64,
    /// Thread id of the caller, in our pid namespace.
    pub tid: i32,
    /// System call number.
    pub nr: i32,
    /// Arguments.
    pub args: [u64; 6],
}

const fn iowr(nr: u64, size: usize) -> u64 {
    3 << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | nr
}
const fn iow(nr: u64, size: usize) -> u64 {
    1 << 30 | (size as u64) << 16 | (b'!' as u64) << 8 | nr
}
/// SECCOMP_IOCTL_NOTIF_RECV.
pub const NOTIF_RECV: u64 = iowr(0, size_of::<libc::seccomp_notif>());
/// SECCOMP_IOCTL_NOTIF_SEND.
pub const NOTIF_SEND: u64 = iowr(1, size_of::<libc::seccomp_notif_resp>());
/// SECCOMP_IOCTL_NOTIF_ID_VALID.
pub const NOTIF_ID_VALID: u64 = iow(2, 8);
/// SECCOMP_IOCTL_NOTIF_ADDFD.
pub const NOTIF_ADDFD: u64 = iow(3, size_of::<libc::seccomp_notif_addfd>());
/// SECCOMP_IOCTL_NOTIF_SET_FLAGS (Linux 6.6).
pub const NOTIF_SET_FLAGS: u64 = iow(4, 8);

fn ioctl<T>(fd: BorrowedFd<'_>, request: u64, arg: *mut T) -> Result<i64> {
    // SAFETY: every caller passes a pointer to a structure of the size that the request encodes.
    crate::check(i64::from(unsafe { libc::ioctl(fd.as_raw_fd(), request, arg) }))
}

/// Puts the calling thread, and all that it starts from now on, under a filter. Sets no_new_privs, without which the host takes
/// a filter from those with CAP_SYS_ADMIN only.
pub fn set_filter(code: &[libc::sock_filter]) -> Result<()> {
    let len = u16::try_from(code.len()).map_err(|_| abi::Errno::EINVAL)?;
    let program = libc::sock_fprog { len, filter: code.as_ptr().cast_mut() };
    // SAFETY: prctl(PR_SET_NO_NEW_PRIVS) takes no pointers; the host reads `len` instructions, which `code` has, and keeps a
    // copy of them.
    unsafe {
        crate::check(i64::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        crate::check(libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program)).map(drop)
    }
}

/// Takes the next request; blocks. ENOENT when the caller died meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> Result<Request> {
    // SAFETY: all-zero is a valid seccomp_notif, and what the kernel demands.
    let mut n: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    ioctl(listener, NOTIF_RECV, &mut n)?;
    Ok(Request { id: n.id, tid: n.pid as i32, nr: n.data.nr, args: n.data.args })
}

/// Makes the call return `answer`.
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: Result<i64>) -> Result<()> {
    let mut r = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: 0 };
    match answer {
        Ok(v) => r.val = v,
        Err(e) => r.error = -e.raw(),
    }
    ioctl(listener, NOTIF_SEND, &mut r).map(drop)
}

/// Lets the host execute the call. Sound only where every argument that matters is a register.
pub fn allow(listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    const CONTINUE: u32 = 1;
    let mut r = libc::seccomp_notif_resp { id, val: 0, error: 0, flags: CONTINUE };
    ioctl(listener, NOTIF_SEND, &mut r).map(drop)
}

/// Puts a copy of `fd` into the caller's table and makes the call return its number: the lowest free one, or `number`.
/// In the latter case the former descriptor of that number is closed.
pub fn answer_fd(listener: BorrowedFd<'_>, id: u64, fd: BorrowedFd<'_>, number: Option<u32>) -> Result<()> {
    const SETFD: u32 = 1;
    const SEND: u32 = 2;
    let mut a = libc::seccomp_notif_addfd {
        id,
        flags: SEND | if number.is_some() { SETFD } else { 0 },
        srcfd: fd.as_raw_fd() as u32,
        newfd: number.unwrap_or(0),
        newfd_flags: libc::O_CLOEXEC as u32,
    };
    ioctl(listener, NOTIF_ADDFD, &mut a).map(drop)
}

/// Whether the caller still waits (so its thread id was not reused).
pub fn is_valid(listener: BorrowedFd<'_>, id: u64) -> bool {
    let mut id = id;
    ioctl(listener, NOTIF_ID_VALID, &mut id).is_ok()
}

/// Asks for wake-ups on the caller's CPU; false when the host kernel does not offer it.
pub fn set_sync_wake_up(listener: BorrowedFd<'_>) -> bool {
    const SYNC_WAKE_UP: usize = 1;
    // The flags are the argument itself, not a pointer.
    ioctl(listener, NOTIF_SET_FLAGS, std::ptr::without_provenance_mut::<u8>(SYNC_WAKE_UP)).is_ok()
}
